package parquetio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// elements prints the schema of a file, one element a line.
func elements(f *File) string {
	var b strings.Builder
	var walk func(n *node, indent string)
	walk = func(n *node, indent string) {
		rep := []string{"required", "optional", "repeated"}[n.repetition]
		text := "group"
		if n.isLeaf() {
			text = n.String()
		} else if n.logical.kind != logicalNone {
			text += " " + logicalNames[n.logical.kind]
		}
		fmt.Fprintf(&b, "%s%s %s %s", indent, rep, n.name, text)
		if n.converted >= 0 {
			fmt.Fprintf(&b, " converted=%d", n.converted)
		}
		if n.hasFieldID {
			fmt.Fprintf(&b, " id=%d", n.fieldID)
		}
		b.WriteString("\n")
		for _, c := range n.children {
			walk(c, indent+"  ")
		}
	}
	for _, c := range f.root.children {
		walk(c, "")
	}
	return b.String()
}

func TestWriter_PhysicalTypes(t *testing.T) {
	s := &schema.Struct{}
	for i, typ := range append(slices.Clone(primitives), &schema.Array{Elem: schema.String, ContainsNull: true},
		&schema.Map{Key: schema.String, Value: schema.Long, ValueContainsNull: true}) {
		s.Fields = append(s.Fields, schema.Field{Name: fmt.Sprintf("c%02d", i), Type: typ, Nullable: i%2 == 0})
	}
	r := rng(1)
	f := openBytes(t, writeFile(t, s, WriterOptions{}, randomBatch(t, &r, s, 3)))
	const want = `optional c00 BYTE_ARRAY STRING converted=0
required c01 INT64
optional c02 INT32
required c03 INT32 INT(16,true) converted=16
optional c04 INT32 INT(8,true) converted=15
required c05 FLOAT
optional c06 DOUBLE
required c07 BOOLEAN
optional c08 BYTE_ARRAY
required c09 INT32 DATE converted=6
optional c10 INT64 TIMESTAMP(MICROS,utc=true) converted=10
required c11 INT64 TIMESTAMP(MICROS,utc=false)
optional c12 INT32 DECIMAL(5,2) converted=5
required c13 INT64 DECIMAL(18,18) converted=5
optional c14 FIXED_LEN_BYTE_ARRAY(9) DECIMAL(19,3) converted=5
required c15 FIXED_LEN_BYTE_ARRAY(16) DECIMAL(38,10) converted=5
optional c16 group LIST converted=3
  repeated list group
    optional element BYTE_ARRAY STRING converted=0
required c17 group MAP converted=1
  repeated key_value group
    required key BYTE_ARRAY STRING converted=0
    optional value INT64
`
	if got := elements(f); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	t.Run("W-702 all optional but map keys", func(t *testing.T) {
		f := openBytes(t, writeFile(t, s, WriterOptions{AllOptional: true}))
		for _, l := range f.leaves {
			if (l.repetition == required) != (l.name == "key") {
				t.Errorf("%v has repetition %d", l.path(), l.repetition)
			}
		}
	})
}

func id(name string, n int, t schema.Type) schema.Field {
	return schema.Field{Name: name, Type: t, Nullable: true, Metadata: schema.Metadata{}.With(fieldIDKey, n)}
}

