package delta_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/testtable"
)

// modelRow is a row of the model: id, k and p (nil is null).
type modelRow struct {
	id int
	k  *int
	p  *int
}

func (r modelRow) json() string {
	return fmt.Sprintf(`{"id":%d,"k":%s,"p":%s}`, r.id, num(r.k), num(r.p))
}

func num(v *int) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

const modelDDL = "id BIGINT, k INT, p INT"

// condition is a WHERE text beside what it means.
type condition struct {
	text string
	test func(modelRow) bool
}

func drawCondition(r *rand.Rand) condition {
	a, b := r.IntN(12), r.IntN(4)
	all := []condition{
		{"", func(modelRow) bool { return true }},
		{fmt.Sprintf("k < %d", a), func(m modelRow) bool { return m.k != nil && *m.k < a }},
		{fmt.Sprintf("k = %d OR k IS NULL", a), func(m modelRow) bool { return m.k == nil || *m.k == a }},
		{fmt.Sprintf("p = %d", b), func(m modelRow) bool { return m.p != nil && *m.p == b }},
		{"p IS NULL", func(m modelRow) bool { return m.p == nil }},
		{fmt.Sprintf("p >= %d AND k > %d", b, a), func(m modelRow) bool { return m.p != nil && *m.p >= b && m.k != nil && *m.k > a }},
		{fmt.Sprintf("NOT (k >= %d)", a), func(m modelRow) bool { return m.k != nil && *m.k < a }},
		{fmt.Sprintf("id %% 7 = %d", b), func(m modelRow) bool { return m.id%7 == b }},
		{fmt.Sprintf("p IN (0, %d) OR id = %d", b, a), func(m modelRow) bool { return m.p != nil && (*m.p == 0 || *m.p == b) || m.id == a }},
	}
	return all[r.IntN(len(all))]
}

type modelTable struct {
	t     *testing.T
	r     *rand.Rand
	tb    *delta.Table
	rows  []modelRow
	next  int
	parts bool
	feed  bool
	// net are the rows that the change feed adds up to.
	net map[string]int
}

func (m *modelTable) draw(n int, p *int) []modelRow {
	out := make([]modelRow, n)
	for i := range out {
		out[i].id = m.next
		m.next++
		if m.r.IntN(5) > 0 {
			k := m.r.IntN(12)
			out[i].k = &k
		}
		if p != nil {
			out[i].p = p
		} else if m.r.IntN(6) > 0 {
			v := m.r.IntN(4)
			out[i].p = &v
		}
	}
	return out
}

func (m *modelTable) stream(rows []modelRow) iter.Seq2[arrow.RecordBatch, error] {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r.json())
	}
	return testtable.Rows(m.t, modelDDL, b.String())
}

