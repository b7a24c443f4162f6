package variant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxBytes bounds a value, as Spark does (16 MiB).
const MaxBytes = 16 << 20

// Builder makes values that share one metadata part. The zero value is ready.
type Builder struct {
	ids   map[string]int
	names [][]byte
	// fixed: the names are those of a metadata part that exists.
	fixed bool
}

// NewBuilder makes values for a metadata part that exists: their names must be in it.
func NewBuilder(metadata []byte) (*Builder, error) {
	d, err := parseNames(metadata)
	if err != nil {
		return nil, err
	}
	b := &Builder{ids: make(map[string]int, d.n), fixed: true}
	for i := range d.n {
		name, err := d.name(i)
		if err != nil {
			return nil, err
		}
		b.names = append(b.names, name)
		b.ids[string(name)] = i
	}
	return b, nil
}

// Field is one member of an object.
type Field struct {
	Name  string
	Value []byte
}

func (b *Builder) id(name string) (int, error) {
	if id, ok := b.ids[name]; ok {
		return id, nil
	}
	if b.fixed {
		return 0, corrupt("field %q is not in the metadata", name)
	}
	if b.ids == nil {
		b.ids = map[string]int{}
	}
	b.ids[name] = len(b.names)
	b.names = append(b.names, []byte(name))
	return b.ids[name], nil
}

// Object makes an object; two fields of one name are an error.
func (b *Builder) Object(fields []Field) ([]byte, error) {
	fields = slices.Clone(fields)
	slices.SortStableFunc(fields, func(x, y Field) int { return strings.Compare(x.Name, y.Name) })
	ids := make([]int, len(fields))
	values := make([][]byte, len(fields))
	top := 0
	for i, f := range fields {
		if i > 0 && fields[i-1].Name == f.Name {
			return nil, fmt.Errorf("variant: field %q occurs twice", f.Name)
		}
		id, err := b.id(f.Name)
		if err != nil {
			return nil, err
		}
		ids[i], values[i], top = id, f.Value, max(top, id)
	}
	idSize := width(top)
	return assemble(2, ids, idSize, values)
}

// Array makes an array.
func (b *Builder) Array(values [][]byte) ([]byte, error) { return assemble(3, nil, 0, values) }

// assemble lays a group out.
func assemble(basic byte, ids []int, idSize int, values [][]byte) ([]byte, error) {
	total := 0
	for _, v := range values {
		total += len(v)
	}
	if total > MaxBytes {
		return nil, fmt.Errorf("variant: a value of %d bytes, at most %d are allowed", total, MaxBytes)
	}
	offSize, large := width(total), len(values) > 255
	var head byte
	if basic == 2 {
		head = byte(offSize-1) | byte(idSize-1)<<2
		if large {
			head |= 1 << 4
		}
	} else {
		head = byte(offSize - 1)
		if large {
			head |= 1 << 2
		}
	}
	out := make([]byte, 0, 5+len(values)*(idSize+offSize)+offSize+total)
	out = append(out, head<<2|basic)
	if large {
		out = appendNumber(out, len(values), 4)
	} else {
		out = appendNumber(out, len(values), 1)
	}
	for _, id := range ids {
		out = appendNumber(out, id, idSize)
	}
	at := 0
	for _, v := range values {
		out = appendNumber(out, at, offSize)
		at += len(v)
	}
	out = appendNumber(out, at, offSize)
	for _, v := range values {
		out = append(out, v...)
	}
	return out, nil
}

// width is the bytes that hold numbers up to n.
func width(n int) int {
	switch {
	case n <= 0xff:
		return 1
	case n <= 0xffff:
		return 2
	case n <= 0xffffff:
		return 3
	}
	return 4
}

func appendNumber(out []byte, n, size int) []byte {
	for i := range size {
		out = append(out, byte(n>>(8*i)))
	}
	return out
}

// Metadata is the metadata part of all values made so far.
func (b *Builder) Metadata() []byte {
	total := 0
	for _, n := range b.names {
		total += len(n)
	}
	size := width(max(total, len(b.names)))
	out := []byte{1 | byte(size-1)<<6}
	out = appendNumber(out, len(b.names), size)
	at := 0
	for _, n := range b.names {
		out = appendNumber(out, at, size)
		at += len(n)
	}
	out = appendNumber(out, at, size)
	for _, n := range b.names {
		out = append(out, n...)
	}
	return out
}

