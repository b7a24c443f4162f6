package invariants

import (
	"errors"
	"fmt"
)

// ErrBroken is the class of errors that Assert returns: a bug of sluice, never
// bad input.
var ErrBroken = errors.New("internal invariant broken")

// Assert returns nil if cond holds, else an error that is ErrBroken with the
// formatted message; in builds with the tag "invariants" it panics instead.
func Assert(cond bool, format string, args ...any) error {
	if cond {
		return nil
	}
	err := fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
	broken(err)
	return err
}
