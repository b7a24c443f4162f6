package avro

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/source/wire"
)

// errShort: the body ends before the value does.
var errShort = errors.New("the body ends too early")

// reader reads Avro binary into JSON text. items bounds the elements of
// collections, which may take no bytes each.
type reader struct {
	b     []byte
	items int
	// natural prints decimals as numbers and days and times as text, for readers
	// that have no schema beside the value.
	natural bool
}

// Value prints the JSON of one value of schema s that fills body: as Kafka
// Connect's converter does, or with natural as rows are written by hand.
func Value(s *Schema, body []byte, natural bool) ([]byte, error) {
	r := &reader{b: body, items: 1000 + 16*len(body), natural: natural}
	out, err := r.append(make([]byte, 0, 2*len(body)), s, 0)
	if err != nil {
		return nil, err
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("%d bytes are left over: another schema or framing", len(r.b))
	}
	return out, nil
}

func (r *reader) varint() (int64, error) {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		return 0, errShort
	}
	r.b = r.b[n:]
	return int64(v>>1) ^ -int64(v&1), nil
}

func (r *reader) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(r.b)) {
		return nil, errShort
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out, nil
}

func (r *reader) counted() ([]byte, error) {
	n, err := r.varint()
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

func (r *reader) append(out []byte, s *Schema, depth int) ([]byte, error) {
	if depth > 4*maxSchemaDepth {
		return nil, fmt.Errorf("nested too deep")
	}
	switch s.Type {
	case "null":
		return append(out, "null"...), nil
	case "boolean":
		b, err := r.take(1)
		if err != nil {
			return nil, err
		}
		if b[0] > 1 {
			return nil, fmt.Errorf("a boolean of %d", b[0])
		}
		return strconv.AppendBool(out, b[0] == 1), nil
	case "int", "long":
		v, err := r.varint()
		if err != nil {
			return nil, err
		}
		if s.Type == "int" && (v > math.MaxInt32 || v < math.MinInt32) {
			return nil, fmt.Errorf("an int of %d", v)
		}
		if r.natural {
			return appendNatural(out, s, v), nil
		}
		return appendInteger(out, s, v), nil
	case "float":
		b, err := r.take(4)
		if err != nil {
			return nil, err
		}
		return appendFloat(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32), nil
	case "double":
		b, err := r.take(8)
		if err != nil {
			return nil, err
		}
		return appendFloat(out, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64), nil
	case "bytes", "string":
		b, err := r.counted()
		if err != nil {
			return nil, err
		}
		if s.Type == "string" {
			return wire.AppendString(out, string(b)), nil
		}
		return r.bytes(out, s, b), nil
	case "fixed":
		b, err := r.take(int64(s.Size))
		if err != nil {
			return nil, err
		}
		return r.bytes(out, s, b), nil
	case "enum":
		i, err := r.varint()
		if err != nil {
			return nil, err
		}
		if i < 0 || i >= int64(len(s.Symbols)) {
			return nil, fmt.Errorf("symbol %d of enum %s, which has %d", i, s.Name, len(s.Symbols))
		}
		return wire.AppendString(out, s.Symbols[i]), nil
	case "union":
		i, err := r.varint()
		if err != nil {
			return nil, err
		}
		if i < 0 || i >= int64(len(s.Branches)) {
			return nil, fmt.Errorf("branch %d of a union of %d", i, len(s.Branches))
		}
		return r.append(out, s.Branches[i], depth+1)
	case "record":
		return r.record(out, s, depth)
	case "array", "map":
		return r.blocks(out, s, depth)
	}
	return nil, fmt.Errorf("type %q", s.Type)
}

func (r *reader) record(out []byte, s *Schema, depth int) ([]byte, error) {
	out = append(out, '{')
	for i, f := range s.Fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = wire.AppendString(out, f.Name)
		out = append(out, ':')
		var err error
		if out, err = r.append(out, f.Schema, depth+1); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return append(out, '}'), nil
}

// blocks reads the blocks of an array or map.
func (r *reader) blocks(out []byte, s *Schema, depth int) ([]byte, error) {
	open, end := byte('['), byte(']')
	if s.Type == "map" {
		open, end = '{', '}'
	}
	out = append(out, open)
	first := true
	for {
		n, err := r.varint()
		if err != nil {
			return nil, err
		}
		if n < 0 { // followed by the block's size
			if n == math.MinInt64 {
				return nil, errShort
			}
			n = -n
			if _, err := r.varint(); err != nil {
				return nil, err
			}
		}
		if n == 0 {
			return append(out, end), nil
		}
		if n > int64(r.items) {
			return nil, fmt.Errorf("a block of %d elements in so few bytes", n)
		}
		r.items -= int(n)
		for range n {
			if !first {
				out = append(out, ',')
			}
			first = false
			if s.Type == "map" {
				k, err := r.counted()
				if err != nil {
					return nil, err
				}
				out = append(wire.AppendString(out, string(k)), ':')
			}
			if out, err = r.append(out, s.Items, depth+1); err != nil {
				return nil, err
			}
		}
	}
}

func (r *reader) bytes(out []byte, s *Schema, b []byte) []byte {
	if r.natural && s.Logical == "decimal" && s.Scale >= 0 && s.Scale <= 1000 {
		return appendDecimal(out, b, s.Scale)
	}
	return appendBytes(out, b)
}

// appendDecimal prints the big-endian two's complement unscaled value b.
func appendDecimal(out, b []byte, scale int) []byte {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	if n.Sign() < 0 {
		out = append(out, '-')
		n.Neg(n)
	}
	d := n.String()
	if len(d) <= scale {
		d = strings.Repeat("0", scale-len(d)+1) + d
	}
	out = append(out, d[:len(d)-scale]...)
	if scale > 0 {
		out = append(append(out, '.'), d[len(d)-scale:]...)
	}
	return out
}

// appendNatural prints days and times as text.
func appendNatural(out []byte, s *Schema, v int64) []byte {
	quote := func(at time.Time, layout string) []byte {
		out = append(out, '"')
		out = at.UTC().AppendFormat(out, layout)
		return append(out, '"')
	}
	const ntz = "2006-01-02T15:04:05.999999999"
	switch {
	case s.Logical == "date" || s.Connect == "io.debezium.time.Date":
		return quote(time.Unix(v*86400, 0), "2006-01-02")
	case s.Logical == "local-timestamp-millis" || s.Connect == "io.debezium.time.Timestamp" || s.Connect == "org.apache.kafka.connect.data.Timestamp":
		return quote(time.UnixMilli(v), ntz)
	case s.Logical == "local-timestamp-micros" || s.Connect == "io.debezium.time.MicroTimestamp":
		return quote(time.UnixMicro(v), ntz)
	}
	return appendInteger(out, s, v)
}

// appendInteger prints instants of plain Avro as text, everything else as digits.
func appendInteger(out []byte, s *Schema, v int64) []byte {
	if s.Connect == "" {
		var at time.Time
		switch s.Logical {
		case "timestamp-millis":
			at = time.UnixMilli(v)
		case "timestamp-micros":
			at = time.UnixMicro(v)
		case "timestamp-nanos":
			at = time.Unix(0, v)
		default:
			return strconv.AppendInt(out, v, 10)
		}
		out = append(out, '"')
		out = at.UTC().AppendFormat(out, "2006-01-02T15:04:05.999999999Z07:00")
		return append(out, '"')
	}
	return strconv.AppendInt(out, v, 10)
}

func appendFloat(out []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(out, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(out, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(out, `"-Infinity"`...)
	}
	return strconv.AppendFloat(out, v, 'g', -1, bits)
}

func appendBytes(out, b []byte) []byte {
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b)
	return append(out, '"')
}
