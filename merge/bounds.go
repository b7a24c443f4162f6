package merge

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// Range collects the smallest and largest value per key column.
type Range struct {
	columns []string
	low     []string // literals
	high    []string
	lowInt  []int64
	highInt []int64
	kind    []rangeKind
	seen    bool
	open    []bool // the column cannot be bounded
}

type rangeKind uint8

const (
	rangeNone rangeKind = iota
	rangeInt
	rangeText
	rangeDate
)

// NewRange is an empty range over the named columns of s.
func NewRange(s *schema.Struct, columns []string) *Range {
	r := &Range{columns: columns, low: make([]string, len(columns)), high: make([]string, len(columns)),
		lowInt: make([]int64, len(columns)), highInt: make([]int64, len(columns)),
		kind: make([]rangeKind, len(columns)), open: make([]bool, len(columns))}
	for i, c := range columns {
		at := s.Index(c)
		if at < 0 {
			continue
		}
		switch s.Fields[at].Type {
		case schema.Long, schema.Integer, schema.Short, schema.Byte:
			r.kind[i] = rangeInt
		case schema.String:
			r.kind[i] = rangeText
		case schema.Date:
			r.kind[i] = rangeDate
		}
	}
	return r
}

// Add widens the range by the key at a row of the key columns.
func (r *Range) Add(cols []arrow.Array, row int) {
	for i, a := range cols {
		if r.open[i] || r.kind[i] == rangeNone {
			continue
		}
		if a.IsNull(row) {
			r.open[i] = true
			continue
		}
		switch a := a.(type) {
		case *array.Int64:
			r.addInt(i, a.Value(row))
		case *array.Int32:
			r.addInt(i, int64(a.Value(row)))
		case *array.Int16:
			r.addInt(i, int64(a.Value(row)))
		case *array.Int8:
			r.addInt(i, int64(a.Value(row)))
		case *array.Date32:
			r.addInt(i, int64(a.Value(row)))
		case *array.String:
			v := a.Value(row)
			if !r.seen || v < r.low[i] {
				r.low[i] = strings.Clone(v)
			}
			if !r.seen || v > r.high[i] {
				r.high[i] = strings.Clone(v)
			}
		default:
			r.open[i] = true
		}
	}
	r.seen = true
}

func (r *Range) addInt(i int, v int64) {
	if !r.seen || v < r.lowInt[i] {
		r.lowInt[i] = v
	}
	if !r.seen || v > r.highInt[i] {
		r.highInt[i] = v
	}
}

// Open makes the range unbounded: there are keys whose values are not known.
func (r *Range) Open() {
	for i := range r.open {
		r.open[i] = true
	}
}

// Bound is the condition over s that holds for every key added; nil if there is
// nothing to bound.
func (r *Range) Bound(s *schema.Struct) (*expr.Bound, error) {
	var terms []string
	for i, c := range r.columns {
		if !r.seen || r.open[i] {
			continue
		}
		name := schema.QuoteName(c)
		switch r.kind[i] {
		case rangeInt:
			terms = append(terms, fmt.Sprintf("%s BETWEEN %s AND %s", name, intLiteral(r.lowInt[i]), intLiteral(r.highInt[i])))
		case rangeDate:
			low := arrow.Date32(r.lowInt[i]).ToTime()
			high := arrow.Date32(r.highInt[i]).ToTime()
			if low.Year() < 1 || high.Year() > 9999 {
				continue
			}
			terms = append(terms, fmt.Sprintf("%s BETWEEN DATE '%s' AND DATE '%s'", name, low.Format("2006-01-02"), high.Format("2006-01-02")))
		case rangeText:
			if strings.ContainsAny(r.low[i]+r.high[i], `'\`) {
				continue
			}
			terms = append(terms, fmt.Sprintf("%s BETWEEN '%s' AND '%s'", name, r.low[i], r.high[i]))
		}
	}
	if terms == nil {
		return nil, nil
	}
	e, err := expr.Parse(strings.Join(terms, " AND "))
	if err != nil {
		return nil, fmt.Errorf("bound keys: %w", err)
	}
	b, err := e.Bind(s)
	if err != nil {
		return nil, fmt.Errorf("bound keys: %w", err)
	}
	return b, nil
}

// intLiteral avoids the one integer that has no positive form.
func intLiteral(v int64) string {
	if v == -1<<63 {
		v++
		return "(" + strconv.FormatInt(v, 10) + " - 1)"
	}
	return strconv.FormatInt(v, 10)
}
