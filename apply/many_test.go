package apply

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// manyDecoder reads "table|event" lines of the notation.
type manyDecoder struct {
	n      *notation
	tables map[string]*textDecoder
	order  []string
	state  int
}

func (d *manyDecoder) Add(ctx context.Context, r *event.Record) error {
	table, text, _ := strings.Cut(string(r.Value), "|")
	td := d.tables[table]
	if td == nil {
		n := *d.n
		n.decoder = event.Table{Schema: "public", Name: table}
		td = &textDecoder{n: &n}
		d.tables[table], d.order = td, append(d.order, table)
	}
	copied := *r
	copied.Value = []byte(text)
	d.state++
	return td.Add(ctx, &copied)
}

func (d *manyDecoder) Pending() (rows int, bytes int64) {
	for _, t := range d.tables {
		n, b := t.Pending()
		rows, bytes = rows+n, bytes+b
	}
	return rows, bytes
}

func (d *manyDecoder) State() string { return fmt.Sprint(d.state) }
func (d *manyDecoder) Restore(s string) error {
	_, err := fmt.Sscan(s, &d.state)
	return err
}

func (d *manyDecoder) Flush() (*event.Decoded, error) {
	out := &event.Decoded{}
	for _, name := range d.order {
		part, err := d.tables[name].Flush()
		if err != nil {
			return nil, err
		}
		out.Batches = append(out.Batches, part.Batches...)
		out.Poison = append(out.Poison, part.Poison...)
	}
	return out, nil
}

// countingSource counts the records it was asked for.
type countingSource struct {
	textSource
	yielded int
}

func (s *countingSource) Records(ctx context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		for r, err := range s.textSource.Records(ctx, from) {
			s.yielded++
			if !yield(r, err) {
				return
			}
		}
	}
}

type manyBench struct {
	*bench
	src countingSource
}

func newMany(t testing.TB) *manyBench {
	return &manyBench{bench: newBench(t, ""), src: countingSource{textSource: textSource{name: "file:all"}}}
}

func (m *manyBench) apply(lines ...string) (Result, error) {
	m.src.lines = append(m.src.lines, lines...)
	m.src.yielded = 0
	s := m.spec()
	s.Source = &m.src
	s.NewDecoder = func() event.Decoder { return &manyDecoder{n: m.n, tables: map[string]*textDecoder{}} }
	return Run(context.Background(), s, m.opts)
}

// spec is the flow without its source and decoder.
func (m *manyBench) spec() Spec {
	return Spec{Flow: m.flow, Target: Targets{Name: "dir", Root: m.store, Route: func(t event.Table) (string, error) { return strings.ToLower(t.Name), nil },
		Open: func(dir string) (storage.Store, error) { return storage.Sub(m.store, dir), nil }}}
}

func (m *manyBench) rows(t testing.TB, dir string) []string {
	b := *m.bench
	b.store = storage.Sub(m.store, dir)
	return b.table(t)
}

func (m *manyBench) want(t testing.TB, dir string, rows ...string) {
	t.Helper()
	if got := m.rows(t, dir); !slices.Equal(got, rows) {
		t.Fatalf("%s: %q, want %q", dir, got, rows)
	}
}

