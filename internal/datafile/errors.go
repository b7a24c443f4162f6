package datafile

import (
	"context"
	"errors"
	"fmt"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/storage"
)

// Codes of a FileError.
const (
	CodeMissing     = "DATA_FILE_MISSING"
	CodeTruncated   = "DATA_FILE_TRUNCATED"
	CodeCorrupt     = "DATA_FILE_CORRUPT"
	CodeSchema      = "DATA_FILE_SCHEMA_MISMATCH"
	CodeUnsupported = "DATA_FILE_UNSUPPORTED"
	CodeVector      = "DELETION_VECTOR_CORRUPT"
	CodePath        = "DATA_FILE_PATH"
)

// FileError says why a file that the log names cannot be read (R-907: never an
// empty result).
type FileError struct {
	ErrorCode string
	Path      string // as in the log
	Reason    string
	Cause     error
}

func (e *FileError) Error() string {
	s := fmt.Sprintf("file %s: %s", e.Path, e.Reason)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Code is the stable error code.
func (e *FileError) Code() string { return e.ErrorCode }

func (e *FileError) Unwrap() error { return e.Cause }

// Is answers the class: ErrNotFound for a missing file, ErrUnsupported for what
// this version does not read, else ErrCorrupt.
func (e *FileError) Is(target error) bool {
	switch e.ErrorCode {
	case CodeMissing:
		return target == deltalog.ErrNotFound
	case CodeUnsupported, CodePath:
		return target == deltalog.ErrUnsupported
	}
	return target == deltalog.ErrCorrupt
}

// fileError gives an error of opening or reading a data file its code; faults of
// the store and of the caller's context stay what they are.
func fileError(path string, err error) error {
	var mismatch *parquetio.TypeMismatchError
	var known *FileError
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, storage.ErrNotFound):
		return &FileError{CodeMissing, path, "the log names it, but it is not there (was it removed by VACUUM, or by hand?)", err}
	case errors.As(err, &mismatch):
		return &FileError{CodeSchema, path, "its schema is not that of the table", err}
	case errors.Is(err, parquetio.ErrUnsupported):
		return &FileError{CodeUnsupported, path, "cannot be read", err}
	case errors.Is(err, parquetio.ErrCorrupt):
		return &FileError{CodeCorrupt, path, "is damaged", err}
	}
	return fmt.Errorf("read %s: %w", path, err)
}
