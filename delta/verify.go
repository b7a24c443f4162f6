package delta

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// verifyRanges is into how many ranges of hashed keys a comparison is cut: only those
// whose checksums differ are read again, row by row.
const verifyRanges = 4096

// RowSet is rows that can be read as often as needed, every time the same ones.
type RowSet struct {
	Schema *schema.Struct
	// Rows yields the columns of that name and order in batches of their types in the
	// verified table; see [VerifyOptions.Columns]. Batches are valid until the next one.
	Rows func(ctx context.Context, columns *schema.Struct) iter.Seq2[arrow.RecordBatch, error]
}

// VerifyOptions say what of two sets of rows is compared.
type VerifyOptions struct {
	// Keys identify a row; required. Several rows of one key are compared as a bag.
	Keys []string
	// Columns are compared; nil: those of the table that both have.
	Columns []string
	// Limit is how many keys of each kind the report lists; 0: 100.
	Limit int
}

// VerifyReport is how a table differs from other rows. Keys are printed as
// "a=1, b=x"; the lists hold the first ones, the counts all.
type VerifyReport struct {
	Equal       bool  `json:"equal"`
	Rows        int64 `json:"rows"`
	AgainstRows int64 `json:"against_rows"`
	// Columns were compared; Left are columns of the table that the others lack.
	Columns []string `json:"columns"`
	Left    []string `json:"-"`
	// Ranges counts the ranges of keys whose checksums differ.
	Ranges int `json:"ranges_differing"`
	// Missing keys are not in the table, Extra ones not in the other rows; Differing ones
	// are in both.
	MissingCount   int64    `json:"missing_count"`
	ExtraCount     int64    `json:"extra_count"`
	DifferingCount int64    `json:"differing_count"`
	Missing        []string `json:"missing"`
	Extra          []string `json:"extra"`
	Differing      []string `json:"differing"`
}

// VerifyRanges is into how many ranges of keys Verify cuts its comparison.
func (r *VerifyReport) VerifyRanges() int { return verifyRanges }

// Verify compares the newest version of the table with other rows, by key: checksums of
// ranges of keys first, then the rows of the ranges that differ. Each side is read once
// if they are equal, at most three times if not; the keys of differing ranges are held
// in memory. Values are equal as keys are (auto-cdc 2.1: NaN equals NaN, -0.0 is 0.0).
// A column that is missing is a [ColumnError].
func (t *Table) Verify(ctx context.Context, against RowSet, o VerifyOptions) (*VerifyReport, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	v := &verifier{limit: o.Limit, report: &VerifyReport{Missing: []string{}, Extra: []string{}, Differing: []string{}}}
	if v.limit == 0 {
		v.limit = 100
	}
	s, err := v.columns(snap.Schema, against.Schema, o)
	if err != nil {
		return nil, err
	}
	v.own = func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return t.rowsAt(ctx, ScanOptions{Snapshot: snap, Columns: v.report.Columns})
	}
	v.other = func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] { return against.Rows(ctx, s) }
	if err := v.compare(ctx); err != nil {
		return nil, err
	}
	return v.report, nil
}