// Scalar is the bytes of a value that is neither object nor array, in its smallest
// form. A decimal beyond 38 digits is an error.
func Scalar(v Value) ([]byte, error) {
	fixed := func(id byte, n int64, size int) []byte {
		out := []byte{id << 2}
		for i := range size {
			out = append(out, byte(n>>(8*i)))
		}
		return out
	}
	sized := func(id byte) []byte {
		return append(appendNumber([]byte{id << 2}, len(v.Bytes), 4), v.Bytes...)
	}
	switch v.Kind {
	case Null:
		return []byte{0}, nil
	case Bool:
		if v.Bool {
			return []byte{1 << 2}, nil
		}
		return []byte{2 << 2}, nil
	case Int:
		switch n := v.Int; {
		case n == int64(int8(n)):
			return fixed(3, n, 1), nil
		case n == int64(int16(n)):
			return fixed(4, n, 2), nil
		case n == int64(int32(n)):
			return fixed(5, n, 4), nil
		}
		return fixed(6, v.Int, 8), nil
	case Double:
		return fixed(7, int64(math.Float64bits(v.Float)), 8), nil
	case Float:
		return fixed(14, int64(math.Float32bits(float32(v.Float))), 4), nil
	case Decimal:
		return decimal(v.Unscaled, v.Scale)
	case Date:
		return fixed(11, v.Int, 4), nil
	case Timestamp:
		return fixed(12, v.Int, 8), nil
	case TimestampNTZ:
		return fixed(13, v.Int, 8), nil
	case Time:
		return fixed(17, v.Int, 8), nil
	case TimestampNanos:
		return fixed(18, v.Int, 8), nil
	case TimestampNTZNanos:
		return fixed(19, v.Int, 8), nil
	case Binary:
		return sized(15), nil
	case UUID:
		if len(v.Bytes) == 16 {
			return append([]byte{20 << 2}, v.Bytes...), nil
		}
	case String:
		if len(v.Bytes) < 64 {
			return append([]byte{byte(len(v.Bytes))<<2 | 1}, v.Bytes...), nil
		}
		return sized(16), nil
	}
	return nil, fmt.Errorf("variant: no scalar of kind %d", v.Kind)
}

func decimal(unscaled *big.Int, scale int) ([]byte, error) {
	digits := len(new(big.Int).Abs(unscaled).String())
	if digits > 38 || scale < 0 || scale > 38 {
		return nil, fmt.Errorf("variant: a decimal of %d digits and scale %d", digits, scale)
	}
	id, size := byte(8), 4
	switch precision := max(digits, scale); {
	case precision > 18:
		id, size = 10, 16
	case precision > 9:
		id, size = 9, 8
	}
	n := unscaled
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	be := n.FillBytes(make([]byte, 17))
	out := []byte{id << 2, byte(scale)}
	for i := range size {
		out = append(out, be[16-i])
	}
	return out, nil
}

// ParseJSON makes a value of JSON text, as Spark's parse_json: numbers become
// integers, else decimals where their digits allow, else doubles; a name that occurs
// twice in one object is an error.
func ParseJSON(text []byte) (metadata, value []byte, err error) {
	if !utf8.Valid(text) {
		return nil, nil, errors.New("JSON text is not UTF-8")
	}
	if len(text) > MaxBytes {
		return nil, nil, fmt.Errorf("JSON text of %d bytes, at most %d are allowed", len(text), MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	b := &Builder{}
	if value, err = b.next(d, 0); err != nil {
		return nil, nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, errors.New("JSON text goes on after the value")
	}
	return b.Metadata(), value, nil
}

func (b *Builder) next(d *json.Decoder, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("JSON text nests deeper than %d", MaxDepth)
	}
	tok, err := d.Token()
	if err == io.EOF {
		return nil, errors.New("JSON text ends early")
	}
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case nil:
		return Scalar(Value{Kind: Null})
	case bool:
		return Scalar(Value{Kind: Bool, Bool: t})
	case string:
		return Scalar(Value{Kind: String, Bytes: []byte(t)})
	case json.Number:
		return jsonNumber(string(t))
	case json.Delim:
		if t == '[' {
			var values [][]byte
			for d.More() {
				v, err := b.next(d, depth+1)
				if err != nil {
					return nil, err
				}
				values = append(values, v)
			}
			if _, err := d.Token(); err != nil {
				return nil, err
			}
			return b.Array(values)
		}
		var fields []Field
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, ok := key.(string)
			if !ok {
				return nil, errors.New("JSON text: expected a member name")
			}
			v, err := b.next(d, depth+1)
			if err != nil {
				return nil, err
			}
			fields = append(fields, Field{name, v})
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		return b.Object(fields)
	}
	return nil, errors.New("JSON text: unexpected token")
}

func jsonNumber(s string) ([]byte, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return Scalar(Value{Kind: Int, Int: n})
	}
	if !strings.ContainsAny(s, "eE") && len(s) < 64 {
		whole, frac, _ := strings.Cut(s, ".")
		if n, ok := new(big.Int).SetString(whole+frac, 10); ok {
			if out, err := decimal(n, len(frac)); err == nil {
				return out, nil
			}
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("number %s: it is beyond the range of DOUBLE", s)
	}
	return Scalar(Value{Kind: Double, Float: f})
}

// Fields are the members of an object value; ok is false for any other kind.
func Fields(metadata, value []byte) (out []Field, ok bool, err error) {
	d, err := parseNames(metadata)
	if err != nil {
		return nil, false, err
	}
	v, err := Decode(value)
	if err != nil || v.Kind != Object {
		return nil, false, err
	}
	total := 0
	for i := range v.count {
		name, err := d.name(v.fieldID(i))
		if err != nil {
			return nil, false, err
		}
		e, err := v.element(i)
		if err != nil {
			return nil, false, err
		}
		n, err := size(e)
		if err != nil {
			return nil, false, err
		}
		if total += n; total > len(value) {
			return nil, false, corrupt("fields overlap")
		}
		out = append(out, Field{string(name), e[:n]})
	}
	return out, true, nil
}
