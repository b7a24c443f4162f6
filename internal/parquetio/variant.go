package parquetio

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/variant"
	"github.com/sluice-data/sluice/log/schema"
)

// The children of a variant in the order of its Arrow form.
var variantStruct = &schema.Struct{Fields: []schema.Field{
	{Name: "metadata", Type: schema.Binary},
	{Name: "value", Type: schema.Binary},
}}

const (
	variantMetadata = "metadata"
	variantValue    = "value"
	variantTyped    = "typed_value"
)

// variant plans a variant column. A plain one is a struct of two binaries; one whose
// value may be missing, or is spread over typed columns ("Variant Shredding" of
// Parquet), is read as what the file has and joined afterwards.
func (p *plan) variant(n *node, typ arrow.DataType, column string) (*planNode, error) {
	if n.isLeaf() {
		return nil, mismatch(n, schema.Variant, column)
	}
	var metadata, value, typed *node
	for _, c := range n.children {
		switch c.name {
		case variantMetadata:
			metadata = c
		case variantValue:
			value = c
		case variantTyped:
			typed = c
		}
	}
	switch {
	case metadata == nil || value == nil && typed == nil:
		return nil, mismatch(n, schema.Variant, column)
	case typed == nil && value.repetition == required:
		return p.bare(n, variantStruct, typ, column)
	}
	file := &schema.Struct{}
	for _, f := range n.bareType().(*schema.Struct).Fields {
		if f.Name == variantMetadata || f.Name == variantValue || f.Name == variantTyped {
			file.Fields = append(file.Fields, f)
		}
	}
	at, err := schema.ArrowType(file)
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", column, errors.Join(ErrUnsupported, err))
	}
	kid, err := p.bare(n, file, at, column)
	if err != nil {
		return nil, err
	}
	return &planNode{
		kind: planVariant, typ: typ, column: column, ancRep: kid.ancRep, ancDef: kid.ancDef, def: kid.def,
		slot: kid.slot, kids: []*planNode{kid},
	}, nil
}

func (p *planNode) buildVariant(cols []*column, n int) (arrow.ArrayData, error) {
	d, err := p.kids[0].build(cols, n)
	if err != nil {
		return nil, err
	}
	st, ok := array.MakeFromData(d).(*array.Struct)
	if !ok {
		return nil, corruptf("column %s: variant is no group", p.column)
	}
	defer st.Release()
	g := partsOf(st)
	metadata, ok := g.metadata.(*array.Binary)
	if !ok {
		return nil, corruptf("column %s: variant without metadata", p.column)
	}
	meta, value := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary), array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
	defer meta.Release()
	defer value.Release()
	valid := newValidity(n)
	var b *variant.Builder
	last := ""
	for i := range n {
		valid.add(st.IsValid(i))
		if st.IsNull(i) {
			meta.AppendNull()
			value.AppendNull()
			continue
		}
		if metadata.IsNull(i) {
			return nil, corruptf("column %s: variant without metadata", p.column)
		}
		if m := metadata.Value(i); b == nil || string(m) != last {
			if b, err = variant.NewBuilder(m); err != nil {
				return nil, corruptf("column %s: %v", p.column, err)
			}
			last = string(m)
		}
		v, err := g.join(b, metadata.Value(i), i, 0)
		if err != nil {
			return nil, corruptf("column %s: %v", p.column, err)
		}
		if v == nil {
			v = []byte{0} // nothing there at the top is the variant null
		}
		meta.Append(metadata.Value(i))
		value.Append(v)
	}
	m, v := meta.NewArray(), value.NewArray()
	defer m.Release()
	defer v.Release()
	return array.NewData(p.typ, n, []*memory.Buffer{valid.buffer()}, []arrow.ArrayData{m.Data(), v.Data()}, valid.nulls, 0), nil
}

// variantParts are the columns of one shredded place.
type variantParts struct {
	metadata, value, typed arrow.Array
	fields                 []variantParts // of an object
	names                  []string
	element                *variantParts // of an array
}

