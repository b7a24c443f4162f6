package cdf

import (
	"fmt"

	deltalog "github.com/sluice-data/sluice/log"
)

// Codes of errors, Spark's where it has one.
const (
	CodeNoStart              = "DELTA_NO_START_FOR_CDC_READ"
	CodeMultipleBoundary     = "DELTA_MULTIPLE_CDC_BOUNDARY"
	CodeInvalidRange         = "DELTA_INVALID_CDC_RANGE"
	CodeStartAfterLatest     = "DELTA_CDC_START_VERSION_AFTER_LATEST"
	CodeTimeAfterLatest      = "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
	CodeTimeBeforeFirst      = "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
	CodeMissingChangeData    = "DELTA_MISSING_CHANGE_DATA"
	CodeIncompatibleChange   = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
	CodeIncompatibleSchema   = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
	CodeRemoveWithoutValues  = "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA"
	CodeInvalidChangeType    = "DELTA_INVALID_CHANGE_TYPE"
	CodeDuplicateFileActions = "DELTA_DUPLICATE_ACTIONS_FOUND"

	CodeStreamBoundary = "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET"
	CodeOtherTable     = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
	CodeSchemaChanged  = "DELTA_SCHEMA_CHANGED_WITH_VERSION"
	CodeLost           = "DELTA_MISSING_FILES_UNEXPECTED_VERSION"
	CodeIgnoreChanges  = "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
	CodeIgnoreDelete   = "DELTA_SOURCE_IGNORE_DELETE"
	CodePosition       = "STREAM_POSITION_INVALID"
)

// Error says why a range of the feed, or a stream, cannot be read.
type Error struct {
	ErrorCode string
	// Version is the version at fault, -1 if none is.
	Version int64
	// Path is the file at fault as the log names it, "" if none is.
	Path   string
	Reason string
	Cause  error
}

func (e *Error) Error() string {
	s := "read change feed: "
	if e.Version >= 0 {
		s += fmt.Sprintf("version %d: ", e.Version)
	}
	if e.Path != "" {
		s += "file " + e.Path + ": "
	}
	s += e.Reason
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Cause }

// Code is the stable error code.
func (e *Error) Code() string { return e.ErrorCode }

// Is answers the class: ErrNotFound for a range that the table does not reach,
// ErrCorrupt for a log or file that breaks the protocol, ErrUnsupported for changes
// that were not recorded or cannot be read as one schema, else ErrInvalid.
func (e *Error) Is(target error) bool {
	switch e.ErrorCode {
	case CodeStartAfterLatest, CodeTimeAfterLatest, CodeTimeBeforeFirst, CodeLost:
		return target == deltalog.ErrNotFound
	case CodeRemoveWithoutValues, CodeInvalidChangeType, CodeDuplicateFileActions:
		return target == deltalog.ErrCorrupt
	case CodeMissingChangeData, CodeIncompatibleChange, CodeIncompatibleSchema, CodeOtherTable, CodeIgnoreChanges, CodeIgnoreDelete:
		return target == deltalog.ErrUnsupported
	}
	return target == deltalog.ErrInvalid
}

func rangeError(code, format string, args ...any) error {
	return &Error{ErrorCode: code, Version: -1, Reason: fmt.Sprintf(format, args...)}
}
