package apply

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

// incoming is one event, resolved: its kind, key and sequence as bytes, and
// where its values are.
type incoming struct {
	op  event.Op // Upsert, Delete or Truncate
	key string
	seq []byte
	sys []byte // system sequence of BITEMPORAL
	at  ref
	// other is the key on the other side of a key change: the old key of an
	// upsert, the new key of a delete; "" for none.
	other string
	line  int64
	rank  int64 // number in the batch
	// again: a truncate that another lot of the batch counts.
	again bool
}

// intake resolves the rows of a batch for which keep is true.
func (p *plan) intake(s *shape, b *event.Batch, keep func(row int) bool, out []incoming) ([]incoming, *origin, error) {
	n := int(b.Rows.NumRows())
	seq := b.Seq
	if p.sequence != nil {
		var err error
		if seq, err = p.sequence.Eval(b.Rows); err != nil {
			return nil, nil, &Error{Code: codeOf(err, "EXPRESSION_FAILED"), Phase: PhaseRun, Message: "sequence " + p.sequence.String(), Err: err}
		}
	}
	if text, ok := seq.(*array.String); ok && !p.textNumbers {
		p.textNumbers = holdsNumbers(text)
	}
	deletes, err := rowsWhere(p.deletes, b.Rows)
	if err != nil {
		return nil, nil, err
	}
	truncates, err := rowsWhere(p.truncate, b.Rows)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]arrow.Array, len(p.keys))
	for i, k := range p.keys {
		a, err := s.convert[p][k].apply(p.source.Fields[k], b.Rows.Column(k))
		if err != nil {
			return nil, nil, err
		}
		if keys[i], err = canonical(s.stored(p.source.Fields[k].Name, a), true); err != nil {
			return nil, nil, err
		}
	}
	other, err := p.otherKeys(s, b)
	if err != nil {
		return nil, nil, err
	}
	silent, err := p.silentRows(b, func(r int) bool {
		return keep(r) && !truncates.Get(r) && !deletes.Get(r) && b.Ops[r] != event.Truncate && b.Ops[r] != event.Delete
	})
	if err != nil {
		return nil, nil, err
	}
	o, err := s.origin(p, b, keys, rescuedArray(b, n), silent)
	if err != nil {
		return nil, nil, err
	}
	var system arrow.Array
	if p.system != nil {
		if system, err = p.system.Eval(b.Rows); err != nil {
			return nil, nil, &Error{Code: codeOf(err, "EXPRESSION_FAILED"), Phase: PhaseRun, Message: "system sequence " + p.system.String(), Err: err}
		}
	}
	var buf []byte
	for r := range n {
		if !keep(r) {
			continue
		}
		e := incoming{op: event.Upsert, at: ref{o, r}}
		if b.Lines != nil {
			e.line = b.Lines[r]
		}
		switch {
		case truncates.Get(r) || b.Ops[r] == event.Truncate:
			e.op = event.Truncate
		case deletes.Get(r) || b.Ops[r] == event.Delete:
			e.op = event.Delete
		}
		if code, reason := p.unfit(keys, seq, system, e.op, r); code != "" {
			if !p.setsAside {
				return nil, nil, running(code, "%s: %s%s", reason, tableText(b.Table), lineText(b, r))
			}
			p.aside = append(p.aside, setAside(b, r, e.op, code, reason))
			continue
		}
		e.seq = keycode.AppendValue(nil, seq, r)
		if system != nil {
			e.sys = keycode.AppendValue(nil, system, r)
		}
		if e.op != event.Truncate {
			buf = merge.KeyOf(buf[:0], keys, r)
			e.key = string(buf)
			if other != nil && !keycode.HasNull(other, r) {
				buf = merge.KeyOf(buf[:0], other, r)
				if e.other = string(buf); e.other == e.key {
					e.other = ""
				}
			}
		}
		out = append(out, e)
	}
	return out, o, nil
}

// unfit is why an event cannot be applied whatever the table holds: code and reason.
func (p *plan) unfit(keys []arrow.Array, seq, system arrow.Array, op event.Op, r int) (code, reason string) {
	if why := badSequence(seq, r); why != "" {
		return why, sequenceText(why)
	}
	if system != nil {
		if why := badSequence(system, r); why != "" {
			return why, "system: " + sequenceText(why)
		}
	}
	if op == event.Truncate { // its key columns are not read (auto-cdc 2.8)
		return "", ""
	}
	for i, a := range keys {
		if a.IsNull(r) {
			return CodeNullKey, fmt.Sprintf("key column %q is null", p.source.Fields[p.keys[i]].Name)
		}
	}
	return "", ""
}

