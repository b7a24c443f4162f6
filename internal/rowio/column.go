package rowio

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

// column appends values of one type to one builder.
type column struct {
	path string
	t    schema.Type
	b    array.Builder
	// json reads the next value of p; null has been dealt with.
	json func(p *scanner) error
	// text appends a CSV field; nil for nested types, which are JSON there. It
	// keeps nothing of s.
	text func(s []byte) error
}

// compile builds the column for values of type t that go to b.
func compile(path string, t schema.Type, b array.Builder, zone *time.Location) (*column, error) {
	c := &column{path: path, t: t, b: b}
	var err error
	switch t := t.(type) {
	case *schema.Struct:
		err = c.structColumn(t, zone)
	case *schema.Array:
		err = c.arrayColumn(t, zone)
	case *schema.Map:
		err = c.mapColumn(t, zone)
	case schema.Decimal:
		b := b.(*array.Decimal128Builder)
		c.text = func(s []byte) error {
			if v, ok := shortDecimal(s, t.Precision, t.Scale); ok {
				b.Append(decimal128.FromI64(v))
				return nil
			}
			if !isNumber(s) {
				return fmt.Errorf("%s is not a number", quote(s))
			}
			v, err := parseDecimal(string(s), t.Precision, t.Scale)
			if err == nil {
				b.Append(v)
			}
			return err
		}
		c.json = c.numberToken
	case schema.Primitive:
		err = c.primitive(t, zone)
	default:
		err = fmt.Errorf("column %s: type %s cannot be read from text", path, t)
	}
	return c, err
}

// isNumber tells whether all of s is one JSON number.
func isNumber(s []byte) bool {
	p := scanner{data: s}
	n, err := p.number()
	return err == nil && len(n) == len(s)
}

func (c *column) primitive(t schema.Primitive, zone *time.Location) error {
	switch b := c.b.(type) {
	case *array.Int64Builder:
		c.integer(64, func(v int64) { b.Append(v) })
	case *array.Int32Builder:
		c.integer(32, func(v int64) { b.Append(int32(v)) })
	case *array.Int16Builder:
		c.integer(16, func(v int64) { b.Append(int16(v)) })
	case *array.Int8Builder:
		c.integer(8, func(v int64) { b.Append(int8(v)) })
	case *array.Float64Builder:
		c.float(64, b.Append)
	case *array.Float32Builder:
		c.float(32, func(v float64) { b.Append(float32(v)) })
	case *array.StringBuilder:
		c.text = func(s []byte) error { b.BinaryBuilder.Append(s); return nil }
		c.json = c.stringToken
	case *array.BinaryBuilder:
		c.text = func(s []byte) error {
			v, err := base64.StdEncoding.Strict().DecodeString(string(s))
			if err != nil {
				return fmt.Errorf("%s is not base64", quote(s))
			}
			b.Append(v)
			return nil
		}
		c.json = c.stringToken
	case *array.BooleanBuilder:
		c.text = func(s []byte) error {
			if string(s) != "true" && string(s) != "false" {
				return fmt.Errorf("%s is not true or false", quote(s))
			}
			b.Append(string(s) == "true")
			return nil
		}
		c.json = func(p *scanner) error {
			switch p.peek() {
			case 't':
				b.Append(true)
				return p.literal("true")
			case 'f':
				b.Append(false)
				return p.literal("false")
			}
			return c.mismatch(p)
		}
	case *array.Date32Builder:
		c.text = func(s []byte) error {
			v, err := parseDate(string(s))
			if err != nil {
				return fmt.Errorf("%s: %w", quote(s), err)
			}
			b.Append(arrow.Date32(v))
			return nil
		}
		c.json = c.stringToken
	case *array.TimestampBuilder:
		c.timestamp(b, t == schema.Timestamp, zone)
	case *array.StructBuilder:
		return c.variantColumn()
	case *array.NullBuilder:
		c.text = func(s []byte) error { return fmt.Errorf("a VOID column holds only null") }
		c.json = c.mismatch
	default:
		return fmt.Errorf("column %s: type %s cannot be read from text", c.path, t)
	}
	return nil
}

func (c *column) integer(bits int, add func(int64)) {
	c.text = func(s []byte) error {
		if v, ok := shortInteger(s); ok && v>>(bits-1) == v>>63 {
			add(v)
			return nil
		}
		v, err := parseInteger(string(s), bits)
		if err == nil {
			add(v)
		}
		return err
	}
	c.json = c.numberToken
}

