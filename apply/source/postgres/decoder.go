package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// The topics of records that are no messages of the stream, whose topic is "".
const (
	// TopicCopy is a piece of a snapshot: the key is the snapshot's position (8 bytes)
	// and the table as the body of an R message, the value whole lines of COPY's text.
	TopicCopy = "copy"
	// TopicClear empties a table before its rows are copied anew; the key is that of the
	// copy.
	TopicClear = "clear"
	// TopicCatalog is what the catalog says of types and keys, as JSON ([Catalog]).
	TopicCatalog = "catalog"
)

// Catalog is the content of a catalog record.
type Catalog struct {
	Types []typeDef `json:"types,omitempty"`
	// Keys are the primary key columns of tables, by "schema.table".
	Keys map[string][]string `json:"keys,omitempty"`
	// Overtaken are, by "schema.table", the positions of copies that were read on from
	// a broken one: a change of a key that committed before may move a row that was not
	// copied to where nobody looks for it.
	Overtaken map[string]int64 `json:"overtaken,omitempty"`
}

// Transactions up to this size are handed over whole.
const (
	wholeRows  = 500_000
	wholeBytes = 256 << 20
)

// DecoderOptions of a decoder.
type DecoderOptions struct {
	// Keys are the user's key columns, for every table; nil: those of the replica
	// identity or primary key.
	Keys []string
	// KeysOf, if set, gives a table key columns of its own, nil where it has none.
	KeysOf func(event.Table) []string
	// Schema types columns otherwise than their PostgreSQL types do, by name.
	Schema *schema.Struct
	// Tables, if not empty, keeps only these tables; Want, if set, only those for which
	// it is true.
	Tables []string
	Want   func(schema, table string) bool
	// Database is the database's name in [event.Table].
	Database string
	// Epoch is the first element of every sequence.
	Epoch int32
	// Zone of timestamp texts without offset; nil is UTC.
	Zone *time.Location
}

// Decoder turns pgoutput messages and snapshot pieces into changes; it implements
// event.Decoder and is used from one goroutine. A record's Transport is the message's
// WAL position.
type Decoder struct {
	wire.Outbox
	opt    DecoderOptions
	tables map[event.Table]*table
	order  []*table
	byOID  map[uint32]*table
	types  map[uint32]typeDef
	keys   map[string][]string
	late   map[string]int64

	// The open transaction: where its commit record begins.
	inTx           bool
	commit         int64
	doneRows       int
	doneBytes      int64
	copyKey        []byte // of the snapshot piece before
	copyTable      *table
	row, old       []cell
	cells          []wire.Cell
	out            wire.Row
	oldKey, newKey []wire.Token
	buf            []byte
}

// table is a source table with its newest shape.
type table struct {
	*wire.Table
	rel    *relation
	plans  []*plan
	keyIdx []int
	keep   bool
}

// NewDecoder makes a decoder.
func NewDecoder(o DecoderOptions) *Decoder {
	return &Decoder{opt: o, tables: map[event.Table]*table{}, byOID: map[uint32]*table{}, types: map[uint32]typeDef{}, keys: map[string][]string{}, late: map[string]int64{}}
}

// Pending implements event.Decoder: a transaction that is still open counts only when
// it is too large to be kept whole.
func (d *Decoder) Pending() (int, int64) {
	rows, size := d.Outbox.Pending()
	if d.inTx && rows-d.doneRows < wholeRows && size-d.doneBytes < wholeBytes {
		return d.doneRows, d.doneBytes
	}
	return rows, size
}

// Flush implements event.Decoder.
func (d *Decoder) Flush() (*event.Decoded, error) {
	out := d.Handover()
	d.doneRows, d.doneBytes = 0, 0
	for _, t := range d.order {
		done, err := t.Take()
		if err != nil {
			return nil, fmt.Errorf("decode %s.%s: %w", t.ID.Schema, t.ID.Name, err)
		}
		out.Batches = append(out.Batches, done...)
	}
	return out, nil
}

// State implements event.Decoder: the server describes every table anew to each
// reader, so nothing need be kept.
func (d *Decoder) State() string { return "" }

// Restore implements event.Decoder.
func (d *Decoder) Restore(string) error { return nil }

// Add implements event.Decoder.
func (d *Decoder) Add(_ context.Context, r *event.Record) error {
	d.buf = d.buf[:0]
	var err error
	switch {
	case r.Fault != "":
		code, reason, _ := strings.Cut(r.Fault, ": ")
		err = wire.Poison(event.PoisonBytes, code, "%s", reason)
	case r.Topic == TopicCatalog:
		err = d.catalog(r.Value)
	case r.Topic == TopicCopy, r.Topic == TopicClear:
		err = d.copied(r)
	default:
		err = d.message(r)
	}
	if !d.inTx {
		d.doneRows, d.doneBytes = d.Outbox.Pending()
	}
	return d.settle(r, err)
}

