package datafile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

// group is the rows of one partition; rows nil means all of the batch.
type group struct {
	values []*string
	rows   []int64
}

func (w *Writer) split(cols []arrow.Array, n int) ([]group, error) {
	if len(w.l.partition) == 0 {
		return []group{{}}, nil
	}
	parts := make([]distinct, len(w.l.partition))
	for p, c := range w.l.partition {
		d, err := distinctTexts(cols[c])
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", w.l.Schema.Fields[c].Name, err)
		}
		if f := w.l.Schema.Fields[c]; !f.Nullable && !w.o.Change && !w.o.Copied {
			if id := slices.Index(d.values, nil); id >= 0 {
				return nil, &ConstraintError{ErrorCode: CodeNotNull, Column: f.Name, Row: int64(slices.Index(d.ids, int32(id))), Reason: "null (or empty) value in a NOT NULL partition column"}
			}
		}
		parts[p] = d
	}
	// The number of a group follows from those of its values, column by column.
	ids := slices.Clone(parts[0].ids)
	count := len(parts[0].values)
	for _, d := range parts[1:] {
		dense := map[int64]int32{}
		for i, id := range ids {
			key := int64(id)*int64(len(d.values)) + int64(d.ids[i])
			k, ok := dense[key]
			if !ok {
				k = int32(len(dense))
				dense[key] = k
			}
			ids[i] = k
		}
		count = len(dense)
	}
	groups := make([]group, count)
	for i, id := range ids {
		g := &groups[id]
		if g.rows == nil {
			g.values = make([]*string, len(parts))
			for p, d := range parts {
				g.values[p] = d.values[d.ids[i]]
			}
		}
		g.rows = append(g.rows, int64(i))
	}
	if len(groups) == 1 {
		groups[0].rows = nil
	}
	return groups, nil
}

// distinct are the partition texts of a column: values[ids[i]] is that of row i, nil
// for null. Values are numbered by first appearance.
type distinct struct {
	ids    []int32
	values []*string
}

func distinctTexts(a arrow.Array) (distinct, error) {
	switch a := a.(type) {
	case *array.String:
		return distinctBy(a, a.Value)
	case *array.Int64:
		return distinctBy(a, a.Value)
	case *array.Int32:
		return distinctBy(a, a.Value)
	case *array.Int16:
		return distinctBy(a, a.Value)
	case *array.Int8:
		return distinctBy(a, a.Value)
	case *array.Date32:
		return distinctBy(a, a.Value)
	case *array.Timestamp:
		return distinctBy(a, a.Value)
	case *array.Boolean:
		return distinctBy(a, a.Value)
	case *array.Decimal128:
		return distinctBy(a, a.Value)
	case *array.Binary:
		return distinctBy(a, func(i int) string { return string(a.Value(i)) })
	}
	return distinctBy(a, func(i int) int { return i })
}

// distinctBy formats each value once; values of one text are one.
func distinctBy[K comparable](a arrow.Array, key func(int) K) (distinct, error) {
	d := distinct{ids: make([]int32, a.Len())}
	seen, texts, null := map[K]int32{}, map[string]int32{}, int32(-1)
	for i := range d.ids {
		valid := a.IsValid(i)
		if valid {
			if id, ok := seen[key(i)]; ok {
				d.ids[i] = id
				continue
			}
		}
		raw, isNull, err := schema.FormatPartitionValue(a, i)
		if err != nil {
			return d, err
		}
		id, ok := null, null >= 0
		if !isNull {
			id, ok = texts[raw]
		}
		if !ok {
			id = int32(len(d.values))
			if isNull {
				null = id
				d.values = append(d.values, nil)
			} else {
				text := strings.Clone(raw)
				texts[text] = id
				d.values = append(d.values, &text)
			}
		}
		if valid {
			seen[key(i)] = id
		}
		d.ids[i] = id
	}
	return d, nil
}

func partitionKey(values []*string) string {
	var b strings.Builder
	for _, v := range values {
		if v == nil {
			b.WriteByte(0)
		} else {
			b.WriteString("\x01" + *v + "\x00")
		}
	}
	return b.String()
}
