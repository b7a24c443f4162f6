package expr

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokName
	tokQuoted // `name`
	tokString
	tokNumber
	tokSymbol
)

type token struct {
	kind tokenKind
	text string // name, string contents, number or symbol
	end  int    // offset after the token
	pos  Pos
}

// is reports whether t is the keyword kw (upper case) or the symbol kw.
func (t token) is(kw string) bool {
	switch t.kind {
	case tokName:
		return strings.EqualFold(t.text, kw)
	case tokSymbol:
		return t.text == kw
	}
	return false
}

func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "end of text"
	case tokString:
		return "string '" + clip(t.text) + "'"
	}
	return "'" + clip(t.text) + "'"
}

func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

type lexer struct {
	text string
	off  int
	line int
	col  int
}

func (l *lexer) pos() Pos { return Pos{Offset: l.off, Line: l.line, Col: l.col} }

func (l *lexer) advance(n int) {
	for _, r := range l.text[l.off : l.off+n] {
		if r == '\n' {
			l.line, l.col = l.line+1, 1
		} else {
			l.col++
		}
	}
	l.off += n
}

func (l *lexer) fail(p Pos, msg string) error { return &SyntaxError{Pos: p, Msg: msg} }

// tokens splits the whole text; the last token is the end.
func (l *lexer) tokens() ([]token, error) {
	var out []token
	for {
		if err := l.skipBlanks(); err != nil {
			return nil, err
		}
		t, err := l.next()
		if err != nil {
			return nil, err
		}
		t.end = l.off
		out = append(out, t)
		if t.kind == tokEOF {
			return out, nil
		}
	}
}

func (l *lexer) skipBlanks() error {
	for l.off < len(l.text) {
		rest := l.text[l.off:]
		r, n := utf8.DecodeRuneInString(rest)
		switch {
		case unicode.IsSpace(r):
			l.advance(n)
		case strings.HasPrefix(rest, "--"):
			if i := strings.IndexByte(rest, '\n'); i >= 0 {
				l.advance(i)
			} else {
				l.advance(len(rest))
			}
		case strings.HasPrefix(rest, "/*"):
			i := strings.Index(rest[2:], "*/")
			if i < 0 {
				return l.fail(l.pos(), "comment without end")
			}
			l.advance(i + 4)
		default:
			return nil
		}
	}
	return nil
}

var symbols = []string{"<=>", "<=", ">=", "<>", "!=", "==", "||", "(", ")", "[", "]", ",", ".", "+", "-", "*", "/", "%", "=", "<", ">", ":", "!", "~"}

func (l *lexer) next() (token, error) {
	p := l.pos()
	rest := l.text[l.off:]
	if rest == "" {
		return token{kind: tokEOF, pos: p}, nil
	}
	r, n := utf8.DecodeRuneInString(rest)
	if r == utf8.RuneError && n == 1 {
		return token{}, l.fail(p, "text is not valid UTF-8")
	}
	switch {
	case r == '\'' || r == '"':
		return l.str(p, false)
	case (r == 'r' || r == 'R') && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"'):
		l.advance(1)
		return l.str(p, true)
	case r == '`':
		return l.quoted(p)
	case r >= '0' && r <= '9', r == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		return l.number(p)
	case r == '_' || unicode.IsLetter(r):
		i := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
		})
		if i < 0 {
			i = len(rest)
		}
		l.advance(i)
		return token{kind: tokName, text: rest[:i], pos: p}, nil
	}
	for _, s := range symbols {
		if strings.HasPrefix(rest, s) {
			l.advance(len(s))
			return token{kind: tokSymbol, text: s, pos: p}, nil
		}
	}
	return token{}, l.fail(p, "unexpected character '"+string(r)+"'")
}

func (l *lexer) quoted(p Pos) (token, error) {
	var b strings.Builder
	rest := l.text[l.off:]
	for i := 1; i < len(rest); i++ {
		if rest[i] != '`' {
			b.WriteByte(rest[i])
			continue
		}
		if i+1 < len(rest) && rest[i+1] == '`' {
			b.WriteByte('`')
			i++
			continue
		}
		if i == 1 {
			return token{}, l.fail(p, "empty quoted name")
		}
		l.advance(i + 1)
		return token{kind: tokQuoted, text: b.String(), pos: p}, nil
	}
	return token{}, l.fail(p, "quoted name without end")
}

// str reads a string literal. A doubled quote is the quote; unless raw, a
// backslash escapes as in Spark.
func (l *lexer) str(p Pos, raw bool) (token, error) {
	var b strings.Builder
	rest := l.text[l.off:]
	quote := rest[0]
	for i := 1; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == quote && !raw && i+1 < len(rest) && rest[i+1] == quote:
			b.WriteByte(quote)
			i++
		case c == quote:
			l.advance(i + 1)
			return token{kind: tokString, text: b.String(), pos: p}, nil
		case c == '\\' && !raw && i+1 < len(rest):
			i += unescape(&b, rest[i+1:])
		default:
			b.WriteByte(c)
		}
	}
	return token{}, l.fail(p, "string without end")
}

// unescape writes what the escape after a backslash means and returns how many
// bytes of s it took.
func unescape(b *strings.Builder, s string) int {
	hex := func(n int) (rune, bool) {
		if len(s) < n+1 {
			return 0, false
		}
		var r rune
		for _, c := range []byte(s[1 : n+1]) {
			d := hexDigit(c)
			if d < 0 {
				return 0, false
			}
			r = r<<4 | rune(d)
		}
		return r, true
	}
	switch s[0] {
	case '0', '1', '2', '3':
		if len(s) >= 3 && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7' {
			b.WriteRune(rune(s[0]-'0')<<6 | rune(s[1]-'0')<<3 | rune(s[2]-'0'))
			return 3
		}
		if s[0] == '0' {
			b.WriteByte(0)
		} else {
			b.WriteByte(s[0])
		}
	case 'u':
		if r, ok := hex(4); ok {
			if r >= 0xD800 && r < 0xDC00 && len(s) >= 11 && s[5] == '\\' && s[6] == 'u' {
				var low rune
				for _, c := range []byte(s[7:11]) {
					low = low<<4 | rune(max(hexDigit(c), 0))
				}
				if low >= 0xDC00 && low < 0xE000 {
					b.WriteRune((r-0xD800)<<10 + (low - 0xDC00) + 0x10000)
					return 11
				}
			}
			b.WriteRune(r)
			return 5
		}
		b.WriteByte('u')
	case 'U':
		if r, ok := hex(8); ok {
			b.WriteRune(r)
			return 9
		}
		b.WriteByte('U')
	case 'b':
		b.WriteByte('\b')
	case 'n':
		b.WriteByte('\n')
	case 'r':
		b.WriteByte('\r')
	case 't':
		b.WriteByte('\t')
	case 'Z':
		b.WriteByte(0x1a)
	case '%', '_': // kept for LIKE
		b.WriteByte('\\')
		b.WriteByte(s[0])
	default:
		b.WriteByte(s[0])
	}
	return 1
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

// number reads digits, fraction, exponent and type suffix; the parser takes it apart.
func (l *lexer) number(p Pos) (token, error) {
	rest := l.text[l.off:]
	digits := func(i int) int {
		for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
			i++
		}
		return i
	}
	i := digits(0)
	if i < len(rest) && rest[i] == '.' {
		i = digits(i + 1)
	}
	if i < len(rest) && (rest[i] == 'e' || rest[i] == 'E') {
		j := i + 1
		if j < len(rest) && (rest[j] == '+' || rest[j] == '-') {
			j++
		}
		if k := digits(j); k > j {
			i = k
		}
	}
	j := i
	for j < len(rest) && (rest[j] == '_' || rest[j] >= '0' && rest[j] <= '9' || rest[j] >= 'a' && rest[j] <= 'z' || rest[j] >= 'A' && rest[j] <= 'Z') {
		j++
	}
	switch strings.ToUpper(rest[i:j]) {
	case "", "L", "S", "Y", "D", "F", "BD":
	default:
		return token{}, l.fail(p, "malformed number '"+clip(rest[:j])+"'")
	}
	l.advance(j)
	return token{kind: tokNumber, text: rest[:j], pos: p}, nil
}
