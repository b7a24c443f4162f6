package sql

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokWord
	tokQuoted // `name`
	tokString
	tokNumber
	tokSymbol // one character
)

// token is one token; [off, end) are its bytes in the text.
type token struct {
	kind     tokenKind
	text     string // word, name or contents of a string; else as it stands
	off, end int
	pos      Pos
	endLine  int
}

func (t token) is(word string) bool {
	switch t.kind {
	case tokWord:
		return strings.EqualFold(t.text, word)
	case tokSymbol:
		return t.text == word
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
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// comment is text between tokens, kept for the formatter.
type comment struct {
	text         string
	off          int
	line, toLine int
}

type lexer struct {
	text     string
	off      int
	pos      Pos
	comments []comment
}

func (l *lexer) advance(n int) {
	for _, r := range l.text[l.off : l.off+n] {
		if r == '\n' {
			l.pos = Pos{l.pos.Line + 1, 1}
		} else {
			l.pos.Col++
		}
	}
	l.off += n
}

// lex splits a text into tokens and comments; the last token is the end. Strings,
// quoted names and numbers end where those of expressions end.
func lex(text string) ([]token, []comment, *Error) {
	l := &lexer{text: text, pos: Pos{1, 1}}
	if strings.HasPrefix(text, "\ufeff") {
		l.off = len("\ufeff")
	}
	var out []token
	for {
		if err := l.blanks(); err != nil {
			return out, l.comments, err
		}
		t := token{off: l.off, pos: l.pos}
		err := l.next(&t)
		t.end, t.endLine = l.off, l.pos.Line
		if err != nil {
			return out, l.comments, err
		}
		out = append(out, t)
		if t.kind == tokEOF {
			return out, l.comments, nil
		}
	}
}

func (l *lexer) fail(msg, remedy string) *Error {
	return &Error{Code: CodeSyntax, Line: l.pos.Line, Col: l.pos.Col, Message: msg, Remedy: remedy}
}

func (l *lexer) blanks() *Error {
	for l.off < len(l.text) {
		rest := l.text[l.off:]
		r, n := utf8.DecodeRuneInString(rest)
		size := 0
		switch {
		case unicode.IsSpace(r):
			l.advance(n)
			continue
		case strings.HasPrefix(rest, "--"):
			if size = strings.IndexByte(rest, '\n'); size < 0 {
				size = len(rest)
			}
		case strings.HasPrefix(rest, "/*"):
			i := strings.Index(rest[2:], "*/")
			if i < 0 {
				return l.fail("comment without end", "close it with */")
			}
			size = i + 4
		default:
			return nil
		}
		c := comment{text: strings.TrimRightFunc(rest[:size], unicode.IsSpace), off: l.off, line: l.pos.Line}
		l.advance(size)
		c.toLine = l.pos.Line
		l.comments = append(l.comments, c)
	}
	return nil
}

func (l *lexer) next(t *token) *Error {
	rest := l.text[l.off:]
	if rest == "" {
		return nil
	}
	r, n := utf8.DecodeRuneInString(rest)
	switch {
	case r == utf8.RuneError && n == 1:
		return l.fail("text is not valid UTF-8", "save the file as UTF-8")
	case r == '\'' || r == '"':
		return l.str(t, rest, 0)
	case (r == 'r' || r == 'R') && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"'):
		return l.str(t, rest, 1)
	case r == '`':
		return l.quoted(t, rest)
	case isDigit(rest[0]) || r == '.' && len(rest) > 1 && isDigit(rest[1]):
		size := numberSize(rest)
		t.kind, t.text = tokNumber, rest[:size]
		l.advance(size)
	case r == '_' || unicode.IsLetter(r):
		size := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
		})
		if size < 0 {
			size = len(rest)
		}
		t.kind, t.text = tokWord, rest[:size]
		l.advance(size)
	default:
		t.kind, t.text = tokSymbol, rest[:n]
		l.advance(n)
	}
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// numberSize is the length of digits, fraction, exponent and type suffix.
func numberSize(s string) int {
	digits := func(i int) int {
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i
	}
	i := digits(0)
	if i < len(s) && s[i] == '.' {
		i = digits(i + 1)
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if k := digits(j); k > j {
			i = k
		}
	}
	for i < len(s) && (s[i] == '_' || isDigit(s[i]) || s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z') {
		i++
	}
	return i
}

func (l *lexer) quoted(t *token, rest string) *Error {
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] != '`':
			b.WriteByte(rest[i])
		case i+1 < len(rest) && rest[i+1] == '`':
			b.WriteByte('`')
			i++
		case i == 1:
			return l.fail("a quoted name is empty", "write the name between the backticks")
		default:
			t.kind, t.text = tokQuoted, b.String()
			l.advance(i + 1)
			return nil
		}
	}
	return l.fail("quoted name without end", "close it with a backtick")
}

// str reads a string literal whose quote stands at i; one after an r is raw.
func (l *lexer) str(t *token, rest string, i int) *Error {
	raw, quote := i == 1, rest[i]
	var b strings.Builder
	for i++; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == quote && !raw && i+1 < len(rest) && rest[i+1] == quote:
			b.WriteByte(quote)
			i++
		case c == quote:
			t.kind, t.text = tokString, b.String()
			l.advance(i + 1)
			return nil
		case c == '\\' && !raw && i+1 < len(rest):
			i++
			switch rest[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			default:
				b.WriteByte(rest[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return l.fail("string without end", "close it with "+string(quote))
}

// quoteString writes a string literal that str reads back.
func quoteString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + "'"
}
