package expr

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/variant"
	"github.com/sluice-data/sluice/log/schema"
)

var variantFunctions = map[string]function{
	"parse_json":      {1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.parseJSON(a[0], n, false) }},
	"try_parse_json":  {1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.parseJSON(a[0], n, true) }},
	"is_variant_null": {1, 1, bindIsVariantNull},
	"variant_get":     {2, 3, func(b *binder, a []*bnode, n *node) *bnode { return b.variantGet(a, n, false) }},
	"try_variant_get": {2, 3, func(b *binder, a []*bnode, n *node) *bnode { return b.variantGet(a, n, true) }},
}

// variantAt is row i of a vector of variants.
func variantAt(v *vector, i int) (metadata, value []byte, err error) {
	st, ok := v.arr.(*array.Struct)
	if !ok || st.NumField() != 2 {
		return nil, nil, fmt.Errorf("a variant is two binaries, not %s", v.arr.DataType())
	}
	m, ok1 := st.Field(0).(*array.Binary)
	x, ok2 := st.Field(1).(*array.Binary)
	if !ok1 || !ok2 {
		return nil, nil, fmt.Errorf("a variant is two binaries, not %s", v.arr.DataType())
	}
	k := i * v.step
	return m.Value(k), x.Value(k), nil
}

// variants makes a function with variant results: f gives the parts of row i, or an
// error, or nil for null.
func (b *binder) variants(n *node, args []*bnode, f func(in []*vector, i int) (metadata, value []byte, err error)) *bnode {
	at, err := schema.ArrowType(schema.Variant)
	if err != nil {
		return b.problem(n.pos, CodeNotAllowed, err.Error())
	}
	return b.function(bnode{typ: schema.Variant, pos: n.pos, args: args, fn: func(c *context, in []*vector) *vector {
		out := c.alloc(schema.Variant, in...)
		rows := out.rows(c)
		sb := array.NewStructBuilder(memory.DefaultAllocator, at.(*arrow.StructType))
		defer sb.Release()
		mb, vb := sb.FieldBuilder(0).(*array.BinaryBuilder), sb.FieldBuilder(1).(*array.BinaryBuilder)
		for i := range rows {
			var m, v []byte
			if out.null == nil || !out.null[i] {
				var err error
				if m, v, err = f(in, i); err != nil {
					out.fail(i, rows, err)
				} else if v == nil {
					out.setNull(i, rows)
				}
			}
			sb.Append(v != nil)
			mb.Append(m)
			vb.Append(v)
		}
		out.arr = sb.NewArray()
		return out
	}})
}

func (b *binder) parseJSON(x *bnode, n *node, try bool) *bnode {
	if x.typ != schema.String && x.typ != schema.Void {
		return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs a STRING, found %s", n.name, x.typ))
	}
	x = b.cast(x, schema.String, n.pos, false)
	return b.variants(n, []*bnode{x}, func(in []*vector, i int) ([]byte, []byte, error) {
		m, v, err := variant.ParseJSON([]byte(in[0].str(i)))
		if err != nil && try {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, &EvalError{CodeName: CodeInvalidArgument, Pos: n.pos, Row: -1, Msg: fmt.Sprintf("%s: %v", n.name, err)}
		}
		return m, v, nil
	})
}

func bindIsVariantNull(b *binder, a []*bnode, n *node) *bnode {
	if a[0].typ != schema.Variant {
		return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("is_variant_null needs a VARIANT, found %s", a[0].typ))
	}
	return b.function(bnode{typ: schema.Boolean, pos: n.pos, args: a, fn: func(c *context, in []*vector) *vector {
		out := c.blank(schema.Boolean, in...)
		rows := out.rows(c)
		out.takeErrs(in[0], rows)
		for i := range rows {
			if in[0].isNull(i) || out.err1(i) != nil {
				continue // SQL's null is not the variant null: FALSE
			}
			_, v, err := variantAt(in[0], i)
			if err != nil {
				out.fail(i, rows, err)
				continue
			}
			out.b[i] = variant.IsNull(v)
		}
		return out
	}})
}

// variantGet is variant_get(v, path[, type]): path and type are literals, the type
// defaults to VARIANT. A value is converted by way of its text.
func (b *binder) variantGet(a []*bnode, n *node, try bool) *bnode {
	if a[0].typ != schema.Variant {
		return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs a VARIANT, found %s", n.name, a[0].typ))
	}
	text := func(x *bnode) (string, bool) {
		if x.op != opLiteral || x.typ != schema.String || x.lit.isNull(0) {
			return "", false
		}
		return x.lit.s[0], true
	}
	p, ok := text(a[1])
	if !ok {
		return b.problem(n.pos, CodeNotAllowed, n.name+": the path must be a string literal")
	}
	path, err := variant.ParsePath(p)
	if err != nil {
		return b.problem(n.pos, CodeInvalidArgument, n.name+": "+err.Error())
	}
	get := func(in []*vector, i int) ([]byte, []byte, error) {
		m, v, err := variantAt(in[0], i)
		if err != nil {
			return nil, nil, err
		}
		v, err = variant.Get(m, v, path)
		return m, v, err
	}
	want := schema.Type(schema.Variant)
	if len(a) == 3 {
		t, ok := text(a[2])
		if !ok {
			return b.problem(n.pos, CodeNotAllowed, n.name+": the type must be a string literal")
		}
		if want, err = schema.ParseType(t); err != nil {
			return b.problem(n.pos, CodeNotAllowed, n.name+": "+err.Error())
		}
	}
	if want == schema.Variant {
		return b.variants(n, a[:1], get)
	}
	if classOf(want) == clsNested || classOf(want) == clsNull {
		return b.problem(n.pos, CodeNotAllowed, fmt.Sprintf("%s: values of type %s are not supported", n.name, want))
	}
	x := b.scalar(schema.String, n.pos, a[:1], func(out *vector, i int, in []*vector) error {
		m, v, err := get(in, i)
		if err != nil {
			return err
		}
		if v == nil || variant.IsNull(v) {
			return errNull
		}
		out.s[i], err = variant.Text(m, v)
		return err
	})
	return b.castMode(x, want, n.pos, true, try)
}
