package datafile

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// ConstraintError reports a row that the table's schema forbids. Nothing of the
// write becomes visible.
type ConstraintError struct {
	ErrorCode string // Spark's name, see the Code constants
	Column    string // dotted logical path
	Row       int64  // position in the batch that was handed over; -1 when every row is
	Reason    string
	// Constraint, Expression and Values describe a CHECK constraint, invariant or
	// generated column: its name, its text and what the row has in the columns it reads.
	Constraint, Expression string
	Values                 []NamedValue
}

// NamedValue is one value of a row, as text.
type NamedValue struct{ Column, Text string }

func (e *ConstraintError) Error() string {
	if e.Constraint != "" {
		var b strings.Builder
		fmt.Fprintf(&b, "row %d: CHECK constraint %s (%s) violated by row with values:", e.Row, e.Constraint, e.Expression)
		for i, v := range e.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, " %s = %s", v.Column, v.Text)
		}
		return b.String()
	}
	if e.Row < 0 {
		return fmt.Sprintf("column %s: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("column %s: row %d: %s", e.Column, e.Row, e.Reason)
}

// Code is the stable error code.
func (e *ConstraintError) Code() string { return e.ErrorCode }

// Codes of a ConstraintError.
const (
	CodeNotNull = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED" // W-403
	CodeLength  = "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"    // W-405
)

// checkNotNull refuses nulls in NOT NULL columns and in NOT NULL fields of structs
// that are present (W-403).
func checkNotNull(s *schema.Struct, columns []arrow.Array) error {
	for i, f := range s.Fields {
		if err := notNull(f, columns[i], f.Name, nil); err != nil {
			return err
		}
	}
	return nil
}

// notNull checks field f in a; within tells which rows have the enclosing struct,
// nil meaning all.
func notNull(f schema.Field, a arrow.Array, path string, within []bool) error {
	if !f.Nullable && (a.NullN() > 0 || a.DataType().ID() == arrow.NULL && a.Len() > 0) {
		for i := range a.Len() {
			if (within == nil || within[i]) && a.IsNull(i) {
				return &ConstraintError{ErrorCode: CodeNotNull, Column: path, Row: int64(i), Reason: "null in a NOT NULL column"}
			}
		}
	}
	sub, ok := f.Type.(*schema.Struct)
	st, isStruct := a.(*array.Struct)
	if !ok || !isStruct || !hasNotNull(sub) {
		return nil
	}
	if a.NullN() > 0 {
		own := make([]bool, a.Len())
		for i := range own {
			own[i] = a.IsValid(i) && (within == nil || within[i])
		}
		within = own
	}
	for i, c := range sub.Fields {
		if err := notNull(c, st.Field(i), path+"."+c.Name, within); err != nil {
			return err
		}
	}
	return nil
}

func hasNotNull(s *schema.Struct) bool {
	for _, f := range s.Fields {
		if !f.Nullable {
			return true
		}
		if sub, ok := f.Type.(*schema.Struct); ok && hasNotNull(sub) {
			return true
		}
	}
	return false
}

// CheckNotNull refuses nulls in NOT NULL columns, fields of structs included. A NOT
// NULL field of a struct that is null counts as null, as in Spark, whose rewrites of
// such a row would fail.
func CheckNotNull(s *schema.Struct, columns []arrow.Array) error {
	for i, f := range s.Fields {
		if err := notNull(f, columns[i], f.Name, nil); err != nil {
			return err
		}
		if err := nullAround(f, columns[i], f.Name, nil); err != nil {
			return err
		}
	}
	return nil
}

// nullAround refuses a null struct with a NOT NULL field; absent tells in which rows
// a struct around f is null, nil meaning none.
func nullAround(f schema.Field, a arrow.Array, path string, absent []bool) error {
	sub, ok := f.Type.(*schema.Struct)
	st, isStruct := a.(*array.Struct)
	if !ok || !isStruct || !hasNotNull(sub) {
		return nil
	}
	if st.NullN() > 0 {
		own := make([]bool, st.Len())
		for i := range own {
			own[i] = st.IsNull(i) || absent != nil && absent[i]
		}
		absent = own
	}
	for i, c := range sub.Fields {
		at := path + "." + c.Name
		if !c.Nullable {
			for row := range absent {
				if absent[row] {
					return &ConstraintError{ErrorCode: CodeNotNull, Column: at, Row: int64(row), Reason: "null in a NOT NULL column (the struct around it is null)"}
				}
			}
		}
		if err := nullAround(c, st.Field(i), at, absent); err != nil {
			return err
		}
	}
	return nil
}

// ApplyLengths enforces char(n) and varchar(n) on the top-level columns of s in place
// (W-405): spaces beyond the limit are cut, other characters refused, char is padded.
func ApplyLengths(s *schema.Struct, columns []arrow.Array) error {
	for i, f := range s.Fields {
		c, err := applyLength(f, columns[i])
		if err != nil {
			return err
		}
		columns[i] = c
	}
	return nil
}

// applyLengths enforces char(n) and varchar(n) on top-level columns: spaces beyond
// the limit are cut, anything else beyond it is refused, char is padded. It returns
// a in place where nothing changes.
func applyLength(f schema.Field, a arrow.Array) (arrow.Array, error) {
	limit, char := schema.CharLimit(f)
	col, ok := a.(*array.String)
	if limit < 0 || !ok {
		a.Retain()
		return a, nil
	}
	size, changed := 0, false
	for i := range col.Len() {
		if col.IsNull(i) {
			continue
		}
		n, cut, spaces := fit(col.Value(i), limit, char)
		if n > limit {
			return nil, &ConstraintError{ErrorCode: CodeLength, Column: f.Name, Row: int64(i), Reason: fmt.Sprintf("%d characters, at most %d are allowed", n, limit)}
		}
		if size += len(cut) + spaces; spaces > maxPadding || size > maxPadded && spaces > 0 {
			return nil, &ConstraintError{ErrorCode: CodeLength, Column: f.Name, Row: int64(i),
				Reason: fmt.Sprintf("CHAR(%d) would add %d spaces to a value, which is more than is written; make the column VARCHAR or STRING", limit, spaces)}
		}
		changed = changed || spaces > 0 || len(cut) < len(col.Value(i))
	}
	if !changed {
		a.Retain()
		return a, nil
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(col.Len())
	b.ReserveData(size)
	var padded []byte
	for i := range col.Len() {
		if col.IsNull(i) {
			b.AppendNull()
			continue
		}
		_, cut, spaces := fit(col.Value(i), limit, char)
		padded = append(padded[:0], cut...)
		for range spaces {
			padded = append(padded, ' ')
		}
		b.BinaryBuilder.Append(padded)
	}
	return b.NewArray(), nil
}

// The limit of a CHAR column comes from the table's metadata, which anybody may have
// written: spaces added to one value, and the bytes of a batch that is padded.
const (
	maxPadding = 1 << 20
	maxPadded  = 256 << 20
)

// fit is a value of a column of limit characters: its length without the spaces beyond
// the limit, what of it is kept and how many spaces follow.
func fit(v string, limit int, char bool) (n int, cut string, spaces int) {
	n = utf8.RuneCountInString(v)
	switch {
	case n > limit:
		cut = strings.TrimRight(v, " ")
		if n = utf8.RuneCountInString(cut); n > limit {
			return n, v, 0
		}
		return n, cut, limit - n
	case char:
		return n, v, limit - n
	}
	return n, v, 0
}
