package merge

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// pairStep bounds how many pairs of rows are looked at in one piece.
const pairStep = 1 << 16

// pair is a target row with a source row for which ON holds.
type pair struct {
	row    int64 // physical
	source int32
	clause int16 // that takes it, -1: none
}

// act is what happens to one target row.
type act struct {
	row    int64
	source int32 // -1: none
	clause int16
}

// fileMatch is what a merge does to the rows of one file.
type fileMatch struct {
	file *deltalog.Add
	acts []act // by row
	// paired are the rows with a partner, if clauses insert source rows without one.
	paired []int64
	// partners are source rows that found a target row.
	partners []int32
	// several counts target rows with more than one partner, where that is an error; key
	// is the text of one of them.
	several int64
	key     string
}

// matcher looks at the files of one version.
type matcher struct {
	p      *plan
	store  storage.Store
	layout *datafile.Layout
	source *sourceRows
	index  *index

	matched, bySource []int // indices of clauses
	inserts           bool
}

func newMatcher(p *plan, store storage.Store, l *datafile.Layout, s *sourceRows, x *index) *matcher {
	m := &matcher{p: p, store: store, layout: l, source: s, index: x}
	for i, c := range p.clauses {
		switch c.kind {
		case Matched:
			m.matched = append(m.matched, i)
		case NotMatchedBySource:
			m.bySource = append(m.bySource, i)
		default:
			m.inserts = true
		}
	}
	return m
}

// candidates are the files in which something can happen.
func (m *matcher) candidates(files []*deltalog.Add) []*deltalog.Add {
	if len(m.bySource) > 0 {
		return files
	}
	if m.index.empty(m.p) {
		return nil
	}
	var out []*deltalog.Add
	for _, f := range files {
		if m.layout.MayMatch(m.p.onTarget, f) && m.layout.MayMatch(m.index.bounds, f) {
			out = append(out, f)
		}
	}
	return out
}

// record tells the transaction what was read: the files that were looked at, and of
// later files those whose partition may hold a partner (C-23).
func (m *matcher) record(tx *deltalog.Transaction, files []*deltalog.Add) {
	tx.ReadFiles(files...)
	var parts []*expr.Bound
	if len(m.bySource) == 0 {
		for _, b := range []*expr.Bound{m.p.onTarget, m.index.bounds} {
			if b == nil {
				continue
			}
			for _, c := range b.SplitConjuncts() {
				if c.ReferencesOnly(m.layout.Partition) {
					parts = append(parts, c)
				}
			}
		}
	}
	tx.ReadPartitions(func(values map[string]*string) bool {
		for _, c := range parts {
			if ok, err := m.layout.PartitionMatch(c, &deltalog.Add{PartitionValues: values}); err == nil && !ok {
				return false
			}
		}
		return true
	})
}

// file finds what happens in one file: key columns first, and further columns only
// for rows whose keys match.
func (m *matcher) file(ctx context.Context, f *deltalog.Add) (fileMatch, error) {
	out := fileMatch{file: f}
	found, live, err := m.join(ctx, f)
	if err != nil {
		return out, err
	}
	if found, err = m.decide(ctx, f, found); err != nil {
		return out, err
	}
	partners := map[int32]bool{}
	var single bool // one unconditional delete: several partners mean the same
	if len(m.matched) == 1 {
		c := m.p.clauses[m.matched[0]]
		single = c.action == Delete && c.when == nil
	}
	for at := 0; at < len(found); {
		end := at + 1
		for end < len(found) && found[end].row == found[at].row {
			end++
		}
		taken := -1
		for i := at; i < end; i++ {
			partners[found[i].source] = true
			if found[i].clause >= 0 && taken < 0 {
				taken = i
			}
		}
		// Every pair of ON counts, also where no clause takes it, as in Spark.
		if end-at > 1 && len(m.matched) > 0 && !single {
			if out.several++; out.several == 1 {
				out.key = m.keyText(int(found[at].source))
			}
		}
		if m.inserts {
			out.paired = append(out.paired, found[at].row)
		}
		if taken >= 0 {
			out.acts = append(out.acts, act{found[taken].row, found[taken].source, found[taken].clause})
		}
		at = end
	}
	for s := range partners {
		out.partners = append(out.partners, s)
	}
	if len(m.bySource) > 0 {
		alone, err := m.alone(ctx, f, live, found)
		if err != nil {
			return out, err
		}
		out.acts = append(out.acts, alone...)
		slices.SortFunc(out.acts, func(a, b act) int { return int(a.row - b.row) })
	}
	return out, nil
}

// keyText is the join key of a source row for messages.
func (m *matcher) keyText(row int) string {
	text := ""
	for i, a := range m.index.keys {
		if i > 0 {
			text += ", "
		}
		text += m.p.keys[i].text + " = " + a.ValueStr(row)
	}
	return text
}

