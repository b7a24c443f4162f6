package expr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// TestBound_EvalFilterEqualsSpark counts, over the rows of the golden tables,
// what Spark counted for the same predicates.
func TestBound_EvalFilterEqualsSpark(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testenv.SharedDir(t, "golden", "spark"), "*.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var g struct {
			Schema     json.RawMessage
			Count      int
			Rows       []map[string]any
			Properties map[string]string
			Queries    []struct {
				Where string
				Count int
			}
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(g.Rows) != g.Count || len(g.Schema) == 0 {
			continue // only an aggregate is known
		}
		s, err := schema.ParseJSON([]byte(`{"type":"struct","fields":` + string(g.Schema) + `}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		batch := jsonBatch(t, s, g.Rows)
		check := func(where string, want int) {
			t.Run(name+"/"+where, func(t *testing.T) {
				x, err := Parse(where)
				if err != nil {
					t.Fatal(err)
				}
				b, err := x.Bind(s)
				if err != nil {
					t.Fatal(err)
				}
				rows, err := b.EvalFilter(batch)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) != want {
					t.Errorf("%d rows, Spark counts %d", len(rows), want)
				}
			})
		}
		for _, q := range g.Queries {
			if strings.Contains(q.Where, "variant") {
				continue // variant functions are not supported
			}
			queries++
			check(q.Where, q.Count)
		}
		for k, v := range g.Properties {
			if strings.HasPrefix(k, "delta.constraints.") {
				check(v, g.Count) // Spark kept every row true
			}
		}
	}
	if queries < 100 {
		t.Errorf("only %d queries found", queries)
	}
}

func jsonBatch(t *testing.T, s *schema.Struct, rows []map[string]any) arrow.RecordBatch {
	sc, err := schema.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	for _, r := range rows {
		for i, f := range s.Fields {
			jsonValue(t, b.Field(i), f.Type, r[f.Name])
		}
	}
	return b.NewRecordBatch()
}

func jsonValue(t *testing.T, b array.Builder, typ schema.Type, v any) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch x := typ.(type) {
	case *schema.Struct:
		b := b.(*array.StructBuilder)
		b.Append(true)
		for i, f := range x.Fields {
			jsonValue(t, b.FieldBuilder(i), f.Type, v.(map[string]any)[f.Name])
		}
		return
	case *schema.Array:
		b := b.(*array.ListBuilder)
		b.Append(true)
		for _, e := range v.([]any) {
			jsonValue(t, b.ValueBuilder(), x.Elem, e)
		}
		return
	case *schema.Map:
		b := b.(*array.MapBuilder)
		b.Append(true)
		entries, _ := v.(map[string]any)
		for k, e := range entries {
			if x.Key != schema.String {
				continue
			}
			jsonValue(t, b.KeyBuilder(), x.Key, k)
			jsonValue(t, b.ItemBuilder(), x.Value, e)
		}
		return
	case schema.Decimal:
		n, fits, ok := toDecimal(v.(string), x)
		if !ok || !fits {
			t.Fatalf("decimal %v", v)
		}
		b.(*array.Decimal128Builder).Append(n)
		return
	}
	if typ == schema.Variant {
		b.(*array.StructBuilder).Append(true)
		b.(*array.StructBuilder).FieldBuilder(0).(*array.BinaryBuilder).Append(nil)
		b.(*array.StructBuilder).FieldBuilder(1).(*array.BinaryBuilder).Append(nil)
		return
	}
	var val Value
	switch x := v.(type) {
	case bool:
		val = BoolValue(x)
	case json.Number:
		if classOf(typ) == clsFloat {
			f, err := strconv.ParseFloat(string(x), 64)
			if err != nil {
				t.Fatal(err)
			}
			val = FloatValue(f)
			break
		}
		i, err := x.Int64()
		if err != nil {
			t.Fatal(err)
		}
		val = IntValue(i)
	case string:
		val = jsonText(t, typ, x)
	}
	constant(typ, val).appendTo(b, 0)
}

func jsonText(t *testing.T, typ schema.Type, x string) Value {
	switch typ {
	case schema.Float, schema.Double:
		f, ok := parseFloat(x, 64)
		if !ok {
			t.Fatalf("float %q", x)
		}
		return FloatValue(f)
	case schema.Binary:
		raw, err := base64.StdEncoding.DecodeString(x)
		if err != nil {
			t.Fatal(err)
		}
		return BytesValue(string(raw))
	case schema.Date:
		d, ok := parseDate(x)
		if !ok {
			t.Fatalf("date %q", x)
		}
		return IntValue(d)
	case schema.Timestamp, schema.TimestampNTZ:
		us, ok := parseTimestamp(x, time.UTC, typ == schema.TimestampNTZ)
		if !ok {
			t.Fatalf("timestamp %q", x)
		}
		return IntValue(us)
	}
	if x == "-0.0" {
		return FloatValue(math.Copysign(0, -1))
	}
	return BytesValue(x)
}
