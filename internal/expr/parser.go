package expr

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Bounds on what a text may ask for (invariant 7).
const (
	maxTextBytes = 4 << 20
	maxDepth     = 400
)

// operatorWords cannot start an expression, so they are no names without backticks.
var operatorWords = map[string]bool{
	"AND": true, "OR": true, "IN": true, "IS": true, "LIKE": true, "ILIKE": true, "RLIKE": true, "REGEXP": true,
	"BETWEEN": true, "WHEN": true, "THEN": true, "ELSE": true,
}

// reservedNames are the names that the canonical text quotes.
var reservedNames = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "IN": true, "IS": true, "LIKE": true, "ILIKE": true, "RLIKE": true,
	"REGEXP": true, "BETWEEN": true, "CASE": true, "WHEN": true, "THEN": true, "ELSE": true, "END": true,
	"NULL": true, "TRUE": true, "FALSE": true, "DIV": true, "ESCAPE": true, "SELECT": true, "CAST": true,
	"TRY_CAST": true, "INTERVAL": true, "EXISTS": true,
}

// Parse reads one expression. Every error is a *[SyntaxError].
func Parse(text string) (*Expr, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	n := p.expression(0)
	p.expectEnd()
	if p.err != nil {
		return nil, p.err
	}
	return &Expr{n}, nil
}

// ParseAssignments reads `a = x + 1, b.c = 'z'`. A target named twice is an error.
func ParseAssignments(text string) ([]Assignment, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	var out []Assignment
	seen := map[string]bool{}
	for p.err == nil {
		a := Assignment{Pos: p.cur().pos}
		a.Path = p.namePath()
		if key := strings.ToLower(strings.Join(a.Path, "\x00")); seen[key] {
			p.fail(a.Pos, fmt.Sprintf("column %s is assigned twice", strings.Join(a.Path, ".")))
		} else {
			seen[key] = true
		}
		if !p.accept("==") {
			p.expect("=")
		}
		a.Value = &Expr{p.expression(0)}
		out = append(out, a)
		if !p.accept(",") {
			break
		}
	}
	p.expectEnd()
	if p.err != nil {
		return nil, p.err
	}
	return out, nil
}

// parser is recursive descent over the tokens. After the first error it stays
// where it is: every method returns quickly and the result is dropped.
type parser struct {
	toks  []token
	at    int
	depth int
	err   error
}

func newParser(text string) (*parser, error) {
	if len(text) > maxTextBytes {
		return nil, &SyntaxError{Pos: Pos{Line: 1, Col: 1}, Msg: "text is too long", code: CodeTooDeep}
	}
	l := &lexer{text: text, line: 1, col: 1}
	toks, err := l.tokens()
	if err != nil {
		return nil, err
	}
	return &parser{toks: toks}, nil
}

func (p *parser) cur() token { return p.toks[p.at] }

func (p *parser) peek(n int) token { return p.toks[min(p.at+n, len(p.toks)-1)] }

func (p *parser) take() token {
	t := p.toks[p.at]
	if p.at < len(p.toks)-1 {
		p.at++
	}
	return t
}

func (p *parser) accept(kw string) bool {
	if p.err == nil && p.cur().is(kw) {
		p.take()
		return true
	}
	return false
}

func (p *parser) expect(kw string) {
	if p.err == nil && !p.accept(kw) {
		p.fail(p.cur().pos, fmt.Sprintf("expected '%s', found %s", kw, p.cur().describe()))
	}
}

func (p *parser) expectEnd() {
	if p.err == nil && p.cur().kind != tokEOF {
		p.fail(p.cur().pos, "unexpected "+p.cur().describe())
	}
}

func (p *parser) fail(pos Pos, msg string) *node {
	return p.failCode(pos, CodeSyntax, msg)
}

func (p *parser) failCode(pos Pos, code, msg string) *node {
	if p.err == nil {
		p.err = &SyntaxError{Pos: pos, Msg: msg, code: code}
	}
	return &node{kind: nLiteral, pos: pos, typ: schema.Void, height: 1}
}

// make gives a node its height and refuses one that is too deep.
func (p *parser) make(n node) *node {
	for _, a := range n.args {
		n.height = max(n.height, a.height)
	}
	n.height++
	if n.height > maxDepth {
		return p.failCode(n.pos, CodeTooDeep, "expression is nested too deeply")
	}
	return &n
}

// expression parses operators of at least strength p.
func (p *parser) expression(least int) *node {
	if p.err != nil {
		return p.fail(p.cur().pos, "")
	}
	if p.depth++; p.depth > maxDepth {
		p.failCode(p.cur().pos, CodeTooDeep, "expression is nested too deeply")
	}
	defer func() { p.depth-- }()
	left := p.prefix(least)
	for p.err == nil {
		next, ok := p.infix(left, least)
		if !ok {
			break
		}
		left = next
	}
	return left
}

