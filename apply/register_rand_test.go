package apply

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
)

func seqBytes(v model.Value) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v.(int64))) }

// eventOrigin is one event as an origin of one row of text fields.
func eventOrigin(e model.Event, columns []string) ref {
	o := &origin{whole: true, epoch: int32(len(e.Schema)), unauth: make([]event.Bits, len(columns))}
	for f, c := range columns {
		if !slices.Contains(e.Schema, c) {
			o.fields, o.whole = append(o.fields, nil), false
			continue
		}
		b := array.NewStringBuilder(memory.DefaultAllocator)
		v, ok := e.Values[c]
		if s, isText := v.(string); isText {
			b.Append(s)
		} else {
			b.AppendNull()
		}
		o.fields = append(o.fields, b.NewArray())
		if !ok {
			o.unauth[f] = o.unauth[f].Set(0)
		}
	}
	return ref{o, 0}
}

func textJoiner(columns int) *joiner {
	return &joiner{
		fields: columns,
		covers: func(epoch int32) bool { return int(epoch) == columns },
	}
}

func joinAll(events []model.Event, columns []string) model.Table {
	j := textJoiner(len(columns))
	regs := map[int64]*register{}
	for _, e := range events { // every key is there from the start, so truncates reach it
		if e.Kind != model.Truncate {
			regs[e.Key.(int64)] = &register{}
		}
	}
	for _, e := range events {
		switch e.Kind {
		case model.Truncate:
			for _, k := range regs {
				j.remove(k, seqBytes(e.Seq))
			}
		case model.Delete:
			j.remove(regs[e.Key.(int64)], seqBytes(e.Seq))
		default:
			j.upsert(regs[e.Key.(int64)], seqBytes(e.Seq), eventOrigin(e, columns))
		}
	}
	out := model.Table{}
	for key, k := range regs {
		if !k.live {
			continue
		}
		row := model.Row{Key: key, Values: make([]model.Value, len(columns))}
		for f := range columns {
			if at := k.fieldAt(f); at.o != nil && at.o.fields[f] != nil && at.o.fields[f].IsValid(at.row) {
				row.Values[f] = at.o.fields[f].(*array.String).Value(at.row)
			}
		}
		out[model.Text(key)] = row
	}
	return out
}

// Registers equal the definition (auto-cdc 2.5) for any order of the events.
func TestRegister_Model(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		g := model.Generator{Columns: []string{"a", "b", "c"}, Keys: 3, Seqs: 7, Truncates: true,
			Unavailable: rapid.Bool().Draw(t, "unavailable"), Growth: rapid.Bool().Draw(t, "growth")}
		g.Conflicts = !g.Unavailable && !g.Growth
		events := g.Events(t, 25)
		want := model.SCD1(events, g.Columns)
		for range 3 {
			if got := joinAll(rapid.Permutation(events).Draw(t, "order"), g.Columns); !slices.Equal(got.Lines(), want.Lines()) {
				t.Fatalf("got %q, want %q", got.Lines(), want.Lines())
			}
		}
	})
}

func TestJoiner_Outcomes(t *testing.T) {
	columns := []string{"name", "city"}
	full := func(s int64, name, city string) model.Event {
		return model.Event{Kind: model.Upsert, Seq: s, Schema: columns, Values: map[string]model.Value{"name": name, "city": city}}
	}
	part := func(s int64, c, v string) model.Event {
		return model.Event{Kind: model.Upsert, Seq: s, Schema: columns, Values: map[string]model.Value{c: v}}
	}
	del := func(s int64) model.Event { return model.Event{Kind: model.Delete, Seq: s} }
	for _, c := range []struct {
		name      string
		events    []model.Event
		want      []outcome
		conflicts int64
	}{
		{"E01 duplicate", []model.Event{full(5, "Ann", "Rome"), full(5, "Ann", "Rome")}, []outcome{applied, duplicate}, 0},
		{"E02 stale", []model.Event{full(9, "Ann", "Oslo"), full(8, "Ann", "Lima")}, []outcome{applied, stale}, 0},
		{"E12 conflicts", []model.Event{full(5, "Bob", "Rome"), full(5, "Bob", "Zug"), full(5, "Bob", "Oslo")}, []outcome{applied, applied, stale}, 2},
		{"deletes", []model.Event{del(5), del(5), del(4), full(3, "Ann", "Rome"), full(5, "Ann", "Rome")}, []outcome{applied, duplicate, stale, stale, applied}, 0},
		{"late partial fills", []model.Event{part(5, "name", "Ann"), full(3, "Abe", "Rome"), full(2, "Abe", "Oslo"), part(5, "name", "Ann")}, []outcome{applied, applied, stale, duplicate}, 0},
		{"late delete cuts a field", []model.Event{part(1, "name", "Ann"), part(3, "city", "Oslo"), del(2), del(3)}, []outcome{applied, applied, applied, stale}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, k := textJoiner(2), &register{}
			for i, e := range c.events {
				var got outcome
				if e.Kind == model.Delete {
					got = j.remove(k, seqBytes(e.Seq))
				} else {
					got = j.upsert(k, seqBytes(e.Seq), eventOrigin(e, columns))
				}
				if got != c.want[i] {
					t.Errorf("event %d: got outcome %d, want %d", i, got, c.want[i])
				}
			}
			if j.conflicts != c.conflicts {
				t.Errorf("conflicts: got %d, want %d", j.conflicts, c.conflicts)
			}
		})
	}
}
