//go:build unix

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

func classifyErrno(err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return nil
	}
	switch no {
	case syscall.ENOTDIR:
		return ErrNotFound
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		return ErrNoSpace
	case syscall.EROFS, syscall.EACCES, syscall.EPERM:
		return ErrPermission
	case syscall.ENAMETOOLONG, syscall.EILSEQ:
		return ErrInvalidKey
	case syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.ESTALE, syscall.ETIMEDOUT,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return ErrTransient
	}
	return nil
}

// osForbids: every valid key is a path on a Unix system.
func osForbids(string) bool { return false }

// linkUnsupported says whether link(2) failed because the file system has no
// hard links, as opposed to failing for this file. EPERM is how vfat says it.
func linkUnsupported(err error) bool {
	for _, no := range []syscall.Errno{syscall.EPERM, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EMLINK, syscall.EXDEV} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// syncDir makes names in dir durable. File systems that cannot sync a directory
// say EINVAL or ENOTSUP; there is nothing more to be done on them.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

func etag(fi fs.FileInfo) string {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%x-%x-%x-%x", uint64(st.Dev), uint64(st.Ino), fi.Size(), fi.ModTime().UnixNano())
	}
	return fmt.Sprintf("%x-%x", fi.Size(), fi.ModTime().UnixNano())
}
