package testtable

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/variant"
	"github.com/sluice-data/sluice/log/schema"
)

// Struct parses a DDL schema.
func Struct(tb testing.TB, ddl string) *schema.Struct {
	tb.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Batch is the record batch of JSON objects, one after the other, with the columns
// of ddl; a field that an object lacks is null.
func Batch(tb testing.TB, ddl, objects string) arrow.RecordBatch {
	tb.Helper()
	as, err := schema.ArrowSchema(Struct(tb, ddl))
	if err != nil {
		tb.Fatal(err)
	}
	text := strings.TrimSpace(objects)
	if !strings.HasPrefix(text, "[") {
		var all []string
		d := json.NewDecoder(strings.NewReader(text))
		for d.More() {
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				tb.Fatalf("rows: %v", err)
			}
			all = append(all, string(raw))
		}
		text = "[" + strings.Join(all, ",") + "]"
	}
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(text))
	if err != nil {
		tb.Fatalf("rows: %v", err)
	}
	return b
}

// Rows is the stream of the batch that [Batch] makes; no objects make no batch.
func Rows(tb testing.TB, ddl, objects string) iter.Seq2[arrow.RecordBatch, error] {
	tb.Helper()
	if strings.TrimSpace(objects) == "" {
		return func(func(arrow.RecordBatch, error) bool) {}
	}
	return Stream(Batch(tb, ddl, objects))
}

// Stream yields the batches.
func Stream(batches ...arrow.RecordBatch) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Lines is the sorted canonical text of the rows of a stream, an object each.
func Lines(tb testing.TB, rows iter.Seq2[arrow.RecordBatch, error]) []string {
	tb.Helper()
	var out []string
	for b, err := range rows {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, BatchLines(b)...)
	}
	sort.Strings(out)
	return out
}

// BatchLines is the canonical text of the rows of b in their order.
func BatchLines(b arrow.RecordBatch) []string {
	out := make([]string, b.NumRows())
	for i := range out {
		row := make(map[string]any, b.NumCols())
		for c := range int(b.NumCols()) {
			row[b.ColumnName(c)] = Value(b.Column(c), i)
		}
		out[i] = CanonicalJSON(row)
	}
	return out
}

var variantType, _ = schema.ArrowType(schema.Variant)

// Value is a[i] in the value forms of the golden tables: integers and floats as
// json.Number, decimals and times as text, binary as base64, variants
// as their JSON text.
func Value(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Null:
		return nil
	case *array.Boolean:
		return a.Value(i)
	case *array.String:
		return a.Value(i)
	case *array.Binary:
		return base64.StdEncoding.EncodeToString(a.Value(i))
	case *array.Int8:
		return json.Number(strconv.Itoa(int(a.Value(i))))
	case *array.Int16:
		return json.Number(strconv.Itoa(int(a.Value(i))))
	case *array.Int32:
		return json.Number(strconv.Itoa(int(a.Value(i))))
	case *array.Int64:
		return json.Number(strconv.FormatInt(a.Value(i), 10))
	case *array.Float32:
		return floatValue(float64(a.Value(i)))
	case *array.Float64:
		return floatValue(a.Value(i))
	case *array.Date32:
		return time.Unix(int64(a.Value(i))*86400, 0).UTC().Format("2006-01-02")
	case *array.Timestamp:
		layout := "2006-01-02T15:04:05.000000"
		if a.DataType().(*arrow.TimestampType).TimeZone != "" {
			layout += "Z"
		}
		return time.UnixMicro(int64(a.Value(i))).UTC().Format(layout)
	case *array.Decimal128:
		return schema.FormatDecimal(a.Value(i).BigInt(), int(a.DataType().(*arrow.Decimal128Type).Scale))
	case *array.Struct:
		if arrow.TypeEqual(a.DataType(), variantType) {
			text, err := variant.AppendJSON(nil, a.Field(0).(*array.Binary).Value(i), a.Field(1).(*array.Binary).Value(i))
			if err != nil {
				return err.Error()
			}
			return string(text)
		}
		out := map[string]any{}
		st := a.DataType().(*arrow.StructType)
		for c := range a.NumField() {
			out[st.Field(c).Name] = Value(a.Field(c), i)
		}
		return out
	case *array.Map:
		return mapValue(a, i)
	case *array.List:
		lo, hi := a.ValueOffsets(i)
		out := make([]any, 0, hi-lo)
		for j := lo; j < hi; j++ {
			out = append(out, Value(a.ListValues(), int(j)))
		}
		return out
	}
	return fmt.Sprintf("%s?", a.DataType())
}

func mapValue(a *array.Map, i int) any {
	lo, hi := a.ValueOffsets(i)
	if _, ok := a.Keys().(*array.String); ok {
		out := map[string]any{}
		for j := lo; j < hi; j++ {
			out[a.Keys().(*array.String).Value(int(j))] = Value(a.Items(), int(j))
		}
		return out
	}
	type entry struct {
		text string
		v    map[string]any
	}
	var entries []entry
	for j := lo; j < hi; j++ {
		v := map[string]any{"key": Value(a.Keys(), int(j)), "value": Value(a.Items(), int(j))}
		entries = append(entries, entry{CanonicalJSON(v), v})
	}
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.text, y.text) })
	out := make([]any, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.v)
	}
	return out
}

func floatValue(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return json.Number(s)
}

// CanonicalJSON prints a value with sorted keys and one form for each number, so
// that a value decoded from JSON (with UseNumber) and one from [Value] compare.
func CanonicalJSON(v any) string {
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Quote(k) + ":")
			writeCanonical(b, v[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, e)
		}
		b.WriteByte(']')
	case json.Number:
		s := string(v)
		if strings.ContainsAny(s, ".eE") {
			if f, err := strconv.ParseFloat(s, 64); err == nil {
				s = string(floatValue(f).(json.Number))
			}
		}
		b.WriteString(s)
	case string:
		b.WriteString(strconv.Quote(v))
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v)
	}
}

// Diff tells how two sorted lists of lines differ, "" when they do not; at most a
// few lines of each side.
func Diff(got, want []string) string {
	count := map[string]int{}
	for _, l := range want {
		count[l]++
	}
	for _, l := range got {
		count[l]--
	}
	var b strings.Builder
	keys := make([]string, 0, len(count))
	for k, n := range count {
		if n != 0 {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for i, k := range keys {
		if i == 12 {
			fmt.Fprintf(&b, "... and %d more\n", len(keys)-i)
			break
		}
		if n := count[k]; n > 0 {
			fmt.Fprintf(&b, "missing %dx %s\n", n, k)
		} else {
			fmt.Fprintf(&b, "extra   %dx %s\n", -n, k)
		}
	}
	if b.Len() > 0 {
		return fmt.Sprintf("%d rows, want %d:\n%s", len(got), len(want), b.String())
	}
	return ""
}
