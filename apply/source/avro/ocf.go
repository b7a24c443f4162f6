package avro

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Magic begins an Avro object container file.
const Magic = "Obj\x01"

// ErrNotWhole is a container file that is cut short or damaged.
var ErrNotWhole = errors.New("not (yet) a whole Avro file")

// Container reads an Avro object container file: blocks of values of one schema.
type Container struct {
	Schema *Schema

	r     *bufio.Reader
	codec string
	sync  [16]byte
	limit int64
	zstd  *zstd.Decoder
}

// OpenContainer reads the header of a container file. limit bounds the bytes of one
// block, packed and unpacked.
func OpenContainer(r io.Reader, limit int64) (*Container, error) {
	c := &Container{r: bufio.NewReaderSize(r, 1<<18), codec: "null", limit: limit}
	magic := make([]byte, len(Magic))
	if _, err := io.ReadFull(c.r, magic); err != nil || string(magic) != Magic {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrNotWhole)
	}
	var text []byte
	for {
		n, err := c.long()
		if err != nil {
			return nil, err
		}
		if n < 0 { // followed by the block's size
			n = -n
			if _, err := c.long(); err != nil {
				return nil, err
			}
		}
		if n == 0 {
			break
		}
		if n < 0 || n > 1<<16 {
			return nil, fmt.Errorf("%w: %d entries in its header", ErrNotWhole, n)
		}
		for range n {
			key, err := c.counted()
			if err != nil {
				return nil, err
			}
			value, err := c.counted()
			if err != nil {
				return nil, err
			}
			switch string(key) {
			case "avro.schema":
				text = value
			case "avro.codec":
				c.codec = string(value)
			}
		}
	}
	if _, err := io.ReadFull(c.r, c.sync[:]); err != nil {
		return nil, fmt.Errorf("%w: its header breaks off", ErrNotWhole)
	}
	switch c.codec {
	case "null", "", "deflate", "snappy", "zstandard", "bzip2":
	default:
		return nil, fmt.Errorf("codec %q is not read (null, deflate, snappy, zstandard, bzip2 are)", c.codec)
	}
	var err error
	if c.Schema, err = ParseSchema(text); err != nil {
		return nil, err
	}
	if c.codec == "zstandard" {
		if c.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit))); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Close releases what a codec holds; the reader stays the caller's.
func (c *Container) Close() {
	if c.zstd != nil {
		c.zstd.Close()
	}
}

func (c *Container) long() (int64, error) {
	u, err := binary.ReadUvarint(c.r)
	if err != nil {
		return 0, fmt.Errorf("%w: a number breaks off", ErrNotWhole)
	}
	return int64(u>>1) ^ -int64(u&1), nil
}

func (c *Container) counted() ([]byte, error) {
	n, err := c.long()
	if err != nil {
		return nil, err
	}
	return c.take(n)
}

// take reads n bytes, growing with what is there: a length alone reserves nothing.
func (c *Container) take(n int64) ([]byte, error) {
	if n < 0 || n > c.limit {
		return nil, fmt.Errorf("%w: a length of %d bytes", ErrNotWhole, n)
	}
	var out bytes.Buffer
	if _, err := io.CopyN(&out, c.r, n); err != nil {
		return nil, fmt.Errorf("%w: it breaks off", ErrNotWhole)
	}
	return out.Bytes(), nil
}

// Next is the next block: how many values it has and their bytes. io.EOF ends the file.
func (c *Container) Next(ctx context.Context) (int64, []byte, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if _, err := c.r.Peek(1); errors.Is(err, io.EOF) {
		return 0, nil, io.EOF
	}
	n, err := c.long()
	if err != nil {
		return 0, nil, err
	}
	packed, err := c.counted()
	if err != nil {
		return 0, nil, err
	}
	var sync [16]byte
	if _, err := io.ReadFull(c.r, sync[:]); err != nil || sync != c.sync {
		return 0, nil, fmt.Errorf("%w: a block does not end with the marker of its header", ErrNotWhole)
	}
	body, err := c.unpack(packed)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrNotWhole, err)
	}
	if n < 0 {
		return 0, nil, fmt.Errorf("%w: a block of %d values", ErrNotWhole, n)
	}
	return n, body, nil
}

func (c *Container) unpack(b []byte) ([]byte, error) {
	all := func(r io.Reader) ([]byte, error) {
		out, err := io.ReadAll(io.LimitReader(r, c.limit+1))
		if err == nil && int64(len(out)) > c.limit {
			err = fmt.Errorf("a block of more than %d bytes", c.limit)
		}
		return out, err
	}
	switch c.codec {
	case "deflate":
		return all(flate.NewReader(bytes.NewReader(b)))
	case "bzip2":
		return all(bzip2.NewReader(bytes.NewReader(b)))
	case "zstandard":
		return c.zstd.DecodeAll(b, nil)
	case "snappy":
		if len(b) < 4 {
			return nil, errors.New("a block without its checksum")
		}
		b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
		if n, err := snappy.DecodedLen(b); err != nil || int64(n) > c.limit {
			return nil, fmt.Errorf("a block of more than %d bytes", c.limit)
		}
		out, err := snappy.Decode(nil, b)
		if err == nil && crc32.ChecksumIEEE(out) != sum {
			err = errors.New("a block's checksum is another")
		}
		return out, err
	}
	return b, nil
}

// IsEnvelope tells whether values of the schema are Debezium's envelopes.
func (s *Schema) IsEnvelope() bool {
	return s.Type == "record" && s.field("op") != nil && (s.field("after") != nil || s.field("before") != nil)
}

// Envelope prints one value of an envelope with the schema of Kafka Connect beside
// it, and returns the bytes behind the value. head is from [Schema.ConnectHead].
func (s *Schema) Envelope(head, body []byte) (text, rest []byte, err error) {
	r := &reader{b: body, items: 1000 + 16*len(body)}
	out := append(make([]byte, 0, len(head)+2*min(len(body), 1<<16)), head...)
	if out, err = r.append(out, s, 0); err != nil {
		return nil, nil, err
	}
	return append(out, '}'), r.b, nil
}

// ConnectHead is what stands before a value that has its schema beside it.
func (s *Schema) ConnectHead() ([]byte, error) {
	connect, err := connectSchema(s)
	if err != nil {
		return nil, err
	}
	return append(append([]byte(`{"schema":`), connect...), `,"payload":`...), nil
}
