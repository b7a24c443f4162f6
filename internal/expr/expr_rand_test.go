package expr

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

const randSchema = "i INT, l BIGINT, d DECIMAL(10,2), g DOUBLE, s STRING, o BOOLEAN, st STRUCT<i: INT>"

// gen draws the text of an expression of a class: b, i, d, g or s.
type gen struct{ t *rapid.T }

func (g gen) pick(list ...string) string { return rapid.SampledFrom(list).Draw(g.t, "pick") }

func (g gen) expr(class byte, depth int) string {
	if depth <= 0 {
		return g.leaf(class)
	}
	sub := func() string { return g.expr(class, depth-1) }
	cond := func() string { return g.expr('b', depth-1) }
	switch g.pick("leaf", "case", "if", "coalesce", "own", "own", "own", "own", "nullif", "simple") {
	case "leaf":
		return g.leaf(class)
	case "case":
		return fmt.Sprintf("case when %s then %s when %s then %s else %s end", cond(), sub(), cond(), sub(), sub())
	case "if":
		return fmt.Sprintf("if(%s, %s, %s)", cond(), sub(), sub())
	case "coalesce":
		return fmt.Sprintf("coalesce(%s, %s)", sub(), sub())
	case "nullif":
		return fmt.Sprintf("nullif(%s, %s)", sub(), sub())
	case "simple":
		return fmt.Sprintf("case %s when %s then %s end", g.expr('i', depth-1), g.expr('i', depth-1), sub())
	}
	switch class {
	case 'b':
		return g.condition(depth)
	case 'i':
		return g.pick(
			fmt.Sprintf("(%s %s %s)", sub(), g.pick("+", "-", "*", "%", "div"), sub()),
			fmt.Sprintf("- (%s)", sub()), fmt.Sprintf("abs(%s)", sub()), fmt.Sprintf("length(%s)", g.expr('s', depth-1)))
	case 'd':
		return fmt.Sprintf("(%s %s %s)", g.leaf('d'), g.pick("+", "-", "*"), g.leaf('d'))
	case 'g':
		return fmt.Sprintf("(%s %s %s)", sub(), g.pick("+", "-", "*", "/"), sub())
	}
	return g.pick(fmt.Sprintf("(%s || %s)", sub(), sub()), fmt.Sprintf("lower(%s)", sub()), fmt.Sprintf("substring(%s, %s, 2)", sub(), g.pick("0", "1", "2", "-1", "-3")))
}

func (g gen) condition(depth int) string {
	sub := func() string { return g.expr('b', depth-1) }
	num := func() string { return g.expr("iidg"[rapid.IntRange(0, 3).Draw(g.t, "num")], depth-1) }
	pair := func() (string, string) {
		if g.pick("num", "text") == "text" {
			return g.expr('s', depth-1), g.expr('s', depth-1)
		}
		return num(), num()
	}
	a, b := pair()
	not := g.pick("", " not")
	switch g.pick("compare", "compare", "and", "or", "not", "null", "is", "in", "between", "like", "distinct") {
	case "compare":
		return fmt.Sprintf("(%s %s %s)", a, g.pick("=", "<>", "<", "<=", ">", ">=", "<=>"), b)
	case "and":
		return fmt.Sprintf("(%s and %s and %s)", sub(), sub(), sub())
	case "or":
		return fmt.Sprintf("(%s or %s)", sub(), sub())
	case "not":
		return fmt.Sprintf("(not %s)", sub())
	case "null":
		return fmt.Sprintf("((%s) is%s null)", a, not)
	case "is":
		return fmt.Sprintf("((%s) is%s %s)", sub(), not, g.pick("true", "false", "unknown"))
	case "in":
		class := "isg"[rapid.IntRange(0, 2).Draw(g.t, "class")]
		list := make([]string, rapid.IntRange(1, 6).Draw(g.t, "n"))
		for i := range list {
			list[i] = g.leaf(class)
		}
		return fmt.Sprintf("(%s%s in (%s))", g.expr(class, depth-1), not, strings.Join(list, ", "))
	case "between":
		return fmt.Sprintf("(%s%s between %s and %s)", num(), not, num(), num())
	case "like":
		return fmt.Sprintf("(%s%s like %s)", g.expr('s', depth-1), not, g.pick("'a%'", "'%b'", "'_'", "'%'", "'a_%'", "'%a%b%'", "''", "'é%'"))
	}
	return fmt.Sprintf("(%s is%s distinct from %s)", a, not, b)
}

