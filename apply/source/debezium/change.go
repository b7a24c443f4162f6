package debezium

import (
	"bytes"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// change handles an envelope with op and source.
func (d *Decoder) change(r *event.Record, e *envelope) error {
	var err error
	var src origin
	for _, f := range d.src {
		src.take(f.Key.Raw, f.Val)
	}
	op := e.op.Raw[0]
	switch op {
	case 'm':
		d.Control(event.ControlSignal, 1)
		return nil
	case 'c', 'u', 'r', 'd', 't':
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op %q", e.op.Raw)
	}
	if d.opt.noSource && e.source.Kind <= wire.Null {
		id := tableOfTopic(r.Topic)
		src.schema, src.table = []byte(id.Schema), []byte(id.Name)
	} else if len(src.table) == 0 {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the source block names no table")
	}
	var t *table
	if d.opt.Flat {
		t = d.sameTable(src.db, src.schema, src.table)
	} else {
		t = d.tableOf(src.db, src.schema, src.table)
	}
	if !t.keep {
		d.Control(event.ControlFiltered, 1)
		return nil
	}
	kind := src.kind()
	if d.opt.sequence == "transport" {
		kind = wire.SeqTransport
	}
	snapshot := src.inSnapshot(op)
	row := d.newRow(r)
	if row.Seq, err = d.seq(&src, kind, snapshot, r.Transport); err != nil {
		return err
	}
	mongo := string(src.connector) == "mongodb"
	if err = d.images(e, mongo); err != nil {
		return err
	}
	if err = d.readKey(r); err != nil {
		return err
	}
	if mongo {
		if err = d.mongoNames(t); err != nil {
			return err
		}
	}
	if op == 't' {
		row.Op = event.Truncate
		if err := d.recallKeys(t); err != nil {
			return err
		}
		return d.put(t, row)
	}
	if err := d.schemaOf(t, e.connect, false); err != nil {
		return err
	}
	keys := d.keysOf(t, mongo)
	if op == 'd' {
		row.Op = event.Delete
		return d.delete(t, row, &src, keys, r.Headers)
	}
	if e.after.Kind != wire.Object && !(mongo && len(d.row) > 0) && !e.partial {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "op %q without an after image", e.op.Raw)
	}
	switch {
	case snapshot:
		row.Op = event.Upsert
	case op == 'c':
		row.Op = event.Insert
	default:
		row.Op = event.Update
	}
	if d.opt.truncateSnapshot && snapshot && (src.snapshot.Is("first") || src.snapshot.Is("first_in_data_collection")) {
		if err := d.boundary(t, row); err != nil {
			return err
		}
	}
	if op == 'u' {
		t.partialBefore = t.partialBefore || e.before.Kind != wire.Object
		t.wholeBefore = t.wholeBefore || e.before.Kind == wire.Object
		if moved, err := d.split(t, row, &src, keys); moved || err != nil {
			return err
		}
	}
	return d.upsert(t, row, keys, r.Headers)
}

// boundary empties the table just before the first row of a snapshot: rows that
// an earlier, broken snapshot left behind have no delete event. It stands at the
// row's own sequence, where a truncate counts as before the row.
func (d *Decoder) boundary(t *table, row *wire.Row) error {
	if err := t.SetKeys(d.keysOf(t, false)); err != nil {
		return err
	}
	cut := *row
	cut.Op, cut.Size = event.Truncate, 0
	return d.put(t, &cut)
}

// recallKeys gives a table of which this run has seen no row the key columns
// that an earlier run knew.
func (d *Decoder) recallKeys(t *table) error {
	if t.Columns() > 0 {
		return nil
	}
	var names []string
	for _, k := range d.state.Keys[wire.TableKey(t.ID)] {
		typ, err := schema.ParseType(k.Type)
		if err != nil || typ == schema.Void {
			return nil
		}
		node := wire.NewNode(typ, d.opt.modes(k.Name))
		if _, hinted := d.opt.hint(k.Name); hinted || t.HasPreset(k.Name) {
			node = nil
		}
		if node == nil {
			_, err = d.column(t, k.Name)
		} else {
			_, err = t.AddColumn(k.Name, node)
		}
		if err != nil {
			return err
		}
		names = append(names, k.Name)
	}
	if len(names) == 0 {
		return nil
	}
	return t.SetKeys(names)
}

