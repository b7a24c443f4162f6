package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-data/sluice/log/schema"
)

// likePattern is a compiled LIKE pattern: literal runs, single-character and
// any-length wildcards.
type likePattern struct {
	parts []likePart
	fold  bool
}

type likePart struct {
	text string // literal, if neither of the others
	one  bool
	any  bool
}

var errLikeEscape = errors.New("the escape character of a LIKE pattern must be followed by %, _ or itself")

func compileLike(pattern string, esc byte, fold bool) (*likePattern, error) {
	if fold {
		pattern = foldCase(pattern)
	}
	p := &likePattern{fold: fold}
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			p.parts = append(p.parts, likePart{text: lit.String()})
			lit.Reset()
		}
	}
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == esc:
			if i+1 >= len(pattern) || pattern[i+1] != '%' && pattern[i+1] != '_' && pattern[i+1] != esc {
				return nil, errLikeEscape
			}
			i++
			lit.WriteByte(pattern[i])
		case c == '%':
			flush()
			if n := len(p.parts); n == 0 || !p.parts[n-1].any {
				p.parts = append(p.parts, likePart{any: true})
			}
		case c == '_':
			flush()
			p.parts = append(p.parts, likePart{one: true})
		default:
			lit.WriteByte(c)
		}
	}
	flush()
	return p, nil
}

// prefixOnly reports whether the pattern is a text followed by one %.
func (p *likePattern) prefixOnly() (string, bool) {
	if len(p.parts) == 2 && p.parts[0].text != "" && p.parts[1].any {
		return p.parts[0].text, true
	}
	return "", false
}

// match goes back only to the last % seen, so its cost is at most the product of
// the two lengths.
func (p *likePattern) match(s string) bool {
	if p.fold {
		s = foldCase(s)
	}
	at, back, backPart := 0, -1, 0
	for i := 0; ; {
		if i < len(p.parts) {
			part := p.parts[i]
			switch {
			case part.any:
				back, backPart = at, i
				i++
				continue
			case part.one && at < len(s):
				_, n := utf8.DecodeRuneInString(s[at:])
				at += n
				i++
				continue
			case !part.one && strings.HasPrefix(s[at:], part.text):
				at += len(part.text)
				i++
				continue
			}
		} else if at == len(s) {
			return true
		}
		if back < 0 || back >= len(s) {
			return false
		}
		_, n := utf8.DecodeRuneInString(s[back:])
		back += n
		at, i = back, backPart+1
	}
}

func foldCase(s string) string { return strings.ToLower(s) }

// strictText is a condition on one string.
func (b *binder) strictText(pos Pos, x *bnode, f func(s string) bool) *bnode {
	return b.function(bnode{typ: schema.Boolean, pos: pos, args: []*bnode{x}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(schema.Boolean, a[0])
		for i := range out.b {
			if out.null == nil || !out.null[i] {
				out.b[i] = f(a[0].s[i*a[0].step])
			}
		}
		return out
	}})
}

// startsWith binds a prefix test; a literal prefix can prune.
func (b *binder) startsWith(x, prefix *bnode, pos Pos) *bnode {
	op := opFunc
	if prefix.op == opLiteral && !prefix.lit.isNull(0) {
		op = opStartsWith
	}
	return b.textPair(op, x, prefix, pos, strings.HasPrefix)
}

// textPair is a condition on two strings or two binary values.
func (b *binder) textPair(op opcode, x, y *bnode, pos Pos, f func(s, t string) bool) *bnode {
	return b.function(bnode{op: op, typ: schema.Boolean, pos: pos, args: []*bnode{x, y}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(schema.Boolean, a...)
		for i := range out.b {
			if out.null == nil || !out.null[i] {
				out.b[i] = f(a[0].s[i*a[0].step], a[1].s[i*a[1].step])
			}
		}
		return out
	}})
}

// rlike takes a literal regular expression of Go's syntax.
func (b *binder) rlike(x, y *bnode, pos Pos) *bnode {
	if y.op != opLiteral {
		return b.problem(y.pos, CodeNotAllowed, "RLIKE needs a literal pattern")
	}
	if y.lit.isNull(0) {
		return literalNode(pos, schema.Boolean, Value{})
	}
	re, err := regexp.Compile(y.lit.s[0])
	if err != nil {
		return b.problem(y.pos, CodeInvalidArgument, fmt.Sprintf("malformed regular expression: %v", err))
	}
	return b.strictText(pos, x, re.MatchString)
}

func trimSpace(s, chars string, left, right bool) string {
	in := func(r rune) bool { return strings.ContainsRune(chars, r) }
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

func upperText(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return strings.ToUpper(s)
	}
	return strings.ToUpperSpecial(unicode.SpecialCase{}, strings.ReplaceAll(s, "ß", "SS"))
}
