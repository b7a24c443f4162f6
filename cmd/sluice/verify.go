package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// verifyReport is the result of verify.
type verifyReport struct {
	Table   string `json:"table"`
	Against string `json:"against"`
	*delta.VerifyReport
}

func newVerifyCommand(a *app) *cobra.Command {
	var against, state string
	var keys, columns listFlag
	format := oneOf{"", []string{"parquet", "jsonl", "csv", "arrow"}}
	limit := 100
	c := &cobra.Command{
		Use:   "verify TABLE --against FILE-or-TABLE",
		Short: "Compare a table with another one or with a file, by key",
		Long: "Compare the rows of a table with those of another table or of a file: checksums of ranges of keys first, then the rows of\n" +
			"the ranges that differ. Exit code 3 and the differing keys if they are not equal.",
		Example: `  echo '{"id":1,"name":"Ada"}' > people.jsonl
  sluice create people --schema "id BIGINT, name STRING"
  sluice append people --from people.jsonl
  sluice verify people --against people.jsonl --keys id`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if against == "" {
				return usage("MISSING_FLAG", "verify: --against is missing")
			}
			if against == "-" {
				return usage("INVALID_FLAG", "verify: standard input cannot be read twice; write it to a file")
			}
			report := verifyReport{Table: args[0], Against: against}
			v := &verifier{app: a, form: rowio.Form(format.value)}
			var err error
			if report.VerifyReport, err = v.verify(cmd.Context(), args[0], against, state, delta.VerifyOptions{Keys: keys.values, Columns: columns.values, Limit: limit}); err != nil {
				return fmt.Errorf("verify %s: %w", args[0], err)
			}
			for _, c := range report.Left {
				a.warn("column %s is not in %s and is not compared", c, against)
			}
			if err := a.printResult(report, report.text()); err != nil {
				return err
			}
			if !report.Equal {
				return &cliError{code: "ROWS_DIFFER", exit: exitRefused, message: fmt.Sprintf("%s and %s differ: %d keys missing, %d extra, %d different",
					args[0], against, report.MissingCount, report.ExtraCount, report.DifferingCount)}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&against, "against", "", "table or file that the table should equal (required)")
	f.Var(&keys, "keys", "key columns (default: those of the flow that wrote the table, with the start of history rows)")
	f.Var(&columns, "columns", "columns to compare (default: those that both have)")
	f.Var(&format, "format", "form of the file (default: by its name)")
	f.IntVar(&limit, "limit", limit, "most keys that are listed of each kind")
	f.StringVar(&state, "state", "", stateHelp)
	return c
}

func (r *verifyReport) text() string {
	if r.Equal {
		return fmt.Sprintf("%s equals %s: %s, columns %s", r.Table, r.Against, plural(r.Rows, "row", "rows"), strings.Join(r.Columns, ", "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %s, %s %s; %d of %d ranges of keys differ\n", r.Table, plural(r.Rows, "row", "rows"), r.Against, plural(r.AgainstRows, "row", "rows"), r.Ranges, r.VerifyRanges())
	for _, x := range []struct {
		what  string
		count int64
		keys  []string
	}{{"missing", r.MissingCount, r.Missing}, {"extra", r.ExtraCount, r.Extra}, {"different", r.DifferingCount, r.Differing}} {
		if x.count > 0 {
			fmt.Fprintf(&b, "%s (%d): %s\n", x.what, x.count, strings.Join(x.keys, "; "))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// verifier finds keys and rows of a comparison.
type verifier struct {
	*app
	form rowio.Form
}

// verify opens both sides and compares them.
func (v *verifier) verify(ctx context.Context, table, against, state string, o delta.VerifyOptions) (*delta.VerifyReport, error) {
	t, err := v.openTable(ctx, table)
	if err != nil {
		return nil, err
	}
	own, err := t.Schema(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.Keys) == 0 {
		if o.Keys, err = v.keysOf(ctx, table, state, own); err != nil {
			return nil, err
		}
	}
	var other delta.RowSet
	if isTable(against) || strings.Contains(against, "://") {
		b, err := v.openTable(ctx, against)
		if err != nil {
			return nil, err
		}
		if other, err = b.RowSet(ctx); err != nil {
			return nil, err
		}
	} else if other, err = v.file(against, own); err != nil {
		return nil, err
	}
	return t.Verify(ctx, other, o)
}

// file is the rows of a file; where it does not say what its columns are, they are
// read as those of the table.
func (v *verifier) file(path string, own *schema.Struct) (delta.RowSet, error) {
	zone, err := v.flags.zone()
	if err != nil {
		return delta.RowSet{}, err
	}
	told, err := rowio.SchemaOf(path, v.form)
	if err != nil {
		return delta.RowSet{}, err
	}
	says := told
	if told == nil {
		told = own
	}
	return delta.RowSet{Schema: told, Rows: func(ctx context.Context, columns *schema.Struct) iter.Seq2[arrow.RecordBatch, error] {
		read := &schema.Struct{Fields: slices.Clone(columns.Fields)}
		for i := range read.Fields {
			read.Fields[i].Nullable = true
		}
		if says != nil { // columns that are not compared are read and left aside
			wide := &schema.Struct{Fields: slices.Clone(says.Fields)}
			for i, f := range wide.Fields {
				if at := read.Index(f.Name); at >= 0 {
					wide.Fields[i] = read.Fields[at]
				}
			}
			return rowio.ReadPath(ctx, path, v.form, v.stdin, rowio.ReadOptions{Schema: wide, Zone: zone})
		}
		_, rows, err := rowio.Open(ctx, path, v.form, v.stdin, rowio.ReadOptions{Schema: read, Zone: zone})
		if err != nil {
			return func(yield func(arrow.RecordBatch, error) bool) { yield(nil, err) }
		}
		return rows
	}}, nil
}

// keysOf are the keys that identify rows of a target of apply (auto-cdc 2.10).
func (v *verifier) keysOf(ctx context.Context, table, state string, s *schema.Struct) ([]string, error) {
	m, o, err := v.operator(table, state)
	if err != nil {
		return nil, err
	}
	r, err := apply.Inspect(ctx, m, o)
	if err != nil || len(r.Flows) == 0 {
		return nil, usage("MISSING_FLAG", "name the key columns with --keys")
	}
	keys := r.Flows[0].Keys
	for _, frame := range []string{"__START_AT", "__SYSTEM_START_AT"} {
		if s.Index(frame) >= 0 {
			keys = append(keys, frame)
		}
	}
	return keys, nil
}