// join finds the pairs that the keys of ON make, or all pairs without keys; live are
// all rows of the file, if clauses ask for rows without a partner.
func (m *matcher) join(ctx context.Context, f *deltalog.Add) (found []pair, live []int64, err error) {
	p := m.p
	var need []*expr.Bound
	for _, k := range p.keys {
		need = append(need, k.target)
	}
	if len(p.keys) == 0 {
		need = append(need, p.rest)
	}
	o := datafile.ReadOptions{Columns: p.columnsOf(true, need...), Filter: p.onTarget}
	if o.Columns == nil {
		o.Columns = []string{}
	}
	if len(m.bySource) > 0 && p.onTarget != nil {
		o.Filter = nil
		for _, c := range p.onTarget.Columns() {
			if !slices.Contains(o.Columns, c) {
				o.Columns = append(o.Columns, c)
			}
		}
	}
	for b, err := range datafile.Read(ctx, m.store, m.layout, f, o) {
		if err != nil {
			return nil, nil, err
		}
		if len(m.bySource) > 0 {
			live = append(live, b.Rows...)
		}
		if m.index.empty(p) {
			continue
		}
		rows := make([]int32, 0, b.NumRows())
		if o.Filter == nil && p.onTarget != nil {
			if rows, err = p.onTarget.EvalFilter(b.RecordBatch); err != nil {
				return nil, nil, fmt.Errorf("ON: %w", err)
			}
		} else {
			for i := range int32(b.NumRows()) {
				rows = append(rows, i)
			}
		}
		if len(p.keys) == 0 {
			found, err = m.loop(b, rows, found)
		} else {
			found, err = m.probe(b, rows, found)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("ON: %w", err)
		}
	}
	return found, live, nil
}

// probe looks the keys of the rows up.
func (m *matcher) probe(b datafile.Batch, rows []int32, found []pair) ([]pair, error) {
	names := make([]string, b.NumCols())
	for i := range names {
		names[i] = b.ColumnName(i)
	}
	fields, cols := named(b.RecordBatch, names, m.p.targetName)
	joint := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, b.NumRows())
	keys := make([]arrow.Array, len(m.p.keys))
	for i, k := range m.p.keys {
		a, err := k.target.Eval(joint)
		if err != nil {
			return nil, err
		}
		defer a.Release()
		keys[i] = a
	}
	var buf []byte
	for _, r := range rows {
		key, ok := keyOf(buf[:0], m.p.keys, keys, int(r))
		buf = key
		if !ok {
			continue
		}
		s, ok := m.index.head[string(key)]
		if !ok {
			continue
		}
		for ; s >= 0; s = m.index.next[s] {
			found = append(found, pair{row: b.Rows[r], source: s})
		}
	}
	return found, nil
}

// loop holds every row against every source row, some pairs at a time.
func (m *matcher) loop(b datafile.Batch, rows []int32, found []pair) ([]pair, error) {
	var left, right []int64
	flush := func() error {
		if len(left) == 0 {
			return nil
		}
		joint, err := pairs(m.p, b.RecordBatch, left, m.source, right, m.p.rest)
		if err != nil {
			return err
		}
		defer joint.Release()
		hits, err := m.p.rest.EvalFilter(joint)
		if err != nil {
			return err
		}
		for _, h := range hits {
			found = append(found, pair{row: b.Rows[left[h]], source: int32(right[h])})
		}
		left, right = left[:0], right[:0]
		return nil
	}
	for _, r := range rows {
		for _, s := range m.index.all {
			if m.p.rest == nil {
				found = append(found, pair{row: b.Rows[r], source: s})
				continue
			}
			left, right = append(left, int64(r)), append(right, int64(s))
			if len(left) >= pairStep {
				if err := flush(); err != nil {
					return nil, err
				}
			}
		}
	}
	return found, flush()
}

// decide drops pairs for which the rest of ON does not hold and gives the others their
// clause. Columns are read for the rows of the pairs only, and only if some
// condition asks for them.
func (m *matcher) decide(ctx context.Context, f *deltalog.Add, found []pair) ([]pair, error) {
	var rest *expr.Bound
	if len(m.p.keys) > 0 {
		rest = m.p.rest // a join without keys has looked at it
	}
	need := []*expr.Bound{rest}
	for _, c := range m.matched {
		need = append(need, m.p.clauses[c].when)
	}
	if len(found) == 0 {
		return nil, nil
	}
	if !slices.ContainsFunc(need, func(b *expr.Bound) bool { return b != nil }) {
		first := int16(-1)
		if len(m.matched) > 0 {
			first = int16(m.matched[0])
		}
		for i := range found {
			found[i].clause = first
		}
		return found, nil
	}
	var rows []int64
	for _, p := range found {
		if len(rows) == 0 || rows[len(rows)-1] != p.row {
			rows = append(rows, p.row)
		}
	}
	columns := m.p.columnsOf(true, need...)
	if columns == nil {
		columns = []string{}
	}
	var out []pair
	for b, err := range datafile.Read(ctx, m.store, m.layout, f, datafile.ReadOptions{Columns: columns, Rows: rows, KeepDeleted: true}) {
		if err != nil {
			return nil, err
		}
		at := 0
		for at < int(b.NumRows()) && len(found) > 0 {
			var some []pair
			var left, right []int64
			for len(some) < pairStep && len(found) > 0 && at < int(b.NumRows()) {
				if found[0].row != b.Rows[at] {
					at++
					continue
				}
				some = append(some, found[0])
				left, right = append(left, int64(at)), append(right, int64(found[0].source))
				found = found[1:]
			}
			some, err := m.choose(b.RecordBatch, some, left, right, rest, need)
			if err != nil {
				return nil, err
			}
			out = append(out, some...)
		}
	}
	if len(found) > 0 {
		return nil, fmt.Errorf("read %s: row %d is gone", f.Path, found[0].row)
	}
	return out, nil
}

