package postgres

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// token turns the text of a value into what the column's node reads. It aliases text,
// or d.buf, which lives until the row is added.
func (d *Decoder) token(p *plan, text []byte) wire.Token {
	switch p.form {
	case asNumber:
		if number(text) {
			return wire.Token{Kind: wire.Number, Raw: text}
		}
	case asBool:
		if string(text) == "t" {
			return wire.Token{Kind: wire.True, Raw: []byte("true")}
		} else if string(text) == "f" {
			return wire.Token{Kind: wire.False, Raw: []byte("false")}
		}
	case asTime:
		if bytes.HasSuffix(text, []byte(" BC")) {
			start := len(d.buf)
			d.buf = appendBC(d.buf, text)
			return wire.Token{Kind: wire.String, Raw: d.buf[start:]}
		}
	case asArray:
		start := len(d.buf)
		if buf, err := appendArray(d.buf, p.elem, text); err == nil {
			d.buf = buf
			return wire.Token{Kind: wire.Array, Raw: d.buf[start:len(d.buf):len(d.buf)]}
		}
	case asHstore:
		start := len(d.buf)
		if buf, err := appendHstore(d.buf, text); err == nil {
			d.buf = buf
			return wire.Token{Kind: wire.String, Raw: d.buf[start:len(d.buf):len(d.buf)]}
		}
	}
	if p.node.Type == schema.String || !special(text) {
		return wire.Token{Kind: wire.String, Raw: text}
	}
	// What may be rescued must be the inside of a JSON string.
	start := len(d.buf)
	d.buf = wire.AppendString(d.buf, string(text))
	return wire.Token{Kind: wire.String, Esc: true, Raw: d.buf[start+1 : len(d.buf)-1]}
}

// special tells whether text is not the inside of a JSON string.
func special(text []byte) bool {
	for _, c := range text {
		if c < 0x20 || c == '"' || c == '\\' {
			return true
		}
	}
	return false
}

// number tells whether text is a JSON number: digits with sign, fraction, exponent.
func number(text []byte) bool {
	i := 0
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i >= len(text) || text[i] < '0' || text[i] > '9' || text[i] == '0' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9' {
		return false
	}
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9', c == '.', c == 'e', c == 'E', c == '+', c == '-':
		default:
			return false
		}
	}
	return true
}

// appendBC writes a time of before Christ with an astronomical year: 44 BC is -0043.
func appendBC(buf, text []byte) []byte {
	text = text[:len(text)-len(" BC")]
	i := bytes.IndexByte(text, '-')
	if i < 0 {
		return append(buf, text...)
	}
	year, err := strconv.Atoi(string(text[:i]))
	if err != nil {
		return append(buf, text...)
	}
	year = 1 - year
	if year < 0 {
		buf, year = append(buf, '-'), -year
	}
	for limit := 1000; limit > 1 && year < limit; limit /= 10 {
		buf = append(buf, '0')
	}
	buf = strconv.AppendInt(buf, int64(year), 10)
	return append(buf, text[i:]...)
}

var (
	errArray  = errors.New("not an array's text")
	errHstore = errors.New("not an hstore's text")
)

// appendArray writes an array's text as JSON. Arrays of several dimensions become
// nested arrays, which the node of a plain list refuses.
func appendArray(buf []byte, elem *plan, text []byte) ([]byte, error) {
	if len(text) > 0 && text[0] == '[' { // [0:2]={...}: lower bounds that are not 1
		i := bytes.IndexByte(text, '=')
		if i < 0 {
			return nil, errArray
		}
		text = text[i+1:]
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, errArray
	}
	buf, i, err := arrayItems(buf, elem, text, 1, 0)
	if err == nil && i != len(text) {
		err = errArray
	}
	return buf, err
}

// arrayItems reads the items behind a brace, and the brace that ends them.
func arrayItems(buf []byte, elem *plan, text []byte, i, depth int) ([]byte, int, error) {
	buf = append(buf, '[')
	var item []byte
	for first := true; ; first = false {
		if i >= len(text) || depth > 6 { // MAXDIM
			return nil, i, errArray
		}
		if text[i] == '}' {
			if !first {
				return nil, i, errArray
			}
			return append(buf, ']'), i + 1, nil
		}
		quoted := false
		switch text[i] {
		case '{':
			var err error
			if buf, i, err = arrayItems(buf, elem, text, i+1, depth+1); err != nil {
				return nil, i, err
			}
		case '"':
			quoted = true
			var ok bool
			if item, i, ok = unquote(item[:0], text, i); !ok {
				return nil, i, errArray
			}
			buf = appendItem(buf, elem, item, quoted)
		default:
			start := i
			for i < len(text) && text[i] != ',' && text[i] != '}' {
				i++
			}
			if i == start {
				return nil, i, errArray
			}
			buf = appendItem(buf, elem, text[start:i], quoted)
		}
		if i >= len(text) {
			return nil, i, errArray
		}
		switch text[i] {
		case ',':
			buf = append(buf, ',')
			i++
		case '}':
			return append(buf, ']'), i + 1, nil
		default:
			return nil, i, errArray
		}
	}
}

// unquote reads "a\"b" from i and returns the index behind it.
func unquote(item, text []byte, i int) ([]byte, int, bool) {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '"':
			return item, i + 1, true
		case '\\':
			if i++; i >= len(text) {
				return nil, i, false
			}
		}
		item = append(item, text[i])
	}
	return nil, i, false
}

func appendItem(buf []byte, elem *plan, item []byte, quoted bool) []byte {
	if !quoted && string(item) == "NULL" {
		return append(buf, "null"...)
	}
	switch elem.form {
	case asNumber:
		if number(item) {
			return append(buf, item...)
		}
	case asBool:
		if string(item) == "t" {
			return append(buf, "true"...)
		} else if string(item) == "f" {
			return append(buf, "false"...)
		}
	case asTime:
		if bytes.HasSuffix(item, []byte(" BC")) {
			item = appendBC(nil, item)
		}
	case asHstore:
		if text, err := appendHstore(nil, item); err == nil {
			item = text
		}
	}
	return wire.AppendString(buf, string(item))
}

// appendHstore writes "a"=>"1", "b"=>NULL as a JSON object.
func appendHstore(buf, text []byte) ([]byte, error) {
	buf = append(buf, '{')
	var item []byte
	for i := 0; i < len(text); {
		var ok bool
		if text[i] != '"' {
			return nil, errHstore
		}
		if item, i, ok = unquote(item[:0], text, i); !ok || !bytes.HasPrefix(text[i:], []byte("=>")) {
			return nil, errHstore
		}
		buf = append(wire.AppendString(buf, string(item)), ':')
		i += 2
		switch {
		case bytes.HasPrefix(text[i:], []byte("NULL")):
			buf = append(buf, "null"...)
			i += 4
		case i < len(text) && text[i] == '"':
			if item, i, ok = unquote(item[:0], text, i); !ok {
				return nil, errHstore
			}
			buf = wire.AppendString(buf, string(item))
		default:
			return nil, errHstore
		}
		if i == len(text) {
			break
		}
		if !bytes.HasPrefix(text[i:], []byte(", ")) {
			return nil, errHstore
		}
		buf = append(buf, ',')
		i += 2
	}
	return append(buf, '}'), nil
}