func TestWriter_FieldIDs(t *testing.T) {
	inner := &schema.Struct{Fields: []schema.Field{id("d", 4, schema.Long)}}
	e := id("e", 3, &schema.Array{Elem: inner, ContainsNull: true})
	e.Metadata = e.Metadata.With("delta.columnMapping.nested.ids", map[string]int{"e.element": 9})
	s := &schema.Struct{Fields: []schema.Field{id("a", 1, schema.String), e}}
	extra := &schema.Struct{Fields: []schema.Field{{Name: "__sluice", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{{Name: "v", Type: schema.Long, Nullable: true}}}}}}
	all := &schema.Struct{Fields: append(slices.Clone(s.Fields), extra.Fields...)}
	const json = `[{"a":"x","e":[{"d":1},null,{"d":null}],"__sluice":{"v":7}},{"a":null,"e":null,"__sluice":null}]`
	var out bytes.Buffer
	w, err := NewWriter(&out, s, WriterOptions{FieldIDs: true, Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(jsonBatch(t, all, json)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := openBytes(t, out.Bytes())
	t.Run("W-501 ids of struct fields and nested ids", func(t *testing.T) {
		const want = `optional a BYTE_ARRAY STRING converted=0 id=1
optional e group LIST converted=3 id=3
  repeated list group
    optional element group id=9
      optional d INT64 id=4
optional __sluice group
  optional v INT64
`
		if got := elements(f); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if raw, _ := f.Schema().Fields[1].Metadata.Get(fieldIDKey); string(raw) != "3" {
			t.Errorf("id in schema: %s", raw)
		}
		if f := openBytes(t, writeFile(t, s, WriterOptions{})); strings.Contains(elements(f), "id=") {
			t.Error("ids without FieldIDs")
		}
	})
	t.Run("R-501 match by id at every depth, R-505 path e.element.d", func(t *testing.T) {
		want := &schema.Struct{Fields: []schema.Field{
			id("a", 77, schema.String), // the id decides: not in the file
			id("E2", 3, &schema.Array{Elem: &schema.Struct{Fields: []schema.Field{id("other", 4, schema.Long)}}, ContainsNull: true}),
			{Name: "__sluice", Type: extra.Fields[0].Type, Nullable: true}, // by name
		}}
		got := readAll(t, f, want, ReadOptions{MatchFieldID: true})
		if s := fmt.Sprint(row(got, 0)); s != "map[E2:[map[other:1] <nil> map[other:<nil>]] __sluice:map[v:7] a:<nil>]" {
			t.Error(s)
		}
	})
	t.Run("HasColumn", func(t *testing.T) {
		if !f.HasColumn("__sluice", "v") || f.HasColumn("__sluice", "w") || f.HasColumn("A") || f.HasColumn() {
			t.Error("wrong answer")
		}
	})
}

func TestWriter_Refuses(t *testing.T) {
	for name, typ := range map[string]schema.Type{
		"W-404 void in an array":      &schema.Array{Elem: schema.Void, ContainsNull: true},
		"W-404 struct of voids":       one(schema.Void),
		"W-404 void only":             schema.Void,
		"R-402 unknown type":          schema.Unknown{Raw: "interval"},
		"R-402 unknown type in a map": &schema.Map{Key: schema.String, Value: schema.Unknown{Raw: "interval"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewWriter(io.Discard, one(typ), WriterOptions{}); !errors.Is(err, ErrInvalid) {
				t.Error(err)
			}
		})
	}
	if _, err := NewWriter(io.Discard, one(schema.Long), WriterOptions{Codec: "lzo"}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	strict := &schema.Struct{Fields: []schema.Field{{Name: "s", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{{Name: "x", Type: schema.Long}}}}}}
	loose := &schema.Struct{Fields: []schema.Field{{Name: "s", Nullable: true, Type: one(schema.Long)}}}
	loose.Fields[0].Type.(*schema.Struct).Fields[0].Name = "x"
	w, _ := NewWriter(io.Discard, strict, WriterOptions{})
	if err := w.Write(jsonBatch(t, loose, `[{"s":null}]`)); err != nil {
		t.Errorf("null struct with required field: %v", err)
	}
	if err := w.Write(jsonBatch(t, loose, `[{"s":{"x":null}}]`)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "s.x") {
		t.Errorf("null in required field: %v", err)
	}
	if err := w.Close(); !errors.Is(err, ErrInvalid) {
		t.Errorf("close after a failed write: %v", err)
	}
	w, _ = NewWriter(io.Discard, one(schema.Long), WriterOptions{})
	if err := w.Write(jsonBatch(t, one(schema.Integer), `[{"c":1}]`)); !errors.Is(err, ErrInvalid) {
		t.Errorf("W-402 other type: %v", err)
	}
	b := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 3, Scale: 0})
	b.Append(decimal128.FromI64(1000))
	dec := one(schema.Decimal{Precision: 3})
	as, _ := schema.ArrowSchema(dec)
	w, _ = NewWriter(io.Discard, dec, WriterOptions{})
	if err := w.Write(array.NewRecordBatch(as, []arrow.Array{b.NewArray()}, 1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("decimal of too many digits: %v", err)
	}
	full := errors.New("disk full")
	w, _ = NewWriter(failAfter{full}, one(schema.Long), WriterOptions{})
	_ = w.Write(jsonBatch(t, one(schema.Long), `[{"c":1}]`))
	if err := w.Close(); !errors.Is(err, full) {
		t.Errorf("failing store: %v", err)
	}
}

type failAfter struct{ err error }

func (f failAfter) Write([]byte) (int, error) { return 0, f.err }

func TestWriter_Void(t *testing.T) {
	s := &schema.Struct{Fields: []schema.Field{{Name: "v", Type: schema.Void, Nullable: true}, {Name: "c", Type: schema.Long, Nullable: true}}}
	f := openBytes(t, writeFile(t, s, WriterOptions{}, jsonBatch(t, s, `[{"v":null,"c":5}]`)))
	if f.HasColumn("v") || !f.HasColumn("c") {
		t.Fatal(elements(f))
	}
	if got := fmt.Sprint(row(readAll(t, f, s, ReadOptions{}), 0)); got != "map[c:5 v:<nil>]" {
		t.Fatal(got)
	}
}

func TestWriter_Variant(t *testing.T) {
	s := one(schema.Variant)
	f := openBytes(t, writeFile(t, s, WriterOptions{}, jsonBatch(t, s, `[{"c":{"metadata":"AQ==","value":"Ag=="}},{"c":null}]`)))
	got := readAll(t, f, s, ReadOptions{})
	if s := fmt.Sprint(cell(got.Column(0), 0), cell(got.Column(0), 1)); s != "map[metadata:0x01 value:0x02] <nil>" {
		t.Fatal(s, elements(f))
	}
}

func TestWriter_Empty(t *testing.T) {
	f := openBytes(t, writeFile(t, orders, WriterOptions{KeyValue: map[string]string{"k": "v"}, CreatedBy: "me"}))
	if f.NumRows() != 0 || len(f.RowGroups()) != 0 || f.CreatedBy() != "me" {
		t.Fatal("not empty")
	}
	if v, ok := f.KeyValue("k"); v != "v" || !ok {
		t.Fatal("key-value metadata lost")
	}
	if got := readAll(t, f, orders, ReadOptions{}); got.NumRows() != 0 {
		t.Fatal(got)
	}
}

// Bounds and null counts of every kind of column (field reports B36, B38).
func TestFile_RowGroups(t *testing.T) {
	long := strings.Repeat("é", 40)
	for _, c := range []struct {
		typ      schema.Type
		json     string
		nulls    int64
		min, max any
	}{
		{schema.Long, `[{"c":3},{"c":null},{"c":-7}]`, 1, int64(-7), int64(3)},
		{schema.Byte, `[{"c":3},{"c":-7}]`, 0, int64(-7), int64(3)},
		{schema.Long, `[{"c":null},{"c":null}]`, 2, nil, nil},
		{schema.Date, `[{"c":"1969-12-30"}]`, 0, int64(-2), int64(-2)},
		{schema.Boolean, `[{"c":true},{"c":false}]`, 0, false, true},
		{schema.String, `[{"c":"b"},{"c":""}]`, 0, "", "b"},
		{schema.String, `[{"c":"` + long + `"}]`, 0, strings.Repeat("é", 32), strings.Repeat("é", 31) + "ê"},
		{schema.Double, `[{"c":0},{"c":1.5}]`, 0, math.Copysign(0, -1), 1.5},
		{schema.Decimal{Precision: 4, Scale: 2}, `[{"c":"1.25"},{"c":"-3.5"}]`, 0, decimal128.FromI64(-350), decimal128.FromI64(125)},
		{schema.Decimal{Precision: 30, Scale: 2}, `[{"c":"1.25"},{"c":"-3.5"},{"c":"0"}]`, 0, decimal128.FromI64(-350), decimal128.FromI64(125)},
	} {
		f := openBytes(t, writeFile(t, one(c.typ), WriterOptions{}, jsonBatch(t, one(c.typ), c.json)))
		s := f.RowGroups()[0].Columns[0]
		if s.NullCount != c.nulls || fmt.Sprint(s.Min) != fmt.Sprint(c.min) || fmt.Sprint(s.Max) != fmt.Sprint(c.max) {
			t.Errorf("%s: %d %v %v, want %d %v %v", c.typ, s.NullCount, s.Min, s.Max, c.nulls, c.min, c.max)
		}
	}
	t.Run("NaN has no bounds B36", func(t *testing.T) {
		as, _ := schema.ArrowSchema(one(schema.Double))
		b := array.NewFloat64Builder(memory.DefaultAllocator)
		b.AppendValues([]float64{1, math.NaN(), 5}, nil)
		f := openBytes(t, writeFile(t, one(schema.Double), WriterOptions{}, array.NewRecordBatch(as, []arrow.Array{b.NewArray()}, 3)))
		if s := f.RowGroups()[0].Columns[0]; s.Min != nil || s.Max != nil || s.NullCount != 0 {
			t.Error(s)
		}
		if f.meta.rowGroups[0].columns[0].colIdxLen != 0 {
			t.Error("column index of pages with NaN")
		}
	})
	t.Run("writers with wrong null counts B38", func(t *testing.T) {
		f := openBytes(t, writeFile(t, one(schema.Long), WriterOptions{CreatedBy: "github.com/xitongsys/parquet-go"}, jsonBatch(t, one(schema.Long), `[{"c":3}]`)))
		if s := f.RowGroups()[0].Columns[0]; s.NullCount != -1 || s.Min == nil {
			t.Error(s)
		}
	})
	t.Run("no column order, no bounds of text", func(t *testing.T) {
		f := openBytes(t, writeFile(t, one(schema.String), WriterOptions{}, jsonBatch(t, one(schema.String), `[{"c":"x"}]`)))
		f.meta.typeOrders = nil
		if s := f.RowGroups()[0].Columns[0]; s.Min != nil {
			t.Error(s)
		}
	})
}

// countingReader counts the bytes that are read.
type countingReader struct {
	*bytes.Reader
	n, calls int64
}

func (c *countingReader) ReadAt(b []byte, off int64) (int, error) {
	c.calls++
	c.n += int64(len(b))
	return c.Reader.ReadAt(b, off)
}

func TestFile_ReadRowsSkipsPages(t *testing.T) {
	s := &schema.Struct{Fields: []schema.Field{{Name: "id", Type: schema.Long, Nullable: true}, {Name: "l", Type: &schema.Array{Elem: schema.Long, ContainsNull: true}, Nullable: true}}}
	r := rng(5)
	batch := randomBatch(t, &r, s, 100_000)
	data := writeFile(t, s, WriterOptions{RowGroupRows: 60_000, PageBytes: 16 << 10, Codec: "uncompressed", DictBytes: -1}, batch)
	in := &countingReader{Reader: bytes.NewReader(data)}
	f, err := Open(in, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	in.n, in.calls = 0, 0
	rows := []int64{5, 30_000, 59_999, 60_000, 99_999}
	sameBatch(t, readAll(t, f, s, ReadOptions{Rows: rows}), take(t, batch, rows))
	if in.calls > 24 { // two columns, two groups: dictionaryless pages and two indexes each
		t.Errorf("%d reads for %d rows", in.calls, len(rows))
	}
	if in.n > int64(len(data))/3 {
		t.Errorf("read %d of %d bytes for %d rows", in.n, len(data), len(rows))
	}
	t.Run("no columns wanted, nothing read", func(t *testing.T) {
		in.n = 0
		if got := readAll(t, f, &schema.Struct{}, ReadOptions{}); got.NumRows() != 100_000 || in.n != 0 {
			t.Error(got.NumRows(), in.n)
		}
	})
	t.Run("wide rows make small batches", func(t *testing.T) {
		wide := one(schema.String)
		as, _ := schema.ArrowSchema(wide)
		b := array.NewRecordBuilder(memory.DefaultAllocator, as)
		for range 40 {
			b.Field(0).(*array.StringBuilder).Append(strings.Repeat("x", 3<<20))
		}
		f := openBytes(t, writeFile(t, wide, WriterOptions{DictBytes: -1}, b.NewRecordBatch()))
		r := newLeafReader(f, 0, 0, true, true, nil)
		if err := r.loadIndex(); err != nil || len(r.index) != 40 {
			t.Errorf("%d pages, %v", len(r.index), err)
		}
		for b, err := range f.Read(context.Background(), wide, ReadOptions{}) {
			if err != nil || b.NumRows() > 25 {
				t.Fatal(b.NumRows(), err)
			}
		}
	})
}

func TestFile_ReadStops(t *testing.T) {
	data := writeFile(t, orders, WriterOptions{Codec: "zstd"}, ordersBatch(50_000))
	f := openBytes(t, data)
	before := runtime.NumGoroutine()
	for range 20 {
		for range f.Read(context.Background(), orders, ReadOptions{BatchRows: 100}) {
			break
		}
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batches := 0
	for _, err := range f.Read(ctx, orders, ReadOptions{BatchRows: 1000}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		batches++
		cancel()
	}
	if batches != 1 {
		t.Errorf("%d batches after cancel", batches)
	}
	for _, o := range []ReadOptions{{Rows: []int64{3, 3}}, {Rows: []int64{-1}}, {Rows: []int64{50_000}}, {RowGroups: []int{1}}, {RowGroups: []int{0, 0}}} {
		for _, err := range f.Read(context.Background(), orders, o) {
			if err == nil {
				t.Errorf("%+v was accepted", o)
			}
		}
	}
	t.Run("checksum of a page", func(t *testing.T) {
		bad := bytes.Clone(data)
		bad[f.meta.rowGroups[0].columns[0].dataOffset+200] ^= 1
		var err error
		for _, err = range openBytes(t, bad).Read(context.Background(), orders, ReadOptions{}) {
			if err != nil {
				break
			}
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "column id") {
			t.Error(err)
		}
	})
	t.Run("not Parquet", func(t *testing.T) {
		for _, b := range []string{"", "PAR1", "PAR1PAR1", "hello, world, this is text", "PARE" + strings.Repeat("x", 20) + "PARE"} {
			if _, err := Open(strings.NewReader(b), int64(len(b))); !errors.Is(err, ErrNotParquet) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%q: %v", b, err)
			}
		}
	})
}

func TestWriter_Rolling(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, orders, WriterOptions{RowGroupBytes: 200 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := w.Write(ordersBatch(5000)); err != nil {
			t.Fatal(err)
		}
		if n := w.BufferedBytes(); n > 400<<10 {
			t.Errorf("%d bytes buffered", n)
		}
	}
	if w.Rows() != 50_000 || w.Written() == 0 {
		t.Error(w.Rows(), w.Written())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := openBytes(t, out.Bytes())
	if len(f.RowGroups()) < 3 {
		t.Errorf("%d row groups", len(f.RowGroups()))
	}
	for _, g := range f.meta.rowGroups {
		if c := g.columns[2]; c.encodingKinds&(1<<uint(format.RLEDictionary)) == 0 {
			t.Error("status has no dictionary")
		}
		if c := g.columns[0]; c.encodingKinds&(1<<uint(format.RLEDictionary)) != 0 {
			t.Error("id has a dictionary")
		}
	}
}

// The page index of our own files and of others: bounds hold, and spans of rows
// can be read without the pages around them.
func TestFile_Pages(t *testing.T) {
	batch := ordersBatch(60_000)
	data := writeFile(t, orders, WriterOptions{PageBytes: 32 << 10, RowGroupRows: 40_000}, batch)
	in := &countingReader{Reader: bytes.NewReader(data)}
	f, err := Open(in, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var hit []RowRange
	for g := range f.RowGroups() {
		pages, err := f.Pages(g, 0)
		if err != nil || len(pages) < 3 {
			t.Fatal(len(pages), err)
		}
		for _, p := range pages {
			if p.Min != 2*p.FirstRow || p.Max != 2*(p.FirstRow+p.Rows-1) || p.NullCount != 0 || p.AllNull {
				t.Fatalf("%+v", p)
			}
			if p.Min.(int64) <= 90_001 && p.Max.(int64) >= 90_000 {
				hit = append(hit, RowRange{p.FirstRow, p.FirstRow + p.Rows})
			}
		}
	}
	if len(hit) != 1 {
		t.Fatal(hit)
	}
	in.n = 0
	var got []arrow.RecordBatch
	for b, err := range f.Read(context.Background(), orders, ReadOptions{Ranges: hit, BatchRows: 1000}) {
		if err != nil {
			t.Fatal(err)
		}
		if b.FirstRow < hit[0].From || b.FirstRow+b.NumRows() > hit[0].To {
			t.Fatal(b.FirstRow, b.NumRows())
		}
		b.Retain()
		got = append(got, b.RecordBatch)
	}
	sameBatch(t, concat(t, got), batch.NewSlice(hit[0].From, hit[0].To))
	if in.n > int64(len(data))/2 {
		t.Errorf("read %d of %d bytes", in.n, len(data))
	}
	for _, bad := range [][]RowRange{{{5, 5}}, {{0, 60_001}}, {{0, 5}, {4, 6}}, {{-1, 2}}} {
		for _, err := range f.Read(context.Background(), orders, ReadOptions{Ranges: bad}) {
			if err == nil {
				t.Errorf("%v was accepted", bad)
			}
		}
	}
	if pages, err := openFixture(t, "v2-pages").Pages(0, 15); err != nil || len(pages) < 2 || pages[1].Min != pages[1].FirstRow {
		t.Error(pages, err)
	}
	if pages, err := openFixture(t, "v1-pages").Pages(0, 0); err != nil || pages != nil {
		t.Error(pages, err)
	}
}
