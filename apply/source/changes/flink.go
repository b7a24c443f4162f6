package changes

import (
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// flink reads Flink's changelog-json (cdc-formats F14). An update comes as two
// records: -U waits for the +U behind it.
type flink struct{}

func (*flink) options(map[string]string) ([]string, error) { return nil, nil }

func (f *flink) read(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: tableOfTopic(r.Topic), seq: d.transport(r, 1)}
	d.lastID = c.table
	op := text(top, "op")
	switch op {
	case "+I":
		c.op = event.Insert
	case "+U":
		c.op = event.Update
	case "-U", "-D":
		c.op, d.isDelete = event.Delete, true
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the record has no op")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op %.40q", op)
	}
	var err error
	if c.image, err = d.members(find(top, "data")); err != nil {
		return err
	}
	_, old, err := d.before(r, c.table)
	if err != nil {
		return err
	}
	switch {
	case old == nil:
	case op == "+U":
		c.old = old
	default:
		// A -U without its +U took the row away. It came before this record.
		lost := change{table: c.table, op: event.Delete, image: old, seq: d.transport(r, 0)}
		d.add(lost)
	}
	if op == "-U" {
		d.wait(r, c.table, "", c.image)
		return d.control(event.ControlSignal)
	}
	d.add(c)
	return nil
}

// tombstone: the format has none, so one is of another producer and may be a delete.
func (*flink) tombstone(d *Decoder, r *event.Record) error {
	d.lastID, d.isDelete = tableOfTopic(r.Topic), true
	return wire.Poison(event.PoisonEnvelope, "TOMBSTONE", "a null value is no event of changelog-json; upsert topics hold plain rows (--format rows)")
}
