package avro

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/sluice-data/sluice/apply/event"
)

// Options of a decoder.
type Options struct {
	Schemas Schemas
	// IDKind is what ids of four bytes count: "id" (the default, Confluent's API),
	// "contentId" or "globalId" (Apicurio).
	IDKind string
	// Bare leaves the Connect schema out and writes values as a hand would: for plain
	// rows, whose decoder reads no schema.
	Bare bool
	// Base64: keys and values are base64 text of the bytes, as topics are dumped to
	// files of lines.
	Base64 bool
}

// Translator turns framed Avro into JSON with the schema of Kafka Connect beside
// it. It is used from one goroutine.
type Translator struct {
	opt   Options
	known map[Ref]*entry
}

// entry is a schema as it is used.
type entry struct {
	schema  *Schema
	connect []byte // {"schema":..,"payload":
	err     error  // no record can be read with it
}

// NewTranslator makes a translator.
func NewTranslator(o Options) (*Translator, error) {
	if o.Schemas == nil {
		return nil, errNoSchemas
	}
	switch o.IDKind {
	case "":
		o.IDKind = "id"
	case "id", "contentId", "globalId":
	default:
		return nil, fmt.Errorf("avro.id=%s: want id, contentId or globalId", o.IDKind)
	}
	return &Translator{opt: o, known: map[Ref]*entry{}}, nil
}

// fault is a record that cannot be read; other errors stop the flow.
type fault struct{ code, reason string }

func (f *fault) Error() string { return f.code + ": " + f.reason }

// Record is r with key and value as JSON. The bytes of the source stay in Raw.
func (t *Translator) Record(ctx context.Context, r *event.Record) (*event.Record, error) {
	c := *r
	var err error
	if c.Key, err = t.side(ctx, r.Key, r.Headers, "key"); err != nil {
		return nil, err
	}
	if c.Value, err = t.side(ctx, r.Value, r.Headers, "value"); err != nil {
		return nil, err
	}
	return &c, nil
}

// side translates a key or value; null stays null.
func (t *Translator) side(ctx context.Context, b []byte, headers []event.Header, side string) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	if t.opt.Base64 {
		raw := make([]byte, base64.StdEncoding.DecodedLen(len(b)))
		n, err := base64.StdEncoding.Decode(raw, b)
		if err != nil {
			return nil, &fault{"BAD_BASE64", side + ": " + err.Error()}
		}
		b = raw[:n]
	}
	ref, body, err := unframe(b, headers, side, t.opt.IDKind)
	if err != nil {
		return nil, &fault{"BAD_FRAMING", side + ": " + err.Error()}
	}
	e, err := t.entry(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("schema of the %s: %w", side, err)
	}
	if e.err != nil {
		return nil, &fault{"BAD_SCHEMA", fmt.Sprintf("%s, schema %s: %v", side, ref, e.err)}
	}
	text, err := Value(e.schema, body, t.opt.Bare)
	if err != nil {
		return nil, &fault{"INVALID_AVRO", fmt.Sprintf("%s, schema %s: %v", side, ref, err)}
	}
	if t.opt.Bare || e.schema.Type != "record" {
		return text, nil
	}
	out := make([]byte, 0, len(e.connect)+len(text)+1)
	return append(append(append(out, e.connect...), text...), '}'), nil
}

// entry finds a schema, once.
func (t *Translator) entry(ctx context.Context, r Ref) (*entry, error) {
	if e := t.known[r]; e != nil {
		return e, nil
	}
	text, err := t.opt.Schemas.Schema(ctx, r)
	if err != nil {
		return nil, err
	}
	e := &entry{}
	if e.schema, e.err = ParseSchema(text); e.err == nil && e.schema.Type == "record" && !t.opt.Bare {
		var connect []byte
		if connect, e.err = connectSchema(e.schema); e.err == nil {
			e.connect = append(append(append([]byte{}, `{"schema":`...), connect...), `,"payload":`...)
		}
	}
	t.known[r] = e
	return e, nil
}

// Decoder reads framed Avro with the decoder of a JSON format; it implements
// event.Decoder. Poison that the inner decoder finds holds the translated bytes as
// value and those of the source as Raw.
type Decoder struct {
	event.Decoder
	t      *Translator
	poison []event.Poison
}

// NewDecoder puts a translator before a decoder.
func NewDecoder(t *Translator, inner event.Decoder) *Decoder { return &Decoder{Decoder: inner, t: t} }

// Add implements event.Decoder. A schema that is not to be had stops the flow.
func (d *Decoder) Add(ctx context.Context, r *event.Record) error {
	if r.Fault != "" || r.Columns != nil {
		return d.Decoder.Add(ctx, r)
	}
	c, err := d.t.Record(ctx, r)
	var f *fault
	if errors.As(err, &f) {
		d.poison = append(d.poison, event.Poison{Class: event.PoisonBytes, Code: f.code, Reason: f.reason, Record: r.Copy()})
		return nil
	}
	if err != nil {
		return err
	}
	return d.Decoder.Add(ctx, c)
}

// Flush implements event.Decoder.
func (d *Decoder) Flush() (*event.Decoded, error) {
	out, err := d.Decoder.Flush()
	if err != nil {
		return nil, err
	}
	out.Poison = append(d.poison, out.Poison...)
	d.poison = nil
	return out, nil
}
