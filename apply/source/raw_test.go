package source_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// openPlain opens a corpus file with other libraries' code than the source's.
func openPlain(t *testing.T, path string) io.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	switch {
	case strings.HasSuffix(path, ".gz"):
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		return z
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(z.Close)
		return z
	}
	return f
}

// rawFold folds the raw JSON of one table's events in stream order, by key.
func rawFold(t *testing.T, path, table string) []map[string]any {
	t.Helper()
	rows := map[string]map[string]any{}
	sc := bufio.NewScanner(openPlain(t, path))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var rec map[string]any
		d := json.NewDecoder(strings.NewReader(sc.Text()))
		d.UseNumber()
		if err := d.Decode(&rec); err != nil {
			t.Fatal(err)
		}
		unwrap := func(v any) map[string]any {
			m, _ := v.(map[string]any)
			if p, ok := m["payload"].(map[string]any); ok && m["schema"] != nil {
				return p
			}
			return m
		}
		v := unwrap(rec["value"])
		src, _ := v["source"].(map[string]any)
		if src == nil || src["table"] != table {
			continue
		}
		key := fmt.Sprint(unwrap(rec["key"]))
		switch v["op"] {
		case "t":
			clear(rows)
		case "d":
			delete(rows, key)
		case "c", "r":
			rows[key] = v["after"].(map[string]any)
		case "u":
			row := rows[key]
			if row == nil {
				row = map[string]any{}
			}
			for name, val := range v["after"].(map[string]any) {
				row[name] = val
			}
			rows[key] = row
		}
	}
	var out []map[string]any
	for _, r := range rows {
		out = append(out, r)
	}
	return out
}

// canonRaw is the canonical text of a raw wire value of simple columns.
func canonRaw(t string, modes map[string]string, v any) string {
	if v == nil {
		return "NULL"
	}
	s := fmt.Sprint(v)
	switch kindOf(t) {
	case "date":
		if strings.HasSuffix(s, "Z") {
			return days(strings.TrimSuffix(s, "Z"), false).String()
		}
		return s
	case "ntz":
		if strings.HasSuffix(s, "Z") {
			return micros(s)
		}
		n, _ := strconv.ParseInt(s, 10, 64)
		if !strings.Contains(t, "(6)") {
			n *= 1000
		}
		return strconv.FormatInt(n, 10)
	}
	return canonDB(t, v)
}