// One stream, many targets (apply-state 2.6).
func TestRun_ManyTargets(t *testing.T) {
	t.Run("low-water saves reading", func(t *testing.T) {
		m := newMany(t)
		res, err := m.apply("a|U 1@1 (Ann, Rome)", "b|U 1@2 (Bob, Oslo)", "a|U 2@3 (Cy, Lima)")
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Targets) != 2 || res.Rows.Inserted != 3 {
			t.Fatalf("result %+v", res)
		}
		m.want(t, "a", "1, Ann, Rome", "2, Cy, Lima")
		m.want(t, "b", "1, Bob, Oslo")
		if res, err = m.apply("b|D 1@4"); err != nil || m.src.yielded != 1 {
			t.Fatalf("%d records read, %v", m.src.yielded, err)
		}
		m.want(t, "b")
		before := res
		if res, err = m.apply(); err != nil || m.src.yielded != 0 || res.Batches != 0 {
			t.Fatalf("%+v after %+v, %v", res, before, err)
		}
	})
	t.Run("a target that is gone", func(t *testing.T) {
		m := newMany(t)
		if _, err := m.apply("a|U 1@1 (Ann, Rome)", "b|U 1@2 (Bob, Oslo)"); err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		for o := range m.store.List(ctx, "b/", "") {
			if err := m.store.Delete(ctx, o.Key); err != nil {
				t.Fatal(err)
			}
		}
		_, err := m.apply("a|U 1@3 (Ann, Bonn)")
		wantCode(t, err, CodeTargetMissing)
	})
	t.Run("a stopped target is parked, the others go on", func(t *testing.T) {
		m := newMany(t)
		if _, err := m.apply("a|U 1@1 (Ann, Rome)", "b|U 1@2 (Bob, Oslo)"); err != nil {
			t.Fatal(err)
		}
		_, err := m.apply("a|U 1@3 (Ann, Bonn)", "b|U null@4 (x, y)", "b|U 1@5 (Bob, Reno)", "a|U 2@6 (Cy, Lima)")
		wantCode(t, err, CodeNullKey)
		m.want(t, "a", "1, Ann, Bonn", "2, Cy, Lima")
		m.want(t, "b", "1, Bob, Oslo")
		// The bad record is mended: nothing of b was skipped, nothing of a comes twice.
		m.src.lines[3] = "b|U 3@4 (x, y)"
		res, err := m.apply()
		if err != nil {
			t.Fatal(err)
		}
		m.want(t, "a", "1, Ann, Bonn", "2, Cy, Lima")
		m.want(t, "b", "1, Bob, Reno", "3, x, y")
		if res.Events.Read != 2 {
			t.Errorf("events %+v", res.Events)
		}
	})
	t.Run("two tables on one directory", func(t *testing.T) {
		m := newMany(t)
		_, err := m.apply("a|U 1@1 (Ann, Rome)", "A|U 1@2 (Bob, Oslo)")
		wantCode(t, err, CodeTargetClash)
	})
	t.Run("a second table without {table}", func(t *testing.T) {
		m := newMany(t)
		m.src.lines = []string{"a|U 1@1 (Ann, Rome)", "b|U 1@2 (Bob, Oslo)"}
		_, err := Run(context.Background(), Spec{Source: &m.src, Flow: m.flow, Target: Targets{Name: "t", Store: m.store},
			NewDecoder: func() event.Decoder { return &manyDecoder{n: m.n, tables: map[string]*textDecoder{}} }}, m.opts)
		wantCode(t, err, CodeAmbiguousTable)
	})
	t.Run("killed at every operation", func(t *testing.T) {
		lines := []string{"a|U 1@1 (Ann, Rome)", "b|U 1@2 (Bob, Oslo)", "a|U 2@3 (Cy, Lima)", "c|U 1@4 (Di, Kyiv)", "b|D 1@5", "a|U 1@6 (Ann, Bonn)"}
		for n := 0; ; n += 5 {
			mem := storage.NewMemory("d")
			fs := faultstore.New(mem, faultstore.Rule{Match: faultstore.Nth(n), Mode: faultstore.CrashAfter})
			m := newMany(t)
			m.flow.BatchRows, m.store = 2, fs
			_, err := m.apply(lines...)
			if fs.Count() <= n {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			m.store = mem
			if _, err := m.apply(); err != nil {
				t.Fatalf("operation %v: %v", fs.Trace()[n], err)
			}
			m.want(t, "a", "1, Ann, Bonn", "2, Cy, Lima")
			m.want(t, "b")
			m.want(t, "c", "1, Di, Kyiv")
		}
	})
}

// Flows that write one target at once: nothing is lost and nothing doubled, whether
// their keys meet or not (apply-state 3).
func TestRun_ConcurrentFlows(t *testing.T) {
	store := storage.NewMemory("t")
	const flows, events = 4, 30
	var wg sync.WaitGroup
	errs := make([]error, flows)
	for f := range flows {
		b := newBench(t, "")
		b.opts.Clock = time.Now
		b.store, b.flow.Name, b.source.name, b.flow.BatchRows = store, fmt.Sprint("f", f), fmt.Sprint("file:", f), 3
		for i := range events {
			// Own keys, and keys that all flows fight for.
			b.source.lines = append(b.source.lines, fmt.Sprintf("U %d@%d (f%d, i%d)", 1000*(f+1)+i%7, i+1, f, i), fmt.Sprintf("U %d@%d (f%d, i%d)", i%5, 10*i+f+1, f, i))
		}
		wg.Go(func() { _, errs[f] = Run(context.Background(), b.spec(), b.opts) })
	}
	wg.Wait()
	for f, err := range errs {
		if err != nil {
			t.Fatalf("flow %d: %v", f, err)
		}
	}
	var want []string
	for k := range 5 {
		want = append(want, fmt.Sprintf("%d, f3, i%d", k, 25+k))
	}
	for f := range flows {
		for k := range 7 {
			last := 0
			for i := range events {
				if i%7 == k {
					last = i
				}
			}
			want = append(want, fmt.Sprintf("%d, f%d, i%d", 1000*(f+1)+k, f, last))
		}
	}
	slices.Sort(want)
	b := newBench(t, "")
	b.store = store
	b.check(t, "four flows", want)
}

