package parquetio

import (
	"errors"
	"fmt"
)

// Classes of errors that bytes of a file can cause. Errors of the underlying
// io.ReaderAt are passed on unchanged and are none of these.
var (
	// ErrCorrupt marks a file whose bytes contradict themselves or the format.
	ErrCorrupt = errors.New("corrupt parquet file")
	// ErrNotParquet marks a file without the Parquet magic; it is an ErrCorrupt too.
	ErrNotParquet = fmt.Errorf("not a parquet file: %w", ErrCorrupt)
	// ErrUnsupported marks a legal file that uses what this package does not
	// read: encryption, external column chunks, the LZO codec, timestamps of the
	// old calendar in an unknown zone.
	ErrUnsupported = errors.New("unsupported parquet file")
)

// TypeMismatchError says that a column of the file cannot be read as the wanted
// type without loss.
type TypeMismatchError struct {
	Column   string // dotted path of the wanted column
	FileType string // physical and logical type in the file
	Want     string // wanted type, DDL form
}

func (e *TypeMismatchError) Error() string {
	return fmt.Sprintf("column %s: file has %s, want %s", e.Column, e.FileType, e.Want)
}

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}
