package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
)

func newRestoreCommand(a *app) *cobra.Command {
	var version int64
	var at string
	var ignore bool
	c := &cobra.Command{
		Use:   "restore TABLE --version N | --timestamp TIME",
		Short: "Make an older version the newest content of a table",
		Long: "Make rows, schema and properties of an older version those of a new version; nothing is lost, the versions in\n" +
			"between stay in the history. Files of that version must still be there (vacuum deletes them). A target of\n" +
			"apply does not know its rows any more afterwards: apply stops with TARGET_REWOUND.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice delete people
  sluice restore people --version 1
  sluice cat people`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			o := delta.RestoreOptions{IgnoreMissing: ignore}
			byVersion := cmd.Flags().Changed("version")
			switch {
			case byVersion == (at != ""):
				return usage("MISSING_FLAG", "restore: give --version or --timestamp, and not both")
			case byVersion && version < 0:
				return usage("INVALID_FLAG", "--version %d: versions start at 0", version)
			case byVersion:
				o.Version = &version
			default:
				ts, err := rowio.ParseTime(at, nil)
				if err != nil {
					return usage("INVALID_FLAG", "--timestamp: %v", err)
				}
				o.Timestamp = &ts
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := t.Restore(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			for _, p := range r.Missing {
				a.warn("%s: not there any more; its rows are not restored", p)
			}
			out := writeResult{Operation: "restore", Table: t.Store().URL(), Version: r.Version, Committed: r.Committed, Metrics: metricsOf(r.Metrics)}
			out.Metrics["restored_version"], out.Metrics["files_missing"] = r.To, int64(len(r.Missing))
			summary := fmt.Sprintf("restore %s: version %d is like version %d already", args[0], r.Version, r.To)
			if r.Committed {
				summary = fmt.Sprintf("restore %s: version %d has the content of version %d: %s; %s taken back, %s removed", args[0], r.Version, r.To, rowsOf(r.Metrics),
					plural(r.Metrics.FilesAdded, "file", "files"), plural(r.Metrics.FilesRemoved, "file", "files"))
			}
			return a.printResult(out, summary)
		},
	}
	f := c.Flags()
	f.Int64Var(&version, "version", 0, "version to go back to")
	f.StringVar(&at, "timestamp", "", "go back to the newest version of this time: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC")
	f.BoolVar(&ignore, "ignore-missing-files", false, "leave out files that are gone, with their rows")
	return c
}