func (p *parser) prefix(least int) *node {
	t := p.cur()
	switch {
	case t.is("NOT") || t.is("!"):
		p.take()
		return p.make(node{kind: nNot, pos: t.pos, args: []*node{p.expression(precNot)}})
	case t.is("-") || t.is("+"):
		p.take()
		if next := p.cur(); next.kind == tokNumber {
			p.take()
			n := p.number(next, t.text == "-")
			n.pos = t.pos
			return p.postfix(n)
		}
		return p.make(node{kind: nUnary, name: t.text, pos: t.pos, args: []*node{p.expression(precUnary)}})
	}
	return p.postfix(p.primary())
}

// infix continues left with one operator, if the next one is strong enough.
func (p *parser) infix(left *node, least int) (*node, bool) {
	t := p.cur()
	switch {
	case t.is("OR") && precOr >= least:
		return p.logic(nOr, left, precOr), true
	case t.is("AND") && precAnd >= least:
		return p.logic(nAnd, left, precAnd), true
	case precPredicate >= least && t.kind == tokName:
		if n, ok := p.predicate(left); ok {
			return n, true
		}
	}
	op := t.text
	switch {
	case t.kind == tokSymbol && op == "==":
		op = "="
	case t.kind == tokSymbol && op == "!=":
		op = "<>"
	case t.is("DIV"):
		op = "DIV"
	case t.kind != tokSymbol:
		return nil, false
	}
	strength, ok := binaryPrec[op]
	if !ok || strength < least {
		return nil, false
	}
	p.take()
	right := p.expression(strength + 1)
	return p.make(node{kind: nBinary, name: op, pos: t.pos, args: []*node{left, right}}), true
}

// logic reads a chain of one of AND and OR into one flat node.
func (p *parser) logic(kind nodeKind, left *node, strength int) *node {
	n := node{kind: kind, pos: left.pos}
	add := func(a *node) {
		if a.kind == kind {
			n.args = append(n.args, a.args...)
		} else {
			n.args = append(n.args, a)
		}
	}
	add(left)
	word := "AND"
	if kind == nOr {
		word = "OR"
	}
	for p.accept(word) {
		add(p.expression(strength + 1))
	}
	return p.make(n)
}

// predicate reads IS, IN, BETWEEN, LIKE and their negations.
func (p *parser) predicate(left *node) (*node, bool) {
	t := p.cur()
	neg := false
	if t.is("NOT") {
		switch next := p.peek(1); {
		case next.is("IN"), next.is("BETWEEN"), next.is("LIKE"), next.is("ILIKE"), next.is("RLIKE"), next.is("REGEXP"):
			p.take()
			neg = true
		default:
			return nil, false
		}
	}
	op := p.cur()
	switch {
	case op.is("IS"):
		p.take()
		neg = p.accept("NOT")
		if p.accept("DISTINCT") {
			p.expect("FROM")
			return p.make(node{kind: nIsFrom, pos: op.pos, neg: neg, args: []*node{left, p.expression(precCompare)}}), true
		}
		for _, what := range []string{"NULL", "TRUE", "FALSE", "UNKNOWN"} {
			if p.accept(what) {
				return p.make(node{kind: nIs, name: what, pos: op.pos, neg: neg, args: []*node{left}}), true
			}
		}
		return p.fail(p.cur().pos, "expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS, found "+p.cur().describe()), true
	case op.is("IN"):
		p.take()
		p.expect("(")
		p.refuseQuery()
		args := []*node{left}
		for p.err == nil {
			args = append(args, p.expression(0))
			if !p.accept(",") {
				break
			}
		}
		p.expect(")")
		return p.make(node{kind: nIn, pos: op.pos, neg: neg, args: args}), true
	case op.is("BETWEEN"):
		p.take()
		low := p.expression(precCompare)
		p.expect("AND")
		return p.make(node{kind: nBetween, pos: op.pos, neg: neg, args: []*node{left, low, p.expression(precCompare)}}), true
	case op.is("LIKE"), op.is("ILIKE"), op.is("RLIKE"), op.is("REGEXP"):
		p.take()
		name := strings.ToUpper(op.text)
		if name == "REGEXP" {
			name = "RLIKE"
		}
		n := node{kind: nLike, name: name, pos: op.pos, neg: neg, args: []*node{left, p.expression(precCompare)}}
		if name != "RLIKE" && p.accept("ESCAPE") {
			e := p.take()
			if e.kind != tokString || len(e.text) != 1 {
				return p.fail(e.pos, "ESCAPE needs a string of one ASCII character"), true
			}
			n.text = e.text
		}
		return p.make(n), true
	}
	return nil, false
}

