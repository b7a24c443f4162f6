package datafile

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

// collector gathers the statistics of one data file (protocol, "Per-file
// Statistics"; W-601 to W-609). Batches come in the file's physical column order.
type collector struct {
	rows   int64
	roots  []*statNode
	prefix int
	tight  bool
}

// statNode mirrors one field of the file schema: a struct has children, any other
// type a leaf, which is nil when the table keeps no statistics of it.
type statNode struct {
	name     string
	children []*statNode
	leaf     *leafStats
}

// newCollector prepares for files of the physical schema s; indexed tells by
// dotted physical path which leaves are wanted.
func newCollector(s *schema.Struct, indexed map[string]bool, prefix int, tight bool) *collector {
	return &collector{roots: statNodes(s, "", indexed), prefix: prefix, tight: tight}
}

func statNodes(s *schema.Struct, path string, indexed map[string]bool) []*statNode {
	out := make([]*statNode, len(s.Fields))
	for i, f := range s.Fields {
		n := &statNode{name: f.Name}
		at := pathKey(path, f.Name)
		if sub, ok := f.Type.(*schema.Struct); ok {
			n.children = statNodes(sub, at, indexed)
		} else if indexed[at] {
			n.leaf = &leafStats{typ: f.Type}
		}
		out[i] = n
	}
	return out
}

// pathKey joins a path with a byte that cannot collide with dots in names.
func pathKey(path, name string) string {
	if path == "" {
		return name
	}
	return path + "\x00" + name
}

func (c *collector) add(batch arrow.RecordBatch) {
	c.rows += batch.NumRows()
	for i, n := range c.roots {
		n.add(batch.Column(i), nil)
	}
}

// add takes one column; parent tells for each row whether all enclosing structs
// are present, nil meaning yes for every row.
func (n *statNode) add(a arrow.Array, parent []bool) {
	if n.children == nil {
		if n.leaf != nil {
			n.leaf.add(a, parent)
		}
		return
	}
	st, ok := a.(*array.Struct)
	if !ok {
		return
	}
	if a.NullN() > 0 {
		own := make([]bool, a.Len())
		for i := range own {
			own[i] = a.IsValid(i) && (parent == nil || parent[i])
		}
		parent = own
	}
	for i, ch := range n.children {
		ch.add(st.Field(i), parent)
	}
}

// leafStats holds the running bounds of one leaf. Which of the value pairs is in
// use follows from typ.
type leafStats struct {
	typ        schema.Type
	key        string // physical path, where a footer is the source
	nulls      int64
	seen       bool // a value has been seen
	nan        bool
	imin, imax int64 // integers, dates (days), timestamps (microseconds)
	fmin, fmax float64
	dmin, dmax decimal128.Num
	smin, smax string
}

func (l *leafStats) add(a arrow.Array, parent []bool) {
	all := a.NullN() == 0 && parent == nil
	valid := func(i int) bool { return all || a.IsValid(i) && (parent == nil || parent[i]) }
	if !all {
		for i := range a.Len() {
			if !valid(i) {
				l.nulls++
			}
		}
	}
	switch a := a.(type) {
	case *array.Int64:
		addInts(l, a.Int64Values(), valid)
	case *array.Int32:
		addInts(l, a.Int32Values(), valid)
	case *array.Int16:
		addInts(l, a.Int16Values(), valid)
	case *array.Int8:
		addInts(l, a.Int8Values(), valid)
	case *array.Date32:
		addInts(l, a.Date32Values(), valid)
	case *array.Timestamp:
		addInts(l, a.TimestampValues(), valid)
	case *array.Float64:
		addFloats(l, a.Float64Values(), valid)
	case *array.Float32:
		addFloats(l, a.Float32Values(), valid)
	case *array.Decimal128:
		for i, v := range a.Values() {
			if !valid(i) {
				continue
			}
			if !l.seen || v.Less(l.dmin) {
				l.dmin = v
			}
			if !l.seen || v.Greater(l.dmax) {
				l.dmax = v
			}
			l.seen = true
		}
	case *array.String:
		l.addStrings(a, valid)
	}
}

func addInts[T ~int64 | ~int32 | ~int16 | ~int8](l *leafStats, vs []T, valid func(int) bool) {
	lo, hi, seen := l.imin, l.imax, l.seen
	for i, v := range vs {
		if !valid(i) {
			continue
		}
		n := int64(v)
		if !seen {
			lo, hi, seen = n, n, true
			continue
		}
		lo, hi = min(lo, n), max(hi, n)
	}
	l.imin, l.imax, l.seen = lo, hi, seen
}

func addFloats[T ~float64 | ~float32](l *leafStats, vs []T, valid func(int) bool) {
	for i, v := range vs {
		if !valid(i) {
			continue
		}
		f := float64(v)
		if math.IsNaN(f) {
			l.nan = true
			continue
		}
		if !l.seen {
			l.fmin, l.fmax, l.seen = f, f, true
			continue
		}
		l.fmin, l.fmax = min(l.fmin, f), max(l.fmax, f)
	}
}

