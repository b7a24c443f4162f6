package apply

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// waiting is what lies in a quarantine, by line.
func waiting(t testing.TB, store storage.Store, o Options) (*Quarantine, []Quarantined) {
	t.Helper()
	ctx := context.Background()
	q, err := OpenQuarantine(ctx, store, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []Quarantined
	for x, err := range q.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Quarantined) int { return int(a.Record.Line - b.Record.Line) })
	return q, out
}

func repair(t testing.TB, x *Quarantined, value string) {
	t.Helper()
	line, err := json.Marshal(map[string]string{"value": value})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Repair(line); err != nil {
		t.Fatal(err)
	}
}

// A replay puts repaired records in their place in the sequence: what is newer
// stays, and a record counts once whatever breaks (cdc-formats 0.4).
func TestQuarantine_Replay(t *testing.T) {
	ctx := context.Background()
	poisoned := func(t *testing.T) *bench {
		b := newBench(t, "")
		b.flow.OnPoison = PoisonQuarantine
		b.must(t, "U 1@1 (Ann, Rome)", "!one", "U 2@5 (Bob, Oslo)", "!two", "!three")
		return b
	}
	spec := func(b *bench) Spec {
		return Spec{NewDecoder: func() event.Decoder { return &textDecoder{n: b.n} }, Target: Targets{Store: b.store, Name: "t"}, Flow: b.flow}
	}
	mended := func(t *testing.T, list []Quarantined) {
		repair(t, &list[0], "U 1@3 (Anna, Rome)") // newer than what is there
		repair(t, &list[1], "D 2@4")              // older
		repair(t, &list[2], "U 3@2 (Cy, Lima)")
	}
	want := []string{"1, Anna, Rome", "2, Bob, Oslo", "3, Cy, Lima"}

	t.Run("in sequence order", func(t *testing.T) {
		b := poisoned(t)
		q, list := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts)
		if len(list) != 3 || list[0].Class != event.PoisonBytes || list[0].Code != "INVALID_TEXT" || string(list[1].Record.Value) != "!two" || list[1].Record.Line != 4 || list[0].Flow != "f" {
			t.Fatalf("quarantine %+v", list)
		}
		mended(t, list)
		r, err := q.Replay(ctx, list, spec(b))
		if err != nil || r.Replayed != 3 || len(r.Still) != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		b.wantTable(t, want...)
		if _, left := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
		if _, err := q.Replay(ctx, list, spec(b)); err == nil {
			t.Error("replayed twice")
		} else {
			wantCode(t, err, CodeUnknownRecord)
		}
		if res := b.must(t); res.Events.Read != 0 {
			t.Errorf("the flow reads again: %+v", res.Events)
		}
	})

	t.Run("a fault at every write leaves each record applied once", func(t *testing.T) {
		for n := 0; ; n++ {
			b := poisoned(t)
			inner := b.store
			broken := faultstore.New(inner, faultstore.Rule{Match: faultstore.NthMutation(n), Mode: faultstore.CrashAfter})
			s := spec(b)
			s.Target.Store = broken
			q, list := waiting(t, storage.Sub(broken, "_apply/quarantine"), b.opts)
			mended(t, list)
			_, err := q.Replay(ctx, list, s)
			if err == nil && !broken.Crashed() {
				if n < 6 {
					t.Fatalf("only %d writes", n)
				}
				break
			}
			q, left := waiting(t, storage.Sub(inner, "_apply/quarantine"), b.opts)
			if len(left) > 0 {
				mended(t, left)
				if _, err := q.Replay(ctx, left, spec(b)); err != nil {
					t.Fatalf("write %d: again: %v", n, err)
				}
			}
			b.wantTable(t, want...)
			if _, left := waiting(t, storage.Sub(inner, "_apply/quarantine"), b.opts); len(left) != 0 {
				t.Errorf("write %d: left: %+v", n, left)
			}
			changes := 0
			feed := b.feed(t)
			for _, line := range feed {
				if strings.Contains(line, "Anna") || strings.Contains(line, "Cy") {
					changes++
				}
			}
			if changes != 2 {
				t.Errorf("write %d: the feed tells the changes %d times: %q", n, changes, feed)
			}
		}
	})

	t.Run("what is still poison stays", func(t *testing.T) {
		b := poisoned(t)
		q, list := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts)
		repair(t, &list[0], "U 1@3 (Anna, Rome)")
		r, err := q.Replay(ctx, list, spec(b))
		if err != nil || r.Replayed != 1 || len(r.Still) != 2 || r.Still[0].ID != list[1].ID {
			t.Fatalf("%+v, %v", r, err)
		}
		b.wantTable(t, "1, Anna, Rome", "2, Bob, Oslo")
		if _, left := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts); len(left) != 2 {
			t.Errorf("left: %+v", left)
		}
	})

	t.Run("a refused record leaves all where it is", func(t *testing.T) {
		b := poisoned(t)
		q, list := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts)
		mended(t, list)
		repair(t, &list[1], "U 2@null (Bob, Oslo)")
		_, err := q.Replay(ctx, list, spec(b))
		wantCode(t, err, CodeNullSequence)
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo")
		if _, left := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts); len(left) != 3 {
			t.Errorf("left: %+v", left)
		}
	})

	t.Run("a dry run changes nothing", func(t *testing.T) {
		b := poisoned(t)
		q, list := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts)
		mended(t, list)
		s := spec(b)
		s.Flow.DryRun = true
		if _, err := q.Replay(ctx, list, s); err != nil {
			t.Fatal(err)
		}
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo")
		if _, left := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts); len(left) != 3 {
			t.Errorf("left: %+v", left)
		}
	})

	t.Run("a full refresh quarantines anew", func(t *testing.T) {
		b := poisoned(t)
		q, list := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts)
		mended(t, list)
		if _, err := q.Replay(ctx, list, spec(b)); err != nil {
			t.Fatal(err)
		}
		if _, err := Refresh(ctx, Operator{Store: b.store, Name: "t"}, b.opts); err != nil {
			t.Fatal(err)
		}
		b.must(t)
		if _, left := waiting(t, storage.Sub(b.store, "_apply/quarantine"), b.opts); len(left) != 3 {
			t.Errorf("after the refresh the source is read anew and %d records wait, want 3", len(left))
		}
	})
}

