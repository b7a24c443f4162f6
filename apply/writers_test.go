package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func (b *bench) open(t testing.TB) *delta.Table {
	t.Helper()
	tab, err := delta.Open(context.Background(), b.store, delta.Options{Clock: b.opts.Clock})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func (b *bench) must(t testing.TB, lines ...string) Result {
	t.Helper()
	res, err := b.run(lines...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func (b *bench) wantTable(t testing.TB, want ...string) {
	t.Helper()
	if got := b.table(t); !slices.Equal(got, want) {
		t.Fatalf("table %q, want %q", got, want)
	}
}

func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

// foreignRewrite does what an engine without our hidden group does: the rows of all
// files go to one new file that has the table's columns only.
func (b *bench) foreignRewrite(t testing.TB, operation string, params map[string]string, dataChange bool, change func(row []string) []string) {
	t.Helper()
	ctx := context.Background()
	tab := b.open(t)
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cfg := *snap.TableConfig
	md := *snap.Metadata
	md.Configuration = map[string]string{}
	plain, err := deltalog.NewTableConfig(cfg.Protocol, &md)
	if err != nil {
		t.Fatal(err)
	}
	l, err := datafile.LayoutOf(plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	sch, err := schema.ArrowSchema(snap.Schema)
	if err != nil {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
	tx := tab.Log().Begin(snap)
	tx.ReadWholeTable()
	files, err := snap.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		tx.Remove(f.Remove(b.opts.Clock(), dataChange))
		for batch, err := range datafile.Read(ctx, b.store, l, f, datafile.ReadOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			for r := range int(batch.NumRows()) {
				row := make([]string, batch.NumCols())
				for c := range row {
					row[c] = cellText(batch.Column(c), r)
				}
				if change != nil {
					row = change(row)
				}
				for c := range row {
					if err := appendText(rb.Field(c), row[c]); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	w, err := datafile.NewWriter(b.store, l, datafile.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ctx, rb.NewRecordBatch()); err != nil {
		t.Fatal(err)
	}
	written, err := w.Close(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range written {
		tx.Add(f.Add(dataChange))
	}
	if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: operation, Parameters: params}); err != nil {
		t.Fatal(err)
	}
}

// Between two batches other writers rewrite the target; a late, a tied and a newer
// event of a rewritten key then do what they would have done (apply-state 5).
func TestTarget_OtherWriters(t *testing.T) {
	start := func(t *testing.T) *bench {
		b := newBench(t, "")
		b.must(t, "U 1@5 (Ann, Rome)", "U 2@5 (Bob, Oslo)", "U 3@5 (Cy, Lima)")
		b.must(t, "U 1@9 (Ann, Rome)") // a version entry
		return b
	}
	events := func(t *testing.T, b *bench) {
		t.Helper()
		b.must(t, "U 1@8 (Late, Bern)", "U 2@4 (Late, Bern)", "U 2@5 (Bob, Bern)")
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo", "3, Cy, Lima")
		b.must(t, "U 1@9 (Anna, Rome)", "U 2@6 (Bob, Bonn)")
		b.wantTable(t, "1, Anna, Rome", "2, Bob, Bonn", "3, Cy, Lima")
	}
	t.Run("OPTIMIZE without the group: versions are read back", func(t *testing.T) {
		b := start(t)
		b.foreignRewrite(t, "OPTIMIZE", nil, false, nil)
		events(t, b)
		b.must(t, "D 3@4")
		b.wantTable(t, "1, Anna, Rome", "2, Bob, Bonn", "3, Cy, Lima")
	})
	t.Run("twice, without a batch between", func(t *testing.T) {
		b := start(t)
		b.foreignRewrite(t, "OPTIMIZE", nil, false, nil)
		b.foreignRewrite(t, "OPTIMIZE", nil, false, nil)
		events(t, b)
	})
	t.Run("UPDATE: a changed row keeps the version of the row it replaced", func(t *testing.T) {
		b := start(t)
		b.foreignRewrite(t, "UPDATE", nil, true, func(row []string) []string {
			if row[0] == "3" {
				row[2] = "Quito"
			}
			return row
		})
		b.must(t, "U 3@4 (Late, Bern)")
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo", "3, Cy, Quito")
		b.must(t, "U 3@6 (Cy, Lima)")
		events(t, b)
	})
	t.Run("sluice's own UPDATE carries the group", func(t *testing.T) {
		b := start(t)
		if _, err := b.open(t).Update(context.Background(), "city = 'Quito'", "id = 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		b.must(t, "U 3@4 (Late, Bern)")
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo", "3, Cy, Quito")
		b.must(t, "U 3@6 (Cy, Lima)")
		events(t, b)
	})
	t.Run("DELETE leaves no tombstone, APPEND no version", func(t *testing.T) {
		b := start(t)
		if _, err := b.open(t).Delete(context.Background(), "id = 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		sch, err := schema.ArrowSchema(mustSchema(t, b))
		if err != nil {
			t.Fatal(err)
		}
		rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
		for c, v := range []string{"4", "Di", "Kyiv"} {
			if err := appendText(rb.Field(c), v); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.open(t).Append(context.Background(), delta.Batches(rb.NewRecordBatch()), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.must(t, "U 3@3 (Cy, Lima)", "U 4@1 (Dina, Kyiv)")
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo", "3, Cy, Lima", "4, Dina, Kyiv")
	})
	for _, op := range []struct {
		name   string
		params map[string]string
	}{{"RESTORE", nil}, {"CREATE OR REPLACE TABLE AS SELECT", nil}, {"WRITE", map[string]string{"mode": "Overwrite"}}} {
		t.Run(op.name+" stops with TARGET_REWOUND", func(t *testing.T) {
			b := start(t)
			b.foreignRewrite(t, op.name, op.params, true, nil)
			_, err := b.run("U 1@8 (Late, Bern)")
			wantCode(t, err, CodeTargetRewound)
			b.flow.AcceptRows = true
			b.must(t, "U 1@10 (Anna, Bern)")
			b.wantTable(t, "1, Anna, Bern", "2, Bob, Oslo", "3, Cy, Lima")
			b.flow.AcceptRows = false
			b.must(t, "U 1@11 (Anna, Rome)")
		})
	}
	t.Run("a removed file added again stops", func(t *testing.T) {
		b := start(t)
		tab := b.open(t)
		ctx := context.Background()
		old, err := tab.SnapshotAt(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		files, err := old.FileList(ctx)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		b.must(t, "U 2@7 (Bob, Bonn)") // rewrites the file
		snap, err := tab.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		live, err := snap.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx := tab.Log().Begin(snap)
		for _, f := range live {
			tx.Remove(f.Remove(b.opts.Clock(), true))
		}
		again := *files[0]
		again.DataChange = true
		tx.Add(&again)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "MERGE"}); err != nil {
			t.Fatal(err)
		}
		_, err = b.run("U 2@6 (Bob, Reno)")
		wantCode(t, err, CodeTargetRewound)
	})
	t.Run("removed files gone: ROW_VERSIONS_LOST", func(t *testing.T) {
		b := start(t)
		ctx := context.Background()
		snap, err := b.open(t).Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		files, err := snap.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.foreignRewrite(t, "OPTIMIZE", nil, false, nil)
		for _, f := range files {
			if err := b.store.Delete(ctx, f.Path); err != nil {
				t.Fatal(err)
			}
		}
		_, err = b.run("U 1@8 (Late, Bern)")
		wantCode(t, err, CodeRowVersionsLost)
	})
}

func mustSchema(t testing.TB, b *bench) *schema.Struct {
	t.Helper()
	s, err := b.open(t).Schema(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Existing tables are adopted: rows have no version, any event of a key wins.
func TestTarget_Adoption(t *testing.T) {
	make := func(t *testing.T, rows ...string) *bench {
		b := newBench(t, "")
		tab, err := delta.Create(context.Background(), b.store, delta.CreateOptions{Schema: &schema.Struct{Fields: []schema.Field{
			{Name: "id", Type: schema.Long, Nullable: true}, {Name: "name", Type: schema.String, Nullable: true}, {Name: "extra", Type: schema.String, Nullable: true}}},
			Properties: map[string]string{"my.own": "kept"}}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sch, err := schema.ArrowSchema(mustSchema(t, b))
		if err != nil {
			t.Fatal(err)
		}
		rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
		for _, r := range rows {
			for c, v := range []string{r, "old", "x"} {
				if err := appendText(rb.Field(c), v); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := tab.Append(context.Background(), delta.Batches(arrow.RecordBatch(rb.NewRecordBatch())), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Run("rows, properties and columns stay", func(t *testing.T) {
		b := make(t, "1", "2", "3")
		b.must(t, "U 1@1 (Ann, Rome)", "D 3@1")
		b.wantTable(t, "1, Ann, x, Rome", "2, old, x, null")
		b.must(t, "U 2@1 (Bob, Oslo)", "U 1@0 (Late, Bern)")
		b.wantTable(t, "1, Ann, x, Rome", "2, Bob, x, Oslo")
		snap, err := b.open(t).Snapshot(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if c := snap.Metadata.Configuration; c["my.own"] != "kept" || c[propFormat] != "1" || c[propChangeFeed] != "" {
			t.Errorf("properties %v", c)
		}
	})
	t.Run("a key on two rows", func(t *testing.T) {
		b := make(t, "1", "2", "1")
		_, err := b.run("U 2@1 (Ann, Rome)")
		wantCode(t, err, CodeTargetKeyNotUnique)
	})
	t.Run("the feed is turned on by an explicit flag", func(t *testing.T) {
		b := make(t, "1")
		on := true
		b.flow.ChangeFeed = &on
		b.must(t, "U 1@1 (Ann, Rome)")
		snap, err := b.open(t).Snapshot(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !snap.WritesChangeFeed() {
			t.Error("the feed is off")
		}
	})
}

// Hidden changes write no data file and no change file; a replay writes nothing.
func TestRun_WritesNothingInVain(t *testing.T) {
	b := newBench(t, "")
	var lines, newer []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("U %d@5 (n%d, c)", i, i))
		newer = append(newer, fmt.Sprintf("U %d@9 (n%d, c)", i, i))
	}
	b.must(t, lines...)
	files := func() []string {
		var out []string
		for o, err := range b.store.List(context.Background(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Key) > 5 && o.Key[:5] == "part-" || len(o.Key) > 12 && o.Key[:12] == "_change_data" {
				out = append(out, o.Key)
			}
		}
		return out
	}
	before := files()
	res := b.must(t, newer...)
	if res.Files != (Files{}) || !slices.Equal(files(), before) {
		t.Errorf("version-only events wrote files: %+v", res.Files)
	}
	version := res.Version
	b.source = &textSource{} // no positions: everything comes again
	res = b.must(t, append(append(slices.Clone(lines), newer...), lines...)...)
	if res.Version != version || !slices.Equal(files(), before) || res.Events.Stale+res.Events.Duplicate != res.Events.Read {
		t.Errorf("a replay committed version %d after %d: %+v", res.Version, version, res.Events)
	}
	b.must(t, "U 1@8 (x, y)")
	if got := b.table(t); got[1] != "1, n1, c" {
		t.Errorf("version entry lost: %q", got[1])
	}
}

// What the state must be true to.
func TestTarget_StateMismatch(t *testing.T) {
	ctx := context.Background()
	copyStore := func(t *testing.T, from storage.Store, keep func(string) bool) storage.Store {
		to := storage.NewMemory("copy")
		for o, err := range from.List(ctx, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if !keep(o.Key) {
				continue
			}
			data, err := storage.ReadAll(ctx, from, o.Key)
			if err != nil {
				t.Fatal(err)
			}
			if err := to.Put(ctx, o.Key, data); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
	b := newBench(t, "")
	b.must(t, "U 1@5 (Ann, Rome)")
	t.Run("state gone", func(t *testing.T) {
		c := newBench(t, "")
		c.store = copyStore(t, b.store, func(k string) bool { return len(k) < 7 || k[:7] != "_apply/" })
		_, err := c.run("U 1@6 (Ann, Oslo)")
		wantCode(t, err, CodeStateMismatch)
	})
	t.Run("another table's state", func(t *testing.T) {
		other := newBench(t, "")
		other.must(t, "U 7@5 (Flo, Nice)")
		c := newBench(t, "")
		c.store = copyStore(t, b.store, func(k string) bool { return len(k) < 7 || k[:7] != "_apply/" })
		state := copyStore(t, other.store, func(k string) bool { return len(k) > 7 && k[:7] == "_apply/" })
		for o := range state.List(ctx, "", "") {
			data, err := storage.ReadAll(ctx, state, o.Key)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.store.Put(ctx, o.Key, data); err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.run("U 1@6 (Ann, Oslo)")
		wantCode(t, err, CodeStateMismatch)
	})
	t.Run("a newer format", func(t *testing.T) {
		c := newBench(t, "")
		c.store = copyStore(t, b.store, func(string) bool { return true })
		if _, err := c.open(t).SetProperties(ctx, map[string]string{propFormat: "2"}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := c.run("U 1@6 (Ann, Oslo)")
		wantCode(t, err, CodeFormatTooNew)
	})
	t.Run("transaction retention", func(t *testing.T) {
		c := newBench(t, "")
		c.store = copyStore(t, b.store, func(string) bool { return true })
		if _, err := c.open(t).SetProperties(ctx, map[string]string{propRetention: "interval 1 days"}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := c.run("U 1@6 (Ann, Oslo)")
		wantCode(t, err, CodeTransactionRetention)
	})
}

// The state gathers its files and loses nothing: tombstones, floors, version
// entries and departed images of many small batches still count.
func TestStateTable_Compaction(t *testing.T) {
	b := newBench(t, "")
	b.flow.BatchRows = 1
	b.must(t, "U 1@5 (Ann, Rome)", "U 2@5 (Bob, Oslo)")
	var lines []string
	for i := range 3 * maxFactFiles {
		lines = append(lines, fmt.Sprintf("D %d@9", 100+i), fmt.Sprintf("U 1@%d (Ann, Rome)", 10+i))
	}
	lines = append(lines, "D 50@7 new=51")
	b.must(t, lines...)
	log := deltalog.Open(storage.Sub(b.store, "_apply/state"), deltalog.Options{})
	snap, err := log.Latest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(context.Background())
	if err != nil || len(files) > maxFactFiles+1 {
		t.Fatalf("%d state files, %v", len(files), err)
	}
	b.must(t, "U 100@8 (x, y)", fmt.Sprintf("U %d@8 (x, y)", 100+3*maxFactFiles-1), "U 1@40 (x, y)", "U 50@6 (x, here)", "U 51@7 (Zoe, ?) old=50")
	b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo", "51, Zoe, here")
	b.must(t, "U 1@500 (Anna, Rome)", "U 1@400 (x, y)")
	b.wantTable(t, "1, Anna, Rome", "2, Bob, Oslo", "51, Zoe, here")
}

// --state keeps the state elsewhere, and the target remembers where.
func TestTarget_StatePath(t *testing.T) {
	b := newBench(t, "")
	elsewhere := storage.NewMemory("state")
	b.flow.StatePath = "/elsewhere"
	b.flow.State = func(target string) (storage.Store, error) { return storage.Sub(elsewhere, target), nil }
	b.must(t, "U 1@5 (Ann, Rome)")
	for o := range b.store.List(context.Background(), "_apply/state", "") {
		t.Errorf("%s was written", o.Key)
	}
	b.must(t, "U 1@4 (Late, Bern)", "D 2@9")
	b.must(t, "U 2@8 (Late, Bern)")
	b.wantTable(t, "1, Ann, Rome")
	b.flow.State, b.flow.StatePath = nil, ""
	_, err := b.run("U 1@6 (Ann, Oslo)")
	wantCode(t, err, CodeStatePathMismatch)
}
