package datafile

import (
	"slices"
	"sort"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
)

// KeySet is a set of values of one column. Rows of pages that hold none of them may be
// left out of a read.
type KeySet struct {
	Column string // logical name, of a byte, short, integer, long or string column
	// Ints or Texts are the values, ascending; nothing else than these is looked for.
	Ints  []int64
	Texts []string
}

// prune narrows the read to the pages that may hold a wanted row, by the bounds of row
// groups and of pages. A file without an index is read whole.
func (r *reader) prune(l *Layout, o ReadOptions) error {
	var names []string
	may := func(s *segment) bool { return o.Keys.mayHold(s) }
	switch {
	case o.Rows != nil, o.Among != nil:
		return nil
	case o.Keys != nil:
		names = []string{o.Keys.Column}
	case o.Filter != nil:
		names = o.Filter.Columns()
		may = func(s *segment) bool { return o.Filter.MayMatch(s) }
	}
	columns := map[string]bounded{}
	for _, name := range names {
		i := l.Schema.Index(name)
		if i < 0 || l.columns[i].partition {
			continue
		}
		if leaf := r.pf.Leaf(l.physical.Fields[i], r.po.MatchFieldID); leaf >= 0 {
			columns[l.Schema.Fields[i].Name] = bounded{leaf, l.Schema.Fields[i].Type}
		}
	}
	if len(columns) == 0 {
		return nil
	}
	keep := []parquetio.RowRange{}
	all := true
	for g, group := range r.pf.RowGroups() {
		parts, err := r.segments(g, group, columns)
		if err != nil {
			return err
		}
		for i := range parts {
			p := &parts[i]
			switch {
			case p.rows == 0:
			case !may(p):
				all = false
			case len(keep) > 0 && keep[len(keep)-1].To == p.from:
				keep[len(keep)-1].To += p.rows
			default:
				keep = append(keep, parquetio.RowRange{From: p.from, To: p.from + p.rows})
			}
		}
	}
	if !all {
		r.po.Ranges = keep
	}
	return nil
}

// bounded is a column whose bounds are asked for.
type bounded struct {
	leaf int
	typ  schema.Type
}

// segment is a run of rows that lie in one page of each column that is looked at. It
// answers what expr asks of a group of rows.
type segment struct {
	from, rows int64
	stats      map[string]parquetio.PageStats
}

// segments cuts a row group where any of the columns begins a page.
func (r *reader) segments(g int, group parquetio.RowGroup, columns map[string]bounded) ([]segment, error) {
	whole := segment{group.FirstRow, group.Rows, map[string]parquetio.PageStats{}}
	pages := map[string][]parquetio.PageStats{}
	cuts := []int64{group.FirstRow}
	for name, c := range columns {
		s := group.Columns[c.leaf]
		if !sameOrder(s.Type, c.typ) {
			continue
		}
		whole.stats[name] = parquetio.PageStats{NullCount: s.NullCount, Min: s.Min, Max: s.Max}
		list, err := r.pf.Pages(g, c.leaf)
		if err != nil {
			return nil, err
		}
		pages[name] = list
		for _, p := range list {
			cuts = append(cuts, p.FirstRow)
		}
	}
	if len(cuts) == 1 {
		return []segment{whole}, nil
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	out := make([]segment, len(cuts))
	for i, from := range cuts {
		to := group.FirstRow + group.Rows
		if i+1 < len(cuts) {
			to = cuts[i+1]
		}
		out[i] = segment{from, to - from, map[string]parquetio.PageStats{}}
		for name, list := range pages {
			at := sort.Search(len(list), func(k int) bool { return list[k].FirstRow > from }) - 1
			if at < 0 {
				out[i].stats[name] = whole.stats[name]
				continue
			}
			p := list[at]
			switch {
			case p.AllNull:
				p.NullCount = to - from
			case p.NullCount != 0:
				p.NullCount = -1 // of the page, not of this part
			}
			out[i].stats[name] = p
		}
	}
	return out, nil
}

// sameOrder tells whether bounds of a file's leaf say something about values of a
// column: of the same type, or integers that were widened. Floating point columns are
// left out, since bounds do not tell of NaN.
func sameOrder(file, table schema.Type) bool {
	switch table {
	case schema.Byte, schema.Short, schema.Integer, schema.Long:
		return file == schema.Byte || file == schema.Short || file == schema.Integer || file == schema.Long
	case schema.String, schema.Date, schema.Timestamp, schema.TimestampNTZ:
		return file == table
	}
	return false
}

func (s *segment) RowCount() (int64, bool) { return s.rows, true }

func (s *segment) Min(path []string) (expr.Value, bool) {
	return boundOf(path, s, func(p parquetio.PageStats) any { return p.Min })
}

func (s *segment) Max(path []string) (expr.Value, bool) {
	return boundOf(path, s, func(p parquetio.PageStats) any { return p.Max })
}

func boundOf(path []string, s *segment, side func(parquetio.PageStats) any) (expr.Value, bool) {
	if len(path) != 1 {
		return expr.Value{}, false
	}
	switch v := side(s.stats[path[0]]).(type) {
	case int64:
		return expr.IntValue(v), true
	case string:
		return expr.BytesValue(v), true
	}
	return expr.Value{}, false
}

func (s *segment) NullCount(path []string) (int64, bool) {
	if len(path) != 1 {
		return 0, false
	}
	p, ok := s.stats[path[0]]
	return p.NullCount, ok && p.NullCount >= 0
}

func (s *segment) Exact([]string) bool { return false }

// mayHold tells whether a value of the set may lie in the segment.
func (k *KeySet) mayHold(s *segment) bool {
	p, ok := s.stats[k.Column]
	if !ok {
		return true
	}
	if p.AllNull {
		return false
	}
	switch lo := p.Min.(type) {
	case int64:
		if hi, ok := p.Max.(int64); ok && k.Texts == nil {
			at, _ := slices.BinarySearch(k.Ints, lo)
			return at < len(k.Ints) && k.Ints[at] <= hi
		}
	case string:
		if hi, ok := p.Max.(string); ok && k.Ints == nil {
			at, _ := slices.BinarySearch(k.Texts, lo)
			return at < len(k.Texts) && k.Texts[at] <= hi
		}
	}
	return true
}
