package changes

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// dms reads the stream messages and the files of AWS DMS (cdc-formats F6).
type dms struct {
	// timeColumn is the column of the commit time in files (TimestampColumnName);
	// beforePrefix that of before images, noSupValue the text of a column outside
	// of supplemental logging (CsvNoSupValue).
	timeColumn, beforePrefix, noSupValue string

	source string // file is what its name says
	file   dmsFile
	clock  *wire.Node
}

func (f *dms) options(settings map[string]string) ([]string, error) {
	f.timeColumn, f.beforePrefix, f.noSupValue = settings["timestamp_column"], settings["before_prefix"], settings["no_sup_value"]
	return []string{"timestamp_column", "before_prefix", "no_sup_value"}, nil
}

func (f *dms) read(d *Decoder, r *event.Record, top []wire.Field) error {
	meta, err := d.members(find(top, "metadata"))
	if err != nil {
		return err
	}
	c := change{table: event.Table{Schema: text(meta, "schema-name"), Name: text(meta, "table-name")}}
	operation := text(meta, "operation")
	d.lastID, d.isDelete = c.table, operation == "delete"
	switch text(meta, "record-type") {
	case "data":
	case "control":
		return f.control(d, r, &c, operation, meta, top)
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_RECORD_TYPE", "record-type %.40q", text(meta, "record-type"))
	}
	switch operation {
	case "load":
		c.op, c.complete = event.Upsert, true
	case "insert":
		c.op, c.complete = event.Insert, true
	case "update":
		c.op = event.Update
	case "delete":
		c.op = event.Delete
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "operation %.40q", operation)
	}
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the message names no table")
	}
	if data := find(top, "data"); data.Kind > wire.Null {
		if c.image, err = d.members(data); err != nil {
			return err
		}
	}
	if before := find(top, "before-image"); before.Kind > wire.Null {
		if c.old, err = d.members(before); err != nil {
			return err
		}
	}
	if c.op == event.Delete {
		// A delete often has the key in one of the two only.
		for _, old := range c.old {
			if find(c.image, string(old.Key.Text(nil))).Kind <= wire.Null {
				c.image = append(without(c.image, old.Key), old)
			}
		}
	}
	if c.image == nil {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "the message has no data")
	}
	if c.seq, err = f.seq(d, r, meta, operation == "load"); err != nil {
		return err
	}
	if c.complete {
		d.Warn("fields that an insert of DMS leaves out are read as NULL, those of an update as unchanged: with IncludeNullAndEmpty the stream says so itself")
	}
	d.add(c)
	return nil
}

func without(fields []wire.Field, key wire.Token) []wire.Field {
	out := fields[:0:0]
	for _, f := range fields {
		if !sameToken(f.Key, key) {
			out = append(out, f)
		}
	}
	return out
}

// control takes the key of a table definition; a truncate empties the table.
func (f *dms) control(d *Decoder, r *event.Record, c *change, operation string, meta, top []wire.Field) error {
	if operation == "truncate-table" {
		var err error
		c.op = event.Truncate
		if c.seq, err = f.seq(d, r, meta, false); err != nil {
			return err
		}
		d.add(*c)
		return nil
	}
	control := find(top, "control")
	if control.Kind != wire.Object {
		return d.control(event.ControlSchema)
	}
	fields, err := d.members(control)
	if err != nil {
		return err
	}
	if def := find(fields, "table-def"); def.Kind == wire.Object {
		if fields, err = d.members(def); err != nil {
			return err
		}
		if keys := texts(find(fields, "primary-key")); len(keys) > 0 {
			d.state.Keys[wire.TableKey(c.table)] = keys
		}
	}
	return d.control(event.ControlSchema)
}

// seq is commit time, transaction and record, where transaction details are on.
// Rows of the full load carry the time of their transfer, which says nothing: they
// stand below every change.
func (*dms) seq(d *Decoder, r *event.Record, meta []wire.Field, load bool) (wire.Seq, error) {
	tx, ok1 := number(find(meta, "transaction-id"))
	rec, ok2 := number(find(meta, "transaction-record-id"))
	at, err := time.Parse(time.RFC3339Nano, text(meta, "commit-timestamp"))
	byPosition, perr := d.usePosition(ok1 && ok2 && err == nil || load && d.state.Sequence == "position")
	if perr != nil || !byPosition {
		return d.transport(r, 0), perr
	}
	s := wire.Seq{Kind: wire.SeqDMS, Epoch: d.epoch, N: [4]int64{at.UnixMicro(), tx, rec, r.Transport}}
	if load {
		s.N = [4]int64{math.MinInt64, 0, 0, r.Transport}
	}
	return s, nil
}

