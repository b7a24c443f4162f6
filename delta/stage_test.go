package delta_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

const carryText = `{"type":"struct","fields":[{"name":"__sluice","type":{"type":"struct","fields":[{"name":"v","type":"long","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}`

const hiddenDDL = "id BIGINT, k INT, __sluice STRUCT<v: BIGINT>"

// commitStaged stages edits on the newest version and commits them.
func commitStaged(t *testing.T, tb *delta.Table, e delta.Edits, o delta.StageOptions) *delta.Staged {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tb.Stage(ctx, snap, e, o)
	if err != nil {
		t.Fatal(err)
	}
	tx := tb.Log().Begin(snap)
	s.Apply(tx)
	if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "MERGE", NotBlind: true}); err != nil {
		t.Fatal(err)
	}
	return s
}

func fileOf(t *testing.T, tb *delta.Table) *deltalog.Add {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files[0]
}

// maxTagger keeps the largest hidden version of a file.
type maxTagger struct{ max int64 }

func (m *maxTagger) Add(b arrow.RecordBatch) {
	at := b.Schema().FieldIndices("__sluice")
	if len(at) != 1 {
		return
	}
	st := b.Column(at[0]).(*array.Struct)
	v := st.Field(0).(*array.Int64)
	for i := range v.Len() {
		if st.IsValid(i) && v.IsValid(i) {
			m.max = max(m.max, v.Value(i))
		}
	}
}

func (m *maxTagger) Tags() map[string]string { return map[string]string{"max": fmt.Sprint(m.max)} }

