package parquetio

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzOpenRead: no bytes make the reader panic or take memory that the file does
// not justify, and every failure has a class.
func FuzzOpenRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.parquet")
	for _, p := range files {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 8<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			classed(t, err)
			return
		}
		for g, rg := range file.RowGroups() {
			for c := range rg.Columns {
				if _, err := file.Pages(g, c); err != nil {
					classed(t, err)
				}
			}
		}
		want := knownColumns(file.Schema())
		for _, o := range []ReadOptions{{}, {Rows: []int64{0, 1, 5}}} {
			for len(o.Rows) > 0 && o.Rows[len(o.Rows)-1] >= file.NumRows() {
				o.Rows = o.Rows[:len(o.Rows)-1]
			}
			rows := int64(0)
			for batch, err := range file.Read(context.Background(), want, o) {
				if err != nil {
					var mismatch *TypeMismatchError
					if !errors.As(err, &mismatch) {
						classed(t, err)
					}
					break
				}
				// Values must be in reach: printing walks all of them.
				for _, c := range batch.Columns() {
					for i := range min(c.Len(), 100) {
						cell(c, i)
					}
				}
				if rows += batch.NumRows(); rows > 1<<16 {
					break
				}
			}
		}
	})
}

func classed(t *testing.T, err error) {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
		t.Fatalf("error without class: %v", err)
	}
}
