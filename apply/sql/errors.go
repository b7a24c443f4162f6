package sql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
)

// The codes of auto-cdc 1.6 that statements and source schemas decide; package apply
// holds all of them.
const (
	CodeSyntax                = apply.CodeSyntax
	CodeDuplicateClause       = apply.CodeDuplicateClause
	CodeCreateOptions         = apply.CodeCreateOptions
	CodeMultipart             = apply.CodeMultipart
	CodeUnsupportedClause     = apply.CodeUnsupportedClause
	CodeEmptyKeys             = apply.CodeEmptyKeys
	CodeColumnsNotFound       = apply.CodeColumnsNotFound
	CodeDuplicateColumn       = apply.CodeDuplicateColumn
	CodeKeyNotSelected        = apply.CodeKeyNotSelected
	CodeKeyType               = apply.CodeKeyType
	CodeMissingSequence       = apply.CodeMissingSequence
	CodeNotOrderable          = apply.CodeSequenceNotOrderable
	CodeExpression            = apply.CodeExpressionNotAllowed
	CodeNotBoolean            = apply.CodeConditionNotBoolean
	CodeTruncate              = apply.CodeTruncateRequiresSCD1
	CodeTrackHistory          = apply.CodeTrackHistoryRequiresSCD2
	CodeSystemSequence        = apply.CodeBitemporalSystemSequence
	CodeIgnoreNullConflict    = apply.CodeConflictingIgnoreNull
	CodeIgnoreNullEmpty       = apply.CodeIgnoreNullEmptyList
	CodeSetTogether           = apply.CodeCannotSetTogether
	CodeColumnsToUpdate       = apply.CodeInvalidColumnsToUpdate
	CodeReservedPrefix        = apply.CodeReservedPrefix
	CodeReservedName          = apply.CodeReservedColumn
	CodeNotStreaming          = apply.CodeNotStreaming
	CodeInvalidTarget         = apply.CodeInvalidTarget
	CodeFlowConflict          = apply.CodeFlowConflict
	CodeDeclaredSchema        = apply.CodeDeclaredSchema
	CodeLayout                = apply.CodeInvalidLayout
	CodeExpectation           = apply.CodeExpectationInvalid
	CodeCommitVersionSequence = apply.CodeCommitVersionSequence
	CodeVersionNotSortable    = apply.CodeSnapshotNotSortable
	CodeTwoSnapshots          = apply.CodeTwoSnapshots
	CodeInteropKeys           = apply.CodeInteropKeys
	CodeInteropIgnoreNull     = apply.CodeInteropIgnoreNull
	CodeInteropStorage        = apply.CodeInteropStorage
	CodeInteropSequence       = apply.CodeInteropSequence
	CodeVersionQuery          = apply.CodeSnapshotVersionQuery
	CodeVersionFunction       = apply.CodeVersionFunction
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
