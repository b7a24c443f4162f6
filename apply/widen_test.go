package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
)

// twoTypes reads numbers of ten digits as the first notation has them, others as the
// second.
type twoTypes struct {
	textDecoder
	n [2]*notation
}

func (d *twoTypes) Add(ctx context.Context, r *event.Record) error {
	n := d.n[1]
	if strings.Contains(string(r.Value), "000000000") {
		n = d.n[0]
	}
	if d.textDecoder.n != n {
		d.cut()
		d.textDecoder.n = n
	}
	return d.textDecoder.Add(ctx, r)
}

// A column whose source type grows is widened where the table allows it (auto-cdc
// 1.4); rows, hidden events and late events of the narrow type go on.
func TestRun_WidensTypes(t *testing.T) {
	widen := map[string]string{"delta.enableTypeWidening": "true"}
	again := func(t *testing.T, first *bench, config string) *bench {
		b := newBench(t, config)
		b.store, b.source, b.opts, b.seen = first.store, first.source, first.opts, first.seen
		return b
	}
	t.Run("SCD1", func(t *testing.T) {
		b := newBench(t, "data: name STRING, n INT")
		b.flow.Properties = widen
		b.must(t, "U 1@5 (Ann, 7)", "U 2@5 (Bob, 8)")
		c := again(t, b, "data: name STRING, n BIGINT")
		c.must(t, "U 1@6 (Ann, 5000000000)")
		c.wantTable(t, "1, Ann, 5000000000", "2, Bob, 8")
		d := again(t, b, "data: name STRING, n INT")
		d.must(t, "U 1@4 (Ann, 1)", "U 2@9 (Bob, 9)")
		d.wantTable(t, "1, Ann, 5000000000", "2, Bob, 9")
	})
	t.Run("SCD2 with hidden events", func(t *testing.T) {
		b := newBench(t, "data: name STRING, n INT\nstored-as: 2\ntrack: name")
		b.flow.Properties = widen
		b.must(t, "U 1@1 (Ann, 1)", "U 1@3 (Ann, 3)", "U 1@5 (Ann, 5)")
		c := again(t, b, "data: name STRING, n BIGINT\nstored-as: 2\ntrack: name")
		c.must(t, "U 1@4 (Bob, 5000000000)")
		c.wantTable(t, "1, Ann, 3, 1→4", "1, Ann, 5, 5→∞", "1, Bob, 5000000000, 4→5")
	})
	t.Run("both types in the first batch", func(t *testing.T) {
		for _, order := range [][]string{{"1", "5000000000"}, {"5000000000", "1"}} {
			b := newBench(t, "data: name STRING, n BIGINT")
			b.flow.Properties = widen
			wide, narrow := b.n, newBench(t, "data: name STRING, n INT").n
			spec := b.spec()
			spec.NewDecoder = func() event.Decoder {
				return &twoTypes{n: [2]*notation{wide, narrow}}
			}
			for i, v := range order {
				b.source.lines = append(b.source.lines, fmt.Sprintf("U %d@5 (Ann, %s)", i+1, v))
			}
			if _, err := Run(context.Background(), spec, b.opts); err != nil {
				t.Fatal(err)
			}
			b.wantTable(t, "1, Ann, "+order[0], "2, Ann, "+order[1])
		}
	})
	t.Run("a pair that the protocol does not allow", func(t *testing.T) {
		b := newBench(t, "data: name STRING, n INT")
		b.flow.Properties = widen
		b.must(t, "U 1@5 (Ann, 7)")
		_, err := again(t, b, "data: name STRING, n STRING").run("U 1@6 (Ann, x)")
		wantCode(t, err, CodeIncompatibleType)
	})
	t.Run("E35 without the property", func(t *testing.T) {
		b := newBench(t, "data: name STRING, n INT")
		version := b.must(t, "U 1@5 (Ann, 7)").Version
		res, err := again(t, b, "data: name STRING, n BIGINT").run("U 1@6 (Ann, 8)")
		wantCode(t, err, CodeIncompatibleType)
		b.wantTable(t, "1, Ann, 7")
		if res.Version != version {
			t.Errorf("version %d, want %d", res.Version, version)
		}
	})
	t.Run("a key never changes its type", func(t *testing.T) {
		b := newBench(t, "keys: id INT")
		b.flow.Properties = widen
		b.must(t, "U 1@5 (Ann, Rome)")
		_, err := again(t, b, "keys: id BIGINT").run("U 1@6 (Ann, Oslo)")
		wantCode(t, err, CodeKeySchemaDrift)
	})
}

