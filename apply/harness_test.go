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

// The notation of auto-cdc 4, one event a line:
//
//	U 1@5 (Ann, Rome)            an upsert under the full schema
//	U 1@2 (name=Anna)            read under a schema with only the named columns
//	U 1@2 (Anna, ?)              city is unavailable
//	U 2@3 (Ann, ?) old=1         a create of a key change
//	D 1@6   D 1@3 new=2   T@3    deletes, truncates
//
// Keys and sequences are written 1, {eu,1}, {10,null}, null, NaN, -200.
type notation struct {
	keys    []schema.Field
	data    []schema.Field
	seq     schema.Type
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

// line is one event of the notation, its values as text.
type line struct {
	kind     byte
	key, seq string
	columns  []string // data columns of its schema
	values   map[string]string
	old, new string
}

func (n *notation) parse(text string) (line, error) {
	l := line{kind: text[0], values: map[string]string{}}
	rest := strings.TrimSpace(text[1:])
	if i := strings.Index(rest, " old="); i >= 0 {
		l.old, rest = strings.TrimSpace(rest[i+5:]), rest[:i]
	}
	if i := strings.Index(rest, " new="); i >= 0 {
		l.new, rest = strings.TrimSpace(rest[i+5:]), rest[:i]
	}
	list := ""
	if i := strings.IndexByte(rest, '('); i >= 0 {
		list, rest = strings.TrimSuffix(rest[i+1:], ")"), strings.TrimSpace(rest[:i])
	}
	var ok bool
	if l.key, l.seq, ok = strings.Cut(rest, "@"); !ok {
		return l, fmt.Errorf("event %q: no sequence", text)
	}
	if l.kind != 'U' {
		for _, f := range n.data {
			l.columns = append(l.columns, f.Name)
		}
		return l, nil
	}
	for i, v := range strings.Split(list, ",") {
		v = strings.TrimSpace(v)
		name := ""
		if c, val, named := strings.Cut(v, "="); named {
			name, v = c, val
		} else if i < len(n.data) {
			name = n.data[i].Name
		} else {
			return l, fmt.Errorf("event %q: too many values", text)
		}
		l.columns = append(l.columns, name)
		if v != "?" {
			l.values[name] = v
		}
	}
	return l, nil
}

// textDecoder is a decoder of the notation.
type textDecoder struct {
	n       *notation
	out     event.Decoded
	current []line
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
	if len(d.current) > 0 && !slices.Equal(d.current[0].columns, l.columns) {
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

func (n *notation) batch(lines []line, recs []*event.Record) (*event.Batch, error) {
	b := &event.Batch{Table: n.decoder, Source: recs[0].Source, Columns: &schema.Struct{}}
	b.Columns.Fields = append(b.Columns.Fields, n.keys...)
	for _, c := range lines[0].columns {
		for _, f := range n.data {
			if f.Name == c {
				b.Columns.Fields = append(b.Columns.Fields, f)
			}
		}
	}
	b.Columns.Fields = append(b.Columns.Fields, schema.Field{Name: "seq", Type: n.seq, Nullable: true})
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
		op := map[byte]event.Op{'U': event.Upsert, 'D': event.Delete, 'T': event.Truncate}[l.kind]
		b.Ops = append(b.Ops, op)
		b.Offsets = append(b.Offsets, recs[r].End)
		b.Lines = append(b.Lines, recs[r].Line)
		if err := appendKeyText(rb, n.keys, l.key, op == event.Truncate); err != nil {
			return nil, err
		}
		for i, c := range lines[0].columns {
			at := len(n.keys) + i
			v, ok := l.values[c]
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
		if err := appendText(rb.Field(len(b.Columns.Fields)-1), l.seq); err != nil {
			return nil, err
		}
		for _, side := range []struct {
			b    *array.RecordBuilder
			text string
		}{{oldB, l.old}, {newB, l.new}} {
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
		for i, p := range strings.Split(strings.Trim(text, "{}"), ",") {
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
	return a.ValueStr(r)
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
	num := func(s string) model.Value {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var out []model.Event
	for _, text := range lines {
		l, err := n.parse(text)
		if err != nil {
			t.Fatal(err)
		}
		e := model.Event{Kind: model.Kind(l.kind), Seq: num(l.seq)}
		if l.kind != 'T' {
			e.Key = num(l.key)
		}
		if l.old != "" {
			e.OldKey = num(l.old)
		}
		if l.kind == 'U' {
			e.Schema, e.Values = l.columns, map[string]model.Value{}
			for c, v := range l.values {
				if v == "null" {
					e.Values[c] = nil
				} else {
					e.Values[c] = v
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// eventText writes a model event in the notation.
func eventText(e model.Event) string {
	switch e.Kind {
	case model.Truncate:
		return "T@" + model.Text(e.Seq)
	case model.Delete:
		return fmt.Sprintf("D %s@%s", model.Text(e.Key), model.Text(e.Seq))
	}
	vals := make([]string, len(e.Schema))
	for i, c := range e.Schema {
		v, ok := e.Values[c]
		vals[i] = c + "=?"
		if ok {
			vals[i] = c + "=" + model.Text(v)
		}
	}
	return fmt.Sprintf("U %s@%s (%s)", model.Text(e.Key), model.Text(e.Seq), strings.Join(vals, ", "))
}