func (c *column) float(bits int, add func(float64)) {
	c.text = func(s []byte) error {
		v, special := specialFloat(string(s))
		if !special {
			var err error
			if !isNumber(s) {
				return fmt.Errorf("%s is not a number", quote(s))
			}
			if v, err = strconv.ParseFloat(string(s), bits); err != nil || math.IsInf(v, 0) {
				return fmt.Errorf("%s is out of range", s)
			}
		}
		add(v)
		return nil
	}
	c.json = func(p *scanner) error {
		if p.peek() == '"' {
			start := *p
			s, err := p.str()
			if err != nil {
				return err
			}
			if _, ok := specialFloat(string(s)); !ok {
				return c.mismatch(&start)
			}
			return c.give(s)
		}
		return c.numberToken(p)
	}
}

func (c *column) timestamp(b *array.TimestampBuilder, instant bool, zone *time.Location) {
	c.text = func(s []byte) error {
		v, zoned, err := parseTimestamp(string(s))
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", quote(s), err)
		case zoned && !instant:
			return fmt.Errorf("%s: a TIMESTAMP_NTZ carries no zone", quote(s))
		case !zoned && instant:
			v = inZone(v, zone)
		}
		b.Append(arrow.Timestamp(v))
		return nil
	}
	c.json = c.stringToken
}

func (c *column) give(s []byte) error {
	if err := c.text(s); err != nil {
		return fault(CodeTypeMismatch, c.path, "%s expected: %v", c.t, err)
	}
	return nil
}

func (c *column) numberToken(p *scanner) error {
	if ch := p.peek(); ch != '-' && (ch < '0' || ch > '9') {
		return c.mismatch(p)
	}
	n, err := p.number()
	if err != nil {
		return err
	}
	return c.give(n)
}

func (c *column) stringToken(p *scanner) error {
	if p.peek() != '"' {
		return c.mismatch(p)
	}
	s, err := p.str()
	if err != nil {
		return err
	}
	return c.give(s)
}

func (c *column) mismatch(p *scanner) error {
	kind := "number"
	switch ch := p.peek(); ch {
	case '"':
		kind = "string"
	case '{':
		kind = "object"
	case '[':
		kind = "array"
	case 't', 'f':
		kind = "boolean"
	case 0:
		return p.bad("the text ends early")
	default:
		if ch != '-' && (ch < '0' || ch > '9') {
			return p.bad("invalid token")
		}
	}
	return fault(CodeTypeMismatch, c.path, "%s expected, found a JSON %s", c.t, kind)
}

// value reads the next JSON value, null included.
func (c *column) value(p *scanner) error {
	if p.peek() == 'n' {
		if err := p.literal("null"); err != nil {
			return err
		}
		c.b.AppendNull()
		return nil
	}
	return c.json(p)
}

func (c *column) structColumn(t *schema.Struct, zone *time.Location) error {
	b, ok := c.b.(*array.StructBuilder)
	if !ok {
		return fmt.Errorf("column %s: type %s cannot be read from text", c.path, t)
	}
	fields := make([]*column, len(t.Fields))
	for i, f := range t.Fields {
		var err error
		if fields[i], err = compile(c.path+"."+f.Name, f.Type, b.FieldBuilder(i), zone); err != nil {
			return err
		}
	}
	seen := make([]bool, len(fields))
	c.json = func(p *scanner) error {
		if p.peek() != '{' {
			return c.mismatch(p)
		}
		b.Append(true)
		return readObject(p, t, fields, seen, c.path)
	}
	return nil
}