// step does one random operation on table and model.
func (m *modelTable) step() (what string, changed bool) {
	before, err := m.tb.Snapshot(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	var res delta.Result
	switch op := m.r.IntN(10); {
	case op < 3:
		rows := m.draw(m.r.IntN(30), nil)
		what = fmt.Sprintf("append %d", len(rows))
		res, err = m.tb.Append(ctx, m.stream(rows), delta.WriteOptions{})
		m.rows, changed = append(m.rows, rows...), len(rows) > 0
	case op < 4:
		rows := m.draw(m.r.IntN(20), nil)
		what = fmt.Sprintf("overwrite %d", len(rows))
		changed = len(rows)+len(m.rows) > 0
		res, err = m.tb.Overwrite(ctx, m.stream(rows), delta.OverwriteOptions{})
		m.rows = rows
	case op < 5 && m.parts:
		rows := m.draw(1+m.r.IntN(4), nil)
		what = fmt.Sprintf("dynamic overwrite %d", len(rows))
		res, err = m.tb.Overwrite(ctx, m.stream(rows), delta.OverwriteOptions{Dynamic: true})
		hit := map[string]bool{}
		for _, r := range rows {
			hit[num(r.p)] = true
		}
		m.rows, changed = append(m.keep(func(r modelRow) bool { return !hit[num(r.p)] }), rows...), true
	case op < 6:
		b, half := m.r.IntN(4), m.next/2
		text, test := fmt.Sprintf("p = %d", b), func(r modelRow) bool { return r.p != nil && *r.p == b }
		if m.r.IntN(2) == 0 {
			text, test = fmt.Sprintf("p = %d AND id >= %d", b, half), func(r modelRow) bool { return r.p != nil && *r.p == b && r.id >= half }
		}
		rows := m.draw(m.r.IntN(5), &b)
		what = fmt.Sprintf("replace where %s by %d", text, len(rows))
		kept := m.keep(func(r modelRow) bool { return !test(r) })
		changed = len(kept) < len(m.rows) || len(rows) > 0
		res, err = m.tb.Overwrite(ctx, m.stream(rows), delta.OverwriteOptions{Where: text})
		m.rows = append(kept, rows...)
	case op < 8:
		c := drawCondition(m.r)
		what = "delete where " + c.text
		kept := m.keep(func(r modelRow) bool { return !c.test(r) })
		changed = len(kept) < len(m.rows)
		res, err = m.tb.Delete(ctx, c.text, delta.DMLOptions{})
		m.rows = kept
	default:
		c := drawCondition(m.r)
		what = "update where " + c.text
		set := "k = k + 1"
		apply := func(r modelRow) modelRow {
			if r.k != nil {
				k := *r.k + 1
				r.k = &k
			}
			return r
		}
		if m.r.IntN(2) == 0 {
			set, apply = "p = k % 4, k = NULL", func(r modelRow) modelRow {
				r.p = nil
				if r.k != nil {
					p := *r.k % 4
					r.p = &p
				}
				r.k = nil
				return r
			}
		}
		what += " set " + set
		next := append([]modelRow(nil), m.rows...)
		for i, r := range next {
			if c.test(r) {
				next[i], changed = apply(r), true
			}
		}
		res, err = m.tb.Update(ctx, set, c.text, delta.DMLOptions{})
		m.rows = next
	}
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	want := before.Version
	if changed {
		want++
	}
	if res.Version != want || res.Committed != changed {
		m.t.Fatalf("%s: version %d committed %v, want %d %v (W-907)", what, res.Version, res.Committed, want, changed)
	}
	return what, changed
}

func (m *modelTable) keep(f func(modelRow) bool) []modelRow {
	var out []modelRow
	for _, r := range m.rows {
		if f(r) {
			out = append(out, r)
		}
	}
	return out
}

func (m *modelTable) lines() []string {
	out := make([]string, len(m.rows))
	for i, r := range m.rows {
		out[i] = r.json()
	}
	sort.Strings(out)
	return out
}

// replay adds the changes of the newest commit to net, derived from its actions by
// the rules of 2.2.
func (m *modelTable) replay() {
	snap, err := m.tb.Snapshot(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := m.tb.Log().ReadCommit(ctx, snap.Version)
	if err != nil {
		m.t.Fatal(err)
	}
	l, err := m.tb.Layout(snap)
	if err != nil {
		m.t.Fatal(err)
	}
	count := func(s datafile.Source, o datafile.ReadOptions, sign func(kind string) int) {
		for b, err := range datafile.ReadFile(ctx, m.tb.Store(), l, s, o) {
			if err != nil {
				m.t.Fatal(err)
			}
			kinds := b.Column(int(b.NumCols()) - 1)
			for i, line := range testtable.BatchLines(dropChange(b.RecordBatch, o.Change)) {
				kind := ""
				if o.Change {
					kind = kinds.ValueStr(i)
				}
				m.net[line] += sign(kind)
			}
		}
	}
	if len(c.CDC) > 0 {
		for _, f := range c.CDC {
			count(datafile.Source{Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size}, datafile.ReadOptions{Change: true}, func(kind string) int {
				switch kind {
				case "insert", "update_postimage":
					return 1
				case "delete", "update_preimage":
					return -1
				}
				m.t.Fatalf("change type %q", kind)
				return 0
			})
		}
		return
	}
	for _, a := range c.Adds {
		count(datafile.SourceOf(a), datafile.ReadOptions{}, func(string) int { return 1 })
	}
	for _, r := range c.Removes {
		count(datafile.Source{Path: r.Path, PartitionValues: r.PartitionValues, Size: *r.Size, DeletionVector: r.DeletionVector}, datafile.ReadOptions{}, func(string) int { return -1 })
	}
}

// sumFeed reads the whole change feed and adds it up.
func (m *modelTable) sumFeed() {
	m.t.Helper()
	f, err := m.tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64)}})
	if err != nil {
		m.t.Fatal(err)
	}
	net := map[string]int{}
	for b, err := range f.Rows(ctx) {
		if err != nil {
			m.t.Fatal(err)
		}
		kinds := b.Column(b.Schema().FieldIndices(cdf.ChangeTypeColumn)[0])
		for i, line := range testtable.BatchLines(sliceColumns(b, 3)) {
			if k := kinds.ValueStr(i); k == "insert" || k == "update_postimage" {
				net[line]++
			} else {
				net[line]--
			}
		}
	}
	var got []string
	for line, n := range net {
		if n < 0 {
			m.t.Fatalf("feed: %s taken away %d times too often", line, -n)
		}
		for range n {
			got = append(got, line)
		}
	}
	sort.Strings(got)
	if d := testtable.Diff(got, m.lines()); d != "" {
		m.t.Fatalf("feed: %s", d)
	}
}