func partsOf(st *array.Struct) variantParts {
	var g variantParts
	t := st.DataType().(*arrow.StructType)
	for i := range st.NumField() {
		switch t.Field(i).Name {
		case variantMetadata:
			g.metadata = st.Field(i)
		case variantValue:
			g.value = st.Field(i)
		case variantTyped:
			g.typed = st.Field(i)
		}
	}
	switch x := g.typed.(type) {
	case *array.Struct:
		xt := x.DataType().(*arrow.StructType)
		for i := range x.NumField() {
			if f, ok := x.Field(i).(*array.Struct); ok {
				g.fields, g.names = append(g.fields, partsOf(f)), append(g.names, xt.Field(i).Name)
			}
		}
	case *array.List:
		if e, ok := x.ListValues().(*array.Struct); ok {
			parts := partsOf(e)
			g.element = &parts
		}
	}
	return g
}

// join is the value at row i, nil where there is none.
func (g *variantParts) join(b *variant.Builder, metadata []byte, i, depth int) ([]byte, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("variant nests deeper than %d", maxSchemaDepth)
	}
	var raw []byte
	if v, ok := g.value.(*array.Binary); ok && v.IsValid(i) {
		raw = v.Value(i)
	}
	if g.typed == nil || g.typed.IsNull(i) {
		return raw, nil
	}
	switch typed := g.typed.(type) {
	case *array.Struct:
		var fields []variant.Field
		if raw != nil {
			// What was not shredded of a partly shredded object.
			rest, ok, err := variant.Fields(metadata, raw)
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, errors.New("variant: typed fields beside a value that is no object")
			}
			fields = rest
		}
		for k := range g.fields {
			v, err := g.fields[k].join(b, metadata, i, depth+1)
			if err != nil {
				return nil, err
			}
			if v != nil {
				fields = append(fields, variant.Field{Name: g.names[k], Value: v})
			}
		}
		return b.Object(fields)
	case *array.List:
		if g.element == nil {
			return nil, errors.New("variant: array of an unknown form")
		}
		from, to := typed.ValueOffsets(i)
		values := make([][]byte, 0, to-from)
		for k := from; k < to; k++ {
			v, err := g.element.join(b, metadata, int(k), depth+1)
			if err != nil {
				return nil, err
			}
			if v == nil {
				v = []byte{0}
			}
			values = append(values, v)
		}
		return b.Array(values)
	}
	v, err := typedScalar(g.typed, i)
	if err != nil {
		return nil, err
	}
	return variant.Scalar(v)
}

func typedScalar(a arrow.Array, i int) (variant.Value, error) {
	switch a := a.(type) {
	case *array.Boolean:
		return variant.Value{Kind: variant.Bool, Bool: a.Value(i)}, nil
	case *array.Int8:
		return variant.Value{Kind: variant.Int, Int: int64(a.Value(i))}, nil
	case *array.Int16:
		return variant.Value{Kind: variant.Int, Int: int64(a.Value(i))}, nil
	case *array.Int32:
		return variant.Value{Kind: variant.Int, Int: int64(a.Value(i))}, nil
	case *array.Int64:
		return variant.Value{Kind: variant.Int, Int: a.Value(i)}, nil
	case *array.Float32:
		return variant.Value{Kind: variant.Float, Float: float64(a.Value(i))}, nil
	case *array.Float64:
		return variant.Value{Kind: variant.Double, Float: a.Value(i)}, nil
	case *array.Date32:
		return variant.Value{Kind: variant.Date, Int: int64(a.Value(i))}, nil
	case *array.Timestamp:
		kind := variant.Timestamp
		if a.DataType().(*arrow.TimestampType).TimeZone == "" {
			kind = variant.TimestampNTZ
		}
		return variant.Value{Kind: kind, Int: int64(a.Value(i))}, nil
	case *array.Decimal128:
		v := a.Value(i)
		return variant.Value{Kind: variant.Decimal, Unscaled: new(big.Int).Set(v.BigInt()), Scale: int(a.DataType().(*arrow.Decimal128Type).Scale)}, nil
	case *array.String:
		return variant.Value{Kind: variant.String, Bytes: []byte(a.Value(i))}, nil
	case *array.Binary:
		return variant.Value{Kind: variant.Binary, Bytes: a.Value(i)}, nil
	}
	return variant.Value{}, fmt.Errorf("variant: typed values of Arrow type %s", a.DataType())
}
