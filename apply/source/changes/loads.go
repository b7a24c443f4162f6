package changes

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// airbyte reads Airbyte's protocol lines and the rows of its destinations
// (cdc-formats F9).
type airbyte struct{}

func (*airbyte) options(map[string]string) ([]string, error) { return nil, nil }

func (f *airbyte) read(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: tableOfTopic(r.Topic)}
	row := top
	if typ := text(top, "type"); typ != "" && find(top, "record").Kind == wire.Object {
		if typ != "RECORD" {
			return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "type %.40q with a record", typ)
		}
		rec, err := d.members(find(top, "record"))
		if err != nil {
			return err
		}
		c.table = event.Table{Schema: text(rec, "namespace"), Name: text(rec, "stream")}
		d.lastID = c.table
		if row, err = d.members(find(rec, "data")); err != nil {
			return err
		}
		for _, f := range rec {
			if f.Key.Is("emitted_at") {
				row = append(row, wire.Field{Key: wire.Token{Kind: wire.String, Raw: []byte("_airbyte_emitted_at")}, Val: f.Val})
			}
		}
	} else if typ != "" {
		switch typ {
		case "STATE", "TRACE", "LOG", "SPEC", "CATALOG", "CONNECTION_STATUS", "CONTROL":
			return d.control(event.ControlSignal)
		}
	}
	c.op = event.Upsert
	meta := d.meta[:0]
	c.image = make([]wire.Field, 0, len(row))
	for _, field := range row {
		name := field.Key.Text(nil)
		if bytes.HasPrefix(name, []byte("_ab_cdc_")) || bytes.HasPrefix(name, []byte("_airbyte_")) {
			meta = append(meta, field)
			continue
		}
		c.image = append(c.image, field)
	}
	d.meta = meta
	if find(meta, "_ab_cdc_deleted_at").Kind > wire.Null {
		c.op = event.Delete
	}
	var err error
	if c.seq, err = f.seq(d, r, meta); err != nil {
		return err
	}
	c.rescued, err = f.nulled(find(meta, "_airbyte_meta"))
	if err != nil {
		return err
	}
	d.add(c)
	return nil
}

// seq is generation and log position; rows of an initial load have none and
// stand first.
func (*airbyte) seq(d *Decoder, r *event.Record, meta []wire.Field) (wire.Seq, error) {
	lsn, file := find(meta, "_ab_cdc_lsn"), find(meta, "_ab_cdc_log_file")
	hasFile := file.Kind != wire.None
	if lsn.Kind == wire.None && !hasFile {
		lsn = find(meta, "_ab_cdc_cursor")
	}
	hasLSN := lsn.Kind != wire.None
	generation, _ := number(find(meta, "_airbyte_generation_id"))
	byPosition, err := d.usePosition(hasLSN || hasFile)
	if err != nil || !byPosition {
		return d.transport(r, 0), err
	}
	if hasFile {
		s := wire.Seq{Kind: wire.SeqAirbyteMySQL, Epoch: d.epoch, N: [4]int64{generation, 0, 0, r.Transport}}
		if file.Kind == wire.String {
			n, ok := wire.Int(file.Raw[strings.LastIndexByte(string(file.Raw), '.')+1:])
			pos, ok2 := number(find(meta, "_ab_cdc_log_pos"))
			if !ok || !ok2 {
				return s, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "_ab_cdc_log_file or _ab_cdc_log_pos is unreadable")
			}
			s.N[1], s.N[2] = n, pos
		}
		return s, nil
	}
	at := instant(find(meta, "_airbyte_extracted_at"))
	if at == 0 {
		at = instant(find(meta, "_airbyte_emitted_at"))
	}
	s := wire.Seq{Kind: wire.SeqAirbyte, Epoch: d.epoch, N: [4]int64{generation, at, r.Transport}}
	if lsn.Kind > wire.Null {
		n, ok := digits(strings.TrimSuffix(string(lsn.Raw), ".0"))
		if !ok {
			n, ok = serverLSN(string(lsn.Raw), find(meta, "_ab_cdc_event_serial_no"))
		}
		if !ok {
			return s, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "_ab_cdc_lsn %.60s is no number", lsn.Raw)
		}
		s.D[0] = n
	}
	return s, nil
}