func (g gen) leaf(class byte) string {
	switch class {
	case 'b':
		return g.pick("o", "true", "false", "null", "o", "(i = 1)")
	case 'i':
		return g.pick("i", "l", "0", "1", "2", "-3", "2147483647", "9223372036854775807", "st.i", "cast(null as int)", "cast(s as int)")
	case 'd':
		return g.pick("d", "0.5", "1.00", "-0.01", "d")
	case 'g':
		return g.pick("g", "0e0", "1.5D", "-0e0", "double('NaN')", "g")
	}
	return g.pick("s", "'a'", "'ab'", "''", "'B'", "'é'", "s")
}

// drawRows draws rows of randSchema from a small domain.
func drawRows(t *rapid.T, n int) []map[string]any {
	rows := make([]map[string]any, n)
	for k := range rows {
		pick := func(list ...any) any { return rapid.SampledFrom(list).Draw(t, "v") }
		rows[k] = map[string]any{
			"i":    pick(nil, int64(0), int64(1), int64(-1), int64(2), int64(math.MaxInt32), int64(math.MinInt32)),
			"l":    pick(nil, int64(0), int64(1), int64(3), int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53+1)),
			"d":    pick(nil, int64(0), int64(50), int64(100), int64(-1), int64(9999999999)),
			"g":    pick(nil, 0.0, math.Copysign(0, -1), 1.0, -1.5, 0.5, math.NaN(), math.Inf(1), math.Inf(-1), float64(1<<53)),
			"s":    pick(nil, "", "a", "ab", "A", "é", "abéb", "1", "-3"),
			"o":    pick(nil, true, false),
			"st.i": pick(nil, int64(5), int64(1)),
			"st":   pick(nil, true),
		}
		if rows[k]["st"] == nil {
			rows[k]["st.i"] = nil
		}
	}
	return rows
}

func rowsBatch(t *rapid.T, rows []map[string]any) (*schema.Struct, arrow.RecordBatch) {
	s, err := schema.ParseDDL(randSchema)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := schema.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	add := func(f array.Builder, v any) {
		if v == nil {
			f.AppendNull()
			return
		}
		val := Value{}
		switch x := v.(type) {
		case int64:
			val = IntValue(x)
		case float64:
			val = FloatValue(x)
		case string:
			val = BytesValue(x)
		case bool:
			val = BoolValue(x)
		}
		var typ schema.Type
		switch f.(type) {
		case *array.Int32Builder:
			typ = schema.Integer
		case *array.Int64Builder:
			typ = schema.Long
		case *array.Float64Builder:
			typ = schema.Double
		case *array.StringBuilder:
			typ = schema.String
		case *array.BooleanBuilder:
			typ = schema.Boolean
		case *array.Decimal128Builder:
			typ = schema.Decimal{Precision: 10, Scale: 2}
			n, _ := fitDecimal(big.NewInt(val.Int), 10)
			val = DecimalValue(n, 2)
		}
		constant(typ, val).appendTo(f, 0)
	}
	for _, r := range rows {
		for k, name := range []string{"i", "l", "d", "g", "s", "o"} {
			add(b.Field(k), r[name])
		}
		sb := b.Field(6).(*array.StructBuilder)
		if r["st"] == nil {
			sb.AppendNull()
		} else {
			sb.Append(true)
			add(sb.FieldBuilder(0), r["st.i"])
		}
	}
	return s, b.NewRecordBatch()
}

