package deltalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/scalar"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
)

// Statistics stand in a checkpoint as JSON text, as a struct of the table's columns,
// or both. This file turns one into the other.

// restoreStats fills Add.Stats from stats_parsed for rows without text. Statistics
// are never required: where the struct does not fit the table's schema, the
// adds stay without.
func restoreStats(ctx context.Context, file *parquetio.File, cfg *TableConfig, bare []rowAdd) error {
	want := &schema.Struct{Fields: []schema.Field{{Name: "add", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{
		{Name: "stats_parsed", Nullable: true, Type: cfg.statsSchema()},
	}}}}}
	row := int64(0)
	for b, err := range file.Read(ctx, want, parquetio.ReadOptions{}) {
		var mismatch *parquetio.TypeMismatchError
		if errors.As(err, &mismatch) {
			return nil
		}
		if err != nil {
			return err
		}
		stats := b.Column(0).(*array.Struct).Field(0).(*array.Struct)
		end := row + b.NumRows()
		for len(bare) > 0 && bare[0].row < end {
			if i := int(bare[0].row - row); stats.IsValid(i) {
				var out bytes.Buffer
				if writeStatsObject(&out, stats, i) {
					bare[0].add.Stats = out.String()
				}
			}
			bare = bare[1:]
		}
		row = end
	}
	return nil
}

// writeStatsObject writes the members that are not null; false if there are none.
func writeStatsObject(out *bytes.Buffer, s *array.Struct, i int) bool {
	start := out.Len()
	out.WriteByte('{')
	first := true
	for f, field := range s.DataType().(*arrow.StructType).Fields() {
		col := s.Field(f)
		if col.IsNull(i) {
			continue
		}
		mark := out.Len()
		if !first {
			out.WriteByte(',')
		}
		writeJSONText(out, field.Name)
		out.WriteByte(':')
		if !writeStatsValue(out, col, i) {
			out.Truncate(mark)
			continue
		}
		first = false
	}
	if first {
		out.Truncate(start)
		return false
	}
	out.WriteByte('}')
	return true
}

func writeStatsValue(out *bytes.Buffer, col arrow.Array, i int) bool {
	switch a := col.(type) {
	case *array.Struct:
		return writeStatsObject(out, a, i)
	case *array.String:
		writeJSONText(out, a.Value(i))
	case *array.Int64:
		out.WriteString(itoa(a.Value(i)))
	case *array.Int32:
		out.WriteString(itoa(int64(a.Value(i))))
	case *array.Int16:
		out.WriteString(itoa(int64(a.Value(i))))
	case *array.Int8:
		out.WriteString(itoa(int64(a.Value(i))))
	case *array.Boolean:
		out.WriteString(strconv.FormatBool(a.Value(i)))
	case *array.Float32:
		return writeStatsFloat(out, float64(a.Value(i)), 32)
	case *array.Float64:
		return writeStatsFloat(out, a.Value(i), 64)
	case *array.Decimal128:
		out.WriteString(schema.FormatDecimal(a.Value(i).BigInt(), int(a.DataType().(*arrow.Decimal128Type).Scale)))
	case *array.Date32:
		writeJSONText(out, time.Unix(int64(a.Value(i))*86400, 0).UTC().Format("2006-01-02"))
	case *array.Timestamp:
		us := int64(a.Value(i))
		layout := "2006-01-02T15:04:05.000"
		if us%1000 != 0 {
			layout = "2006-01-02T15:04:05.000000"
		}
		if a.DataType().(*arrow.TimestampType).TimeZone != "" {
			layout += "Z"
		}
		writeJSONText(out, time.UnixMicro(us).UTC().Format(layout))
	default:
		return false
	}
	return true
}

func writeStatsFloat(out *bytes.Buffer, v float64, bits int) bool {
	switch {
	case math.IsNaN(v):
		out.WriteString(`"NaN"`)
	case math.IsInf(v, 1):
		out.WriteString(`"Infinity"`)
	case math.IsInf(v, -1):
		out.WriteString(`"-Infinity"`)
	default:
		out.WriteString(strconv.FormatFloat(v, 'g', -1, bits))
	}
	return true
}

func writeJSONText(out *bytes.Buffer, s string) {
	// Marshalling a string cannot fail.
	b, _ := marshal(s)
	out.Write(b)
}

// appendStats adds the statistics of a text to a builder of statsSchema, or null
// where the text is absent or not JSON. A value that does not fit its
// column's type is left null.
func appendStats(b *array.StructBuilder, text string) {
	var v map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if text == "" || dec.Decode(&v) != nil {
		b.AppendNull()
		return
	}
	appendStatsStruct(b, v)
}

func appendStatsStruct(b *array.StructBuilder, v map[string]any) {
	b.Append(true)
	for i, f := range b.Type().(*arrow.StructType).Fields() {
		appendStatsValue(b.FieldBuilder(i), v[f.Name])
	}
}

func appendStatsValue(b array.Builder, v any) {
	if sub, ok := b.(*array.StructBuilder); ok {
		if m, ok := v.(map[string]any); ok {
			appendStatsStruct(sub, m)
		} else {
			sub.AppendNull()
		}
		return
	}
	if !appendStatsLeaf(b, v) {
		b.AppendNull()
	}
}

func appendStatsLeaf(b array.Builder, v any) bool {
	text := ""
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	case bool:
		if b, ok := b.(*array.BooleanBuilder); ok {
			b.Append(v)
			return true
		}
		return false
	default:
		return false
	}
	integer := func(bits int) (int64, bool) {
		n, err := strconv.ParseInt(text, 10, bits)
		return n, err == nil
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		if s, ok := v.(string); ok {
			b.Append(s)
			return true
		}
	case *array.Int64Builder:
		if n, ok := integer(64); ok {
			b.Append(n)
			return true
		}
	case *array.Int32Builder:
		if n, ok := integer(32); ok {
			b.Append(int32(n))
			return true
		}
	case *array.Int16Builder:
		if n, ok := integer(16); ok {
			b.Append(int16(n))
			return true
		}
	case *array.Int8Builder:
		if n, ok := integer(8); ok {
			b.Append(int8(n))
			return true
		}
	case *array.Float32Builder:
		if x, err := strconv.ParseFloat(text, 32); err == nil {
			b.Append(float32(x))
			return true
		}
	case *array.Float64Builder:
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			b.Append(x)
			return true
		}
	case *array.Decimal128Builder:
		t := b.Type().(*arrow.Decimal128Type)
		s, err := schema.ParsePartitionValue(schema.Decimal{Precision: int(t.Precision), Scale: int(t.Scale)}, &text, nil)
		if d, ok := s.(*scalar.Decimal128); err == nil && ok && d.Valid {
			b.Append(d.Value)
			return true
		}
	case *array.Date32Builder:
		s, err := schema.ParsePartitionValue(schema.Date, &text, nil)
		if d, ok := s.(*scalar.Date32); err == nil && ok && d.Valid {
			b.Append(d.Value)
			return true
		}
	case *array.TimestampBuilder:
		typ := schema.Timestamp
		if b.Type().(*arrow.TimestampType).TimeZone == "" {
			typ = schema.TimestampNTZ
		}
		s, err := schema.ParsePartitionValue(typ, &text, nil)
		if d, ok := s.(*scalar.Timestamp); err == nil && ok && d.Valid {
			b.Append(d.Value)
			return true
		}
	}
	return false
}