// TestTable_Stage: row edits with hidden columns, tags and change files in one pass.
func TestTable_Stage(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, k INT", Properties: map[string]string{datafile.PropCarry: carryText, "delta.enableChangeDataFeed": "true"}})
	tagged := delta.StageOptions{NewTagger: func() datafile.Tagger { return &maxTagger{} }, Footer: map[string]string{"x": "y"}}
	first := commitStaged(t, tb, delta.Edits{Insert: []arrow.RecordBatch{testtable.Batch(t, hiddenDDL,
		`{"id":1,"k":1,"__sluice":{"v":10}}{"id":2,"k":2,"__sluice":{"v":20}}{"id":3,"k":3,"__sluice":null}{"id":4,"k":4,"__sluice":{"v":40}}`)}}, tagged)
	if len(first.CDC) != 0 || *first.Adds[0].Tags["max"] != "40" {
		t.Errorf("inserts alone need no change files (W-902): %d, tags %v", len(first.CDC), first.Adds[0].Tags)
	}
	second := commitStaged(t, tb, delta.Edits{
		Files: []delta.FileEdit{{File: fileOf(t, tb), Delete: []int64{0}, Update: []int64{1, 3},
			After: testtable.Batch(t, hiddenDDL, `{"id":2,"k":22,"__sluice":{"v":21}}{"id":4,"k":44,"__sluice":{"v":41}}`)}},
		Insert: []arrow.RecordBatch{testtable.Batch(t, "id BIGINT, k INT", `{"id":5,"k":5}`)},
	}, tagged)
	if len(second.CDC) != 1 || len(second.Adds) != 1 || len(second.Removes) != 1 || *second.Adds[0].Tags["max"] != "41" {
		t.Errorf("staged %+v", second)
	}
	if m := second.Metrics; m.RowsCopied != 1 || m.RowsDeleted != 1 || m.RowsUpdated != 2 || m.RowsInserted != 1 {
		t.Errorf("metrics %+v", m)
	}
	wantRows(t, tb, delta.ScanOptions{}, `{"id":2,"k":22}`, `{"id":3,"k":3}`, `{"id":4,"k":44}`, `{"id":5,"k":5}`)
	hidden := []string{`{"__sluice":null,"id":3,"k":3}`, `{"__sluice":null,"id":5,"k":5}`, `{"__sluice":{"v":21},"id":2,"k":22}`, `{"__sluice":{"v":41},"id":4,"k":44}`}
	wantRows(t, tb, delta.ScanOptions{Hidden: true}, hidden...)

	t.Run("UPDATE and DELETE carry hidden columns", func(t *testing.T) {
		if _, err := tb.Update(ctx, "k = k + 1", "id = 4", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Delete(ctx, "id = 5", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{Hidden: true}, hidden[0], hidden[2], `{"__sluice":{"v":41},"id":4,"k":45}`)
	})
	t.Run("change files carry them, the feed does not show them", func(t *testing.T) {
		l, err := tb.Layout(mustSnapshot(t, tb))
		if err != nil {
			t.Fatal(err)
		}
		c := second.CDC[0]
		var got []string
		for b, err := range datafile.ReadFile(ctx, tb.Store(), l, datafile.Source{Path: c.Path, PartitionValues: c.PartitionValues, Size: c.Size}, datafile.ReadOptions{Hidden: true, Change: true}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, testtable.BatchLines(b.RecordBatch)...)
		}
		want := []string{
			`{"__sluice":{"v":10},"_change_type":"delete","id":1,"k":1}`,
			`{"__sluice":{"v":20},"_change_type":"update_preimage","id":2,"k":2}`, `{"__sluice":{"v":40},"_change_type":"update_preimage","id":4,"k":4}`,
			`{"__sluice":{"v":21},"_change_type":"update_postimage","id":2,"k":22}`, `{"__sluice":{"v":41},"_change_type":"update_postimage","id":4,"k":44}`,
			`{"__sluice":null,"_change_type":"insert","id":5,"k":5}`,
		}
		if d := testtable.Diff(got, want); d != "" {
			t.Errorf("W-901 W-906: %s", d)
		}
		f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64)}})
		if err != nil {
			t.Fatal(err)
		}
		if f.Schema.Index("__sluice") >= 0 {
			t.Error("the feed shows hidden columns")
		}
	})
	t.Run("discard leaves nothing", func(t *testing.T) {
		before := testtable.Files(t, tb.Store())
		s, err := tb.Stage(ctx, mustSnapshot(t, tb), delta.Edits{Insert: []arrow.RecordBatch{testtable.Batch(t, "id BIGINT, k INT", `{"id":9}`)}}, delta.StageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Discard(ctx); err != nil {
			t.Fatal(err)
		}
		if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
			t.Errorf("left behind %v", after)
		}
	})
	t.Run("rows that are not live are refused", func(t *testing.T) {
		before := testtable.Files(t, tb.Store())
		if _, err := tb.Stage(ctx, mustSnapshot(t, tb), delta.Edits{Files: []delta.FileEdit{{File: fileOf(t, tb), Delete: []int64{77}}}}, delta.StageOptions{}); err == nil {
			t.Error("no error")
		}
		if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
			t.Errorf("left behind %v", after)
		}
	})
}