func (p *parser) refuseQuery() {
	if t := p.cur(); t.is("SELECT") || t.is("WITH") && p.peek(1).kind == tokName {
		p.failCode(t.pos, CodeNotAllowed, "a subquery is not allowed in an expression")
	}
}

// postfix reads .field and [index] after a primary.
func (p *parser) postfix(n *node) *node {
	for p.err == nil {
		t := p.cur()
		switch {
		case t.is("."):
			p.take()
			name := p.name("field name")
			if n.kind == nName {
				n = &node{kind: nName, pos: n.pos, path: append(append([]string(nil), n.path...), name), height: 1}
			} else {
				n = p.make(node{kind: nField, pos: t.pos, name: name, args: []*node{n}})
			}
		case t.is("["):
			p.take()
			i := p.expression(0)
			p.expect("]")
			n = p.make(node{kind: nIndex, pos: t.pos, args: []*node{n, i}})
		default:
			return n
		}
	}
	return n
}

// name reads an identifier where any word will do, such as after a dot.
func (p *parser) name(what string) string {
	if p.err != nil {
		return ""
	}
	t := p.cur()
	if t.kind != tokName && t.kind != tokQuoted {
		p.fail(t.pos, fmt.Sprintf("expected %s, found %s", what, t.describe()))
		return ""
	}
	return p.take().text
}

func (p *parser) namePath() []string {
	path := []string{p.name("column name")}
	for p.accept(".") {
		path = append(path, p.name("field name"))
	}
	return path
}

func (p *parser) primary() *node {
	if p.err != nil {
		return p.fail(p.cur().pos, "")
	}
	t := p.take()
	switch t.kind {
	case tokNumber:
		return p.number(t, false)
	case tokString:
		return p.literal(t.pos, schema.String, BytesValue(t.text), "")
	case tokQuoted:
		if p.accept("(") {
			return p.call(t)
		}
		return p.make(node{kind: nName, pos: t.pos, path: []string{t.text}})
	case tokSymbol:
		if t.text != "(" {
			break
		}
		p.refuseQuery()
		n := p.expression(0)
		if p.err == nil && p.cur().is(",") {
			args := []*node{n}
			for p.accept(",") {
				args = append(args, p.expression(0))
			}
			n = p.make(node{kind: nCall, name: "struct", pos: t.pos, args: args})
		}
		p.expect(")")
		return n
	case tokName:
		return p.word(t)
	}
	return p.fail(t.pos, "expected an expression, found "+t.describe())
}

// word reads what starts with an unquoted word.
func (p *parser) word(t token) *node {
	up := strings.ToUpper(t.text)
	next := p.cur()
	if next.kind == tokString {
		switch up {
		case "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "X":
			p.take()
			return p.typedLiteral(t.pos, up, next)
		}
	}
	switch up {
	case "NULL":
		return p.literal(t.pos, schema.Void, Value{}, "")
	case "TRUE", "FALSE":
		return p.literal(t.pos, schema.Boolean, BoolValue(up == "TRUE"), "")
	case "CASE":
		return p.caseWhen(t.pos)
	case "CAST", "TRY_CAST":
		if next.is("(") {
			p.take()
			arg := p.expression(0)
			p.expect("AS")
			typ := p.dataType()
			p.expect(")")
			return p.make(node{kind: nCast, name: up, pos: t.pos, typ: typ, args: []*node{arg}})
		}
	case "INTERVAL":
		if next.kind == tokNumber || next.kind == tokString || next.kind == tokName && p.peek(1).kind == tokName {
			return p.failCode(t.pos, CodeNotAllowed, "INTERVAL is not supported")
		}
	case "EXISTS":
		if next.is("(") {
			return p.failCode(t.pos, CodeNotAllowed, "a subquery is not allowed in an expression")
		}
	}
	if p.accept("(") {
		return p.call(t)
	}
	if operatorWords[up] {
		return p.fail(t.pos, "expected an expression, found "+t.describe())
	}
	return p.make(node{kind: nName, pos: t.pos, path: []string{t.text}})
}

func (p *parser) call(t token) *node {
	n := node{kind: nCall, name: strings.ToLower(t.text), pos: t.pos}
	if p.accept("*") {
		p.expect(")")
		return p.failCode(t.pos, CodeNotAllowed, "aggregate function "+n.name+"(*) is not allowed")
	}
	if p.cur().is("DISTINCT") && !p.peek(1).is(")") && !p.peek(1).is(",") && p.peek(1).kind != tokSymbol {
		return p.failCode(t.pos, CodeNotAllowed, "aggregate function "+n.name+"(DISTINCT ...) is not allowed")
	}
	if !p.accept(")") {
		for p.err == nil {
			n.args = append(n.args, p.expression(0))
			if !p.accept(",") {
				break
			}
		}
		p.expect(")")
	}
	if p.err == nil && p.cur().is("OVER") && p.peek(1).is("(") {
		return p.failCode(t.pos, CodeNotAllowed, "a window is not allowed in an expression")
	}
	return p.make(n)
}

