//go:build unix

package files

import (
	"fmt"
	"os"
	"syscall"
)

// fileID is device and inode.
func fileID(st os.FileInfo) string {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d-%d", s.Dev, s.Ino)
	}
	return ""
}
