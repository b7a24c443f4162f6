package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/windows"
)

func classifyErrno(err error) error {
	var no windows.Errno
	if !errors.As(err, &no) {
		return nil
	}
	switch no {
	case windows.ERROR_DIRECTORY:
		return ErrNotFound
	case windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL:
		return ErrNoSpace
	case windows.ERROR_WRITE_PROTECT:
		return ErrPermission
	case windows.ERROR_FILENAME_EXCED_RANGE, windows.ERROR_INVALID_NAME:
		return ErrInvalidKey
	case windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION, windows.ERROR_TOO_MANY_OPEN_FILES:
		return ErrTransient
	}
	return nil
}

// osForbids names keys that Windows would take for something else.
func osForbids(key string) bool { return strings.ContainsAny(key, `\:*?"<>|`) }

// linkUnsupported: hard links exist on NTFS only, so the exclusive move that
// every Windows file system has decides instead.
func linkUnsupported(err error) bool { return !errors.Is(err, fs.ErrExist) }

// renameNoReplace moves, failing with ERROR_ALREADY_EXISTS if the name is taken;
// WRITE_THROUGH returns when the move is on disk.
func renameNoReplace(from, to string) error {
	f, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	t, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	if err := windows.MoveFileEx(f, t, windows.MOVEFILE_WRITE_THROUGH); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// syncDir: Windows has no such call; names are journalled with the file.
func syncDir(string) error { return nil }

func etag(fi fs.FileInfo) string {
	return fmt.Sprintf("%x-%x", fi.Size(), fi.ModTime().UnixNano())
}
