package delta_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
)

// diffLines are the rows of a diff, the kind first.
func diffLines(t *testing.T, tb *delta.Table, o delta.DiffOptions) (lines []string, byFeed bool) {
	t.Helper()
	d, err := tb.Diff(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range d.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		last := int(b.NumCols()) - 1
		kinds := b.Column(last)
		for i, line := range testtable.BatchLines(sliceColumns(b, last)) {
			lines = append(lines, kinds.ValueStr(i)+" "+line)
		}
	}
	slices.Sort(lines)
	return lines, d.ByFeed
}

// expectedDiff is the multiset difference of two versions.
func expectedDiff(t *testing.T, tb *delta.Table, from, to int64) []string {
	t.Helper()
	net := map[string]int{}
	for _, l := range testtable.Read(t, tb, delta.ScanOptions{Version: &from}) {
		net[l]--
	}
	for _, l := range testtable.Read(t, tb, delta.ScanOptions{Version: &to}) {
		net[l]++
	}
	out := []string{}
	for l, n := range net {
		kind := "insert "
		if n < 0 {
			kind, n = "delete ", -n
		}
		for range n {
			out = append(out, kind+l)
		}
	}
	slices.Sort(out)
	return out
}

func TestTable_Diff(t *testing.T) {
	for _, vectors := range []string{"false", "true"} {
		for _, feed := range []string{"false", "true"} {
			t.Run(fmt.Sprintf("R-912 every pair of versions, vectors %s, feed %s", vectors, feed), func(t *testing.T) {
				tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Properties: map[string]string{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": feed},
					Rows: []string{testtable.Numbers(0, 6, `,"k":%,"p":1`) + `{"id":1,"k":1,"p":1}`, testtable.Numbers(6, 9, `,"k":%,"p":2`)}})
				for _, step := range []func() error{
					func() error { _, err := tb.Delete(ctx, "id = 1", delta.DMLOptions{}); return err },
					func() error { _, err := tb.Update(ctx, "k = k + 1", "id < 5", delta.DMLOptions{}); return err },
					func() error { _, err := tb.Update(ctx, "k = k - 1", "id < 3", delta.DMLOptions{}); return err },
					func() error { _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); return err },
					func() error { _, err := tb.Delete(ctx, "p = 2 OR id = 4", delta.DMLOptions{}); return err },
					func() error { v := int64(4); _, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v}); return err },
				} {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				last := mustSnapshot(t, tb).Version
				for from := range last + 1 {
					for to := range last + 1 {
						want := expectedDiff(t, tb, from, to)
						for _, o := range []delta.DiffOptions{{}, {NoFeed: true}, {MaxRows: 2, NoFeed: true}} {
							o.From, o.To = from, to
							got, byFeed := diffLines(t, tb, o)
							if !slices.Equal(got, want) && len(got)+len(want) > 0 {
								t.Fatalf("%+v: got %v, want %v", o, got, want)
							}
							if wantFeed := feed == "true" && from < to && !o.NoFeed; byFeed != wantFeed {
								t.Errorf("%+v: by feed %v", o, byFeed)
							}
						}
					}
				}
			})
		}
	}
	t.Run("all types, maps in any order, floating zeroes", func(t *testing.T) {
		ddl := "id BIGINT, f DOUBLE, m MAP<STRING, INT>, a ARRAY<STRUCT<x: STRING>>, d DECIMAL(20,3), b BINARY, s STRUCT<y: DATE>"
		row := func(id int, m string) string {
			return fmt.Sprintf(`{"id":%d,"f":0.0,"m":%s,"a":[{"x":"q"},null],"d":1.5,"b":"AAE=","s":{"y":"2024-01-01"}}`, id, m)
		}
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{row(1, `[{"key":"a","value":1},{"key":"b","value":2}]`) + row(2, `null`)}})
		if _, err := tb.Overwrite(ctx, testtable.Rows(t, ddl, row(1, `[{"key":"b","value":2},{"key":"a","value":1}]`)+row(2, `[]`)), delta.OverwriteOptions{}); err != nil {
			t.Fatal(err)
		}
		got, _ := diffLines(t, tb, delta.DiffOptions{From: 1, To: 2})
		if len(got) != 2 || !strings.Contains(got[0], `"id":2`) || !strings.Contains(got[1], `"id":2`) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a version that is not there", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: modelDDL})
		if _, err := tb.Diff(ctx, delta.DiffOptions{From: 0, To: 7}); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}