// goldenGate reads Oracle GoldenGate's JSON in operation and row form (cdc-formats F7).
type goldenGate struct{ ops map[string]event.Op }

func (f *goldenGate) options(settings map[string]string) ([]string, error) {
	f.ops = map[string]event.Op{"I": event.Insert, "U": event.Update, "D": event.Delete, "T": event.Truncate}
	return opOptions(settings, f.ops)
}

// opOptions takes settings op.CODE=insert|update|delete|truncate.
func opOptions(settings map[string]string, ops map[string]event.Op) ([]string, error) {
	var known []string
	for name, value := range settings {
		code, ok := strings.CutPrefix(name, "op.")
		if !ok {
			continue
		}
		switch value {
		case "insert":
			ops[code] = event.Insert
		case "update":
			ops[code] = event.Update
		case "delete":
			ops[code] = event.Delete
		case "truncate":
			ops[code] = event.Truncate
		default:
			continue
		}
		known = append(known, name)
	}
	return known, nil
}

func (f *goldenGate) read(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: dotted(text(top, "table"))}
	code := text(top, "op_type")
	op, ok := f.ops[code]
	d.lastID, d.isDelete = c.table, op == event.Delete
	if code == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no op_type")
	}
	if !ok {
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op_type %.40q; option op.%s=update says what it is", code, code)
	}
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the message names no table")
	}
	c.op = op
	if keys := d.texts(find(top, "primary_keys")); len(keys) > 0 {
		c.keys = keys
	}
	at := find(top, "pos")
	pos, ok := digits(string(at.Raw)) // text, or a number in some configurations
	byPosition, err := d.usePosition(ok)
	if err != nil {
		return err
	}
	c.seq = d.transport(r, 0)
	if byPosition {
		c.seq = wire.Seq{Kind: wire.SeqGoldenGate, Epoch: d.epoch, N: [4]int64{r.Transport}}
		c.seq.D[0] = pos
	}
	if op == event.Truncate {
		d.add(c)
		return nil
	}
	if err := f.images(d, &c, top); err != nil {
		return err
	}
	d.add(c)
	return nil
}

// images takes before and after, or the columns of the row form.
func (*goldenGate) images(d *Decoder, c *change, top []wire.Field) error {
	after, before := find(top, "after"), find(top, "before")
	var err error
	if after.Kind == wire.None && before.Kind == wire.None {
		for _, f := range top {
			switch string(f.Key.Text(nil)) {
			case "table", "op_type", "op_ts", "current_ts", "pos", "primary_keys", "tokens", "csn", "xid":
			default:
				c.image = append(c.image, f)
			}
		}
	} else {
		if before.Kind > wire.Null {
			if c.old, err = d.members(before); err != nil {
				return err
			}
		}
		if after.Kind > wire.Null {
			if c.image, err = d.members(after); err != nil {
				return err
			}
		}
		if c.op == event.Delete {
			c.image, c.old = c.old, nil
		}
	}
	if len(c.image) == 0 {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "the operation has no row")
	}
	c.image, c.unavailable = missingFlags(c.image)
	c.old, _ = missingFlags(c.old)
	return nil
}

// missingFlags takes the flags COLUMN_isMissing out of an image; what they mark
// is no value.
func missingFlags(image []wire.Field) ([]wire.Field, []string) {
	flag := func(f wire.Field) bool { return bytes.HasSuffix(f.Key.Raw, []byte("_isMissing")) }
	if !slices.ContainsFunc(image, flag) {
		return image, nil
	}
	var marked []string
	out := image[:0:0]
	for _, f := range image {
		name, ok := strings.CutSuffix(string(f.Key.Text(nil)), "_isMissing")
		switch {
		case !ok:
			out = append(out, f)
		case f.Val.Kind == wire.True || f.Val.Is("true"):
			marked = append(marked, name)
		}
	}
	return out, marked
}

// dotted splits SCHEMA.TABLE or CATALOG.SCHEMA.TABLE.
func dotted(name string) event.Table {
	parts := strings.Split(name, ".")
	id := event.Table{Name: parts[len(parts)-1]}
	if len(parts) > 1 {
		id.Schema = parts[len(parts)-2]
	}
	if len(parts) > 2 {
		id.Database = strings.Join(parts[:len(parts)-2], ".")
	}
	return id
}
