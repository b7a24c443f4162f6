package rowio

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Form is one way to write rows.
type Form string

// The forms. Table and JSON are only written, never read.
const (
	Table   Form = "table"
	JSONL   Form = "jsonl"
	JSON    Form = "json"
	CSV     Form = "csv"
	Parquet Form = "parquet"
	Arrow   Form = "arrow"
)

// ParseForm reads the name of an output form.
func ParseForm(name string) (Form, error) {
	switch f := Form(name); f {
	case Table, JSONL, JSON, CSV, Parquet, Arrow:
		return f, nil
	}
	return "", fmt.Errorf("output form %q: expected table, jsonl, json, csv, parquet or arrow", name)
}

// InputForm is the form of an input file by its name, compression suffixes
// aside. ok is false when the name does not tell.
func InputForm(name string) (f Form, ok bool) {
	name = strings.ToLower(path.Base(strings.ReplaceAll(name, "\\", "/")))
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	switch path.Ext(name) {
	case ".jsonl", ".ndjson", ".json":
		return JSONL, true
	case ".csv":
		return CSV, true
	case ".parquet":
		return Parquet, true
	case ".arrow", ".arrows", ".ipc", ".feather":
		return Arrow, true
	}
	return "", false
}

// ErrInvalid is the class of every [*Error].
var ErrInvalid = errors.New("invalid input data")

// Codes of [*Error].
const (
	CodeInvalidJSON     = "INVALID_JSON"
	CodeInvalidCSV      = "INVALID_CSV"
	CodeInvalidArrow    = "INVALID_ARROW"
	CodeInvalidParquet  = "INVALID_PARQUET"
	CodeTypeMismatch    = "TYPE_MISMATCH"
	CodeUnknownColumn   = "UNKNOWN_COLUMN"
	CodeDuplicateColumn = "DUPLICATE_COLUMN"
	CodeNotNull         = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
	CodeUnknownForm     = "UNKNOWN_INPUT_FORM"
)

// Error says which input row cannot be read and why.
type Error struct {
	ErrorCode string
	File      string
	// Line is the 1-based line of text inputs, Row the 1-based row of the others; 0 = unknown.
	Line, Row int64
	Column    string // dotted path, "" when it is not about one
	Reason    string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Column != "" {
		fmt.Fprintf(&b, "column %s: ", e.Column)
	}
	b.WriteString(e.Reason)
	if w := e.Where(); w != "" {
		b.WriteString(": ")
		b.WriteString(w)
	}
	return b.String()
}

// Where is the place of the fault in the input.
func (e *Error) Where() string {
	switch {
	case e.Line > 0 && strings.ContainsRune(e.File, ' '):
		return fmt.Sprintf("%s line %d", e.File, e.Line)
	case e.Line > 0 && e.File != "":
		return fmt.Sprintf("%s:%d", e.File, e.Line)
	case e.Line > 0:
		return fmt.Sprintf("line %d", e.Line)
	case e.Row > 0 && e.File != "":
		return fmt.Sprintf("%s row %d", e.File, e.Row)
	case e.Row > 0:
		return fmt.Sprintf("row %d", e.Row)
	}
	return e.File
}

// Code is the stable error code.
func (e *Error) Code() string { return e.ErrorCode }

// Is answers the class.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// fault is an Error before it knows its place.
func fault(code, column, format string, args ...any) *Error {
	return &Error{ErrorCode: code, Column: column, Reason: fmt.Sprintf(format, args...)}
}

// quote shows a piece of hostile input in a message, cut to a readable length.
func quote(b []byte) string {
	const most = 40
	if len(b) > most {
		return fmt.Sprintf("%q...", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
