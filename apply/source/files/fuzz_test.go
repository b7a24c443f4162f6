package files_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/files"
)

func readAll(t *testing.T, o files.Options, data []byte) []*event.Record {
	t.Helper()
	o.Paths, o.Stdin = []string{"-"}, bytes.NewReader(data)
	s, err := files.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var out []*event.Record
	for rec, err := range s.Records(context.Background(), nil) {
		if err != nil {
			return out
		}
		out = append(out, files.Clone(rec))
	}
	return out
}

// FuzzLines: every line that is not blank is one record; a record of a topic has
// the key and value that encoding/json finds there.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"topic":"t","partition":0,"offset":1,"key":{"id":1},"value":{"a":"}\""},"headers":{"h":"x"}}`))
	f.Add([]byte("{\"topic\":\"t\",\"partition\":0,\"offset\":2,\"key\":\"k\",\"payload\":\"{\\\"a\\\":1}\"}\n\n{\"a\":1}\r\nnonsense"))
	f.Add([]byte(`{"topic":"t","partition":0,"offset":3,"key":null,"value":null,"headers":["a",null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) || bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) || bytes.HasPrefix(data, []byte("PAR1")) || bytes.HasPrefix(data, []byte("\xff\x06\x00\x00sNaPpY")) {
			return
		}
		var lines [][]byte
		for i, l := range bytes.Split(data, []byte("\n")) {
			if i == 0 {
				l = bytes.TrimPrefix(l, []byte("\ufeff"))
			}
			if len(bytes.TrimSpace(l)) > 0 {
				lines = append(lines, bytes.TrimSuffix(l, []byte("\r")))
			}
		}
		recs := readAll(t, files.Options{}, data)
		if len(recs) != len(lines) {
			t.Fatalf("%d records of %d lines", len(recs), len(lines))
		}
		for i, r := range recs {
			if !bytes.Equal(r.Raw, lines[i]) {
				t.Fatalf("raw %q of line %q", r.Raw, lines[i])
			}
			if r.Topic == "" || !utf8.Valid(lines[i]) {
				continue
			}
			var want struct {
				Value, Payload, Key json.RawMessage
			}
			if err := json.Unmarshal(lines[i], &want); err != nil {
				continue // the value is for the decoder to refuse
			}
			val := want.Value
			if val == nil {
				val = want.Payload
			}
			for _, c := range []struct{ got, raw []byte }{{r.Value, val}, {r.Key, want.Key}} {
				exp := c.raw
				var s string
				if len(c.raw) > 0 && c.raw[0] == '"' {
					if err := json.Unmarshal(c.raw, &s); err != nil || strings.ContainsRune(s, utf8.RuneError) {
						continue
					}
					exp = []byte(s)
				}
				if string(exp) == "null" && c.got == nil {
					continue
				}
				if !bytes.Equal(c.got, exp) {
					t.Fatalf("line %q: %q, want %q", lines[i], c.got, exp)
				}
			}
		}
	})
}

// FuzzCSV: where encoding/csv reads a file without complaint, so does the
// source, field by field.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"))
	f.Add([]byte("a,b\n\"x\"\"y\",\"l\nm\"\r\n,\"\"\n1\n1,2,3\n"))
	f.Add([]byte("\ufeffa\n\"\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		recs := readAll(t, files.Options{Format: "csv"}, data)
		var got [][]string
		for _, r := range recs {
			if r.Fault != "" {
				return
			}
			for i := range int(r.Columns.NumRows()) {
				var row []string
				for c := range int(r.Columns.NumCols()) {
					if name := r.Columns.ColumnName(c); name != files.RescuedField {
						v := ""
						if col := r.Columns.Column(c); col.IsValid(i) {
							v = col.ValueStr(i)
						}
						row = append(row, v)
					}
				}
				got = append(got, row)
			}
		}
		cr := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
		cr.FieldsPerRecord = -1
		all, err := cr.ReadAll()
		if err != nil || len(all) == 0 || bytes.ContainsRune(data, '\r') || !utf8.Valid(data) || bytes.ContainsRune(data[min(3, len(data)):], '\ufeff') {
			return // it folds line ends inside quotes
		}
		seen := map[string]bool{}
		for _, h := range all[0] {
			if h == "" || seen[h] {
				return
			}
			seen[h] = true
		}
		if len(got) != len(all)-1 {
			t.Fatalf("%q: %d rows, want %d", data, len(got), len(all)-1)
		}
		for i, row := range got {
			want := all[i+1]
			if n := min(len(want), len(all[0])); strings.Join(row, "\x00") != strings.Join(want[:n], "\x00") {
				t.Fatalf("%q row %d: %q, want %q", data, i, row, want)
			}
		}
	})
}
