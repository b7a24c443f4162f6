package expr

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

type compareOp uint8

const (
	cmpEQ compareOp = iota
	cmpNE
	cmpLT
	cmpLE
	cmpGT
	cmpGE
	cmpSame // <=>: null equals null
)

var compareOps = map[string]compareOp{"=": cmpEQ, "<>": cmpNE, "<": cmpLT, "<=": cmpLE, ">": cmpGT, ">=": cmpGE, "<=>": cmpSame}

var compareNames = [...]string{"=", "<>", "<", "<=", ">", ">=", "<=>"}

// holds reports whether the op is true of two values that compare as c.
func (op compareOp) holds(c int) bool {
	switch op {
	case cmpNE:
		return c != 0
	case cmpLT:
		return c < 0
	case cmpLE:
		return c <= 0
	case cmpGT:
		return c > 0
	case cmpGE:
		return c >= 0
	}
	return c == 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// compareFloat: NaN equals itself and is above everything, -0.0 equals 0.0.
func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return compareBool(a != a, b != b)
}

// compareIntFloat compares by exact value.
func compareIntFloat(a int64, b float64) int {
	switch {
	case b != b || b >= 1<<63:
		return -1
	case b < -(1 << 63):
		return 1
	}
	whole := math.Floor(b)
	if c := cmp.Compare(a, int64(whole)); c != 0 {
		return c
	}
	if b > whole {
		return -1
	}
	return 0
}

// comparePair compares row i of two vectors, neither null, of types that bind
// brought together.
func comparePair(x, y *vector, i int) int {
	j, k := i*x.step, i*y.step
	cx, cy := classOf(x.typ), classOf(y.typ)
	if cx == cy {
		switch cx {
		case clsBool:
			return compareBool(x.b[j], y.b[k])
		case clsInt:
			return cmp.Compare(x.i[j], y.i[k])
		case clsFloat:
			return compareFloat(x.f[j], y.f[k])
		case clsDec:
			return compareDecimal(x.d[j], int32(x.typ.(schema.Decimal).Scale), y.d[k], int32(y.typ.(schema.Decimal).Scale))
		case clsBytes:
			return cmp.Compare(x.s[j], y.s[k])
		case clsNested:
			return compareNested(x.arr, j, y.arr, k)
		}
		return 0
	}
	switch {
	case cx == clsInt && cy == clsFloat:
		return compareIntFloat(x.i[j], y.f[k])
	case cx == clsFloat && cy == clsInt:
		return -compareIntFloat(y.i[k], x.f[j])
	case cx == clsInt && cy == clsDec:
		return -compareDecimalInt(y, k, x.i[j])
	case cx == clsDec && cy == clsInt:
		return compareDecimalInt(x, j, y.i[k])
	}
	return 0
}

func compareDecimalInt(v *vector, j int, i int64) int {
	d, scale := v.d[j], v.typ.(schema.Decimal).Scale
	if x, ok := small(d); ok {
		if y, ok := scaleUp(i, scale); ok {
			return cmp.Compare(x, y)
		}
	}
	return d.BigInt().Cmp(new(big.Int).Mul(big.NewInt(i), pow10[scale]))
}

// compareNested compares two values of one type; null is lowest.
func compareNested(a arrow.Array, i int, b arrow.Array, j int) int {
	if an, bn := a.IsNull(i), b.IsNull(j); an || bn {
		return compareBool(!an, !bn)
	}
	switch x := a.(type) {
	case *array.Struct:
		y := b.(*array.Struct)
		for f := range x.NumField() {
			if c := compareNested(x.Field(f), i, y.Field(f), j); c != 0 {
				return c
			}
		}
		return 0
	case *array.List:
		y := b.(*array.List)
		af, at := x.ValueOffsets(i)
		bf, bt := y.ValueOffsets(j)
		for ; af < at && bf < bt; af, bf = af+1, bf+1 {
			if c := compareNested(x.ListValues(), int(af), y.ListValues(), int(bf)); c != 0 {
				return c
			}
		}
		return cmp.Compare(at-af, bt-bf)
	case *array.Boolean:
		return compareBool(x.Value(i), b.(*array.Boolean).Value(j))
	case *array.Int8:
		return cmp.Compare(x.Value(i), b.(*array.Int8).Value(j))
	case *array.Int16:
		return cmp.Compare(x.Value(i), b.(*array.Int16).Value(j))
	case *array.Int32:
		return cmp.Compare(x.Value(i), b.(*array.Int32).Value(j))
	case *array.Int64:
		return cmp.Compare(x.Value(i), b.(*array.Int64).Value(j))
	case *array.Date32:
		return cmp.Compare(x.Value(i), b.(*array.Date32).Value(j))
	case *array.Timestamp:
		return cmp.Compare(x.Value(i), b.(*array.Timestamp).Value(j))
	case *array.Float32:
		return compareFloat(float64(x.Value(i)), float64(b.(*array.Float32).Value(j)))
	case *array.Float64:
		return compareFloat(x.Value(i), b.(*array.Float64).Value(j))
	case *array.Decimal128:
		return x.Value(i).Cmp(b.(*array.Decimal128).Value(j))
	case *array.String:
		return cmp.Compare(x.Value(i), b.(*array.String).Value(j))
	case *array.Binary:
		return cmp.Compare(x.ValueString(i), b.(*array.Binary).ValueString(j))
	}
	return 0
}

