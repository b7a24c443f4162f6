package expr

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/sluice-data/sluice/log/schema"
)

// maxTextResult bounds what one function call may build.
const maxTextResult = 64 << 20

func mapText(f func(string) string) function {
	return function{1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		x := b.text(a[0], n.name)
		return b.scalar(schema.String, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			out.s[i] = f(in[0].str(i))
			return nil
		})
	}}
}

func trimmer(left, right bool) function {
	return function{1, 2, func(b *binder, a []*bnode, n *node) *bnode {
		args := []*bnode{b.text(a[0], n.name)}
		if len(a) == 2 {
			args = append(args, b.text(a[1], n.name))
			if n.name != "btrim" {
				args[0], args[1] = args[1], args[0] // ltrim(chars, text)
			}
		}
		return b.scalar(schema.String, n.pos, args, func(out *vector, i int, in []*vector) error {
			chars := " "
			if len(in) == 2 {
				chars = in[1].str(i)
			}
			out.s[i] = trimSpace(in[0].str(i), chars, left, right)
			return nil
		})
	}}
}

func textTest(f func(s, t string) bool, prefix bool) function {
	return function{2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		x, y := a[0], a[1]
		if x.typ != schema.Binary || y.typ != schema.Binary {
			x, y = b.text(x, n.name), b.text(y, n.name)
		}
		if prefix {
			return b.startsWith(x, y, n.pos)
		}
		return b.textPair(opFunc, x, y, n.pos, f)
	}}
}

var (
	lengthFunction    = function{1, 1, bindLength}
	substringFunction = function{2, 3, bindSubstring}
)

var textFunctions = map[string]function{
	"lower": mapText(strings.ToLower), "lcase": mapText(strings.ToLower),
	"upper": mapText(upperText), "ucase": mapText(upperText),
	"trim": trimmer(true, true), "btrim": trimmer(true, true), "ltrim": trimmer(true, false), "rtrim": trimmer(false, true),
	"length": lengthFunction, "len": lengthFunction, "char_length": lengthFunction, "character_length": lengthFunction,
	"substring": substringFunction, "substr": substringFunction,
	"contains":   textTest(strings.Contains, false),
	"startswith": textTest(strings.HasPrefix, true),
	"endswith":   textTest(strings.HasSuffix, false),
	"concat":     {1, -1, func(b *binder, a []*bnode, n *node) *bnode { return b.concat(a, n.pos) }},
	"octet_length": {1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		x := a[0]
		if x.typ != schema.Binary {
			x = b.text(x, n.name)
		}
		return b.scalar(schema.Integer, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			out.i[i] = int64(len(in[0].str(i)))
			return nil
		})
	}},
	"left":  {2, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.edge(a, n, true) }},
	"right": {2, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.edge(a, n, false) }},
	"replace": {2, 3, func(b *binder, a []*bnode, n *node) *bnode {
		if len(a) == 2 {
			a = append(a, literalNode(n.pos, schema.String, BytesValue("")))
		}
		for i := range a {
			a[i] = b.text(a[i], n.name)
		}
		return b.scalar(schema.String, n.pos, a, func(out *vector, i int, in []*vector) error {
			s, from, to := in[0].str(i), in[1].str(i), in[2].str(i)
			out.s[i] = s
			if from == "" {
				return nil
			}
			if grow := len(to) - len(from); grow > 0 && strings.Count(s, from)*grow > maxTextResult {
				return &EvalError{CodeName: CodeInvalidArgument, Pos: n.pos, Msg: "result of replace is too long"}
			}
			out.s[i] = strings.ReplaceAll(s, from, to)
			return nil
		})
	}},
	"concat_ws": {1, -1, bindConcatWS},
	"instr": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		args := []*bnode{b.text(a[0], n.name), b.text(a[1], n.name)}
		return b.scalar(schema.Integer, n.pos, args, func(out *vector, i int, in []*vector) error {
			s := in[0].str(i)
			if at := strings.Index(s, in[1].str(i)); at >= 0 {
				out.i[i] = int64(utf8.RuneCountInString(s[:at])) + 1
			}
			return nil
		})
	}},
	"regexp_like": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		return b.rlike(b.text(a[0], n.name), b.text(a[1], n.name), n.pos)
	}},
}

