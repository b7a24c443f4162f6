package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// SyntaxError reports DDL text that cannot be read.
type SyntaxError struct {
	// Text is the whole text, Offset the byte the fault is at.
	Text   string
	Offset int
	// Reason says what was expected.
	Reason string
}

func (e *SyntaxError) Error() string {
	near := e.Text[min(e.Offset, len(e.Text)):]
	if len(near) > 20 {
		near = strings.ToValidUTF8(near[:20], "") + "..."
	}
	if near == "" {
		return fmt.Sprintf("schema text, character %d (at the end): %s", e.Offset+1, e.Reason)
	}
	return fmt.Sprintf("schema text, character %d (near %q): %s", e.Offset+1, near, e.Reason)
}

// CharVarcharKey is the field metadata key that holds char(n) or varchar(n) of a
// string column (W-405).
const CharVarcharKey = "__CHAR_VARCHAR_TYPE_STRING"

// ParseDDL reads a column list as users write it:
//
//	id BIGINT NOT NULL, name STRING COMMENT 'x', s STRUCT<a: INT>, d DECIMAL(10,2)
//
// Type names are those of Spark SQL, in any case; names that are not plain
// identifiers stand in backticks. Columns of the table may have rules, which go into
// the field metadata as Delta keeps them:
//
//	n INT DEFAULT 1, d DATE GENERATED ALWAYS AS (CAST(ts AS DATE)),
//	id BIGINT GENERATED [ALWAYS | BY DEFAULT] AS IDENTITY (START WITH 1 INCREMENT BY 1)
//
// The error is a *[SyntaxError].
func ParseDDL(text string) (*Struct, error) {
	p := &ddlParser{text: text}
	s, err := p.columns(0, func() bool { return p.pos >= len(p.text) })
	if err != nil {
		return nil, err
	}
	if p.space(); p.pos < len(p.text) {
		return nil, p.fail(`expected "," or the end`)
	}
	return s, nil
}

// ParseType reads one type in DDL form. The error is a *[SyntaxError].
func ParseType(text string) (Type, error) {
	p := &ddlParser{text: text}
	t, char, err := p.typ(0)
	if err != nil {
		return nil, err
	}
	if char != "" {
		return nil, &SyntaxError{text, 0, char + " is allowed only as the type of a column"}
	}
	if p.space(); p.pos < len(p.text) {
		return nil, p.fail("expected the end")
	}
	return t, nil
}

type ddlParser struct {
	text string
	pos  int
}

func (p *ddlParser) fail(reason string) error { return &SyntaxError{p.text, p.pos, reason} }

func (p *ddlParser) space() {
	for p.pos < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.pos:])
		if !unicode.IsSpace(r) {
			return
		}
		p.pos += n
	}
}

func (p *ddlParser) accept(c byte) bool {
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *ddlParser) expect(c byte) error {
	if !p.accept(c) {
		return p.fail(fmt.Sprintf("expected %q", c))
	}
	return nil
}

func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// word reads a bare word, or returns "" and does not move.
func (p *ddlParser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.pos:])
		if !isWordRune(r) || r == utf8.RuneError {
			break
		}
		p.pos += n
	}
	return p.text[start:p.pos]
}

// keyword consumes w when it is the next word.
func (p *ddlParser) keyword(w string) bool {
	start := p.pos
	if strings.EqualFold(p.word(), w) {
		return true
	}
	p.pos = start
	return false
}

func (p *ddlParser) name() (string, error) {
	if p.accept('`') {
		var b strings.Builder
		for p.pos < len(p.text) {
			i := strings.IndexByte(p.text[p.pos:], '`')
			if i < 0 {
				break
			}
			b.WriteString(p.text[p.pos : p.pos+i])
			p.pos += i + 1
			if p.pos < len(p.text) && p.text[p.pos] == '`' {
				b.WriteByte('`')
				p.pos++
				continue
			}
			if b.Len() == 0 {
				return "", p.fail("a name cannot be empty")
			}
			return b.String(), nil
		}
		return "", p.fail("the closing backtick is missing")
	}
	w := p.word()
	if w == "" {
		return "", p.fail("expected a column name (names other than letters, digits and _ go in backticks)")
	}
	return w, nil
}

func (p *ddlParser) columns(depth int, done func() bool) (*Struct, error) {
	s := &Struct{}
	if p.space(); done() {
		return s, nil
	}
	for {
		f, err := p.column(depth)
		if err != nil {
			return nil, err
		}
		s.Fields = append(s.Fields, f)
		if !p.accept(',') {
			return s, nil
		}
	}
}

func (p *ddlParser) column(depth int) (Field, error) {
	name, err := p.name()
	if err != nil {
		return Field{}, err
	}
	p.accept(':')
	t, char, err := p.typ(depth)
	if err != nil {
		return Field{}, err
	}
	f := Field{Name: name, Type: t, Nullable: true}
	if char != "" {
		f.Metadata = f.Metadata.With(CharVarcharKey, char)
	}
	return f, p.options(&f, depth)
}

