package merge

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
)

const findDDL = "k BIGINT, i INT, s STRING, d DATE, n INT"

// drawKey is a key of a few values, some of them null, far apart or beside each other.
func drawKey(t *rapid.T) string {
	k := rapid.SampledFrom([]string{"null", "0", "1", "2", "3", "-1", "7", "1099511627776", "9223372036854775807", "-9223372036854775808"}).Draw(t, "k")
	i := rapid.SampledFrom([]string{"null", "0", "1", "-5", "2147483647"}).Draw(t, "i")
	s := rapid.SampledFrom([]string{"null", `""`, `"a"`, `"b"`, `"a\u0000"`, `"ä"`}).Draw(t, "s")
	d := rapid.SampledFrom([]string{"null", `"2024-01-01"`, `"1969-12-31"`}).Draw(t, "d")
	return fmt.Sprintf(`"k":%s,"i":%s,"s":%s,"d":%s`, k, i, s, d)
}

func drawTable(t *rapid.T, tb testing.TB) (*delta.Table, *deltalog.Snapshot, *datafile.Layout, []*deltalog.Add) {
	ctx := context.Background()
	table := testtable.New(tb, testtable.Spec{DDL: findDDL, Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
	n := 0
	for range rapid.IntRange(1, 4).Draw(t, "files") {
		var rows strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			fmt.Fprintf(&rows, `{%s,"n":%d}`, drawKey(t), n)
			n++
		}
		if _, err := table.Append(ctx, testtable.Rows(tb, findDDL, rows.String()), delta.WriteOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, "deletes") {
		if _, err := table.Delete(ctx, fmt.Sprintf("n %% 3 = %d", rapid.IntRange(0, 2).Draw(t, "which")), delta.DMLOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := table.Layout(snap)
	if err != nil {
		tb.Fatal(err)
	}
	return table, snap, l, files
}

var keyColumns = [][]string{{"k"}, {"i"}, {"s"}, {"d"}, {"k", "s"}, {"i", "d", "k"}}

// TestFind_AsTheSlowWay: whatever the key's type, the rows found are those that a look
// at every row's key bytes finds, in order, whoever runs at the same time.
func TestFind_AsTheSlowWay(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		table, _, l, files := drawTable(rt, t)
		columns := rapid.SampledFrom(keyColumns).Draw(rt, "columns")
		keys := Keys{Columns: columns, Set: map[string]int{}}
		for range rapid.IntRange(1, 6).Draw(rt, "wanted") {
			b := testtable.Batch(t, findDDL, "{"+drawKey(rt)+"}")
			cols := make([]arrow.Array, len(columns))
			for i, c := range columns {
				cols[i] = b.Column(b.Schema().FieldIndices(c)[0])
			}
			key := string(KeyOf(nil, cols, 0))
			if _, ok := keys.Set[key]; !ok {
				keys.Set[key] = len(keys.Set)
			}
		}
		o := Options{Workers: rapid.IntRange(1, 3).Draw(rt, "workers")}
		modulo := rapid.IntRange(0, 3).Draw(rt, "also every")
		if modulo > 0 {
			o.Also = func(b arrow.RecordBatch) (out []int, _ error) {
				for r := range int(b.NumRows()) {
					if r%modulo == 0 {
						out = append(out, r)
					}
				}
				return out, nil
			}
		}
		groups, err := Find(ctx, table.Store(), l, files, keys, o)
		if err != nil {
			rt.Fatal(err)
		}
		var got, want []string
		for _, g := range groups {
			for r, line := range batchLines(g.Batch) {
				got = append(got, fmt.Sprint(g.File.Path, g.Rows[r], g.Index[r], g.Keys[r], line))
			}
		}
		for _, f := range files {
			for b, err := range datafile.Read(ctx, table.Store(), l, f, datafile.ReadOptions{}) {
				if err != nil {
					rt.Fatal(err)
				}
				cols := make([]arrow.Array, len(columns))
				for i, c := range columns {
					cols[i] = b.Column(l.Schema.Index(c))
				}
				lines := batchLines(b.RecordBatch)
				for r := range int(b.NumRows()) {
					key := KeyOf(nil, cols, r)
					index, ok := keys.Set[string(key)]
					if !ok {
						index = -1
					}
					if ok || modulo > 0 && r%modulo == 0 {
						want = append(want, fmt.Sprint(f.Path, b.Rows[r], index, key, lines[r]))
					}
				}
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// batchLines are the rows of a batch in its order.
func batchLines(b arrow.RecordBatch) []string {
	out := make([]string, b.NumRows())
	for r := range out {
		for _, c := range b.Columns() {
			out[r] += c.ValueStr(r) + " "
		}
	}
	return out
}

// TestFirstDuplicate_AsTheSlowWay: with next to no memory as with enough, a key on two
// live rows is found where one is, and the files that are named hold it.
func TestFirstDuplicate_AsTheSlowWay(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		table, _, l, files := drawTable(rt, t)
		columns := rapid.SampledFrom(append(keyColumns, []string{"n"})).Draw(rt, "columns")
		atOnce := rapid.SampledFrom([]int{1, 3, 1000}).Draw(rt, "hashes at once")
		got, err := firstDuplicate(ctx, table.Store(), l, files, columns, rapid.IntRange(1, 3).Draw(rt, "workers"), atOnce)
		if err != nil {
			rt.Fatal(err)
		}
		count, in := map[string]int{}, map[string][]string{}
		twice := 0
		for _, f := range files {
			for key, err := range EachKey(ctx, table.Store(), l, datafile.SourceOf(f), columns, datafile.ReadOptions{}) {
				if err != nil {
					rt.Fatal(err)
				}
				if count[string(key)]++; count[string(key)] == 2 {
					twice++
				}
				in[string(key)] = append(in[string(key)], f.Path)
			}
		}
		if (got != nil) != (twice > 0) {
			rt.Fatalf("duplicate %v, %d keys are on two rows", got, twice)
		}
		if got == nil {
			return
		}
		paths := in[string(got.Key)]
		if count[string(got.Key)] < 2 || !slices.Contains(paths, got.Files[0]) || !slices.Contains(paths, got.Files[1]) {
			rt.Fatalf("key %v in %v: it is in %v", got.Key, got.Files, paths)
		}
	})
}

// TestOverlapping: which files must be looked into.
func TestOverlapping(t *testing.T) {
	span := func(low, high string, ascending bool) keySpan {
		return keySpan{file: &deltalog.Add{Path: low + high}, rows: 1, low: []byte(low), high: []byte(high), ascending: ascending}
	}
	for _, c := range []struct {
		spans []keySpan
		want  string
	}{
		{[]keySpan{span("c", "d", true), span("a", "b", true)}, ""},
		{[]keySpan{span("a", "c", true), span("c", "d", true), span("e", "f", true)}, "ac cd"},
		{[]keySpan{span("a", "z", true), span("b", "c", true), span("d", "e", true)}, "az bc de"},
		{[]keySpan{span("a", "b", false), span("c", "d", true)}, "ab"},
		{[]keySpan{{file: &deltalog.Add{}, ascending: true}, span("a", "a", true)}, ""},
	} {
		files, rows := overlapping(c.spans)
		var paths []string
		for _, f := range files {
			paths = append(paths, f.Path)
		}
		if got := strings.Join(paths, " "); got != c.want || int(rows) != len(files) {
			t.Errorf("%v: %q of %d rows, want %q", c.spans, got, rows, c.want)
		}
	}
}

// TestFind_Pages: keys that lie in one page of many are found without the others being
// read, and what is left out holds none.
func TestFind_Pages(t *testing.T) {
	ctx := context.Background()
	table := testtable.New(t, testtable.Spec{DDL: "k BIGINT, s STRING"})
	const n = 100_000
	var rows bytes.Buffer
	for i := range n {
		fmt.Fprintf(&rows, `{"k":%d,"s":"%06d"}`, 2*i, i)
	}
	if _, err := table.Append(ctx, testtable.Rows(t, "k BIGINT, s STRING", rows.String()), delta.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := table.Layout(snap)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []datafile.KeySet{{Column: "k", Ints: []int64{1, 100_000, 100_001}}, {Column: "s", Texts: []string{"", "050000", "0500000"}}} {
		read, hits := 0, 0
		for b, err := range datafile.Read(ctx, table.Store(), l, files[0], datafile.ReadOptions{Keys: &set}) {
			if err != nil {
				t.Fatal(err)
			}
			for r := range int(b.NumRows()) {
				read++
				if b.Column(1).ValueStr(r) == "050000" {
					hits++
					if b.Rows[r] != 50_000 {
						t.Errorf("row %d is numbered %d", 50_000, b.Rows[r])
					}
				}
			}
		}
		if hits != 1 || read > n/2 {
			t.Errorf("%s: %d rows read, %d found, want 1 of at most half", set.Column, read, hits)
		}
	}
	var filter *expr.Bound
	e, err := expr.Parse("k = 100000 OR k > 199990 AND s < '099999'")
	if err != nil {
		t.Fatal(err)
	}
	if filter, err = e.Bind(l.Schema); err != nil {
		t.Fatal(err)
	}
	var got []string
	for b, err := range datafile.Read(ctx, table.Store(), l, files[0], datafile.ReadOptions{Filter: filter}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, batchLines(b.RecordBatch)...)
	}
	want := []string{"100000 050000 ", "199992 099996 ", "199994 099997 ", "199996 099998 "}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}
