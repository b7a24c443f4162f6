package corpora

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
func openPlain(t testing.TB, path string) io.Reader {
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

// RawFold folds the raw JSON of one table's events in stream order, by key.
func RawFold(t *testing.T, path, table string) []map[string]any {
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

// canonRaw is the canonical text of a raw wire value of simple columns; what has
// no form in the Delta type is NULL there (and rescued).
func canonRaw(t string, modes map[string]string, v any) string {
	if v == nil {
		return "NULL"
	}
	if list, ok := v.([]any); ok {
		var out []string
		for _, e := range list {
			out = append(out, canonRaw(strings.TrimSuffix(t, "[]"), modes, e))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	s := fmt.Sprint(v)
	switch kindOf(t) {
	case "date":
		if strings.HasSuffix(s, "Z") {
			if s[0] == '+' || s[0] == '-' {
				return "NULL"
			}
			return days(strings.TrimSuffix(s, "Z"), false).String()
		}
		if n, _ := strconv.ParseInt(s, 10, 64); n > 1e8 || n < -1e8 {
			return "NULL"
		}
		return s
	case "ntz":
		if strings.HasSuffix(s, "Z") {
			if s[0] == '+' || s[0] == '-' {
				return "NULL"
			}
			return micros(s)
		}
		n, _ := strconv.ParseInt(s, 10, 64)
		_, args, _ := dbType(t)
		if millis := len(args) > 0 && args[0] <= "3" || strings.HasPrefix(t, "datetime") && len(args) == 0; millis && modes["time"] == "adaptive" || modes["time"] == "connect" {
			if n > 9e15 || n < -9e15 {
				return "NULL"
			}
			return strconv.FormatInt(n*1000, 10)
		}
		if n > 9.22e18 || n < -9.22e18 {
			return "NULL"
		}
		return s
	case "time":
		if strings.HasSuffix(s, "Z") {
			return clockMicros(strings.TrimSuffix(s, "Z")).String()
		}
		return s
	case "int":
		if b, ok := v.(bool); ok {
			return map[bool]string{true: "1", false: "0"}[b]
		}
	}
	return canonDB(t, v)
}