// settle makes poison of what is wrong with one record.
func (d *Decoder) settle(r *event.Record, err error) error {
	if errors.Is(err, errShort) {
		err = wire.Poison(event.PoisonBytes, "INVALID_MESSAGE", "%v", err)
	}
	var p *wire.PoisonError
	if !errors.As(err, &p) {
		return err
	}
	poison := event.Poison{Class: p.Class, Code: p.Code, Reason: p.Reason, Record: r.Copy(), Delete: len(r.Value) > 0 && r.Topic == "" && r.Value[0] == 'D'}
	if t := d.subject(r); t != nil {
		poison.Table = t.ID
	}
	d.Quarantine(poison)
	return nil
}

// subject is the table that a record is about, if that can be told.
func (d *Decoder) subject(r *event.Record) *table {
	if r.Topic != "" {
		return d.copyTable
	}
	if len(r.Value) < 5 {
		return nil
	}
	return d.byOID[binary.BigEndian.Uint32(r.Value[1:])]
}

func (d *Decoder) catalog(value []byte) error {
	var c Catalog
	if err := json.Unmarshal(value, &c); err != nil {
		return fmt.Errorf("read catalog record: %w", err)
	}
	for _, t := range c.Types {
		d.types[t.OID] = t
	}
	maps.Copy(d.keys, c.Keys)
	maps.Copy(d.late, c.Overtaken)
	return nil
}

// message reads one message of protocol version 1. The streamed transactions of
// version 2 come to it as whole ones ([Assembler]).
func (d *Decoder) message(r *event.Record) error {
	if len(r.Value) == 0 {
		return errShort
	}
	m := &reader{b: r.Value[1:]}
	switch r.Value[0] {
	case 'B':
		final := m.u64()
		m.u64()
		m.u32()
		if err := m.end(); err != nil {
			return err
		}
		d.inTx, d.commit = true, int64(final)
		d.Control(event.ControlTx, 1)
	case 'C':
		m.take(25)
		d.inTx = false
		d.Control(event.ControlTx, 1)
		return m.end()
	case 'R':
		rel, err := m.relationBody()
		if err != nil {
			return err
		}
		d.Control(event.ControlSchema, 1)
		_, err = d.describe(rel)
		return err
	case 'Y':
		def := typeDef{OID: m.u32(), Schema: m.text(), Name: m.text()}
		if err := m.end(); err != nil {
			return err
		}
		if _, told := d.types[def.OID]; !told {
			// Of a domain the message names the type that it is made of.
			if base := builtin(def.Name); base != 0 && (def.Schema == "" || def.Schema == "pg_catalog") {
				def.Kind, def.Base, def.Mod = "d", base, -1
			}
			d.types[def.OID] = def
		}
		d.Control(event.ControlSchema, 1)
	case 'M':
		d.Control(event.ControlSignal, 1)
	case 'O':
		d.Control(event.ControlTx, 1)
	case 'I', 'U', 'D':
		return d.change(r, m)
	case 'T':
		return d.truncate(r, m)
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "message of type %q", r.Value[:1])
	}
	return nil
}

// describe takes a table's shape.
func (d *Decoder) describe(rel *relation) (*table, error) {
	id := event.Table{Database: d.opt.Database, Schema: rel.schema, Name: rel.name}
	t := d.tables[id]
	if t == nil {
		t = &table{Table: wire.NewTable(id), keep: wire.Asked(id, d.opt.Tables) && (d.opt.Want == nil || d.opt.Want(rel.schema, rel.name))}
		d.tables[id] = t
		d.order = append(d.order, t)
	}
	d.byOID[rel.oid] = t
	t.rel, t.plans = rel, t.plans[:0]
	if !t.keep {
		return t, nil
	}
	names, nodes, same := make([]string, len(rel.columns)), make([]*wire.Node, len(rel.columns)), t.Columns() == len(rel.columns)
	for i, c := range rel.columns {
		p := d.planOf(c)
		names[i], nodes[i] = c.name, p.node
		t.plans = append(t.plans, p)
		same = same && t.Name(i) == c.name && t.Node(i).Equal(p.node)
	}
	if !same {
		if err := t.SetColumns(names, nodes); err != nil {
			return nil, fmt.Errorf("decode %s.%s: %w", rel.schema, rel.name, err)
		}
	}
	keys := d.keysOf(rel)
	if err := t.SetKeys(keys); err != nil {
		return nil, fmt.Errorf("decode %s.%s: %w", rel.schema, rel.name, err)
	}
	t.keyIdx = append(t.keyIdx[:0], t.KeyIndex()...)
	for _, i := range t.keyIdx {
		if i < 0 {
			t.keyIdx = nil
			d.Warn("table %s.%s has no column for every one of the keys %s: its rows are passed over", rel.schema, rel.name, strings.Join(keys, ", "))
			break
		}
	}
	if len(keys) == 0 {
		d.Warn("table %s.%s has no key: its rows are passed over; give it a primary key, or a unique index as replica identity, or name its columns with --keys", rel.schema, rel.name)
	}
	if rel.identity == 'n' && len(keys) > 0 {
		d.Warn("table %s.%s has REPLICA IDENTITY NOTHING: only its inserts can be told; set another one with ALTER TABLE ... REPLICA IDENTITY DEFAULT", rel.schema, rel.name)
	}
	return t, nil
}