// serverLSN is a log sequence number of SQL Server (hexadecimal, 8:8:4) with the
// number of the event in it as one number.
func serverLSN(s string, serial wire.Token) (decimal128.Num, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return decimal128.Num{}, false
	}
	var n [3]uint64
	for i, bits := range []int{32, 32, 16} {
		var err error
		if n[i], err = strconv.ParseUint(parts[i], 16, bits); err != nil {
			return decimal128.Num{}, false
		}
	}
	no, _ := number(serial)
	if no < 0 || no > math.MaxUint32 {
		return decimal128.Num{}, false
	}
	// 32 + 32 + 16 bits of the LSN before 32 of the event: 112 bits are 34 digits.
	return decimal128.New(int64(n[0]<<16|n[1]>>16), n[1]&0xffff<<48|n[2]<<32|uint64(no)), true
}

// nulled lists the fields that the load made null because it could not write
// their values: they are rescued, not null at the source.
func (*airbyte) nulled(meta wire.Token) ([]byte, error) {
	var fields []wire.Field
	var err error
	switch meta.Kind {
	case wire.Object:
		fields, err = members(meta)
	case wire.String:
		fields, err = object(meta.Text(nil), nil)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := objects(find(fields, "changes"), "changes")
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, c := range list {
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = wire.AppendString(out, text(c, "field"))
		out = append(out, ':')
		out = append(out, joined(c)...)
	}
	return out, nil
}

// instant is a time as a number, or as text in microseconds; 0 for neither.
func instant(t wire.Token) int64 {
	if n, ok := number(t); ok {
		return n
	}
	if t.Kind == wire.String {
		if at, err := time.Parse(time.RFC3339Nano, string(t.Text(nil))); err == nil {
			return at.UnixMicro()
		}
	}
	return 0
}

// singer reads Singer's messages and the rows of Stitch (cdc-formats F9).
type singer struct{}

func (*singer) options(map[string]string) ([]string, error) { return nil, nil }

func (f *singer) read(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: event.Table{Name: text(top, "stream")}, op: event.Upsert}
	d.lastID = c.table
	key := wire.TableKey(c.table)
	switch typ := text(top, "type"); {
	case typ == "RECORD":
	case typ == "SCHEMA":
		return f.learn(d, key, top)
	case typ == "STATE":
		return d.control(event.ControlSignal)
	case typ == "ACTIVATE_VERSION":
		return f.activate(d, c, top)
	case find(top, "_sdc_sequence").Kind > wire.Null:
		return f.stitch(d, r, top)
	case typ == "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no type")
	case typ == "BATCH":
		return wire.Poison(event.PoisonEnvelope, "BATCH_FILES", "BATCH messages name files, which are not read")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "type %.40q", typ)
	}
	row, err := d.members(find(top, "record"))
	if err != nil {
		return err
	}
	for _, field := range row {
		name := string(field.Key.Text(nil))
		if !strings.HasPrefix(name, "_sdc_") {
			c.image = append(c.image, field)
		} else if name == "_sdc_deleted_at" && field.Val.Kind > wire.Null {
			c.op = event.Delete
		}
	}
	version, _ := number(find(top, "version"))
	c.seq = wire.Seq{Kind: wire.SeqSinger, Epoch: d.epoch, N: [4]int64{version, r.Transport}}
	c.keys = d.state.Keys[key]
	f.columnTypes(d, &c, key)
	d.add(c)
	return nil
}

func (*singer) columnTypes(d *Decoder, c *change, key string) {
	declared := d.state.Declared[key]
	if declared == nil {
		return
	}
	c.typed = strconv.AppendInt(nil, int64(d.round), 10)
	c.node = func(name string) *wire.Node {
		if t, err := schema.ParseType(declared[name]); declared[name] != "" && err == nil {
			return wire.NewNode(t, wire.Modes{Zone: d.opt.Zone, Decimal: wire.DecimalText})
		}
		return nil
	}
}

