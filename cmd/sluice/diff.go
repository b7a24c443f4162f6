package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
)

func newDiffCommand(a *app) *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use:   "diff TABLE --from A [--to B]",
		Short: "Print the rows that differ between two versions",
		Long: "Print the rows that differ between two versions, with _change_type: delete for a row that only --from has,\n" +
			"insert for one that only --to has. What changed and changed back in between does not show. The change feed\n" +
			"is read where the table has one, else the files that the versions do not share.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice update people --set "name = 'Ada L.'"
  sluice diff people --from 1 --to 2`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" {
				return usage("MISSING_FLAG", "diff: --from is missing")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var o delta.DiffOptions
			if o.From, err = versionOf(cmd.Context(), t, "from", from); err != nil {
				return err
			}
			if o.To, err = versionOf(cmd.Context(), t, "to", to); err != nil {
				return err
			}
			d, err := t.Diff(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("diff %s: %w", args[0], err)
			}
			return a.printRows(d.Schema, d.Rows(cmd.Context()))
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "version, or a time: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC (required)")
	f.StringVar(&to, "to", "", "version or time to compare with (default: the newest version)")
	return c
}

// versionOf reads a flag that is a version or a time; "" is the newest version.
func versionOf(ctx context.Context, t *delta.Table, flag, text string) (int64, error) {
	if text == "" {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return 0, err
		}
		return snap.Version, nil
	}
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		if v < 0 {
			return 0, usage("INVALID_FLAG", "--%s %d: versions start at 0", flag, v)
		}
		return v, nil
	}
	at, err := rowio.ParseTime(text, nil)
	if err != nil {
		return 0, usage("INVALID_FLAG", "--%s: neither a version nor a time: %v", flag, err)
	}
	snap, err := t.SnapshotAsOf(ctx, at)
	if err != nil {
		return 0, err
	}
	return snap.Version, nil
}
