package changes

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// mongo reads MongoDB change streams (cdc-formats F12). Columns are the top-level
// fields of documents; nested documents and arrays are JSON text.
type mongo struct{}

func (*mongo) options(map[string]string) ([]string, error) { return nil, nil }

func (f *mongo) read(d *Decoder, r *event.Record, top []wire.Field) error {
	if p := find(top, "payload"); p.Kind == wire.String && find(top, "operationType").Kind == wire.None {
		var err error
		if top, err = object(p.Text(nil), nil); err != nil {
			return err
		}
	}
	c := change{keys: []string{"_id"}}
	if ns := find(top, "ns"); ns.Kind == wire.Object {
		n, err := d.members(ns)
		if err != nil {
			return err
		}
		c.table = event.Table{Database: text(n, "db"), Name: text(n, "coll")}
	}
	d.lastID = c.table
	op := text(top, "operationType")
	if find(top, "splitEvent").Kind == wire.Object {
		return wire.Poison(event.PoisonEnvelope, "SPLIT_EVENT", "the event is a fragment of a larger one; take $changeStreamSplitLargeEvent out of the pipeline or larger documents out of the stream")
	}
	switch op {
	case "insert":
		c.op = event.Insert
	case "update", "replace":
		c.op = event.Update
	case "delete":
		c.op, d.isDelete = event.Delete, true
	case "drop":
		c.op = event.Truncate
	case "rename", "invalidate", "dropDatabase":
		return wire.Poison(event.PoisonEnvelope, "COLLECTION_GONE", "the stream ends with %s: choose what the target becomes (full refresh, or the new name) and start it anew", op)
	case "create", "createIndexes", "dropIndexes", "modify", "shardCollection", "reshardCollection", "refineCollectionShardKey":
		return d.control(event.ControlSchema)
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the event has no operationType")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "operationType %.40q", op)
	}
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the event names no collection")
	}
	var err error
	if c.seq, err = f.seq(d, r, top); err != nil {
		return err
	}
	if c.op != event.Truncate {
		if err := f.image(d, &c, top, op); err != nil {
			return err
		}
	}
	d.add(c)
	return nil
}

// seq is the cluster time and the place of the event in the stream: all events of
// a transaction share the time.
func (*mongo) seq(d *Decoder, r *event.Record, top []wire.Field) (wire.Seq, error) {
	var t, i int64
	ok := false
	if ct := find(top, "clusterTime"); ct.Kind == wire.Object {
		if in, err := d.members(ct); err == nil {
			if ts := find(in, "$timestamp"); ts.Kind == wire.Object {
				if in, err = d.members(ts); err == nil {
					var ok1, ok2 bool
					t, ok1 = number(find(in, "t"))
					i, ok2 = number(find(in, "i"))
					ok = ok1 && ok2
				}
			}
		}
	}
	byPosition, err := d.usePosition(ok)
	if err != nil || !byPosition {
		return d.transport(r, 0), err
	}
	return wire.Seq{Kind: wire.SeqCluster, Epoch: d.epoch, N: [4]int64{t, i, 0, r.Transport}}, nil
}

// image makes columns of the document, or of what an update says of it.
func (f *mongo) image(d *Decoder, c *change, top []wire.Field, op string) error {
	key := find(top, "documentKey")
	if key.Kind != wire.Object {
		return wire.Poison(event.PoisonKey, "KEY_ABSENT", "the event has no documentKey")
	}
	id, err := d.members(key)
	if err != nil {
		return err
	}
	// Dates are told by their form; a column of an earlier run has none to show.
	c.node = func(name string) *wire.Node {
		if d.state.Declared[wire.TableKey(c.table)][name] != "" {
			return wire.NewNode(schema.Timestamp, wire.Modes{})
		}
		return nil
	}
	defer func() { c.typed = strconv.AppendInt(nil, int64(len(d.state.Declared[wire.TableKey(c.table)])), 10) }()
	put := func(fields []wire.Field) {
		for _, fl := range fields {
			name := string(fl.Key.Text(nil))
			if name == "_id" {
				fl.Val = documentID(fl.Val)
			} else {
				var t schema.Type
				if fl.Val, t = wire.Extended(fl.Val); t != nil {
					fl.Val = f.date(d, c, name, fl.Val)
				}
			}
			c.image = append(c.image, fl)
		}
	}
	doc, update := find(top, "fullDocument"), find(top, "updateDescription")
	switch {
	case c.op == event.Delete:
		put([]wire.Field{{Key: quoted("_id"), Val: find(id, "_id")}})
	case op == "update" && update.Kind == wire.Object:
		// What the update says is exact; a document that was looked up may be newer.
		put([]wire.Field{{Key: quoted("_id"), Val: find(id, "_id")}})
		return f.partial(d, c, put, update, doc)
	case doc.Kind == wire.Object:
		fields, err := d.members(doc)
		if err != nil {
			return err
		}
		if find(fields, "_id").Kind == wire.None {
			put([]wire.Field{{Key: quoted("_id"), Val: find(id, "_id")}})
		}
		put(fields)
		c.complete = true
	default:
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "%s without document", op)
	}
	return nil
}

// date makes name a column of dates, unless it holds other values: then the date is text.
func (*mongo) date(d *Decoder, c *change, name string, v wire.Token) wire.Token {
	key := wire.TableKey(c.table)
	if d.state.Declared[key][name] != "" {
		return v
	}
	if t := d.tables[c.table]; t != nil && t.HoldsValues(name) {
		return wire.DateText(v)
	}
	if d.state.Declared[key] == nil {
		d.state.Declared[key] = map[string]string{}
	}
	d.state.Declared[key][name] = schema.Timestamp.String()
	return v
}

// partial takes updatedFields and removedFields. A path into a column cannot be
// applied to JSON text: the column comes from the looked-up document, if there is one.
func (f *mongo) partial(d *Decoder, c *change, put func([]wire.Field), update, doc wire.Token) error {
	u, err := d.members(update)
	if err != nil {
		return err
	}
	var whole []wire.Field
	if doc.Kind == wire.Object {
		if whole, err = d.members(doc); err != nil {
			return err
		}
	}
	taken := map[string]bool{}
	set := func(name string, v wire.Token) {
		if !taken[name] {
			taken[name] = true
			put([]wire.Field{{Key: quoted(name), Val: v}})
		}
	}
	nested := func(path string) error {
		name, _, _ := strings.Cut(path, ".")
		v := find(whole, name)
		if v.Kind == wire.None {
			return wire.Poison(event.PoisonEnvelope, "PARTIAL_DOCUMENT", "the update changes the inside of field %q and carries no document; open the stream with fullDocument=updateLookup", name)
		}
		set(name, v)
		return nil
	}
	null := wire.Token{Kind: wire.Null, Raw: []byte("null")}
	if t := find(u, "updatedFields"); t.Kind == wire.Object {
		fields, err := d.members(t)
		if err != nil {
			return err
		}
		for _, fl := range fields {
			path := string(fl.Key.Text(nil))
			if inside(path, u) {
				if err := nested(path); err != nil {
					return err
				}
				continue
			}
			set(path, fl.Val)
		}
	}
	for _, path := range texts(find(u, "removedFields")) {
		if inside(path, u) {
			if err := nested(path); err != nil {
				return err
			}
			continue
		}
		set(path, null)
	}
	cut, err := d.objects(find(u, "truncatedArrays"), "truncatedArrays")
	if err != nil {
		return err
	}
	for _, a := range cut {
		name := text(a, "field")
		if head, _, _ := strings.Cut(name, "."); taken[head] || doc.Kind != wire.Object && !f.known(d, c.table, head) {
			continue // a field of which no document told a value keeps none
		}
		if err := nested(name); err != nil {
			return err
		}
	}
	return nil
}

// known tells whether a document of this or an earlier run had the field.
func (*mongo) known(d *Decoder, id event.Table, name string) bool {
	if t := d.tables[id]; t != nil && t.Lookup([]byte(name), 0) >= 0 {
		return true
	}
	return slices.Contains(d.state.Columns[wire.TableKey(id)], name)
}

// inside tells whether a path leads into a field. A name with a dot of its own is
// told apart by disambiguatedPaths, which has such a path in one piece.
func inside(path string, update []wire.Field) bool {
	if !strings.Contains(path, ".") {
		return false
	}
	if paths := find(update, "disambiguatedPaths"); paths.Kind == wire.Object {
		if all, err := members(paths); err == nil && len(texts(find(all, path))) == 1 {
			return false
		}
	}
	return true
}

// documentID makes one text of an _id, however its number is written: digits of
// numbers, the hex of an ObjectId, the text of a string. A string that reads like
// one of the others keeps its quotes, so that they stay apart.
func documentID(t wire.Token) wire.Token {
	switch t.Kind {
	case wire.String:
		s := t.Text(nil)
		_, isInt := wire.Int(s)
		isHex := len(s) == 24 && len(bytes.Trim(s, "0123456789abcdef")) == 0
		if isInt || isHex || len(s) > 0 && (s[0] == '"' || s[0] == '{') {
			return quoted(string(t.JSON(nil)))
		}
		return t
	case wire.Number:
		return quoted(wholeNumber(string(t.Raw)))
	case wire.Object:
		if v, _ := wire.Extended(t); v.Kind == wire.Number {
			return quoted(wholeNumber(string(v.Raw)))
		} else if oid := wire.Single(t, "$oid"); oid.Kind == wire.String {
			return oid
		}
		return quoted(string(t.Raw))
	}
	return t
}

// wholeNumber prints 1.0 as 1: MongoDB takes equal numbers for one id.
func wholeNumber(s string) string {
	if f, err := strconv.ParseFloat(s, 64); err == nil && strings.ContainsAny(s, ".eE") && f == float64(int64(f)) && f < 1<<53 && f > -1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return s
}
