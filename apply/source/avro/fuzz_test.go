package avro

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
)

// recordedSchemas are the schemas of recorded streams by id, and a small one.
type recordedSchemas map[string]string

func (s recordedSchemas) Schema(_ context.Context, r Ref) ([]byte, error) {
	if text, ok := s[r.ID]; ok {
		return []byte(text), nil
	}
	return nil, errors.New("no such schema")
}

// FuzzTranslator: no framed bytes panic, and what comes out of them is JSON. The
// seeds are keys and values that a real connector wrote, with their real schemas.
func FuzzTranslator(f *testing.F) {
	schemas := recordedSchemas{"9999": `{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},{"name":"b","type":{"type":"map","values":"bytes"}}]}`}
	f.Add([]byte("\x00\x00\x00\x27\x0f\x02\x02\x02\x02k\x02\xff\x00"))
	for _, path := range testenv.SharedFiles(f, "corpora", "producers", "pg-shop-avro", "schemas.json") {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		var all map[string]struct{ Schema string }
		if err := json.Unmarshal(raw, &all); err != nil {
			f.Fatal(err)
		}
		for id, s := range all {
			schemas[id] = s.Schema
		}
	}
	for _, s := range corpora.Seeds(f, 300, "producers", "pg-shop-avro", "events.jsonl*") {
		for _, text := range [][]byte{s.Key, s.Value} {
			if b, err := base64.StdEncoding.DecodeString(string(text)); err == nil && len(b) > 0 {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, framed []byte) {
		tr, err := NewTranslator(Options{Schemas: schemas})
		if err != nil {
			t.Fatal(err)
		}
		out, err := tr.Record(context.Background(), &event.Record{Value: framed})
		if err == nil && framed != nil && !json.Valid(out.Value) {
			t.Errorf("%x became %q", framed, out.Value)
		}
	})
}

// FuzzContainer: no bytes make a container file panic, hang or hold more than a
// small multiple of their number.
func FuzzContainer(f *testing.F) {
	schema := `{"type":"record","name":"R","fields":[{"name":"id","type":["null","long"]},{"name":"a","type":{"type":"array","items":"string"}}]}`
	head := append(append(append(append([]byte("Obj\x01\x02\x16avro.schema"), byte(len(schema)*2&0x7f|0x80), byte(len(schema)*2>>7)), schema...), 0), "0123456789abcdef"...)
	f.Add(append(head, "\x02\x0a\x02\x02\x02\x02x\x000123456789abcdef"...))
	f.Add(head)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := OpenContainer(bytes.NewReader(data), 1<<20)
		if err != nil {
			return
		}
		defer c.Close()
		cols, err := NewColumns(c.Schema)
		if err != nil {
			return
		}
		for {
			n, body, err := c.Next(context.Background())
			if errors.Is(err, io.EOF) || err != nil {
				break
			}
			for range min(n, 1000) {
				if body, _, err = cols.Add(body); err != nil {
					return
				}
			}
		}
		rows := cols.Rows()
		b := cols.Take()
		if int(b.NumRows()) != rows {
			t.Fatalf("%d rows of %d", b.NumRows(), rows)
		}
		b.Release()
	})
}
