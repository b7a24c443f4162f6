package apply

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/log/schema"
)

// notation is the types of events in the notation of auto-cdc 4 (see
// [model.Line]), one event a line.
type notation struct {
	keys    []schema.Field
	data    []schema.Field
	seq     schema.Type
	sys     schema.Type // nil: events have no system sequence
	lists   string      // column that carries the COLUMNS TO UPDATE list; "" for none
	decoder event.Table
}

func parseNotation(keys, data, seq string) (*notation, error) {
	n := &notation{decoder: event.Table{Schema: "public", Name: "t"}}
	k, err := schema.ParseDDL(keys)
	if err != nil {
		return nil, err
	}
	d, err := schema.ParseDDL(data)
	if err != nil {
		return nil, err
	}
	s, err := schema.ParseDDL("seq " + seq)
	if err != nil {
		return nil, err
	}
	n.keys, n.data, n.seq = k.Fields, d.Fields, s.Fields[0].Type
	return n, nil
}

func (n *notation) parse(text string) (model.Line, error) {
	names := make([]string, len(n.data))
	for i, f := range n.data {
		names[i] = f.Name
	}
	return model.ParseLine(text, names)
}

// textDecoder is a decoder of the notation.
type textDecoder struct {
	n       *notation
	out     event.Decoded
	current []model.Line
	records []*event.Record
	rows    int
}

func (d *textDecoder) Add(_ context.Context, r *event.Record) error {
	text := string(r.Value)
	if strings.HasPrefix(text, "!") {
		d.cut()
		d.out.Poison = append(d.out.Poison, event.Poison{Class: event.PoisonBytes, Code: "INVALID_TEXT", Reason: text[1:], Record: *r})
		return nil
	}
	l, err := d.n.parse(text)
	if err != nil {
		return err
	}
	if len(d.current) > 0 && !slices.Equal(d.current[0].Columns, l.Columns) {
		d.cut()
	}
	d.current = append(d.current, l)
	d.records = append(d.records, r)
	d.rows++
	return nil
}

func (d *textDecoder) Pending() (int, int64)      { return d.rows, int64(d.rows) * 20 }
func (d *textDecoder) State() string              { return "" }
func (d *textDecoder) Restore(state string) error { return nil }

func (d *textDecoder) Flush() (*event.Decoded, error) {
	d.cut()
	out := d.out
	d.out, d.rows = event.Decoded{}, 0
	return &out, nil
}

func (d *textDecoder) cut() {
	if len(d.current) == 0 {
		return
	}
	b, err := d.n.batch(d.current, d.records)
	if err != nil {
		panic(err)
	}
	d.out.Batches = append(d.out.Batches, b)
	d.current, d.records = nil, nil
}

