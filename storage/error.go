package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Error is what a store returns when an operation fails: where, which class,
// and the cause below it. errors.Is matches Class and everything in Err.
type Error struct {
	Op    string // "head", "open", "read", "create", "put", "write", "close", "list", "delete"
	Root  string // Store.URL
	Key   string // as the caller gave it
	Class error  // one of the sentinels of this package, or nil for none of them
	Err   error  // the cause; nil if the class says it all
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op + " " + e.Root + e.Key)
	if e.Class != nil {
		b.WriteString(": " + e.Class.Error())
	}
	if e.Err != nil && (e.Class == nil || e.Err.Error() != e.Class.Error()) {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives class and cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var out []error
	if e.Class != nil {
		out = append(out, e.Class)
	}
	if e.Err != nil {
		out = append(out, e.Err)
	}
	return out
}

// wrapOS makes an Error of what the operating system said. The path in it is
// dropped: it repeats root and key, or names a temporary file.
func wrapOS(op, root, key string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var already *Error
	if errors.As(err, &already) {
		return err
	}
	class := classify(err)
	var pe *fs.PathError
	var le *os.LinkError
	var se *os.SyscallError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	case errors.As(err, &se):
		err = se.Err
	}
	return &Error{Op: op, Root: root, Key: key, Class: class, Err: err}
}

// classify names the class of an operating system error, or nil.
func classify(err error) error {
	for _, c := range []error{ErrNotFound, ErrExists, ErrAmbiguous, ErrTransient, ErrInvalidKey, ErrPermission, ErrNoSpace} {
		if errors.Is(err, c) {
			return nil // it answers for itself
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	case errors.Is(err, fs.ErrPermission):
		return ErrPermission
	}
	return classifyErrno(err)
}
