package delta

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// SchemaMismatchError reports rows whose columns do not fit the table.
type SchemaMismatchError struct {
	Column string // dotted path
	Reason string
}

func (e *SchemaMismatchError) Error() string {
	return fmt.Sprintf("column %s: %s", e.Column, e.Reason)
}

// Code is the stable error code.
func (e *SchemaMismatchError) Code() string { return "SCHEMA_MISMATCH" }

// Is answers the class ErrInvalid.
func (e *SchemaMismatchError) Is(target error) bool { return target == ErrInvalid }

// Conform fits a batch to the columns of s: columns are matched by name,
// missing ones become null, unknown ones are refused, values change their Arrow
// form only where nothing is lost (narrower integers, other string layouts, other
// time units). The batch that comes back has exactly the types of
// schema.ArrowSchema of s.
func Conform(s *schema.Struct, b arrow.RecordBatch) (arrow.RecordBatch, error) {
	want, err := schema.ArrowSchema(s)
	if err != nil {
		return nil, err
	}
	c := conformer{rows: int(b.NumRows())}
	names := make([]string, b.NumCols())
	cols := make([]arrow.Array, b.NumCols())
	for i := range names {
		names[i], cols[i] = b.ColumnName(i), b.Column(i)
	}
	out, err := c.fields(s, want.Fields(), names, cols, "", c.rows)
	if err != nil {
		return nil, err
	}
	return array.NewRecordBatch(want, out, b.NumRows()), nil
}

type conformer struct{ rows int }

// fields arranges named columns in the order of s.
func (c conformer) fields(s *schema.Struct, want []arrow.Field, names []string, cols []arrow.Array, path string, n int) ([]arrow.Array, error) {
	out := make([]arrow.Array, len(s.Fields))
	for i, name := range names {
		j := s.Index(name)
		if j < 0 {
			return nil, &SchemaMismatchError{dotted(path, name), "not a column of the table (it has " + strings.Join(s.Names(), ", ") + "); to add it, allow the schema to grow (MergeSchema, --merge-schema)"}
		}
		if out[j] != nil {
			return nil, &SchemaMismatchError{dotted(path, name), "named twice (names are compared ignoring case)"}
		}
		a, err := c.array(cols[i], s.Fields[j].Type, want[j].Type, dotted(path, s.Fields[j].Name))
		if err != nil {
			return nil, err
		}
		out[j] = a
	}
	for j := range out {
		if out[j] == nil {
			out[j] = datafile.NullArray(want[j].Type, n)
		}
	}
	return out, nil
}

func dotted(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// array converts one array to type t, whose Arrow form is want.
func (c conformer) array(a arrow.Array, t schema.Type, want arrow.DataType, path string) (arrow.Array, error) {
	switch x := a.(type) {
	case *array.Null:
		return datafile.NullArray(want, a.Len()), nil
	case array.ExtensionArray:
		return c.array(x.Storage(), t, want, path)
	case *array.Dictionary:
		idx, err := compute.CastToType(context.Background(), x.Indices(), arrow.PrimitiveTypes.Int64)
		if err != nil {
			return nil, &SchemaMismatchError{path, err.Error()}
		}
		plain, err := datafile.TakeArray(x.Dictionary(), idx)
		if err != nil {
			return nil, &SchemaMismatchError{path, err.Error()}
		}
		return c.array(plain, t, want, path)
	}
	switch t := t.(type) {
	case *schema.Struct:
		x, ok := a.(*array.Struct)
		if !ok {
			return nil, mismatch(path, a.DataType(), t)
		}
		st := x.DataType().(*arrow.StructType)
		names, cols := make([]string, x.NumField()), make([]arrow.Array, x.NumField())
		for i := range names {
			names[i], cols[i] = st.Field(i).Name, x.Field(i)
		}
		children, err := c.fields(t, want.(*arrow.StructType).Fields(), names, cols, path, a.Len())
		if err != nil {
			return nil, err
		}
		return rebuild(want, a, children)
	case *schema.Map:
		x, ok := a.(*array.Map)
		if !ok {
			return nil, mismatch(path, a.DataType(), t)
		}
		mt := want.(*arrow.MapType)
		keys, err := c.array(x.Keys(), t.Key, mt.KeyType(), dotted(path, "key"))
		if err != nil {
			return nil, err
		}
		items, err := c.array(x.Items(), t.Value, mt.ItemType(), dotted(path, "value"))
		if err != nil {
			return nil, err
		}
		entries := array.NewData(mt.Elem(), keys.Len(), []*memory.Buffer{nil}, []arrow.ArrayData{keys.Data(), items.Data()}, 0, 0)
		return rebuildList(want, a, entries, x.Offsets())
	case *schema.Array:
		x, ok := a.(array.ListLike)
		if _, isMap := a.(*array.Map); !ok || isMap {
			return nil, mismatch(path, a.DataType(), t)
		}
		elem, err := c.array(x.ListValues(), t.Elem, want.(*arrow.ListType).Elem(), dotted(path, "element"))
		if err != nil {
			return nil, err
		}
		offsets := make([]int32, a.Len()+1)
		packed := true
		for i := range a.Len() {
			lo, hi := x.ValueOffsets(i)
			packed = packed && int64(offsets[i]) == lo
			if i == 0 {
				offsets[0], packed = int32(lo), true
			}
			offsets[i+1] = int32(hi)
		}
		if !packed || elem.Len() > 1<<31-1 {
			return nil, &SchemaMismatchError{path, fmt.Sprintf("Arrow layout %s with gaps is not supported", a.DataType())}
		}
		return rebuildList(want, a, elem.Data(), offsets)
	}
	if arrow.TypeEqual(a.DataType(), want) {
		a.Retain()
		return a, nil
	}
	return leaf(a, t, want, path)
}

func mismatch(path string, have arrow.DataType, t schema.Type) error {
	return &SchemaMismatchError{path, fmt.Sprintf("rows have Arrow type %s, the table has %s", have, t)}
}

// validity is a's null bitmap moved to offset 0, nil when there are no nulls.
func validity(a arrow.Array) *memory.Buffer {
	if a.NullN() == 0 {
		return nil
	}
	b := array.NewBooleanBuilder(memory.DefaultAllocator)
	b.Reserve(a.Len())
	for i := range a.Len() {
		b.UnsafeAppend(a.IsValid(i))
	}
	return b.NewBooleanArray().Data().Buffers()[1]
}

func rebuild(want arrow.DataType, a arrow.Array, children []arrow.Array) (arrow.Array, error) {
	data := make([]arrow.ArrayData, len(children))
	for i, ch := range children {
		data[i] = ch.Data()
	}
	return array.MakeFromData(array.NewData(want, a.Len(), []*memory.Buffer{validity(a)}, data, a.NullN(), 0)), nil
}

func rebuildList(want arrow.DataType, a arrow.Array, child arrow.ArrayData, offsets []int32) (arrow.Array, error) {
	if len(offsets) > a.Len()+1 {
		off := a.Data().Offset()
		offsets = offsets[off : off+a.Len()+1]
	}
	buf := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))
	return array.MakeFromData(array.NewData(want, a.Len(), []*memory.Buffer{validity(a), buf}, []arrow.ArrayData{child}, a.NullN(), 0)), nil
}

