package apply

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// textSnapshots serves snapshots of the notation, one after the other.
type textSnapshots struct {
	n    *notation
	list []textSnapshot
	held []textSnapshot // what the source lists; nil: it keeps no list
}

type textSnapshot struct {
	version string // "" has none
	rows    []string
	columns bool // without rows it still tells its columns
}

func (s *textSnapshots) Next(_ context.Context, _ *event.SnapshotVersion) (*event.Snapshot, error) {
	if len(s.list) == 0 {
		return nil, nil
	}
	x := s.list[0]
	s.list = s.list[1:]
	return s.make(x)
}

func (s *textSnapshots) make(x textSnapshot) (*event.Snapshot, error) {
	out := &event.Snapshot{Name: "snapshot " + x.version}
	if x.version != "" {
		as, err := schema.ArrowType(s.n.seq)
		if err != nil {
			return nil, err
		}
		b := array.NewBuilder(memory.DefaultAllocator, as)
		if err := appendText(b, x.version); err != nil {
			return nil, err
		}
		out.Version = &event.SnapshotVersion{Column: "v", Type: s.n.seq, Value: b.NewArray()}
	}
	out.Rows = func(yield func(*event.Batch, error) bool) {
		d := &textDecoder{n: s.n}
		for i, r := range x.rows {
			if r = strings.TrimSpace(r); r == "" {
				continue
			}
			text := model.SnapshotLine(r, cmp.Or(x.version, "0"))
			if err := d.Add(context.Background(), &event.Record{Value: []byte(text), Line: int64(i + 1)}); err != nil {
				yield(nil, err)
				return
			}
		}
		decoded, err := d.Flush()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, b := range decoded.Batches {
			if !yield(b, nil) {
				return
			}
		}
		if len(decoded.Batches) == 0 && x.columns {
			line, err := s.n.parse("U 1@0 (a, b)")
			if err != nil {
				yield(nil, err)
				return
			}
			b, err := s.n.batch([]model.Line{line}, []*event.Record{{}})
			if err != nil {
				yield(nil, err)
				return
			}
			b.Ops, b.Offsets, b.Lines, b.Rows = nil, nil, nil, b.Rows.NewSlice(0, 0)
			yield(b, nil)
		}
	}
	return out, nil
}