// learn takes key and types of a SCHEMA message.
func (f *singer) learn(d *Decoder, key string, top []wire.Field) error {
	if keys := texts(find(top, "key_properties")); len(keys) > 0 {
		d.state.Keys[key] = keys
	}
	types := map[string]string{}
	fields, err := d.members(find(top, "schema"))
	if err != nil {
		return err
	}
	if props := find(fields, "properties"); props.Kind == wire.Object {
		cols, err := d.members(props)
		if err != nil {
			return err
		}
		for _, col := range cols {
			if col.Val.Kind != wire.Object {
				continue
			}
			p, err := d.members(col.Val)
			if err != nil {
				return err
			}
			types[string(col.Key.Text(nil))] = jsonSchemaType(p)
		}
	}
	d.state.Declared[key] = types
	d.round++
	return d.control(event.ControlSchema)
}

// jsonSchemaType is the Delta type of a JSON schema property; "" if several
// kinds of values are allowed or none is said.
func jsonSchemaType(p []wire.Field) string {
	kinds := texts(find(p, "type"))
	if kinds == nil {
		kinds = []string{text(p, "type")}
	}
	kind := ""
	for _, k := range kinds {
		if k == "null" {
			continue
		}
		if kind != "" {
			return "STRING"
		}
		kind = k
	}
	switch kind {
	case "integer":
		return "BIGINT"
	case "number":
		if m := find(p, "multipleOf"); m.Kind == wire.Number {
			if scale := scaleOf(string(m.Raw)); scale >= 0 && scale <= 38 {
				return "DECIMAL(38," + strconv.Itoa(scale) + ")"
			}
			return "STRING"
		}
		return "DOUBLE"
	case "boolean":
		return "BOOLEAN"
	case "string":
		switch text(p, "format") {
		case "date-time":
			return "TIMESTAMP"
		case "date":
			return "DATE"
		}
		return "STRING"
	case "object", "array":
		return "STRING"
	}
	return ""
}

// scaleOf is the scale of 0.01 or 1e-2; -1 for other numbers.
func scaleOf(s string) int {
	if m, e, ok := strings.Cut(strings.ToLower(s), "e-"); ok {
		n, err := strconv.Atoi(e)
		if err != nil || m != "1" && m != "1.0" {
			return -1
		}
		return n
	}
	if s == "1" {
		return 0
	}
	if frac, ok := strings.CutPrefix(s, "0."); ok && strings.Trim(frac, "0") == "1" {
		return len(strings.TrimRight(frac, "0"))
	}
	return -1
}

// activate ends a full load: every row of another version is gone. Rows of this
// version and newer ones stand above the truncate.
func (*singer) activate(d *Decoder, c change, top []wire.Field) error {
	version, ok := number(find(top, "version"))
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "ACTIVATE_VERSION without a version")
	}
	c.op, c.keys = event.Truncate, d.state.Keys[wire.TableKey(c.table)]
	c.seq = wire.Seq{Kind: wire.SeqSinger, Epoch: d.epoch, N: [4]int64{version, -1}}
	d.add(c)
	return nil
}

// stitch reads a row of Stitch's destinations.
func (*singer) stitch(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: tableOfTopic(r.Topic), op: event.Upsert}
	d.lastID = c.table
	c.seq = wire.Seq{Kind: wire.SeqStitch, Epoch: d.epoch}
	ok := false
	for _, field := range top {
		switch name := string(field.Key.Text(nil)); {
		case name == "_sdc_sequence":
			c.seq.N[1], ok = number(field.Val)
		case name == "_sdc_table_version":
			c.seq.N[0], _ = number(field.Val)
		case name == "_sdc_deleted_at":
			if field.Val.Kind > wire.Null {
				c.op = event.Delete
			}
		case !strings.HasPrefix(name, "_sdc_"):
			c.image = append(c.image, field)
		}
	}
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "_sdc_sequence is unreadable")
	}
	d.add(c)
	return nil
}
