package changes

import (
	"encoding/hex"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// sqlServer reads rows of SQL Server's change tables (cdc-formats F10). The
// before image of an update (3) waits for the new one (4).
type sqlServer struct{}

func (*sqlServer) options(map[string]string) ([]string, error) { return nil, nil }

// sqlServerMeta are the columns of a change table that are no data.
type sqlServerMeta struct {
	start, seqval string
	op, command   int64
	mask          []byte
}

func (f *sqlServer) read(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: tableOfTopic(r.Topic)}
	m, err := f.meta(&c, top)
	d.lastID, d.isDelete = c.table, m.op == 1
	if err != nil {
		return err
	}
	c.seq = wire.Seq{Kind: wire.SeqSQLServerTable, Epoch: d.epoch, N: [4]int64{m.command, m.op}}
	c.seq.S[0], c.seq.S[1] = []byte(m.start), []byte(m.seqval)
	switch m.op {
	case 1:
		c.op = event.Delete
	case 2:
		c.op = event.Insert
	case 3:
		d.wait(r, c.table, m.start+m.seqval, c.image)
		return d.control(event.ControlSignal)
	case 4:
		c.op = event.Update
	case 5:
		c.op = event.Upsert
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "__$operation %d", m.op)
	}
	before, old, err := d.before(r, c.table)
	if err != nil {
		return err
	}
	if c.op == event.Update && before.Seq == m.start+m.seqval {
		c.old = old
	}
	if c.op == event.Update {
		c.image = unchangedObjects(c.image, m.mask)
	}
	d.add(c)
	return nil
}

func (*sqlServer) meta(c *change, top []wire.Field) (sqlServerMeta, error) {
	var m sqlServerMeta
	var ok bool
	for _, field := range top {
		name := string(field.Key.Text(nil))
		if !strings.HasPrefix(name, "__$") {
			c.image = append(c.image, field)
			continue
		}
		switch name {
		case "__$operation":
			if m.op, ok = number(field.Val); !ok {
				return m, wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "__$operation %.40s", field.Val.Raw)
			}
		case "__$start_lsn":
			if m.start, ok = binaryLSN(field.Val); !ok {
				return m, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "__$start_lsn %.60s is no binary(10)", field.Val.Raw)
			}
		case "__$seqval":
			if m.seqval, ok = binaryLSN(field.Val); !ok && field.Val.Kind > wire.Null {
				return m, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "__$seqval %.60s is no binary(10)", field.Val.Raw)
			}
		case "__$command_id":
			m.command, _ = number(field.Val)
		case "__$update_mask":
			if field.Val.Kind == wire.String {
				m.mask, _ = hex.DecodeString(strings.TrimPrefix(string(field.Val.Raw), "0x"))
			}
		}
	}
	if m.start == "" {
		return m, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "the row has no __$start_lsn")
	}
	return m, nil
}

// binaryLSN is a binary(10) as 20 upper-case hexadecimal digits, which sort as
// the bytes do.
func binaryLSN(t wire.Token) (string, bool) {
	if t.Kind != wire.String {
		return "", false
	}
	s := strings.ToUpper(string(t.Raw))
	s = strings.TrimPrefix(s, "0X")
	b, err := hex.DecodeString(s)
	return s, err == nil && len(b) == 10
}

// unchangedObjects takes out nulls of columns that the update did not set: large
// objects that did not change come as null. The lowest bit of the last byte is the
// first column; a mask without a bit says nothing.
func unchangedObjects(image []wire.Field, mask []byte) []wire.Field {
	any := false
	for _, b := range mask {
		any = any || b != 0
	}
	if !any {
		return image
	}
	out := image[:0:0]
	for i, f := range image {
		at := len(mask) - 1 - i/8
		if f.Val.Kind == wire.Null && (at < 0 || mask[at]>>(i%8)&1 == 0) {
			continue
		}
		out = append(out, f)
	}
	return out
}
