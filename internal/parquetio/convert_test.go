package parquetio

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

func one(t schema.Type) *schema.Struct {
	return &schema.Struct{Fields: []schema.Field{{Name: "c", Type: t, Nullable: true}}}
}

// column builds a one-column batch from JSON text.
func jsonBatch(tb testing.TB, s *schema.Struct, json string) arrow.RecordBatch {
	as, err := schema.ArrowSchema(s)
	if err != nil {
		tb.Fatal(err)
	}
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(json))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func readColumn(f *File, want schema.Type) (string, error) {
	var out []string
	for b, err := range f.Read(context.Background(), one(want), ReadOptions{}) {
		if err != nil {
			return "", err
		}
		for i := range int(b.NumRows()) {
			out = append(out, fmt.Sprint(cell(b.Column(0), i)))
		}
	}
	return strings.Join(out, " "), nil
}

func TestFile_ReadConversions(t *testing.T) {
	dec := func(p, s int) schema.Type { return schema.Decimal{Precision: p, Scale: s} }
	cases := []struct {
		from schema.Type
		json string
		to   schema.Type
		want string // "" is a type mismatch, "!" an out-of-range value
	}{
		{schema.Byte, `[{"c":-7},{"c":null}]`, schema.Long, "-7 <nil>"},
		{schema.Byte, `[{"c":-7}]`, schema.Short, "-7"},
		{schema.Integer, `[{"c":127},{"c":-128}]`, schema.Byte, "127 -128"},
		{schema.Integer, `[{"c":128}]`, schema.Byte, "!"},
		{schema.Integer, `[{"c":-32769}]`, schema.Short, "!"},
		{schema.Integer, `[{"c":-5},{"c":null},{"c":2147483647}]`, schema.Long, "-5 <nil> 2147483647"},
		{schema.Long, `[{"c":1}]`, schema.Integer, ""},
		{schema.Integer, `[{"c":-5}]`, schema.Double, "-5"},
		{schema.Long, `[{"c":1}]`, schema.Double, ""},
		{schema.Float, `[{"c":1.5},{"c":null}]`, schema.Double, "1.5 <nil>"},
		{schema.Double, `[{"c":1.5}]`, schema.Float, ""},
		{schema.Integer, `[{"c":-5}]`, dec(10, 0), "-5"},
		{schema.Integer, `[{"c":-5}]`, dec(12, 2), "-5.00"},
		{schema.Integer, `[{"c":1000}]`, dec(3, 0), "!"},
		{schema.Long, `[{"c":9223372036854775807}]`, dec(38, 2), "9223372036854775807.00"},
		{dec(5, 2), `[{"c":"123.45"},{"c":null},{"c":"-0.01"}]`, dec(5, 2), "123.45 <nil> -0.01"},
		{dec(5, 2), `[{"c":"123.45"}]`, dec(30, 5), "123.45000"},
		{dec(5, 2), `[{"c":"123.45"}]`, dec(5, 1), ""},
		{dec(5, 2), `[{"c":"123.45"}]`, dec(4, 2), "!"},
		{dec(20, 2), `[{"c":"-123.45"}]`, dec(38, 10), "-123.4500000000"},
		{schema.Date, `[{"c":"1969-12-31"},{"c":null}]`, schema.TimestampNTZ, "-86400000000 <nil>"},
		{schema.Date, `[{"c":"1969-12-31"}]`, schema.Timestamp, ""},
		{schema.Timestamp, `[{"c":"1969-12-31T23:59:59.999999Z"}]`, schema.Timestamp, "-1"},
		{schema.Timestamp, `[{"c":"1969-12-31T00:00:00Z"}]`, schema.TimestampNTZ, ""},
		{schema.TimestampNTZ, `[{"c":"1970-01-01 00:00:01"}]`, schema.Timestamp, "1000000"},
		{schema.Timestamp, `[{"c":"1970-01-01T00:00:00Z"}]`, schema.Long, ""},
		{schema.Date, `[{"c":"1970-01-02"}]`, schema.Integer, ""},
		{schema.String, `[{"c":"é"},{"c":""},{"c":null}]`, schema.Binary, "0xc3a9 0x <nil>"},
		{schema.Binary, `[{"c":"YQ=="}]`, schema.String, "a"},
		{schema.String, `[{"c":"1"}]`, schema.Long, ""},
		{schema.Long, `[{"c":1}]`, schema.String, ""},
		{schema.Boolean, `[{"c":true}]`, schema.Integer, ""},
		{&schema.Array{Elem: schema.Long}, `[{"c":[1]}]`, schema.Long, ""},
		{schema.Long, `[{"c":1}]`, &schema.Array{Elem: schema.Long}, ""},
		{one(schema.Long), `[{"c":{"c":1}}]`, &schema.Array{Elem: schema.Long}, ""},
		{&schema.Array{Elem: schema.Long}, `[{"c":[1]}]`, one(schema.Long), ""},
		{&schema.Map{Key: schema.String, Value: schema.Long}, `[{"c":[{"key":"a","value":1}]}]`, &schema.Array{Elem: schema.String}, ""},
	}
	for _, c := range cases {
		name := fmt.Sprintf("%s as %s", c.from, c.to)
		if _, ok := c.to.(schema.Decimal); ok {
			name = "R-408 " + name
		}
		t.Run(name, func(t *testing.T) {
			f := openBytes(t, writeFile(t, one(c.from), WriterOptions{}, jsonBatch(t, one(c.from), c.json)))
			got, err := readColumn(f, c.to)
			var mismatch *TypeMismatchError
			switch {
			case c.want == "":
				if !errors.As(err, &mismatch) || mismatch.Column != "c" || mismatch.Want != c.to.String() {
					t.Fatalf("got %q, %v", got, err)
				}
			case c.want == "!":
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "out of range") {
					t.Fatalf("got %q, %v", got, err)
				}
			case err != nil || got != c.want:
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
	t.Run("unsigned B45", func(t *testing.T) {
		f := openFixture(t, "unsigned")
		for name, want := range map[string]struct {
			typ  schema.Type
			text string
		}{
			"u8": {schema.Short, "0 170 255"}, "u16": {schema.Integer, "0 60000 65535"},
			"u32": {schema.Long, "0 4000000000 4294967295"}, "u64": {schema.Decimal{Precision: 20}, "0 1 18446744073709551615"},
		} {
			s := &schema.Struct{Fields: []schema.Field{{Name: name, Type: want.typ, Nullable: true}}}
			b := readAll(t, f, s, ReadOptions{})
			got := strings.TrimSpace(fmt.Sprintln(cell(b.Column(0), 0), cell(b.Column(0), 1), cell(b.Column(0), 2)))
			if got != want.text {
				t.Errorf("%s: %s", name, got)
			}
		}
		for _, typ := range []schema.Type{schema.Long, schema.Decimal{Precision: 19}} {
			for _, err := range f.Read(context.Background(), &schema.Struct{Fields: []schema.Field{{Name: "u64", Type: typ}}}, ReadOptions{}) {
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("u64 as %s: %v", typ, err)
				}
			}
		}
	})
}

func TestDecimalBytes(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{[]byte{0xff}, "-1"}, {[]byte{0x7f}, "127"}, {[]byte{0x00, 0x80}, "128"}, {[]byte{0xff, 0x7f}, "-129"},
		{append(make([]byte, 20), 5), "5"},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}, "-2"},
	} {
		got, err := decimalBytes(c.b)
		if err != nil || got.BigInt().String() != c.want {
			t.Errorf("%x: %s %v", c.b, got.BigInt(), err)
		}
	}
	for _, b := range [][]byte{nil, append([]byte{1}, make([]byte, 16)...)} {
		if _, err := decimalBytes(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: %v", b, err)
		}
	}
	for p := 1; p <= 38; p++ {
		top := decimal128.GetMaxValue(int32(p)).BigInt()
		w := decimalWidth(p)
		if top.BitLen() >= 8*w || w > 1 && top.BitLen() < 8*(w-1) {
			t.Errorf("precision %d in %d bytes: %d bits", p, w, top.BitLen())
		}
	}
}

