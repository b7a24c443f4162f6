package rowio

import (
	"encoding/base64"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

// AppendJSONValue appends value i of arr, whose Delta type is t, in the JSON form of rows.
func AppendJSONValue(b []byte, t schema.Type, arr arrow.Array, i int) ([]byte, error) {
	return appendJSONValue(b, t, arr, i)
}

// AppendJSONString appends a JSON string.
func AppendJSONString(b []byte, s string) []byte { return appendJSONString(b, s) }

// appendJSONValue writes value i of arr, whose Delta type is t, as JSON.
func appendJSONValue(b []byte, t schema.Type, arr arrow.Array, i int) ([]byte, error) {
	if isNull(arr, i) {
		return append(b, "null"...), nil
	}
	switch t := t.(type) {
	case *schema.Struct:
		return appendJSONStruct(b, t, arr, i)
	case *schema.Array:
		l, ok := arr.(*array.List)
		if !ok {
			return nil, unexpected(t, arr)
		}
		from, to := l.ValueOffsets(i)
		b = append(b, '[')
		for j := from; j < to; j++ {
			if j > from {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSONValue(b, t.Elem, l.ListValues(), int(j)); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case *schema.Map:
		return appendJSONMap(b, t, arr, i)
	case schema.Primitive:
		switch t {
		case schema.Float, schema.Double, schema.Long, schema.Integer, schema.Short, schema.Byte, schema.Boolean:
			start := len(b)
			b, bare, err := appendScalar(b, t, arr, i)
			if err == nil && !bare { // NaN and the infinities
				b = append(slices.Insert(b, start, '"'), '"')
			}
			return b, err
		case schema.Variant:
			text, err := variantText(arr, i)
			if err != nil {
				return nil, err
			}
			return appendJSONString(b, string(text)), nil
		}
		if a, ok := arr.(*array.String); ok {
			return appendJSONString(b, a.Value(i)), nil
		}
		b, _, err := appendScalar(append(b, '"'), t, arr, i) // base64, dates and times need no escapes
		return append(b, '"'), err
	}
	text, _, err := appendScalar(b, t, arr, i)
	return text, err
}

func appendJSONStruct(b []byte, t *schema.Struct, arr arrow.Array, i int) ([]byte, error) {
	s, ok := arr.(*array.Struct)
	if !ok || s.NumField() != len(t.Fields) {
		return nil, unexpected(t, arr)
	}
	b = append(b, '{')
	for c, f := range t.Fields {
		if c > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONString(b, f.Name), ':')
		var err error
		if b, err = appendJSONValue(b, f.Type, s.Field(c), i); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendJSONMap(b []byte, t *schema.Map, arr arrow.Array, i int) ([]byte, error) {
	m, ok := arr.(*array.Map)
	if !ok {
		return nil, unexpected(t, arr)
	}
	from, to := m.ValueOffsets(i)
	keys, items := m.Keys(), m.Items()
	object := t.Key == schema.String
	b = append(b, "[{"[btoi(object)])
	for j := from; j < to; j++ {
		if j > from {
			b = append(b, ',')
		}
		var err error
		if !object {
			b = append(b, `{"key":`...)
		}
		if b, err = appendJSONValue(b, t.Key, keys, int(j)); err != nil {
			return nil, err
		}
		if object {
			b = append(b, ':')
		} else {
			b = append(b, `,"value":`...)
		}
		if b, err = appendJSONValue(b, t.Value, items, int(j)); err != nil {
			return nil, err
		}
		if !object {
			b = append(b, '}')
		}
	}
	return append(b, "]}"[btoi(object)]), nil
}

func btoi(v bool) int {
	if v {
		return 1
	}
	return 0
}

// appendScalar writes a value that is not null as plain text. bare tells whether
// the text is a JSON token as it stands.
func appendScalar(b []byte, t schema.Type, arr arrow.Array, i int) (_ []byte, bare bool, _ error) {
	switch a := arr.(type) {
	case *array.String:
		return append(b, a.Value(i)...), false, nil
	case *array.Int64:
		return appendDigits(b, a.Value(i), 0), true, nil
	case *array.Int32:
		return appendDigits(b, int64(a.Value(i)), 0), true, nil
	case *array.Int16:
		return appendDigits(b, int64(a.Value(i)), 0), true, nil
	case *array.Int8:
		return appendDigits(b, int64(a.Value(i)), 0), true, nil
	case *array.Float64:
		b, bare = appendFloat(b, a.Value(i), 64)
		return b, bare, nil
	case *array.Float32:
		b, bare = appendFloat(b, float64(a.Value(i)), 32)
		return b, bare, nil
	case *array.Boolean:
		if a.Value(i) {
			return append(b, "true"...), true, nil
		}
		return append(b, "false"...), true, nil
	case *array.Binary:
		return base64.StdEncoding.AppendEncode(b, a.Value(i)), false, nil
	case *array.Date32:
		return appendDate(b, int64(a.Value(i))), false, nil
	case *array.Timestamp:
		return appendTimestamp(b, int64(a.Value(i)), t == schema.Timestamp), false, nil
	case *array.Decimal128:
		return appendDecimal(b, a.Value(i), int(a.DataType().(*arrow.Decimal128Type).Scale)), true, nil
	}
	return nil, false, unexpected(t, arr)
}

// appendText is the form of CSV fields and table cells of a value that is not
// null: scalars as plain text, nested values as JSON.
func appendText(b []byte, t schema.Type, arr arrow.Array, i int) ([]byte, error) {
	switch t := t.(type) {
	case *schema.Struct, *schema.Array, *schema.Map:
		return appendJSONValue(b, t, arr, i)
	case schema.Primitive:
		if t == schema.Variant {
			text, err := variantText(arr, i)
			return append(b, text...), err
		}
	}
	b, _, err := appendScalar(b, t, arr, i)
	return b, err
}

func unexpected(t schema.Type, arr arrow.Array) error {
	return fmt.Errorf("type %s: cannot print an Arrow %s", t, arr.DataType())
}

const hexDigits = "0123456789abcdef"

// appendJSONString writes s with the escapes that JSON demands and no others;
// bytes that are not UTF-8 become U+FFFD (invariant 4).
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// isNull is IsNull also for arrays of type null, which have no bitmap.
func isNull(arr arrow.Array, i int) bool { return arr.DataType().ID() == arrow.NULL || arr.IsNull(i) }