func dropChange(b arrow.RecordBatch, drop bool) arrow.RecordBatch {
	if !drop {
		return b
	}
	return sliceColumns(b, int(b.NumCols())-1)
}

func TestTable_Model(t *testing.T) {
	for seed := range uint64(36) {
		r := rand.New(rand.NewPCG(seed, 7))
		parts, feed := r.IntN(2) == 0, r.IntN(3) > 0
		props := map[string]string{"delta.enableChangeDataFeed": fmt.Sprint(feed), "delta.checkpointInterval": fmt.Sprint([]int{1, 3, 100}[r.IntN(3)])}
		spec := testtable.Spec{DDL: modelDDL, Properties: props, Options: delta.Options{FileSize: []int64{0, 400}[r.IntN(2)], Workers: 1 + r.IntN(3)}}
		if parts {
			spec.Partition = []string{"p"}
		}
		if seed >= 24 {
			props["delta.enableDeletionVectors"] = "true"
			spec.Options.InlineVectorBytes = []int{0, 40}[r.IntN(2)]
		}
		t.Run(fmt.Sprintf("R-912 seed %d, partitioned %v, feed %v, vectors %v", seed, parts, feed, seed >= 24), func(t *testing.T) {
			m := &modelTable{t: t, r: r, parts: parts, feed: feed, net: map[string]int{}, tb: testtable.New(t, spec)}
			for range 30 {
				what, changed := m.step()
				tb := m.tb
				if r.IntN(3) == 0 {
					var err error
					if tb, err = delta.Open(ctx, m.tb.Store(), spec.Options); err != nil {
						t.Fatal(err)
					}
				}
				if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), m.lines()); d != "" {
					t.Fatalf("after %s: %s", what, d)
				}
				if c := drawCondition(r); c.text != "" {
					s, err := tb.Scan(ctx, delta.ScanOptions{Where: c.text})
					if err != nil {
						t.Fatal(err)
					}
					if n, err := s.Count(ctx); err != nil || int(n) != len(m.keep(c.test)) {
						t.Fatalf("after %s: count where %s is %d %v, want %d", what, c.text, n, err, len(m.keep(c.test)))
					}
				}
				if feed && changed {
					m.replay()
					var got []string
					for line, n := range m.net {
						for range n {
							got = append(got, line)
						}
						if n < 0 {
							t.Fatalf("after %s: the feed takes %s away %d times too often", what, line, -n)
						}
					}
					sort.Strings(got)
					if d := testtable.Diff(got, m.lines()); d != "" {
						t.Fatalf("after %s: the feed adds up to %s", what, d)
					}
				}
			}
			if feed {
				m.sumFeed()
			}
		})
	}
}
