package delta_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
)

// expectedTable is NAME.expected.json of golden/spark and golden/features.
type expectedTable struct {
	PathInArchive string                     `json:"path_in_archive"`
	Note          string                     `json:"note"`
	Count         int64                      `json:"count"`
	Rows          []map[string]any           `json:"rows"`
	Versions      map[string]expectedVersion `json:"versions"`
	Queries       []expectedQuery            `json:"queries"`
	LatestVersion int64                      `json:"latest_version"`
}

type expectedVersion struct {
	Count int64            `json:"count"`
	Rows  []map[string]any `json:"rows"`
}

type expectedQuery struct {
	Where string `json:"where"`
	Count int64  `json:"count"`
}

func loadExpected(t *testing.T, path string) *expectedTable {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.UseNumber()
	e := &expectedTable{LatestVersion: -1}
	if err := d.Decode(e); err != nil {
		t.Fatal(err)
	}
	return e
}

func canonicalRows(rows []map[string]any) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = testtable.CanonicalJSON(r)
	}
	return zoneless(out)
}

var zoneSuffix = regexp.MustCompile(`(\d\d:\d\d:\d\d\.\d{6})Z"`)

// zoneless drops the Z of timestamps, which some of the expected files have on
// timestamps without zone too.
func zoneless(lines []string) []string {
	for i, l := range lines {
		lines[i] = zoneSuffix.ReplaceAllString(l, `$1"`)
	}
	sort.Strings(lines)
	return lines
}

// unsupported are tables with a feature that this version refuses to read, by name.
var unsupported = map[string]string{
	"table-with-geo": "geospatial",
}

// TestGoldenSpark reads the tables of golden/spark, at the newest version and at
// older ones, and counts their predicates with pruning.
func TestGoldenSpark(t *testing.T) { goldenTables(t, "spark") }

// TestGoldenFeatures reads the tables of golden/features.
func TestGoldenFeatures(t *testing.T) { goldenTables(t, "features") }

func goldenTables(t *testing.T, folder string) {
	dir := testenv.SharedDir(t, "golden", folder)
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.zst"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives in %s: %v", dir, err)
	}
	for _, a := range archives {
		name := strings.TrimSuffix(filepath.Base(a), ".tar.zst")
		t.Run(name, func(t *testing.T) {
			want := loadExpected(t, filepath.Join(dir, name+".expected.json"))
			if name == "300k-add-files-100-col-partitioned" && testing.Short() {
				t.Skip("a log of 300,000 files takes a minute: run without -short")
			}
			if name == "compacted-log-files-table" {
				t.Skip("its compacted files are not reconciled: Spark, which uses them, sees rows that the plain commits do not have")
			}
			if want == nil && unsupported[name] == "" || want != nil && want.Note == "log-only" {
				t.Skip("log only: the archive has no data files or Spark gave no rows")
			}
			inside := name
			if want != nil && want.PathInArchive != "" {
				inside = want.PathInArchive
			}
			tb, err := delta.Open(ctx, local(t, filepath.Join(testtable.Unpack(t, a), filepath.FromSlash(inside))), delta.Options{})
			if feature := unsupported[name]; feature != "" {
				if !errors.Is(err, delta.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), feature) {
					t.Errorf("R-302: got %v, want %s refused by name", err, feature)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			compareTable(t, tb, want)
		})
	}
}

func compareTable(t *testing.T, tb *delta.Table, want *expectedTable) {
	t.Helper()
	if want.Rows != nil {
		if d := testtable.Diff(zoneless(testtable.Read(t, tb, delta.ScanOptions{})), canonicalRows(want.Rows)); d != "" {
			t.Error(d)
		}
	}
	s, err := tb.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Count(ctx); err != nil || n != want.Count {
		t.Errorf("count %d %v, want %d", n, err, want.Count)
	}
	if want.LatestVersion >= 0 && s.Snapshot().Version != want.LatestVersion {
		t.Errorf("version %d, want %d", s.Snapshot().Version, want.LatestVersion)
	}
	for text, v := range want.Versions {
		version, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if v.Rows == nil {
			continue
		}
		if d := testtable.Diff(zoneless(testtable.Read(t, tb, delta.ScanOptions{Version: &version})), canonicalRows(v.Rows)); d != "" {
			t.Errorf("version %d: %s", version, d)
		}
	}
	for _, q := range want.Queries {
		s, err := tb.Scan(ctx, delta.ScanOptions{Where: q.Where})
		if err != nil {
			t.Errorf("where %s: %v", q.Where, err)
			continue
		}
		if n, err := s.Count(ctx); err != nil || n != q.Count {
			t.Errorf("where %s: %d %v, want %d", q.Where, n, err, q.Count)
		}
	}
}
