package testtable

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Unpack extracts a .tar.zst archive into a fresh directory of the test and
// returns it. Modification times are those of the archive; macOS side files (._*)
// are left out.
func Unpack(tb testing.TB, archive string) string {
	tb.Helper()
	dir := tb.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	type stamp struct {
		path string
		at   time.Time
	}
	var stamps []stamp
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatalf("unpack %s: %v", archive, err)
		}
		if strings.HasPrefix(filepath.Base(h.Name), "._") || !filepath.IsLocal(filepath.FromSlash(h.Name)) {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeReg:
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = writeFile(path, r)
			}
			stamps = append(stamps, stamp{path, h.ModTime})
		}
		if err != nil {
			tb.Fatalf("unpack %s: %v", archive, err)
		}
	}
	for _, s := range stamps {
		if err := os.Chtimes(s.path, s.at, s.at); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func writeFile(path string, r io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
