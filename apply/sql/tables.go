package sql

import (
	"errors"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// table reads a table after CREATE STREAMING TABLE.
func (p *parser) table(t *Table) {
	t.IfNotExists = p.ifNotExists(t.OrRefresh)
	t.at["name"] = p.cur().pos
	t.Name = p.name("name of the table")
	if p.accept("(") {
		p.elements(t)
		p.lay.item(")", p.at)
		p.expect(")")
	}
	for p.tableClause(t) {
	}
	inline := p.cur()
	if p.accept("FLOW") {
		p.lay.item("flow", p.at-1)
		f := &Flow{Target: t.Name, at: positions{"": inline.pos, "target": t.at["name"]}}
		p.expect("AUTO", "CDC")
		f.Once = p.once(f.at)
		p.feed(f, f.at)
		t.inline = f
	}
	switch as := p.cur(); {
	case p.broken:
	case t.inline != nil && p.next("AS"):
		p.failCode(as, CodeUnsupportedClause, "leave the query out", "a query together with a flow is not supported")
	case p.next("AS"):
		t.query = true
		p.skip()
	}
	p.end()
	p.script.Tables = append(p.script.Tables, t)
	p.script.order = append(p.script.order, t)
	if t.inline != nil {
		p.script.Flows = append(p.script.Flows, t.inline)
	}
}

// elements reads columns and expectations up to the closing parenthesis.
func (p *parser) elements(t *Table) {
	t.at["schema"] = p.cur().pos
	defer func(outer string) { p.form = outer }(p.form)
	p.form = forms["element"]
	for n := 0; !p.broken; n++ {
		item := "element." + strconv.Itoa(n)
		p.lay.item(item, p.at)
		if p.next("CONSTRAINT") && p.peek(2).is("EXPECT") {
			t.expectItems = append(t.expectItems, item)
			p.expectation(t)
		} else if k := p.peek(2); p.next("CONSTRAINT") && (k.is("PRIMARY") || k.is("FOREIGN") || k.is("CHECK")) || p.next("PRIMARY", "KEY") || p.next("FOREIGN", "KEY") {
			p.failCode(p.cur(), CodeUnsupportedClause, "a CONSTRAINT ... EXPECT (condition) is", "keys and checks in a column list are not supported")
		} else {
			if t.Schema == nil {
				t.Schema = &schema.Struct{}
			}
			t.columnItems = append(t.columnItems, item)
			t.at["schema."+strconv.Itoa(len(t.Schema.Fields))] = p.cur().pos
			t.Schema.Fields = append(t.Schema.Fields, p.column())
		}
		if !p.accept(",") {
			return
		}
	}
}

func (p *parser) expectation(t *Table) {
	p.expect("CONSTRAINT")
	key := "expect." + strconv.Itoa(len(t.Expectations))
	t.at[key] = p.cur().pos
	e := Expectation{Name: p.ident("name of the expectation")}
	p.expect("EXPECT")
	p.expect("(")
	start, depth := p.at, 0
	for !p.broken {
		c := p.cur()
		switch {
		case c.kind == tokEOF || c.is(";"):
			p.fail(c, "close the condition with )", "the condition has no end")
		case c.is("("):
			depth++
		case c.is(")"):
			depth--
		}
		if depth < 0 {
			break
		}
		p.take()
	}
	if !p.broken && p.at == start {
		p.fail(p.cur(), "", "expected a condition, found )")
	}
	if !p.broken {
		t.at[key+".expr"] = p.toks[start].pos
		if t.raw == nil {
			t.raw = originals{}
		}
		e.Expr = p.parseExpr(start, p.at, CodeExpectation, t.raw, key)
	}
	p.expect(")")
	if p.accept("ON") {
		p.expect("VIOLATION")
		switch {
		case p.accept("DROP", "ROW"):
			e.OnViolation = DropRow
		case p.accept("FAIL", "UPDATE"):
			e.OnViolation = FailUpdate
		default:
			p.fail(p.cur(), "write DROP ROW or FAIL UPDATE", "expected DROP ROW or FAIL UPDATE, found %s", p.cur().describe())
		}
	}
	t.Expectations = append(t.Expectations, e)
}

// columnDefs reads ident type [NOT NULL] [COMMENT string], ...
func (p *parser) columnDefs() *schema.Struct {
	s := &schema.Struct{}
	for !p.broken {
		s.Fields = append(s.Fields, p.column())
		if !p.accept(",") {
			break
		}
	}
	return s
}

// column reads one column of a declared list. Its type is a run of tokens that
// log/schema reads, so that types are the same everywhere.
func (p *parser) column() schema.Field {
	f := schema.Field{Nullable: true}
	f.Name = p.ident("a column name")
	if p.next(".") {
		p.failCode(p.cur(), CodeMultipart, "declare the whole column", "a column name cannot be qualified")
	}
	start, depth := p.at, 0
	for !p.broken {
		t := p.cur()
		if t.kind == tokEOF || t.is(";") || depth == 0 && (t.is(",") || t.is(")") || p.at > start && p.columnOption() != "") {
			break
		}
		switch {
		case t.is("(") || t.is("<"):
			depth++
		case t.is(")") || t.is(">"):
			depth--
		}
		p.take()
	}
	if p.broken {
		return f
	}
	if p.at == start {
		p.fail(p.cur(), "write name TYPE", "expected the type of column %s, found %s", clip(f.Name), p.cur().describe())
		return f
	}
	off := p.toks[start].off
	const prefix = "c "
	one, err := schema.ParseDDL(prefix + p.text[off:p.toks[p.at-1].end])
	var ddl *schema.SyntaxError
	switch {
	case errors.As(err, &ddl):
		p.failAt(off+ddl.Offset-len(prefix), "types are those of Spark SQL, such as BIGINT, STRING, DECIMAL(10,2)", "type of column %s: %s", clip(f.Name), ddl.Reason)
		return f
	case err != nil || len(one.Fields) != 1:
		p.fail(p.toks[start], "", "the type of column %s cannot be read", clip(f.Name))
		return f
	}
	f.Type, f.Metadata = one.Fields[0].Type, one.Fields[0].Metadata
	if p.accept("NOT") {
		p.expect("NULL")
		f.Nullable = false
	}
	if p.accept("COMMENT") {
		f.Metadata = f.Metadata.With("comment", p.str("comment"))
	}
	if t := p.cur(); !p.broken && !t.is(",") && !t.is(")") {
		if what := p.columnOption(); what != "" && what != "NOT" && what != "COMMENT" {
			p.failCode(t, CodeUnsupportedClause, "leave it out", "%s of a column is not supported", what)
			return f
		}
		p.fail(t, "", "expected , or ) after column %s, found %s", clip(f.Name), t.describe())
	}
	return f
}

// columnOption is the word that comes next if it ends a type.
func (p *parser) columnOption() string {
	for _, w := range []string{"NOT", "COMMENT", "MASK", "DEFAULT", "GENERATED", "PRIMARY", "FOREIGN", "CONSTRAINT", "COLLATE"} {
		if p.next(w) {
			return w
		}
	}
	return ""
}

// failAt is fail at a byte of the text.
func (p *parser) failAt(off int, remedy, format string, args ...any) {
	before := p.text[:min(max(off, 0), len(p.text))]
	line := 1 + strings.Count(before, "\n")
	rest := before[strings.LastIndexByte(before, '\n')+1:]
	p.fail(token{pos: Pos{line, 1 + len([]rune(rest))}}, remedy, format, args...)
}

// tableClause reads one clause of a table; false if none comes next.
func (p *parser) tableClause(t *Table) bool {
	at := p.cur()
	defer func(outer string) { p.form = outer }(p.form)
	once := func(option, clause string) {
		p.form = forms[option]
		p.once1(t.at, at, option, clause)
		p.lay.item(option, p.at-len(strings.Fields(clause)))
	}
	switch {
	case p.broken:
		return false
	case p.accept("COMMENT"):
		once("comment", "COMMENT")
		t.Comment, t.hasComment = p.str("comment"), true
	case p.accept("TBLPROPERTIES"):
		once("table_properties", "TBLPROPERTIES")
		t.TableProperties, t.propertyOrder = p.properties("property")
	case p.accept("USING"):
		once("using", "USING")
		t.using = true
		if !p.accept("DELTA") {
			p.fail(p.cur(), "tables are USING DELTA", "expected DELTA, found %s", p.cur().describe())
		}
	case p.accept("PARTITIONED", "BY"):
		once("partition_cols", "PARTITIONED BY")
		t.PartitionCols = p.idents(t.at, "partition_cols")
	case p.accept("CLUSTER", "BY"):
		once("cluster_by", "CLUSTER BY")
		switch {
		case p.accept("AUTO"):
			t.ClusterByAuto = true
		case p.accept("NONE"):
			t.clusterByNone = true
		default:
			t.ClusterBy = p.idents(t.at, "cluster_by")
		}
	case p.next("AS"):
		return false
	default:
		what := p.wider()
		if what != "" {
			p.failCode(at, CodeUnsupportedClause, "leave it out", "%s is not supported", what)
		}
		return false
	}
	return !p.broken
}
