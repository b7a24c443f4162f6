package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// verifyRanges is into how many ranges of hashed keys a comparison is cut: only those
// whose checksums differ are read again, row by row.
const verifyRanges = 4096

// verifyReport is the result of verify.
type verifyReport struct {
	Table       string   `json:"table"`
	Against     string   `json:"against"`
	Equal       bool     `json:"equal"`
	Rows        int64    `json:"rows"`
	AgainstRows int64    `json:"against_rows"`
	Columns     []string `json:"columns"`
	// Ranges counts the ranges of keys whose checksums differ.
	Ranges int `json:"ranges_differing"`
	// Missing keys are not in the table, Extra ones not in the other; Differing ones
	// are in both. The lists hold the first ones, the counts all.
	MissingCount   int64    `json:"missing_count"`
	ExtraCount     int64    `json:"extra_count"`
	DifferingCount int64    `json:"differing_count"`
	Missing        []string `json:"missing"`
	Extra          []string `json:"extra"`
	Differing      []string `json:"differing"`
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
			v := &verifier{app: a, limit: limit, form: rowio.Form(format.value)}
			v.report = verifyReport{Table: args[0], Against: against, Missing: []string{}, Extra: []string{}, Differing: []string{}}
			if err := v.prepare(cmd.Context(), args[0], against, state, keys.values, columns.values); err != nil {
				return fmt.Errorf("verify %s: %w", args[0], err)
			}
			if err := v.compare(cmd.Context()); err != nil {
				return fmt.Errorf("verify %s: %w", args[0], err)
			}
			if err := a.printResult(v.report, v.report.text()); err != nil {
				return err
			}
			if !v.report.Equal {
				return &cliError{code: "ROWS_DIFFER", exit: exitRefused, message: fmt.Sprintf("%s and %s differ: %d keys missing, %d extra, %d different",
					args[0], against, v.report.MissingCount, v.report.ExtraCount, v.report.DifferingCount)}
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
	fmt.Fprintf(&b, "%s has %s, %s %s; %d of %d ranges of keys differ\n", r.Table, plural(r.Rows, "row", "rows"), r.Against, plural(r.AgainstRows, "row", "rows"), r.Ranges, verifyRanges)
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

// verifier compares two sets of rows that can be read as often as needed.
type verifier struct {
	*app
	limit  int
	form   rowio.Form
	keys   []string
	own    func(context.Context) iter.Seq2[arrow.RecordBatch, error]
	other  func(context.Context) iter.Seq2[arrow.RecordBatch, error]
	report verifyReport
}

// prepare finds keys and columns, and how both sides are read.
func (v *verifier) prepare(ctx context.Context, table, against, state string, keys, columns []string) error {
	t, err := v.openTable(ctx, table)
	if err != nil {
		return err
	}
	own, err := t.Schema(ctx)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		if keys, err = v.keysOf(ctx, table, state, own); err != nil {
			return err
		}
	}
	other, told := own, false // told: the file says what its columns are
	var o *delta.Table
	if isTable(against) || strings.Contains(against, "://") {
		if o, err = v.openTable(ctx, against); err != nil {
			return err
		}
		if other, err = o.Schema(ctx); err != nil {
			return err
		}
	} else if s, err := rowio.SchemaOf(against, v.form); err != nil {
		return err
	} else if s != nil {
		other, told = s, true
	}
	want := columns
	if len(want) == 0 {
		want = own.Names()
	}
	s := &schema.Struct{}
	for _, c := range want {
		i := own.Index(c)
		if i < 0 {
			return usage("COLUMN_NOT_FOUND", "%s has no column %q", table, c)
		}
		if other.Index(c) < 0 {
			if len(columns) > 0 || slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, c) }) {
				return usage("COLUMN_NOT_FOUND", "%s has no column %q", against, c)
			}
			v.warn("column %s is not in %s and is not compared", c, against)
			continue
		}
		s.Fields = append(s.Fields, own.Fields[i])
		v.report.Columns = append(v.report.Columns, own.Fields[i].Name)
	}
	for _, k := range keys {
		i := s.Index(k)
		if i < 0 {
			return usage("COLUMN_NOT_FOUND", "key column %q is not among the compared columns", k)
		}
		v.keys = append(v.keys, s.Fields[i].Name)
	}
	zone, err := v.flags.zone()
	if err != nil {
		return err
	}
	scan := func(t *delta.Table, conform bool) func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
			return func(yield func(arrow.RecordBatch, error) bool) {
				sc, err := t.Scan(ctx, delta.ScanOptions{Columns: v.report.Columns})
				if err != nil {
					yield(nil, err)
					return
				}
				for b, err := range sc.Batches(ctx) {
					if err == nil && conform {
						b, err = delta.Conform(s, b)
					}
					if !yield(b, err) || err != nil {
						return
					}
				}
			}
		}
	}
	v.own = scan(t, false)
	if o != nil {
		v.other = scan(o, true)
		return nil
	}
	v.other = func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
		// Columns that are not compared are read and left aside.
		return func(yield func(arrow.RecordBatch, error) bool) {
			nullable := &schema.Struct{Fields: slices.Clone(s.Fields)}
			for i := range nullable.Fields {
				nullable.Fields[i].Nullable = true
			}
			if told {
				wide := &schema.Struct{Fields: slices.Clone(other.Fields)}
				for i, f := range wide.Fields {
					if at := s.Index(f.Name); at >= 0 {
						wide.Fields[i] = nullable.Fields[at]
					}
				}
				nullable = wide
			}
			var rows iter.Seq2[arrow.RecordBatch, error]
			if told {
				rows = rowio.ReadPath(ctx, against, v.form, v.stdin, rowio.ReadOptions{Schema: nullable, Zone: zone})
			} else {
				var err error
				if _, rows, err = rowio.Open(ctx, against, v.form, v.stdin, rowio.ReadOptions{Schema: nullable, Zone: zone}); err != nil {
					yield(nil, err)
					return
				}
			}
			for b, err := range rows {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
	return nil
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

// verifySum is the checksum of a range.
type verifySum struct {
	rows int64
	sum  uint64
}

// verifyRow is a row as compared: its key, and a hash of all compared values.
type verifyRow struct {
	key  []byte
	hash uint64
}

// each calls f for every row of a side.
func (v *verifier) each(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error], f func(verifyRow, func() string)) error {
	for b, err := range rows {
		if err != nil {
			return err
		}
		keys, cols := make([]arrow.Array, len(v.keys)), make([]arrow.Array, len(v.report.Columns))
		for i, c := range v.report.Columns {
			at := b.Schema().FieldIndices(c)
			if len(at) == 0 {
				return &cliError{code: "COLUMN_NOT_FOUND", exit: exitRefused, message: fmt.Sprintf("column %q is missing", c)}
			}
			cols[i] = b.Column(at[0])
			if k := slices.Index(v.keys, c); k >= 0 {
				keys[k] = cols[i]
			}
		}
		var key, value []byte
		for r := range int(b.NumRows()) {
			key = key[:0]
			for _, a := range keys {
				key = comparedValue(key, a, r)
			}
			h := fnv.New64a()
			for i, a := range cols {
				value = comparedValue(appendCount(value[:0], uint64(i)), a, r)
				h.Write(value)
			}
			f(verifyRow{key, h.Sum64()}, func() string { return keyText(v.keys, keys, r) })
		}
	}
	return nil
}

// comparedValue is a value as bytes that are equal for equal values.
func comparedValue(dst []byte, a arrow.Array, r int) []byte {
	if a.IsNull(r) {
		return append(dst, 0)
	}
	switch a.DataType().ID() {
	case arrow.MAP, arrow.EXTENSION:
		text := a.ValueStr(r)
		return append(appendCount(append(dst, 1), uint64(len(text))), text...)
	}
	return keycode.AppendValue(append(dst, 1), a, r)
}

func keyText(names []string, keys []arrow.Array, r int) string {
	var parts []string
	for i, n := range names {
		text := "null"
		if keys[i].IsValid(r) {
			text = keys[i].ValueStr(r)
		}
		parts = append(parts, n+"="+text)
	}
	return strings.Join(parts, ", ")
}

func rangeOf(key []byte) int { return int(keycode.Hash64(key) % verifyRanges) }

// compare sums both sides by ranges of keys, and reads those that differ again.
func (v *verifier) compare(ctx context.Context) error {
	var own, other [verifyRanges]verifySum
	sum := func(into *[verifyRanges]verifySum, rows *int64) func(verifyRow, func() string) {
		return func(r verifyRow, _ func() string) {
			s := &into[rangeOf(r.key)]
			s.rows++
			s.sum += keycode.Hash64(appendCount(r.key, r.hash))
			*rows++
		}
	}
	if err := v.each(ctx, v.own(ctx), sum(&own, &v.report.Rows)); err != nil {
		return err
	}
	if err := v.each(ctx, v.other(ctx), sum(&other, &v.report.AgainstRows)); err != nil {
		return err
	}
	differs := map[int]bool{}
	for i := range own {
		if own[i] != other[i] {
			differs[i] = true
		}
	}
	v.report.Ranges, v.report.Equal = len(differs), len(differs) == 0
	if v.report.Equal {
		return nil
	}
	rows := map[string][]uint64{}
	err := v.each(ctx, v.own(ctx), func(r verifyRow, _ func() string) {
		if differs[rangeOf(r.key)] {
			rows[string(r.key)] = append(rows[string(r.key)], r.hash)
		}
	})
	if err != nil {
		return err
	}
	err = v.each(ctx, v.other(ctx), func(r verifyRow, text func() string) {
		if !differs[rangeOf(r.key)] {
			return
		}
		have, ok := rows[string(r.key)]
		switch at := slices.Index(have, r.hash); {
		case !ok || len(have) == 0:
			v.note(&v.report.MissingCount, &v.report.Missing, text)
		case at < 0:
			v.note(&v.report.DifferingCount, &v.report.Differing, text)
			rows[string(r.key)] = have[1:]
		default:
			rows[string(r.key)] = slices.Delete(have, at, at+1)
		}
	})
	if err != nil {
		return err
	}
	return v.each(ctx, v.own(ctx), func(r verifyRow, text func() string) {
		if have := rows[string(r.key)]; len(have) > 0 && have[0] == r.hash {
			rows[string(r.key)] = have[1:]
			v.note(&v.report.ExtraCount, &v.report.Extra, text)
		}
	})
}

func (v *verifier) note(count *int64, list *[]string, text func() string) {
	if *count++; len(*list) < v.limit {
		*list = append(*list, text())
	}
}

// appendCount appends n as eight bytes.
func appendCount(dst []byte, n uint64) []byte {
	for shift := 0; shift < 64; shift += 8 {
		dst = append(dst, byte(n>>shift))
	}
	return dst
}