// images checks what members has parsed into row and old.
func (d *Decoder) images(e *envelope, mongo bool) error {
	if mongo {
		return d.mongoImages(e)
	}
	switch {
	case e.after.Kind > wire.Null && e.after.Kind != wire.Object:
		return wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "after is no object")
	case e.before.Kind > wire.Null && e.before.Kind != wire.Object:
		return wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "before is no object")
	}
	return nil
}

// readKey parses the record key, with or without its schema, into key. A key
// that is no JSON object names no columns.
func (d *Decoder) readKey(r *event.Record) error {
	d.key = d.key[:0]
	if len(r.Key) == 0 {
		return nil
	}
	var err error
	d.key, err = keyFields(r.Key, d.key)
	return err
}

func keyFields(raw []byte, into []wire.Field) ([]wire.Field, error) {
	if i := wire.Skip(raw, 0); i >= len(raw) || raw[i] != '{' {
		return into[:0], nil
	}
	fields, end, err := wire.ParseObject(raw, 0, into)
	if err == nil {
		err = wire.End(raw, end)
	}
	if err != nil {
		return into[:0], badBytes(err)
	}
	if len(fields) == 2 && fields[0].Key.Is("schema") && fields[1].Key.Is("payload") {
		payload := fields[1].Val
		if payload.Kind != wire.Object {
			return into[:0], nil
		}
		if fields, _, err = wire.ParseObject(payload.Raw, 0, fields[:0]); err != nil {
			return into[:0], badBytes(err)
		}
	}
	return fields, wire.Unique(fields)
}

// keysOf names the key columns: the user's, else the record key's, else those
// known from earlier records.
func (d *Decoder) keysOf(t *table, mongo bool) []string {
	given := wire.KeysFor(d.opt.Keys, d.opt.KeysOf, t.ID)
	switch {
	case given != nil:
		return given
	case mongo:
		return mongoKeys
	case len(d.key) == 0:
		return t.Keys()
	}
	d.keyNames = d.keyNames[:0]
	known := t.Keys()
	for i, f := range d.key {
		if i < len(known) && !f.Key.Esc && string(f.Key.Raw) == known[i] {
			d.keyNames = append(d.keyNames, known[i])
			continue
		}
		d.keyNames = append(d.keyNames, string(f.Key.Text(nil)))
	}
	return d.keyNames
}

// find is the member of that name, or an absent token.
func find(fields []wire.Field, name string) wire.Token {
	for i := range fields {
		if fields[i].Key.Is(name) {
			return fields[i].Val
		}
	}
	return wire.Token{}
}

// upsert adds the after image in row.
func (d *Decoder) upsert(t *table, row *wire.Row, keys []string, headers []event.Header) error {
	for _, k := range keys {
		tok := find(d.row, k)
		if tok.Kind == wire.None {
			tok = find(d.key, k)
		}
		if err := keyToken(k, tok); err != nil {
			return err
		}
	}
	if err := t.SetKeys(keys); err != nil {
		return err
	}
	if d.whole {
		if err := d.wholeColumns(t); err != nil {
			return err
		}
	}
	if err := d.fill(t, d.row); err != nil {
		return err
	}
	// A key column that the image lacks comes from the record key.
	for i, c := range t.KeyIndex() {
		var err error
		if c < 0 {
			if c, err = d.column(t, keys[i]); err != nil {
				return err
			}
		}
		d.size(t)
		if d.cells[c].Tok.Kind == wire.None {
			d.cells[c].Tok = find(d.key, keys[i])
		}
	}
	for i := range d.cells {
		if d.whole && d.cells[i].Tok.Kind == wire.None {
			d.cells[i].Tok.Kind = wire.Null
		}
	}
	for i := range d.cells {
		if d.cells[i].Tok.Kind >= wire.String && d.unavailable.is(d.cells[i].Tok) {
			d.cells[i].Unavailable = true
		}
	}
	if row.OldKey == nil && row.Op != event.Update {
		old, err := d.otherKey(headers, "__debezium.oldkey", keys)
		if err != nil {
			return err
		}
		row.OldKey = old
	}
	return d.put(t, row)
}

