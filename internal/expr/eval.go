package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

// Eval computes the expression for every row of batch, which has at least the
// columns of [Bound.Columns], found by name, with the Arrow types of
// schema.ArrowType. The result has the Arrow type of [Bound.Type] and is the
// caller's to release. The error is a *[EvalError]; it names the first row that
// fails.
func (b *Bound) Eval(batch arrow.RecordBatch) (arrow.Array, error) {
	n := int(batch.NumRows())
	if b.root.op == opColumn {
		if a, err := b.slots[b.root.slot].whole(batch); a != nil || err != nil {
			return a, err
		}
	}
	v, err := b.run(batch)
	if err != nil {
		return nil, err
	}
	if err := v.firstError(n); err != nil {
		return nil, err
	}
	out, err := v.export(n)
	if err != nil {
		return nil, fmt.Errorf("evaluate expression: %w", err)
	}
	return out, nil
}

// EvalFilter returns the rows of batch for which the condition is TRUE, in
// ascending order. Errors are those of [Bound.Eval].
func (b *Bound) EvalFilter(batch arrow.RecordBatch) ([]int32, error) {
	if b.root.typ == schema.Void {
		return nil, nil
	}
	if b.root.typ != schema.Boolean {
		return nil, &EvalError{CodeName: CodeTypeMismatch, Row: -1, Msg: fmt.Sprintf("a condition is needed, %s has type %s", b, b.root.typ)}
	}
	n := int(batch.NumRows())
	v, err := b.run(batch)
	if err != nil {
		return nil, err
	}
	if err := v.firstError(n); err != nil {
		return nil, err
	}
	rows := make([]int32, 0, n)
	for i := range n {
		if k := i * v.step; v.b[k] && (v.null == nil || !v.null[k]) {
			rows = append(rows, int32(i))
		}
	}
	return rows, nil
}

// Constant is the value of an expression that reads no column; ok is false if it
// reads one or has a nested type.
func (b *Bound) Constant() (v Value, ok bool, err error) {
	if b.root.op != opLiteral || classOf(b.root.typ) == clsNested {
		return Value{}, false, nil
	}
	if err := b.root.lit.firstError(1); err != nil {
		return Value{}, false, err
	}
	return b.root.lit.value(0), true, nil
}

func (v *vector) firstError(n int) error {
	if v.errs == nil {
		return nil
	}
	for i := range n {
		err := v.err(i)
		if err == nil {
			continue
		}
		var e *EvalError
		if errors.As(err, &e) {
			at := *e
			at.Row = i
			return &at
		}
		return err
	}
	return nil
}

func (b *Bound) run(batch arrow.RecordBatch) (*vector, error) {
	c := &context{n: int(batch.NumRows()), cols: make([]*vector, len(b.slots))}
	for i, s := range b.slots {
		v, err := s.load(batch)
		if err != nil {
			return nil, err
		}
		c.cols[i] = v
	}
	return b.root.eval(c), nil
}

func (n *bnode) eval(c *context) *vector {
	switch n.op {
	case opColumn:
		return c.cols[n.slot]
	case opLiteral:
		return n.lit
	}
	args := make([]*vector, len(n.args))
	for i, a := range n.args {
		args[i] = a.eval(c)
	}
	return n.fn(c, args)
}

func (s slot) mismatch(msg string) error {
	return &EvalError{CodeName: CodeBatchMismatch, Row: -1, Msg: fmt.Sprintf("column %s: %s", strings.Join(s.path, "."), msg)}
}

// whole is the array of a top-level column, checked and retained; nil for a field.
func (s slot) whole(batch arrow.RecordBatch) (arrow.Array, error) {
	if len(s.path) > 1 {
		return nil, nil
	}
	at := batch.Schema().FieldIndices(s.path[0])
	if len(at) != 1 {
		return nil, s.mismatch("not in the batch")
	}
	a := batch.Column(at[0])
	want, err := schema.ArrowType(s.typ)
	if err != nil {
		return nil, s.mismatch(err.Error())
	}
	if want.ID() != a.DataType().ID() || classOf(s.typ) == clsNested && !nestedMatches(s.typ, a.DataType()) {
		return nil, s.mismatch(fmt.Sprintf("batch has %s, expected %s", a.DataType(), want))
	}
	a.Retain()
	return a, nil
}

func (s slot) load(batch arrow.RecordBatch) (*vector, error) {
	at := batch.Schema().FieldIndices(s.path[0])
	if len(at) != 1 {
		return nil, s.mismatch("not in the batch")
	}
	a := batch.Column(at[0])
	var null []bool
	for _, f := range s.path[1:] {
		st, ok := a.(*array.Struct)
		if !ok {
			return nil, s.mismatch("batch has " + a.DataType().String() + ", expected a struct")
		}
		i, ok := st.DataType().(*arrow.StructType).FieldIdx(f)
		if !ok {
			return nil, s.mismatch("field " + f + " not in the batch")
		}
		null = orNulls(null, nullsOf(a))
		a = st.Field(i)
	}
	v, ok := load(s.typ, a)
	if !ok {
		return nil, s.mismatch(fmt.Sprintf("batch has %s, expected %s", a.DataType(), s.typ))
	}
	v.null = orNulls(null, v.null)
	return v, nil
}

func orNulls(a, b []bool) []bool {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	for i := range a {
		a[i] = a[i] || b[i]
	}
	return a
}
