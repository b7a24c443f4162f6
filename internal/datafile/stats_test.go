package datafile

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

func mustLayout(t testing.TB, ddl string, partition []string, props map[string]string) *Layout {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	l, err := LayoutOf(mustConfig(t, s, partition, props), nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustConfig(t testing.TB, s *schema.Struct, partition []string, props map[string]string) *deltalog.TableConfig {
	t.Helper()
	c, err := deltalog.NewTableConfig(&deltalog.Protocol{MinReaderVersion: 2, MinWriterVersion: 5}, &deltalog.Metadata{
		ID: "t", Format: deltalog.Format{Provider: "parquet"}, SchemaString: s.JSON(), PartitionColumns: partition, Configuration: props,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// statsOf runs JSON rows through a collector of the layout's files.
func statsOf(t *testing.T, l *Layout, rows string) string {
	t.Helper()
	as, err := schema.ArrowSchema(l.file)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(l.file, l.indexed, l.prefix, l.tight)
	c.add(b)
	return c.json()
}

func TestCollector_JSON(t *testing.T) {
	for _, tt := range []struct{ name, ddl, rows, want string }{
		{"W-601 numRecords, W-602 kinds of columns", "a INT, s STRING, b BOOLEAN, x BINARY, l ARRAY<INT>",
			`[{"a":3,"s":"q","b":true,"x":"AA==","l":[1]},{"a":-1,"s":null,"b":null,"x":null,"l":null}]`,
			`{"numRecords":2,"minValues":{"a":-1,"s":"q"},"maxValues":{"a":3,"s":"q"},"nullCount":{"a":0,"s":1,"b":1,"x":1,"l":1}}`},
		{"W-602 leaves of structs, a null struct counts for each", "p STRUCT<i: INT, j: STRUCT<k: STRING>>",
			`[{"p":{"i":1,"j":{"k":"x"}}},{"p":null},{"p":{"i":null,"j":null}}]`,
			`{"numRecords":3,"minValues":{"p":{"i":1,"j":{"k":"x"}}},"maxValues":{"p":{"i":1,"j":{"k":"x"}}},"nullCount":{"p":{"i":2,"j":{"k":2}}}}`},
		{"W-609 all null has no bounds", "a INT, b INT", `[{"a":null,"b":1}]`,
			`{"numRecords":1,"minValues":{"b":1},"maxValues":{"b":1},"nullCount":{"a":1,"b":0}}`},
		{"W-607 exact digits", "d DECIMAL(38,18), n BIGINT", `[{"d":"1.5","n":9007199254740993},{"d":"-12345678901234567890.000000000000000001","n":1}]`,
			`{"numRecords":2,"minValues":{"d":-12345678901234567890.000000000000000001,"n":1},"maxValues":{"d":1.500000000000000000,"n":9007199254740993},"nullCount":{"d":0,"n":0}}`},
		{"W-605 timestamps are floored to milliseconds", "t TIMESTAMP, z TIMESTAMP_NTZ, d DATE",
			`[{"t":"1969-12-31T23:59:59.999999Z","z":"2024-05-01T10:00:00.123999","d":"1969-12-31"},{"t":"2024-05-01T10:00:00.123999Z","z":"2024-05-01T10:00:00.123999","d":"2024-05-01"}]`,
			`{"numRecords":2,"minValues":{"t":"1969-12-31T23:59:59.999Z","z":"2024-05-01T10:00:00.123","d":"1969-12-31"},"maxValues":{"t":"2024-05-01T10:00:00.123Z","z":"2024-05-01T10:00:00.123","d":"2024-05-01"},"nullCount":{"t":0,"z":0,"d":0}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := statsOf(t, mustLayout(t, tt.ddl, nil, nil), tt.rows); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestCollector_Floats(t *testing.T) {
	stats := func(vs ...float64) string {
		b := array.NewFloat64Builder(memory.DefaultAllocator)
		b.AppendValues(vs, nil)
		l := mustLayout(t, "f DOUBLE", nil, nil)
		as, _ := schema.ArrowSchema(l.file)
		c := newCollector(l.file, l.indexed, l.prefix, false)
		c.add(array.NewRecordBatch(as, []arrow.Array{b.NewArray()}, int64(len(vs))))
		s := c.json()
		return s[strings.Index(s, `"minValues"`):strings.Index(s, `,"nullCount"`)]
	}
	negZero := math.Copysign(0, -1)
	for _, tt := range []struct {
		name string
		vs   []float64
		want string
	}{
		{"W-606 NaN leaves both bounds out", []float64{1, math.NaN()}, `"minValues":{},"maxValues":{}`},
		{"W-606 an infinity leaves its bound out", []float64{1, math.Inf(1)}, `"minValues":{"f":1.0},"maxValues":{}`},
		{"W-606 minus infinity", []float64{math.Inf(-1), 2.5}, `"minValues":{},"maxValues":{"f":2.5}`},
		{"W-606 zeroes are bounded by both", []float64{negZero}, `"minValues":{"f":-0.0},"maxValues":{"f":0.0}`},
		{"W-606 positive zero", []float64{0, -3}, `"minValues":{"f":-3.0},"maxValues":{"f":0.0}`},
		{"exponents", []float64{1e300, 1e-7}, `"minValues":{"f":1e-07},"maxValues":{"f":1e+300}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := stats(tt.vs...); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestStringBound(t *testing.T) {
	a32 := strings.Repeat("a", 32)
	top := "\U0010FFFF"
	for _, tt := range []struct{ name, in, min, max string }{
		{"W-604 at the limit", a32, a32, a32},
		{"W-604 cut before ASCII", a32 + "z", a32, a32 + "\u007f"},
		{"W-604 cut before DEL", a32 + "\u007f", a32, a32 + top},
		{"W-604 cut before non-ASCII", a32 + "é", a32, a32 + top},
		{"W-604 cut before the last code point", a32 + top + "b", a32, a32 + top + "\u007f"},
		{"W-604 32 times the last code point", strings.Repeat(top, 32), strings.Repeat(top, 16), strings.Repeat(top, 32)},
		{"W-604 33 times the last code point", strings.Repeat(top, 33), strings.Repeat(top, 16), ""},
		{"W-604 emoji across unit 32", strings.Repeat("a", 31) + "😀b", strings.Repeat("a", 31) + "😀", strings.Repeat("a", 31) + "😀\u007f"},
		{"W-604 emoji across unit 32 ends the string", strings.Repeat("a", 31) + "😀", strings.Repeat("a", 31) + "😀", strings.Repeat("a", 31) + "😀"},
		{"W-604 combining marks", strings.Repeat("e\u0301", 17), strings.Repeat("e\u0301", 16), strings.Repeat("e\u0301", 16) + "\u007f"},
		{"W-609 bytes that are no text", "a\xff", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := func(s string) string {
				if s == "" {
					return ""
				}
				return jsonString(s)
			}
			if got := stringBound(tt.in, false, 32); got != want(tt.min) {
				t.Errorf("min %q, want %q", got, want(tt.min))
			}
			if got := stringBound(tt.in, true, 32); got != want(tt.max) {
				t.Errorf("max %q, want %q", got, want(tt.max))
			}
		})
	}
}

func TestLayout_Indexed(t *testing.T) {
	wide := strings.TrimSuffix(strings.Repeat("c# INT, ", 40), ", ")
	for i := range 40 {
		wide = strings.Replace(wide, "#", string(rune('A'+i/26))+string(rune('a'+i%26)), 1)
	}
	count := func(l *Layout) int { return len(l.indexed) }
	if n := count(mustLayout(t, wide, nil, nil)); n != 32 {
		t.Errorf("W-603 default: %d leaves, want 32", n)
	}
	if n := count(mustLayout(t, wide, []string{"cAa"}, map[string]string{"delta.dataSkippingNumIndexedCols": "-1"})); n != 39 {
		t.Errorf("W-603 -1 without partition column: %d leaves, want 39", n)
	}
	if n := count(mustLayout(t, wide, nil, map[string]string{"delta.dataSkippingNumIndexedCols": "0"})); n != 0 {
		t.Errorf("W-603 0: %d leaves, want 0", n)
	}
	l := mustLayout(t, "a INT, s STRUCT<x: INT, y: STRUCT<z: INT>>, `b.c` INT, d INT", nil,
		map[string]string{"delta.dataSkippingStatsColumns": "S, `b.c`", "delta.dataSkippingNumIndexedCols": "1"})
	for _, want := range []string{"s\x00x", "s\x00y\x00z", "b.c"} {
		if !l.indexed[want] {
			t.Errorf("W-603 stats columns: %q not indexed: %v", want, l.indexed)
		}
	}
	if count(l) != 3 {
		t.Errorf("W-603 stats columns: %v", l.indexed)
	}
	if !l.WithStats([]string{"D"}).indexed["d"] || l.indexed["d"] {
		t.Error("WithStats must add to a copy")
	}
	if got := statsOf(t, mustLayout(t, "a INT", nil, map[string]string{"delta.dataSkippingNumIndexedCols": "0"}), `[{"a":1}]`); got != `{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{}}` {
		t.Errorf("W-603 0: %s", got)
	}
}

func TestLayoutOf_Carry(t *testing.T) {
	s, err := schema.ParseDDL("a INT, b INT")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"{", `{"type":"struct","fields":[{"name":"A","type":"integer","nullable":true,"metadata":{}}]}`} {
		var want *LayoutError
		if _, err := LayoutOf(mustConfig(t, s, nil, map[string]string{PropCarry: bad}), nil); !errors.As(err, &want) {
			t.Errorf("carry %s: %v", bad, err)
		}
	}
}

func TestTake(t *testing.T) {
	as := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "s", Type: arrow.StructOf(arrow.Field{Name: "l", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
			arrow.Field{Name: "t", Type: arrow.StructOf(arrow.Field{Name: "u", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}), Nullable: true}), Nullable: true},
		{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), Nullable: true},
		{Name: "v", Type: arrow.Null, Nullable: true},
	}, nil)
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(`[
		{"n":0},{"n":1,"s":{"l":["a",null],"t":{"u":true}},"m":[{"key":"k","value":1}]},
		{"n":null,"s":{"l":[],"t":null},"m":[]},{"n":3,"s":null,"m":null},{"n":4,"s":{"l":null,"t":{"u":null}},"m":[{"key":"x","value":null},{"key":"y","value":2}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range [][]int64{{0, 2, 4}, {4, 1}, {1, 2, 3}, {}, {0, 1, 2, 3, 4}, {3}} {
		for _, src := range []arrow.RecordBatch{b, b.NewSlice(1, 5)} {
			var use []int64
			for _, r := range rows {
				if r < src.NumRows() {
					use = append(use, r)
				}
			}
			got, err := Take(src, use)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range use {
				for c := range int(src.NumCols()) {
					if !array.SliceEqual(got.Column(c), int64(i), int64(i+1), src.Column(c), r, r+1) {
						t.Errorf("rows %v column %d row %d: %v, want %v", use, c, r, got.Column(c), src.Column(c))
					}
				}
			}
		}
	}
}
