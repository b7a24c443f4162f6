package expr

import (
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

type nodeKind uint8

const (
	nLiteral nodeKind = iota
	nName             // path
	nField            // args[0].name
	nIndex            // args[0][args[1]]
	nCall             // name(args)
	nUnary            // name is - or +
	nBinary           // name is the operator
	nAnd              // two or more args
	nOr
	nNot
	nIs      // name is NULL, TRUE, FALSE, UNKNOWN; neg
	nIsFrom  // args[0] IS [NOT] DISTINCT FROM args[1]; neg means IS NOT DISTINCT FROM
	nIn      // args[0] [NOT] IN (args[1:])
	nBetween // args[0] [NOT] BETWEEN args[1] AND args[2]
	nLike    // args[0] [NOT] name args[1]; text is the escape character
	nCase    // [operand], when, then, ..., [else]; operand and otherwise say which are there
	nCast    // name is CAST or TRY_CAST, typ
)

// node is one node of the tree that a text means. It is not changed after
// parsing.
type node struct {
	kind      nodeKind
	pos       Pos
	name      string
	path      []string
	args      []*node
	text      string
	neg       bool
	operand   bool
	otherwise bool
	typ       schema.Type // type of a literal, target of a cast
	value     Value
	height    int
}

// Expr is a parsed expression. It knows nothing of a schema; it is immutable and
// safe to share.
type Expr struct{ root *node }

// Assignment is one `path = value` of an UPDATE.
type Assignment struct {
	Path  []string // name of a column, or of a field in it
	Pos   Pos      // of the path
	Value *Expr
}

// String is the canonical text: upper-case keywords, lower-case function names,
// parentheses only where they are needed. It parses back to the same tree.
func (e *Expr) String() string {
	var b strings.Builder
	e.root.print(&b, 0)
	return b.String()
}

// Column is the expression that names a column or a field in it.
func Column(path ...string) *Expr {
	return &Expr{&node{kind: nName, path: append([]string(nil), path...), height: 1}}
}

// And joins expressions; without any it is TRUE. Nil expressions are left out.
func And(list ...*Expr) *Expr {
	var args []*node
	for _, e := range list {
		if e == nil {
			continue
		}
		if e.root.kind == nAnd {
			args = append(args, e.root.args...)
		} else {
			args = append(args, e.root)
		}
	}
	switch len(args) {
	case 0:
		return &Expr{&node{kind: nLiteral, typ: schema.Boolean, value: Value{Kind: KindBool, Bool: true}, height: 1}}
	case 1:
		return &Expr{args[0]}
	}
	h := 0
	for _, a := range args {
		h = max(h, a.height)
	}
	return &Expr{&node{kind: nAnd, pos: args[0].pos, args: args, height: h + 1}}
}

// Conjuncts are the operands of a top-level AND, or the expression itself.
func (e *Expr) Conjuncts() []*Expr {
	if e.root.kind != nAnd {
		return []*Expr{e}
	}
	out := make([]*Expr, len(e.root.args))
	for i, a := range e.root.args {
		out[i] = &Expr{a}
	}
	return out
}

// NonDeterministic lists the functions in e whose value is not fixed by the row,
// such as current_timestamp, each once, in text order. [Expr.Bind] refuses them.
func (e *Expr) NonDeterministic() []string {
	var out []string
	seen := map[string]bool{}
	e.root.walk(func(n *node) {
		name := ""
		if n.kind == nCall {
			name = n.name
		} else if n.kind == nName && len(n.path) == 1 {
			if low := strings.ToLower(n.path[0]); bareClock(low) {
				name = low
			}
		}
		if why, refused := refusedFunctions[name]; refused && why == CodeNonDeterministic && !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	})
	return out
}

func (n *node) walk(f func(*node)) {
	f(n)
	for _, a := range n.args {
		a.walk(f)
	}
}

// Binding strength of operators, weakest first.
const (
	precOr = iota + 1
	precAnd
	precNot
	precPredicate
	precCompare
	precAdd
	precMultiply
	precUnary
	precPostfix
)

var binaryPrec = map[string]int{
	"=": precCompare, "<>": precCompare, "<": precCompare, "<=": precCompare, ">": precCompare, ">=": precCompare, "<=>": precCompare,
	"+": precAdd, "-": precAdd, "||": precAdd, "*": precMultiply, "/": precMultiply, "%": precMultiply, "DIV": precMultiply,
}

func (n *node) prec() int {
	switch n.kind {
	case nOr:
		return precOr
	case nAnd:
		return precAnd
	case nNot:
		return precNot
	case nIs, nIsFrom, nIn, nBetween, nLike:
		return precPredicate
	case nBinary:
		return binaryPrec[n.name]
	case nUnary:
		return precUnary
	case nLiteral:
		if n.value.negative() { // prints a leading minus
			return precUnary
		}
	}
	return precPostfix
}

// print writes n in a place that needs at least strength p.
func (n *node) print(b *strings.Builder, p int) {
	if n.prec() < p {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	list := func(args []*node, sep string, p int) {
		for i, a := range args {
			if i > 0 {
				b.WriteString(sep)
			}
			a.print(b, p)
		}
	}
	not := func() {
		if n.neg {
			b.WriteString(" NOT")
		}
	}
	switch n.kind {
	case nLiteral:
		b.WriteString(n.literalText())
	case nName:
		for i, s := range n.path {
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(quoteName(s))
		}
	case nField:
		n.args[0].printAtom(b)
		b.WriteByte('.')
		b.WriteString(quoteName(n.name))
	case nIndex:
		n.args[0].printAtom(b)
		b.WriteByte('[')
		n.args[1].print(b, 0)
		b.WriteByte(']')
	case nCall:
		b.WriteString(quoteName(n.name))
		b.WriteByte('(')
		list(n.args, ", ", 0)
		b.WriteByte(')')
	case nUnary:
		b.WriteString(n.name)
		b.WriteByte(' ') // never --, never a negative literal
		if n.args[0].kind == nLiteral {
			n.args[0].printAtom(b)
		} else {
			n.args[0].print(b, precUnary)
		}
	case nBinary:
		n.args[0].print(b, n.prec())
		b.WriteString(" " + n.name + " ")
		n.args[1].print(b, n.prec()+1)
	case nAnd:
		list(n.args, " AND ", precAnd+1)
	case nOr:
		list(n.args, " OR ", precOr+1)
	case nNot:
		b.WriteString("NOT ")
		n.args[0].print(b, precNot)
	case nIs:
		n.args[0].print(b, precCompare)
		b.WriteString(" IS")
		not()
		b.WriteString(" " + n.name)
	case nIsFrom:
		n.args[0].print(b, precCompare)
		b.WriteString(" IS")
		not()
		b.WriteString(" DISTINCT FROM ")
		n.args[1].print(b, precCompare)
	case nIn:
		n.args[0].print(b, precCompare)
		not()
		b.WriteString(" IN (")
		list(n.args[1:], ", ", 0)
		b.WriteByte(')')
	case nBetween:
		n.args[0].print(b, precCompare)
		not()
		b.WriteString(" BETWEEN ")
		list(n.args[1:], " AND ", precCompare)
	case nLike:
		n.args[0].print(b, precCompare)
		not()
		b.WriteString(" " + n.name + " ")
		n.args[1].print(b, precCompare)
		if n.text != "" {
			b.WriteString(" ESCAPE " + quoteString(n.text))
		}
	case nCase:
		n.printCase(b)
	case nCast:
		b.WriteString(n.name + "(")
		n.args[0].print(b, 0)
		b.WriteString(" AS " + n.typ.String() + ")")
	}
}

// printAtom prints what a minus or a postfix operator applies to, so that a
// literal does not melt into it.
func (n *node) printAtom(b *strings.Builder) {
	if n.kind == nLiteral {
		n.print(b, precPostfix+1)
		return
	}
	n.print(b, precPostfix)
}

func (n *node) printCase(b *strings.Builder) {
	args := n.args
	b.WriteString("CASE")
	if n.operand {
		b.WriteByte(' ')
		args[0].print(b, 0)
		args = args[1:]
	}
	for len(args) >= 2 {
		b.WriteString(" WHEN ")
		args[0].print(b, 0)
		b.WriteString(" THEN ")
		args[1].print(b, 0)
		args = args[2:]
	}
	if n.otherwise {
		b.WriteString(" ELSE ")
		args[0].print(b, 0)
	}
	b.WriteString(" END")
}

// quoteName writes a name so that it is never taken for a keyword.
func quoteName(s string) string {
	if reservedNames[strings.ToUpper(s)] {
		return "`" + s + "`"
	}
	return schema.QuoteName(s)
}

func quoteString(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i+1 < len(s) && (s[i+1] == '%' || s[i+1] == '_') {
				b.WriteByte('\\') // \% and \_ stand for themselves
				continue
			}
			b.WriteString(`\\`)
		case '\'':
			b.WriteString(`\'`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case 0:
			b.WriteString(`\000`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