// choose gives each pair the first clause whose condition is TRUE.
func (m *matcher) choose(target arrow.RecordBatch, some []pair, left, right []int64, rest *expr.Bound, need []*expr.Bound) ([]pair, error) {
	take := func(hits []int32) {
		next, l, r := make([]pair, len(hits)), make([]int64, len(hits)), make([]int64, len(hits))
		for i, h := range hits {
			next[i], l[i], r[i] = some[h], left[h], right[h]
		}
		some, left, right = next, l, r
	}
	if rest != nil {
		joint, err := pairs(m.p, target, left, m.source, right, rest)
		if err != nil {
			return nil, err
		}
		hits, err := rest.EvalFilter(joint)
		joint.Release()
		if err != nil {
			return nil, fmt.Errorf("ON: %w", err)
		}
		take(hits)
	}
	for i := range some {
		some[i].clause = -1
	}
	return some, firstTrue(m.p, m.matched, len(some), func(open []int32, when *expr.Bound) (arrow.RecordBatch, error) {
		l, r := make([]int64, len(open)), make([]int64, len(open))
		for i, o := range open {
			l[i], r[i] = left[o], right[o]
		}
		return pairs(m.p, target, l, m.source, r, when)
	}, func(i int32, clause int) { some[i].clause = int16(clause) })
}

// firstTrue gives each of n rows the first of the clauses whose condition is TRUE;
// later conditions are evaluated for the rows that are left.
func firstTrue(p *plan, clauses []int, n int, batch func(open []int32, when *expr.Bound) (arrow.RecordBatch, error), found func(i int32, clause int)) error {
	open := make([]int32, n)
	for i := range open {
		open[i] = int32(i)
	}
	for _, c := range clauses {
		when := p.clauses[c].when
		if len(open) == 0 {
			return nil
		}
		if when == nil {
			for _, o := range open {
				found(o, c)
			}
			return nil
		}
		b, err := batch(open, when)
		if err != nil {
			return err
		}
		hits, err := when.EvalFilter(b)
		b.Release()
		if err != nil {
			return fmt.Errorf("%s: %w", kindText[p.clauses[c].kind], err)
		}
		taken := make([]bool, len(open))
		for _, h := range hits {
			taken[h] = true
			found(open[h], c)
		}
		left := open[:0]
		for i, o := range open {
			if !taken[i] {
				left = append(left, o)
			}
		}
		open = left
	}
	return nil
}

// alone decides on the rows without a partner.
func (m *matcher) alone(ctx context.Context, f *deltalog.Add, live []int64, found []pair) ([]act, error) {
	var rows []int64
	for _, r := range live {
		for len(found) > 0 && found[0].row < r {
			found = found[1:]
		}
		if len(found) == 0 || found[0].row != r {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	var need []*expr.Bound
	for _, c := range m.bySource {
		need = append(need, m.p.clauses[c].when)
	}
	var out []act
	if need[0] == nil {
		for _, r := range rows {
			out = append(out, act{r, -1, int16(m.bySource[0])})
		}
		return out, nil
	}
	columns := m.p.columnsOf(true, need...)
	if columns == nil {
		columns = []string{}
	}
	for b, err := range datafile.Read(ctx, m.store, m.layout, f, datafile.ReadOptions{Columns: columns, Rows: rows, KeepDeleted: true}) {
		if err != nil {
			return nil, err
		}
		err = firstTrue(m.p, m.bySource, int(b.NumRows()), func(open []int32, when *expr.Bound) (arrow.RecordBatch, error) {
			left := make([]int64, len(open))
			for i, o := range open {
				left[i] = int64(o)
			}
			return pairs(m.p, b.RecordBatch, left, nil, nil, when)
		}, func(i int32, clause int) { out = append(out, act{b.Rows[i], -1, int16(clause)}) })
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b act) int { return int(a.row - b.row) })
	return out, nil
}
