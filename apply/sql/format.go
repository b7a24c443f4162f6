package sql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// Format prints a script in canonical form: one clause a line in the order of
// Databricks (auto-cdc 1.2 rule 2), upper-case keywords, canonical expressions,
// comments kept with the clause they stand at. It is idempotent, and the result
// means what the script means. A script with problems of phase P is an error.
func Format(text string) (string, error) {
	s, err := Parse(text)
	if err != nil {
		return "", err
	}
	return s.format(), nil
}

// String is the canonical text of a script of any front end.
func (s *Script) String() string { return s.format() }

func (s *Script) format() string {
	lay := s.text
	if lay == nil {
		lay = &layout{}
	}
	lay.attach()
	var out strings.Builder
	order := s.order
	if order == nil {
		order = s.statements()
	}
	for i, st := range order {
		if i > 0 {
			out.WriteByte('\n')
		}
		w := &writer{lay: lay, statement: i}
		switch st := st.(type) {
		case *Source:
			w.source(st)
		case *Table:
			w.table(st)
		case *Flow:
			w.flow(st)
		case *view:
			w.line("", "%s", lay.source(i))
		}
		w.finish(&out)
	}
	for i, c := range lay.rest {
		if i == 0 && len(order) > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(c + "\n")
	}
	return out.String()
}

// statements is an order for scripts without text.
func (s *Script) statements() []any {
	var out []any
	for _, x := range s.Sources {
		out = append(out, x)
	}
	for _, x := range s.Tables {
		out = append(out, x)
	}
	for _, f := range s.Flows {
		if !slices.ContainsFunc(s.Tables, func(t *Table) bool { return t.inline == f }) {
			out = append(out, f)
		}
	}
	return out
}

// writer prints one statement, a line per item.
type writer struct {
	lay       *layout
	statement int
	lines     []line
}

type line struct{ key, text string }

func (w *writer) line(key, format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	w.lines = append(w.lines, line{key, text})
}

// finish puts the comments of every item around its line, and the semicolon
// behind the last.
func (w *writer) finish(out *strings.Builder) {
	for i, l := range w.lines {
		lead, trail := w.lay.of(w.statement, l.key)
		_, end := w.lay.of(w.statement, endKey)
		if i == len(w.lines)-1 && trail != "" && end != "" {
			lead = append(lead[:len(lead):len(lead)], trail)
		}
		for _, c := range lead {
			out.WriteString(c + "\n")
		}
		text := l.text
		if i == len(w.lines)-1 {
			text += ";"
			if end != "" {
				trail = end
			}
		}
		if trail != "" {
			text += " " + trail
		}
		out.WriteString(text + "\n")
	}
}

// name prints an identifier of Script.
func name(encoded string) string {
	parts, ok := splitName(encoded)
	if !ok {
		return schema.QuoteName(encoded)
	}
	for i, s := range parts {
		parts[i] = schema.QuoteName(s)
		switch strings.ToUpper(s) {
		case "LIVE", "IF", "TO", "CONSTRAINT", "PRIMARY", "FOREIGN", "EXCEPT", "STREAM", "ONCE", "KEYS", "SELECT", "WITH", "SNAPSHOT":
			parts[i] = "`" + s + "`"
		}
	}
	return strings.Join(parts, ".")
}

func names(list []string) string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = name(c)
	}
	return "(" + strings.Join(out, ", ") + ")"
}

func (w *writer) source(s *Source) {
	w.line("", "CREATE SOURCE %s", name(s.Name))
	from := make([]string, len(s.From))
	for i, f := range s.From {
		from[i] = quoteString(f)
	}
	w.line("from", "FROM %s", strings.Join(from, ", "))
	if s.Format != "" {
		w.line("format", "FORMAT %s", quoteString(s.Format))
	}
	if s.Table != "" {
		w.line("table", "TABLE %s", quoteString(s.Table))
	}
	if s.Schema != nil {
		cols := make([]string, len(s.Schema.Fields))
		for i, f := range s.Schema.Fields {
			cols[i] = columnText(f)
		}
		w.line("schema", "SCHEMA (%s)", strings.Join(cols, ", "))
	}
	if len(s.Options) > 0 {
		w.line("options", "OPTIONS %s", properties(s.Options, nil))
	}
}

// queryText keeps the closing parenthesis out of a comment.
func queryText(q string) string {
	q = strings.TrimSpace(q)
	if last := q[strings.LastIndexByte(q, '\n')+1:]; strings.Contains(last, "--") {
		return q + "\n"
	}
	return q
}

// properties prints keys in their order, the rest sorted.
func properties(m map[string]string, order []string) string {
	seen := map[string]bool{}
	var keys, more []string
	for _, k := range order {
		if _, ok := m[k]; ok && !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	for k := range m {
		if !seen[k] {
			more = append(more, k)
		}
	}
	slices.Sort(more)
	keys = append(keys, more...)
	for i, k := range keys {
		keys[i] = quoteString(k) + " = " + quoteString(m[k])
	}
	return "(" + strings.Join(keys, ", ") + ")"
}

func (w *writer) table(t *Table) {
	head := "CREATE "
	if t.OrRefresh {
		head += "OR REFRESH "
	}
	if t.Private {
		head += "PRIVATE "
	}
	head += "STREAMING TABLE "
	if t.IfNotExists {
		head += "IF NOT EXISTS "
	}
	head += name(t.Name)
	if t.query {
		w.line("", "%s", w.lay.source(w.statement))
		return
	}
	elements := w.elements(t)
	if len(elements) > 0 {
		head += " ("
	}
	w.line("", "%s", head)
	for i, e := range elements {
		if i < len(elements)-1 {
			e += ","
		}
		w.line(t.elementKey(i), "  %s", e)
	}
	if len(elements) > 0 {
		w.line(")", ")")
	}
	if t.using {
		w.line("using", "USING DELTA")
	}
	if t.PartitionCols != nil {
		w.line("partition_cols", "PARTITIONED BY %s", names(t.PartitionCols))
	}
	switch {
	case t.ClusterBy != nil:
		w.line("cluster_by", "CLUSTER BY %s", names(t.ClusterBy))
	case t.ClusterByAuto:
		w.line("cluster_by", "CLUSTER BY AUTO")
	case t.clusterByNone:
		w.line("cluster_by", "CLUSTER BY NONE")
	}
	if t.Comment != "" || t.hasComment {
		w.line("comment", "COMMENT %s", quoteString(t.Comment))
	}
	if len(t.TableProperties) > 0 {
		w.line("table_properties", "TBLPROPERTIES %s", properties(t.TableProperties, t.propertyOrder))
	}
	if f := t.inline; f != nil {
		if f.Once {
			w.line("flow", "FLOW AUTO CDC ONCE")
		} else {
			w.line("flow", "FLOW AUTO CDC")
		}
		w.feed(f)
	}
}

func (w *writer) elements(t *Table) []string {
	var out []string
	if t.Schema != nil {
		for _, f := range t.Schema.Fields {
			out = append(out, columnText(f))
		}
	}
	for _, e := range t.Expectations {
		text := fmt.Sprintf("CONSTRAINT %s EXPECT (%s)", schema.QuoteName(e.Name), canonicalExpr(e.Expr))
		if e.OnViolation != Warn {
			text += " ON VIOLATION " + string(e.OnViolation)
		}
		out = append(out, text)
	}
	return out
}

// elementKey is the item of the i-th printed element. Columns go before
// expectations, so the order may differ from that of the text.
func (t *Table) elementKey(i int) string {
	order := t.columnItems
	if t.Schema != nil && i >= len(t.Schema.Fields) {
		i -= len(t.Schema.Fields)
		order = t.expectItems
	} else if t.Schema == nil {
		order = t.expectItems
	}
	if i < len(order) {
		return order[i]
	}
	return "element"
}

func columnText(f schema.Field) string {
	b := name(encodeIdent(f.Name)) + " " + typeText(f.Type)
	if raw, ok := f.Metadata.Get(schema.CharVarcharKey); ok {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			b = name(encodeIdent(f.Name)) + " " + strings.ToUpper(text)
		}
	}
	if !f.Nullable {
		b += " NOT NULL"
	}
	if c, ok := commentOf(f); ok {
		b += " COMMENT " + quoteString(c)
	}
	return b
}

func commentOf(f schema.Field) (string, bool) {
	raw, ok := f.Metadata.Get("comment")
	var text string
	return text, ok && json.Unmarshal(raw, &text) == nil
}

// typeText is the DDL form with the comments of inner fields.
func typeText(t schema.Type) string {
	switch t := t.(type) {
	case *schema.Struct:
		s := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			n, rest, _ := strings.Cut(columnText(schema.Field{Name: "c", Type: f.Type, Nullable: f.Nullable, Metadata: f.Metadata}), " ")
			_ = n
			s[i] = schema.QuoteName(f.Name) + ": " + rest
		}
		return "STRUCT<" + strings.Join(s, ", ") + ">"
	case *schema.Array:
		return "ARRAY<" + typeText(t.Elem) + ">"
	case *schema.Map:
		return "MAP<" + typeText(t.Key) + ", " + typeText(t.Value) + ">"
	}
	return t.String()
}

func (w *writer) flow(f *Flow) {
	if f.insert {
		w.line("", "%s", w.lay.source(w.statement))
		return
	}
	if f.bare {
		w.line("", "APPLY CHANGES INTO %s", name(f.Target))
		w.feed(f)
		return
	}
	head := "CREATE "
	if f.OrRefresh {
		head += "OR REFRESH "
	}
	head += "FLOW "
	if f.IfNotExists {
		head += "IF NOT EXISTS "
	}
	flowName := f.Name
	if flowName == "" {
		flowName = f.Target
		if parts := NameParts(f.Target); len(parts) > 0 {
			flowName = encodeIdent(parts[len(parts)-1])
		}
	}
	head += name(flowName)
	if f.Comment != "" {
		head += " COMMENT " + quoteString(f.Comment)
	}
	head += " AS AUTO CDC "
	if f.Once {
		head += "ONCE "
	}
	w.line("", "%s", head+"INTO "+name(f.Target))
	w.feed(f)
}

func (w *writer) feed(f *Flow) {
	switch {
	case f.Snapshot != "":
		w.line("from", "FROM SNAPSHOT (%s)", queryText(f.Snapshot))
		if f.SnapshotVersion != "" {
			w.line("snapshot_version", "WITH VERSION (%s)", queryText(f.SnapshotVersion))
		}
	case f.NotStream:
		w.line("from", "FROM %s", name(f.Source))
	default:
		w.line("from", "FROM STREAM(%s)", name(f.Source))
	}
	w.line("keys", "KEYS %s", names(f.Keys))
	text := func(key, clause, value string) {
		if value != "" {
			w.line(key, "%s %s", clause, canonicalExpr(value))
		}
	}
	set := func(key, clause string, list, except []string) {
		if len(except) > 0 {
			w.line(key, "%s * EXCEPT %s", clause, names(except))
		} else if list != nil {
			w.line(key, "%s %s", clause, names(list))
		}
	}
	if f.IgnoreNullUpdates || f.IgnoreNullUpdatesExceptColumnList != nil && len(f.IgnoreNullUpdatesExceptColumnList) == 0 {
		w.line("ignore_null_updates", "IGNORE NULL UPDATES")
	}
	set("ignore_null_updates", "IGNORE NULL UPDATES ON", f.IgnoreNullUpdatesColumnList, f.IgnoreNullUpdatesExceptColumnList)
	text("apply_as_deletes", "APPLY AS DELETE WHEN", f.ApplyAsDeletes)
	text("apply_as_truncates", "APPLY AS TRUNCATE WHEN", f.ApplyAsTruncates)
	text("sequence_by", "SEQUENCE BY", f.SequenceBy)
	text("system_sequence_by", "SYSTEM SEQUENCE BY", f.SystemSequenceBy)
	set("column_list", "COLUMNS", f.ColumnList, f.ExceptColumnList)
	switch f.StoredAsSCDType {
	case "":
	case "bitemporal":
		w.line("stored_as_scd_type", "STORED AS BITEMPORAL")
	default:
		w.line("stored_as_scd_type", "STORED AS SCD TYPE %s", f.StoredAsSCDType)
	}
	set("track_history_column_list", "TRACK HISTORY ON", f.TrackHistoryColumnList, f.TrackHistoryExceptColumnList)
	if f.ColumnsToUpdate != "" {
		w.line("columns_to_update", "COLUMNS TO UPDATE %s", name(f.ColumnsToUpdate))
	}
}