// readObject reads one object into the fields' builders; members that are
// missing become null. seen is scratch space.
func readObject(p *scanner, t *schema.Struct, fields []*column, seen []bool, path string) error {
	clear(seen)
	dotted := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	if err := p.expect('{'); err != nil {
		return err
	}
	err := readItems(p, '}', func() error {
		if p.peek() != '"' {
			return p.bad("expected a member name")
		}
		name, err := p.str()
		if err != nil {
			return err
		}
		i := lookup(t, name)
		if i < 0 {
			return fault(CodeUnknownColumn, dotted(string(name)), "not a column of the table")
		}
		if seen[i] {
			return fault(CodeDuplicateColumn, dotted(string(name)), "stands twice in one object")
		}
		seen[i] = true
		if err := p.expect(':'); err != nil {
			return err
		}
		before := p.pos
		if err := fields[i].value(p); err != nil {
			return err
		}
		if !t.Fields[i].Nullable && isNullAt(p, before) {
			return notNull(fields[i].path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, ok := range seen {
		if ok {
			continue
		}
		if !t.Fields[i].Nullable {
			return notNull(fields[i].path)
		}
		fields[i].b.AppendNull()
	}
	return nil
}

func notNull(path string) error { return fault(CodeNotNull, path, "null in a NOT NULL column") }

// isNullAt tells whether the value that was read from pos on was null.
func isNullAt(p *scanner, pos int) bool {
	q := scanner{data: p.data, pos: pos}
	return q.peek() == 'n'
}

// lookup finds a column without allocating for the exact match.
func lookup(t *schema.Struct, name []byte) int {
	for i := range t.Fields {
		if t.Fields[i].Name == string(name) {
			return i
		}
	}
	return t.Index(string(name))
}

func (c *column) arrayColumn(t *schema.Array, zone *time.Location) error {
	b := c.b.(*array.ListBuilder)
	elem, err := compile(c.path+".element", t.Elem, b.ValueBuilder(), zone)
	if err != nil {
		return err
	}
	c.json = func(p *scanner) error {
		if p.peek() != '[' {
			return c.mismatch(p)
		}
		p.pos++
		b.Append(true)
		return readItems(p, ']', func() error {
			before := p.pos
			if err := elem.value(p); err != nil {
				return err
			}
			if !t.ContainsNull && isNullAt(p, before) {
				return notNull(elem.path)
			}
			return nil
		})
	}
	return nil
}

// readItems reads comma-separated items up to the closing byte.
func readItems(p *scanner, closing byte, item func() error) error {
	if p.accept(closing) {
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if p.accept(closing) {
			return nil
		}
		if err := p.expect(','); err != nil {
			return err
		}
	}
}

func (c *column) mapColumn(t *schema.Map, zone *time.Location) error {
	b := c.b.(*array.MapBuilder)
	key, err := compile(c.path+".key", t.Key, b.KeyBuilder(), zone)
	if err != nil {
		return err
	}
	val, err := compile(c.path+".value", t.Value, b.ItemBuilder(), zone)
	if err != nil {
		return err
	}
	value := func(p *scanner) error {
		before := p.pos
		if err := val.value(p); err != nil {
			return err
		}
		if !t.ValueContainsNull && isNullAt(p, before) {
			return notNull(val.path)
		}
		return nil
	}
	object := t.Key == schema.String
	c.json = func(p *scanner) error {
		if p.peek() != "[{"[btoi(object)] {
			return c.mismatch(p)
		}
		p.pos++
		b.Append(true)
		seen := map[string]bool{}
		if object {
			return readItems(p, '}', func() error {
				k, err := p.str()
				if err != nil {
					return err
				}
				if seen[string(k)] {
					return fault(CodeDuplicateColumn, c.path, "key %s stands twice in one map", quote(k))
				}
				seen[string(k)] = true
				if err := key.give(k); err != nil {
					return err
				}
				if err := p.expect(':'); err != nil {
					return err
				}
				return value(p)
			})
		}
		return readItems(p, ']', func() error { return c.entry(p, key, value, seen) })
	}
	return nil
}

// entry reads {"key":..,"value":..}.
func (c *column) entry(p *scanner, key *column, value func(*scanner) error, seen map[string]bool) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	for _, member := range []string{"key", "value"} {
		if member == "value" {
			if err := p.expect(','); err != nil {
				return err
			}
		}
		name, err := p.str()
		if err != nil {
			return err
		}
		if string(name) != member {
			return fault(CodeTypeMismatch, c.path, "a map entry is {\"key\":..,\"value\":..}, found %s", quote(name))
		}
		if err := p.expect(':'); err != nil {
			return err
		}
		if member == "value" {
			if err := value(p); err != nil {
				return err
			}
			continue
		}
		p.space()
		from := p.pos
		if p.peek() == 'n' {
			return notNull(key.path)
		}
		if err := key.value(p); err != nil {
			return err
		}
		text := string(p.data[from:p.pos])
		if seen[text] {
			return fault(CodeDuplicateColumn, c.path, "key %s stands twice in one map", text)
		}
		seen[text] = true
	}
	return p.expect('}')
}