// The INT96 form of known instants.
func TestInt96Micros(t *testing.T) {
	in := make([]byte, 0, 36)
	add := func(nanos int64, day int32) {
		in = append(le64(uint64(nanos)), le32(uint32(day))...)
	}
	for _, c := range []struct {
		nanos int64
		day   int32
		want  int64
	}{
		{0, 2440588, 0},
		{86_399_999_999_999, 2440587, -1}, // floor, not toward zero
		{1_999, 2440588, 1},
		{-1, 2440588, -1},
		{0, 1721426, -62135596800000000}, // 0001-01-01
	} {
		add(c.nanos, c.day)
		out, err := int96Micros("c", in)
		if err != nil || signedLE(out) != c.want {
			t.Errorf("%d %d: %d %v", c.nanos, c.day, signedLE(out), err)
		}
	}
	add(math.MinInt64, math.MinInt32)
	if _, err := int96Micros("c", in); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

func TestFile_ReadRebase(t *testing.T) {
	dates := `[{"c":"1582-10-15"},{"c":"1582-10-14"},{"c":"0001-01-03"},{"c":"2020-02-29"}]`
	write := func(typ schema.Type, json string, kv map[string]string) *File {
		return openBytes(t, writeFile(t, one(typ), WriterOptions{KeyValue: kv}, jsonBatch(t, one(typ), json)))
	}
	const plain = "-141427 -141428 -719160 18321"
	// The stored day -141428 is 4 October 1582 of the old calendar, -719160 is 5 January 1.
	const moved = "-141427 -141438 -719158 18321"
	for name, c := range map[string]struct {
		kv   map[string]string
		want string
	}{
		"no keys":          {nil, plain},
		"Spark 3":          {map[string]string{"org.apache.spark.version": "3.5.0"}, plain},
		"Spark 2":          {map[string]string{"org.apache.spark.version": "2.4.8"}, moved},
		"Spark 3, old way": {map[string]string{"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}, moved},
	} {
		t.Run("dates of "+name, func(t *testing.T) {
			if got, err := readColumn(write(schema.Date, dates, c.kv), schema.Date); err != nil || got != c.want {
				t.Fatalf("%s %v", got, err)
			}
		})
	}
	old := map[string]string{"org.apache.spark.legacyDateTime": ""}
	times := `[{"c":"1582-10-14T01:00:00Z"},{"c":"1900-01-01T00:00:00Z"}]`
	t.Run("timestamps in an unknown zone are refused", func(t *testing.T) {
		if got, err := readColumn(write(schema.Timestamp, times, old), schema.Timestamp); !errors.Is(err, ErrUnsupported) {
			t.Fatal(got, err)
		}
		if _, err := readColumn(write(schema.Timestamp, `[{"c":"1900-01-01T00:00:00Z"}]`, old), schema.Timestamp); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("timestamps in UTC", func(t *testing.T) {
		old["org.apache.spark.timeZone"] = "Etc/UTC"
		f := write(schema.Timestamp, times, old)
		got, err := readColumn(f, schema.Timestamp)
		if want := fmt.Sprintf("%d %d", int64(-141438)*microsPerDay+3_600_000_000, int64(-25567)*microsPerDay); err != nil || got != want {
			t.Fatal(got, err, want)
		}
		if c := f.RowGroups()[0].Columns[0]; c.Min != nil {
			t.Fatal("bounds of the old calendar", c)
		}
	})
}
