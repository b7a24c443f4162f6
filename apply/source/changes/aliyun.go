package changes

import (
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// aliyun reads the JSON that Alibaba's DataWorks and DTS write to Kafka: the
// images under payload, types and key under schema.
type aliyun struct{}

func (*aliyun) options(map[string]string) ([]string, error) { return nil, nil }

func (f *aliyun) read(d *Decoder, r *event.Record, top []wire.Field) error {
	def, err := d.members(find(top, "schema"))
	if err != nil {
		return err
	}
	payload, err := d.members(find(top, "payload"))
	if err != nil {
		return err
	}
	c := change{}
	if src := find(def, "source"); src.Kind == wire.Object {
		s, err := d.members(src)
		if err != nil {
			return err
		}
		c.table = event.Table{Database: text(s, "dbName"), Schema: text(s, "schemaName"), Name: text(s, "tableName")}
	}
	op := text(payload, "op")
	d.lastID, d.isDelete = c.table, op == "DELETE"
	switch op {
	case "INSERT":
		c.op = event.Insert
	case "UPDATE_AFTER":
		c.op = event.Update
	case "DELETE":
		c.op = event.Delete
	case "TRUNCATE":
		c.op = event.Truncate
	case "UPDATE_BEFORE":
	case "CREATE", "ALTER", "ERASE", "RENAME", "QUERY", "CINDEX", "DINDEX":
		return d.control(event.ControlSchema)
	case "TRANSACTION_BEGIN", "TRANSACTION_END", "GTID", "XACOMMIT", "XAROLLBACK":
		return d.control(event.ControlTx)
	case "MHEARTBEAT", "HEARTBEAT":
		return d.control(event.ControlHeartbeat)
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no op")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op %.40q", op)
	}
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the message names no table")
	}
	seq, has := number(find(payload, "sequenceId"))
	byPosition, err := d.usePosition(has)
	if err != nil {
		return err
	}
	c.seq = d.transport(r, 1)
	if byPosition {
		// Rows of the first reading all have -1: they stand below every change.
		c.seq = wire.Seq{Kind: wire.SeqAliyun, Epoch: d.epoch, N: [4]int64{seq, r.Transport}}
	}
	c.keys = d.texts(find(def, "primaryKey"))
	if len(c.keys) == 0 {
		c.keys = nil
	}
	if c.op == event.Truncate {
		d.add(c)
		return nil
	}
	image := func(name string) ([]wire.Field, error) {
		t := find(payload, name)
		if t.Kind <= wire.Null {
			return nil, nil
		}
		side, err := d.members(t)
		if err != nil {
			return nil, err
		}
		return d.members(find(side, "dataColumn"))
	}
	after, err := image("after")
	if err != nil {
		return err
	}
	before, err := image("before")
	if err != nil {
		return err
	}
	if c.image, c.old = after, before; c.op == event.Delete || op == "UPDATE_BEFORE" {
		c.image, c.old = before, nil
	}
	if c.image == nil {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "the message has no row")
	}
	if op == "UPDATE_BEFORE" {
		d.wait(r, c.table, "", c.image)
		return d.control(event.ControlSignal)
	}
	if _, waited, err := d.before(r, c.table); err != nil {
		return err
	} else if op == "UPDATE_AFTER" && c.old == nil {
		c.old = waited
	}
	if err := f.types(&c, def); err != nil {
		return err
	}
	d.add(c)
	return nil
}

// types takes the column types, of which there are six. DATE is an instant in
// milliseconds; numbers may come as text.
func (*aliyun) types(c *change, def []wire.Field) error {
	list := find(def, "dataColumn")
	cols, err := objects(list, "schema.dataColumn")
	if err != nil {
		return err
	}
	types := map[string]schema.Type{}
	for _, col := range cols {
		switch text(col, "type") {
		case "LONG":
			types[text(col, "name")] = schema.Long
		case "DOUBLE":
			types[text(col, "name")] = schema.Double
		case "BOOLEAN":
			types[text(col, "name")] = schema.Boolean
		case "BYTES":
			types[text(col, "name")] = schema.Binary
		case "DATE":
			types[text(col, "name")] = schema.Timestamp
		case "STRING":
			types[text(col, "name")] = schema.String
		}
	}
	c.typed = list.Raw
	c.node = func(name string) *wire.Node {
		if t := types[name]; t != nil {
			return wire.NewNode(t, wire.Modes{Unit: wire.Millis, Lenient: true})
		}
		return nil
	}
	return nil
}