// RowSet is the rows of the newest version, for [Table.Verify] of another table.
func (t *Table) RowSet(ctx context.Context) (RowSet, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return RowSet{}, err
	}
	return RowSet{Schema: snap.Schema, Rows: func(ctx context.Context, columns *schema.Struct) iter.Seq2[arrow.RecordBatch, error] {
		return func(yield func(arrow.RecordBatch, error) bool) {
			for b, err := range t.rowsAt(ctx, ScanOptions{Snapshot: snap, Columns: columns.Names()}) {
				if err == nil {
					b, err = Conform(columns, b)
				}
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}}, nil
}

// rowsAt is a scan as a sequence that holds its preparation's error.
func (t *Table) rowsAt(ctx context.Context, o ScanOptions) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		scan, err := t.Scan(ctx, o)
		if err != nil {
			yield(nil, err)
			return
		}
		for b, err := range scan.Batches(ctx) {
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// ColumnError is a column that a comparison names and one side lacks.
type ColumnError struct{ Message string }

func (e *ColumnError) Error() string { return e.Message }

// Code is stable.
func (e *ColumnError) Code() string { return "COLUMN_NOT_FOUND" }

// verifier compares two sets of rows.
type verifier struct {
	limit      int
	keys       []string
	own, other func(context.Context) iter.Seq2[arrow.RecordBatch, error]
	report     *VerifyReport
}

// columns decides what is compared; the answer is it in the table's types.
func (v *verifier) columns(own, other *schema.Struct, o VerifyOptions) (*schema.Struct, error) {
	want := o.Columns
	if len(want) == 0 {
		want = own.Names()
	}
	s := &schema.Struct{}
	for _, c := range want {
		i := own.Index(c)
		if i < 0 {
			return nil, &ColumnError{fmt.Sprintf("the table has no column %q", c)}
		}
		if other.Index(c) < 0 {
			if len(o.Columns) > 0 || slices.ContainsFunc(o.Keys, func(k string) bool { return strings.EqualFold(k, c) }) {
				return nil, &ColumnError{fmt.Sprintf("the other rows have no column %q", c)}
			}
			v.report.Left = append(v.report.Left, c)
			continue
		}
		s.Fields = append(s.Fields, own.Fields[i])
		v.report.Columns = append(v.report.Columns, own.Fields[i].Name)
	}
	if len(o.Keys) == 0 {
		return nil, &ColumnError{"the columns that identify a row are not named"}
	}
	for _, k := range o.Keys {
		i := s.Index(k)
		if i < 0 {
			return nil, &ColumnError{fmt.Sprintf("key column %q is not among the compared columns", k)}
		}
		v.keys = append(v.keys, s.Fields[i].Name)
	}
	return s, nil
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
func (v *verifier) each(rows iter.Seq2[arrow.RecordBatch, error], f func(verifyRow, func() string)) error {
	for b, err := range rows {
		if err != nil {
			return err
		}
		keys, cols := make([]arrow.Array, len(v.keys)), make([]arrow.Array, len(v.report.Columns))
		for i, c := range v.report.Columns {
			at := b.Schema().FieldIndices(c)
			if len(at) == 0 {
				return &ColumnError{fmt.Sprintf("column %q is missing", c)}
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
				key = appendRowValue(key, a, r)
			}
			h := fnv.New64a()
			for i, a := range cols {
				value = appendRowValue(appendCount(value[:0], uint64(i)), a, r)
				h.Write(value)
			}
			f(verifyRow{key, h.Sum64()}, func() string { return verifyKey(v.keys, keys, r) })
		}
	}
	return nil
}

func verifyKey(names []string, keys []arrow.Array, r int) string {
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

func verifyRange(key []byte) int { return int(keycode.Hash64(key) % verifyRanges) }

// compare sums both sides by ranges of keys, and reads those that differ again.
func (v *verifier) compare(ctx context.Context) error {
	own, other := make([]verifySum, verifyRanges), make([]verifySum, verifyRanges)
	sum := func(into []verifySum, rows *int64) func(verifyRow, func() string) {
		return func(r verifyRow, _ func() string) {
			s := &into[verifyRange(r.key)]
			s.rows++
			s.sum += keycode.Hash64(appendCount(r.key, r.hash))
			*rows++
		}
	}
	if err := v.each(v.own(ctx), sum(own, &v.report.Rows)); err != nil {
		return err
	}
	if err := v.each(v.other(ctx), sum(other, &v.report.AgainstRows)); err != nil {
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
	return v.list(ctx, differs)
}

// list names the keys of the ranges that differ.
func (v *verifier) list(ctx context.Context, differs map[int]bool) error {
	rows := map[string][]uint64{}
	err := v.each(v.own(ctx), func(r verifyRow, _ func() string) {
		if differs[verifyRange(r.key)] {
			rows[string(r.key)] = append(rows[string(r.key)], r.hash)
		}
	})
	if err != nil {
		return err
	}
	err = v.each(v.other(ctx), func(r verifyRow, text func() string) {
		if !differs[verifyRange(r.key)] {
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
	return v.each(v.own(ctx), func(r verifyRow, text func() string) {
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
