package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

// vacuumResult is the result object of vacuum.
type vacuumResult struct {
	Operation string           `json:"operation"`
	Table     string           `json:"table"`
	Version   int64            `json:"version"`
	Committed bool             `json:"committed"`
	Retained  string           `json:"retained"`
	Metrics   map[string]int64 `json:"metrics"`
}

func newVacuumCommand(a *app) *cobra.Command {
	var o delta.VacuumOptions
	var retain durationFlag
	c := &cobra.Command{
		Use:   "vacuum TABLE [--retain DURATION] [--dry-run]",
		Short: "Delete files that no version of the last days needs",
		Long: "Delete files in a table's folder that no version of the last days needs: data files, deletion vectors and\n" +
			"change files of older versions, and what failed writers left. Time travel and the change feed end where their\n" +
			"files are gone. Shallow clones of the table lose their rows with the files. The log, files and folders that\n" +
			"begin with _ or . (the state of apply among them) and tables in folders below stay.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice delete people
  sluice vacuum people --retain 0s --allow-short-retention --dry-run
  sluice vacuum people`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !o.DryRun {
				if err := a.checkResultForm(); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("retain") {
				d := time.Duration(retain)
				o.Retain = &d
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p := a.startProgress("vacuuming", 0, false)
			r, err := t.Vacuum(cmd.Context(), o)
			p.Stop()
			if err != nil {
				var short *delta.RetentionError
				if errors.As(err, &short) {
					return &cliError{code: short.Code(), exit: exitRefused, message: short.Error(), hint: "add --allow-short-retention if nobody writes or reads older versions", err: err}
				}
				err = fmt.Errorf("vacuum %s: %w", args[0], err)
				if r.Committed {
					err = &committedError{text: plural(r.Deleted, "file", "files") + " deleted", err: err}
				}
				return err
			}
			if o.DryRun {
				return a.printVacuum(r)
			}
			out := vacuumResult{Operation: "vacuum", Table: t.Store().URL(), Version: r.Version, Committed: r.Committed, Retained: r.Retain.String(),
				Metrics: map[string]int64{"files_deleted": r.Deleted, "bytes_found": r.Bytes}}
			return a.printResult(out, fmt.Sprintf("vacuum %s: %s deleted, %s", args[0], plural(r.Deleted, "file", "files"), humanSize(r.Bytes)))
		},
	}
	f := c.Flags()
	f.Var(&retain, "retain", "keep what versions of this last time need, such as 168h or 7d\n(default: the table's delta.deletedFileRetentionDuration, else 7 days)")
	f.BoolVar(&o.DryRun, "dry-run", false, "only list the files")
	f.BoolVar(&o.AllowShortRetention, "allow-short-retention", false, "allow less than the table's retention: files of running writers may go")
	f.BoolVar(&o.Lite, "lite", false, "find the files by the log since the last vacuum instead of listing the folder;\nfiles that no version named stay")
	return c
}

// printVacuum lists the files of a dry run.
func (a *app) printVacuum(r delta.VacuumResult) error {
	s := &schema.Struct{Fields: []schema.Field{{Name: "path", Type: schema.String}, {Name: "size", Type: schema.Long}, {Name: "modified", Type: schema.Timestamp}}}
	rows := make([][]any, len(r.Files))
	for i, f := range r.Files {
		rows[i] = []any{f.Key, f.Size, f.ModTime}
	}
	return a.printValues(s, rows)
}
