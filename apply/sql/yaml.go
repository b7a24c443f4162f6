package sql

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-data/sluice/log/schema"
)

// ParseYAML reads the YAML form: keys are the Python parameter names (auto-cdc
// 1.7). The document is one flow, whose table options create its target, or a
// mapping of the lists sources, tables and flows. The error is [Errors].
func ParseYAML(text string) (*Script, error) {
	y := &yamlReader{script: &Script{}}
	y.document(text)
	if err := y.err(); err != nil {
		return nil, err
	}
	return y.script, nil
}

type yamlReader struct {
	problems
	script *Script
}

func nodePos(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

// textPos is where the text of a scalar starts.
func textPos(n *yaml.Node) Pos {
	at := nodePos(n)
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		at.Col++
	}
	return at
}

var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

// root is the mapping that the document is; nil if it is empty or none.
func (y *yamlReader) root(text string) *yamlMap {
	if len(text) > maxTextBytes {
		y.add(Pos{1, 1}, CodeSyntax, "split the document", "text is longer than %d bytes", maxTextBytes)
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		at, msg := Pos{1, 1}, strings.TrimPrefix(err.Error(), "yaml: ")
		if m := yamlLine.FindStringSubmatch(msg); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
			msg = m[2]
		}
		y.add(at, CodeSyntax, "indent with spaces, two a level, and quote text with : or #", "not YAML: %s", msg)
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return y.mapping(doc.Content[0], "the document")
}

func (y *yamlReader) document(text string) {
	m := y.root(text)
	if m == nil {
		return
	}
	if m.has("target") {
		y.flow(m, true)
		return
	}
	for _, e := range m.items(y, "sources", "a source") {
		y.source(e)
	}
	for _, e := range m.items(y, "tables", "a table") {
		y.table(e, e.node)
		e.rest(y, "a table")
	}
	for _, e := range m.items(y, "flows", "a flow") {
		y.flow(e, false)
	}
	m.rest(y, "the document")
}

// yamlMap is a mapping whose keys are taken one by one; those left are unknown.
type yamlMap struct {
	node  *yaml.Node
	keys  map[string]*yaml.Node
	vals  map[string]*yaml.Node
	taken map[string]bool
}

func deref(n *yaml.Node) *yaml.Node {
	for range 100 { // an alias of an alias is no cycle, but may be long
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
}

func (y *yamlReader) mapping(n *yaml.Node, what string) *yamlMap {
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		y.add(nodePos(n), CodeSyntax, "write key: value", "%s is not a mapping", what)
		return nil
	}
	m := &yamlMap{node: n, keys: map[string]*yaml.Node{}, vals: map[string]*yaml.Node{}, taken: map[string]bool{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			y.add(nodePos(k), CodeSyntax, "keys are plain text such as keys, sequence_by", "a key of %s is not a name", what)
			continue
		}
		if _, dup := m.keys[k.Value]; dup {
			y.add(nodePos(k), CodeDuplicateClause, "keep one", "%s is given twice", clip(k.Value))
			continue
		}
		m.keys[k.Value], m.vals[k.Value] = k, deref(v)
	}
	return m
}

func (m *yamlMap) has(key string) bool { return m.keys[key] != nil }

// take gives the value of a key, nil if it is missing or null.
func (m *yamlMap) take(key string, at positions) *yaml.Node {
	m.taken[key] = true
	v := m.vals[key]
	if v == nil || v.Tag == "!!null" {
		return nil
	}
	if at != nil {
		at[key] = nodePos(m.keys[key])
	}
	return v
}

// rest refuses the keys that nobody took.
func (m *yamlMap) rest(y *yamlReader, what string) {
	known := slices.Sorted(maps.Keys(m.taken))
	for k, n := range m.keys {
		if m.taken[k] {
			continue
		}
		remedy := "keys are: " + strings.Join(known, ", ")
		for _, c := range known {
			if near(c, k) {
				remedy = "did you mean " + c + "?"
			}
		}
		y.add(nodePos(n), CodeSyntax, remedy, "unknown key %q of %s", clip(k), what)
	}
}

// near tells whether two keys differ in case, separators or a final s.
func near(a, b string) bool {
	norm := func(s string) string {
		return strings.TrimSuffix(strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s)), "s")
	}
	return norm(a) == norm(b)
}

func (m *yamlMap) items(y *yamlReader, key, what string) []*yamlMap {
	n := m.take(key, nil)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		y.add(nodePos(n), CodeSyntax, "write a list", "%s is not a list", key)
		return nil
	}
	var out []*yamlMap
	for _, e := range n.Content {
		if x := y.mapping(e, what); x != nil {
			out = append(out, x)
		}
	}
	return out
}

func (m *yamlMap) str(y *yamlReader, key string, at positions) string {
	n := m.take(key, at)
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		y.add(nodePos(n), CodeSyntax, "write one text", "%s is not a text", key)
		return ""
	}
	at[key+".0"] = textPos(n)
	return n.Value
}

func (m *yamlMap) boolean(y *yamlReader, key string, at positions) bool {
	n := m.take(key, at)
	if n == nil {
		return false
	}
	v, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || err != nil {
		y.add(nodePos(n), CodeSyntax, "write true or false", "%s is not true or false", key)
	}
	return v
}

// list reads a list of texts; one text is a list of one.
func (m *yamlMap) list(y *yamlReader, key string, at positions) []string {
	n := m.take(key, at)
	if n == nil {
		return nil
	}
	items := n.Content
	switch n.Kind {
	case yaml.ScalarNode:
		items = []*yaml.Node{n}
	case yaml.SequenceNode:
	default:
		y.add(nodePos(n), CodeSyntax, "write [a, b]", "%s is not a list", key)
		return nil
	}
	out := []string{}
	for i, e := range items {
		e = deref(e)
		if e.Kind != yaml.ScalarNode || e.Tag == "!!null" {
			y.add(nodePos(e), CodeSyntax, "write [a, b]", "an element of %s is not a text", key)
			continue
		}
		at[key+"."+strconv.Itoa(i)] = nodePos(e)
		out = append(out, e.Value)
	}
	return out
}

// texts reads a mapping of texts, numbers and booleans, and its keys in order.
func (m *yamlMap) texts(y *yamlReader, key string, at positions) (map[string]string, []string, map[string]Pos) {
	n := m.take(key, at)
	if n == nil {
		return nil, nil, nil
	}
	inner := y.mapping(n, key)
	if inner == nil {
		return nil, nil, nil
	}
	out, where := map[string]string{}, map[string]Pos{}
	var order []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i].Value
		v := inner.vals[k]
		if _, dup := out[k]; dup || v == nil {
			continue
		}
		if v.Kind != yaml.ScalarNode {
			y.add(nodePos(v), CodeSyntax, "write one value", "%s of %s is not a text", clip(k), key)
			continue
		}
		out[k], where[k] = v.Value, textPos(v)
		order = append(order, k)
	}
	return out, order, where
}

func (y *yamlReader) source(m *yamlMap) {
	s := &Source{at: positions{"": nodePos(m.node)}}
	s.Name = m.str(y, "name", s.at)
	s.From = m.list(y, "from", s.at)
	s.Format = m.str(y, "format", s.at)
	s.Table = m.str(y, "table", s.at)
	s.Schema = y.ddl(m, "schema", s.at)
	s.Options, _, _ = m.texts(y, "options", s.at)
	m.rest(y, "a source")
	y.script.Sources = append(y.script.Sources, s)
}

func (y *yamlReader) ddl(m *yamlMap, key string, at positions) *schema.Struct {
	text := m.str(y, key, at)
	if text == "" {
		return nil
	}
	s, err := schema.ParseDDL(text)
	if err != nil {
		y.add(at.item(key, 0), CodeSyntax, "write columns as \"id BIGINT NOT NULL, name STRING\"", "%s: %v", key, err)
		return nil
	}
	return s
}

// tableKeys are the options that describe a table.
var tableKeys = []string{"comment", "table_properties", "partition_cols", "cluster_by", "cluster_by_auto", "schema", "expect_all", "expect_all_or_drop", "expect_all_or_fail"}

// table reads the table options of a mapping.
func (y *yamlReader) table(m *yamlMap, n *yaml.Node) *Table {
	t := &Table{at: positions{"": nodePos(n)}, raw: originals{}}
	t.Name = m.str(y, "name", t.at)
	y.tableOptions(m, t)
	y.script.Tables = append(y.script.Tables, t)
	return t
}