// leaf converts between Arrow forms of one value range; anything that could lose
// or reinterpret a value is refused.
func leaf(a arrow.Array, t schema.Type, want arrow.DataType, path string) (arrow.Array, error) {
	if !lossless(a.DataType(), want) {
		return nil, mismatch(path, a.DataType(), t)
	}
	src := a
	if ts, ok := a.DataType().(*arrow.TimestampType); ok && ts.TimeZone != "" && ts.TimeZone != "UTC" {
		// Same instants under another zone name.
		utc := &arrow.TimestampType{Unit: ts.Unit, TimeZone: "UTC"}
		d := a.Data()
		src = array.MakeFromData(array.NewData(utc, d.Len(), d.Buffers(), nil, d.NullN(), d.Offset()))
		if arrow.TypeEqual(utc, want) {
			return src, nil
		}
	}
	out, err := compute.CastArray(context.Background(), src, compute.SafeCastOptions(want))
	if err != nil {
		return nil, &SchemaMismatchError{path, fmt.Sprintf("value does not fit %s: %v", t, err)}
	}
	return out, nil
}

var intWidth = map[arrow.Type]int{arrow.INT8: 8, arrow.INT16: 16, arrow.INT32: 32, arrow.INT64: 64, arrow.UINT8: 9, arrow.UINT16: 17, arrow.UINT32: 33}

func lossless(from, to arrow.DataType) bool {
	f, w := from.ID(), to.ID()
	switch w {
	case arrow.STRING:
		return f == arrow.LARGE_STRING || f == arrow.STRING_VIEW
	case arrow.BINARY:
		return f == arrow.LARGE_BINARY || f == arrow.BINARY_VIEW || f == arrow.FIXED_SIZE_BINARY
	case arrow.INT16, arrow.INT32, arrow.INT64:
		n, ok := intWidth[f]
		return ok && n <= intWidth[w]
	case arrow.FLOAT64:
		return f == arrow.FLOAT32
	case arrow.DATE32:
		return f == arrow.DATE64
	case arrow.TIMESTAMP:
		x, ok := from.(*arrow.TimestampType)
		return ok && (x.TimeZone == "") == (to.(*arrow.TimestampType).TimeZone == "")
	case arrow.DECIMAL128:
		x, ok := from.(arrow.DecimalType)
		y := to.(*arrow.Decimal128Type)
		return ok && x.GetScale() <= y.Scale && x.GetPrecision()-x.GetScale() <= y.Precision-y.Scale
	}
	return false
}

// project is the columns of b that s names, in its order.
func project(b arrow.RecordBatch, s *schema.Struct) (arrow.RecordBatch, error) {
	as, err := schema.ArrowSchema(s)
	if err != nil {
		return nil, err
	}
	cols := make([]arrow.Array, len(s.Fields))
	for i, f := range s.Fields {
		at := b.Schema().FieldIndices(f.Name)
		if len(at) == 0 {
			return nil, fmt.Errorf("column %s: not in the batch", f.Name)
		}
		cols[i] = b.Column(at[0])
	}
	return array.NewRecordBatch(as, cols, b.NumRows()), nil
}
