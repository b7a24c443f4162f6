package deltalog

import (
	"errors"
	"fmt"
	"strings"
)

// Classes of errors. Test with errors.Is; the typed errors below carry the facts.
var (
	// ErrNotFound: no table, no such version, a file the log needs is gone.
	ErrNotFound = errors.New("not found")
	// ErrUnsupported: the table uses a feature that this version does not know.
	ErrUnsupported = errors.New("not supported")
	// ErrCorrupt: the log breaks the protocol.
	ErrCorrupt = errors.New("corrupt")
	// ErrInvalid: the caller asked for something that is never right.
	ErrInvalid = errors.New("invalid")
	// ErrConflict: a concurrent commit changed what this transaction relied on.
	ErrConflict = errors.New("concurrent modification")
)

// Coder is an error with a stable code, Spark's where the protocol checklist names one.
type Coder interface{ Code() string }

// NotFoundError: the table, version, timestamp or file is not there.
type NotFoundError struct {
	ErrorCode string
	// Version is the version asked for, -1 if none was.
	Version int64
	Reason  string
}

func (e *NotFoundError) Error() string        { return e.Reason }
func (e *NotFoundError) Code() string         { return e.ErrorCode }
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// CorruptError: a file of the log, or the log as a whole, is damaged.
type CorruptError struct {
	ErrorCode string
	// File is the key of the file, "" when a missing file is the fault.
	File string
	// Line counts from 1; 0 when the fault is not in one line.
	Line   int
	Reason string
	Cause  error
}

func (e *CorruptError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, " line %d", e.Line)
		}
		b.WriteString(": ")
	}
	b.WriteString(clipped(e.Reason))
	if e.Cause != nil {
		b.WriteString(": " + clipped(e.Cause.Error()))
	}
	return b.String()
}

// clipped bounds what a damaged file can put into a message.
func clipped(s string) string {
	const limit = 1000
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + fmt.Sprintf("... (%d bytes)", len(s))
}

func (e *CorruptError) Code() string         { return e.ErrorCode }
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
func (e *CorruptError) Unwrap() error        { return e.Cause }

// UnsupportedError lists everything that keeps this version from Op.
type UnsupportedError struct {
	ErrorCode string
	Op        Op
	// Features are the names as the table spells them, or "delta.key=value" where a
	// property is what is not supported.
	Features                           []string
	MinReaderVersion, MinWriterVersion int
	Reason                             string
}

func (e *UnsupportedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cannot %s the table", e.Op)
	if len(e.Features) > 0 {
		fmt.Fprintf(&b, ": not supported: %s", strings.Join(e.Features, ", "))
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	fmt.Fprintf(&b, " (protocol reader %d, writer %d)", e.MinReaderVersion, e.MinWriterVersion)
	return b.String()
}

func (e *UnsupportedError) Code() string         { return e.ErrorCode }
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// InvalidError: the request breaks a rule of the protocol whatever the table is.
type InvalidError struct {
	ErrorCode string
	// Rule is the item of the checklist, for example W-206.
	Rule   string
	Reason string
	Cause  error
}

func (e *InvalidError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", e.Reason, e.Cause)
	}
	return e.Reason
}

func (e *InvalidError) Code() string         { return e.ErrorCode }
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
func (e *InvalidError) Unwrap() error        { return e.Cause }

// ConflictKind names the exception of the reference implementation.
type ConflictKind string

// The kinds of conflict.
const (
	ProtocolChanged        ConflictKind = "ProtocolChanged"
	MetadataChanged        ConflictKind = "MetadataChanged"
	ConcurrentTransaction  ConflictKind = "ConcurrentTransaction"
	ConcurrentAppend       ConflictKind = "ConcurrentAppend"
	ConcurrentDeleteRead   ConflictKind = "ConcurrentDeleteRead"
	ConcurrentDeleteDelete ConflictKind = "ConcurrentDeleteDelete"
	ConcurrentWrite        ConflictKind = "ConcurrentWrite"
)

var conflictCodes = map[ConflictKind]string{
	ProtocolChanged: "DELTA_PROTOCOL_CHANGED", MetadataChanged: "DELTA_METADATA_CHANGED",
	ConcurrentTransaction: "DELTA_CONCURRENT_TRANSACTION", ConcurrentAppend: "DELTA_CONCURRENT_APPEND",
	ConcurrentDeleteRead: "DELTA_CONCURRENT_DELETE_READ", ConcurrentDeleteDelete: "DELTA_CONCURRENT_DELETE_DELETE",
	ConcurrentWrite: "DELTA_CONCURRENT_WRITE",
}

// ConflictError: a winner's commit and this one cannot both stand (C-41).
type ConflictError struct {
	Kind ConflictKind
	// Rule is the check that failed, C-11 to C-28, or W-125 when attempts ran out.
	Rule string
	// WinnerVersion, Operation and WinnerTime describe the winning commit;
	// WinnerTime is its commitInfo.timestamp in ms since 1970, 0 if absent.
	WinnerVersion int64
	Operation     string
	WinnerTime    int64
	// Path is the file, appId or domain both touch, if one is.
	Path string
}

func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): version %d", e.Kind, e.Rule, e.WinnerVersion)
	if e.Operation != "" {
		fmt.Fprintf(&b, " (%s)", e.Operation)
	}
	b.WriteString(" was committed first")
	if e.Path != "" {
		fmt.Fprintf(&b, " and touches %s", e.Path)
	}
	return b.String()
}

func (e *ConflictError) Code() string         { return conflictCodes[e.Kind] }
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }
