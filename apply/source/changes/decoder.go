package changes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// Options of a decoder.
type Options struct {
	// Format is one of [Names].
	Format string
	// Keys are the key columns; nil: those that the format carries.
	Keys []string
	// KeysOf, if set, gives a table key columns of its own, nil where it has none.
	KeysOf func(event.Table) []string
	// Schema types columns by name, over what the format says; nil: none.
	Schema *schema.Struct
	// Tables, if not empty, keeps only these.
	Tables []string
	// Zone is assumed for timestamp texts without offset; nil is UTC.
	Zone *time.Location
	// Settings are the format's options by name: epoch=N,
	// missing_fields=null|keep, sequence=auto|position|transport,
	// column_case=keep|lower|upper, binary=base64|hex, and the format's own.
	Settings map[string]string
}

// Decoder decodes one of the formats; it implements event.Decoder. It is used
// from one goroutine.
type Decoder struct {
	wire.Outbox
	opt    Options
	format format
	epoch  int32
	// missingNull: an absent field is a null, whatever the format.
	missingNull bool
	sequence    string // auto, position, transport
	// binary is how bytes are written that only the user's schema types.
	binary wire.BinaryMode
	// fold changes the case of column names; nil keeps it.
	fold func([]byte) []byte

	tables map[event.Table]*table
	order  []*table

	state state

	// buffers of one record
	top, key []wire.Field
	fields   []wire.Field // of objects in it
	meta     []wire.Field // a loader's own columns
	row      wire.Row
	nameBuf  []byte
	lists    map[string][]string // by the bytes that they were made of
	changes  []change
	cells    []wire.Cell
	isDelete bool
	lastID   event.Table
	// round counts the schema records, so that plans are made anew behind each.
	round int
}

// format is one wire format. read interprets a record's object, adds its changes
// with add, and says what it is if it has none.
type format interface {
	read(d *Decoder, r *event.Record, top []wire.Field) error
	// options takes the format's own settings; it returns the names it knows.
	options(settings map[string]string) (known []string, err error)
}

// change is one row change as a format reads it.
type change struct {
	table event.Table
	op    event.Op
	// image is the new row; of deletes the old one. old is what is known of the old
	// row of an update: all or some of its columns.
	image, old []wire.Field
	// keys names the key columns; nil if the record does not.
	keys []string
	seq  wire.Seq
	// node is the plan of a column by what the record says of its type; nil, or a nil
	// answer, where it does not. typed identifies the answers: while it is equal they are.
	node  func(name string) *wire.Node
	typed []byte
	// complete: columns that the image lacks are NULL.
	complete bool
	// unavailable names columns of the image that hold no value (ABSENT with a name).
	unavailable []string
	// rescued are members of the row's Rescued object.
	rescued []byte
}

// state is what Position.Decoder carries.
type state struct {
	Types map[string][]wire.TypedColumn `json:"types,omitempty"`
	Keys  map[string][]string           `json:"keys,omitempty"`
	// Declared are column types that schema records told, by table and column.
	Declared map[string]map[string]string `json:"declared,omitempty"`
	// Sequence is the settled sequence: position or transport.
	Sequence string `json:"sequence,omitempty"`
	// Last is the newest position seen, for records that have none of their own.
	Last []int64 `json:"last,omitempty"`
	// Columns are the column names by table, of formats whose images are complete.
	Columns map[string][]string `json:"columns,omitempty"`
	// Header is the first line of the CSV file that is being read, by file.
	Header map[string][]string `json:"header,omitempty"`
	// Waiting are messages whose table schema has not come yet.
	Waiting []waitingRow `json:"waiting,omitempty"`
	// Before is a before image that waits for the record with the new one, by table,
	// topic and partition: the two stand side by side in one partition only.
	Before map[string]beforeImage `json:"before,omitempty"`
}

// beforeImage is the first half of an update that comes as two records.
type beforeImage struct {
	Seq string          `json:"seq"`
	Row json.RawMessage `json:"row"`
}

type table struct {
	*wire.Table
	keep  bool
	typed []byte
	// complete: a change came whose absent columns are NULL, so that all columns of
	// earlier runs belong to the table.
	complete bool
}

// formats makes the format of each name.
func formats(name string) format {
	switch name {
	case "maxwell":
		return &maxwell{}
	case "canal":
		return &canal{}
	case "ticdc":
		return &ticdc{}
	case "dms":
		return &dms{}
	case "goldengate":
		return &goldenGate{}
	case "qlik":
		return &qlik{}
	case "airbyte":
		return &airbyte{}
	case "singer":
		return &singer{}
	case "fivetran":
		return &fivetran{}
	case "sqlserver-cdc":
		return &sqlServer{}
	case "wal2json":
		return &wal2json{}
	case "mongodb":
		return &mongo{}
	case "dynamodb":
		return &dynamo{}
	case "flink":
		return &flink{}
	case "aliyun":
		return &aliyun{}
	}
	return nil
}

// Names lists the formats, in the order of cdc-formats.
func Names() []string {
	return []string{"maxwell", "canal", "ticdc", "dms", "goldengate", "qlik", "airbyte", "fivetran", "singer",
		"sqlserver-cdc", "wal2json", "mongodb", "dynamodb", "flink", "aliyun"}
}

// New makes a decoder; an error names every bad option.
func New(o Options) (*Decoder, error) {
	d := &Decoder{
		opt: o, format: formats(o.Format), sequence: "auto",
		tables: map[event.Table]*table{}, lists: map[string][]string{},
		state: state{Types: map[string][]wire.TypedColumn{}, Keys: map[string][]string{}, Declared: map[string]map[string]string{},
			Columns: map[string][]string{}, Before: map[string]beforeImage{}},
	}
	if d.format == nil {
		return nil, fmt.Errorf("no format %q; there are %s", o.Format, strings.Join(Names(), ", "))
	}
	if o.Format == "dms" {
		d.binary = wire.Hex
	}
	known, err := d.format.options(o.Settings)
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		value, bad := o.Settings[name], false
		switch name {
		case "epoch":
			n, err := strconv.ParseInt(value, 10, 32)
			d.epoch, bad = int32(n), err != nil || n < 0
		case "missing_fields":
			d.missingNull, bad = value == "null", value != "null" && value != "keep"
		case "binary":
			d.binary, bad = wire.Base64, value != "base64" && value != "hex"
			if value == "hex" {
				d.binary = wire.Hex
			}
		case "column_case":
			d.fold = map[string]func([]byte) []byte{"lower": bytes.ToLower, "upper": bytes.ToUpper}[value]
			bad = d.fold == nil && value != "keep"
		case "sequence":
			d.sequence, bad = value, value != "auto" && value != "position" && value != "transport"
		default:
			bad = !slices.Contains(known, name)
		}
		if bad {
			problems = append(problems, fmt.Sprintf("%s=%s: no such option or value", name, value))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s options: %s", o.Format, strings.Join(problems, "; "))
	}
	return d, nil
}

// Flush implements event.Decoder. Batches come by table in order of first
// appearance, within a table in order of the records.
func (d *Decoder) Flush() (*event.Decoded, error) {
	out := d.Handover()
	for _, t := range d.order {
		batches, err := t.Take()
		if err != nil {
			return nil, fmt.Errorf("build batch of table %s: %w", t.ID.Name, err)
		}
		out.Batches = append(out.Batches, batches...)
	}
	return out, nil
}

// State implements event.Decoder.
func (d *Decoder) State() string {
	for _, t := range d.order {
		if cols := t.Remember(); len(cols) > 0 {
			d.state.Types[wire.TableKey(t.ID)] = cols
		}
		if keys := t.Keys(); len(keys) > 0 {
			d.state.Keys[wire.TableKey(t.ID)] = keys
		}
		if t.complete || d.missingNull {
			names := make([]string, t.Columns())
			for i := range names {
				names[i] = t.Name(i)
			}
			d.state.Columns[wire.TableKey(t.ID)] = names
		}
	}
	s := &d.state
	if len(s.Types) == 0 && len(s.Keys) == 0 && len(s.Declared) == 0 && s.Sequence == "" && s.Last == nil && len(s.Columns) == 0 && len(s.Before) == 0 && len(s.Header) == 0 && len(s.Waiting) == 0 {
		return ""
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "" // cannot be: strings and numbers only
	}
	return string(b)
}

// Restore implements event.Decoder; states of several positions are merged.
func (d *Decoder) Restore(text string) error {
	if text == "" {
		return nil
	}
	var s state
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("restore decoder state: %w", err)
	}
	maps.Copy(d.state.Types, s.Types)
	maps.Copy(d.state.Keys, s.Keys)
	maps.Copy(d.state.Declared, s.Declared)
	maps.Copy(d.state.Columns, s.Columns)
	maps.Copy(d.state.Before, s.Before)
	d.state.Waiting = append(d.state.Waiting, s.Waiting...)
	if s.Header != nil {
		d.state.Header = s.Header
	}
	if d.state.Sequence == "" {
		d.state.Sequence = s.Sequence
	}
	if slices.Compare(s.Last, d.state.Last) > 0 {
		d.state.Last = s.Last
	}
	return nil
}

// Add implements event.Decoder.
func (d *Decoder) Add(_ context.Context, r *event.Record) error {
	if r.Columns != nil && r.Fault == "" {
		return d.addColumns(r)
	}
	d.changes, d.fields, d.isDelete, d.lastID = d.changes[:0], d.fields[:0], false, event.Table{}
	err := d.record(r)
	for i := range d.changes {
		if err != nil {
			break
		}
		err = d.put(r, &d.changes[i])
	}
	var p *wire.PoisonError
	if errors.As(err, &p) {
		d.quarantine(r, p)
		return nil
	}
	return err
}

// record reads a record into changes.
func (d *Decoder) record(r *event.Record) error {
	if r.Fault != "" {
		code, reason, _ := strings.Cut(r.Fault, ": ")
		return wire.Poison(event.PoisonBytes, code, "%s", reason)
	}
	if f, ok := d.format.(rawReader); ok {
		if done, err := f.raw(d, r); done || err != nil {
			return err
		}
	}
	if !utf8.Valid(r.Value) || !utf8.Valid(r.Key) {
		return wire.Poison(event.PoisonBytes, "INVALID_UTF8", "the record is not UTF-8")
	}
	if r.Value == nil {
		if t, ok := d.format.(tombstoner); ok {
			return t.tombstone(d, r)
		}
		d.Control(event.ControlTombstone, 1)
		return nil
	}
	value := bytes.TrimPrefix(r.Value, []byte("\ufeff"))
	if len(value) == 0 {
		return wire.Poison(event.PoisonBytes, "EMPTY_VALUE", "the value has no bytes; a tombstone is null")
	}
	var err error
	if d.top, err = object(value, d.top[:0]); err != nil {
		return err
	}
	if d.key, err = recordKey(r.Key, d.key[:0]); err != nil {
		return err
	}
	return d.format.read(d, r, d.top)
}

// rawReader is a format some of whose messages are not JSON; raw answers whether
// this was one.
type rawReader interface {
	raw(d *Decoder, r *event.Record) (bool, error)
}

// tombstoner is a format in which a null value means something.
type tombstoner interface {
	tombstone(d *Decoder, r *event.Record) error
}

// object parses a whole JSON object of which no member comes twice.
func object(text []byte, into []wire.Field) ([]wire.Field, error) {
	fields, end, err := wire.ParseObject(text, 0, into)
	if err == nil {
		err = wire.End(text, end)
	}
	if err != nil {
		if tok, end, e := wire.Value(text, 0); e == nil && tok.Kind != wire.Object && wire.End(text, end) == nil {
			return nil, wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "the event is JSON but no object")
		}
		return nil, wire.Poison(event.PoisonBytes, "INVALID_JSON", "%s", err.Error())
	}
	return fields, wire.Unique(fields)
}

// members parses a scanned object into the record's buffer: the fields are valid
// until the next record.
func (d *Decoder) members(t wire.Token) ([]wire.Field, error) {
	if t.Kind != wire.Object {
		return members(t)
	}
	start := len(d.fields)
	if cap(d.fields)-start < 32 { // what is handed out stays where it is
		d.fields, start = make([]wire.Field, 0, max(256, 2*cap(d.fields))), 0
	}
	fields, _, err := wire.ParseObject(t.Raw, 0, d.fields[start:start])
	if err != nil {
		return nil, wire.Poison(event.PoisonBytes, "INVALID_JSON", "%s", err.Error())
	}
	if len(fields) <= cap(d.fields)-start {
		d.fields = d.fields[:start+len(fields)]
	}
	return fields[:len(fields):len(fields)], wire.Unique(fields)
}

// objects parses an array of objects.
func (d *Decoder) objects(t wire.Token, what string) ([][]wire.Field, error) {
	return objectsBy(t, what, d.members)
}

// members parses a scanned object.
func members(t wire.Token) ([]wire.Field, error) {
	if t.Kind != wire.Object {
		return nil, wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "an image is no object: %.40s", t.Raw)
	}
	fields, _, err := wire.ParseObject(t.Raw, 0, nil)
	if err != nil {
		return nil, wire.Poison(event.PoisonBytes, "INVALID_JSON", "%s", err.Error())
	}
	return fields, wire.Unique(fields)
}

// recordKey parses a record key that is a JSON object; others name no columns.
func recordKey(raw []byte, into []wire.Field) ([]wire.Field, error) {
	if i := wire.Skip(raw, 0); i >= len(raw) || raw[i] != '{' {
		return into[:0], nil
	}
	fields, end, err := wire.ParseObject(raw, 0, into)
	if err == nil {
		err = wire.End(raw, end)
	}
	if err != nil {
		return into[:0], wire.Poison(event.PoisonBytes, "INVALID_JSON", "key: %s", err.Error())
	}
	return fields, nil
}

// quarantine keeps a copy of the record with the reason.
func (d *Decoder) quarantine(r *event.Record, p *wire.PoisonError) {
	d.Quarantine(event.Poison{
		Class: p.Class, Code: p.Code, Reason: p.Reason, Record: r.Copy(), Delete: d.isDelete, Table: d.lastID,
	})
}

// control counts a record without rows.
func (d *Decoder) control(k event.ControlKind) error {
	d.Control(k, 1)
	return nil
}

// add takes a change of the current record.
func (d *Decoder) add(c change) {
	d.lastID = c.table
	d.isDelete = d.isDelete || c.op == event.Delete
	if d.fold != nil {
		for _, fields := range [][]wire.Field{c.image, c.old} {
			for i := range fields {
				fields[i].Key.Raw = d.fold(fields[i].Key.Raw)
			}
		}
		for i, k := range c.keys {
			c.keys[i] = string(d.fold([]byte(k)))
		}
	}
	d.changes = append(d.changes, c)
}

// usePosition settles, by the first data record or by option, whether the stream
// is ordered by the format's position.
func (d *Decoder) usePosition(has bool) (bool, error) {
	if d.sequence != "auto" {
		d.state.Sequence = d.sequence
	} else if d.state.Sequence == "" {
		d.state.Sequence = "transport"
		if has {
			d.state.Sequence = "position"
		}
	}
	if d.state.Sequence == "position" && !has {
		return false, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "the record has no position, by which this stream is ordered")
	}
	return d.state.Sequence == "position", nil
}

// before takes a before image that waits for its second half.
func (d *Decoder) before(r *event.Record, id event.Table) (beforeImage, []wire.Field, error) {
	if len(d.state.Before) == 0 {
		return beforeImage{}, nil, nil
	}
	at := halfKey(r, id)
	b, ok := d.state.Before[at]
	if !ok {
		return b, nil, nil
	}
	delete(d.state.Before, at)
	fields, err := object(b.Row, nil)
	return b, fields, err
}

// wait keeps a before image.
func (d *Decoder) wait(r *event.Record, id event.Table, seq string, row []wire.Field) {
	d.state.Before[halfKey(r, id)] = beforeImage{Seq: seq, Row: joined(row)}
}

// halfKey names the place where the second half of an update must come: files that
// follow each other are one.
func halfKey(r *event.Record, id event.Table) string {
	return wire.TableKey(id) + " " + r.Topic + " " + strconv.Itoa(int(r.Partition))
}

// joined prints fields as one JSON object.
func joined(fields []wire.Field) []byte {
	out := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = f.Key.JSON(out)
		out = append(out, ':')
		out = f.Val.JSON(out)
	}
	return append(out, '}')
}

// tableOfTopic is the last element of a topic's name.
func tableOfTopic(topic string) event.Table {
	parts := strings.Split(topic, ".")
	id := event.Table{Name: parts[len(parts)-1]}
	if len(parts) > 2 {
		id.Schema = parts[len(parts)-2]
	}
	return id
}

// transport is the sequence of a stream without positions.
func (d *Decoder) transport(r *event.Record, index int) wire.Seq {
	return wire.Seq{Kind: wire.SeqMessage, Epoch: d.epoch, N: [4]int64{r.Transport, int64(index)}}
}
