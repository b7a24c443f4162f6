package sql

import (
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// tableSchema derives the schema of a target and holds the declared one to it
// (auto-cdc 1.4 rules 4 and 5).
func (a *analyzer) tableSchema(t *TablePlan) {
	if len(t.Flows) == 0 {
		a.declaredNames(t)
		return
	}
	first := t.Flows[0]
	a.declaredNames(t)
	if !first.Known {
		return
	}
	derived := &schema.Struct{}
	add := func(name string, typ schema.Type) {
		if derived.Index(name) < 0 {
			derived.Fields = append(derived.Fields, schema.Field{Name: name, Type: nullable(typ), Nullable: true})
		}
	}
	for _, f := range t.Flows {
		if !f.Known {
			continue
		}
		for _, c := range f.Selected.Fields {
			add(c.Name, c.Type)
		}
	}
	sequence := first.Sequence
	if first.Snapshot != "" {
		if sequence = first.VersionType; first.SnapshotVersion == "" {
			sequence = schema.Timestamp
		}
	}
	framework := frameworkColumns(first.SCD)
	for i, c := range framework {
		typ := sequence
		if i >= 2 {
			typ = first.SystemSequence
		}
		if typ == nil {
			return // a problem that was reported, or a version known only when it is read
		}
		add(c, typ)
	}
	t.Derived = derived
	if t.Schema != nil {
		a.compare(t, framework)
	}
}

// declaredNames checks a declared list by itself.
func (a *analyzer) declaredNames(t *TablePlan) {
	if t.Schema == nil {
		return
	}
	seen := map[string]bool{}
	for i, f := range t.Schema.Fields {
		if seen[fold(f.Name)] {
			a.add(t.at.item("schema", i), CodeDuplicateColumn, "declare it once", "table %s declares column %s twice", t.Name, clip(f.Name))
		}
		seen[fold(f.Name)] = true
	}
	scd := "1"
	if len(t.Flows) > 0 {
		scd = t.Flows[0].SCD
	}
	framework := frameworkColumns(scd)
	for i := 0; i+1 < len(framework); i += 2 {
		if have := [2]bool{seen[fold(framework[i])], seen[fold(framework[i+1])]}; have[0] != have[1] {
			a.add(t.at.of("schema"), CodeDeclaredSchema, "list both or none", "table %s declares only one of %s and %s", t.Name, framework[i], framework[i+1])
		}
	}
	for _, f := range t.Flows {
		for i, k := range f.KeyColumns {
			if !seen[fold(k)] {
				a.add(f.at.item("keys", i), CodeDeclaredSchema, "declare it", "key column %s is not among the declared columns of table %s", clip(k), t.Name)
			}
		}
	}
}

// compare holds declared columns to derived ones. Declared order wins.
func (a *analyzer) compare(t *TablePlan, framework []string) {
	final := &schema.Struct{}
	bad := false
	for i, f := range t.Schema.Fields {
		at := t.at.item("schema", i)
		k := t.Derived.Index(f.Name)
		if k < 0 {
			bad = true
			a.add(at, CodeDeclaredSchema, "the flows give: "+strings.Join(t.Derived.Names(), ", "), "table %s declares column %s, which no flow has", t.Name, clip(f.Name))
			continue
		}
		want := t.Derived.Fields[k]
		if !schema.EqualIgnoringNullability(f.Type, want.Type) {
			bad = true
			a.add(at, CodeDeclaredSchema, "declare it as "+want.Type.String(), "table %s declares column %s as %s, the flow has %s", t.Name, f.Name, f.Type, want.Type)
		}
		final.Fields = append(final.Fields, f)
	}
	for _, f := range t.Derived.Fields {
		if t.Schema.Index(f.Name) >= 0 || contains(t.Flows[0].KeyColumns, f.Name) {
			continue
		}
		if !contains(framework, f.Name) {
			bad = true
			a.add(t.at.of("schema"), CodeDeclaredSchema, "declare it, or leave it out with COLUMNS", "table %s does not declare column %s", t.Name, f.Name)
			continue
		}
		final.Fields = append(final.Fields, f)
	}
	if !bad {
		t.Derived = final
	}
}

// known is the schema that names in table clauses resolve against, nil if none is.
func (t *TablePlan) known() *schema.Struct {
	if t.Derived != nil {
		return t.Derived
	}
	if t.Schema == nil {
		return nil
	}
	s := &schema.Struct{Fields: append([]schema.Field(nil), t.Schema.Fields...)}
	if len(t.Flows) > 0 && s.Index(StartAt) < 0 && t.Flows[0].SCD != "1" {
		return nil // the types of the framework columns are open
	}
	return s
}

func (a *analyzer) layoutOf(t *TablePlan) {
	clustered := t.ClusterBy != nil || t.ClusterByAuto
	if t.PartitionCols != nil && clustered {
		a.add(t.at.of("cluster_by"), CodeLayout, "keep one", "PARTITIONED BY and CLUSTER BY exclude each other")
	}
	if t.ClusterBy != nil && t.ClusterByAuto {
		a.add(t.at.of("cluster_by_auto"), CodeSetTogether, "keep one", "cluster_by and cluster_by_auto exclude each other")
	}
	for _, l := range []columnList{{option: "partition_cols", clause: "PARTITIONED BY", names: t.PartitionCols}, {option: "cluster_by", clause: "CLUSTER BY", names: t.ClusterBy}} {
		seen := map[string]bool{}
		for i, c := range l.names {
			at := t.at.item(l.option, i)
			parts, ok := splitName(c)
			if !ok || len(parts) != 1 {
				a.add(at, CodeMultipart, "name the whole column; a column whose name has a dot stands in backticks", "%s: %q is not a column name", l.clause, clip(c))
				continue
			}
			if seen[fold(parts[0])] {
				a.add(at, CodeDuplicateColumn, "name it once", "%s names column %s twice", l.clause, clip(parts[0]))
			}
			seen[fold(parts[0])] = true
			if s := t.known(); s != nil && s.Index(parts[0]) < 0 {
				a.add(at, CodeLayout, "columns there: "+strings.Join(s.Names(), ", "), "%s: table %s has no column %s", l.clause, t.Name, clip(parts[0]))
			}
		}
	}
}

func (a *analyzer) expectations(t *TablePlan) {
	seen := map[string]bool{}
	for i, e := range t.Expectations {
		key := "expect." + strconv.Itoa(i)
		if seen[fold(e.Name)] {
			a.add(t.at.of(key), CodeExpectation, "give it another name", "two expectations of table %s are named %s", t.Name, clip(e.Name))
		}
		seen[fold(e.Name)] = true
		switch e.OnViolation {
		case Warn, DropRow, FailUpdate:
		default:
			a.add(t.at.of(key), CodeSyntax, "write DROP ROW or FAIL UPDATE", "expectation %s: on violation %q", clip(e.Name), clip(string(e.OnViolation)))
		}
		at := t.at.of(key + ".expr")
		bound := a.bind(at, "expectation "+clip(e.Name), t.raw.of(key, e.Expr), t.known(), CodeExpectation)
		if bound != nil && bound.Type() != schema.Type(schema.Boolean) && bound.Type() != schema.Type(schema.Void) {
			a.add(at, CodeExpectation, "write a comparison", "expectation %s has type %s, not BOOLEAN", clip(e.Name), bound.Type())
		}
	}
}

// nullable is t with every field and element nullable, the form of created columns.
func nullable(t schema.Type) schema.Type {
	switch t := t.(type) {
	case *schema.Struct:
		out := &schema.Struct{Fields: make([]schema.Field, len(t.Fields))}
		for i, f := range t.Fields {
			out.Fields[i] = schema.Field{Name: f.Name, Type: nullable(f.Type), Nullable: true, Metadata: f.Metadata}
		}
		return out
	case *schema.Array:
		return &schema.Array{Elem: nullable(t.Elem), ContainsNull: true}
	case *schema.Map:
		return &schema.Map{Key: nullable(t.Key), Value: nullable(t.Value), ValueContainsNull: true}
	}
	return t
}

// tableName reads a dotted name that ends the query or stands before WHERE.
func tableName(toks []token) (string, bool) {
	var parts []string
	for i := 0; i < len(toks); i += 2 {
		if toks[i].kind != tokWord && toks[i].kind != tokQuoted {
			return "", false
		}
		parts = append(parts, encodeIdent(toks[i].text))
		next := toks[min(i+1, len(toks)-1)]
		if next.kind == tokEOF || next.is("WHERE") {
			break
		}
		if !next.is(".") {
			return "", false
		}
	}
	if len(parts) > 1 && strings.EqualFold(parts[0], "LIVE") {
		parts = parts[1:]
	}
	return strings.Join(parts, "."), len(parts) > 0
}

// versionQuery checks SELECT one column FROM ... as far as its text tells.
func (a *analyzer) versionQuery(p *FlowPlan) {
	if p.SnapshotVersion == "" {
		return
	}
	at := p.at.of("snapshot_version")
	toks, _, err := lex(p.SnapshotVersion)
	if err != nil || !toks[0].is("SELECT") {
		return
	}
	depth, commas, end := 0, 0, 1
	for ; end < len(toks)-1 && (depth > 0 || !toks[end].is("FROM")); end++ {
		switch t := toks[end]; {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case t.is(",") && depth == 0:
			commas++
		}
	}
	if commas > 0 {
		a.add(at, CodeVersionQuery, "select one column", "the version query selects %d columns", commas+1)
		return
	}
	item := toks[1:end]
	if n := len(item); n > 2 && item[n-2].is("AS") {
		item = item[:n-2]
	}
	if n := len(item); n > 3 && (item[0].is("max") || item[0].is("min")) && item[1].is("(") && item[n-1].is(")") {
		item = item[2 : n-1]
	}
	if len(item) == 0 || end >= len(toks)-1 {
		return
	}
	rest := toks[end+1:]
	for i, t := range rest {
		if t.is("WHERE") || t.is("ORDER") || t.is("LIMIT") || t.is("GROUP") {
			rest = append(rest[:i:i], token{kind: tokEOF})
			break
		}
	}
	table, ok := tableName(rest)
	if !ok {
		return
	}
	src := a.schemas.of(table)
	e, perr := expr.Parse(p.SnapshotVersion[item[0].off:item[len(item)-1].end])
	if src.Columns == nil || perr != nil {
		return
	}
	bound, berr := e.Bind(src.Columns)
	if berr != nil {
		return
	}
	if !expr.Orderable(bound.Type()) {
		a.add(at, CodeVersionNotSortable, "select a column without maps and variants", "the version has type %s, which has no order", bound.Type())
		return
	}
	p.VersionType = bound.Type()
}
