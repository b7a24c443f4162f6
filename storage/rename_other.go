//go:build unix && !linux && !darwin

package storage

import (
	"errors"
	"os"
)

// renameNoReplace: these systems have no such call; link(2) is the only way.
func renameNoReplace(from, to string) error {
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: errors.ErrUnsupported}
}
