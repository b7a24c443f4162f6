package expr

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

var (
	sizeFunction = function{1, 1, bindSize}
)

var nestedFunctions = map[string]function{
	"struct":       {1, -1, bindStruct},
	"named_struct": {2, -1, bindNamedStruct},
	"array":        {0, -1, bindArray},
	"size":         sizeFunction,
	"cardinality":  sizeFunction,
	"element_at":   {2, 2, bindElementAt},
	"array_contains": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		t, ok := a[0].typ.(*schema.Array)
		if !ok || !orderable(t.Elem) {
			return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("array_contains needs an ARRAY of values with an order, found %s", a[0].typ))
		}
		if c, ok := commonType(t.Elem, a[1].typ); !ok || !schema.EqualIgnoringNullability(c, t.Elem) {
			return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("array_contains cannot look for %s in %s", a[1].typ, t))
		}
		y := b.cast(a[1], t.Elem, n.pos, false)
		return b.scalar(schema.Boolean, n.pos, []*bnode{a[0], y}, func(out *vector, i int, in []*vector) error {
			l := in[0].arr.(*array.List)
			from, to := l.ValueOffsets(i * in[0].step)
			want, ok := exportOne(in[1], i)
			if !ok {
				return errNull
			}
			defer want.Release()
			hasNull := false
			for j := int(from); j < int(to); j++ {
				if l.ListValues().IsNull(j) {
					hasNull = true
				} else if compareNested(l.ListValues(), j, want, 0) == 0 {
					out.b[i] = true
					return nil
				}
			}
			if hasNull {
				return errNull
			}
			return nil
		})
	}},
}

// exportOne is row i of a vector as an array of one value.
func exportOne(v *vector, i int) (arrow.Array, bool) {
	at, err := schema.ArrowType(v.typ)
	if err != nil {
		return nil, false
	}
	b := array.NewBuilder(memory.DefaultAllocator, at)
	defer b.Release()
	v.appendTo(b, i)
	return b.NewArray(), true
}

// bindStruct names fields after the columns they come from, else col1, col2, ...
func bindStruct(b *binder, a []*bnode, n *node) *bnode {
	names := make([]string, len(a))
	for i, arg := range n.args {
		switch arg.kind {
		case nName:
			names[i] = arg.path[len(arg.path)-1]
		case nField:
			names[i] = arg.name
		default:
			names[i] = fmt.Sprintf("col%d", i+1)
		}
	}
	return b.makeStruct(names, a, n)
}

func bindNamedStruct(b *binder, a []*bnode, n *node) *bnode {
	if len(a)%2 == 1 {
		return b.problem(n.pos, CodeArgumentCount, "named_struct takes pairs of name and value")
	}
	var names []string
	var values []*bnode
	for i := 0; i < len(a); i += 2 {
		if a[i].op != opLiteral || a[i].typ != schema.String || a[i].lit.isNull(0) {
			return b.problem(a[i].pos, CodeNotAllowed, "a field name of named_struct must be a string literal")
		}
		names, values = append(names, a[i].lit.s[0]), append(values, a[i+1])
	}
	return b.makeStruct(names, values, n)
}

func (b *binder) makeStruct(names []string, a []*bnode, n *node) *bnode {
	t := &schema.Struct{Fields: make([]schema.Field, len(a))}
	for i, x := range a {
		t.Fields[i] = schema.Field{Name: names[i], Type: x.typ, Nullable: true}
	}
	return b.function(bnode{typ: t, pos: n.pos, args: a, fn: func(c *context, in []*vector) *vector {
		out := c.blank(t, in...)
		rows := out.rows(c)
		for _, v := range in {
			out.takeErrs(v, rows)
		}
		at, err := schema.ArrowType(t)
		if err != nil {
			return constant(schema.Void, Value{})
		}
		bld := array.NewStructBuilder(memory.DefaultAllocator, at.(*arrow.StructType))
		defer bld.Release()
		for i := range rows {
			bld.Append(true)
			for k, v := range in {
				v.appendTo(bld.FieldBuilder(k), i)
			}
		}
		out.arr = bld.NewArray()
		return out
	}})
}

func bindArray(b *binder, a []*bnode, n *node) *bnode {
	before := len(b.problems)
	a, elem := b.unify(a, "array", n.pos)
	if len(b.problems) > before {
		return b.null(n.pos)
	}
	t := &schema.Array{Elem: elem, ContainsNull: true}
	node := bnode{typ: t, pos: n.pos, args: a, fn: func(c *context, in []*vector) *vector {
		out := c.blank(t, in...)
		rows := out.rows(c)
		for _, v := range in {
			out.takeErrs(v, rows)
		}
		at, err := schema.ArrowType(t)
		if err != nil {
			return constant(schema.Void, Value{})
		}
		bld := array.NewBuilder(memory.DefaultAllocator, at).(*array.ListBuilder)
		defer bld.Release()
		for i := range rows {
			bld.Append(true)
			for _, v := range in {
				v.appendTo(bld.ValueBuilder(), i)
			}
		}
		out.arr = bld.NewArray()
		return out
	}}
	if len(a) == 0 {
		return &bnode{op: opLiteral, typ: t, pos: n.pos, lit: node.fn(&context{n: 1}, nil)}
	}
	return b.function(node)
}

func bindSize(b *binder, a []*bnode, n *node) *bnode {
	x := a[0]
	switch x.typ.(type) {
	case *schema.Array, *schema.Map:
	default:
		return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs an ARRAY or MAP, found %s", n.name, x.typ))
	}
	return b.scalar(schema.Integer, n.pos, a, func(out *vector, i int, in []*vector) error {
		from, to := in[0].arr.(array.ListLike).ValueOffsets(i * in[0].step)
		out.i[i] = to - from
		return nil
	})
}

