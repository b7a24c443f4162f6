package sql

import (
	"fmt"
	"slices"
	"strings"
)

// The codes of auto-cdc 1.6 that statements and source schemas decide.
const (
	CodeSyntax                = "PARSE_SYNTAX_ERROR"
	CodeDuplicateClause       = "AUTOCDC_DUPLICATE_CLAUSE"
	CodeCreateOptions         = "AUTOCDC_CONFLICTING_CREATE_OPTIONS"
	CodeMultipart             = "AUTOCDC_MULTIPART_COLUMN_IDENTIFIER"
	CodeUnsupportedClause     = "UNSUPPORTED_CLAUSE"
	CodeEmptyKeys             = "AUTOCDC_EMPTY_KEYS"
	CodeColumnsNotFound       = "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA"
	CodeDuplicateColumn       = "AUTOCDC_DUPLICATE_COLUMN"
	CodeKeyNotSelected        = "AUTOCDC_KEY_NOT_IN_SELECTED_SCHEMA"
	CodeKeyType               = "AUTOCDC_KEY_TYPE_NOT_SUPPORTED"
	CodeMissingSequence       = "AUTOCDC_MISSING_SEQUENCE_BY"
	CodeNotOrderable          = "AUTOCDC_SEQUENCING_COLUMN_NOT_ORDERABLE"
	CodeExpression            = "AUTOCDC_EXPRESSION_NOT_ALLOWED"
	CodeNotBoolean            = "AUTOCDC_CONDITION_NOT_BOOLEAN"
	CodeTruncate              = "AUTOCDC_TRUNCATE_REQUIRES_SCD1"
	CodeTrackHistory          = "AUTOCDC_TRACK_HISTORY_REQUIRES_SCD2"
	CodeSystemSequence        = "AUTOCDC_BITEMPORAL_SYSTEM_SEQUENCE"
	CodeIgnoreNullConflict    = "AUTOCDC_CONFLICTING_IGNORE_NULL_UPDATES_OPTIONS"
	CodeIgnoreNullEmpty       = "AUTOCDC_IGNORE_NULL_EMPTY_COLUMN_LIST"
	CodeSetTogether           = "CANNOT_SET_TOGETHER"
	CodeColumnsToUpdate       = "AUTOCDC_INVALID_COLUMNS_TO_UPDATE"
	CodeReservedPrefix        = "AUTOCDC_RESERVED_COLUMN_NAME_PREFIX_CONFLICT"
	CodeReservedName          = "AUTOCDC_RESERVED_COLUMN_NAME_CONFLICT"
	CodeNotStreaming          = "AUTOCDC_SOURCE_NOT_STREAMING"
	CodeInvalidTarget         = "AUTOCDC_INVALID_TARGET"
	CodeFlowConflict          = "AUTOCDC_FLOW_CONFLICT"
	CodeDeclaredSchema        = "AUTOCDC_DECLARED_SCHEMA_MISMATCH"
	CodeLayout                = "AUTOCDC_INVALID_LAYOUT"
	CodeExpectation           = "EXPECTATION_INVALID"
	CodeCommitVersionSequence = "AUTOCDC_CHANGELOG_REQUIRES_COMMIT_VERSION_SEQUENCING"
	CodeVersionNotSortable    = snapshotError + "SNAPSHOT_VERSION_NOT_SORTABLE"
	CodeTwoSnapshots          = snapshotError + "MULTIPLE_QUERIES_FOR_TABLE"
	CodeInteropKeys           = snapshotError + "INTEROP_KEYS_MISMATCH"
	CodeInteropIgnoreNull     = snapshotError + "INTEROP_IGNORE_NULL_UPDATES"
	CodeInteropStorage        = snapshotError + "INTEROP_SCD_TYPE_NOT_SUPPORTED"
	CodeInteropSequence       = snapshotError + "INTEROP_SEQUENCE_TYPE_MISMATCH"
	CodeVersionQuery          = "INVALID_AUTO_CDC_FROM_SNAPSHOT_VERSION_QUERY"
	CodeVersionFunction       = "INVALID_USAGE_OF_SNAPSHOT_VERSION_FUNCTION"

	snapshotError = "APPLY_CHANGES_FROM_SNAPSHOT_ERROR."
)

// Pos is a place in a text. Line and Col count from 1, Col in characters; the
// zero Pos is nowhere (a Go struct).
type Pos struct{ Line, Col int }

// Error is one problem of a statement.
type Error struct {
	Code string
	// Line and Col count from 1, Col in characters; both 0 for Go structs.
	Line, Col int
	Message   string // what is wrong
	Remedy    string // what to do; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Code + ": " + e.Message)
	if e.Line > 0 {
		fmt.Fprintf(&b, " at line %d, column %d", e.Line, e.Col)
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// Errors are all problems of a text, in text order; never empty.
type Errors []*Error

func (e Errors) Error() string {
	s := make([]string, len(e))
	for i, x := range e {
		s[i] = x.Error()
	}
	return strings.Join(s, "\n")
}

// Unwrap lets errors.As find the first [*Error].
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, x := range e {
		out[i] = x
	}
	return out
}

// problems collects errors.
type problems struct{ list Errors }

func (p *problems) add(at Pos, code, remedy, format string, args ...any) {
	p.list = append(p.list, &Error{Code: code, Line: at.Line, Col: at.Col, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// err is nil without problems; else they are in text order, each once.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	p.list = slices.CompactFunc(p.list, func(a, b *Error) bool { return *a == *b })
	return p.list
}