func bindLength(b *binder, a []*bnode, n *node) *bnode {
	x := a[0]
	binary := x.typ == schema.Binary
	if !binary {
		x = b.text(x, n.name)
	}
	return b.scalar(schema.Integer, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		if binary {
			out.i[i] = int64(len(in[0].str(i)))
		} else {
			out.i[i] = int64(utf8.RuneCountInString(in[0].str(i)))
		}
		return nil
	})
}

// concat binds ||: two binary values stay binary, everything else becomes text.
func (b *binder) concat(a []*bnode, pos Pos) *bnode {
	typ := schema.Binary
	for _, x := range a {
		if x.typ != schema.Binary {
			typ = schema.String
		}
	}
	if typ == schema.String {
		a = append([]*bnode(nil), a...)
		for i := range a {
			a[i] = b.text(a[i], "concat")
		}
	}
	return b.scalar(typ, pos, a, func(out *vector, i int, in []*vector) error {
		var s strings.Builder
		for _, v := range in {
			if s.WriteString(v.str(i)); s.Len() > maxTextResult {
				return &EvalError{CodeName: CodeInvalidArgument, Pos: pos, Msg: "result of concat is too long"}
			}
		}
		out.s[i] = s.String()
		return nil
	})
}

// bindConcatWS joins what is not null; only a null separator gives null.
func bindConcatWS(b *binder, a []*bnode, n *node) *bnode {
	for i := range a {
		a[i] = b.text(a[i], n.name)
	}
	return b.function(bnode{typ: schema.String, pos: n.pos, args: a, fn: func(c *context, in []*vector) *vector {
		out := c.blank(schema.String, in...)
		rows := out.rows(c)
		for _, v := range in {
			out.takeErrs(v, rows)
		}
		for i := range rows {
			if in[0].isNull(i) {
				out.setNull(i, rows)
				continue
			}
			var parts []string
			for _, v := range in[1:] {
				if !v.isNull(i) {
					parts = append(parts, v.str(i))
				}
			}
			out.s[i] = strings.Join(parts, in[0].str(i))
		}
		return out
	}})
}

// edge binds left(text, n) and right(text, n), counted in characters.
func (b *binder) edge(a []*bnode, n *node, left bool) *bnode {
	args := []*bnode{b.text(a[0], n.name), b.integer(a[1], n.name)}
	return b.scalar(schema.String, n.pos, args, func(out *vector, i int, in []*vector) error {
		s, k := in[0].str(i), in[1].int(i)
		switch {
		case k <= 0:
		case left:
			out.s[i] = s[:runeOffset(s, k)]
		default:
			out.s[i] = s[runeOffset(s, int64(utf8.RuneCountInString(s))-k):]
		}
		return nil
	})
}

// runeOffset is the byte offset of character k, clamped to the text.
func runeOffset(s string, k int64) int {
	if k <= 0 {
		return 0
	}
	for i := range s {
		if k == 0 {
			return i
		}
		k--
	}
	return len(s)
}

// bindSubstring counts characters from 1, or from the end if negative; bytes for
// binary.
func bindSubstring(b *binder, a []*bnode, n *node) *bnode {
	x := a[0]
	binary := x.typ == schema.Binary
	typ := schema.Binary
	if !binary {
		x, typ = b.text(x, n.name), schema.String
	}
	args := []*bnode{x, b.integer(a[1], n.name)}
	if len(a) == 3 {
		args = append(args, b.integer(a[2], n.name))
	}
	return b.scalar(typ, n.pos, args, func(out *vector, i int, in []*vector) error {
		s, start, count := in[0].str(i), in[1].int(i), int64(math.MaxInt32)
		if len(in) == 3 {
			count = in[2].int(i)
		}
		length := int64(len(s))
		if !binary {
			length = int64(utf8.RuneCountInString(s))
		}
		switch {
		case start > 0:
			start--
		case start < 0:
			start = max(start, math.MinInt32) + length
		}
		end := min(start, math.MaxInt32) + min(count, math.MaxInt32)
		start, end = min(max(start, 0), length), min(max(end, 0), length)
		if end <= start {
			return nil
		}
		if binary {
			out.s[i] = s[start:end]
		} else {
			from := runeOffset(s, start)
			out.s[i] = s[from : from+runeOffset(s[from:], end-start)]
		}
		return nil
	})
}