func (y *yamlReader) tableOptions(m *yamlMap, t *Table) {
	t.Comment = m.str(y, "comment", t.at)
	t.TableProperties, t.propertyOrder, _ = m.texts(y, "table_properties", t.at)
	t.PartitionCols = m.list(y, "partition_cols", t.at)
	t.ClusterBy = m.list(y, "cluster_by", t.at)
	t.ClusterByAuto = m.boolean(y, "cluster_by_auto", t.at)
	t.Schema = y.ddl(m, "schema", t.at)
	y.expectations(m, t)
}

func (y *yamlReader) expectations(m *yamlMap, t *Table) {
	for _, e := range []struct {
		key string
		on  Violation
	}{{"expect_all", Warn}, {"expect_all_or_drop", DropRow}, {"expect_all_or_fail", FailUpdate}} {
		exprs, order, where := m.texts(y, e.key, t.at)
		for _, name := range order {
			key := fmt.Sprintf("expect.%d", len(t.Expectations))
			t.at[key], t.at[key+".expr"] = where[name], where[name]
			t.Expectations = append(t.Expectations, Expectation{name, exprs[name], e.on})
		}
	}
}

// flow reads a flow. One that is the whole document creates its target.
func (y *yamlReader) flow(m *yamlMap, whole bool) {
	f := &Flow{at: positions{"": nodePos(m.node)}}
	f.Name = m.str(y, "name", f.at)
	f.Target = m.str(y, "target", f.at)
	f.Source = m.str(y, "source", f.at)
	f.Snapshot = m.str(y, "snapshot", f.at)
	f.SnapshotVersion = m.str(y, "snapshot_version", f.at)
	y.clauses(m, f)
	f.Once = m.boolean(y, "once", f.at)
	described := whole
	for _, k := range tableKeys {
		described = described || m.has(k) && k != "comment"
	}
	if described {
		t := &Table{Name: f.Target, at: positions{"": nodePos(m.node), "name": f.at.of("target")}, raw: originals{}}
		y.tableOptions(m, t)
		if whole {
			for _, s := range m.items(y, "sources", "a source") {
				y.source(s)
			}
		}
		y.script.Tables = append(y.script.Tables, t)
	} else {
		f.Comment = m.str(y, "comment", f.at)
	}
	m.rest(y, "a flow")
	y.script.Flows = append(y.script.Flows, f)
}

// clauses reads what a flow does with its events.
func (y *yamlReader) clauses(m *yamlMap, f *Flow) {
	f.Keys = m.list(y, "keys", f.at)
	f.SequenceBy = m.str(y, "sequence_by", f.at)
	f.SystemSequenceBy = m.str(y, "system_sequence_by", f.at)
	f.IgnoreNullUpdates = m.boolean(y, "ignore_null_updates", f.at)
	f.IgnoreNullUpdatesColumnList = m.list(y, "ignore_null_updates_column_list", f.at)
	f.IgnoreNullUpdatesExceptColumnList = m.list(y, "ignore_null_updates_except_column_list", f.at)
	f.ColumnsToUpdate = m.str(y, "columns_to_update", f.at)
	f.ApplyAsDeletes = m.str(y, "apply_as_deletes", f.at)
	f.ApplyAsTruncates = m.str(y, "apply_as_truncates", f.at)
	f.ColumnList = m.list(y, "column_list", f.at)
	f.ExceptColumnList = m.list(y, "except_column_list", f.at)
	f.StoredAsSCDType = strings.ToLower(m.str(y, "stored_as_scd_type", f.at))
	f.TrackHistoryColumnList = m.list(y, "track_history_column_list", f.at)
	f.TrackHistoryExceptColumnList = m.list(y, "track_history_except_column_list", f.at)
	f.dropEmpty()
}

// dropEmpty writes empty lists of excepted columns, which mean all, as what they
// mean. Options that do not go together stay as they are.
func (f *Flow) dropEmpty() {
	empty := func(except *[]string, list []string) bool {
		if *except == nil || len(*except) > 0 || list != nil {
			return false
		}
		*except = nil
		return true
	}
	empty(&f.ExceptColumnList, f.ColumnList)
	empty(&f.TrackHistoryExceptColumnList, f.TrackHistoryColumnList)
	if !f.IgnoreNullUpdates && empty(&f.IgnoreNullUpdatesExceptColumnList, f.IgnoreNullUpdatesColumnList) {
		f.IgnoreNullUpdates = true
	}
}