// field binds x.name of a struct or map that is not a plain column.
func (b *binder) field(x *bnode, name string, pos Pos) *bnode {
	switch t := x.typ.(type) {
	case *schema.Map:
		return b.index(x, literalNode(pos, schema.String, BytesValue(name)), pos)
	case *schema.Struct:
		k := t.Index(name)
		if k < 0 {
			return b.problem(pos, CodeUnresolvedColumn, fmt.Sprintf("no field %s (fields: %s)", name, clipList(t.Names())))
		}
		ft := t.Fields[k].Type
		return b.function(bnode{typ: ft, pos: pos, args: []*bnode{x}, fn: func(c *context, in []*vector) *vector {
			v := in[0]
			out, ok := load(ft, v.arr.(*array.Struct).Field(k))
			if !ok {
				return constant(ft, Value{})
			}
			out = out.own()
			out.step = v.step
			n := out.rows(c)
			for i := range n {
				if v.isNull(i) || v.arr.IsNull(i) {
					out.setNull(i, n)
				}
			}
			out.takeErrs(v, n)
			return out
		}})
	}
	if x.typ == schema.Void {
		return x
	}
	return b.problem(pos, CodeUnresolvedColumn, fmt.Sprintf("a value of type %s has no field %s", x.typ, name))
}

// index binds a[i] (from 0; outside is an error) and m[k] (missing is null).
func (b *binder) index(x, i *bnode, pos Pos) *bnode {
	switch t := x.typ.(type) {
	case *schema.Array:
		return b.element(x, b.integer(i, "an array index"), t.Elem, pos, func(k, size int64) (int64, bool) { return k, k >= 0 && k < size })
	case *schema.Map:
		return b.mapValue(x, i, t, pos)
	}
	if x.typ == schema.Void {
		return x
	}
	return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("a value of type %s has no elements", x.typ))
}

// bindElementAt counts from 1, from the end if negative.
func bindElementAt(b *binder, a []*bnode, n *node) *bnode {
	switch t := a[0].typ.(type) {
	case *schema.Array:
		return b.element(a[0], b.integer(a[1], n.name), t.Elem, n.pos, func(k, size int64) (int64, bool) {
			if k < 0 {
				return k + size, k >= -size
			}
			return k - 1, k >= 1 && k <= size
		})
	case *schema.Map:
		return b.mapValue(a[0], a[1], t, n.pos)
	}
	return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs an ARRAY or MAP, found %s", n.name, a[0].typ))
}

func (b *binder) element(x, i *bnode, elem schema.Type, pos Pos, at func(k, size int64) (int64, bool)) *bnode {
	return b.function(bnode{typ: elem, pos: pos, args: []*bnode{x, i}, fn: func(c *context, in []*vector) *vector {
		l := in[0].arr.(*array.List)
		return c.gather(elem, l.ListValues(), in, func(r int) (int, error) {
			from, to := l.ValueOffsets(r * in[0].step)
			k, ok := at(in[1].int(r), to-from)
			if !ok {
				return 0, &EvalError{CodeName: CodeArrayIndex, Pos: pos, Msg: fmt.Sprintf("index %d is outside an array of %d elements", in[1].int(r), to-from)}
			}
			return int(from + k), nil
		})
	}})
}

func (b *binder) mapValue(x, key *bnode, t *schema.Map, pos Pos) *bnode {
	if !orderable(t.Key) || !castable(key.typ, t.Key) || classOf(t.Key) == clsNested {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("cannot look up a key of type %s in %s", key.typ, t))
	}
	key = b.cast(key, t.Key, pos, false)
	return b.function(bnode{typ: t.Value, pos: pos, args: []*bnode{x, key}, fn: func(c *context, in []*vector) *vector {
		m := in[0].arr.(*array.Map)
		keys, ok := load(t.Key, m.Keys())
		if !ok {
			return constant(t.Value, Value{})
		}
		return c.gather(t.Value, m.Items(), in, func(r int) (int, error) {
			from, to := m.ValueOffsets(r * in[0].step)
			want := in[1].value(r)
			for j := int(to) - 1; j >= int(from); j-- { // the last entry of a key wins
				if keys.value(j).Compare(want) == 0 {
					return j, nil
				}
			}
			return 0, errNull
		})
	}})
}

// gather makes a vector of the values of src at the places that at names for the
// rows where no arg is null.
func (c *context) gather(t schema.Type, src arrow.Array, args []*vector, at func(r int) (int, error)) *vector {
	out := c.alloc(t, args...)
	n := out.rows(c)
	values, ok := load(t, src)
	if !ok {
		return constant(t, Value{})
	}
	var nested array.Builder
	if classOf(t) == clsNested {
		at, err := schema.ArrowType(t)
		if err != nil {
			return constant(schema.Void, Value{})
		}
		nested = array.NewBuilder(memory.DefaultAllocator, at)
		defer nested.Release()
	}
	for i := range n {
		j, err := -1, error(nil)
		if (out.null == nil || !out.null[i]) && (args[0].arr == nil || !args[0].arr.IsNull(i*args[0].step)) {
			j, err = at(i)
		}
		switch {
		case err == errNull || err == nil && (j < 0 || values.isNull(j)):
			out.setNull(i, n)
			j = -1
		case err != nil:
			out.fail(i, n, err)
			j = -1
		default:
			out.set(i, values, j)
		}
		if nested != nil {
			if j < 0 {
				nested.AppendNull()
			} else {
				appendNested(nested, src, j)
			}
		}
	}
	if nested != nil {
		out.arr = nested.NewArray()
	}
	return out
}