func (s *textSnapshots) Held(context.Context, *event.SnapshotVersion) ([]*event.Snapshot, error) {
	if s.held == nil {
		return nil, nil
	}
	out := []*event.Snapshot{}
	for _, x := range s.held {
		e, err := s.make(x)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (s *textSnapshots) Close() error { return nil }

var _ iter.Seq2[*event.Batch, error] = (&event.Snapshot{}).Rows

// snapshotSpec is the snapshot flow s beside the bench's change flow.
func (b *bench) snapshotSpec(list ...textSnapshot) Spec {
	spec := b.spec()
	spec.Source, spec.NewDecoder = nil, nil
	spec.Snapshots = &textSnapshots{n: b.n, list: list}
	spec.Flow.Name, spec.Flow.SequenceBy = "s", ""
	spec.Flow.AllowEmptySnapshot = true
	return spec
}

func (b *bench) snapshot(version string, rows []string) (Result, error) {
	return Run(context.Background(), b.snapshotSpec(textSnapshot{version: version, rows: rows}), b.opts)
}

// Snapshots by difference are the event sets that they are defined as (law 7 of
// auto-cdc 2.12), beside a change flow on SCD type 1.
func TestRun_SnapshotsModel(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		config := "data: a STRING, b STRING\nstored-as: " + rapid.SampledFrom([]string{"1", "1", "2"}).Draw(rt, "stored")
		b := newBench(t, config)
		b.opts.stateBudget, b.opts.factFiles = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget"), rapid.SampledFrom([]int{0, 2, 3}).Draw(rt, "state files")
		script, err := model.NewScript(config)
		if err != nil {
			rt.Fatal(err)
		}
		shared := strings.HasSuffix(config, "1") && rapid.Bool().Draw(rt, "shared")
		replay := ""
		version := 0
		started := false
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			var want string
			if shared && rapid.Bool().Draw(rt, "changes") {
				g := model.Generator{Columns: []string{"a", "b"}, Keys: 4, Seqs: 9, Conflicts: true, Truncates: true, Values: 2}
				var lines []string
				for _, e := range g.Events(rt, 5) {
					lines = append(lines, eventText(e))
				}
				if want, err = script.Batch(lines); err != nil {
					rt.Fatal(err)
				}
				replay += "\nbatch\n" + strings.Join(lines, "\n") + "\n----\n" + want
				if _, err := b.run(lines...); err != nil {
					rt.Fatalf("%v\n%s", err, replay)
				}
			} else {
				version += rapid.IntRange(1, 3).Draw(rt, "version")
				var rows []string
				for k := 1; k <= 4; k++ {
					if rapid.Bool().Draw(rt, "there") {
						rows = append(rows, fmt.Sprintf("(%d, %s, %s)", k, rapid.SampledFrom([]string{"null", "a", "b"}).Draw(rt, "a"), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "b")))
					}
				}
				if len(rows) == 0 && !started {
					rows = []string{"(1, a, a)"} // without rows nothing tells the columns of a target
				}
				if want, err = script.Snapshot(fmt.Sprint(version), rows); err != nil {
					rt.Fatal(err)
				}
				replay += fmt.Sprintf("\nsnapshot version=%d\n%s\n----\n%s", version, strings.Join(rows, "\n"), want)
				if _, err := b.snapshot(fmt.Sprint(version), rows); err != nil {
					rt.Fatalf("%v\n%s", err, replay)
				}
			}
			started = true
			if got := b.table(t); !slices.Equal(got, script.Table()) {
				rt.Fatalf("got %q\n%s", got, replay)
			}
			if got := model.Show("table", b.table(t)) + model.Show("feed", b.feed(t)); got != want {
				rt.Fatalf("got\n%s\n%s", got, replay)
			}
		}
	})
}