func (p *parser) caseWhen(pos Pos) *node {
	n := node{kind: nCase, pos: pos}
	if !p.cur().is("WHEN") {
		n.operand = true
		n.args = append(n.args, p.expression(0))
	}
	if p.err == nil && !p.cur().is("WHEN") {
		p.expect("WHEN")
	}
	for p.accept("WHEN") {
		n.args = append(n.args, p.expression(0))
		p.expect("THEN")
		n.args = append(n.args, p.expression(0))
	}
	if p.accept("ELSE") {
		n.otherwise = true
		n.args = append(n.args, p.expression(0))
	}
	p.expect("END")
	return p.make(n)
}

func (p *parser) literal(pos Pos, typ schema.Type, v Value, text string) *node {
	return &node{kind: nLiteral, pos: pos, typ: typ, value: v, text: text, height: 1}
}

// typedLiteral checks the text now; a timestamp without zone gets its value when
// it is bound, since only then the zone is known.
func (p *parser) typedLiteral(pos Pos, word string, s token) *node {
	switch word {
	case "X":
		text := s.text
		if len(text)%2 == 1 {
			text = "0" + text
		}
		raw := make([]byte, len(text)/2)
		for i := range raw {
			hi, lo := hexDigit(text[2*i]), hexDigit(text[2*i+1])
			if hi < 0 || lo < 0 {
				return p.failCode(s.pos, CodeInvalidLiteral, "malformed hexadecimal literal")
			}
			raw[i] = byte(hi<<4 | lo)
		}
		return p.literal(pos, schema.Binary, BytesValue(string(raw)), "")
	case "DATE":
		if d, ok := parseDate(s.text); ok {
			return p.literal(pos, schema.Date, IntValue(d), formatDate(d))
		}
		return p.failCode(s.pos, CodeInvalidLiteral, "malformed date '"+clip(s.text)+"'")
	}
	typ := schema.Timestamp
	if word == "TIMESTAMP_NTZ" {
		typ = schema.TimestampNTZ
	}
	us, ok := parseTimestamp(s.text, time.UTC, typ == schema.TimestampNTZ)
	if !ok {
		return p.failCode(s.pos, CodeInvalidLiteral, "malformed timestamp '"+clip(s.text)+"'")
	}
	return p.literal(pos, typ, IntValue(us), s.text)
}

// number gives a number its type: INT, else BIGINT, else DECIMAL; with a point
// DECIMAL; with an exponent DOUBLE; or what its suffix says.
func (p *parser) number(t token, neg bool) *node {
	body := strings.ToUpper(t.text)
	suffix := ""
	for _, s := range []string{"BD", "L", "S", "Y", "D", "F"} {
		if strings.HasSuffix(body, s) {
			suffix, body = s, strings.TrimSuffix(body, s)
			break
		}
	}
	if neg {
		body = "-" + body
	}
	bad := func(why string) *node {
		return p.failCode(t.pos, CodeInvalidLiteral, fmt.Sprintf("number '%s' %s", clip(t.text), why))
	}
	plain := !strings.ContainsAny(body, ".E")
	switch suffix {
	case "L", "S", "Y":
		typ := map[string]schema.Primitive{"L": schema.Long, "S": schema.Short, "Y": schema.Byte}[suffix]
		i, err := strconv.ParseInt(body, 10, 64)
		if err != nil || !fitsInt(i, typ) {
			return bad("is out of the range of " + typ.String())
		}
		return p.literal(t.pos, typ, IntValue(i), "")
	case "D", "F":
		bits, typ := 64, schema.Double
		if suffix == "F" {
			bits, typ = 32, schema.Float
		}
		f, err := strconv.ParseFloat(body, bits)
		if err != nil || math.IsInf(f, 0) {
			return bad("is out of the range of " + typ.String())
		}
		return p.literal(t.pos, typ, FloatValue(f), "")
	case "":
		if plain {
			if i, err := strconv.ParseInt(body, 10, 64); err == nil {
				typ := schema.Long
				if fitsInt(i, schema.Integer) {
					typ = schema.Integer
				}
				return p.literal(t.pos, typ, IntValue(i), "")
			}
		} else if strings.Contains(body, "E") {
			f, err := strconv.ParseFloat(body, 64)
			if err != nil || math.IsInf(f, 0) {
				return bad("is out of the range of DOUBLE")
			}
			return p.literal(t.pos, schema.Double, FloatValue(f), "")
		}
	}
	num, typ, ok := parseDecimal(body)
	if !ok {
		return bad("has more than 38 digits")
	}
	return p.literal(t.pos, typ, DecimalValue(num, int32(typ.Scale)), "")
}