func (l *leafStats) addStrings(a *array.String, valid func(int) bool) {
	lo, hi, seen := l.smin, l.smax, l.seen
	for i := range a.Len() {
		if !valid(i) {
			continue
		}
		v := a.Value(i)
		if !seen {
			lo, hi, seen = v, v, true
			continue
		}
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	// The values alias the batch's buffer, which does not outlive the call.
	l.smin, l.smax, l.seen = strings.Clone(lo), strings.Clone(hi), seen
}

// json is the text of add.stats.
func (c *collector) json() string {
	return c.textOf(func(l *leafStats, what string) string {
		if what == "nullCount" {
			return strconv.FormatInt(l.nulls, 10)
		}
		return l.bound(what == "maxValues", c.prefix)
	})
}

// writeNodes prints an object of the leaves whose value is not empty; structs
// without such a leaf are left out, the outermost object never is.
func writeNodes(b *bytes.Buffer, nodes []*statNode, value func(*leafStats) string) bool {
	b.WriteByte('{')
	n := 0
	for _, node := range nodes {
		mark := b.Len()
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(jsonString(node.name))
		b.WriteByte(':')
		ok := false
		if node.children != nil {
			ok = writeNodes(b, node.children, value)
		} else if node.leaf != nil {
			if v := value(node.leaf); v != "" {
				b.WriteString(v)
				ok = true
			}
		}
		if !ok {
			b.Truncate(mark)
			continue
		}
		n++
	}
	b.WriteByte('}')
	return n > 0
}

// bound is the JSON text of the leaf's minimum or maximum, "" to leave it out.
func (l *leafStats) bound(upper bool, prefix int) string {
	if !l.seen {
		return ""
	}
	i, f, d, s := l.imin, l.fmin, l.dmin, l.smin
	if upper {
		i, f, d, s = l.imax, l.fmax, l.dmax, l.smax
	}
	switch t := l.typ.(type) {
	case schema.Decimal:
		return d.ToString(int32(t.Scale))
	case schema.Primitive:
		switch t {
		case schema.Long, schema.Integer, schema.Short, schema.Byte:
			return strconv.FormatInt(i, 10)
		case schema.Float:
			return l.floatBound(f, upper, 32)
		case schema.Double:
			return l.floatBound(f, upper, 64)
		case schema.Date:
			return quoteTime(time.Unix(i*86400, 0).UTC(), "2006-01-02")
		case schema.Timestamp:
			return quoteTime(time.UnixMicro(i).UTC(), "2006-01-02T15:04:05.000Z")
		case schema.TimestampNTZ:
			return quoteTime(time.UnixMicro(i).UTC(), "2006-01-02T15:04:05.000")
		case schema.String:
			return stringBound(s, upper, prefix)
		}
	}
	return ""
}

func (l *leafStats) floatBound(f float64, upper bool, bits int) string {
	if l.nan || math.IsInf(f, 0) {
		return ""
	}
	if f == 0 {
		// Zeroes of both signs are equal in predicates, but readers that compare
		// bit patterns must not drop the file: bound both (W-606).
		if upper {
			return "0.0"
		}
		return "-0.0"
	}
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// quoteTime formats t, dropping what the layout does not show: with times on or
// after the epoch and before it alike, UTC fields of t are already floored. Years
// that four digits cannot hold give no bound.
func quoteTime(t time.Time, layout string) string {
	if y := t.Year(); y < 1 || y > 9999 {
		return ""
	}
	return `"` + t.Format(layout) + `"`
}

// stringBound cuts s by the rule of W-604.
func stringBound(s string, upper bool, prefix int) string {
	if !utf8.ValidString(s) {
		return ""
	}
	cut, whole := cutUnits(s, prefix)
	if whole {
		return jsonString(s)
	}
	if !upper {
		return jsonString(s[:cut])
	}
	units := unitsOf(s[:cut])
	for cut < len(s) {
		r, size := utf8.DecodeRuneInString(s[cut:])
		switch {
		case r < 0x7F:
			return jsonString(s[:cut] + "\u007f")
		case r != utf8.MaxRune:
			return jsonString(s[:cut] + string(utf8.MaxRune))
		}
		cut += size
		if units += 2; units > 2*prefix {
			return ""
		}
	}
	return jsonString(s)
}

// cutUnits is the byte length of the first n UTF-16 units of s, a pair begun
// before the limit taken whole; whole tells that s has at most n units.
func cutUnits(s string, n int) (cut int, whole bool) {
	units := 0
	for i, r := range s {
		if units >= n {
			return i, false
		}
		units += runeUnits(r)
	}
	return len(s), units <= n
}

func unitsOf(s string) int {
	n := 0
	for _, r := range s {
		n += runeUnits(r)
	}
	return n
}

func runeUnits(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}

// jsonString quotes without HTML escaping (W-103).
func jsonString(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	// Encoding a string cannot fail.
	_ = e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}