// keysOf names the columns that identify a row.
func (d *Decoder) keysOf(rel *relation) []string {
	if given := wire.KeysFor(d.opt.Keys, d.opt.KeysOf, event.Table{Schema: rel.schema, Name: rel.name}); given != nil {
		return given
	}
	if (rel.identity == 'f' || rel.identity == 'n') && !rel.hasCatalogKey {
		return d.keys[rel.schema+"."+rel.name]
	}
	var out []string
	for _, c := range rel.columns {
		if c.key {
			out = append(out, c.name)
		}
	}
	return out
}

// planOf is how a column is read: as the user says, else by its type.
func (d *Decoder) planOf(c column) *plan {
	p := planOf(c.oid, c.mod, d.types, d.opt.Zone, 0)
	if d.opt.Schema == nil {
		return p
	}
	i := d.opt.Schema.Index(c.name)
	if i < 0 || schema.EqualIgnoringNullability(p.node.Type, d.opt.Schema.Fields[i].Type) {
		return p
	}
	p.node = wire.NewNode(d.opt.Schema.Fields[i].Type, wire.Modes{Zone: d.opt.Zone, Decimal: wire.DecimalText, Lenient: true, Binary: wire.Hex})
	return p
}

// builtin is the number of a built-in type that is more than its text; 0 for others.
func builtin(name string) uint32 {
	switch name {
	case "bool":
		return oidBool
	case "bytea":
		return oidBytea
	case "int2":
		return oidInt2
	case "int4":
		return oidInt4
	case "int8":
		return oidInt8
	case "oid":
		return oidOID
	case "float4":
		return oidFloat4
	case "float8":
		return oidFloat8
	case "date":
		return oidDate
	case "time":
		return oidTime
	case "timestamp":
		return oidTimestamp
	case "timestamptz":
		return oidTimestamptz
	case "numeric":
		return oidNumeric
	}
	return 0
}

// copied takes the rows of a snapshot piece.
func (d *Decoder) copied(r *event.Record) error {
	if len(r.Key) < 8 {
		return errShort
	}
	if d.copyTable == nil || !bytes.Equal(d.copyKey, r.Key) {
		m := &reader{b: r.Key[8:]}
		rel, err := m.relationBody()
		if err != nil {
			return err
		}
		rel.hasCatalogKey = true
		if d.copyTable, err = d.describe(rel); err != nil {
			return err
		}
		d.copyKey = append(d.copyKey[:0], r.Key...)
	}
	t := d.copyTable
	if !t.keep || len(t.keyIdx) == 0 {
		d.Control(event.ControlFiltered, 1)
		return nil
	}
	at := int64(binary.BigEndian.Uint64(r.Key))
	seq := wire.Seq{Kind: wire.SeqPostgres, Epoch: d.opt.Epoch, N: [4]int64{at, 0, at}}
	if r.Topic == TopicClear {
		row := d.newRow(r, event.Truncate, seq)
		d.cells = d.cells[:0]
		return d.put(t, row)
	}
	for text := r.Value; len(text) > 0; {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			return wire.Poison(event.PoisonBytes, "INVALID_COPY", "a row without end")
		}
		d.buf = d.buf[:0]
		var ok bool
		if d.row, ok = d.copyRow(text[:i], d.row); !ok || len(d.row) != len(t.plans) {
			return wire.Poison(event.PoisonBytes, "INVALID_COPY", "a row of %d columns, the table has %d", len(d.row), len(t.plans))
		}
		row := d.newRow(r, event.Upsert, seq)
		row.Size = int64(i + 1)
		d.fill(t, d.row, nil)
		if err := d.put(t, row); err != nil {
			if err := d.settle(r, err); err != nil {
				return err
			}
		}
		text = text[i+1:]
	}
	return nil
}

// copyRow splits a line of COPY's text form.
func (d *Decoder) copyRow(line []byte, into []cell) ([]cell, bool) {
	into = into[:0]
	for {
		field, rest, more := bytes.Cut(line, []byte{'\t'})
		c := cell{kind: 't', text: field}
		if string(field) == `\N` {
			c = cell{kind: 'n'}
		} else if bytes.IndexByte(field, '\\') >= 0 {
			start := len(d.buf)
			for i := 0; i < len(field); i++ {
				b := field[i]
				if b == '\\' {
					if i++; i >= len(field) {
						return into, false
					}
					b = unescaped(field[i])
				}
				d.buf = append(d.buf, b)
			}
			c.text = d.buf[start:len(d.buf):len(d.buf)]
		}
		into = append(into, c)
		if !more {
			return into, true
		}
		line = rest
	}
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	}
	return c
}
