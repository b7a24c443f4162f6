package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/internal/rowio"
)

func newChangesCommand(a *app) *cobra.Command {
	var from, to int64
	var fromTime, toTime, where string
	var columns listFlag
	c := &cobra.Command{
		Use:   "changes TABLE --from-version N",
		Short: "Print the change feed of a table",
		Long: "Print the change feed of a table: every inserted, updated and deleted row of a range of versions, with\n" +
			"_change_type (insert, update_preimage, update_postimage, delete), _commit_version and _commit_timestamp.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING" --property delta.enableChangeDataFeed=true
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice update people --set "name = 'Ada L.'" --where "id = 1"
  sluice changes people --from-version 0
  sluice changes people --from-version 2 --to-version 2 --where "_change_type = 'update_postimage'"`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			zone, err := a.flags.zone()
			if err != nil {
				return err
			}
			o := cdf.Options{Columns: columns.values, Where: where, Zone: zone}
			r := &o.Range
			for _, end := range []struct {
				flag    string
				value   *int64
				version **int64
			}{{"from-version", &from, &r.FromVersion}, {"to-version", &to, &r.ToVersion}} {
				if !cmd.Flags().Changed(end.flag) {
					continue
				}
				if *end.value < 0 {
					return usage("INVALID_FLAG", "--%s %d: versions start at 0", end.flag, *end.value)
				}
				*end.version = end.value
			}
			for _, end := range []struct {
				flag, value string
				time        **time.Time
			}{{"from-timestamp", fromTime, &r.FromTime}, {"to-timestamp", toTime, &r.ToTime}} {
				if end.value == "" {
					continue
				}
				ts, err := rowio.ParseTime(end.value, nil)
				if err != nil {
					return usage("INVALID_FLAG", "--%s: %v", end.flag, err)
				}
				*end.time = &ts
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			snap, err := t.Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			feed, err := cdf.OpenAt(cmd.Context(), snap, o)
			if err != nil {
				return fmt.Errorf("read changes of %s: %w", args[0], err)
			}
			return a.printRows(feed.Schema, feed.Rows(cmd.Context()))
		},
	}
	f := c.Flags()
	f.Int64Var(&from, "from-version", 0, "first version, inclusive (this or --from-timestamp is required)")
	f.Int64Var(&to, "to-version", 0, "last version, inclusive (default: the newest)")
	f.StringVar(&fromTime, "from-timestamp", "", "first time, inclusive: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC")
	f.StringVar(&toTime, "to-timestamp", "", "last time, inclusive")
	f.StringVar(&where, "where", "", "print the change rows for which this expression is true")
	f.Var(&columns, "columns", "table columns to print, in this order (default: all); the feed's columns come last")
	return c
}
