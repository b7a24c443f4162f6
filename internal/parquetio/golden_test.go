package parquetio

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// parquetFiles returns the Parquet files of an archive by name.
func parquetFiles(tb testing.TB, path string) map[string][]byte {
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			tb.Fatal(err)
		}
		if strings.HasSuffix(h.Name, ".parquet") && h.Size > 0 {
			if files[h.Name], err = io.ReadAll(r); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// Tables whose rows are just those of their data files, partition columns aside.
var plainTables = []string{
	"124-decimal-decode-bug", "basic-decimal-table", "data-reader-array-complex-objects", "data-reader-date-types-America",
	"data-reader-date-types-utc", "data-reader-nested-struct", "data-reader-primitives", "data-reader-timestamp_ntz",
	"decimal-various-scale-precision", "kernel-timestamp-int96", "kernel-timestamp-timestamp_micros",
	"kernel-timestamp-timestamp_millis", "parquet-all-types-legacy-format",
}

// Files of Spark and others: each can be read by its own schema, checkpoints
// included, in one piece and row by row; data files hold the expected rows.
func TestFile_ReadGolden(t *testing.T) {
	dir := testenv.SharedDir(t, "golden")
	count := 0
	for _, kind := range []string{"reads", "features", "cdf", "spark"} {
		archives, err := filepath.Glob(filepath.Join(dir, kind, "*.tar.zst"))
		if err != nil || len(archives) == 0 {
			t.Fatal("no archives in", kind, err)
		}
		for _, a := range archives {
			name := strings.TrimSuffix(filepath.Base(a), ".tar.zst")
			t.Run(kind+"/"+name, func(t *testing.T) {
				files := parquetFiles(t, a)
				for _, b := range files {
					f := openBytes(t, b)
					s := knownColumns(f.Schema())
					all := readAll(t, f, s, ReadOptions{})
					rows := []int64{}
					for i := int64(0); i < f.NumRows(); i += 3 {
						rows = append(rows, i)
					}
					if len(rows) < 500 {
						sameBatch(t, readAll(t, f, s, ReadOptions{Rows: rows, BatchRows: 11}), take(t, all, rows))
					}
					f.RowGroups()
					count++
				}
				if kind == "reads" && slices.Contains(plainTables, name) {
					compareExpected(t, files)
				}
			})
		}
	}
	t.Logf("%d files", count)
}

func knownColumns(s *schema.Struct) *schema.Struct {
	out := &schema.Struct{}
	for _, f := range s.Fields {
		if _, err := schema.ArrowType(f.Type); err == nil {
			out.Fields = append(out.Fields, f)
		}
	}
	return out
}

func compareExpected(t *testing.T, files map[string][]byte) {
	var want *schema.Struct
	inFiles := map[string]bool{}
	for path, b := range files {
		if strings.Contains(path, "/expected/") {
			want = openBytes(t, b).Schema()
		} else {
			for _, n := range openBytes(t, b).Schema().Names() {
				inFiles[n] = true
			}
		}
	}
	if want == nil {
		t.Fatal("no expected rows")
	}
	project := &schema.Struct{}
	for _, f := range want.Fields {
		if inFiles[f.Name] {
			project.Fields = append(project.Fields, f)
		}
	}
	var exp, got []string
	for path, b := range files {
		rows := readAll(t, openBytes(t, b), project, ReadOptions{})
		for i := range int(rows.NumRows()) {
			line := fmt.Sprint(row(rows, i))
			if strings.Contains(path, "/expected/") {
				exp = append(exp, line)
			} else if !strings.Contains(path, "_delta_log") {
				got = append(got, line)
			}
		}
	}
	slices.Sort(exp)
	slices.Sort(got)
	if len(exp) == 0 || !slices.Equal(exp, got) {
		t.Fatalf("got %d rows %.2000s\nwant %d rows %.2000s", len(got), got, len(exp), exp)
	}
}
