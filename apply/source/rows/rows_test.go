package rows

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/log/schema"
)

// FuzzDecoder: no bytes panic, every record is one row or one poison record.
func FuzzDecoder(f *testing.F) {
	for _, s := range []string{`{"id":1,"op":"I","v":[1,"x",{}]}`, `{"id":9223372036854775808,"n":1e3}`, `[1]`, `null`, `{"id":1,"id":2}`, `{"op":"TRUNCATE"}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	for _, s := range corpora.Seeds(f, 40, "foreign", "kafka-connect-json", "*", "events.jsonl") {
		f.Add(s.Value, false)
	}
	ddl, err := schema.ParseDDL("id BIGINT, n DECIMAL(10,2), d DATE, t TIMESTAMP, v ARRAY<STRING>, s STRUCT<a: INT, b: MAP<STRING, DOUBLE>>")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value []byte, typed bool) {
		o := Options{}
		if typed {
			o.Schema = ddl
		}
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.Add(context.Background(), &event.Record{Value: value, Raw: value}); err != nil {
				t.Fatal(err)
			}
			out, err := d.Flush()
			if err != nil {
				t.Fatal(err)
			}
			n := len(out.Poison)
			for _, b := range out.Batches {
				n += len(b.Ops)
			}
			if n != 1 {
				t.Fatalf("%d rows and poison of one record", n)
			}
		}
		if err := d.Restore(d.State()); err != nil {
			t.Fatal(err)
		}
	})
}

func columns(t *testing.T, fields []arrow.Field, rows string) arrow.RecordBatch {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecoder_Columns(t *testing.T) {
	fields := []arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "v", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "_op", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "_rescued_data", Type: arrow.BinaryTypes.String, Nullable: true},
	}
	rows := columns(t, fields, `[{"id":1,"v":"a","_op":"I"},{"id":null,"v":"b","_op":"U"},{"id":3,"v":"c","_op":"what"},{"id":4,"v":null,"_op":"D"},{"id":5,"_op":"truncate","_rescued_data":"x"}]`)
	d, err := New(Options{Keys: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Add(context.Background(), &event.Record{Source: "f", Columns: rows, Line: 1, End: 5, Size: 100}); err != nil {
			t.Fatal(err)
		}
	}
	if n, size := d.Pending(); n != 6 || size != 200 {
		t.Fatalf("pending %d rows, %d bytes", n, size)
	}
	out, err := d.Flush()
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Batches) != 1 || len(out.Poison) != 4 || len(out.Warnings) != 1 {
		t.Fatalf("%d batches, %d poison, warnings %q", len(out.Batches), len(out.Poison), out.Warnings)
	}
	b := out.Batches[0]
	if got := b.Columns.Names(); len(got) != 2 || got[0] != "id" || got[1] != "v" {
		t.Fatalf("columns %q", got)
	}
	want := []event.Op{event.Insert, event.Delete, event.Truncate, event.Insert, event.Delete, event.Truncate}
	for i, op := range want {
		if b.Ops[i] != op {
			t.Fatalf("ops %v, want %v", b.Ops, want)
		}
	}
	if b.Lines[1] != 4 || b.Offsets[1] != 5 || b.Rows.NumRows() != 6 {
		t.Fatalf("lines %v, offsets %v", b.Lines, b.Offsets)
	}
	if p := out.Poison[0]; p.Code != "KEY_NULL" || p.Record.Line != 2 || string(p.Record.Raw) == "" {
		t.Fatalf("poison %+v", p)
	}
	if p := out.Poison[1]; p.Code != "UNKNOWN_OP" || p.Record.Line != 3 {
		t.Fatalf("poison %+v", p)
	}
}

func TestDecoder_ColumnsUnderSchema(t *testing.T) {
	ddl, _ := schema.ParseDDL("id BIGINT, d DATE, n DECIMAL(10,2), t TIMESTAMP")
	fields := []arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "d", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "t", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true}, {Name: "more", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	}
	rows := columns(t, fields, `[{"id":1,"d":"2024-02-29","n":5,"t":"2024-05-17 08:30:15.123456","more":1},{"id":2,"d":"never","n":null,"t":null}]`)
	d, err := New(Options{Schema: ddl})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Add(context.Background(), &event.Record{Columns: rows, Line: 1}); err != nil {
		t.Fatal(err)
	}
	out, err := d.Flush()
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Poison) != 1 || out.Poison[0].Class != event.PoisonField || len(out.Warnings) != 1 {
		t.Fatalf("poison %+v, warnings %q", out.Poison, out.Warnings)
	}
	b := out.Batches[0]
	if !schema.EqualIgnoringNullability(b.Columns, ddl) || b.Rows.NumRows() != 1 {
		t.Fatalf("columns %s, %d rows", b.Columns, b.Rows.NumRows())
	}
	got := ""
	for c := range int(b.Rows.NumCols()) {
		got += b.Rows.Column(c).ValueStr(0) + "|"
	}
	if got != "1|2024-02-29|5|2024-05-17T08:30:15.123456Z|" {
		t.Fatalf("values %s", got)
	}
}