// compare binds x op y.
func (b *binder) compare(op compareOp, x, y *bnode, pos Pos) *bnode {
	x, y = b.padded(x, y), b.padded(y, x)
	x, y, ok := b.comparable(x, y, pos)
	if !ok {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("cannot compare %s %s %s", x.typ, compareNames[op], y.typ))
	}
	return b.function(bnode{op: opCompare, cmp: op, typ: schema.Boolean, pos: pos, args: []*bnode{x, y}, fn: compareFunc(op)})
}

// padded is n, or where it is a text beside a column of type CHAR(n) that text as the
// column would hold it: with spaces up to n characters, and none beyond.
func (b *binder) padded(n, beside *bnode) *bnode {
	if n.op != opLiteral || n.typ != schema.String || beside.op != opColumn || n.lit.errs != nil || n.lit.isNull(0) || len(b.slots[beside.slot].path) > 1 {
		return n
	}
	limit, char := schema.CharLimit(b.schema.Fields[b.schema.Index(b.slots[beside.slot].path[0])])
	if !char || limit > 1<<20 { // no more spaces than a value may well have
		return n
	}
	text := n.lit.s[0]
	if k := utf8.RuneCountInString(text); k < limit {
		text += strings.Repeat(" ", limit-k)
	} else if cut := strings.TrimRight(text, " "); utf8.RuneCountInString(cut) <= limit {
		text = cut + strings.Repeat(" ", limit-utf8.RuneCountInString(cut))
	}
	return literalNode(n.pos, n.typ, BytesValue(text))
}

// comparable brings two values to types that comparePair compares. Integers and
// decimals stay as they are: they compare exactly.
func (b *binder) comparable(x, y *bnode, pos Pos) (*bnode, *bnode, bool) {
	if !orderable(x.typ) || !orderable(y.typ) {
		return x, y, false
	}
	if isNumeric(x.typ) && isNumeric(y.typ) {
		switch {
		case isDecimal(x.typ) && isFloat(y.typ):
			return b.cast(x, schema.Double, pos, false), y, true
		case isFloat(x.typ) && isDecimal(y.typ):
			return x, b.cast(y, schema.Double, pos, false), true
		}
		return x, y, true
	}
	if isDecimal(x.typ) && exactText(y) {
		return x, b.textDecimal(y), true
	}
	if isDecimal(y.typ) && exactText(x) {
		return b.textDecimal(x), y, true
	}
	t, ok := commonType(x.typ, renamed(y.typ, x.typ))
	if !ok {
		return x, y, false
	}
	if t == schema.Void {
		t = schema.Boolean
	}
	return b.cast(x, t, pos, false), b.cast(y, t, pos, false), true
}

// renamed is t with the field names of like: structs compare field by field,
// whatever the names.
func renamed(t, like schema.Type) schema.Type {
	s, ok := t.(*schema.Struct)
	l, ok2 := like.(*schema.Struct)
	if !ok || !ok2 || len(s.Fields) != len(l.Fields) {
		return t
	}
	out := &schema.Struct{Fields: append([]schema.Field(nil), s.Fields...)}
	for i := range out.Fields {
		out.Fields[i].Name = l.Fields[i].Name
		out.Fields[i].Type = renamed(out.Fields[i].Type, l.Fields[i].Type)
	}
	return out
}

func exactText(n *bnode) bool {
	return n.op == opLiteral && n.typ == schema.String && !n.lit.isNull(0)
}

// textDecimal is a string literal beside a decimal, taken with the digits it has.
func (b *binder) textDecimal(n *bnode) *bnode {
	num, typ, ok := parseDecimal(n.lit.s[0])
	if !ok {
		return b.problem(n.pos, CodeInvalidCast, fmt.Sprintf("'%s' is not a DECIMAL", clip(n.lit.s[0])))
	}
	return literalNode(n.pos, typ, DecimalValue(num, int32(typ.Scale)))
}

func compareFunc(op compareOp) func(*context, []*vector) *vector {
	if op == cmpSame {
		return compareSame
	}
	return func(c *context, a []*vector) *vector {
		x, y := a[0], a[1]
		out := c.alloc(schema.Boolean, x, y)
		switch cx := classOf(x.typ); {
		case cx == clsInt && classOf(y.typ) == clsInt:
			compareSlices(op, out.b, x.i, x.step, y.i, y.step)
		case cx == clsBytes:
			compareSlices(op, out.b, x.s, x.step, y.s, y.step)
		default:
			for i := range out.b {
				if out.null == nil || !out.null[i] {
					out.b[i] = op.holds(comparePair(x, y, i))
				}
			}
		}
		return out
	}
}

func compareSlices[T int64 | string](op compareOp, out []bool, x []T, xs int, y []T, ys int) {
	if ys == 0 && xs == 1 {
		k := y[0]
		switch op {
		case cmpEQ:
			for i, v := range x[:len(out)] {
				out[i] = v == k
			}
			return
		case cmpLT:
			for i, v := range x[:len(out)] {
				out[i] = v < k
			}
			return
		case cmpGE:
			for i, v := range x[:len(out)] {
				out[i] = v >= k
			}
			return
		}
	}
	for i := range out {
		out[i] = op.holds(cmp.Compare(x[i*xs], y[i*ys]))
	}
}

func compareSame(c *context, a []*vector) *vector {
	x, y := a[0], a[1]
	out := c.blank(schema.Boolean, x, y)
	n := out.rows(c)
	out.takeErrs(x, n)
	out.takeErrs(y, n)
	for i := range out.b {
		xn, yn := x.isNull(i), y.isNull(i)
		out.b[i] = xn && yn || !xn && !yn && comparePair(x, y, i) == 0
	}
	return out
}
