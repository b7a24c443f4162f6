package changes

import (
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// fivetran reads rows of Fivetran's destinations (cdc-formats F9) and the scripts
// of the tester of its SDK, whose lines are operations on several tables.
type fivetran struct{}

func (*fivetran) options(map[string]string) ([]string, error) { return nil, nil }

func (f *fivetran) read(d *Decoder, r *event.Record, top []wire.Field) error {
	if len(top) == 1 && top[0].Val.Kind >= wire.Object {
		return f.script(d, r, string(top[0].Key.Text(nil)), top[0].Val)
	}
	c := change{table: tableOfTopic(r.Topic), op: event.Upsert}
	synced, history := wire.Token{}, false
	for _, field := range top {
		switch string(field.Key.Text(nil)) {
		case "_fivetran_synced":
			synced = field.Val
		case "_fivetran_deleted":
			gone, ok := truth(field.Val)
			if !ok {
				return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "_fivetran_deleted %.40s is neither true nor false", field.Val.Raw)
			}
			if gone {
				c.op, d.isDelete = event.Delete, true
			}
		case "_fivetran_active", "_fivetran_start", "_fivetran_end":
			history = true
			c.image = append(c.image, field)
		default:
			c.image = append(c.image, field)
		}
	}
	d.lastID = c.table
	at := instant(synced)
	if at == 0 {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "_fivetran_synced is missing or unreadable")
	}
	if history {
		d.Warn("the table is in history mode: its rows are versions, so that keys need _fivetran_start too, and its target is a copy of that history")
	}
	d.Warn("_fivetran_synced does not move with truncates and deletes of a re-sync: such deletes lose against the last update; read the table as snapshots (--snapshot) or through its change feed instead")
	c.seq = wire.Seq{Kind: wire.SeqFivetran, Epoch: d.epoch, N: [4]int64{at, r.Transport}}
	d.add(c)
	return nil
}

// truth reads a flag as JSON, CSV and the databases that files come from write it;
// null is false.
func truth(t wire.Token) (value, ok bool) {
	switch {
	case t.Kind <= wire.Null, t.Kind == wire.False, t.Kind == wire.Number && string(t.Raw) == "0":
		return false, true
	case t.Kind == wire.True, t.Kind == wire.Number && string(t.Raw) == "1":
		return true, true
	case t.Kind != wire.String:
		return false, false
	}
	switch strings.ToLower(string(t.Raw)) {
	case "true", "t", "1", "yes":
		return true, true
	case "false", "f", "0", "no", "":
		return false, true
	}
	return false, false
}

// script reads one operation. Its tables' rows are ordered by their place.
func (f *fivetran) script(d *Decoder, r *event.Record, op string, body wire.Token) error {
	c := change{}
	switch op {
	case "create_table", "alter_table":
		return f.learn(d, body)
	case "describe_table":
		return d.control(event.ControlSignal)
	case "upsert", "replace":
		c.op, c.complete = event.Upsert, true
	case "insert":
		c.op, c.complete = event.Insert, true
	case "update":
		c.op = event.Update
	case "delete", "soft_delete":
		c.op, d.isDelete = event.Delete, true
	case "truncate_before", "soft_truncate_before", "truncate", "drop_table":
		c.op = event.Truncate
		for i, name := range texts(body) {
			t := change{table: event.Table{Name: name}, op: c.op, seq: d.transport(r, i)}
			f.columns(d, &t)
			d.add(t)
		}
		return nil
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "operation %.40q", op)
	}
	tables, err := d.members(body)
	if err != nil {
		return err
	}
	index := 0
	for _, t := range tables {
		rows, err := d.objects(t.Val, op)
		if err != nil {
			return err
		}
		for _, row := range rows {
			one := c
			one.table = event.Table{Name: string(t.Key.Text(nil))}
			one.seq = d.transport(r, index)
			index++
			declared := d.state.Declared[wire.TableKey(one.table)]
			for _, field := range row {
				if field.Key.Is("op_time") && declared["op_time"] == "" {
					continue // the operation's, not the row's
				}
				one.image = append(one.image, field)
			}
			f.columns(d, &one)
			d.add(one)
		}
	}
	return nil
}

// columns gives a change key and types of the table's definition.
func (*fivetran) columns(d *Decoder, c *change) {
	key := wire.TableKey(c.table)
	c.keys = d.state.Keys[key]
	(&singer{}).columnTypes(d, c, key)
}

// learn takes the definitions of create_table. A table without key has Fivetran's.
func (*fivetran) learn(d *Decoder, body wire.Token) error {
	tables, err := d.members(body)
	if err != nil {
		return err
	}
	for _, t := range tables {
		def, err := d.members(t.Val)
		if err != nil {
			return err
		}
		key := wire.TableKey(event.Table{Name: string(t.Key.Text(nil))})
		cols := find(def, "columns")
		if cols.Kind != wire.Object {
			continue
		}
		fields, err := d.members(cols)
		if err != nil {
			return err
		}
		types := map[string]string{}
		for _, col := range fields {
			types[string(col.Key.Text(nil))] = fivetranType(col.Val)
		}
		d.state.Declared[key] = types
		if keys := texts(find(def, "primary_key")); len(keys) > 0 {
			d.state.Keys[key] = keys
		} else {
			d.state.Keys[key] = []string{"_fivetran_id"}
		}
	}
	d.round++
	return d.control(event.ControlSchema)
}

// fivetranType is the type of a column of the SDK as DDL.
func fivetranType(t wire.Token) string {
	name := ""
	precision, scale := int64(38), int64(0)
	switch t.Kind {
	case wire.String:
		name = string(t.Text(nil))
	case wire.Object:
		def, err := members(t)
		if err != nil {
			return "STRING"
		}
		name = text(def, "type")
		if p, ok := number(find(def, "precision")); ok {
			precision = p
		}
		scale, _ = number(find(def, "scale"))
	}
	switch strings.ToUpper(name) {
	case "BOOLEAN", "INT", "FLOAT", "DOUBLE", "BINARY":
		return strings.ToUpper(name)
	case "SHORT":
		return "SMALLINT"
	case "LONG":
		return "BIGINT"
	case "NAIVE_DATE":
		return "DATE"
	case "NAIVE_DATETIME":
		return "TIMESTAMP_NTZ"
	case "UTC_DATETIME":
		return "TIMESTAMP"
	case "DECIMAL":
		if precision < 1 || precision > 38 || scale < 0 || scale > precision {
			return "STRING"
		}
		return "DECIMAL(" + strconv.FormatInt(precision, 10) + "," + strconv.FormatInt(scale, 10) + ")"
	}
	return "STRING"
}