func mustSnapshot(t *testing.T, tb *delta.Table) *deltalog.Snapshot {
	t.Helper()
	s, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTable_Concurrent: writers that race for the same rows; nothing is lost and
// nothing is applied twice.
func TestTable_Concurrent(t *testing.T) {
	s := storage.NewMemory("c")
	testtable.New(t, testtable.Spec{DDL: "id BIGINT, k INT, p INT", Partition: []string{"p"}, Store: s, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
		Rows: []string{`{"id":1,"k":0,"p":0}{"id":2,"k":0,"p":1}`}})
	fast := delta.Options{Sleep: func(ctx context.Context, d time.Duration) error { time.Sleep(d / 20); return ctx.Err() }, Attempts: 500}
	var wg sync.WaitGroup
	const writers, rounds = 6, 5
	errs := make(chan error, writers*rounds)
	for w := range writers {
		wg.Go(func() {
			tb, err := delta.Open(ctx, s, fast)
			if err != nil {
				errs <- err
				return
			}
			for r := range rounds {
				switch w % 3 {
				case 0:
					_, err = tb.Update(ctx, "k = k + 1", "id = 1", delta.DMLOptions{})
				case 1:
					_, err = tb.Update(ctx, "k = k + 1", "p = 1", delta.DMLOptions{})
				default:
					_, err = tb.Append(ctx, testtable.Rows(t, "id BIGINT, k INT, p INT", fmt.Sprintf(`{"id":%d,"k":0,"p":2}`, 100+w*100+r)), delta.WriteOptions{})
				}
				if err != nil {
					errs <- fmt.Errorf("writer %d: %w", w, err)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	tb, err := delta.Open(ctx, s, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantRows(t, tb, delta.ScanOptions{Where: "p < 2"}, `{"id":1,"k":10,"p":0}`, `{"id":2,"k":10,"p":1}`)
	sc, err := tb.Scan(ctx, delta.ScanOptions{Where: "p = 2"})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := sc.Count(ctx); err != nil || n != 10 {
		t.Errorf("%d appended rows, %v", n, err)
	}
	if v := mustSnapshot(t, tb).Version; v != 1+writers*rounds {
		t.Errorf("version %d", v)
	}
	if left := orphans(t, tb); len(left) > 0 {
		t.Errorf("left behind %v", left)
	}
}

// TestTable_Conflicts: an operation that lost its race is done again on what the
// winner left, or refused where it cannot be.
func TestTable_Conflicts(t *testing.T) {
	// race runs winner between the moment loser has read the table and its commit.
	race := func(t *testing.T, spec testtable.Spec, loser, winner func(*delta.Table) error) (*delta.Table, error) {
		t.Helper()
		s := storage.NewMemory("c")
		spec.Store = s
		testtable.New(t, spec)
		other, err := delta.Open(ctx, s, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fired := false
		hooked := hookStore{Store: s, before: func(key string) {
			if !fired && strings.HasPrefix(key, "_delta_log/") {
				fired = true
				if err := winner(other); err != nil {
					t.Error(err)
				}
			}
		}}
		tb, err := delta.Open(ctx, &hooked, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = loser(tb)
		if left := orphans(t, other); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
		return other, err
	}
	spec := testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Rows: []string{faultRows}}
	update := func(set, where string) func(*delta.Table) error {
		return func(tb *delta.Table) error { _, err := tb.Update(ctx, set, where, delta.DMLOptions{}); return err }
	}
	del := func(where string) func(*delta.Table) error {
		return func(tb *delta.Table) error { _, err := tb.Delete(ctx, where, delta.DMLOptions{}); return err }
	}
	add := func(rows string) func(*delta.Table) error {
		return func(tb *delta.Table) error {
			_, err := tb.Append(ctx, testtable.Rows(t, modelDDL, rows), delta.WriteOptions{})
			return err
		}
	}
	over := func(o delta.OverwriteOptions, rows string) func(*delta.Table) error {
		return func(tb *delta.Table) error {
			_, err := tb.Overwrite(ctx, testtable.Rows(t, modelDDL, rows), o)
			return err
		}
	}
	set := func(k, v string) func(*delta.Table) error {
		return func(tb *delta.Table) error {
			_, err := tb.SetProperties(ctx, map[string]string{k: v}, delta.PropertyOptions{})
			return err
		}
	}
	for _, tt := range []struct {
		name          string
		loser, winner func(*delta.Table) error
		want          []string
	}{
		{"C-23 update sees an appended row", update("k = 0", "p = 1"), add(`{"id":9,"k":9,"p":1}`), []string{`{"id":1,"k":0,"p":1}`, `{"id":2,"k":0,"p":1}`, `{"id":3,"k":3,"p":2}`, `{"id":9,"k":0,"p":1}`}},
		{"C-23 append to another partition is no conflict", update("k = 0", "p = 1"), add(`{"id":9,"k":9,"p":5}`), []string{`{"id":1,"k":0,"p":1}`, `{"id":2,"k":0,"p":1}`, `{"id":3,"k":3,"p":2}`, `{"id":9,"k":9,"p":5}`}},
		{"C-24 delete after an update of the same file", del("k = 1"), update("k = 1", "id = 2"), []string{`{"id":3,"k":3,"p":2}`}},
		{"C-26 two deletes of one file", del("p = 1"), del("id = 1"), []string{`{"id":3,"k":3,"p":2}`}},
		{"C-25 overwrite after an append", over(delta.OverwriteOptions{}, `{"id":7,"p":7}`), add(`{"id":9,"p":1}`), []string{`{"id":7,"k":null,"p":7}`}},
		{"dynamic overwrite after an append to the partition", over(delta.OverwriteOptions{Dynamic: true}, `{"id":7,"p":1}`), add(`{"id":9,"p":1}`), []string{`{"id":3,"k":3,"p":2}`, `{"id":7,"k":null,"p":1}`}},
		{"replaceWhere after an append under it", over(delta.OverwriteOptions{Where: "p = 1 AND id > 1"}, `{"id":7,"p":1}`), add(`{"id":9,"p":1}`), []string{`{"id":1,"k":1,"p":1}`, `{"id":3,"k":3,"p":2}`, `{"id":7,"k":null,"p":1}`}},
		{"blind append after anything", add(`{"id":9,"k":9,"p":1}`), del(""), []string{`{"id":9,"k":9,"p":1}`}},
		{"C-19 append after a property change", add(`{"id":9,"k":9,"p":1}`), set("delta.checkpointInterval", "7"), []string{`{"id":1,"k":1,"p":1}`, `{"id":2,"k":2,"p":1}`, `{"id":3,"k":3,"p":2}`, `{"id":9,"k":9,"p":1}`}},
		{"C-33 update after the feed was switched on writes it", update("k = 0", "id = 1"), set("delta.enableChangeDataFeed", "true"), []string{`{"id":1,"k":0,"p":1}`, `{"id":2,"k":2,"p":1}`, `{"id":3,"k":3,"p":2}`}},
		{"C-16 two property changes", set("a", "1"), set("b", "2"), []string{`{"id":1,"k":1,"p":1}`, `{"id":2,"k":2,"p":1}`, `{"id":3,"k":3,"p":2}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb, err := race(t, spec, tt.loser, tt.winner)
			if err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, tt.want...)
			if strings.HasPrefix(tt.name, "C-33") && len(actionsOf(t, tb).CDC) != 1 {
				t.Error("no change file")
			}
			if conf := mustSnapshot(t, tb).Metadata.Configuration; strings.HasPrefix(tt.name, "C-16") && (conf["a"] != "1" || conf["b"] != "2") {
				t.Errorf("properties %v", conf)
			}
		})
	}
	t.Run("C-18 append after column mapping was switched on: names are the same", func(t *testing.T) {
		tb, err := race(t, spec, add(`{"id":9}`), func(tb *delta.Table) error {
			_, err := tb.SetProperties(ctx, map[string]string{"delta.columnMapping.mode": "name"}, delta.PropertyOptions{Upgrade: true})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{Where: "id = 9"}, `{"id":9,"k":null,"p":null}`)
	})
}

// hookStore calls before ahead of every Create.
type hookStore struct {
	storage.Store
	before func(key string)
}

func (h *hookStore) Create(ctx context.Context, key string, data []byte) error {
	h.before(key)
	return h.Store.Create(ctx, key, data)
}

func TestConform(t *testing.T) {
	want := testtable.Struct(t, "id BIGINT, s STRING, d DECIMAL(10,2), ts TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, day DATE, f DOUBLE, l ARRAY<STRUCT<x: BIGINT, y: STRING>>, m MAP<STRING, BIGINT>, v VOID")
	mem := memory.DefaultAllocator
	field := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	from := arrow.NewSchema([]arrow.Field{
		field("M", arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int16)),
		field("L", arrow.LargeListOf(arrow.StructOf(field("Y", arrow.BinaryTypes.LargeString), field("x", arrow.PrimitiveTypes.Uint32)))),
		field("id", arrow.PrimitiveTypes.Int8), field("s", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}),
		field("d", &arrow.Decimal128Type{Precision: 5, Scale: 1}), field("ts", &arrow.TimestampType{Unit: arrow.Second, TimeZone: "Europe/Berlin"}),
		field("n", &arrow.TimestampType{Unit: arrow.Nanosecond}), field("b", arrow.BinaryTypes.LargeBinary), field("day", arrow.FixedWidthTypes.Date64), field("f", arrow.PrimitiveTypes.Float32),
		field("v", arrow.Null),
	}, nil)
	b, _, err := array.RecordFromJSON(mem, from, strings.NewReader(`[
		{"M":[{"key":"a","value":1}],"L":[{"Y":"q","x":7},null],"id":1,"s":"dict","d":"12.5","ts":"2024-05-01T10:00:00Z","n":"2024-05-01T10:00:00.123456","b":"AAE=","day":86400000,"f":1.5},
		{"M":null,"L":null,"id":null,"s":null,"d":null,"ts":null,"n":null,"b":null,"day":null,"f":null},
		{"M":[],"L":[],"id":-3,"s":"dict","d":"-0.1","ts":"1969-12-31T23:59:59Z","n":"1969-12-31T23:59:59","b":"","day":0,"f":0}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []arrow.RecordBatch{b, b.NewSlice(1, 3), b.NewSlice(0, 0)} {
		got, err := delta.Conform(want, src)
		if err != nil {
			t.Fatal(err)
		}
		all := []string{
			`{"b":"AAE=","d":"12.50","day":"1970-01-02","f":1.5,"id":1,"l":[{"x":7,"y":"q"},null],"m":{"a":1},"n":"2024-05-01T10:00:00.123456","s":"dict","ts":"2024-05-01T10:00:00.000000Z","v":null}`,
			`{"b":null,"d":null,"day":null,"f":null,"id":null,"l":null,"m":null,"n":null,"s":null,"ts":null,"v":null}`,
			`{"b":"","d":"-0.10","day":"1970-01-01","f":0.0,"id":-3,"l":[],"m":{},"n":"1969-12-31T23:59:59.000000","s":"dict","ts":"1969-12-31T23:59:59.000000Z","v":null}`,
		}
		lo := int64(len(all)) - src.NumRows()
		if src.NumRows() == 0 {
			lo = 3
		}
		if d := testtable.Diff(testtable.BatchLines(got), all[lo:]); d != "" {
			t.Error(d)
		}
	}
	bad := func(name string, a arrow.DataType, rows string) {
		t.Helper()
		b, _, err := array.RecordFromJSON(mem, arrow.NewSchema([]arrow.Field{field(name, a)}, nil), strings.NewReader(rows))
		if err != nil {
			t.Fatal(err)
		}
		var mm *delta.SchemaMismatchError
		if _, err := delta.Conform(want, b); !errors.As(err, &mm) || mm.Column == "" {
			t.Errorf("%s as %s: %v", name, a, err)
		}
	}
	bad("id", arrow.BinaryTypes.String, `[{"id":"1"}]`)
	bad("id", arrow.PrimitiveTypes.Uint64, `[{"id":1}]`)
	bad("id", arrow.PrimitiveTypes.Float64, `[{"id":1}]`)
	bad("d", &arrow.Decimal128Type{Precision: 10, Scale: 3}, `[{"d":"1.000"}]`)
	bad("n", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, `[{"n":"2024-05-01T10:00:00Z"}]`)
	bad("n", &arrow.TimestampType{Unit: arrow.Nanosecond}, `[{"n":"2024-05-01T10:00:00.123456789"}]`)
	bad("l", arrow.ListOf(arrow.PrimitiveTypes.Int64), `[{"l":[1]}]`)
	bad("m", arrow.ListOf(arrow.PrimitiveTypes.Int64), `[{"m":[1]}]`)
	bad("other", arrow.PrimitiveTypes.Int64, `[{"other":1}]`)
}
