package delta_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/fsck"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// annotated is a physical type under a logical type that the writer has no node for.
type annotated struct {
	parquet.Type
	logical format.LogicalType
}

func (a annotated) LogicalType() *format.LogicalType         { return &a.logical }
func (a annotated) ConvertedType() *deprecated.ConvertedType { return nil }
func as(t parquet.Type, l format.LogicalTypeValue) parquet.Node {
	return parquet.Leaf(annotated{t, format.LogicalType{Value: l}})
}

// grouped is a group under the annotation of another node: the nesting of old writers.
type grouped struct {
	parquet.Group
	like parquet.Node
}

func (g grouped) Type() parquet.Type { return g.like.Type() }

// val is a value with its repetition and definition level, in column c.
func val(v any, r, d, c int) parquet.Value {
	if v == nil {
		return parquet.NullValue().Level(r, d, c)
	}
	if i, ok := v.(deprecated.Int96); ok {
		return parquet.Int96Value(i).Level(r, d, c)
	}
	return parquet.ValueOf(v).Level(r, d, c)
}

// flat are the rows of an optional column.
func flat(values ...any) (rows [][]parquet.Value) {
	for _, v := range values {
		d := 1
		if v == nil {
			d = 0
		}
		rows = append(rows, []parquet.Value{val(v, 0, d, 0)})
	}
	return rows
}

