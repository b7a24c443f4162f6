package apply

import (
	"context"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// A struct of the source that gets a field, at any depth, grows the target's; events
// of the schema before go on (auto-cdc 1.4 rule 6).
func TestRun_NestedGrowth(t *testing.T) {
	again := func(t *testing.T, first *bench, config string) *bench {
		b := newBench(t, config)
		b.store, b.source, b.opts, b.seen = first.store, first.source, first.opts, first.seen
		return b
	}
	for _, budget := range []int64{0, -1} {
		t.Run("E31 SCD1", func(t *testing.T) {
			b := newBench(t, "data: s STRUCT<a: STRING, p: STRUCT<x: STRING>>")
			b.opts.stateBudget = budget
			b.must(t, "U 1@5 ({a,{u}})", "U 2@5 ({b,{v}})")
			c := again(t, b, "data: s STRUCT<a: STRING, p: STRUCT<x: STRING, y: BIGINT>, q: STRING>")
			c.must(t, "U 1@6 ({a,{u,7},z})")
			c.wantTable(t, "1, {a,{u,7},z}", "2, {b,{v,null},null}")
			// From a flow that still has the old schema, late and new.
			b.must(t, "U 1@4 ({old,{u}})", "U 2@9 ({new,{w}})")
			c.wantTable(t, "1, {a,{u,7},z}", "2, {new,{w,null},null}")
		})
		t.Run("E33 SCD2 with hidden events", func(t *testing.T) {
			b := newBench(t, "data: name STRING, s STRUCT<a: STRING>\nstored-as: 2\ntrack: name")
			b.opts.stateBudget = budget
			b.must(t, "U 1@1 (Ann, {p})", "U 1@3 (Ann, {q})", "U 1@5 (Ann, {r})")
			c := again(t, b, "data: name STRING, s STRUCT<a: STRING, b: STRING>\nstored-as: 2\ntrack: name")
			c.must(t, "U 1@4 (Bob, {s,t})")
			c.wantTable(t, "1, Ann, {q,null}, 1→4", "1, Ann, {r,null}, 5→∞", "1, Bob, {s,t}, 4→5")
		})
	}
	t.Run("leaves that are fields", func(t *testing.T) {
		b := newBench(t, "data: s STRUCT<a: STRING>\nignore-null: on s")
		b.must(t, "U 1@5 ({p})")
		c := again(t, b, "data: s STRUCT<a: STRING, b: STRING>\nignore-null: on s")
		c.must(t, "U 1@4 ({old,fills})")
		c.wantTable(t, "1, {p,fills}")
		b.must(t, "U 1@9 ({q})")
		c.wantTable(t, "1, {q,fills}")
	})
	t.Run("within the first batch", func(t *testing.T) {
		b := newBench(t, "data: s STRUCT<a: STRING>")
		b.must(t, "D 9@1")
		c := again(t, b, "data: s STRUCT<a: STRING>")
		c.must(t, "U 1@1 ({p})")
		c.wantTable(t, "1, {p}")
	})
	t.Run("with a type widened inside", func(t *testing.T) {
		b := newBench(t, "data: s STRUCT<a: INT>")
		b.flow.Properties = map[string]string{"delta.enableTypeWidening": "true"}
		b.must(t, "U 1@5 ({7})", "U 2@5 ({8})")
		c := again(t, b, "data: s STRUCT<a: BIGINT, b: STRING>")
		c.must(t, "U 1@6 ({5000000000,z})")
		b.must(t, "U 2@6 ({9})")
		c.wantTable(t, "1, {5000000000,z}", "2, {9,null}")
	})
	t.Run("a type inside that may not change", func(t *testing.T) {
		b := newBench(t, "data: s STRUCT<a: INT>")
		b.must(t, "U 1@5 ({7})")
		_, err := again(t, b, "data: s STRUCT<a: BIGINT>").run("U 1@6 ({8})")
		wantCode(t, err, CodeIncompatibleType)
	})
	t.Run("snapshots", func(t *testing.T) {
		b := newBench(t, "data: s STRUCT<a: STRING>")
		if _, err := b.snapshot("1", []string{"(1, {p})"}); err != nil {
			t.Fatal(err)
		}
		c := again(t, b, "data: s STRUCT<a: STRING, b: STRING>")
		if _, err := c.snapshot("2", []string{"(1, {p,q})"}); err != nil {
			t.Fatal(err)
		}
		c.wantTable(t, "1, {p,q}")
	})
}

// A column joins with the first event that shows it, also if that event is late and
// says nothing else: how batches are cut does not show in the columns (law 1).
func TestRun_ColumnOfALateEvent(t *testing.T) {
	for _, stored := range []string{"1", "2"} {
		for rows := range 3 {
			b := newBench(t, "data: a STRING, b STRING\nstored-as: "+stored)
			b.flow.BatchRows = rows
			b.must(t, "U 2@2 (a=x)", "U 2@1 (a=?, b=?)")
			snap, err := b.open(t).Snapshot(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if snap.Schema.Index("b") < 0 {
				t.Errorf("stored as %s, batches of %d: columns %q", stored, rows, snap.Schema.Names())
			}
		}
	}
}

// A key column that another writer renamed is refused by name; nothing is written.
func TestRun_KeyRenamed(t *testing.T) {
	for _, stored := range []string{"1", "2"} {
		t.Run("stored as "+stored, func(t *testing.T) {
			b := newBench(t, "stored-as: "+stored)
			b.flow.Properties = map[string]string{"delta.columnMapping.mode": "name"}
			b.must(t, "U 1@5 (Ann, Rome)")
			tab := b.open(t)
			res, err := tab.Alter(context.Background(), delta.RenameColumn{Column: "id", To: "key"}, delta.AlterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.run("U 1@6 (Ann, Oslo)")
			wantCode(t, err, CodeKeySchemaDrift)
			if now := b.pinned(t).snap.Version; now != res.Version {
				t.Errorf("version %d was committed after the refusal", now)
			}
			if _, err := tab.Alter(context.Background(), delta.RenameColumn{Column: "key", To: "id"}, delta.AlterOptions{}); err != nil {
				t.Fatal(err)
			}
			b.must(t, "U 1@6 (Ann, Oslo)")
		})
	}
}

// Nested values are adapted at every depth, slices of arrays included.
func TestAdapt(t *testing.T) {
	parse := func(text string) schema.Type {
		s, err := schema.ParseDDL("v " + text)
		if err != nil {
			t.Fatal(err)
		}
		return s.Fields[0].Type
	}
	from, to := parse("ARRAY<STRUCT<a: INT, m: MAP<STRING, STRUCT<x: INT>>>>"), parse("ARRAY<STRUCT<n: STRING, m: MAP<STRING, STRUCT<x: INT, y: DATE>>, a: BIGINT>>")
	if !fits(from, to) || fits(to, from) {
		t.Fatal("fits")
	}
	if !fits(parse("STRUCT<City: STRING>"), parse("STRUCT<city: STRING, zip: STRING>")) {
		t.Error("names inside of structs are compared ignoring case")
	}
	two := &schema.Struct{Fields: []schema.Field{{Name: "City", Type: schema.String}, {Name: "CITY", Type: schema.String}}}
	if fits(two, parse("STRUCT<city: STRING, zip: STRING>")) {
		t.Error("which of two names is meant?")
	}
	dt, err := schema.ArrowType(from)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	if err := b.UnmarshalJSON([]byte(`[[{"a":1,"m":[{"key":"k","value":{"x":5}}]}],null,[],[{"a":2,"m":null},null],[{"a":3,"m":[]}]]`)); err != nil {
		t.Fatal(err)
	}
	whole := b.NewArray()
	want := []string{`[{"a":1,"m":[{"key":"k","value":{"x":5,"y":null}}],"n":null}]`, `(null)`, `[]`, `[{"a":2,"m":null,"n":null},null]`, `[{"a":3,"m":[],"n":null}]`}
	for from1 := range want {
		got, err := adapt(array.NewSlice(whole, int64(from1), int64(whole.Len())), from, to, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for i := range got.Len() {
			texts = append(texts, got.ValueStr(i))
		}
		if !slices.Equal(texts, want[from1:]) {
			t.Errorf("from %d: got %q", from1, texts)
		}
	}
}