func (p *ddlParser) quoted() (string, error) {
	p.space()
	if p.pos >= len(p.text) || p.text[p.pos] != '\'' && p.text[p.pos] != '"' {
		return "", p.fail("expected a quoted text")
	}
	q := p.text[p.pos]
	p.pos++
	var b strings.Builder
	for ; p.pos < len(p.text); p.pos++ {
		c := p.text[p.pos]
		switch {
		case c == '\\' && p.pos+1 < len(p.text):
			p.pos++
			b.WriteByte(p.text[p.pos])
		case c == q && p.pos+1 < len(p.text) && p.text[p.pos+1] == q:
			p.pos++
			b.WriteByte(q)
		case c == q:
			p.pos++
			return b.String(), nil
		default:
			b.WriteByte(c)
		}
	}
	return "", p.fail("the closing quote is missing")
}

var ddlTypes = map[string]Primitive{
	"STRING": String, "BIGINT": Long, "LONG": Long, "INT": Integer, "INTEGER": Integer,
	"SMALLINT": Short, "SHORT": Short, "TINYINT": Byte, "BYTE": Byte, "FLOAT": Float, "REAL": Float,
	"DOUBLE": Double, "BOOLEAN": Boolean, "BOOL": Boolean, "BINARY": Binary, "DATE": Date,
	"TIMESTAMP": Timestamp, "TIMESTAMP_LTZ": Timestamp, "TIMESTAMP_NTZ": TimestampNTZ,
	"VOID": Void, "VARIANT": Variant,
}

// typ reads a type; char is "char(n)" or "varchar(n)" when it was one.
func (p *ddlParser) typ(depth int) (t Type, char string, err error) {
	if depth > MaxDepth {
		return nil, "", p.fail(fmt.Sprintf("types nest deeper than %d", MaxDepth))
	}
	p.space()
	start := p.pos
	w := strings.ToUpper(p.word())
	if prim, ok := ddlTypes[w]; ok {
		return prim, "", nil
	}
	switch w {
	case "DECIMAL", "DEC", "NUMERIC":
		d := Decimal{10, 0}
		args, err := p.numbers(2)
		if err != nil {
			return nil, "", err
		}
		if len(args) > 0 {
			d = Decimal{Precision: args[0]}
		}
		if len(args) > 1 {
			d.Scale = args[1]
		}
		if !d.valid() {
			return nil, "", &SyntaxError{p.text, start, "decimal precision must be 1 to 38 and scale 0 to precision"}
		}
		return d, "", nil
	case "CHAR", "CHARACTER", "VARCHAR":
		args, err := p.numbers(1)
		if err != nil {
			return nil, "", err
		}
		if len(args) == 0 || args[0] < 1 {
			return nil, "", &SyntaxError{p.text, start, w + " needs a length of at least 1"}
		}
		kind := "char"
		if w == "VARCHAR" {
			kind = "varchar"
		}
		return String, fmt.Sprintf("%s(%d)", kind, args[0]), nil
	case "ARRAY":
		if err := p.expect('<'); err != nil {
			return nil, "", err
		}
		elem, err := p.inner(depth)
		if err != nil {
			return nil, "", err
		}
		return &Array{Elem: elem, ContainsNull: true}, "", p.expect('>')
	case "MAP":
		if err := p.expect('<'); err != nil {
			return nil, "", err
		}
		k, err := p.inner(depth)
		if err != nil {
			return nil, "", err
		}
		if err := p.expect(','); err != nil {
			return nil, "", err
		}
		v, err := p.inner(depth)
		if err != nil {
			return nil, "", err
		}
		return &Map{Key: k, Value: v, ValueContainsNull: true}, "", p.expect('>')
	case "STRUCT":
		if err := p.expect('<'); err != nil {
			return nil, "", err
		}
		s, err := p.columns(depth+1, func() bool { return p.pos < len(p.text) && p.text[p.pos] == '>' })
		if err != nil {
			return nil, "", err
		}
		return s, "", p.expect('>')
	case "":
		return nil, "", p.fail("expected a type")
	}
	return nil, "", &SyntaxError{p.text, start, fmt.Sprintf("unknown type %s", w)}
}

func (p *ddlParser) inner(depth int) (Type, error) {
	start := p.pos
	t, char, err := p.typ(depth + 1)
	if err == nil && char != "" {
		err = &SyntaxError{p.text, start, char + " is allowed only as the type of a column"}
	}
	return t, err
}

// numbers reads "(1, 2)" with at most n numbers, or nothing.
func (p *ddlParser) numbers(n int) ([]int, error) {
	if !p.accept('(') {
		return nil, nil
	}
	var out []int
	for {
		p.space()
		start := p.pos
		v, err := strconv.Atoi(p.word())
		if err != nil {
			return nil, &SyntaxError{p.text, start, "expected a number"}
		}
		out = append(out, v)
		if len(out) < n && p.accept(',') {
			continue
		}
		return out, p.expect(')')
	}
}