// setAside is row r of a batch as poison. The record is gone by now: Raw has its values.
func setAside(b *event.Batch, r int, op event.Op, code, reason string) event.Poison {
	p := event.Poison{Table: b.Table, Class: event.PoisonOrder, Code: code, Reason: reason, Delete: op == event.Delete,
		Record: event.Record{Source: b.Source, End: b.Offsets[r]}}
	if code == CodeNullKey {
		p.Class = event.PoisonKey
	}
	if b.Lines != nil {
		p.Record.Line = b.Lines[r]
	}
	one := b.Rows.NewSlice(int64(r), int64(r)+1)
	defer one.Release()
	if text, err := one.MarshalJSON(); err == nil {
		p.Record.Raw = bytes.TrimSpace(bytes.Trim(bytes.TrimSpace(text), "[]"))
	}
	return p
}

// otherKeys are the key columns of the other side of key changes, per row: old
// keys of upserts, new keys of deletes. Nil if the batch has none, or if the flow
// matches on other columns than the format's key.
func (p *plan) otherKeys(s *shape, b *event.Batch) ([]arrow.Array, error) {
	if b.OldKeys == nil && b.NewKeys == nil || len(p.keys) != len(b.Keys) {
		return nil, nil
	}
	out := make([]arrow.Array, len(p.keys))
	for i, k := range p.keys {
		at := -1
		for j, name := range b.Keys {
			if strings.EqualFold(name, p.source.Fields[k].Name) {
				at = j
			}
		}
		if at < 0 {
			return nil, nil
		}
		dt := b.Rows.Column(k).DataType()
		a, err := gather(dt, int(b.Rows.NumRows()), func(r int) cell {
			for _, rec := range []arrow.RecordBatch{b.OldKeys, b.NewKeys} {
				if rec != nil && rec.Column(at).IsValid(r) {
					return cell{rec.Column(at), r}
				}
			}
			return cell{}
		})
		if err != nil {
			return nil, fmt.Errorf("read key change of %s: %w", tableText(b.Table), err)
		}
		if a, err = s.convert[p][k].apply(p.source.Fields[k], a); err != nil {
			return nil, err
		}
		if out[i], err = canonical(s.stored(p.source.Fields[k].Name, a), true); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func rowsWhere(c *expr.Bound, rows arrow.RecordBatch) (event.Bits, error) {
	if c == nil {
		return nil, nil
	}
	list, err := c.EvalFilter(rows)
	if err != nil {
		return nil, &Error{Code: codeOf(err, "EXPRESSION_FAILED"), Phase: PhaseRun, Message: "condition " + c.String(), Err: err}
	}
	var bits event.Bits
	for _, r := range list {
		bits = bits.Set(int(r))
	}
	return bits, nil
}

// rescuedArray is the text of the rescue column: null where nothing was rescued.
func rescuedArray(b *event.Batch, n int) arrow.Array {
	sb := array.NewStringBuilder(memory.DefaultAllocator)
	defer sb.Release()
	for r := range n {
		if b.Rescued != nil && b.Rescued[r] != "" {
			sb.Append(b.Rescued[r])
		} else {
			sb.AppendNull()
		}
	}
	return sb.NewArray()
}

// holdsNumbers tells whether a value of a text is a number of a length that no date
// has: as text 9 comes after 10 (cdc-formats 0.3).
func holdsNumbers(a *array.String) bool {
	for r := range a.Len() {
		v := strings.TrimSpace(a.Value(r))
		if a.IsNull(r) || v == "" || strings.Trim(v, "0123456789") != "" {
			continue
		}
		switch len(v) {
		case len("20240501"), len("20240501083015"), len("20240501083015123"):
		default:
			return v[0] != '0' || v == "0" // numbers that are padded sort as text
		}
	}
	return false
}

// badSequence answers the code of what is wrong with a sequence value; "" if it orders.
func badSequence(a arrow.Array, r int) string {
	switch {
	case keycode.AllNull(a, r):
		return CodeNullSequence
	case keycode.HasNaN(a, r):
		return CodeNaNSequence
	}
	return ""
}

func sequenceText(code string) string {
	if code == CodeNaNSequence {
		return "the sequence contains NaN"
	}
	return "the sequence is null"
}

// tableText names a source table for messages.
func tableText(t event.Table) string {
	var parts []string
	for _, s := range []string{t.Database, t.Schema, t.Name} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return "source"
	}
	return strings.Join(parts, ".")
}

func lineText(b *event.Batch, r int) string {
	if b.Lines == nil {
		return ""
	}
	return fmt.Sprintf(" line %d of %s", b.Lines[r], b.Source)
}

// codeOf is the stable code that an error carries.
func codeOf(err error, other string) string {
	for e := err; e != nil; {
		if c, ok := e.(interface{ Code() string }); ok {
			return c.Code()
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	return other
}

// describe is the schema of a batch as text, the key of cached plans.
func describe(s *schema.Struct, keys []string, seq *schema.Struct) string {
	t := s.String() + "|" + strings.Join(keys, ",")
	if seq != nil {
		t += "|" + seq.String()
	}
	return t
}
