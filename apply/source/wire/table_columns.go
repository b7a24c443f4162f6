package wire

import (
	"slices"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// Columns is the number of columns known.
func (t *Table) Columns() int { return len(t.cols) }

// Lookup is the index of the column of that name, or -1; case counts unless Fold
// is set. guess is tried first: records mostly list their fields in one order.
func (t *Table) Lookup(name []byte, guess int) int {
	if guess < len(t.cols) && t.cols[guess].name == string(name) {
		return guess
	}
	if i, ok := t.byName[string(name)]; ok {
		return i
	}
	if !t.Fold {
		return -1
	}
	i := t.folded(string(name))
	if i >= 0 {
		t.byName[string(name)] = i
	}
	return i
}

// folded is the index of the column of that name in any case, or -1.
func (t *Table) folded(name string) int {
	return slices.IndexFunc(t.cols, func(c *column) bool { return strings.EqualFold(c.name, name) })
}

// Name is the name of column i.
func (t *Table) Name(i int) string { return t.cols[i].name }

// Node is the plan of column i; nil while nothing is known of an inferred one.
func (t *Table) Node(i int) *Node {
	if t.cols[i].shape != nil {
		return nil
	}
	return t.cols[i].node
}

// SetNode gives column i another plan; it closes the open batch.
func (t *Table) SetNode(i int, node *Node) error {
	if err := t.Cut(); err != nil {
		return err
	}
	return t.cols[i].plan(node)
}

// AddColumn appends a column with a plan, or an inferred one if node is nil; it
// closes the open batch.
func (t *Table) AddColumn(name string, node *Node) (int, error) {
	if err := t.cutRows(); err != nil {
		return 0, err
	}
	c := &column{name: name}
	if node == nil {
		c.shape = &Shape{Exact: t.Exact}
		if typ, ok := t.preset[name]; ok {
			c.shape.assume(typ)
			var err error
			if c.b, err = newBuilder(typ); err != nil {
				return 0, err
			}
			c.node = NewNode(typ, t.Modes)
		}
	} else if err := c.plan(node); err != nil {
		return 0, err
	}
	for range t.rows { // truncates
		if c.node == nil {
			c.wait(Token{Kind: Null})
		} else {
			c.b.AppendNull()
		}
	}
	t.cols = append(t.cols, c)
	t.byName[name] = len(t.cols) - 1
	t.findKeys()
	return len(t.cols) - 1, nil
}

func (c *column) plan(node *Node) error {
	b, err := newBuilder(node.Type)
	if err != nil {
		return err
	}
	c.node, c.b, c.shape = node, b, nil
	return nil
}

// SetColumns replaces the column list and closes the open batch.
func (t *Table) SetColumns(names []string, nodes []*Node) error {
	if err := t.cutRows(); err != nil {
		return err
	}
	t.cols, t.byName = nil, map[string]int{}
	for i, name := range names {
		if _, err := t.AddColumn(name, nodes[i]); err != nil {
			return err
		}
	}
	t.findKeys()
	return nil
}

// Schema is the columns as known now; an inferred column without a value is VOID.
func (t *Table) Schema() *schema.Struct {
	s := &schema.Struct{}
	for _, c := range t.cols {
		s.Fields = append(s.Fields, c.field())
	}
	return s
}

// Inferred tells whether column i has no plan from a schema.
func (t *Table) Inferred(i int) bool { return t.cols[i].shape != nil }

// SetKeys names the key columns; it closes the open batch if they change. nil
// means that the format names none.
func (t *Table) SetKeys(keys []string) error {
	if slices.Equal(t.keys, keys) {
		return nil
	}
	if err := t.cutRows(); err != nil {
		return err
	}
	t.keys = slices.Clone(keys)
	t.findKeys()
	return nil
}

// Keys are the names of the key columns.
func (t *Table) Keys() []string { return t.keys }

// KeyIndex lists the key columns; -1 where a name is no column yet.
func (t *Table) KeyIndex() []int { return t.keyIdx }

func (t *Table) findKeys() {
	t.keyIdx = t.keyIdx[:0]
	for _, k := range t.keys {
		i, ok := t.byName[k]
		if !ok {
			i = t.folded(k) // names that a user gives are case-insensitive (auto-cdc 1.2)
		}
		t.keyIdx = append(t.keyIdx, i)
	}
}

// InferredTypes lists the columns whose type was inferred, for the decoder's state.
func (t *Table) InferredTypes() []schema.Field {
	var out []schema.Field
	for _, c := range t.cols {
		if c.shape != nil && c.node != nil {
			out = append(out, schema.Field{Name: c.name, Type: c.node.Type, Nullable: true})
		}
	}
	return out
}

// HasPreset tells whether an earlier run inferred a type for the column.
func (t *Table) HasPreset(name string) bool { return t.preset[name] != nil }

// Preset gives the types that an earlier run inferred: columns of these names
// start with them.
func (t *Table) Preset(fields []schema.Field) {
	t.preset = map[string]schema.Type{}
	for _, f := range fields {
		t.preset[f.Name] = f.Type
	}
}
