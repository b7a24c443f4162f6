//go:build !unix

package files

import "os"

// fileID has no cheap form here; size and time stand alone.
func fileID(os.FileInfo) string { return "" }
