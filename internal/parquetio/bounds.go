package parquetio

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go/format"
)

// valueOrder is how the plain bytes of a type compare (column order
// TYPE_DEFINED_ORDER).
type valueOrder uint8

const (
	orderNone    valueOrder = iota
	orderSigned             // little-endian integers of 4 or 8 bytes
	orderFloat              // IEEE of 4 or 8 bytes, without NaN
	orderBytes              // unsigned bytes
	orderDecimal            // big-endian two's complement
	orderBool
)

func (o valueOrder) compare(a, b []byte) int {
	switch o {
	case orderSigned:
		return cmp.Compare(signedLE(a), signedLE(b))
	case orderFloat:
		return cmp.Compare(floatLE(a), floatLE(b))
	case orderDecimal:
		if len(a) > 0 && len(b) > 0 && (a[0]^b[0])&0x80 != 0 {
			return int(b[0]>>7) - int(a[0]>>7)
		}
	}
	return bytes.Compare(a, b)
}

func signedLE(b []byte) int64 {
	if len(b) == 4 {
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

func floatLE(b []byte) float64 {
	if len(b) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// boundBytes is the longest min or max written for byte arrays; longer ones are
// cut, the max rounded up.
const boundBytes = 64

// bounds finds min and max of the open page, as plain bytes. ok is false for a
// page without values, and for one with a NaN, which has no place in the order.
func (l *leafWriter) bounds() (lo, hi []byte, ok bool) {
	if l.values == 0 {
		return nil, nil, false
	}
	switch l.order {
	case orderSigned:
		if l.width == 4 {
			a, b := int32(math.MaxInt32), int32(math.MinInt32)
			for i := 0; i < len(l.fixed); i += 4 {
				v := int32(binary.LittleEndian.Uint32(l.fixed[i:]))
				a, b = min(a, v), max(b, v)
			}
			return le32(uint32(a)), le32(uint32(b)), true
		}
		a, b := int64(math.MaxInt64), int64(math.MinInt64)
		for i := 0; i < len(l.fixed); i += 8 {
			v := int64(binary.LittleEndian.Uint64(l.fixed[i:]))
			a, b = min(a, v), max(b, v)
		}
		return le64(uint64(a)), le64(uint64(b)), true
	case orderFloat:
		a, b := math.Inf(1), math.Inf(-1)
		for i := 0; i < len(l.fixed); i += l.width {
			v := floatLE(l.fixed[i : i+l.width])
			if v != v {
				return nil, nil, false
			}
			a, b = min(a, v), max(b, v)
		}
		// Readers may compare zeros by sign: the bounds take in both.
		if a == 0 {
			a = math.Copysign(0, -1)
		}
		if b == 0 {
			b = math.Copysign(0, 1)
		}
		if l.width == 4 {
			return le32(math.Float32bits(float32(a))), le32(math.Float32bits(float32(b))), true
		}
		return le64(math.Float64bits(a)), le64(math.Float64bits(b)), true
	case orderBool:
		return []byte{slices.Min(l.fixed)}, []byte{slices.Max(l.fixed)}, true
	case orderDecimal:
		a, b := l.fixed[:l.width], l.fixed[:l.width]
		for i := l.width; i < len(l.fixed); i += l.width {
			v := l.fixed[i : i+l.width]
			if l.order.compare(v, a) < 0 {
				a = v
			} else if l.order.compare(v, b) > 0 {
				b = v
			}
		}
		return bytes.Clone(a), bytes.Clone(b), true
	case orderBytes:
		a := l.data[l.offs[0]:l.offs[1]]
		b := a
		for i := 1; i < l.values; i++ {
			v := l.data[l.offs[i]:l.offs[i+1]]
			if bytes.Compare(v, a) < 0 {
				a = v
			} else if bytes.Compare(v, b) > 0 {
				b = v
			}
		}
		hi, ok := cutMax(b, l.text)
		return cutMin(a, l.text), hi, ok
	}
	return nil, nil, false
}

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// cutMin shortens a lower bound, for text at the start of a character.
func cutMin(v []byte, text bool) []byte {
	n := boundBytes
	if len(v) <= n {
		return append([]byte{}, v...)
	}
	for text && n > 0 && v[n]&0xc0 == 0x80 {
		n--
	}
	return append([]byte{}, v[:n]...)
}

// cutMax shortens an upper bound and rounds it up; for text to valid UTF-8. ok is
// false if nothing short is above v.
func cutMax(v []byte, text bool) ([]byte, bool) {
	if len(v) <= boundBytes {
		return append([]byte{}, v...), true
	}
	p := cutMin(v, text)
	for len(p) > 0 {
		if !text {
			if i := len(p) - 1; p[i] < 0xff {
				p[i]++
				return p, true
			}
			p = p[:len(p)-1]
			continue
		}
		r, size := utf8.DecodeLastRune(p)
		p = p[:len(p)-size]
		if r == utf8.RuneError && size <= 1 {
			return nil, false // not UTF-8 after all
		}
		if r++; r == 0xd800 {
			r = 0xe000
		}
		if utf8.ValidRune(r) {
			return utf8.AppendRune(p, r), true
		}
	}
	return nil, false
}

// chunkBounds are the bounds of a row group's chunk so far.
type chunkBounds struct {
	min, max []byte
	any      bool // some page had values
	unknown  bool // some page with values had no bounds
}

func (c *chunkBounds) add(l *leafWriter, p pageInfo) {
	switch {
	case p.nullPage || c.unknown:
		return
	case !p.bounds:
		*c = chunkBounds{unknown: true}
		return
	case !c.any || l.order.compare(p.min, c.min) < 0:
		c.min = p.min
	}
	if !c.any || l.order.compare(p.max, c.max) > 0 {
		c.max = p.max
	}
	c.any = true
}

func (c *chunkBounds) statistics(nulls int64) format.Statistics {
	s := format.Statistics{NullCount: nulls}
	if c.any {
		s.MinValue, s.MaxValue = c.min, c.max
	}
	return s
}
