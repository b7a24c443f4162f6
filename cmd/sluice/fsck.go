package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/fsck"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

func newFsckCommand(a *app) *cobra.Command {
	var repair, quick bool
	var state string
	c := &cobra.Command{
		Use:   "fsck TABLE [flags]",
		Short: "Check log, files, statistics, deletion vectors, change files and apply state of a table",
		Long: "Read a whole table and hold what it says of itself against what is there: the log against itself, the files against the log,\n" +
			"the rows against the statistics, the change files against their commits, the apply state against what the target names.\n" +
			"All findings are reported, with their place. Exit code 6 if there is an error among them. docs/fsck.md lists the codes.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  sluice fsck people
  sluice fsck people --repair -o json`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			store, err := a.open(args[0])
			if err != nil {
				return err
			}
			o := fsck.Options{Quick: quick}
			if o.Table, err = a.deltaOptions(); err != nil {
				return err
			}
			o.Apply = apply.Options{Clock: a.clock, Logger: a.logger(), EngineInfo: "sluice " + version}
			o.Operator = apply.Operator{Name: open.Base(args[0])}
			if state == "" {
				state = recordedState(cmd.Context(), store, o.Table)
			}
			if state != "" {
				o.Operator.StatePath, o.Operator.State = state, a.below(state, true, "state")
			}
			work := fsck.Check
			if repair {
				work = fsck.Repair
			}
			r, err := work(cmd.Context(), store, o)
			if err != nil {
				return fmt.Errorf("fsck %s: %w", args[0], err)
			}
			if err := a.printResult(r, fsckText(r)); err != nil {
				return err
			}
			if n := r.Count(deltalog.SevereError); n > 0 {
				return &cliError{code: "FSCK_ERRORS", exit: exitCorrupt, message: fmt.Sprintf("fsck %s: %d errors", args[0], n),
					hint: "see the findings; docs/fsck.md says what to do about each"}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "put right what loses nothing: damaged checkpoints, checksums, compaction files and\n_last_checkpoint are deleted where the commits make the same state")
	c.Flags().BoolVar(&quick, "quick", false, "read the footers of files only, not their rows: statistics and change rows are not checked")
	c.Flags().StringVar(&state, "state", "", "where the apply state lies, if not where the table says")
	return c
}

// recordedState is where the newest version says that its apply state lies, "" for in
// the table; a table that cannot be opened says nothing, and the check says why.
func recordedState(ctx context.Context, store storage.Store, o delta.Options) string {
	t, err := delta.Open(ctx, store, o)
	if err != nil {
		return ""
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return ""
	}
	return snap.Metadata.Configuration["sluice.apply.state"]
}

// fsckText is the report for a reader.
func fsckText(r *fsck.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d: %d commits, %d checkpoints, %d files with %d rows and %d bytes, %d deletion vectors, %d change files",
		r.Version, r.Commits, r.Checkpoints, r.Files, r.Rows, r.Bytes, r.Vectors, r.ChangeFiles)
	if r.State {
		b.WriteString(", apply state")
	}
	b.WriteByte('\n')
	line := func(word string, f deltalog.Finding) {
		fmt.Fprintf(&b, "%-8s %s", word, f.Code)
		if f.File != "" {
			fmt.Fprintf(&b, " %s", f.File)
		}
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		if f.Version >= 0 {
			fmt.Fprintf(&b, " (version %d)", f.Version)
		}
		fmt.Fprintf(&b, ": %s\n", oneLine(f.Detail))
	}
	repairs := 0
	for _, f := range r.Findings {
		line(string(f.Severity), f)
		if f.Repair != "" {
			repairs++
		}
	}
	for _, f := range r.Repaired {
		line("repaired", f)
	}
	switch {
	case len(r.Findings) == 0:
		b.WriteString("nothing found\n")
	case repairs > 0:
		fmt.Fprintf(&b, "%d of them can be put right without loss: --repair\n", repairs)
	}
	return b.String()
}