// Records of several targets: those of a table lie with it and go back to it alone,
// those of no known table lie at the root and find their table.
func TestQuarantine_ManyTargets(t *testing.T) {
	ctx := context.Background()
	m := newMany(t)
	m.flow.OnPoison = PoisonQuarantine
	decoder := func() event.Decoder { return &lostDecoder{&manyDecoder{n: m.n, tables: map[string]*textDecoder{}}} }
	run := func(lines ...string) (Result, error) {
		m.src.lines = append(m.src.lines, lines...)
		s := m.spec()
		s.Source, s.NewDecoder = &m.src, decoder
		return Run(ctx, s, m.opts)
	}
	r, err := run("a|U 1@1 (Ann, Rome)", "?|!lost", "b|U 1@1 (Bob, Oslo)", "a|!named")
	if err != nil || r.Events.Poison != 2 || r.Events.Read != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	s := m.spec()
	s.NewDecoder = decoder
	q, list := waiting(t, storage.Sub(m.store, "_quarantine"), m.opts)
	if len(list) != 1 {
		t.Fatalf("at the root: %+v", list)
	}
	repair(t, &list[0], "b|U 2@2 (Cy, Lima)")
	if _, err := q.Replay(ctx, list, s); err != nil {
		t.Fatal(err)
	}
	m.want(t, "b", "1, Bob, Oslo", "2, Cy, Lima")

	q, list = waiting(t, storage.Sub(m.store, "a/_apply/quarantine"), m.opts)
	if len(list) != 1 || list[0].Table != "public.a" {
		t.Fatalf("of table a: %+v", list)
	}
	one := Spec{NewDecoder: decoder, Target: Targets{Store: storage.Sub(m.store, "a"), Name: "a"}, Flow: m.flow}
	repair(t, &list[0], "b|U 7@7 (Eve, Bonn)")
	_, err = q.Replay(ctx, list, one)
	wantCode(t, err, CodeOtherTable)
	repair(t, &list[0], "a|U 7@7 (Eve, Bonn)")
	if _, err := q.Replay(ctx, list, one); err != nil {
		t.Fatal(err)
	}
	m.want(t, "a", "1, Ann, Rome", "7, Eve, Bonn")
	if r, err := run(); err != nil || r.Events.Read != 0 {
		t.Errorf("the flow reads again: %+v, %v", r.Events, err)
	}
	if _, err := OpenQuarantine(ctx, storage.Sub(m.store, "b/_apply/quarantine"), m.opts); !errors.Is(err, delta.ErrNotFound) {
		t.Errorf("a quarantine that is none: %v", err)
	}
}

// lostDecoder does not know the table of "?|" lines.
type lostDecoder struct{ *manyDecoder }

func (d *lostDecoder) Flush() (*event.Decoded, error) {
	out, err := d.manyDecoder.Flush()
	if err == nil {
		for i, p := range out.Poison {
			if !strings.HasPrefix(string(p.Record.Raw), "?") {
				out.Poison[i].Table = event.Table{Schema: "public", Name: "a"}
			}
		}
	}
	return out, err
}

// The line form of a record survives being shown and read.
func TestQuarantined_JSON(t *testing.T) {
	x := Quarantined{ID: "1", Record: event.Record{Key: []byte("k\"<é>"), Value: []byte{0, 1, 0xff}, Headers: []event.Header{{Key: "h"}, {Key: "b", Value: []byte{0xfe}}}}}
	line, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	back := Quarantined{ID: "1", Record: event.Record{Value: []byte("other")}}
	if err := back.Repair(line); err != nil {
		t.Fatal(err)
	}
	if r := back.Record; string(r.Key) != string(x.Record.Key) || string(r.Value) != string(x.Record.Value) || len(r.Headers) != 2 || r.Headers[0].Value != nil || string(r.Headers[1].Value) != "\xfe" {
		t.Errorf("%s gives %+v", line, r)
	}
	for line, want := range map[string]string{`{"value":{"a":1.50}}`: `{"a":1.50}`, `{"value":"x"}`: "x", `{"other":1}`: "old"} {
		r := Quarantined{Record: event.Record{Value: []byte("old")}}
		if err := r.Repair([]byte(line)); err != nil || string(r.Record.Value) != want {
			t.Errorf("%s: %q, %v", line, r.Record.Value, err)
		}
	}
	gone := Quarantined{Record: event.Record{Value: []byte("old")}}
	if err := gone.Repair([]byte(`{"value":null}`)); err != nil || gone.Record.Value != nil {
		t.Errorf("%q, %v", gone.Record.Value, err)
	}
	wantCode(t, gone.Repair([]byte(`{"value_base64":"*"}`)), CodeInvalidRepair)
	wantCode(t, gone.Repair([]byte(`no`)), CodeInvalidRepair)
}
