package changes

import (
	"math"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// maxwell reads Maxwell's JSON (cdc-formats F4).
type maxwell struct{}

func (*maxwell) options(map[string]string) ([]string, error) { return nil, nil }

func (m *maxwell) read(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: event.Table{Database: text(top, "database"), Name: text(top, "table")}}
	typ := text(top, "type")
	d.lastID, d.isDelete = c.table, typ == "delete"
	switch typ {
	case "insert":
		c.op = event.Insert
	case "bootstrap-insert":
		c.op = event.Upsert
	case "update":
		c.op = event.Update
	case "delete":
		c.op = event.Delete
	case "bootstrap-start", "bootstrap-complete":
		return d.control(event.ControlSignal)
	case "table-create", "table-alter":
		m.learn(d, c.table, find(top, "def"))
		return d.control(event.ControlSchema)
	case "table-drop", "database-create", "database-alter", "database-drop":
		return d.control(event.ControlSchema)
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the event has no type")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "type %.40q", typ)
	}
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the event names no table")
	}
	if c.table.Database == "maxwell" {
		// Maxwell's own bookkeeping, which its filter lets through.
		return d.control(event.ControlFiltered)
	}
	var err error
	if c.image, err = d.members(find(top, "data")); err != nil {
		return err
	}
	if old := find(top, "old"); old.Kind > wire.Null && c.op == event.Update {
		if c.old, err = d.members(old); err != nil {
			return err
		}
	}
	c.keys = m.keys(d, top)
	if c.seq, err = m.seq(d, r, top, typ == "bootstrap-insert"); err != nil {
		return err
	}
	if declared := d.state.Declared[wire.TableKey(c.table)]; declared != nil {
		forms := mysqlForms{jsonSet: true, zone: d.opt.Zone}
		c.typed = strconv.AppendInt(nil, int64(d.round), 10)
		c.node = func(name string) *wire.Node {
			if t := declared[name]; t != "" {
				return forms.node(t)
			}
			return nil
		}
	}
	d.add(c)
	return nil
}

// keys are those that the event lists, else the members pk.* of the record key.
func (*maxwell) keys(d *Decoder, top []wire.Field) []string {
	if list := d.texts(find(top, "primary_key_columns")); len(list) > 0 {
		return list
	}
	var out []string
	for _, f := range d.key {
		if name, ok := strings.CutPrefix(string(f.Key.Text(nil)), "pk."); ok {
			out = append(out, name)
		}
	}
	return out
}

// seq is the binlog position and the row's number in its transaction; the last
// row of a transaction says commit instead. Bootstrap rows have no position: they
// stand behind the newest one seen, and streamed rows that come late do no harm. A
// stream that begins with them is ordered by its place unless the option says position.
func (*maxwell) seq(d *Decoder, r *event.Record, top []wire.Field, bootstrap bool) (wire.Seq, error) {
	file, pos, ok := binlogPosition(text(top, "position"))
	byPosition, err := d.usePosition(ok || bootstrap && d.state.Sequence == "position")
	if err != nil || !byPosition {
		return wire.Seq{Kind: wire.SeqTransport, Epoch: d.epoch, N: [4]int64{r.Transport}}, err
	}
	s := wire.Seq{Kind: wire.SeqMaxwell, Epoch: d.epoch}
	if bootstrap {
		if len(d.state.Last) < 2 {
			d.state.Last = []int64{0, 0}
		}
		s.N = [4]int64{d.state.Last[0], d.state.Last[1], math.MaxInt64, r.Transport}
		return s, nil
	}
	xoffset, has := number(find(top, "xoffset"))
	if !has {
		xoffset = math.MaxInt64 - 1
	}
	s.N = [4]int64{file, pos, xoffset, r.Transport}
	if last := d.state.Last; len(last) < 2 || file > last[0] || file == last[0] && pos > last[1] {
		d.state.Last = []int64{file, pos}
	}
	return s, nil
}

// binlogPosition reads "binlog.000012:9931".
func binlogPosition(s string) (file, pos int64, ok bool) {
	name, at, found := strings.Cut(s, ":")
	if !found {
		return 0, 0, false
	}
	file, ok1 := wire.Int([]byte(name[strings.LastIndexByte(name, '.')+1:]))
	pos, ok2 := wire.Int([]byte(at))
	return file, pos, ok1 && ok2 && file >= 0 && pos >= 0
}

// learn takes column types from a definition.
func (*maxwell) learn(d *Decoder, id event.Table, def wire.Token) {
	if def.Kind != wire.Object {
		return
	}
	fields, err := d.members(def)
	if err != nil {
		return
	}
	types := map[string]string{}
	wire.Elements(find(fields, "columns"), func(e wire.Token) bool {
		col, err := d.members(e)
		if err != nil {
			return true
		}
		typ := text(col, "type")
		if find(col, "signed").Kind == wire.False {
			typ += " unsigned"
		}
		switch base, _, _ := strings.Cut(typ, " "); base {
		case "decimal", "bit":
			// The definition has no precision: values decide.
		default:
			types[text(col, "name")] = typ
		}
		return true
	})
	if len(types) > 0 {
		d.state.Declared[wire.TableKey(id)] = types
		d.round++
	}
}
