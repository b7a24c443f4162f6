package delta_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

var sizeText = regexp.MustCompile(`"size":\d+,`)

// tree is every file below dir with its size and first bytes, to see that nothing
// changed.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		fmt.Fprintf(&b, "%s %d %x\n", p, len(data), data[:min(len(data), 64)])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestBadInput damages a table in every way the log or its files can be, and asks for
// a coded error of the right class and an untouched folder, for readers and writers.
func TestBadInput(t *testing.T) {
	commit := func(dir string, v int) string { return filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.json", v)) }
	dataFile := func(t *testing.T, dir string) string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
		if err != nil || len(files) == 0 {
			t.Fatal("no data file", err)
		}
		return files[0]
	}
	edit := func(t *testing.T, path string, f func(string) string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f(string(b))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		class  error
		reads  bool // reading fails; else only changes do
	}{
		{"R-101 not a table", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "_delta_log")); err != nil {
				t.Fatal(err)
			}
		}, delta.ErrNotFound, true},
		{"R-103 missing log file", func(t *testing.T, dir string) { remove(t, commit(dir, 0)) }, delta.ErrCorrupt, true},
		{"R-103 gap in versions", func(t *testing.T, dir string) { remove(t, commit(dir, 2)) }, delta.ErrCorrupt, true},
		{"R-110 truncated log file", func(t *testing.T, dir string) {
			edit(t, commit(dir, 3), func(s string) string { return s[:len(s)-40] })
		}, delta.ErrCorrupt, true},
		{"R-110 empty log file", func(t *testing.T, dir string) { edit(t, commit(dir, 0), func(string) string { return "" }) }, delta.ErrCorrupt, true},
		{"R-110 unparseable action", func(t *testing.T, dir string) {
			edit(t, commit(dir, 1), func(s string) string { return s + "{\"add\":{\"path\":7}}\n" })
		}, delta.ErrCorrupt, true},
		{"R-301 unknown reader feature", func(t *testing.T, dir string) {
			edit(t, commit(dir, 3), func(s string) string {
				return s + `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["shiny"],"writerFeatures":["shiny"]}}` + "\n"
			})
		}, delta.ErrUnsupported, true},
		{"W-301 unknown writer feature", func(t *testing.T, dir string) {
			edit(t, commit(dir, 3), func(s string) string {
				return s + `{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["shiny"]}}` + "\n"
			})
		}, delta.ErrUnsupported, false},
		{"data file is missing", func(t *testing.T, dir string) { remove(t, dataFile(t, dir)) }, delta.ErrNotFound, true},
		{"data file is shorter than its size", func(t *testing.T, dir string) {
			edit(t, dataFile(t, dir), func(s string) string { return s[:len(s)-1] })
		}, delta.ErrCorrupt, true},
		{"data file is empty", func(t *testing.T, dir string) { edit(t, dataFile(t, dir), func(string) string { return "" }) }, delta.ErrCorrupt, true},
		{"data file has another schema", func(t *testing.T, dir string) {
			other := testtable.New(t, testtable.Spec{DDL: "id STRING, v BIGINT", Store: local(t, t.TempDir()), Rows: []string{strings.Repeat(`{"id":"x","v":1}`, 50)}})
			s := other.Store().(*storage.Local)
			b, err := os.ReadFile(dataFile(t, s.Dir()))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, dataFile(t, dir), func(old string) string { return string(b) })
			edit(t, commit(dir, 1), func(s string) string { return sizeText.ReplaceAllString(s, fmt.Sprintf(`"size":%d,`, len(b))) })
			edit(t, commit(dir, 2), func(s string) string { return sizeText.ReplaceAllString(s, fmt.Sprintf(`"size":%d,`, len(b))) })
			edit(t, commit(dir, 3), func(s string) string { return sizeText.ReplaceAllString(s, fmt.Sprintf(`"size":%d,`, len(b))) })
		}, delta.ErrCorrupt, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			ddl := "id BIGINT, v STRING"
			testtable.New(t, testtable.Spec{DDL: ddl, Store: local(t, dir), Rows: []string{
				testtable.Numbers(0, 3, `,"v":"v%"`), testtable.Numbers(3, 6, `,"v":"v%"`), testtable.Numbers(6, 9, `,"v":"v%"`)}})
			tt.damage(t, dir)
			before := tree(t, dir)
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, tt.class) || codeOf(err) == "" {
					t.Errorf("%s: got %v, want an error of class %q with a code", what, err, tt.class)
				}
			}
			tb, err := delta.Open(ctx, local(t, dir), delta.Options{})
			if err != nil {
				if !tt.reads {
					t.Fatal(err)
				}
				check("open", err)
			} else {
				if tt.reads {
					check("scan", scanError(tb))
				} else if err := scanError(tb); err != nil {
					t.Errorf("scan: %v", err)
				}
				_, err = tb.Update(ctx, "v = 'x'", "id >= 0", delta.DMLOptions{})
				check("update", err)
				_, err = tb.Delete(ctx, "v <> ''", delta.DMLOptions{})
				check("delete", err)
				if !tt.reads {
					_, err = tb.Append(ctx, testtable.Rows(t, ddl, `{"id":1}`), delta.WriteOptions{})
					check("append", err)
					_, err = tb.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":1}`), delta.OverwriteOptions{})
					check("overwrite", err)
					_, err = tb.SetProperties(ctx, map[string]string{"delta.enableChangeDataFeed": "true"}, delta.PropertyOptions{})
					check("set properties", err)
					_, err = tb.Checkpoint(ctx)
					check("checkpoint", err)
				}
			}
			if after := tree(t, dir); after != before {
				t.Errorf("the folder changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

func scanError(tb *delta.Table) error {
	s, err := tb.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		return err
	}
	for _, err := range s.Batches(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestBadInput_Checkpoint: a hint that names a checkpoint that is not there, or
// disagrees with it, is only a lost shortcut.
func TestBadInput_Checkpoint(t *testing.T) {
	for name, hint := range map[string]string{
		"R-105 version that does not exist": `{"version":77,"size":3}`,
		"R-105 other size and parts":        `{"version":2,"size":999,"parts":4}`,
		"R-105 not JSON":                    `{"version":`,
		"R-105 wrong checksum":              `{"version":2,"size":5,"checksum":"00000000000000000000000000000000"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := storage.NewMemory("h")
			testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: s, Properties: map[string]string{"delta.checkpointInterval": "2"}, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`}})
			if err := s.Put(ctx, "_delta_log/_last_checkpoint", []byte(hint)); err != nil {
				t.Fatal(err)
			}
			tb, err := delta.Open(ctx, s, delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`, `{"id":3}`)
		})
	}
}

// TestBadInput_ReadOnlyFolder: a folder that may not be written to.
func TestBadInput_ReadOnlyFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("the superuser may write everywhere; TestTable_FullDisk has the same fault from a store")
	}
	dir := t.TempDir()
	testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: local(t, dir), Rows: []string{`{"id":1}`}})
	for _, d := range []string{dir, filepath.Join(dir, "_delta_log")} {
		if err := os.Chmod(d, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(d, 0o755) })
	}
	tb, err := delta.Open(ctx, local(t, dir), delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantRows(t, tb, delta.ScanOptions{}, `{"id":1}`)
	if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":2}`), delta.WriteOptions{}); !errors.Is(err, storage.ErrPermission) {
		t.Errorf("append: got %v", err)
	}
	if _, err := tb.Delete(ctx, "", delta.DMLOptions{}); !errors.Is(err, storage.ErrPermission) {
		t.Errorf("delete: got %v", err)
	}
}
