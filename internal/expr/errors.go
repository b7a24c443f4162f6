package expr

import (
	"fmt"
	"strings"
)

// Stable codes of problems with an expression; where Spark has a name it is used.
const (
	CodeSyntax           = "PARSE_SYNTAX_ERROR"
	CodeTooDeep          = "EXPRESSION_TOO_DEEP"
	CodeUnresolvedColumn = "UNRESOLVED_COLUMN"
	CodeUnknownFunction  = "UNRESOLVED_ROUTINE"
	CodeTypeMismatch     = "DATATYPE_MISMATCH"
	CodeArgumentCount    = "WRONG_NUM_ARGS"
	CodeNonDeterministic = "NON_DETERMINISTIC_EXPRESSION"
	CodeNotAllowed       = "EXPRESSION_NOT_ALLOWED"
	CodeInvalidLiteral   = "INVALID_LITERAL"
	CodeOverflow         = "ARITHMETIC_OVERFLOW"
	CodeDivideByZero     = "DIVIDE_BY_ZERO"
	CodeInvalidCast      = "CAST_INVALID_INPUT"
	CodeCastOverflow     = "CAST_OVERFLOW"
	CodeOutOfRange       = "NUMERIC_VALUE_OUT_OF_RANGE"
	CodeArrayIndex       = "INVALID_ARRAY_INDEX"
	CodeInvalidArgument  = "INVALID_PARAMETER_VALUE"
	CodeBatchMismatch    = "BATCH_SCHEMA_MISMATCH"
)

// Pos is a place in the text of an expression. Line and Col count from 1, Col in
// characters; Offset counts bytes from 0.
type Pos struct{ Offset, Line, Col int }

func (p Pos) String() string { return fmt.Sprintf("line %d, column %d", p.Line, p.Col) }

// SyntaxError says where a text stops being an expression.
type SyntaxError struct {
	Pos  Pos
	Msg  string
	code string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("parse expression: %s at %s", e.Msg, e.Pos)
}

// Code is [CodeSyntax], [CodeTooDeep] or [CodeInvalidLiteral].
func (e *SyntaxError) Code() string {
	if e.code != "" {
		return e.code
	}
	return CodeSyntax
}

// Problem is one reason why an expression does not fit a schema.
type Problem struct {
	Code string
	Pos  Pos
	Msg  string
}

// BindError lists every problem found while binding, in text order; it has at
// least one.
type BindError struct{ Problems []Problem }

func (e *BindError) Error() string {
	var b strings.Builder
	b.WriteString("bind expression: ")
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Msg)
		if p.Pos.Line > 0 { // an expression that nobody wrote has no place
			b.WriteString(" at " + p.Pos.String())
		}
	}
	return b.String()
}

// Code is the code of the first problem.
func (e *BindError) Code() string { return e.Problems[0].Code }

// EvalError is a failure of one row. Row is the row in the batch, -1 where the
// failure concerns the batch as a whole.
type EvalError struct {
	CodeName string
	Pos      Pos
	Msg      string
	Row      int
}

func (e *EvalError) Error() string {
	if e.Row < 0 {
		return "evaluate expression: " + e.Msg
	}
	return fmt.Sprintf("evaluate expression: row %d: %s at %s", e.Row, e.Msg, e.Pos)
}

// Code is one of the Code constants.
func (e *EvalError) Code() string { return e.CodeName }
