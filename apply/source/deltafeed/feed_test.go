package deltafeed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/deltafeed"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testtable"
)

const ddl = "id BIGINT, v STRING"

// reader follows one table, with a position that survives it.
type reader struct {
	t    *testing.T
	tb   *delta.Table
	keys []string
	from map[string]event.Position
	list []corpora.Change
}

// read takes what is new; a fresh source goes on from the stored position.
func (r *reader) read() []string {
	r.t.Helper()
	snap, err := r.tb.Snapshot(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	src := deltafeed.New(snap.Log(), snap, deltafeed.Options{})
	d := deltafeed.NewDecoder(deltafeed.DecoderOptions{Keys: r.keys, Table: event.Table{Name: "t"}})
	var lines []string
	for rec, err := range src.Records(context.Background(), r.from) {
		if err != nil {
			lines = append(lines, "error: "+err.Error())
			break
		}
		if err := d.Add(context.Background(), rec); err != nil {
			r.t.Fatal(err)
		}
	}
	out, err := d.Flush()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, b := range out.Batches {
		for i, c := range corpora.Changes(b) {
			if c.Vals["_change_type"] == nil || c.Vals["_commit_version"] == nil || c.Vals["_commit_timestamp"] == nil {
				r.t.Errorf("columns of the feed are missing: %v", c.Vals)
			}
			maps.DeleteFunc(c.Vals, func(name string, _ any) bool { return strings.HasPrefix(name, "_") })
			lines = append(lines, fmt.Sprintf("%s %v %v", map[event.Op]string{event.Insert: "insert", event.Update: "update", event.Delete: "delete"}[c.Op], c.Seq[1], c.Vals))
			if b.Offsets[i] <= 0 {
				r.t.Errorf("offset %d", b.Offsets[i])
			}
			r.list = append(r.list, c)
		}
	}
	positions, err := src.Positions()
	if err != nil {
		r.t.Fatal(err)
	}
	r.from = map[string]event.Position{}
	for _, p := range positions {
		r.from[p.Source] = p
	}
	slices.Sort(lines)
	return lines
}

// same compares the fold of everything read with the table.
func (r *reader) same() {
	r.t.Helper()
	var got []string
	for _, row := range corpora.Fold(r.list)["t"].Images() {
		got = append(got, fmt.Sprint(row))
	}
	slices.Sort(got)
	var want []string
	scan, err := r.tb.Scan(context.Background(), delta.ScanOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for rows, err := range scan.Batches(context.Background()) {
		if err != nil {
			r.t.Fatal(err)
		}
		for i := range int(rows.NumRows()) {
			row := map[string]any{}
			for c, f := range rows.Schema().Fields() {
				row[f.Name] = corpora.Value(rows.Column(c), i)
			}
			want = append(want, fmt.Sprint(row))
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("fold of the feed:\n%s\ntable:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func create(t *testing.T, props map[string]string) *delta.Table {
	t.Helper()
	p := map[string]string{"delta.enableChangeDataFeed": "true"}
	maps.Copy(p, props)
	return testtable.New(t, testtable.Spec{DDL: ddl, Properties: p})
}

func TestSource_F15_A_SnapshotAndFeed(t *testing.T) {
	tb := create(t, nil)
	add(t, tb, `[{"id":1,"v":"a"},{"id":2,"v":"b"}]`)
	add(t, tb, `[{"id":3,"v":"c"}]`)
	r := &reader{t: t, tb: tb, keys: []string{"id"}}
	if got := r.read(); len(got) != 3 || !strings.HasPrefix(got[0], "insert 2 ") {
		t.Errorf("first run: %v", got)
	}
	if got := r.read(); len(got) != 0 {
		t.Errorf("nothing new, but %v", got)
	}
	must(tb.Update(context.Background(), "v = 'z'", "id = 1", delta.DMLOptions{}))
	must(tb.Delete(context.Background(), "id = 2", delta.DMLOptions{}))
	add(t, tb, `[{"id":4,"v":null}]`)
	want := []string{"delete 4 map[id:2 v:b]", "insert 5 map[id:4 v:<nil>]", "update 3 map[id:1 v:z]"}
	if got := r.read(); !slices.Equal(got, want) {
		t.Errorf("second run: %v, want %v", got, want)
	}
	r.same()
}

func TestSource_F15_B_ColumnAddedLater(t *testing.T) {
	tb := create(t, nil)
	add(t, tb, `[{"id":1,"v":"a"}]`)
	r := &reader{t: t, tb: tb, keys: []string{"id"}}
	r.read()
	must(tb.Append(context.Background(), testtable.Rows(t, "id BIGINT, v STRING, n BIGINT", `[{"id":2,"v":"b","n":7}]`), delta.WriteOptions{MergeSchema: true}))
	want := []string{"insert 2 map[id:2 n:7 v:b]"}
	if got := r.read(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if vals := r.list[0].Vals; len(vals) != 2 {
		t.Errorf("the row of the old schema authors %v", vals)
	}
}

func TestSource_F15_C_KeyChange(t *testing.T) {
	tb := create(t, nil)
	add(t, tb, `[{"id":1,"v":"a"},{"id":2,"v":"b"}]`)
	r := &reader{t: t, tb: tb, keys: []string{"id"}}
	r.read()
	must(tb.Update(context.Background(), "id = 9", "id = 1", delta.DMLOptions{}))
	want := []string{"delete 2 map[id:1 v:a]", "update 2 map[id:9 v:a]"}
	if got := r.read(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r.same()
}

func TestSource_F15_D_DeleteAndInsertInOneVersion(t *testing.T) {
	tb := create(t, nil)
	add(t, tb, `[{"id":1,"v":"a"},{"id":2,"v":"b"}]`)
	r := &reader{t: t, tb: tb, keys: []string{"id"}}
	r.read()
	must(tb.Overwrite(context.Background(), testtable.Rows(t, ddl, `[{"id":1,"v":"new"}]`), delta.OverwriteOptions{}))
	r.read()
	r.same()
}

func TestSource_F15_E_OptimizeAndVectors(t *testing.T) {
	tb := create(t, map[string]string{"delta.enableDeletionVectors": "true"})
	add(t, tb, `[{"id":1,"v":"a"},{"id":2,"v":"b"}]`)
	add(t, tb, `[{"id":3,"v":"c"}]`)
	r := &reader{t: t, tb: tb, keys: []string{"id"}}
	r.read()
	if _, err := tb.Optimize(context.Background(), delta.OptimizeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := r.read(); len(got) != 0 {
		t.Errorf("OPTIMIZE yields %v", got)
	}
	must(tb.Delete(context.Background(), "id = 2", delta.DMLOptions{}))
	if got := r.read(); !slices.Equal(got, []string{"delete 4 map[id:2 v:b]"}) {
		t.Errorf("%v", got)
	}
	r.same()
}

func TestSource_F15_G_MappingAndAnotherTable(t *testing.T) {
	tb := create(t, map[string]string{"delta.columnMapping.mode": "name"})
	add(t, tb, `[{"id":1,"v":"a"}]`)
	r := &reader{t: t, tb: tb, keys: []string{"id"}}
	if got := r.read(); !slices.Equal(got, []string{"insert 1 map[id:1 v:a]"}) {
		t.Errorf("%v", got)
	}
	// A flow that read files before goes on with a table.
	snap, err := tb.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range deltafeed.New(snap.Log(), snap, deltafeed.Options{}).Records(context.Background(), map[string]event.Position{"file://host/e.jsonl": {Source: "file://host/e.jsonl", Offset: 7}}) {
		if err != nil {
			t.Errorf("positions of files: %v", err)
		}
	}
	other := create(t, nil)
	if snap, err = other.Snapshot(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, err := range deltafeed.New(snap.Log(), snap, deltafeed.Options{}).Records(context.Background(), r.from) {
		var e *deltafeed.Error
		if !errors.As(err, &e) || e.Code != "SOURCE_CHANGED" {
			t.Errorf("another table in its place: %v", err)
		}
	}
}

// TestSource_Random: whatever is done to a table, the feed read in pieces folds to it.
func TestSource_Random(t *testing.T) {
	for seed := range int64(8) {
		rng := rand.New(rand.NewSource(seed))
		tb := create(t, map[string]string{"delta.enableDeletionVectors": fmt.Sprint(seed%2 == 0)})
		r := &reader{t: t, tb: tb, keys: []string{"id"}}
		next := 0
		for range 25 {
			switch rng.Intn(6) {
			case 0, 1:
				var rows []string
				for range 1 + rng.Intn(4) {
					rows = append(rows, fmt.Sprintf(`{"id":%d,"v":"v%d"}`, next, rng.Intn(9)))
					next++
				}
				add(t, tb, "["+strings.Join(rows, ",")+"]")
			case 2:
				must(tb.Update(context.Background(), fmt.Sprintf("v = 'u%d'", rng.Intn(99)), fmt.Sprintf("id %% 3 = %d", rng.Intn(3)), delta.DMLOptions{}))
			case 3:
				must(tb.Delete(context.Background(), fmt.Sprintf("id = %d", rng.Intn(next+1)), delta.DMLOptions{}))
			case 4:
				must(tb.Update(context.Background(), "id = id + 1000", fmt.Sprintf("id = %d", rng.Intn(next+1)), delta.DMLOptions{}))
			case 5:
				r.read()
			}
		}
		r.read()
		r.same()
	}
}

func must(_ delta.Result, err error) {
	if err != nil {
		panic(err)
	}
}

func add(t *testing.T, tb *delta.Table, rows string) {
	t.Helper()
	if _, err := tb.Append(context.Background(), testtable.Rows(t, ddl, rows), delta.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}
