package sql

import (
	"strconv"
	"strings"
)

// maxTextBytes bounds a script (invariant 6).
const maxTextBytes = 4 << 20

// Parse reads a script of statements. The error is [Errors] with every problem of
// phase P, at most one of them per statement being one that stopped its reading.
func Parse(text string) (*Script, error) {
	s, ps := parse(text)
	if err := ps.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// parser is recursive descent over the tokens. After a syntax error it stays
// where it is until the statement is given up: every method returns quickly.
type parser struct {
	problems
	text   string
	toks   []token
	at     int
	broken bool   // the statement at hand has a syntax error
	form   string // how the clause or statement at hand is written
	script *Script
	lay    *layout
}

func parse(text string) (*Script, *problems) {
	p := &parser{text: text, script: &Script{}}
	if len(text) > maxTextBytes {
		p.add(Pos{1, 1}, CodeSyntax, "split the script", "text is longer than %d bytes", maxTextBytes)
		return p.script, &p.problems
	}
	toks, comments, err := lex(text)
	if err != nil {
		p.list = append(p.list, err)
		toks = append(toks, token{kind: tokEOF, off: len(text), end: len(text), pos: Pos{err.Line, err.Col}})
		// What stands before the fault may hold problems of its own; the statement
		// with the fault would only repeat it.
		last := 0
		for i, t := range toks {
			if t.is(";") {
				last = i + 1
			}
		}
		toks = append(toks[:last:last], toks[len(toks)-1])
	}
	p.toks = toks
	p.lay = &layout{comments: comments, text: text}
	p.script.text = p.lay
	for p.cur().kind != tokEOF {
		if p.accept(";") {
			continue
		}
		p.statement()
		p.broken, p.form = false, ""
		for p.cur().kind != tokEOF && !p.cur().is(";") {
			p.at++
		}
	}
	p.lay.tokens = toks
	return p.script, &p.problems
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

func (p *parser) fail(t token, remedy, format string, args ...any) {
	p.failCode(t, CodeSyntax, remedy, format, args...)
}

func (p *parser) failCode(t token, code, remedy, format string, args ...any) {
	if !p.broken {
		p.broken = true
		if remedy == "" && p.form != "" {
			remedy = "the form is " + p.form
		}
		p.add(t.pos, code, remedy, format, args...)
	}
}

// next tells whether these words (or symbols) come next.
func (p *parser) next(words ...string) bool {
	for i, w := range words {
		if !p.peek(i).is(w) {
			return false
		}
	}
	return !p.broken
}

// accept takes the words if all of them come next.
func (p *parser) accept(words ...string) bool {
	if !p.next(words...) {
		return false
	}
	p.at += len(words)
	return true
}

func (p *parser) expect(words ...string) {
	for _, w := range words {
		if !p.broken && !p.accept(w) {
			p.fail(p.cur(), "", "expected %s, found %s", w, p.cur().describe())
		}
	}
}

// ident reads one identifier; any word is one.
func (p *parser) ident(what string) string {
	t := p.cur()
	if p.broken {
		return ""
	}
	if t.kind != tokWord && t.kind != tokQuoted {
		remedy := ""
		if t.kind == tokString {
			remedy = "names stand in backticks, not in quotes"
		}
		p.fail(t, remedy, "expected %s, found %s", what, t.describe())
		return ""
	}
	p.take()
	return t.text
}

// name reads up to three identifiers joined by dots and drops a leading LIVE.
func (p *parser) name(what string) string {
	start := p.cur()
	parts := []string{p.ident(what)}
	for p.accept(".") {
		parts = append(parts, p.ident(what))
	}
	if len(parts) > 1 && start.is("LIVE") {
		parts = parts[1:]
	}
	if len(parts) > 3 {
		p.fail(start, "a name is catalog.schema.table at most", "%s has %d parts", what, len(parts))
	}
	for i, s := range parts {
		parts[i] = encodeIdent(s)
	}
	return strings.Join(parts, ".")
}

func (p *parser) str(what string) string {
	t := p.cur()
	if p.broken {
		return ""
	}
	if t.kind != tokString {
		p.fail(t, "", "expected %s, found %s", what, t.describe())
		return ""
	}
	p.take()
	return t.text
}

func (p *parser) statement() {
	start := p.cur()
	p.lay.begin(p.at)
	defer func() { p.lay.finish(p.at) }()
	at := positions{"": start.pos}
	switch {
	case p.accept("APPLY", "CHANGES"):
		p.form = forms["APPLY CHANGES"]
		f := &Flow{bare: true, at: at}
		p.expect("INTO")
		p.target(f)
		p.feed(f, f.at)
		p.endFlow(f)
	case p.accept("CREATE"):
		p.create(start, at)
	default:
		p.fail(start, "statements are CREATE STREAMING TABLE, CREATE FLOW, APPLY CHANGES INTO and CREATE SOURCE", "unexpected %s", start.describe())
	}
}

func (p *parser) endFlow(f *Flow) {
	p.end()
	p.script.Flows = append(p.script.Flows, f)
	p.script.order = append(p.script.order, f)
}

// end refuses what stands between a statement and its semicolon.
func (p *parser) end() {
	t := p.cur()
	if p.broken || t.kind == tokEOF || t.is(";") {
		return
	}
	if what := p.wider(); what != "" {
		p.failCode(t, CodeUnsupportedClause, "leave it out", "%s is not supported", what)
		return
	}
	p.fail(t, "statements end with ;", "unexpected %s", t.describe())
}

// wider names a clause of the wider grammar that comes next, "" if none does.
func (p *parser) wider() string {
	for _, words := range [][]string{{"SCHEDULE"}, {"TRIGGER"}, {"LOCATION"}, {"WITH", "ROW", "FILTER"}, {"ROW", "FILTER"}, {"MASK"},
		{"DEFAULT", "COLLATION"}, {"TAGS"}, {"CLONE"}} {
		if p.next(words...) {
			return strings.Join(words, " ")
		}
	}
	if p.next("AS") {
		return "a query together with a flow"
	}
	return ""
}

func (p *parser) create(start token, at positions) {
	p.form = forms["CREATE STREAMING TABLE"]
	orRefresh := false
	or := p.cur()
	if p.accept("OR") {
		if p.next("REPLACE") {
			p.fail(p.cur(), "write CREATE OR REFRESH", "OR REPLACE is not allowed")
		}
		p.expect("REFRESH")
		orRefresh = true
	}
	private := p.accept("PRIVATE")
	switch {
	case p.accept("STREAMING"):
		p.expect("TABLE")
		p.table(&Table{at: at, OrRefresh: orRefresh, Private: private})
	case private:
		p.fail(p.cur(), "", "expected STREAMING TABLE after PRIVATE, found %s", p.cur().describe())
	case p.accept("FLOW"):
		p.form = forms["CREATE FLOW"]
		p.flow(&Flow{at: at, OrRefresh: orRefresh})
	case p.next("SOURCE"):
		if orRefresh {
			p.fail(or, "write CREATE SOURCE", "OR REFRESH is not allowed for a source")
		}
		p.take()
		p.form = forms["CREATE SOURCE"]
		p.source(&Source{at: at})
	case p.next("MATERIALIZED", "VIEW"), p.next("TEMPORARY", "VIEW"), p.next("TEMP", "VIEW"), p.next("LIVE", "TABLE"), p.next("STREAMING", "LIVE", "TABLE"), p.next("LIVE", "VIEW"):
		kind := strings.ToUpper(p.take().text + " " + p.take().text)
		p.view(start, kind)
	case p.next("VIEW"), p.next("TABLE"):
		p.view(start, strings.ToUpper(p.take().text))
	default:
		p.fail(p.cur(), "statements are CREATE STREAMING TABLE, CREATE FLOW and CREATE SOURCE", "unexpected %s after CREATE", p.cur().describe())
	}
}

// view reads just the name; analysis refuses it.
func (p *parser) view(start token, kind string) {
	p.ifNotExists(false)
	v := &view{kind: kind, at: start.pos, name: p.name("name of the relation")}
	if p.broken {
		return
	}
	p.skip()
	p.script.views = append(p.script.views, v)
	p.script.order = append(p.script.order, v)
}

// skip goes to the end of the statement.
func (p *parser) skip() {
	for p.cur().kind != tokEOF && !p.cur().is(";") {
		p.at++
	}
	p.lay.verbatim(p.toks[p.lay.statements[len(p.lay.statements)-1].from].off, p.toks[p.at-1].end)
}

func (p *parser) ifNotExists(orRefresh bool) bool {
	t := p.cur()
	if !p.accept("IF", "NOT", "EXISTS") {
		return false
	}
	if orRefresh {
		p.add(t.pos, CodeCreateOptions, "use one of them", "OR REFRESH and IF NOT EXISTS exclude each other")
	}
	return true
}

func (p *parser) flow(f *Flow) {
	f.IfNotExists = p.ifNotExists(f.OrRefresh)
	f.at["name"] = p.cur().pos
	start := p.cur()
	f.Name = p.name("name of the flow")
	if !p.broken && len(NameParts(f.Name)) > 1 {
		p.fail(start, "a flow is named by one identifier", "flow name %s is qualified", f.Name)
	}
	if at := p.cur().pos; p.accept("COMMENT") {
		f.Comment = p.str("comment")
		f.at["comment"] = at
	}
	p.expect("AS")
	switch {
	case p.accept("AUTO", "CDC"):
		f.Once = p.once(f.at)
	case p.accept("APPLY", "CHANGES"):
	case p.accept("INSERT"):
		f.Once = p.once(f.at)
		p.expect("INTO")
		f.Once = f.Once || p.once(f.at)
		p.target(f)
		f.insert = true
		if !p.broken {
			p.skip()
			p.endFlow(f)
		}
		return
	default:
		p.fail(p.cur(), "write AS AUTO CDC INTO", "expected AUTO CDC, found %s", p.cur().describe())
	}
	p.expect("INTO")
	p.target(f)
	p.feed(f, f.at)
	p.endFlow(f)
}

func (p *parser) once(at positions) bool {
	pos := p.cur().pos
	if p.accept("ONCE") {
		at["once"] = pos
		return true
	}
	return false
}

func (p *parser) target(f *Flow) {
	f.at["target"] = p.cur().pos
	f.Target = p.name("name of the target")
}

// source reads CREATE SOURCE name FROM 'path' ... after its second word.
func (p *parser) source(s *Source) {
	s.at["name"] = p.cur().pos
	s.Name = p.name("name of the source")
	p.lay.item("from", p.at)
	s.at["from"] = p.cur().pos
	p.expect("FROM")
	for {
		s.From = append(s.From, p.str("path of the source"))
		if !p.accept(",") {
			break
		}
	}
	for !p.broken && p.cur().kind != tokEOF && !p.cur().is(";") {
		t := p.cur()
		once := func(option, clause string) {
			p.once1(s.at, t, option, clause)
			p.lay.item(option, p.at-1)
		}
		switch {
		case p.accept("FORMAT"):
			once("format", "FORMAT")
			if p.cur().kind == tokString {
				s.Format = p.str("format")
				break
			}
			s.Format = strings.ToLower(p.ident("format"))
			for p.accept("-") {
				s.Format += "-" + strings.ToLower(p.ident("format"))
			}
		case p.accept("TABLE"):
			once("table", "TABLE")
			s.Table = p.str("name of the source table, as a string")
		case p.accept("SCHEMA"):
			once("schema", "SCHEMA")
			p.expect("(")
			s.Schema = p.columnDefs()
			p.expect(")")
		case p.accept("OPTIONS"):
			once("options", "OPTIONS")
			s.Options, _ = p.properties("option")
		default:
			p.fail(t, "clauses of CREATE SOURCE are FORMAT, TABLE, SCHEMA and OPTIONS", "unexpected %s", t.describe())
		}
	}
	p.end()
	p.script.Sources = append(p.script.Sources, s)
	p.script.order = append(p.script.order, s)
}

// once1 records where a clause stands and refuses a second one; reading goes on.
func (p *parser) once1(at positions, t token, option, clause string) {
	if _, dup := at[option]; dup {
		p.add(t.pos, CodeDuplicateClause, "keep one", "%s is given twice", clause)
		return
	}
	at[option] = t.pos
}

// properties reads "(" key [=] value, ... ")" and the keys in order.
func (p *parser) properties(what string) (map[string]string, []string) {
	out := map[string]string{}
	var order []string
	p.expect("(")
	for !p.broken {
		t := p.cur()
		key := ""
		if t.kind == tokString {
			key = p.take().text
		} else {
			key = p.ident("name of the " + what)
			for p.accept(".") {
				key += "." + p.ident("name of the "+what)
			}
		}
		p.accept("=")
		value := ""
		switch v := p.cur(); {
		case v.kind == tokString || v.kind == tokNumber:
			value = p.take().text
		case v.is("TRUE") || v.is("FALSE"):
			value = strings.ToLower(p.take().text)
		case v.is("-") && p.peek(1).kind == tokNumber:
			p.take()
			value = "-" + p.take().text
		default:
			p.fail(v, "values are strings, numbers, TRUE and FALSE", "expected a value of %s, found %s", clip(key), v.describe())
		}
		if _, dup := out[key]; dup && !p.broken {
			p.add(t.pos, CodeDuplicateClause, "keep one", "%s %s is given twice", what, clip(key))
		} else {
			order = append(order, key)
		}
		out[key] = value
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return out, order
}

// idents reads "(" ident, ... ")"; option is where their positions go.
func (p *parser) idents(at positions, option string) []string {
	p.expect("(")
	if p.next(")") {
		p.fail(p.cur(), "", "the list of columns is empty")
	}
	list := p.bareIdents(at, option)
	if !p.broken && !p.next(")") {
		p.fail(p.cur(), "columns are separated by commas", "expected , or ), found %s", p.cur().describe())
	}
	p.expect(")")
	return list
}

func (p *parser) bareIdents(at positions, option string) []string {
	list := []string{}
	for !p.broken {
		t := p.cur()
		at[option+"."+strconv.Itoa(len(list))] = t.pos
		c := encodeIdent(p.ident("a column name"))
		if p.next(".") {
			for p.accept(".") {
				c += "." + encodeIdent(p.ident("a field name"))
			}
			if !p.broken {
				p.add(t.pos, CodeMultipart, "name the whole column; a column whose name has a dot stands in backticks", "%s is not a column name but a path", c)
			}
		}
		list = append(list, c)
		if !p.accept(",") {
			break
		}
	}
	return list
}
