package rowio

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

// optional are the columns of the schema that input may leave out, by index; such
// columns may be null as far as reading goes.
func (o *ReadOptions) optional() []int {
	if len(o.Optional) == 0 {
		return nil
	}
	s := &schema.Struct{Fields: slices.Clone(o.Schema.Fields)}
	var out []int
	for i, f := range s.Fields {
		if slices.ContainsFunc(o.Optional, func(n string) bool { return strings.EqualFold(n, f.Name) }) {
			s.Fields[i].Nullable = true
			out = append(out, i)
		}
	}
	o.Schema = s
	return out
}

// missing are those of the optional columns that no name of the input means.
func missing(s *schema.Struct, optional []int, have []string) []int {
	var out []int
	for _, i := range optional {
		if !slices.ContainsFunc(have, func(n string) bool { return s.Index(n) == i }) {
			out = append(out, i)
		}
	}
	return out
}

// without is b less the columns at the given positions; the caller releases both.
func without(b arrow.RecordBatch, drop []int) arrow.RecordBatch {
	if len(drop) == 0 {
		b.Retain()
		return b
	}
	var fields []arrow.Field
	var cols []arrow.Array
	for i, f := range b.Schema().Fields() {
		if !slices.Contains(drop, i) {
			fields, cols = append(fields, f), append(cols, b.Column(i))
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, b.NumRows())
}