func TestRun_SnapshotGuards(t *testing.T) {
	full := []string{"(1, Ann, Rome)", "(2, Bob, Oslo)", "(3, Cy, Lima)", "(4, Di, Bonn)"}
	start := func(t *testing.T) *bench {
		b := newBench(t, "")
		if _, err := b.snapshot("1", full); err != nil {
			t.Fatal(err)
		}
		return b
	}
	run := func(b *bench, change func(*Flow), list ...textSnapshot) (Result, error) {
		spec := b.snapshotSpec(list...)
		change(&spec.Flow)
		return Run(context.Background(), spec, b.opts)
	}
	t.Run("an empty snapshot asks", func(t *testing.T) {
		b := start(t)
		_, err := run(b, func(f *Flow) { f.AllowEmptySnapshot = false }, textSnapshot{version: "2", rows: nil})
		wantCode(t, err, CodeSnapshotEmpty)
		if got := b.table(t); len(got) != 4 {
			t.Errorf("table %q", got)
		}
	})
	t.Run("too many deletes", func(t *testing.T) {
		b := start(t)
		_, err := run(b, func(f *Flow) { f.MaxDeleteFraction = 0.5 }, textSnapshot{version: "2", rows: full[:1]})
		wantCode(t, err, CodeSnapshotDeletes)
		if _, err := run(b, func(f *Flow) { f.MaxDeleteFraction = 0.5 }, textSnapshot{version: "2", rows: full[:2]}); err != nil {
			t.Fatal(err)
		}
		if got := b.table(t); len(got) != 2 {
			t.Errorf("table %q", got)
		}
	})
	t.Run("a grace before a missing key counts as deleted", func(t *testing.T) {
		b := start(t)
		grace := func(f *Flow) { f.MissingGrace = 2 }
		res, err := run(b, grace, textSnapshot{version: "2", rows: full[:3]}, textSnapshot{version: "3", rows: full}, textSnapshot{version: "4", rows: full[:3]})
		if err != nil || res.Rows.Deleted != 0 || res.Snapshots != 3 {
			t.Fatalf("%+v, %v", res, err)
		}
		if res, err = run(b, grace, textSnapshot{version: "5", rows: full[:3]}); err != nil || res.Rows.Deleted != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
	})
	t.Run("without a version only an empty target is filled", func(t *testing.T) {
		b := newBench(t, "")
		if _, err := run(b, func(*Flow) {}, textSnapshot{version: "", rows: full}); err != nil {
			t.Fatal(err)
		}
		_, err := run(b, func(*Flow) {}, textSnapshot{version: "", rows: full})
		wantCode(t, err, CodeSnapshotWithoutVersion)
		once := func(f *Flow) { f.Once = true }
		c := newBench(t, "")
		if _, err := run(c, once, textSnapshot{version: "", rows: full}); err != nil {
			t.Fatal(err)
		}
		if res, err := run(c, once, textSnapshot{version: "", rows: full}); err != nil || res.Snapshots != 0 {
			t.Fatalf("ONCE ran again: %+v, %v", res, err)
		}
	})
	t.Run("stored version and flow", func(t *testing.T) {
		b := start(t)
		b.n.seq = schema.String
		_, err := b.snapshot("b", full)
		wantCode(t, err, CodeSnapshotVersionChanged)
		b.n.seq = schema.Long
		_, err = run(b, func(f *Flow) { f.Name = "other" }, textSnapshot{version: "2", rows: full})
		wantCode(t, err, CodeTwoSnapshots)
		c := newBench(t, "seq: STRUCT<m: MAP<STRING, STRING>>")
		c.n.seq = &schema.Map{Key: schema.String, Value: schema.String}
		spec := c.snapshotSpec()
		mb := array.NewMapBuilder(memory.DefaultAllocator, array.NewStringBuilder(memory.DefaultAllocator).Type(), array.NewStringBuilder(memory.DefaultAllocator).Type(), false)
		mb.Append(true)
		spec.Snapshots = oneSnapshot{&event.Snapshot{Version: &event.SnapshotVersion{Type: c.n.seq, Value: mb.NewArray()}}}
		_, err = Run(context.Background(), spec, c.opts)
		wantCode(t, err, CodeSnapshotNotSortable)
	})
	t.Run("unchanged rows write nothing", func(t *testing.T) {
		b := start(t)
		res, err := b.snapshot("2", full)
		if err != nil || res.Files != (Files{}) || res.Events.Duplicate != 4 {
			t.Fatalf("%+v, %v", res, err)
		}
		// An older change loses against rows that the second snapshot confirmed.
		b.n.seq = schema.Long
		if _, err := b.run("U 1@1 (Zoe, Zug)"); err != nil {
			t.Fatal(err)
		}
		if got := b.table(t); got[0] != "1, Ann, Rome" {
			t.Errorf("table %q", got)
		}
	})
	t.Run("interop with change flows", func(t *testing.T) {
		b := newBench(t, "seq: STRING")
		if _, err := b.run("U 1@a (Ann, Rome)"); err != nil {
			t.Fatal(err)
		}
		b.n.seq = schema.Long
		_, err := b.snapshot("2", full)
		wantCode(t, err, CodeInteropSequence)
		spec := b.snapshotSpec(textSnapshot{version: "2", rows: full})
		spec.Flow.Keys = []string{"name"}
		_, err = Run(context.Background(), spec, b.opts)
		if e := codeOf(err, ""); e != CodeInteropKeys && !strings.Contains(fmt.Sprint(err), "KEY") {
			t.Errorf("got %v", err)
		}
	})
}

type oneSnapshot struct{ s *event.Snapshot }

func (o oneSnapshot) Next(context.Context, *event.SnapshotVersion) (*event.Snapshot, error) {
	return o.s, nil
}
func (oneSnapshot) Held(context.Context, *event.SnapshotVersion) ([]*event.Snapshot, error) {
	return nil, nil
}
func (oneSnapshot) Close() error { return nil }