// A winner decides: a commit that touches neither keys nor files of the attempt is
// stepped over with the same files, one that does makes the batch think again.
func TestProposal_Winners(t *testing.T) {
	for _, c := range []struct {
		name   string
		winner func(t *testing.T, b *bench)
		want   []string
		again  bool // data files are written a second time: the batch still has something to say
	}{
		{"other keys", func(t *testing.T, b *bench) { b.must(t, "U 9@1 (Zoe, Lima)") }, []string{"1, Anna, Rome", "2, Bob, Oslo", "9, Zoe, Lima"}, false},
		{"a key of the batch", func(t *testing.T, b *bench) { b.must(t, "U 1@8 (Newer, Rome)") }, []string{"1, Newer, Rome", "2, Bob, Oslo"}, false},
		{"a tombstone of a key", func(t *testing.T, b *bench) { b.must(t, "D 3@9") }, []string{"1, Anna, Rome", "2, Bob, Oslo"}, true},
		{"a hidden change of a key", func(t *testing.T, b *bench) { b.must(t, "U 1@8 (Ann, Rome)") }, []string{"1, Ann, Rome", "2, Bob, Oslo"}, false},
		{"a truncate", func(t *testing.T, b *bench) { b.must(t, "T@9") }, nil, false},
		{"another writer's rewrite of the file", func(t *testing.T, b *bench) { b.foreignRewrite(t, "OPTIMIZE", nil, false, nil) }, []string{"1, Anna, Rome", "2, Bob, Oslo"}, true},
		{"new columns", func(t *testing.T, b *bench) {
			o := newBench(t, "data: name STRING, city STRING, tier STRING")
			o.store, o.flow.Name, o.source.name = b.store, "h", "file:h"
			o.must(t, "U 8@1 (Flo, Nice, gold)")
		}, []string{"1, Anna, Rome, null", "2, Bob, Oslo, null", "8, Flo, Nice, gold"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := storage.NewMemory("t")
			base := newBench(t, "")
			base.store = mem
			base.must(t, "U 1@1 (Ann, Rome)", "U 2@1 (Bob, Oslo)")
			next := fmt.Sprintf("_delta_log/%020d.json", base.must(t).Version+1)
			fs := faultstore.New(mem)
			gate := fs.Pause(faultstore.On(faultstore.Create, next))
			loser := newBench(t, "")
			loser.store, loser.flow.Name, loser.source.name = fs, "g", "file:g"
			lines := []string{"U 1@5 (Anna, Rome)"}
			if c.name == "a tombstone of a key" {
				lines = append(lines, "U 3@5 (Cy, Lima)")
			}
			done := make(chan error, 1)
			go func() {
				_, err := loser.run(lines...)
				done <- err
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if _, err := gate.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			c.winner(t, base)
			gate.Release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := base.table(t); !slices.Equal(got, c.want) {
				t.Errorf("table %q, want %q", got, c.want)
			}
			files := 0
			for _, call := range fs.Trace() {
				if call.Op == faultstore.Close && strings.HasPrefix(call.Key, "part-") {
					files++
				}
			}
			if (files > 1) != c.again {
				t.Errorf("%d data files written, again %v", files, c.again)
			}
		})
	}
}

// After five lost races a batch is halved.
func TestTarget_Halving(t *testing.T) {
	mem := storage.NewMemory("t")
	rival := newBench(t, "")
	rival.store = mem
	rival.must(t, "U 1@1 (Ann, Rome)")
	fs := faultstore.New(mem)
	races := 0
	fs.Add(faultstore.Rule{Match: func(c faultstore.Call) bool {
		return c.Op == faultstore.Create && strings.HasPrefix(c.Key, "_delta_log/") && strings.HasSuffix(c.Key, ".json")
	}, Mode: faultstore.Observe, Times: -1, Hook: func(context.Context, faultstore.Call) error {
		if races < 7 {
			races++
			_, err := rival.run(fmt.Sprintf("U 1@%d (Ann, r%d)", races+1, races))
			return err
		}
		return nil
	}})
	b := newBench(t, "")
	b.store, b.flow.Name, b.source.name = fs, "g", "file:g"
	b.must(t, "U 1@100 (Anna, Rome)", "U 2@100 (Bob, Oslo)", "U 3@100 (Cy, Lima)", "U 4@100 (Di, Kyiv)")
	b.check(t, "halved", []string{"1, Anna, Rome", "2, Bob, Oslo", "3, Cy, Lima", "4, Di, Kyiv"})
	if races != 7 {
		t.Errorf("%d races", races)
	}
	if res := b.must(t); res.Events.Read != 0 {
		t.Errorf("read again: %+v", res.Events)
	}
}
