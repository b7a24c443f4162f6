package rowio

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads one JSON text, strictly (RFC 8259): valid UTF-8, no trailing
// bytes, no lone surrogates. Its errors are faults with code INVALID_JSON.
type scanner struct {
	data []byte
	pos  int
	text []byte // of the last string that had escapes
}

func (p *scanner) bad(format string, args ...any) error {
	return fault(CodeInvalidJSON, "", "character %d: "+format, append([]any{p.pos + 1}, args...)...)
}

func (p *scanner) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

// peek is the first byte of the next token, 0 at the end.
func (p *scanner) peek() byte {
	p.space()
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *scanner) accept(c byte) bool {
	if p.peek() == c {
		p.pos++
		return true
	}
	return false
}

func (p *scanner) expect(c byte) error {
	if !p.accept(c) {
		return p.bad("expected %q", string(c))
	}
	return nil
}

func (p *scanner) end() error {
	if p.peek() != 0 || p.pos < len(p.data) {
		return p.bad("unexpected text after the object")
	}
	return nil
}

// literal consumes true, false or null.
func (p *scanner) literal(word string) error {
	if end := p.pos + len(word); end <= len(p.data) && string(p.data[p.pos:end]) == word {
		p.pos = end
		return nil
	}
	return p.bad("invalid token")
}

// number returns the text of a JSON number.
func (p *scanner) number() ([]byte, error) {
	start := p.pos
	digits := func() bool {
		from := p.pos
		for p.pos < len(p.data) && p.data[p.pos] >= '0' && p.data[p.pos] <= '9' {
			p.pos++
		}
		return p.pos > from
	}
	at := func(c byte) bool {
		if p.pos < len(p.data) && p.data[p.pos] == c {
			p.pos++
			return true
		}
		return false
	}
	at('-')
	if !at('0') && !digits() {
		return nil, p.bad("invalid number")
	}
	if at('.') && !digits() {
		return nil, p.bad("invalid number")
	}
	if at('e') || at('E') {
		if !at('+') {
			at('-')
		}
		if !digits() {
			return nil, p.bad("invalid number")
		}
	}
	return p.data[start:p.pos], nil
}

// str returns the text of a string; valid until the next call.
func (p *scanner) str() ([]byte, error) {
	if err := p.expect('"'); err != nil {
		return nil, err
	}
	start := p.pos
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			p.pos++
			return p.data[start : p.pos-1], nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return nil, p.bad("control character in a string")
		case c < utf8.RuneSelf:
			p.pos++
		default:
			if err := p.multibyte(); err != nil {
				return nil, err
			}
		}
	}
	return nil, p.bad("the string does not end")
}

func (p *scanner) multibyte() error {
	r, n := utf8.DecodeRune(p.data[p.pos:])
	if r == utf8.RuneError && n == 1 {
		return p.bad("bytes that are not UTF-8")
	}
	p.pos += n
	return nil
}

// escaped goes on with a string that has a backslash at pos.
func (p *scanner) escaped(start int) ([]byte, error) {
	out := append(p.text[:0], p.data[start:p.pos]...)
	for p.pos < len(p.data) {
		c := p.data[p.pos]
		switch {
		case c == '"':
			p.pos++
			p.text = out
			return out, nil
		case c < 0x20:
			return nil, p.bad("control character in a string")
		case c >= utf8.RuneSelf:
			from := p.pos
			if err := p.multibyte(); err != nil {
				return nil, err
			}
			out = append(out, p.data[from:p.pos]...)
			continue
		case c != '\\':
			out = append(out, c)
			p.pos++
			continue
		}
		p.pos++
		if p.pos >= len(p.data) {
			break
		}
		c = p.data[p.pos]
		p.pos++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := p.unit()
			if ok && utf16.IsSurrogate(r) {
				low := rune(-1)
				if p.pos+1 < len(p.data) && p.data[p.pos] == '\\' && p.data[p.pos+1] == 'u' {
					p.pos += 2
					low, ok = p.unit()
				}
				r = utf16.DecodeRune(r, low)
				ok = ok && r != utf8.RuneError
			}
			if !ok {
				return nil, p.bad("invalid \\u escape")
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, p.bad("invalid escape")
		}
	}
	return nil, p.bad("the string does not end")
}

// unit reads the four hex digits of a \u escape.
func (p *scanner) unit() (rune, bool) {
	if p.pos+4 > len(p.data) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(p.data[p.pos:p.pos+4]), 16, 16)
	p.pos += 4
	return rune(v), err == nil
}
