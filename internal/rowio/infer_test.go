package rowio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/log/schema"
)

// TestOpen: columns of input that brings its own.
func TestOpen(t *testing.T) {
	known, err := schema.ParseDDL("id INT, day DATE, s STRUCT<x: SMALLINT>")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text, want, code string
		rows                   int64
	}{
		{"a.jsonl", `{"id":1,"a":1,"b":"x","c":null,"d":true}` + "\n\n" + `{"ID":2,"a":2.5,"day":"2024-01-01","e":[1,null,2.5],"f":{"y":[{"z":1}]}}`,
			"STRUCT<id: INT, a: DOUBLE, b: STRING, c: STRING, d: BOOLEAN, day: DATE, e: ARRAY<DOUBLE>, f: STRUCT<y: ARRAY<STRUCT<z: BIGINT>>>>", "", 2},
		{"nested.jsonl", `{"s":{"x":1,"new":"n"}}` + "\n" + `{"s":null}`, "STRUCT<s: STRUCT<x: SMALLINT, new: STRING>>", "", 2},
		{"kinds.jsonl", `{"a":1}` + "\n" + `{"a":"x"}`, "", CodeInvalidJSON, 0},
		{"twice.jsonl", `{"a":1,"A":2}`, "", CodeInvalidJSON, 0},
		{"big.jsonl", `{"a":123456789012345678901234567890}`, "", CodeInvalidJSON, 0},
		{"text.jsonl", `no json`, "", CodeInvalidJSON, 0},
		{"deep.jsonl", strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), "", CodeInvalidJSON, 0},
		{"a.csv", "id,n,x,t,e,d\n1,5,1e3,true,,2024\n2,,7,false,,x\n", "STRUCT<id: INT, n: BIGINT, x: DOUBLE, t: BOOLEAN, e: STRING, d: STRING>", "", 2},
		{"empty.csv", "", "", CodeInvalidCSV, 0},
		{"empty.jsonl", "", "STRUCT<>", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.name)
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			s, rows, err := Open(t.Context(), path, "", nil, ReadOptions{Schema: known})
			if c.code != "" {
				var e *Error
				if !errors.As(err, &e) || e.ErrorCode != c.code || e.File != path {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.String() != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
			var n int64
			for b, err := range rows {
				if err != nil {
					t.Fatal(err)
				}
				n += b.NumRows()
			}
			if n != c.rows {
				t.Errorf("%d rows", n)
			}
		})
	}
}
