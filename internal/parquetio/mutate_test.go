package parquetio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Damaged files end in a classed error or in rows, and take little memory.
func TestFile_ReadDamaged(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	r := rng(42)
	var before, after runtime.MemStats
	for _, path := range files {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		footer := len(good) - 8 - int(binary.LittleEndian.Uint32(good[len(good)-8:]))
		runtime.ReadMemStats(&before)
		for range 150 {
			b := bytes.Clone(good)
			for range 1 + r.next(3) {
				at := r.next(len(b))
				if r.next(3) == 0 {
					at = footer + r.next(len(b)-footer)
				}
				switch r.next(3) {
				case 0:
					b[at] ^= 1 << r.next(8)
				case 1:
					b[at] = byte(r.next(256))
				default:
					b[at] = 0xff
				}
			}
			drain(t, b)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 512<<20 {
			t.Errorf("%s: %d MiB allocated for %d bytes read 150 times", path, n>>20, len(good))
		}
		for n := 0; n < len(good); n += 1 + len(good)/40 {
			if _, err := Open(bytes.NewReader(good[:n]), int64(n)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut at %d: %v", path, n, err)
			}
			if _, err := Open(bytes.NewReader(good[:n]), int64(len(good))); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut at %d of its size: %v", path, n, err)
			}
		}
	}
}

func drain(t *testing.T, b []byte) {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		classed(t, err)
		return
	}
	rows := int64(0)
	for batch, err := range f.Read(context.Background(), knownColumns(f.Schema()), ReadOptions{}) {
		if err != nil {
			var mismatch *TypeMismatchError
			if !errors.As(err, &mismatch) {
				classed(t, err)
			}
			return
		}
		if rows += batch.NumRows(); rows > 1<<16 {
			return
		}
	}
}
