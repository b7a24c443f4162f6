package rowio_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// parse reads a DDL schema that the test knows to be right.
func parse(t *testing.T, ddl string) *schema.Struct {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ipcFile is an Arrow IPC stream or file with one batch, columns given as JSON.
func ipcFile(t *testing.T, file bool, as *arrow.Schema, rows string) []byte {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	var out bytes.Buffer
	if file {
		w, err := ipc.NewFileWriter(&out, ipc.WithSchema(as))
		if err == nil {
			err = errors.Join(w.Write(b), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	w := ipc.NewWriter(&out, ipc.WithSchema(as))
	if err := errors.Join(w.Write(b), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// toJSONL reads data against ddl and prints it, or describes the error.
func toJSONL(t *testing.T, data []byte, form rowio.Form, ddl string) string {
	t.Helper()
	s := parse(t, ddl)
	var out bytes.Buffer
	w, err := rowio.NewWriter(&out, rowio.JSONL, s, rowio.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range rowio.Read(context.Background(), bytes.NewReader(data), form, rowio.ReadOptions{Schema: s, File: "in"}) {
		if err != nil {
			return describe(err)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func field(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

func TestRead_ArrowConversions(t *testing.T) {
	for _, c := range []struct {
		name string
		t    arrow.DataType
		rows string
		ddl  string
		want string
	}{
		{"widening", arrow.PrimitiveTypes.Int16, `[{"a":-7},{"a":null}]`, "a BIGINT", "{\"a\":-7}\n{\"a\":null}\n"},
		{"unsigned that fits", arrow.PrimitiveTypes.Uint32, `[{"a":4294967295}]`, "a BIGINT", "{\"a\":4294967295}\n"},
		{"B45 unsigned that may not fit", arrow.PrimitiveTypes.Uint64, `[{"a":1}]`, "a BIGINT", "TYPE_MISMATCH: column a: BIGINT expected, the input has uint64: in"},
		{"unsigned as decimal", arrow.PrimitiveTypes.Uint64, `[{"a":18446744073709551615}]`, "a DECIMAL(20,0)", "{\"a\":18446744073709551615}\n"},
		{"narrowing", arrow.PrimitiveTypes.Int64, `[{"a":1}]`, "a INT", "TYPE_MISMATCH: column a: INT expected, the input has int64: in"},
		{"float to int", arrow.PrimitiveTypes.Float64, `[{"a":1}]`, "a INT", "TYPE_MISMATCH: column a: INT expected, the input has float64: in"},
		{"float32", arrow.PrimitiveTypes.Float32, `[{"a":0.5}]`, "a DOUBLE", "{\"a\":0.5}\n"},
		{"large string", arrow.BinaryTypes.LargeString, `[{"a":"x"}]`, "a STRING", "{\"a\":\"x\"}\n"},
		{"dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, `[{"a":"x"},{"a":null},{"a":"y"}]`, "a STRING", "{\"a\":\"x\"}\n{\"a\":null}\n{\"a\":\"y\"}\n"},
		{"seconds", &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}, `[{"a":-1}]`, "a TIMESTAMP", "{\"a\":\"1969-12-31T23:59:59.000000Z\"}\n"},
		{"whole nanoseconds", &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}, `[{"a":1704067200000001000}]`, "a TIMESTAMP", "{\"a\":\"2024-01-01T00:00:00.000001Z\"}\n"},
		{"lost nanoseconds", &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}, `[{"a":1704067200000001001}]`, "a TIMESTAMP", "TYPE_MISMATCH: column a: TIMESTAMP expected: 1704067200000001001 ns is not a whole microsecond: in row 1"},
		{"zone against none", &arrow.TimestampType{Unit: arrow.Microsecond}, `[]`, "a TIMESTAMP", "TYPE_MISMATCH: column a: TIMESTAMP expected, the input has timestamp[us]: in"},
		{"decimal scale up", &arrow.Decimal128Type{Precision: 5, Scale: 1}, `[{"a":"1.5"}]`, "a DECIMAL(8,3)", "{\"a\":1.500}\n"},
		{"decimal scale down", &arrow.Decimal128Type{Precision: 5, Scale: 2}, `[]`, "a DECIMAL(8,1)", "TYPE_MISMATCH: column a: DECIMAL(8,1) expected, the input has decimal(5, 2): in"},
		{"nested", arrow.StructOf(field("x", arrow.ListOf(arrow.PrimitiveTypes.Int8))), `[{"a":{"x":[1,null]}}]`, "a STRUCT<x: ARRAY<INT>, y: DATE>", "{\"a\":{\"x\":[1,null],\"y\":null}}\n"},
		{"nested unknown", arrow.StructOf(field("z", arrow.PrimitiveTypes.Int8)), `[]`, "a STRUCT<x: INT>", "UNKNOWN_COLUMN: column a.z: not a column of the table: in"},
		{"null in NOT NULL", arrow.PrimitiveTypes.Int64, `[{"a":1},{"a":null}]`, "a BIGINT NOT NULL", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED: column a: null in a NOT NULL column: in row 2"},
		{"absent NOT NULL", arrow.PrimitiveTypes.Int64, `[]`, "a BIGINT, b INT NOT NULL", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED: column b: missing from the input, and NOT NULL: in"},
		{"null type", arrow.Null, `[{"a":null}]`, "a STRING", "{\"a\":null}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			as := arrow.NewSchema([]arrow.Field{field("a", c.t)}, nil)
			for _, file := range []bool{false, true} {
				if got := toJSONL(t, ipcFile(t, file, as, c.rows), rowio.Arrow, c.ddl); got != c.want {
					t.Errorf("file=%v: got %s, want %s", file, got, c.want)
				}
			}
		})
	}
}

func TestRead_ParquetRefusals(t *testing.T) {
	s := parse(t, "a INT, b STRING")
	var file bytes.Buffer
	w, err := rowio.NewWriter(&file, rowio.Parquet, s, rowio.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range rowio.Read(context.Background(), strings.NewReader("{\"a\":1,\"b\":\"x\"}\n{\"a\":null}\n"), rowio.JSONL, rowio.ReadOptions{Schema: s}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, ddl, want string }{
		{"same", "a INT, b STRING", "{\"a\":1,\"b\":\"x\"}\n{\"a\":null,\"b\":null}\n"},
		{"wider, other order, one more", "B STRING, c DATE, a BIGINT", "{\"B\":\"x\",\"c\":null,\"a\":1}\n{\"B\":null,\"c\":null,\"a\":null}\n"},
		{"null in NOT NULL", "a INT NOT NULL, b STRING", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED: column a: null in a NOT NULL column: in row 2"},
		{"unknown", "a INT", "UNKNOWN_COLUMN: column b: not a column of the table: in"},
		{"absent", "a INT, b STRING, c INT NOT NULL", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED: column c: missing from the input, and NOT NULL: in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := toJSONL(t, file.Bytes(), rowio.Parquet, c.ddl); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	t.Run("wrong type", func(t *testing.T) {
		if got := toJSONL(t, file.Bytes(), rowio.Parquet, "a STRING, b STRING"); !strings.HasPrefix(got, "TYPE_MISMATCH: column a: STRING expected") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("cut short", func(t *testing.T) {
		if got := toJSONL(t, file.Bytes()[:file.Len()-9], rowio.Parquet, "a INT, b STRING"); !strings.HasPrefix(got, "INVALID_PARQUET: ") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("cut Arrow", func(t *testing.T) {
		as := arrow.NewSchema([]arrow.Field{field("a", arrow.PrimitiveTypes.Int32)}, nil)
		stream := ipcFile(t, false, as, `[{"a":1},{"a":2}]`)
		for _, n := range []int{0, 3, 40, len(stream) - 60} {
			if got := toJSONL(t, stream[:n], rowio.Arrow, "a INT"); !strings.HasPrefix(got, "INVALID_ARROW: ") {
				t.Errorf("%d bytes: got %s", n, got)
			}
		}
	})
}

func TestReadPath_FilesAndCompression(t *testing.T) {
	dir := t.TempDir()
	s := parse(t, "a INT")
	plain := filepath.Join(dir, "x.jsonl")
	if err := os.WriteFile(plain, []byte("{\"a\":1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gz := filepath.Join(dir, "x.csv.gz")
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	if _, err := zw.Write([]byte("a\n2\n")); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.csv.gz")
	for path, data := range map[string][]byte{gz: packed.Bytes(), bad: packed.Bytes()[:packed.Len()-6]} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string, form rowio.Form, stdin string) (n int64, err error) {
		for b, err := range rowio.ReadPath(context.Background(), path, form, strings.NewReader(stdin), rowio.ReadOptions{Schema: s}) {
			if err != nil {
				return n, err
			}
			n += b.NumRows()
		}
		return n, nil
	}
	for _, c := range []struct {
		path  string
		form  rowio.Form
		stdin string
	}{{plain, "", ""}, {gz, "", ""}, {"-", rowio.CSV, "a\n1\n"}} {
		if n, err := read(c.path, c.form, c.stdin); n != 1 || err != nil {
			t.Errorf("%s: %d rows, %v", c.path, n, err)
		}
	}
	if _, err := read(bad, "", ""); !errors.Is(err, rowio.ErrInvalid) {
		t.Errorf("cut gzip: %v", err)
	}
	for _, path := range []string{"-", filepath.Join(dir, "x.txt"), dir + "/.csv/"} {
		if _, err := read(path, "", ""); !errors.Is(err, rowio.ErrInvalid) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := read(filepath.Join(dir, "none.csv"), "", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
	if _, err := read(dir, rowio.CSV, ""); !errors.Is(err, rowio.ErrInvalid) {
		t.Errorf("directory: got %v", err)
	}
}
