package rowio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// TestRead_Stories reads the input of each case under the current schema and
// prints it again in another form; see testdata.
func TestRead_Stories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s *schema.Struct
		zone := time.UTC
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "schema":
				var err error
				if s, err = schema.ParseDDL(d.Input); err != nil {
					return err.Error()
				}
				if d.HasArg("zone") {
					var name string
					d.ScanArgs(t, "zone", &name)
					if zone, err = time.LoadLocation(name); err != nil {
						return err.Error()
					}
				}
				return "ok"
			case "read":
				var from, to string
				d.ScanArgs(t, "from", &from)
				to = string(rowio.JSONL)
				d.MaybeScanArgs(t, "to", &to)
				input := strings.ReplaceAll(d.Input, "<CR>", "\r")
				var out bytes.Buffer
				w, err := rowio.NewWriter(&out, rowio.Form(to), s, rowio.WriteOptions{Width: 60})
				if err != nil {
					return err.Error()
				}
				o := rowio.ReadOptions{Schema: s, Zone: zone, File: "in"}
				for b, err := range rowio.Read(context.Background(), strings.NewReader(input), rowio.Form(from), o) {
					if err != nil {
						return describe(err)
					}
					if err := w.Write(b); err != nil {
						return err.Error()
					}
				}
				if err := w.Close(); err != nil {
					return err.Error()
				}
				return out.String()
			}
			return fmt.Sprintf("unknown command %s", d.Cmd)
		})
	})
}

func describe(err error) string {
	var e *rowio.Error
	if !errors.As(err, &e) || !errors.Is(err, rowio.ErrInvalid) {
		return "untyped error: " + err.Error()
	}
	return e.ErrorCode + ": " + e.Error()
}

func TestParseTime_Forms(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("the machine has no time zone database: %v", err)
	}
	for _, c := range []struct {
		in   string
		zone *time.Location
		want string
	}{
		{"2024-05-01", nil, "2024-05-01T00:00:00Z"},
		{"2024-05-01 10:11:12", nil, "2024-05-01T10:11:12Z"},
		{"2024-05-01T10:11:12.5Z", berlin, "2024-05-01T10:11:12.5Z"},
		{"2024-05-01 10:11:12.123456", berlin, "2024-05-01T08:11:12.123456Z"},
		{"2024-05-01T10:11:12+02:00", nil, "2024-05-01T08:11:12Z"},
		{"2024-05-01T10:11-0230", nil, "2024-05-01T12:41:00Z"},
		{"1969-12-31 23:59:59.999999", nil, "1969-12-31T23:59:59.999999Z"},
	} {
		got, err := rowio.ParseTime(c.in, c.zone)
		if err != nil || got.Format(time.RFC3339Nano) != c.want {
			t.Errorf("%s: got %v, %v, want %s", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "yesterday", "2024-13-01", "2024-02-30", "2024-05-01T25:00:00Z", "2024-05-01 10:11:12.1234567", "2024-05-01T10", "2024-05-01T10:00:00Zjunk"} {
		if got, err := rowio.ParseTime(in, nil); err == nil {
			t.Errorf("%q: got %v, want an error", in, got)
		}
	}
}

func TestInputForm_Names(t *testing.T) {
	for name, want := range map[string]rowio.Form{"a.jsonl": rowio.JSONL, "x/y.CSV": rowio.CSV, "b.parquet": rowio.Parquet,
		"c.arrow": rowio.Arrow, "d.ndjson.gz": rowio.JSONL, "e.csv.zst": rowio.CSV, "f": "", "g.txt": ""} {
		got, ok := rowio.InputForm(name)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, want)
		}
	}
}

func FuzzRead_JSONL(f *testing.F) {
	s, err := schema.ParseDDL("a BIGINT, b STRING, c ARRAY<DOUBLE>, d MAP<STRING, DECIMAL(10,2)>, e STRUCT<x: TIMESTAMP, y: DATE>, f MAP<INT, BINARY>, g BOOLEAN")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"a":1,"b":"x\u00e9","c":[1,null,"NaN"],"d":{"k":1.25},"e":{"x":"2024-05-01T10:00:00Z","y":null},"f":[{"key":1,"value":"AA=="}],"g":true}`))
	f.Add([]byte("\n{}\r\n{\"b\":\"\\ud83d\\ude00\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTrip(t, rowio.JSONL, s, data)
	})
}

func FuzzRead_CSV(f *testing.F) {
	s, err := schema.ParseDDL("a BIGINT, b STRING, c ARRAY<DOUBLE>")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a,b,c\n1,\"x\"\"y\n\",\"[1,2]\"\n,,\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTrip(t, rowio.CSV, s, data)
	})
}

// roundTrip reads hostile bytes: a typed error, or rows that print and read again the same.
func roundTrip(t *testing.T, form rowio.Form, s *schema.Struct, data []byte) {
	print := func(in []byte) ([]byte, error) {
		var out bytes.Buffer
		w, err := rowio.NewWriter(&out, form, s, rowio.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range rowio.Read(context.Background(), bytes.NewReader(in), form, rowio.ReadOptions{Schema: s}) {
			if err != nil {
				return nil, err
			}
			if err := w.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		err = w.Close()
		return out.Bytes(), err
	}
	once, err := print(data)
	if err != nil {
		if !errors.Is(err, rowio.ErrInvalid) {
			t.Fatalf("untyped error %v", err)
		}
		return
	}
	twice, err := print(once)
	if err != nil || !bytes.Equal(once, twice) {
		t.Fatalf("printed %q, then %q, %v", once, twice, err)
	}
}