func keyToken(name string, tok wire.Token) error {
	switch tok.Kind {
	case wire.None:
		return wire.Poison(event.PoisonKey, "KEY_ABSENT", "key column %q is not in the record", name)
	case wire.Null:
		return wire.Poison(event.PoisonKey, "KEY_NULL", "key column %q is null", name)
	}
	return nil
}

// newRow is the row of a record, in the decoder's one buffer.
func (d *Decoder) newRow(r *event.Record) *wire.Row {
	d.out = wire.Row{Source: r.Source, Topic: r.Topic, End: r.End, Line: r.Line, Size: int64(len(r.Raw))}
	return &d.out
}

// put adds the row of d.cells.
func (d *Decoder) put(t *table, row *wire.Row) error {
	row.Cells = d.cells
	if row.Op == event.Truncate {
		row.Cells = nil
	}
	if err := t.Add(row); err != nil {
		return err
	}
	d.Count(1, row.Size)
	return nil
}

// size makes room in cells for every column.
func (d *Decoder) size(t *table) {
	for len(d.cells) < t.Columns() {
		d.cells = append(d.cells, wire.Cell{})
	}
}

// fill puts the fields of an image into cells, in column order; fields that are
// no columns yet become some.
func (d *Decoder) fill(t *table, fields []wire.Field) error {
	clear(d.cells)
	d.cells = d.cells[:0]
	d.size(t)
	for i := range fields {
		f := &fields[i]
		name := f.Key.Raw
		if f.Key.Esc {
			name = f.Key.Text(nil)
		}
		c := t.Lookup(name, i)
		if c < 0 {
			var err error
			if c, err = d.column(t, string(name)); err != nil {
				return err
			}
			d.size(t)
		}
		if d.cells[c].Tok.Kind != wire.None {
			return wire.Poison(event.PoisonBytes, "DUPLICATE_KEY", "member %q comes twice", name)
		}
		d.cells[c].Tok = f.Val
	}
	return nil
}

// column finds or adds a column: typed by the user's hint, else inferred.
func (d *Decoder) column(t *table, name string) (int, error) {
	if c := t.Lookup([]byte(name), 0); c >= 0 {
		return c, nil
	}
	if hint, ok := d.opt.hint(name); ok {
		return t.AddColumn(name, d.opt.bare(name, hint))
	}
	return t.AddColumn(name, nil)
}

// otherKey reads a key change header; the key must name the key columns.
func (d *Decoder) otherKey(headers []event.Header, name string, keys []string) ([]wire.Token, error) {
	var raw []byte
	for i := range headers {
		if headers[i].Key == name {
			raw = headers[i].Value
		}
	}
	if len(raw) == 0 || len(keys) == 0 {
		return nil, nil
	}
	var err error
	if d.other, err = keyFields(raw, d.other[:0]); err != nil {
		return nil, err
	}
	out := make([]wire.Token, 0, len(keys))
	for _, k := range keys {
		tok := find(d.other, k)
		if tok.Kind <= wire.Null {
			return nil, nil // another key than the one in use, e.g. under --keys
		}
		out = append(out, tok)
	}
	return out, nil
}

