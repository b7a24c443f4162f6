package datafile

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

const randDDL = "p STRING, i INT, n BIGINT, s STRING, f DOUBLE, d DECIMAL(20,3), day DATE, ts TIMESTAMP, z TIMESTAMP_NTZ, b BOOLEAN, x BINARY, st STRUCT<a: INT, t: STRUCT<u: STRING>>, l ARRAY<STRING>"

// drawRow is a JSON row of randDDL.
func drawRow(t *rapid.T) map[string]any {
	maybe := func(name string, v func() any) any {
		if rapid.IntRange(0, 4).Draw(t, name+" null") == 0 {
			return nil
		}
		return v()
	}
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab\u007fé\uffff😀\U0010FFFF/ %=")))
	micros := func() any {
		us := rapid.Int64Range(-62135596800_000000, 253402300799_999999).Draw(t, "us")
		return microText(us)
	}
	return map[string]any{
		"p": maybe("p", func() any { return text.Filter(func(s string) bool { return s != "" && len(s) < 60 }).Draw(t, "p") }),
		"i": maybe("i", func() any { return rapid.Int32().Draw(t, "i") }),
		"n": maybe("n", func() any { return json.Number(fmt.Sprint(rapid.Int64().Draw(t, "n"))) }),
		"s": maybe("s", func() any { return strings.Repeat(text.Draw(t, "s"), rapid.IntRange(1, 20).Draw(t, "times")) }),
		"f": maybe("f", func() any { return rapid.Float64Range(-1e6, 1e6).Draw(t, "f") }),
		"d": maybe("d", func() any {
			return fmt.Sprintf("%d.%03d", rapid.Int64Range(-1e15, 1e15).Draw(t, "d"), rapid.IntRange(0, 999).Draw(t, "frac"))
		}),
		"day": maybe("day", func() any {
			return microText(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "day") * 1e6)[:10]
		}),
		"ts": maybe("ts", func() any { return micros().(string) + "Z" }), "z": maybe("z", micros),
		"b": maybe("b", func() any { return rapid.Bool().Draw(t, "b") }), "x": maybe("x", func() any { return rapid.SliceOf(rapid.Byte()).Draw(t, "x") }),
		"st": maybe("st", func() any {
			return map[string]any{"a": maybe("a", func() any { return rapid.Int32Range(-5, 5).Draw(t, "a") }),
				"t": maybe("t", func() any {
					return map[string]any{"u": maybe("u", func() any { return text.Draw(t, "u") })}
				})}
		}),
		"l": maybe("l", func() any { return rapid.SliceOfN(text, 0, 3).Draw(t, "l") }),
	}
}

func microText(us int64) string {
	return arrow.Timestamp(us).ToTime(arrow.Microsecond).Format("2006-01-02T15:04:05.000000")
}

// drawWhere is a condition over randDDL with literals near the rows' values.
func drawWhere(t *rapid.T, rows []map[string]any) string {
	row := rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")]
	op := rapid.SampledFrom([]string{"=", "<>", "<", "<=", ">", ">=", "<=>"}).Draw(t, "op")
	quote := func(v any) string {
		return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace(v.(string)) + "'"
	}
	switch c := rapid.SampledFrom([]string{"p", "i", "n", "s", "f", "d", "day", "ts", "z", "st.a", "st.t.u"}).Draw(t, "column"); c {
	case "p", "s":
		if row[c] != nil {
			return c + " " + op + " " + quote(row[c])
		}
		return c + " IS NULL"
	case "i", "n", "f":
		if row[c] != nil {
			return fmt.Sprintf("%s %s %v", c, op, row[c])
		}
		return c + " IS NOT NULL"
	case "d":
		if row[c] != nil {
			return fmt.Sprintf("d %s CAST('%s' AS DECIMAL(20,3))", op, row[c])
		}
		return "d IS NULL"
	case "day":
		if row[c] != nil {
			return fmt.Sprintf("day %s DATE '%s'", op, row[c])
		}
		return "day IS NULL OR i > 0"
	case "ts", "z":
		if row[c] == nil {
			return c + " IS NULL"
		}
		return fmt.Sprintf("%s %s %s '%s'", c, op, map[string]string{"ts": "TIMESTAMP", "z": "TIMESTAMP_NTZ"}[c], row[c])
	case "st.a":
		return fmt.Sprintf("st.a %s %d", op, rapid.IntRange(-6, 6).Draw(t, "literal"))
	default:
		return "st.t.u " + op + " 'a'"
	}
}

// TestFile_RoundTrip: what is written comes back, split into partitions, and no
// statistics hide a row from a condition.
func TestFile_RoundTrip(t *testing.T) {
	l := mustLayout(t, randDDL, []string{"p"}, nil)
	testenv.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		s := storage.NewMemory("r")
		rows := make([]map[string]any, rapid.IntRange(1, 12).Draw(t, "rows"))
		for i := range rows {
			rows[i] = drawRow(t)
		}
		text, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWriter(s, l, WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, w.Schema(), strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		cut := int64(rapid.IntRange(0, int(b.NumRows())).Draw(t, "cut"))
		for _, part := range []arrow.RecordBatch{b.NewSlice(0, cut), b.NewSlice(cut, b.NumRows())} {
			if err := w.Write(ctx, part); err != nil {
				t.Fatal(err)
			}
		}
		files, err := w.Close(ctx)
		if err != nil {
			t.Fatal(err)
		}
		adds := make([]*deltalog.Add, len(files))
		got := map[string]int{}
		for i, f := range files {
			adds[i] = f.Add(true)
			for batch, err := range Read(ctx, s, l, adds[i], ReadOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				for j := range int(batch.NumRows()) {
					got[rowText(batch.RecordBatch, j)]++
				}
			}
		}
		for j := range int(b.NumRows()) {
			got[rowText(b, j)]--
		}
		for line, n := range got {
			if n != 0 {
				t.Fatalf("%+d times %s", n, line)
			}
		}
		for range 6 {
			where := drawWhere(t, rows)
			bound := bind(t, l, where)
			hits, err := bound.EvalFilter(b)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, a := range adds {
				if !l.MayMatch(bound, a) {
					continue
				}
				all := l.AllMatch(bound, a)
				for batch, err := range Read(ctx, s, l, a, ReadOptions{Filter: bound, Columns: []string{}}) {
					if err != nil {
						t.Fatal(err)
					}
					found += int(batch.NumRows())
					if all && batch.NumRows() != ParseStats(a.Stats).NumRecords {
						t.Fatalf("%s: AllMatch, but only %d rows", where, batch.NumRows())
					}
				}
			}
			if found != len(hits) {
				t.Fatalf("R-602 %s: %d rows found, %d are there; statistics %s", where, found, len(hits), adds[0].Stats)
			}
		}
	})
}

// rowText is one row as text with every bit of its floats.
func rowText(b arrow.RecordBatch, i int) string {
	var out strings.Builder
	for c := range int(b.NumCols()) {
		if f, ok := b.Column(c).(*array.Float64); ok && f.IsValid(i) {
			fmt.Fprintf(&out, "%x|", math.Float64bits(f.Value(i)))
			continue
		}
		fmt.Fprintf(&out, "%s|", array.NewSlice(b.Column(c), int64(i), int64(i+1)))
	}
	return out.String()
}