// foreignFile is a Parquet file of the columns c, by rows, and id, counted from 0.
func foreignFile(t *testing.T, c parquet.Node, rows [][]parquet.Value) []byte {
	t.Helper()
	var out bytes.Buffer
	s := parquet.NewSchema("foreign", parquet.Group{"c": c, "id": parquet.Leaf(parquet.Int64Type)})
	w := parquet.NewWriter(&out, s)
	for i, r := range rows {
		r = append(r[:len(r):len(r)], val(int64(i), 0, 0, len(s.Columns())-1))
		if _, err := w.WriteRows([]parquet.Row{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestConvert_PhysicalTypes: whatever a foreign file holds is read right under the type
// that the table gives it, with statistics that exclude no row and through a rewrite, or
// the column is refused by name before anything is written.
func TestConvert_PhysicalTypes(t *testing.T) {
	opt := parquet.Optional
	decimal := func(s, p int, t parquet.Type) parquet.Node { return opt(parquet.Decimal(s, p, t)) }
	flba := parquet.FixedLenByteArrayType
	for _, c := range []struct {
		name string
		node parquet.Node
		rows [][]parquet.Value
		typ  string
		want string // values of c by id, "|" between them
	}{
		{"UINT_8", opt(parquet.Uint(8)), flat(int32(0), int32(255), nil), "SMALLINT", "0|255|null"},
		{"UINT_16", opt(parquet.Uint(16)), flat(int32(0), int32(65535), nil), "INT", "0|65535|null"},
		{"UINT_32", opt(parquet.Uint(32)), flat(int32(1), int32(-1), nil), "BIGINT", "1|4294967295|null"},
		{"UINT_64", opt(parquet.Uint(64)), flat(int64(1), int64(-1), nil), "DECIMAL(20,0)", `"1"|"18446744073709551615"|null`},
		{"INT_8", opt(parquet.Int(8)), flat(int32(-128), int32(127)), "TINYINT", "-128|127"},
		{"INT_16", opt(parquet.Int(16)), flat(int32(-32768), int32(32767)), "SMALLINT", "-32768|32767"},
		{"INT96", opt(parquet.Leaf(parquet.Int96Type)), flat(deprecated.Int96{1000, 0, 2440588}, deprecated.Int96{0x914EFFFF, 0x4E94, 2440587}, nil), "TIMESTAMP", `"1970-01-01T00:00:00.000001Z"|"1969-12-31T23:59:59.999999Z"|null`},
		{"R-505 TIMESTAMP(MILLIS)", opt(parquet.Timestamp(parquet.Millisecond)), flat(int64(-1), int64(1714557600123), nil), "TIMESTAMP", `"1969-12-31T23:59:59.999000Z"|"2024-05-01T10:00:00.123000Z"|null`},
		{"TIMESTAMP(NANOS)", opt(parquet.Timestamp(parquet.Nanosecond)), flat(int64(1999), int64(-1), nil), "TIMESTAMP", `"1970-01-01T00:00:00.000001Z"|"1969-12-31T23:59:59.999999Z"|null`},
		{"TIMESTAMP(MICROS), local", opt(parquet.TimestampAdjusted(parquet.Microsecond, false)), flat(int64(-1), int64(1)), "TIMESTAMP_NTZ", `"1969-12-31T23:59:59.999999"|"1970-01-01T00:00:00.000001"`},
		{"DATE", opt(parquet.Date()), flat(int32(-719162), int32(19782), nil), "DATE", `"0001-01-01"|"2024-02-29"|null`},
		{"DECIMAL of INT32", decimal(2, 9, parquet.Int32Type), flat(int32(-123456789), int32(1), nil), "DECIMAL(9,2)", `"-1234567.89"|"0.01"|null`},
		{"DECIMAL of INT64", decimal(2, 18, parquet.Int64Type), flat(int64(-5), int64(999999999999999999), nil), "DECIMAL(18,2)", `"-0.05"|"9999999999999999.99"|null`},
		{"DECIMAL of FIXED", decimal(2, 20, flba(9)), flat([]byte{255, 255, 255, 255, 255, 255, 255, 255, 251}, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0}, nil), "DECIMAL(20,2)", `"-0.05"|"2.56"|null`},
		{"DECIMAL of wide FIXED", decimal(2, 5, flba(16)), flat(append(make([]byte, 14), 1, 0), bytes.Repeat([]byte{255}, 16)), "DECIMAL(5,2)", `"2.56"|"-0.01"`},
		{"DECIMAL of BYTE_ARRAY", decimal(1, 10, parquet.ByteArrayType), flat([]byte{0x80}, []byte{0, 0x80}, []byte{0, 0, 0, 1}, nil), "DECIMAL(10,1)", `"-12.8"|"12.8"|"0.1"|null`},
		{"dictionary of strings", opt(parquet.Encoded(parquet.String(), &parquet.RLEDictionary)), flat("b", "a", "b", nil), "STRING", `"b"|"a"|"b"|null`},
		{"ENUM", opt(parquet.Enum()), flat("RED", nil), "STRING", `"RED"|null`},
		{"JSON", opt(parquet.JSON()), flat(`{"a":1}`, nil), "STRING", `"{\"a\":1}"|null`},
		{"BSON", opt(parquet.BSON()), flat([]byte{0, 255}, nil), "BINARY", `"AP8="|null`},
		{"BYTE_ARRAY without annotation", opt(parquet.Leaf(parquet.ByteArrayType)), flat([]byte{0, 255}, nil), "BINARY", `"AP8="|null`},
		{"FIXED without annotation", opt(parquet.Leaf(flba(2))), flat([]byte{0, 255}, nil), "BINARY", `"AP8="|null`},
		{"null column", opt(as(parquet.Int32Type, &format.NullType{})), flat(nil, nil), "VOID", "null|null"},
		{"map", opt(parquet.Map(parquet.String(), opt(parquet.Leaf(parquet.Int32Type)))), [][]parquet.Value{
			{val("a", 0, 2, 0), val("b", 1, 2, 0), val(int32(1), 0, 3, 1), val(nil, 1, 2, 1)}, {val(nil, 0, 0, 0), val(nil, 0, 0, 1)}, {val(nil, 0, 1, 0), val(nil, 0, 1, 1)},
		}, "MAP<STRING, INT>", `{"a":1,"b":null}|null|{}`},
		{"R-505 list of two levels", opt(grouped{parquet.Group{"array": parquet.Repeated(parquet.Leaf(parquet.Int32Type))}, parquet.List(parquet.String())}), [][]parquet.Value{
			{val(int32(1), 0, 2, 0), val(int32(2), 1, 2, 0)}, {val(nil, 0, 0, 0)}, {val(nil, 0, 1, 0)},
		}, "ARRAY<INT>", "[1,2]|null|[]"},
		{"R-505 list of two levels of structs", opt(grouped{parquet.Group{"c_tuple": parquet.Repeated(parquet.Group{"x": opt(parquet.Leaf(parquet.Int32Type))})}, parquet.List(parquet.String())}), [][]parquet.Value{
			{val(int32(1), 0, 3, 0), val(nil, 1, 2, 0)}, {val(nil, 0, 0, 0)}, {val(nil, 0, 1, 0)},
		}, "ARRAY<STRUCT<x: INT>>", `[{"x":1},{"x":null}]|null|[]`},
		{"R-505 repeated field without annotation", parquet.Repeated(parquet.Leaf(parquet.Int32Type)), [][]parquet.Value{
			{val(int32(1), 0, 1, 0), val(int32(2), 1, 1, 0)}, {val(nil, 0, 0, 0)},
		}, "ARRAY<INT>", "[1,2]|[]"},
		{"map without values", opt(grouped{parquet.Group{"map": parquet.Repeated(parquet.Group{"key": parquet.String()})}, parquet.Map(parquet.String(), parquet.String())}), [][]parquet.Value{
			{val("a", 0, 2, 0), val("b", 1, 2, 0)}, {val(nil, 0, 0, 0)},
		}, "", ""},
		{"list without elements", opt(grouped{parquet.Group{"a": opt(parquet.Leaf(parquet.Int32Type)), "b": opt(parquet.Leaf(parquet.Int32Type))}, parquet.List(parquet.String())}), [][]parquet.Value{
			{val(int32(1), 0, 2, 0), val(int32(2), 0, 2, 1)},
		}, "", ""},
		{"TIME(MICROS)", opt(parquet.Time(parquet.Microsecond)), flat(int64(1)), "", ""},
		{"TIME(MILLIS)", opt(parquet.Time(parquet.Millisecond)), flat(int32(1)), "", ""},
		{"UUID", opt(parquet.UUID()), flat(make([]byte, 16)), "", ""},
		{"FLOAT16", opt(as(flba(2), &format.Float16Type{})), flat([]byte{0, 0x3c}), "", ""},
		{"DECIMAL(39,2)", opt(as(flba(17), &format.DecimalType{Scale: 2, Precision: 39})), flat(make([]byte, 17)), "", ""},
		{"DATE of INT64", opt(as(parquet.Int64Type, &format.DateType{})), flat(int64(1)), "", ""},
		{"UUID inside a list", opt(parquet.List(parquet.UUID())), [][]parquet.Value{{val(make([]byte, 16), 0, 2, 0)}}, "", ""},
		{"TIME inside a map", opt(parquet.Map(parquet.String(), parquet.Time(parquet.Microsecond))), [][]parquet.Value{{val("k", 0, 2, 0), val(int64(1), 0, 2, 1)}}, "", ""},
	} {
		t.Run("W-601 "+c.name, func(t *testing.T) {
			store := storage.NewMemory("c")
			if err := store.Put(ctx, "a.parquet", foreignFile(t, c.node, c.rows)); err != nil {
				t.Fatal(err)
			}
			tb, _, err := delta.Convert(ctx, store, delta.ConvertOptions{}, delta.Options{})
			if c.typ == "" {
				var coded deltalog.Coder
				if !errors.As(err, &coded) || coded.Code() != "DELTA_CONVERSION_UNSUPPORTED_FILE" || !strings.Contains(err.Error(), "a.parquet") || !strings.Contains(err.Error(), "column c") {
					t.Errorf("got %v", err)
				}
				if files := testtable.Files(t, store); len(files) != 1 {
					t.Errorf("left behind %v", files)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := mustSnapshot(t, tb).Schema.Fields[0].Type.String(); got != c.typ {
				t.Errorf("type %s, want %s", got, c.typ)
			}
			sameColumn(t, tb, c.want)
			report, err := fsck.Check(ctx, store, fsck.Options{})
			if err != nil || len(report.Findings) > 0 {
				t.Errorf("fsck: %v %v", err, report)
			}
			if _, err := tb.Update(ctx, "id = id + 100", "id = 0", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Update(ctx, "id = 0", "id = 100", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			sameColumn(t, tb, c.want)
		})
	}
}

// sameColumn holds the values of c, by id, against want.
func sameColumn(t *testing.T, tb *delta.Table, want string) {
	t.Helper()
	rows := testtable.Read(t, tb, delta.ScanOptions{})
	got := make([]string, len(rows))
	for _, line := range rows {
		var r struct {
			C  json.RawMessage `json:"c"`
			ID int             `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.ID >= len(got) {
			t.Fatalf("%s: %v", line, err)
		}
		got[r.ID] = string(r.C)
	}
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}
