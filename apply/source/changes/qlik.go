package changes

import (
	"encoding/hex"
	"math/bits"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// qlik reads Qlik Replicate's messages and change table rows (cdc-formats F8).
type qlik struct{ prefix string }

func (f *qlik) options(settings map[string]string) ([]string, error) {
	f.prefix = "header__"
	if p := settings["header_prefix"]; p != "" {
		f.prefix = p
	}
	return []string{"header_prefix"}, nil
}

// qlikHeaders are the parts of either form's headers that are used.
type qlikHeaders struct {
	op, seq string
	columns []byte // mask
}

func (f *qlik) read(d *Decoder, r *event.Record, top []wire.Field) error {
	if m := find(top, "message"); m.Kind == wire.Object {
		if typ := text(top, "type"); typ != "" && typ != "DT" {
			return d.control(event.ControlSchema)
		}
		var err error
		if top, err = d.members(m); err != nil {
			return err
		}
	}
	var h qlikHeaders
	c := change{table: tableOfTopic(r.Topic)}
	var err error
	if headers := find(top, "headers"); headers.Kind == wire.Object {
		err = f.message(d, &h, &c, top, headers)
	} else {
		f.changeRow(&h, &c, top)
	}
	if err != nil {
		return err
	}
	d.lastID = c.table
	switch strings.ToUpper(h.op) {
	case "I", "INSERT":
		c.op = event.Insert
	case "U", "UPDATE":
		c.op = event.Update
	case "D", "DELETE":
		c.op = event.Delete
		if c.image == nil {
			c.image, c.old = c.old, nil
		}
	case "REFRESH":
		c.op, c.complete = event.Upsert, true
	case "B", "BEFOREIMAGE":
		d.wait(r, c.table, h.seq, c.image)
		return d.control(event.ControlSignal)
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no operation")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "operation %.40q", h.op)
	}
	d.isDelete = c.op == event.Delete
	if len(c.image) == 0 {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "the message has no row")
	}
	if c.seq, err = f.seq(d, &h, c.op); err != nil {
		return err
	}
	before, old, err := d.before(r, c.table)
	if err != nil {
		return err
	}
	if before.Seq == h.seq && c.op == event.Update {
		c.old = old
	}
	if err := f.mask(&c, h.columns); err != nil {
		return err
	}
	d.add(c)
	return nil
}

// message reads the form of Kafka: headers, data, beforeData.
func (*qlik) message(d *Decoder, h *qlikHeaders, c *change, top []wire.Field, t wire.Token) error {
	headers, err := d.members(t)
	if err != nil {
		return err
	}
	h.op, h.seq = text(headers, "operation"), text(headers, "changeSequence")
	h.columns = []byte(text(headers, "columnMask"))
	if data := find(top, "data"); data.Kind > wire.Null {
		if c.image, err = d.members(data); err != nil {
			return err
		}
	}
	if before := find(top, "beforeData"); before.Kind > wire.Null {
		c.old, err = d.members(before)
	}
	return err
}

// changeRow reads a row of a change table, whose headers are columns.
func (f *qlik) changeRow(h *qlikHeaders, c *change, top []wire.Field) {
	for _, field := range top {
		name, ok := strings.CutPrefix(string(field.Key.Text(nil)), f.prefix)
		if !ok {
			c.image = append(c.image, field)
			continue
		}
		value := string(field.Val.Raw)
		if field.Val.Kind <= wire.Null {
			value = ""
		}
		switch name {
		case "change_oper":
			h.op = value
		case "change_seq":
			h.seq = value
		case "column_mask":
			h.columns = []byte(value)
		}
	}
}

// seq is the change sequence and the rank of the operation. Rows of a full load
// have none and stand below all. All sequences of a stream have as many digits.
func (*qlik) seq(d *Decoder, h *qlikHeaders, op event.Op) (wire.Seq, error) {
	s := wire.Seq{Kind: wire.SeqQlik, Epoch: d.epoch, N: [4]int64{1}}
	if h.seq == "" && op == event.Upsert {
		return s, nil
	}
	n, ok := digits(h.seq)
	if !ok {
		return s, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "change sequence %.60q is no number", h.seq)
	}
	if len(d.state.Last) == 0 {
		d.state.Last = []int64{int64(len(h.seq))}
	}
	if int64(len(h.seq)) != d.state.Last[0] {
		return s, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "change sequence %q has %d digits, those of this stream have %d", h.seq, len(h.seq), d.state.Last[0])
	}
	s.D[0] = n
	return s, nil
}

// mask makes the columns whose bit is clear absent: little-endian bytes, bit k of
// them is column k+1. A row that leaves such columns out has as many as there are bits.
func (*qlik) mask(c *change, text []byte) error {
	if len(text) == 0 || c.op == event.Delete {
		return nil
	}
	m, err := hex.DecodeString(strings.TrimPrefix(string(text), "0x"))
	if err != nil {
		return wire.Poison(event.PoisonEnvelope, "BAD_MASK", "column mask %.60q is no hexadecimal text", text)
	}
	n := 0
	for _, b := range m {
		n += bits.OnesCount8(b)
	}
	if n == len(c.image) {
		return nil // the row has these columns and no others
	}
	out := c.image[:0:0]
	for i, f := range c.image {
		if i/8 < len(m) && m[i/8]>>(i%8)&1 == 1 {
			out = append(out, f)
		}
	}
	c.image = out
	return nil
}

// digits reads decimal digits, of which at most 38 count behind leading zeros.
func digits(s string) (decimal128.Num, bool) {
	var n decimal128.Num
	if s == "" {
		return n, false
	}
	s = strings.TrimLeft(s, "0")
	if len(s) > 38 {
		return n, false
	}
	ten := decimal128.FromU64(10)
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return n, false
		}
		n = n.Mul(ten).Add(decimal128.FromU64(uint64(c)))
	}
	return n, true
}