// naive evaluates one row by the plain reading of the rules: values are nil,
// bool, int64, float64, *big.Rat or string.
type naive struct{ row map[string]any }

var errNaive = errors.New("row fails")

// width is the static width of an integer expression, 0 for others.
func (e naive) width(n *node) int {
	widest := func(args []*node) int {
		w := 0
		for _, a := range args {
			w = max(w, e.width(a))
		}
		return w
	}
	switch n.kind {
	case nLiteral:
		switch n.typ {
		case schema.Integer:
			return 32
		case schema.Long:
			return 64
		}
	case nName:
		switch n.path[len(n.path)-1] {
		case "i":
			return 32
		case "l":
			return 64
		}
	case nUnary:
		return e.width(n.args[0])
	case nBinary:
		if n.name == "DIV" {
			return 64
		}
		if strings.Contains("+-*%", n.name) {
			return widest(n.args)
		}
	case nCast:
		return 32
	case nCase:
		args, w := n.args, 0
		if n.operand {
			args = args[1:]
		}
		for len(args) >= 2 {
			w = max(w, e.width(args[1]))
			args = args[2:]
		}
		return max(w, widest(args))
	case nCall:
		switch n.name {
		case "coalesce":
			return widest(n.args)
		case "if":
			return widest(n.args[1:])
		case "nullif", "abs":
			return e.width(n.args[0])
		case "length":
			return 32
		}
	}
	return 0
}

func naiveNot(v any) any {
	if v == nil {
		return nil
	}
	return !v.(bool)
}