func (n *notation) batch(lines []model.Line, recs []*event.Record) (*event.Batch, error) {
	b := &event.Batch{Table: n.decoder, Source: recs[0].Source, Columns: &schema.Struct{}}
	b.Columns.Fields = append(b.Columns.Fields, n.keys...)
	for _, c := range lines[0].Columns {
		for _, f := range n.data {
			if f.Name == c {
				b.Columns.Fields = append(b.Columns.Fields, f)
			}
		}
	}
	at := len(b.Columns.Fields)
	b.Columns.Fields = append(b.Columns.Fields, schema.Field{Name: "seq", Type: n.seq, Nullable: true})
	if n.sys != nil {
		b.Columns.Fields = append(b.Columns.Fields, schema.Field{Name: "sys", Type: n.sys, Nullable: true})
	}
	if n.lists != "" {
		b.Columns.Fields = append(b.Columns.Fields, schema.Field{Name: n.lists, Type: &schema.Array{Elem: schema.String, ContainsNull: true}, Nullable: true})
	}
	for _, k := range n.keys {
		b.Keys = append(b.Keys, k.Name)
	}
	sch, err := schema.ArrowSchema(b.Columns)
	if err != nil {
		return nil, err
	}
	keySchema, err := schema.ArrowSchema(&schema.Struct{Fields: n.keys})
	if err != nil {
		return nil, err
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
	oldB, newB := array.NewRecordBuilder(memory.DefaultAllocator, keySchema), array.NewRecordBuilder(memory.DefaultAllocator, keySchema)
	b.Unauthored = make([]event.Bits, len(b.Columns.Fields))
	b.Unavailable = make([]event.Bits, len(b.Columns.Fields))
	moved := false
	for r, l := range lines {
		op := map[byte]event.Op{'U': event.Upsert, 'D': event.Delete, 'T': event.Truncate}[l.Kind]
		b.Ops = append(b.Ops, op)
		b.Offsets = append(b.Offsets, recs[r].End)
		b.Lines = append(b.Lines, recs[r].Line)
		if err := appendKeyText(rb, n.keys, l.Key, op == event.Truncate); err != nil {
			return nil, err
		}
		for i, c := range lines[0].Columns {
			at := len(n.keys) + i
			v, ok := l.Values[c]
			if !ok {
				rb.Field(at).AppendNull()
				if op == event.Upsert {
					b.Unauthored[at] = b.Unauthored[at].Set(r)
					b.Unavailable[at] = b.Unavailable[at].Set(r)
				}
				continue
			}
			if err := appendText(rb.Field(at), v); err != nil {
				return nil, err
			}
		}
		if err := appendText(rb.Field(at), l.Seq); err != nil {
			return nil, err
		}
		if n.sys != nil {
			if err := appendText(rb.Field(at+1), l.Sys); err != nil {
				return nil, err
			}
		}
		if n.lists != "" {
			lb := rb.Field(len(b.Columns.Fields) - 1).(*array.ListBuilder)
			lb.Append(l.Listed != nil)
			for _, c := range l.Listed {
				lb.ValueBuilder().(*array.StringBuilder).Append(c)
			}
		}
		for _, side := range []struct {
			b    *array.RecordBuilder
			text string
		}{{oldB, l.Old}, {newB, l.New}} {
			moved = moved || side.text != ""
			if err := appendKeyText(side.b, n.keys, side.text, side.text == ""); err != nil {
				return nil, err
			}
		}
	}
	b.Rows = rb.NewRecordBatch()
	if moved {
		b.OldKeys, b.NewKeys = oldB.NewRecordBatch(), newB.NewRecordBatch()
	}
	return b, nil
}

func appendKeyText(rb *array.RecordBuilder, keys []schema.Field, text string, null bool) error {
	parts := []string{text}
	if strings.HasPrefix(text, "{") {
		parts = strings.Split(strings.Trim(text, "{}"), ",")
	}
	for i := range keys {
		if null {
			rb.Field(i).AppendNull()
			continue
		}
		if err := appendText(rb.Field(i), parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// appendText appends a value of the notation.
func appendText(b array.Builder, text string) error {
	if text == "null" {
		b.AppendNull()
		return nil
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(text)
	case *array.Int64Builder:
		v, err := strconv.ParseInt(text, 10, 64)
		b.Append(v)
		return err
	case *array.Int32Builder:
		v, err := strconv.ParseInt(text, 10, 32)
		b.Append(int32(v))
		return err
	case *array.Float64Builder:
		v, err := strconv.ParseFloat(text, 64)
		b.Append(v)
		return err
	case *array.StructBuilder:
		b.Append(true)
		for i, p := range model.Split(strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")) {
			if err := appendText(b.FieldBuilder(i), p); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("no notation for type %s", b.Type())
	}
	return nil
}

// cellText prints a value of the notation.
func cellText(a arrow.Array, r int) string {
	if a.IsNull(r) {
		return "null"
	}
	switch a := a.(type) {
	case *array.String:
		return a.Value(r)
	case *array.Int64:
		return strconv.FormatInt(a.Value(r), 10)
	case *array.Int32:
		return strconv.FormatInt(int64(a.Value(r)), 10)
	case *array.Float64:
		v := a.Value(r)
		if v == 0 && math.Signbit(v) {
			return "-0"
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if s, ok := a.(*array.Struct); ok {
		parts := make([]string, s.NumField())
		for i := range parts {
			parts[i] = cellText(s.Field(i), r)
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return a.ValueStr(r)
}

// rowText prints a row: its data columns, then its periods as auto-cdc 4 does.
func rowText(names []string, cells []string) string {
	var out []string
	for i := 0; i < len(cells); i++ {
		switch {
		case i+1 < len(cells) && names[i] == "__START_AT":
			out = append(out, model.Period(cells[i], cells[i+1]))
			i++
		case i+1 < len(cells) && names[i] == "__SYSTEM_START_AT":
			out = append(out, "sys "+model.Period(cells[i], cells[i+1]))
			i++
		default:
			out = append(out, cells[i])
		}
	}
	return strings.Join(out, ", ")
}

// textSource serves records of the notation; each run sees one longer input.
type textSource struct {
	name  string // "" has no positions, like stdin
	lines []string
	read  int
	began bool
}

func (s *textSource) Records(_ context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		start := 0
		if p, ok := from[s.name]; ok && s.name != "" {
			start = int(p.Offset)
		}
		s.read, s.began = start, true
		for i := start; i < len(s.lines); i++ {
			s.read = i + 1
			r := &event.Record{Source: s.name, Transport: int64(i), End: int64(i + 1), Line: int64(i + 1), Value: []byte(s.lines[i]), Raw: []byte(s.lines[i])}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *textSource) Positions() ([]event.Position, error) {
	if s.name == "" || !s.began {
		return nil, nil
	}
	return []event.Position{{Source: s.name, Offset: int64(s.read)}}, nil
}

func (s *textSource) Close() error { return nil }

// toModel turns events of the notation with one BIGINT key and text columns into
// events of the reference model.
func (n *notation) toModel(t testing.TB, lines []string) []model.Event {
	var config strings.Builder
	config.WriteString("data: ")
	for i, f := range n.data {
		if i > 0 {
			config.WriteString(", ")
		}
		fmt.Fprintf(&config, "%s %s", f.Name, f.Type)
	}
	s, err := model.NewScript(config.String())
	if err != nil {
		t.Fatal(err)
	}
	var out []model.Event
	for _, text := range lines {
		e, err := s.Event(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// eventText writes a model event in the notation.
func eventText(e model.Event) string {
	at := model.Text(e.Seq)
	if e.Sys != nil {
		at += " sys " + model.Text(e.Sys)
	}
	switch e.Kind {
	case model.Truncate:
		return "T@" + at
	case model.Delete:
		return fmt.Sprintf("D %s@%s", model.Text(e.Key), at)
	}
	vals := make([]string, len(e.Schema))
	for i, c := range e.Schema {
		v, ok := e.Values[c]
		vals[i] = c + "=?"
		if ok {
			vals[i] = c + "=" + model.Text(v)
		}
	}
	text := fmt.Sprintf("U %s@%s (%s)", model.Text(e.Key), at, strings.Join(vals, ", "))
	if e.Listed != nil {
		text += " cols[" + strings.Join(e.Listed, ",") + "]"
	}
	return text
}
