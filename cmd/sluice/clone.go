package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
)

func newCloneCommand(a *app) *cobra.Command {
	var version int64
	var at string
	var shallow bool
	c := &cobra.Command{
		Use:   "clone TABLE NEW [--shallow] [--version N | --timestamp TIME]",
		Short: "Copy a table, with its files or by reference to them",
		Long: "Make a new table with the rows, schema and properties of another, at a version. The copy has its own history\n" +
			"and id. With --shallow no file is copied: the new table refers to the files of the source, and loses rows\n" +
			"when a vacuum of the source deletes them; changes of either table do not show in the other. The state of\n" +
			"apply is not copied: the copy of a target is a plain table.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice clone people backup
  sluice clone people experiment --shallow
  sluice update experiment --set "name = 'x'"
  sluice cat backup`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("expected a table and the place of the new one, found %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			o := delta.CloneOptions{Shallow: shallow}
			if cmd.Flags().Changed("version") {
				if version < 0 {
					return usage("INVALID_FLAG", "--version %d: versions start at 0", version)
				}
				o.Version = &version
			}
			if at != "" {
				if o.Version != nil {
					return usage("INVALID_FLAG", "--version and --timestamp exclude each other")
				}
				ts, err := rowio.ParseTime(at, nil)
				if err != nil {
					return usage("INVALID_FLAG", "--timestamp: %v", err)
				}
				o.Timestamp = &ts
			}
			from, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			store, err := a.open(args[1])
			if err != nil {
				return err
			}
			do, err := a.deltaOptions()
			if err != nil {
				return err
			}
			p := a.startProgress("copying", 0, false)
			t, r, err := delta.Clone(cmd.Context(), from, store, o, do)
			p.Stop()
			if err != nil {
				return fmt.Errorf("clone %s: %w", args[0], err)
			}
			out := writeResult{Operation: "clone", Table: t.Store().URL(), Version: r.Version, Committed: r.Committed, Metrics: metricsOf(r.Metrics)}
			out.Metrics["source_version"], out.Metrics["files_copied"], out.Metrics["bytes_copied"] = r.Source, r.FilesCopied, r.BytesCopied
			return a.printResult(out, fmt.Sprintf("clone %s: %s has the rows of version %d: %s, %s copied (%s)", args[0], args[1], r.Source,
				plural(r.Metrics.FilesAdded, "file", "files"), plural(r.FilesCopied, "file", "files"), humanSize(r.BytesCopied)))
		},
	}
	f := c.Flags()
	f.BoolVar(&shallow, "shallow", false, "refer to the files of the source instead of copying them (local file systems)")
	f.Int64Var(&version, "version", 0, "version to copy (default: the newest)")
	f.StringVar(&at, "timestamp", "", "copy the newest version of this time: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC")
	return c
}
