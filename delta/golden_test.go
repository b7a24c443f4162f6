package delta_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func local(t testing.TB, dir string) storage.Store {
	t.Helper()
	s, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// parquetLines is the rows of all Parquet files in a directory, read with the wanted
// schema.
func parquetLines(t *testing.T, dir string, want *schema.Struct) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		pf, err := parquetio.Open(f, st.Size())
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range pf.Read(context.Background(), want, parquetio.ReadOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, testtable.BatchLines(b.RecordBatch)...)
		}
	}
	sort.Strings(out)
	return out
}

// golden says what else than equal rows is right for a table of golden/reads.
type golden struct {
	open error // class of the error of Open
	scan error // class of the error of reading: tables of which only the log exists
	sub  bool  // several tables below delta/
	zone string
}

var goldenReads = map[string]golden{
	"deltalog-state-reconstruction-from-checkpoint-missing-metadata": {open: delta.ErrCorrupt},
	"deltalog-state-reconstruction-from-checkpoint-missing-protocol": {open: delta.ErrCorrupt},
	"deltalog-state-reconstruction-without-protocol":                 {open: delta.ErrCorrupt},
	"data-reader-absolute-paths-escaped-chars":                       {open: delta.ErrCorrupt}, // no metaData
	"versions-not-contiguous":                                        {open: delta.ErrCorrupt},
	"checkpoint":                                                     {scan: delta.ErrNotFound},
	"deltalog-commit-info":                                           {scan: delta.ErrNotFound}, // empty schema
	"update-deleted-directory":                                       {scan: delta.ErrNotFound}, // empty schema
	"hive":                                                           {sub: true},
	"data-reader-date-types-America":                                 {zone: "America/Los_Angeles"},
	"data-reader-date-types-Asia":                                    {zone: "Asia/Beirut"},
	"data-reader-date-types-Iceland":                                 {zone: "Iceland"},
	"data-reader-date-types-Jst":                                     {zone: "Japan"},
}

// TestGoldenReads reads every table of shared/golden/reads: rows equal to Spark's, or
// the error that its damage calls for.
func TestGoldenReads(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "reads")
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.zst"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives in %s: %v", dir, err)
	}
	for _, a := range archives {
		name := strings.TrimSuffix(filepath.Base(a), ".tar.zst")
		t.Run(name, func(t *testing.T) {
			g := goldenReads[name]
			root := filepath.Join(testtable.Unpack(t, a), name)
			if !g.sub {
				readGolden(t, g, filepath.Join(root, "delta"), filepath.Join(root, "expected"))
				return
			}
			tables, err := os.ReadDir(filepath.Join(root, "delta"))
			if err != nil || len(tables) == 0 {
				t.Fatal(err)
			}
			for _, sub := range tables {
				t.Run(sub.Name(), func(t *testing.T) {
					// These have no expected rows: what can be checked is that every file reads.
					tb, err := delta.Open(ctx, local(t, filepath.Join(root, "delta", sub.Name())), delta.Options{})
					if err != nil {
						t.Fatal(err)
					}
					testtable.Read(t, tb, delta.ScanOptions{})
				})
			}
		})
	}
}

func readGolden(t *testing.T, g golden, dir, expected string) {
	var o delta.Options
	if g.zone != "" {
		loc, err := time.LoadLocation(g.zone)
		if err != nil {
			t.Skipf("time zone database: %v", err)
		}
		o.TimeZone = loc
	}
	tb, err := delta.Open(ctx, local(t, dir), o)
	if g.open != nil {
		if !errors.Is(err, g.open) || codeOf(err) == "" {
			t.Errorf("open: got %v, want an error of class %q with a code", err, g.open)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := tb.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for b, err := range s.Batches(ctx) {
		if g.scan != nil {
			if !errors.Is(err, g.scan) || codeOf(err) == "" {
				t.Errorf("scan: got %v, want an error of class %q with a code", err, g.scan)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, testtable.BatchLines(b)...)
	}
	if g.scan != nil {
		t.Error("scan: no error")
	}
	sort.Strings(got)
	if d := testtable.Diff(got, parquetLines(t, expected, s.Schema())); d != "" {
		t.Error(d)
	}
	if n, err := s.Count(ctx); err != nil || n != int64(len(got)) {
		t.Errorf("count: %d %v, want %d", n, err, len(got))
	}
}
