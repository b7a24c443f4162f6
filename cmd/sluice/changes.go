package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/internal/rowio"
)

// changesFlags are the flags of changes.
type changesFlags struct {
	from, fromTime, toTime, where string
	to                            int64
	columns                       listFlag
	follow, ignoreMissing         bool
	checkpoint                    string
	poll                          durationFlag
	maxFiles                      int
	maxBytes                      sizeFlag
}

func newChangesCommand(a *app) *cobra.Command {
	fl := changesFlags{poll: durationFlag(time.Second)}
	c := &cobra.Command{
		Use:   "changes TABLE --from-version N",
		Short: "Print the change feed of a table",
		Long: "Print the change feed of a table: every inserted, updated and deleted row of a range of versions, with\n" +
			"_change_type (insert, update_preimage, update_postimage, delete), _commit_version and _commit_timestamp.\n\n" +
			"With --follow or --checkpoint the feed is a stream: without a start, all rows of the newest version come\n" +
			"first, as inserts. --checkpoint FILE remembers how far the rows were written out; the same command goes on\n" +
			"from there, and a start counts only while FILE is not there. The file is replaced after the rows of a batch\n" +
			"are flushed, so a crash in between repeats that batch and loses nothing. A change of the table's schema ends the command before the version that made it;\n" +
			"run again, it goes on with the new schema.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING" --property delta.enableChangeDataFeed=true
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice update people --set "name = 'Ada L.'" --where "id = 1"
  sluice changes people --from-version 0
  sluice changes people --from-version 2 --to-version 2 --where "_change_type = 'update_postimage'"
  sluice changes people --checkpoint people.position`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := fl.options(a, cmd)
			if err != nil {
				return err
			}
			if fl.follow || fl.checkpoint != "" {
				return fl.stream(cmd.Context(), a, args[0], o)
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			feed, err := t.Changes(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("read changes of %s: %w", args[0], err)
			}
			return a.printRows(feed.Schema, feed.Rows(cmd.Context()))
		},
	}
	f := c.Flags()
	f.StringVar(&fl.from, "from-version", "", "first version, inclusive (this or --from-timestamp is required; a stream may also start at \"latest\")")
	f.Int64Var(&fl.to, "to-version", 0, "last version, inclusive (default: the newest)")
	f.StringVar(&fl.fromTime, "from-timestamp", "", "first time, inclusive: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC")
	f.StringVar(&fl.toTime, "to-timestamp", "", "last time, inclusive")
	f.StringVar(&fl.where, "where", "", "print the change rows for which this expression is true")
	f.Var(&fl.columns, "columns", "table columns to print, in this order (default: all); the feed's columns come last")
	f.BoolVar(&fl.follow, "follow", false, "wait for new versions until interrupted")
	f.StringVar(&fl.checkpoint, "checkpoint", "", "local file that holds how far the rows were printed; made if absent, replaced after each batch")
	f.BoolVar(&fl.ignoreMissing, "ignore-missing", false, "pass over changes whose files VACUUM or log clean-up removed, with a warning")
	f.Var(&fl.poll, "poll", "with --follow: how often to look for new versions, at most an hour")
	f.IntVar(&fl.maxFiles, "max-files", cdf.DefaultMaxFiles, "of a stream: files in a batch; a version with change files or deletion vectors is not split")
	f.Var(&fl.maxBytes, "max-bytes", "of a stream: bytes of files in a batch, checked as --max-files is (default: no limit)")
	return c
}

// options checks the flags; a "latest" start is left out.
func (fl *changesFlags) options(a *app, cmd *cobra.Command) (o cdf.Options, err error) {
	zone, err := a.flags.zone()
	if err != nil {
		return o, err
	}
	if err := distinct("columns", fl.columns.values); err != nil {
		return o, err
	}
	o = cdf.Options{Columns: fl.columns.values, Where: fl.where, Zone: zone}
	r := &o.Range
	stream := fl.follow || fl.checkpoint != ""
	switch n, err := strconv.ParseInt(fl.from, 10, 64); {
	case fl.from == "" && !cmd.Flags().Changed("from-version"), fl.from == "latest" && stream:
	case err != nil:
		return o, usage("INVALID_FLAG", "--from-version %q: expected a version number", fl.from)
	case n < 0:
		return o, usage("INVALID_FLAG", "--from-version %d: versions start at 0", n)
	default:
		r.FromVersion = &n
	}
	if cmd.Flags().Changed("to-version") {
		if fl.to < 0 {
			return o, usage("INVALID_FLAG", "--to-version %d: versions start at 0", fl.to)
		}
		r.ToVersion = &fl.to
	}
	for _, end := range []struct {
		flag, value string
		time        **time.Time
	}{{"from-timestamp", fl.fromTime, &r.FromTime}, {"to-timestamp", fl.toTime, &r.ToTime}} {
		if end.value == "" {
			continue
		}
		ts, err := rowio.ParseTime(end.value, nil)
		if err != nil {
			return o, usage("INVALID_FLAG", "--%s: %v", end.flag, err)
		}
		*end.time = &ts
	}
	if fl.ignoreMissing {
		o.OnMissing = func(version int64, path string) {
			a.warn("changes of version %d are left out: file %s is gone", version, path)
		}
	}
	if !stream {
		for _, name := range []string{"poll", "max-files", "max-bytes"} {
			if cmd.Flags().Changed(name) {
				return o, usage("INVALID_FLAG", "--%s is for streams: it needs --follow or --checkpoint", name)
			}
		}
		return o, nil
	}
	switch f := a.form(); {
	case r.ToVersion != nil || r.ToTime != nil:
		return o, usage("INVALID_FLAG", "a stream has no end: --to-version and --to-timestamp exclude --follow and --checkpoint")
	case fl.maxFiles < 1:
		return o, usage("INVALID_FLAG", "--max-files %d: expected at least 1", fl.maxFiles)
	case cmd.Flags().Changed("max-bytes") && fl.maxBytes < 1:
		return o, usage("INVALID_FLAG", "--max-bytes: expected at least 1 byte")
	case fl.poll < durationFlag(time.Millisecond) || fl.poll > durationFlag(time.Hour):
		return o, usage("INVALID_FLAG", "--poll: expected between 1ms and 1h")
	case fl.follow && (f == rowio.JSON || f == rowio.Parquet):
		return o, usage("INVALID_FLAG", "--output %s: is whole only at its end, which --follow does not have: use jsonl, csv or arrow", f)
	}
	return o, nil
}
