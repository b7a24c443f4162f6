package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/sluice-data/sluice/apply/event"
)

// MaxDepth is the deepest nesting of arrays and objects that is read.
const MaxDepth = 500

// Kind is what a token is.
type Kind uint8

// The kinds of tokens; None is the zero value: no token.
const (
	None Kind = iota
	Null
	True
	False
	Number
	String
	Object
	Array
)

// Token is one JSON value. Raw aliases the document: the inside of the quotes
// of a string (escapes untouched), the whole text of everything else.
type Token struct {
	Kind Kind
	// Esc says that a string holds escapes, so Raw is not its text.
	Esc bool
	Raw []byte
}

// Field is one member of an object; the key may be escaped, too.
type Field struct {
	Key Token
	Val Token
}

// SyntaxError is text that is not JSON.
type SyntaxError struct {
	Offset int // bytes from the start of the document
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Reason) }

func syntax(i int, reason string) error { return &SyntaxError{Offset: i, Reason: reason} }

// Skip returns the index of the first byte at or after i that is not white space.
func Skip(data []byte, i int) int {
	for i < len(data) {
		switch data[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// End checks that nothing but white space follows at i.
func End(data []byte, i int) error {
	if i = Skip(data, i); i < len(data) {
		return syntax(i, "bytes after the value")
	}
	return nil
}

// Value scans the value that starts at or after i, checks it wholly, and
// returns it with the index behind it.
func Value(data []byte, i int) (Token, int, error) {
	return value(data, Skip(data, i), 0)
}

func value(data []byte, i, depth int) (Token, int, error) {
	if i >= len(data) {
		return Token{}, i, syntax(i, "value cut short")
	}
	switch c := data[i]; {
	case c == '"':
		return str(data, i)
	case c == '-' || c >= '0' && c <= '9':
		end, err := number(data, i)
		if err != nil {
			return Token{}, i, err
		}
		return Token{Kind: Number, Raw: data[i:end]}, end, nil
	case c == '{':
		end, err := skipObject(data, i, depth)
		if err != nil {
			return Token{}, i, err
		}
		return Token{Kind: Object, Raw: data[i:end]}, end, nil
	case c == '[':
		end, err := skipArray(data, i, depth)
		if err != nil {
			return Token{}, i, err
		}
		return Token{Kind: Array, Raw: data[i:end]}, end, nil
	case c == 'n' && word(data, i, "null"):
		return Token{Kind: Null, Raw: data[i : i+4]}, i + 4, nil
	case c == 't' && word(data, i, "true"):
		return Token{Kind: True, Raw: data[i : i+4]}, i + 4, nil
	case c == 'f' && word(data, i, "false"):
		return Token{Kind: False, Raw: data[i : i+5]}, i + 5, nil
	}
	return Token{}, i, syntax(i, "not a JSON value")
}

func word(data []byte, i int, w string) bool {
	return len(data)-i >= len(w) && string(data[i:i+len(w)]) == w
}

func skipObject(data []byte, i, depth int) (int, error) {
	if depth >= MaxDepth {
		return i, syntax(i, "nested too deep")
	}
	i = Skip(data, i+1)
	if i < len(data) && data[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(data) || data[i] != '"' {
			return i, syntax(i, "object key expected")
		}
		_, next, err := str(data, i)
		if err != nil {
			return i, err
		}
		if i = Skip(data, next); i >= len(data) || data[i] != ':' {
			return i, syntax(i, "colon expected")
		}
		if _, i, err = value(data, Skip(data, i+1), depth+1); err != nil {
			return i, err
		}
		if i = Skip(data, i); i >= len(data) {
			return i, syntax(i, "object cut short")
		}
		switch data[i] {
		case '}':
			return i + 1, nil
		case ',':
			i = Skip(data, i+1)
		default:
			return i, syntax(i, "comma or } expected")
		}
	}
}

func skipArray(data []byte, i, depth int) (int, error) {
	if depth >= MaxDepth {
		return i, syntax(i, "nested too deep")
	}
	i = Skip(data, i+1)
	if i < len(data) && data[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if _, i, err = value(data, i, depth+1); err != nil {
			return i, err
		}
		if i = Skip(data, i); i >= len(data) {
			return i, syntax(i, "array cut short")
		}
		switch data[i] {
		case ']':
			return i + 1, nil
		case ',':
			i = Skip(data, i+1)
		default:
			return i, syntax(i, "comma or ] expected")
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stop is the index of the first quote, backslash or control character at or
// after i; eight bytes are looked at in one step.
func stop(data []byte, i int) int {
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		q := w ^ ones*'"'
		b := w ^ ones*'\\'
		// The lowest marked byte is exact; borrows mark only bytes above a true one.
		m := ((w - ones*0x20) &^ w) | ((q - ones) &^ q) | ((b - ones) &^ b)
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(data); i++ {
		if c := data[i]; c == '"' || c == '\\' || c < 0x20 {
			return i
		}
	}
	return i
}

// str scans the string whose opening quote is at i.
func str(data []byte, i int) (Token, int, error) {
	start, esc := i+1, false
	for i = start; ; {
		i = stop(data, i)
		if i >= len(data) {
			return Token{}, i, syntax(i, "string cut short")
		}
		switch data[i] {
		case '"':
			return Token{Kind: String, Esc: esc, Raw: data[start:i]}, i + 1, nil
		case '\\':
			esc = true
			next, err := escape(data, i)
			if err != nil {
				return Token{}, i, err
			}
			i = next
		default:
			return Token{}, i, syntax(i, "control character in a string")
		}
	}
}

// escape checks the escape at i and returns the index behind it. A surrogate
// must be one of a pair: a lone one has no UTF-8 form.
func escape(data []byte, i int) (int, error) {
	if i+1 >= len(data) {
		return i, syntax(i, "escape cut short")
	}
	switch data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		r, ok := hex4(data, i+2)
		if !ok {
			return i, syntax(i, "bad \\u escape")
		}
		if r < 0xD800 || r > 0xDFFF {
			return i + 6, nil
		}
		if r < 0xDC00 && i+7 < len(data) && data[i+6] == '\\' && data[i+7] == 'u' {
			if lo, ok := hex4(data, i+8); ok && lo >= 0xDC00 && lo <= 0xDFFF {
				return i + 12, nil
			}
		}
		return i, syntax(i, "lone surrogate")
	}
	return i, syntax(i, "bad escape")
}

func hex4(data []byte, i int) (rune, bool) {
	if i+4 > len(data) {
		return 0, false
	}
	var r rune
	for _, c := range data[i : i+4] {
		d := hexDigit(c)
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func number(data []byte, i int) (int, error) {
	start := i
	if data[i] == '-' {
		i++
	}
	switch {
	case i < len(data) && data[i] == '0':
		i++
	case i < len(data) && data[i] >= '1' && data[i] <= '9':
		i = digits(data, i)
	default:
		return i, syntax(start, "bad number")
	}
	if i < len(data) && data[i] == '.' {
		next := digits(data, i+1)
		if next == i+1 {
			return i, syntax(start, "bad number")
		}
		i = next
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		next := digits(data, i)
		if next == i {
			return i, syntax(start, "bad number")
		}
		i = next
	}
	return i, nil
}

func digits(data []byte, i int) int {
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	return i
}

// ParseObject scans the object that starts at or after i and appends its
// members to fields; values are checked wholly. It returns the index behind it.
func ParseObject(data []byte, i int, fields []Field) ([]Field, int, error) {
	i, more, err := Open(data, i)
	for more && err == nil {
		var f Field
		if f.Key, i, err = Key(data, i); err != nil {
			break
		}
		if f.Val, i, err = value(data, i, 1); err != nil {
			break
		}
		fields = append(fields, f)
		i, more, err = Next(data, i)
	}
	return fields, i, err
}

// Open enters the object that starts at or after i; more tells whether a member
// follows, whose key is then at the index.
func Open(data []byte, i int) (next int, more bool, err error) {
	i = Skip(data, i)
	if i >= len(data) || data[i] != '{' {
		return i, false, syntax(i, "object expected")
	}
	i = Skip(data, i+1)
	if i < len(data) && data[i] == '}' {
		return i + 1, false, nil
	}
	return i, true, nil
}

// Key scans a member's key and the colon; its value is at the index.
func Key(data []byte, i int) (Token, int, error) {
	if i >= len(data) || data[i] != '"' {
		return Token{}, i, syntax(i, "object key expected")
	}
	k, next, err := str(data, i)
	if err != nil {
		return k, i, err
	}
	if next >= len(data) || data[next] != ':' {
		if next = Skip(data, next); next >= len(data) || data[next] != ':' {
			return k, next, syntax(next, "colon expected")
		}
	}
	return k, Skip(data, next+1), nil
}

// Next passes what follows a member's value; more tells whether another member does.
func Next(data []byte, i int) (next int, more bool, err error) {
	if i = Skip(data, i); i >= len(data) {
		return i, false, syntax(i, "object cut short")
	}
	switch data[i] {
	case '}':
		return i + 1, false, nil
	case ',':
		return Skip(data, i+1), true, nil
	}
	return i, false, syntax(i, "comma or } expected")
}

// Balanced returns the index behind the object or array at i by its brackets and
// strings alone: who needs its inside checks that when it parses it.
func Balanced(data []byte, i int) (int, error) {
	start, depth := i, 0
	for i < len(data) {
		i = bracket(data, i)
		if i >= len(data) {
			break
		}
		switch data[i] {
		case '"':
			_, next, err := str(data, i)
			if err != nil {
				return i, err
			}
			i = next
			continue
		case '{', '[':
			depth++
		default:
			depth--
		}
		i++
		if depth == 0 {
			return i, nil
		}
	}
	return i, syntax(start, "value cut short")
}

// bracket is the index of the first quote or bracket at or after i.
func bracket(data []byte, i int) int {
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		q := w ^ ones*'"'
		l := w | ones*0x20
		o, c := l^ones*'{', l^ones*'}'
		m := ((q - ones) &^ q) | ((o - ones) &^ o) | ((c - ones) &^ c)
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(data); i++ {
		switch data[i] {
		case '"', '{', '[', '}', ']':
			return i
		}
	}
	return i
}

// Elements calls f for each element of a scanned array until it returns false.
func Elements(t Token, f func(Token) bool) {
	data := t.Raw
	for i := Skip(data, 1); i < len(data) && data[i] != ']'; {
		v, next, err := value(data, i, 0)
		if err != nil || !f(v) {
			return
		}
		if i = Skip(data, next); i < len(data) && data[i] == ',' {
			i = Skip(data, i+1)
		}
	}
}

// Members calls f for each member of a scanned object until it returns false.
func Members(t Token, f func(key, val Token) bool) {
	data := t.Raw
	for i := Skip(data, 1); i < len(data) && data[i] == '"'; {
		k, next, err := str(data, i)
		if err != nil {
			return
		}
		v, next, err := value(data, Skip(data, Skip(data, next)+1), 0)
		if err != nil || !f(k, v) {
			return
		}
		if i = Skip(data, next); i < len(data) && data[i] == ',' {
			i = Skip(data, i+1)
		}
	}
}

// Text is the text of a string token, in buf where it must be unescaped.
func (t Token) Text(buf []byte) []byte {
	if !t.Esc {
		return t.Raw
	}
	buf = buf[:0]
	for s := t.Raw; ; {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return append(buf, s...)
		}
		buf = append(buf, s[:n]...)
		var used int
		buf, used = unescape(buf, s[n:])
		s = s[n+used:]
	}
}

// unescape appends what the checked escape at the start of s stands for.
func unescape(buf, s []byte) ([]byte, int) {
	switch s[1] {
	case 'b':
		return append(buf, '\b'), 2
	case 'f':
		return append(buf, '\f'), 2
	case 'n':
		return append(buf, '\n'), 2
	case 'r':
		return append(buf, '\r'), 2
	case 't':
		return append(buf, '\t'), 2
	case 'u':
		r, _ := hex4(s, 2)
		if r < 0xD800 || r > 0xDFFF {
			return append(buf, string(r)...), 6
		}
		lo, _ := hex4(s, 8)
		return append(buf, string(0x10000+(r-0xD800)<<10+(lo-0xDC00))...), 12
	}
	return append(buf, s[1]), 2
}

// Is tells whether a string token's text is s.
func (t Token) Is(s string) bool {
	if t.Kind != String {
		return false
	}
	if !t.Esc {
		return string(t.Raw) == s
	}
	return string(t.Text(nil)) == s
}

// folds tells whether a string token is s, case aside.
func (t Token) folds(s string) bool {
	if t.Kind != String {
		return false
	}
	if !t.Esc {
		return bytes.EqualFold(t.Raw, []byte(s))
	}
	return bytes.EqualFold(t.Text(nil), []byte(s))
}

// JSON appends the token's whole JSON text (a string with its quotes) to buf.
func (t Token) JSON(buf []byte) []byte {
	if t.Kind != String {
		return append(buf, t.Raw...)
	}
	buf = append(buf, '"')
	buf = append(buf, t.Raw...)
	return append(buf, '"')
}

// Unique refuses an object that names a member twice.
func Unique(fields []Field) error {
	twice := func(f Field) error {
		return Poison(event.PoisonBytes, "DUPLICATE_KEY", "member %q comes twice", f.Key.Raw)
	}
	if len(fields) > 24 { // a wide flattened row
		seen := make(map[string]bool, len(fields))
		for _, f := range fields {
			if seen[string(f.Key.Raw)] {
				return twice(f)
			}
			seen[string(f.Key.Raw)] = true
		}
		return nil
	}
	for i := range fields {
		for j := range i {
			if len(fields[i].Key.Raw) == len(fields[j].Key.Raw) && bytes.Equal(fields[i].Key.Raw, fields[j].Key.Raw) {
				return twice(fields[i])
			}
		}
	}
	return nil
}
