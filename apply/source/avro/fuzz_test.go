package avro

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
)

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