// Values in the state keep every bit, and are read as wider types too.
func TestCellCode_RoundTrip(t *testing.T) {
	of := func(dt arrow.DataType, add func(array.Builder)) arrow.Array {
		b := array.NewBuilder(memory.DefaultAllocator, dt)
		add(b)
		b.AppendNull()
		return b.NewArray()
	}
	dec := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	list := arrow.ListOf(arrow.PrimitiveTypes.Int32)
	st := arrow.StructOf(arrow.Field{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "b", Type: list, Nullable: true})
	structs := of(st, func(b array.Builder) {
		s := b.(*array.StructBuilder)
		s.Append(true)
		s.FieldBuilder(0).(*array.StringBuilder).Append("x")
		l := s.FieldBuilder(1).(*array.ListBuilder)
		l.Append(true)
		l.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{1, 2}, nil)
	})
	for _, c := range []struct {
		name  string
		a     arrow.Array
		to    arrow.DataType
		want  string
		names *innerNames
	}{
		{"int", of(arrow.PrimitiveTypes.Int32, func(b array.Builder) { b.(*array.Int32Builder).Append(-7) }), arrow.PrimitiveTypes.Int64, "[-7 (null)]", nil},
		{"int to double", of(arrow.PrimitiveTypes.Int16, func(b array.Builder) { b.(*array.Int16Builder).Append(300) }), arrow.PrimitiveTypes.Float64, "[300 (null)]", nil},
		{"int to decimal", of(arrow.PrimitiveTypes.Int32, func(b array.Builder) { b.(*array.Int32Builder).Append(-7) }), dec(20, 2), "[-7 (null)]", nil},
		{"float to double", of(arrow.PrimitiveTypes.Float32, func(b array.Builder) { b.(*array.Float32Builder).Append(0.5) }), arrow.PrimitiveTypes.Float64, "[0.5 (null)]", nil},
		{"decimal", of(dec(10, 2), func(b array.Builder) { b.(*array.Decimal128Builder).Append(decimal128.FromI64(-12345)) }), dec(20, 4), "[-123.45 (null)]", nil},
		{"date to timestamp", of(arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(1) }), &arrow.TimestampType{Unit: arrow.Microsecond}, "[86400000000 (null)]", nil},
		{"struct", structs, st, `{["x" (null)] [[1 2] (null)]}`, nil},
		{"struct by name", structs, st, `{["x" (null)] [[1 2] (null)]}`, &innerNames{names: []string{"a", "b"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, dt := range []arrow.DataType{c.a.DataType(), c.to} {
				b := array.NewBuilder(memory.DefaultAllocator, dt)
				for r := range c.a.Len() {
					cell, err := appendCellBytes(nil, c.a, r, c.names)
					if err != nil {
						t.Fatal(err)
					}
					rest, err := readCell(b, append(cell, 9), c.names)
					if err != nil || len(rest) != 1 {
						t.Fatalf("%v, rest %v", err, rest)
					}
					for n := range cell { // cut short
						if _, err := readCell(array.NewBuilder(memory.DefaultAllocator, dt), cell[:n], c.names); err == nil {
							t.Fatalf("%d of %d bytes were a value", n, len(cell))
						}
					}
				}
				got := b.NewArray()
				if s := got.String(); arrow.TypeEqual(dt, c.to) && s != c.want {
					t.Errorf("got %s, want %s", s, c.want)
				}
				if arrow.TypeEqual(dt, c.a.DataType()) && !array.Equal(got, c.a) {
					t.Errorf("got %s, want %s", got, c.a)
				}
			}
		})
	}
}

// Fields of a struct are known by their names: one that went is passed over, one that
// joined is null, and places do not count; what an older state kept by place is read.
func TestCellCode_Names(t *testing.T) {
	text := func(n string) arrow.Field {
		return arrow.Field{Name: n, Type: arrow.BinaryTypes.String, Nullable: true}
	}
	b := array.NewBuilder(memory.DefaultAllocator, arrow.StructOf(text("a"), text("b"), text("c"))).(*array.StructBuilder)
	b.Append(true)
	for f, v := range []string{"1", "2", "3"} {
		b.FieldBuilder(f).(*array.StringBuilder).Append(v)
	}
	old := b.NewArray()
	read := func(cell []byte, names ...string) (string, error) {
		var fields []arrow.Field
		for _, n := range names {
			fields = append(fields, text(n))
		}
		b := array.NewBuilder(memory.DefaultAllocator, arrow.StructOf(fields...))
		_, err := readCell(b, cell, &innerNames{names: names})
		return b.NewArray().String(), err
	}
	named, err := appendCellBytes(nil, old, 0, &innerNames{names: []string{"a", "b", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(named, "c", "d", "b"); err != nil || got != `{["3"] [(null)] ["2"]}` {
		t.Errorf("got %s, %v", got, err)
	}
	placed, err := appendCellBytes(nil, old, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(placed, "a", "b", "c", "d"); err != nil || got != `{["1"] ["2"] ["3"] [(null)]}` {
		t.Errorf("by place: got %s, %v", got, err)
	}
	if got, err := read(placed, "a", "b"); err == nil {
		t.Errorf("by place, and one has gone: got %s", got)
	}
}
