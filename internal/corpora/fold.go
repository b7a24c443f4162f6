package corpora

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
)

// This file is the independent judge of the decoders: decoded batches become
// plain maps, and a naive fold by key and sequence (auto-cdc 2.5) gives the rows.
// It shares no code with the engine.

type fieldState struct {
	val any
	seq []any
}

// Change is one decoded row in plain Go.
type Change struct {
	Op          event.Op
	Table       string
	Key         string
	Vals        map[string]any // authored fields only
	Unavailable []string
	Seq         []any
	OldKey      string
	NewKey      bool
}

// Dec, TS, NTZ and Day keep Arrow's types apart.
type (
	Dec string
	TS  int64
	NTZ int64
	Day int32
)

func Value(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Null:
		return nil
	case *array.Int64:
		return a.Value(i)
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Float32:
		return a.Value(i)
	case *array.Float64:
		return a.Value(i)
	case *array.Boolean:
		return a.Value(i)
	case *array.String:
		return a.Value(i)
	case *array.Binary:
		return append([]byte{}, a.Value(i)...)
	case *array.Date32:
		return Day(a.Value(i))
	case *array.Timestamp:
		if a.DataType().(*arrow.TimestampType).TimeZone == "" {
			return NTZ(a.Value(i))
		}
		return TS(a.Value(i))
	case *array.Decimal128:
		return Dec(a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale))
	case *array.List:
		from, to := a.ValueOffsets(i)
		out := []any{}
		for k := from; k < to; k++ {
			out = append(out, Value(a.ListValues(), int(k)))
		}
		return out
	case *array.Map:
		from, to := a.ValueOffsets(i)
		out := map[string]any{}
		for k := from; k < to; k++ {
			out[fmt.Sprint(Value(a.Keys(), int(k)))] = Value(a.Items(), int(k))
		}
		return out
	case *array.Struct:
		out := map[string]any{}
		for f := range a.NumField() {
			out[a.DataType().(*arrow.StructType).Field(f).Name] = Value(a.Field(f), i)
		}
		return out
	}
	panic(fmt.Sprintf("no Go form of %s", a.DataType()))
}

func seqOf(b *event.Batch, i int) []any {
	st, ok := b.Seq.(*array.Struct)
	if !ok {
		return nil
	}
	var out []any
	for f := range st.NumField() {
		out = append(out, Value(st.Field(f), i))
	}
	return out
}

func KeyOf(names []string, rows arrow.RecordBatch, i int) string {
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%v", Value(rows.Column(rows.Schema().FieldIndices(n)[0]), i)))
	}
	return strings.Join(parts, "|")
}

// Changes lists the rows of a batch.
func Changes(b *event.Batch) []Change {
	var out []Change
	for i := range int(b.Rows.NumRows()) {
		c := Change{Op: b.Ops[i], Table: b.Table.Name, Seq: seqOf(b, i), Vals: map[string]any{}}
		if c.Op != event.Truncate {
			c.Key = KeyOf(b.Keys, b.Rows, i)
		}
		for f, col := range b.Columns.Fields {
			if b.Unauthored[f].Get(i) {
				if b.Unavailable[f].Get(i) {
					c.Unavailable = append(c.Unavailable, col.Name)
				}
				continue
			}
			c.Vals[col.Name] = Value(b.Rows.Column(f), i)
		}
		if b.OldKeys != nil && b.OldKeys.Column(0).IsValid(i) {
			c.OldKey = KeyOf(b.Keys, b.OldKeys, i)
		}
		c.NewKey = b.NewKeys != nil && b.NewKeys.Column(0).IsValid(i)
		out = append(out, c)
	}
	return out
}

func cmpValue(a, b any) int {
	switch a := a.(type) {
	case int64:
		switch b := b.(int64); {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	case Dec:
		x, _ := new(big.Int).SetString(string(a), 10)
		y, _ := new(big.Int).SetString(string(b.(Dec)), 10)
		return x.Cmp(y)
	case string:
		return strings.Compare(a, b.(string))
	}
	panic(fmt.Sprintf("sequence of %T", a))
}

func cmpSeq(a, b []any) int {
	for i := range a {
		if c := cmpValue(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

// register is one key of one table.
type register struct {
	floor, up []any
	fields    map[string]fieldState
}

// Folded is the state of one table.
type Folded struct {
	rows     map[string]*register
	departed map[string]map[string]any
	floor    []any // of truncates
}

func (f *Folded) reg(key string) *register {
	r := f.rows[key]
	if r == nil {
		r = &register{fields: map[string]fieldState{}, floor: f.floor}
		f.rows[key] = r
	}
	return r
}

func (r *register) cut(seq []any) {
	if r.floor == nil || cmpSeq(seq, r.floor) > 0 {
		r.floor = seq
	}
	for name, v := range r.fields {
		if cmpSeq(v.seq, r.floor) < 0 {
			delete(r.fields, name)
		}
	}
}

func (r *register) visible() bool {
	return r.up != nil && (r.floor == nil || cmpSeq(r.up, r.floor) >= 0)
}

func (r *register) image() map[string]any {
	out := map[string]any{}
	for name, v := range r.fields {
		out[name] = v.val
	}
	return out
}

// Fold takes changes of any tables in any order.
func Fold(in []Change) map[string]*Folded {
	out := map[string]*Folded{}
	for _, c := range in {
		f := out[c.Table]
		if f == nil {
			f = &Folded{rows: map[string]*register{}, departed: map[string]map[string]any{}}
			out[c.Table] = f
		}
		switch c.Op {
		case event.Truncate:
			if f.floor == nil || cmpSeq(c.Seq, f.floor) > 0 {
				f.floor = c.Seq
			}
			for _, r := range f.rows {
				r.cut(c.Seq)
			}
		case event.Delete:
			r := f.reg(c.Key)
			if c.NewKey {
				f.departed[c.Key] = r.image()
			}
			r.cut(c.Seq)
		default:
			r := f.reg(c.Key)
			if r.floor != nil && cmpSeq(c.Seq, r.floor) < 0 {
				continue
			}
			if r.up == nil || cmpSeq(c.Seq, r.up) > 0 {
				r.up = c.Seq
			}
			if old := f.departed[c.OldKey]; c.OldKey != "" && old != nil {
				for _, name := range c.Unavailable {
					if v, ok := old[name]; ok {
						r.fields[name] = fieldState{v, c.Seq}
					}
				}
			}
			for name, v := range c.Vals {
				if was, ok := r.fields[name]; !ok || cmpSeq(c.Seq, was.seq) >= 0 {
					r.fields[name] = fieldState{v, c.Seq}
				}
			}
		}
	}
	return out
}

// Images are the visible rows.
func (f *Folded) Images() []map[string]any {
	var out []map[string]any
	if f == nil {
		return nil
	}
	for _, r := range f.rows {
		if r.visible() {
			out = append(out, r.image())
		}
	}
	return out
}

// ByKey are the visible rows by the text of their key.
func (f *Folded) ByKey() map[string]map[string]any {
	out := map[string]map[string]any{}
	for key, r := range f.rows {
		if r.visible() {
			out[key] = r.image()
		}
	}
	return out
}