// delete adds a delete by its key: from the record key where that has the key
// columns, else from before.
func (d *Decoder) delete(t *table, row *wire.Row, src *origin, keys []string, headers []event.Header) error {
	if len(d.key) == 0 && len(d.old) == 0 {
		return wire.Poison(event.PoisonKey, "KEY_ABSENT", "a delete with neither key nor before image")
	}
	if err := t.SetKeys(keys); err != nil {
		return err
	}
	toks := make([]wire.Token, len(keys))
	for i, k := range keys {
		if toks[i] = find(d.key, k); toks[i].Kind == wire.None {
			toks[i] = find(d.old, k)
		}
		if err := keyToken(k, toks[i]); err != nil {
			return err
		}
	}
	if err := d.distrustFillers(t, src, keys, toks); err != nil {
		return err
	}
	// The columns of before are learnt, its values are not used but for the key.
	if err := d.fill(t, d.old); err != nil {
		return err
	}
	if len(keys) > 0 {
		clear(d.cells)
	}
	for i, k := range keys {
		c, err := d.column(t, k)
		if err != nil {
			return err
		}
		d.size(t)
		d.cells[c].Tok = toks[i]
	}
	if row.NewKey == nil {
		other, err := d.otherKey(headers, "__debezium.newkey", keys)
		if err != nil {
			return err
		}
		row.NewKey = other
	}
	return d.put(t, row)
}

// distrustFillers refuses a delete whose key is made of fillers. PostgreSQL's
// REPLICA IDENTITY USING INDEX sends only the index's columns of the old row and
// the connector fills the primary key with 0 or "": a delete of key 0 that
// nobody made. It shows by another column with a real value; where before images
// are whole (FULL) such a key is real.
func (d *Decoder) distrustFillers(t *table, src *origin, keys []string, toks []wire.Token) error {
	if string(src.connector) != "postgresql" || len(keys) == 0 || d.opt.fullBefore || t.wholeBefore && !t.partialBefore {
		return nil
	}
	for _, tok := range toks {
		if !filler(tok) {
			return nil
		}
	}
	for i := range d.old {
		f := &d.old[i]
		isKey := false
		for _, k := range keys {
			isKey = isKey || f.Key.Is(k)
		}
		if !isKey && !filler(f.Val) {
			return wire.Poison(event.PoisonKey, "KEY_IS_FILLER",
				"the delete carries column %q but no value of the key (%s): replica identity by index; name its columns with --keys", f.Key.Raw, strings.Join(keys, ", "))
		}
	}
	return nil
}

// filler tells whether a before image's value may be invented: null, or the
// zero of its type.
func filler(t wire.Token) bool {
	switch t.Kind {
	case wire.None, wire.Null, wire.False:
		return true
	case wire.Number:
		return len(bytes.Trim(t.Raw, "0.E+-")) == 0
	case wire.String:
		s := t.Raw
		if bytes.HasPrefix(s, []byte("1970-01-01")) {
			s = s[10:]
		}
		return len(bytes.Trim(s, "0.:-+TZ ")) == 0 || string(s) == "AA=="
	case wire.Array, wire.Object:
		return len(t.Raw) == 2
	}
	return false
}

// split turns a plain update that changes the key into a delete of the old key
// and an upsert of the new one; the Debezium connectors do so themselves, other
// producers do not.
func (d *Decoder) split(t *table, row *wire.Row, src *origin, keys []string) (bool, error) {
	if len(d.old) == 0 || len(keys) == 0 {
		return false, nil
	}
	same, fillers := true, true
	for _, k := range keys {
		was, is := find(d.old, k), find(d.row, k)
		if was.Kind <= wire.Null || is.Kind <= wire.Null {
			return false, nil
		}
		same = same && was.Kind == is.Kind && bytes.Equal(was.Raw, is.Raw)
		fillers = fillers && filler(was)
	}
	if same || fillers && string(src.connector) == "postgresql" && !d.opt.fullBefore {
		return false, nil
	}
	var oldKey, newKey []wire.Token
	for _, k := range keys {
		oldKey, newKey = append(oldKey, find(d.old, k)), append(newKey, find(d.row, k))
	}
	// Both halves or neither: the create is checked first.
	for i, k := range keys {
		if err := keyToken(k, newKey[i]); err != nil {
			return true, err
		}
	}
	key := d.key
	d.key = nil // the record key is the new one
	del := *row
	del.Op, del.NewKey, del.Size = event.Delete, newKey, 0
	err := d.delete(t, &del, &origin{}, keys, nil)
	d.key = key
	if err != nil {
		return true, err
	}
	row.Op, row.OldKey = event.Upsert, oldKey
	return true, d.upsert(t, row, keys, nil)
}