func (e naive) compare(a, b any) int {
	rat := func(v any) *big.Rat {
		switch v := v.(type) {
		case int64:
			return new(big.Rat).SetInt64(v)
		case *big.Rat:
			return v
		case float64:
			return new(big.Rat).SetFloat64(v)
		}
		return nil
	}
	switch x := a.(type) {
	case string:
		return cmp.Compare(x, b.(string))
	case bool:
		return compareBool(x, b.(bool))
	case *big.Rat:
		if y, ok := b.(float64); ok { // a decimal beside a double becomes one
			f, _ := x.Float64()
			return e.compare(f, y)
		}
	}
	if y, ok := b.(*big.Rat); ok {
		if x, ok := a.(float64); ok {
			f, _ := y.Float64()
			return e.compare(x, f)
		}
	}
	rank := func(v any) int { // -Inf, finite, +Inf, NaN
		f, ok := v.(float64)
		switch {
		case ok && math.IsNaN(f):
			return 3
		case ok && math.IsInf(f, 1):
			return 2
		case ok && math.IsInf(f, -1):
			return 0
		}
		return 1
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 || rank(a) != 1 {
		return c
	}
	return rat(a).Cmp(rat(b))
}

func (e naive) eval(n *node) (any, error) {
	switch n.kind {
	case nLiteral:
		switch n.value.Kind {
		case KindBool:
			return n.value.Bool, nil
		case KindInt:
			return n.value.Int, nil
		case KindFloat:
			return n.value.Float, nil
		case KindBytes:
			return n.value.Bytes, nil
		case KindDecimal:
			return new(big.Rat).SetFrac(n.value.Dec.BigInt(), pow10[n.value.Scale]), nil
		}
		return nil, nil
	case nName:
		v := e.row[strings.Join(n.path, ".")]
		if n.path[0] == "d" && v != nil {
			return big.NewRat(v.(int64), 100), nil
		}
		return v, nil
	case nAnd, nOr:
		unknown := false
		for _, a := range n.args {
			v, err := e.eval(a)
			if err != nil {
				return nil, err
			}
			if v == nil {
				unknown = true
			} else if v.(bool) != (n.kind == nAnd) {
				return v, nil
			}
		}
		if unknown {
			return nil, nil
		}
		return n.kind == nAnd, nil
	case nCase:
		return e.caseWhen(n)
	case nCall:
		return e.call(n)
	}
	args := make([]any, len(n.args))
	for i, a := range n.args {
		var err error
		if args[i], err = e.eval(a); err != nil {
			return nil, err
		}
		if n.kind == nIn && i > 0 && args[0] != nil && args[i] != nil && e.compare(args[0], args[i]) == 0 {
			return !n.neg, nil // the rest of the list is not looked at
		}
		if n.kind == nBetween && i == 1 && args[0] != nil && args[1] != nil && e.compare(args[0], args[1]) < 0 {
			return n.neg, nil // nor is the upper end
		}
	}
	neg := func(v any, err error) (any, error) {
		if n.neg {
			return naiveNot(v), err
		}
		return v, err
	}
	switch n.kind {
	case nNot:
		return naiveNot(args[0]), nil
	case nUnary:
		return e.arith("-", n, int64(0), args[0])
	case nBinary:
		return e.binary(n, args)
	case nIs:
		switch n.name {
		case "TRUE":
			return neg(args[0] == true, nil)
		case "FALSE":
			return neg(args[0] == false, nil)
		}
		return neg(args[0] == nil, nil)
	case nIsFrom:
		same := args[0] == nil && args[1] == nil || args[0] != nil && args[1] != nil && e.compare(args[0], args[1]) == 0
		return same == n.neg, nil
	case nIn:
		if args[0] == nil {
			return nil, nil
		}
		unknown := false
		for _, v := range args[1:] {
			if v == nil {
				unknown = true
			} else if e.compare(args[0], v) == 0 {
				return neg(true, nil)
			}
		}
		if unknown {
			return nil, nil
		}
		return neg(false, nil)
	case nBetween:
		if args[0] == nil {
			return nil, nil
		}
		lo := args[1] != nil && e.compare(args[0], args[1]) < 0
		hi := args[2] != nil && e.compare(args[0], args[2]) > 0
		if lo || hi {
			return neg(false, nil)
		}
		if args[1] == nil || args[2] == nil {
			return nil, nil
		}
		return neg(true, nil)
	case nLike:
		if args[0] == nil {
			return nil, nil
		}
		return neg(naiveLike(args[0].(string), args[1].(string)), nil)
	case nCast:
		s, ok := args[0].(string)
		if !ok {
			return nil, nil // only CAST(NULL AS INT) and CAST(s AS INT) are drawn
		}
		var v int64
		if _, err := fmt.Sscanf(s, "%d", &v); err != nil {
			return nil, errNaive
		}
		return v, nil
	}
	return nil, fmt.Errorf("naive: node %d", n.kind)
}

func naiveLike(s, p string) bool {
	if p == "" {
		return s == ""
	}
	switch p[0] {
	case '%':
		for i := 0; i <= len(s); i++ {
			if naiveLike(s[i:], p[1:]) {
				return true
			}
		}
		return false
	case '_':
		_, n := utf8.DecodeRuneInString(s)
		return s != "" && naiveLike(s[n:], p[1:])
	}
	return s != "" && s[0] == p[0] && naiveLike(s[1:], p[1:])
}

func (e naive) caseWhen(n *node) (any, error) {
	args := n.args
	var operand any
	if n.operand {
		var err error
		if operand, err = e.eval(args[0]); err != nil {
			return nil, err
		}
		args = args[1:]
	}
	for len(args) >= 2 {
		v, err := e.eval(args[0])
		if err != nil {
			return nil, err
		}
		hit := v == true
		if n.operand {
			hit = v != nil && operand != nil && e.compare(operand, v) == 0
		}
		if hit {
			return e.eval(args[1])
		}
		args = args[2:]
	}
	if n.otherwise {
		return e.eval(args[0])
	}
	return nil, nil
}

func (e naive) call(n *node) (any, error) {
	switch n.name {
	case "coalesce":
		for _, a := range n.args {
			if v, err := e.eval(a); v != nil || err != nil {
				return v, err
			}
		}
		return nil, nil
	case "if":
		c, err := e.eval(n.args[0])
		if err != nil {
			return nil, err
		}
		if c == true {
			return e.eval(n.args[1])
		}
		return e.eval(n.args[2])
	case "double":
		return math.NaN(), nil
	}
	args := make([]any, len(n.args))
	for i, a := range n.args {
		var err error
		if args[i], err = e.eval(a); err != nil {
			return nil, err
		}
	}
	if n.name == "nullif" {
		if args[0] != nil && args[1] != nil && e.compare(args[0], args[1]) == 0 {
			return nil, nil
		}
		return args[0], nil
	}
	for _, v := range args {
		if v == nil {
			return nil, nil
		}
	}
	switch n.name {
	case "abs":
		if args[0].(int64) < 0 {
			return e.arith("-", n, int64(0), args[0])
		}
		return args[0], nil
	case "length":
		return int64(len([]rune(args[0].(string)))), nil
	case "lower":
		return strings.ToLower(args[0].(string)), nil
	case "substring":
		r := []rune(args[0].(string))
		start := int(args[1].(int64))
		switch {
		case start > 0:
			start--
		case start < 0:
			start += len(r)
		}
		var out []rune
		for i := start; i < start+2; i++ {
			if i >= 0 && i < len(r) {
				out = append(out, r[i])
			}
		}
		return string(out), nil
	}
	return nil, fmt.Errorf("naive: function %s", n.name)
}

func (e naive) binary(n *node, args []any) (any, error) {
	a, b := args[0], args[1]
	if n.name == "<=>" {
		return a == nil && b == nil || a != nil && b != nil && e.compare(a, b) == 0, nil
	}
	if a == nil || b == nil {
		return nil, nil
	}
	if op, ok := compareOps[n.name]; ok {
		return op.holds(e.compare(a, b)), nil
	}
	if n.name == "||" {
		return a.(string) + b.(string), nil
	}
	return e.arith(n.name, n, a, b)
}

func (e naive) arith(op string, n *node, a, b any) (any, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	switch x := a.(type) {
	case float64:
		y := b.(float64)
		switch op {
		case "+":
			return x + y, nil
		case "-":
			return x - y, nil
		case "*":
			return x * y, nil
		}
		if y == 0 {
			return nil, errNaive
		}
		return x / y, nil
	case *big.Rat:
		y, r := b.(*big.Rat), new(big.Rat)
		switch op {
		case "+":
			return r.Add(x, y), nil
		case "-":
			return r.Sub(x, y), nil
		}
		return r.Mul(x, y), nil
	}
	x, y, r := big.NewInt(a.(int64)), big.NewInt(b.(int64)), new(big.Int)
	switch op {
	case "+":
		r.Add(x, y)
	case "-":
		r.Sub(x, y)
	case "*":
		r.Mul(x, y)
	default:
		if y.Sign() == 0 {
			return nil, errNaive
		}
		if op == "%" {
			r.Rem(x, y)
		} else {
			r.Quo(x, y)
		}
	}
	limit := uint(e.width(n) - 1)
	high := new(big.Int).Lsh(big.NewInt(1), limit)
	if r.Cmp(high) >= 0 || r.Cmp(new(big.Int).Neg(high)) < 0 {
		return nil, errNaive
	}
	return r.Int64(), nil
}

// naiveEqual compares a result of the naive evaluator with a value of an array.
func naiveEqual(want any, a arrow.Array, i int) bool {
	if a.DataType().ID() == arrow.NULL {
		return want == nil
	}
	if want == nil || a.IsNull(i) {
		return want == nil && a.IsNull(i)
	}
	switch x := a.(type) {
	case *array.Boolean:
		return want == x.Value(i)
	case *array.Int32:
		return want == int64(x.Value(i))
	case *array.Int64:
		return want == x.Value(i)
	case *array.Float64:
		f, ok := want.(float64)
		return ok && compareFloat(f, x.Value(i)) == 0
	case *array.String:
		return want == x.Value(i)
	case *array.Decimal128:
		r, ok := want.(*big.Rat)
		scale := x.DataType().(*arrow.Decimal128Type).Scale
		return ok && r.Cmp(new(big.Rat).SetFrac(x.Value(i).BigInt(), pow10[scale])) == 0
	}
	return false
}

func TestBound_EvalEqualsNaive(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		rows := drawRows(t, rapid.IntRange(1, 6).Draw(t, "rows"))
		s, batch := rowsBatch(t, rows)
		text := gen{t}.expr("bidgs"[rapid.IntRange(0, 4).Draw(t, "class")], 3)
		x, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		again, err := Parse(x.String())
		if err != nil || again.String() != x.String() {
			t.Fatalf("%s\ncanonical %s\nbecomes %v, %v", text, x, again, err)
		}
		b, err := again.Bind(s)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		// Each row alone.
		failed := -1
		for i, row := range rows {
			want, wantErr := naive{row}.eval(x.root)
			got, gotErr := b.Eval(batch.NewSlice(int64(i), int64(i+1)))
			switch {
			case (wantErr != nil) != (gotErr != nil):
				t.Fatalf("%s\nrow %v\nwant %v, %v\ngot %v, %v", text, row, want, wantErr, got, gotErr)
			case wantErr != nil:
				if failed < 0 {
					failed = i
				}
			case got.Len() != 1 || !naiveEqual(want, got, 0):
				t.Fatalf("%s\nrow %v\nwant %v\ngot %v", text, row, want, got)
			}
		}
		// All rows together.
		got, err := b.Eval(batch)
		var ee *EvalError
		if failed >= 0 {
			if !errors.As(err, &ee) || ee.Row != failed {
				t.Fatalf("%s: row %d fails, got %v", text, failed, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var trueRows []int32
		for i, row := range rows {
			want, _ := naive{row}.eval(x.root)
			if !naiveEqual(want, got, i) {
				t.Fatalf("%s\nrow %d of a batch %v\nwant %v\ngot %v", text, i, row, want, got)
			}
			if want == true {
				trueRows = append(trueRows, int32(i))
			}
		}
		if b.Type() == schema.Boolean {
			sel, err := b.EvalFilter(batch)
			if err != nil || fmt.Sprint(sel) != fmt.Sprint(append([]int32{}, trueRows...)) {
				t.Fatalf("%s: filter %v, %v, want %v", text, sel, err, trueRows)
			}
		}
	})
}

// drawBounds makes bounds that hold for the rows: tight, widened or absent.
func drawBounds(t *rapid.T, rows []map[string]any) testBounds {
	out := testBounds{rows: int64(len(rows)), known: rapid.Bool().Draw(t, "rows known"), cols: map[string]columnBounds{}}
	for _, name := range []string{"i", "l", "d", "g", "s", "st.i"} {
		var c columnBounds
		for _, r := range rows {
			v := r[name]
			if v == nil {
				c.nulls++
				continue
			}
			val := Value{}
			switch x := v.(type) {
			case int64:
				if val = IntValue(x); name == "d" {
					n, _ := fitDecimal(big.NewInt(x), 38)
					val = DecimalValue(n, 2)
				}
			case float64:
				if math.IsNaN(x) {
					continue // statistics leave it out
				}
				val = FloatValue(x)
			case string:
				val = BytesValue(x)
			}
			if c.min == nil || val.Compare(*c.min) < 0 {
				c.min = &val
			}
			if c.max == nil || val.Compare(*c.max) > 0 {
				c.max = &val
			}
		}
		c.hasNulls = rapid.Bool().Draw(t, "nulls known")
		if rapid.IntRange(0, 3).Draw(t, "min absent") == 0 {
			c.min = nil
		}
		if rapid.IntRange(0, 3).Draw(t, "max absent") == 0 {
			c.max = nil
		}
		if name == "s" && c.max != nil && rapid.Bool().Draw(t, "widen") {
			wide := BytesValue(c.max.Bytes + "\x7f")
			c.max = &wide
		}
		out.cols[name] = c
	}
	return out
}

func TestBound_MayMatchIsConservative(t *testing.T) {
	skipped, all := 0, 0
	testenv.Check(t, func(t *rapid.T) {
		rows := drawRows(t, rapid.IntRange(1, 3).Draw(t, "rows"))
		s, batch := rowsBatch(t, rows)
		text := gen{t}.condition(rapid.IntRange(1, 2).Draw(t, "depth"))
		x, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := x.Bind(s)
		if err != nil {
			t.Fatal(err)
		}
		bounds := drawBounds(t, rows)
		may, must := b.MayMatch(bounds), b.AllMatch(bounds)
		for i := range rows {
			sel, err := b.EvalFilter(batch.NewSlice(int64(i), int64(i+1)))
			if err != nil {
				continue
			}
			if len(sel) == 1 && !may {
				t.Fatalf("%s\nskips a file with row %v\nbounds %+v", text, rows[i], bounds)
			}
			if len(sel) == 0 && must {
				t.Fatalf("%s\ntakes a file as a whole with row %v\nbounds %+v", text, rows[i], bounds)
			}
		}
		// The parts of an AND mean the same.
		for _, part := range b.SplitConjuncts() {
			if !part.MayMatch(bounds) && may {
				t.Fatalf("%s: part %s skips alone", text, part)
			}
		}
		if !may {
			skipped++
		}
		if must {
			all++
		}
	})
	if skipped == 0 || all == 0 {
		t.Errorf("nothing was proven: %d skipped, %d taken whole", skipped, all)
	}
}

// FuzzParse: no text panics, and what parses prints as text that parses to the
// same canonical text; binding it never panics either.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a = 1", "x in (1, 'a')", "case a when 1 then b end", "cast(a as map<string, array<int>>)", "- -1.5e3D", "`a``b`.c[0]['k']",
		"'\\u00e9\\\\'", "timestamp '2024-01-01'", "not !a is not distinct from b", "/* */ a -- b", "f(g(h(1)))", "a like '%' escape '!'", "x'ff' || r'\\d'"} {
		f.Add(s)
	}
	s, err := schema.ParseDDL(randSchema + ", a INT, b STRING, x ARRAY<INT>")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := Parse(text)
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Fatalf("error of type %T", err)
			}
			return
		}
		canonical := x.String()
		y, err := Parse(canonical)
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, canonical, err)
		}
		if y.String() != canonical {
			t.Fatalf("%q prints as %q, then %q", text, canonical, y)
		}
		if b, err := x.Bind(s); err == nil {
			_, _, _ = b.Constant()
		}
	})
}

func TestParse_BoundsNesting(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000),
		strings.Repeat("not ", 100000) + "true",
		strings.Repeat("- ", 100000) + "1",
		"1" + strings.Repeat("+1", 100000),
		"a" + strings.Repeat("[0]", 100000),
		"f(a)" + strings.Repeat(".b", 100000),
		"cast(a as " + strings.Repeat("array<", 100000) + "int",
		strings.Repeat("case when a then ", 100000),
		strings.Repeat("f(", 100000),
	} {
		_, err := Parse(text)
		var se *SyntaxError
		if !errors.As(err, &se) || se.Code() != CodeTooDeep {
			t.Errorf("%.20s...: %v", text, err)
		}
	}
	wide := "i = 1" + strings.Repeat(" or i = 1", 20000)
	if _, err := Parse(wide); err != nil {
		t.Errorf("a wide OR: %v", err)
	}
}
