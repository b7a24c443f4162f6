package apply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// shape is the target's columns as a batch sees them: the stored schema, plus
// the columns that the batch brings along.
//
// What any shape guarantees: keys are in the order of the flow's definition
// (sorted by source name), fields are those of all other columns in table order,
// and seqType is the stored sequence type.
type shape struct {
	schema   *schema.Struct
	keys     []int // in schema
	fields   []field
	ofColumn [][]int // fields of each column
	arrow    []arrow.DataType
	split    map[string]bool // lower names of struct columns whose leaves are fields
	// frame are the framework columns of a target with history, in schema: start, end,
	// and for BITEMPORAL system start and end. Nil in SCD1.
	frame      []int
	storedAs   string
	systemType schema.Type
	system     *keycode.Encoder
	tracked    []bool // of fields
	seqType    schema.Type
	code       *keycode.Encoder // of sequences
	grown      bool             // schema has columns that the table does not have yet
	// convert are the columns of a plan's source that come in a narrower type.
	convert map[*plan]map[int]*conversion
	// partitions are the lower names of the columns that the target is partitioned by.
	partitions map[string]bool
	// wider are nested columns that join with more fields than the first plan has.
	wider []schema.Field
	// later are columns of a plan's source whose type is not known yet; they join
	// when it is, and count as authored until then.
	later map[*plan][]string
}

// newShape grows the table's schema (nil: a table to be created) by the columns
// that the plans select. A changed type is CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE.
func newShape(table *schema.Struct, plans []*plan, split map[string]bool, rescued, widening bool, rules *Flow, zone expr.Options) (*shape, error) {
	s := &shape{schema: &schema.Struct{}, seqType: nullable(plans[0].seqType), convert: map[*plan]map[int]*conversion{}, later: map[*plan][]string{}, split: split}
	s.storedAs = plans[0].storedAs
	if plans[0].systemType != nil {
		s.systemType = nullable(plans[0].systemType)
	}
	var frame []schema.Field
	if table != nil {
		s.schema.Fields = slices.Clone(table.Fields)
		frame = s.cutFrame()
	}
	s.joinNew(table, plans, widening)
	for _, p := range plans {
		for _, i := range p.selected {
			c := p.source.Fields[i]
			at := s.schema.Index(c.Name)
			if at < 0 && c.Type == schema.Void {
				s.later[p] = append(s.later[p], c.Name)
				continue
			}
			if at < 0 {
				t := c.Type
				for _, w := range s.wider {
					if strings.EqualFold(w.Name, c.Name) {
						t = w.Type
					}
				}
				at = len(s.schema.Fields)
				s.schema.Fields = append(s.schema.Fields, schema.Field{Name: c.Name, Type: nullable(t), Nullable: true})
				s.grown = true
			}
			have := s.schema.Fields[at].Type
			if c.Type == schema.Void && have != schema.Void || (table != nil && table.Index(c.Name) >= 0 || widening && !slices.Contains(p.keys, i)) && widens(c.Type, have) ||
				isNested(have) && !schema.EqualIgnoringNullability(plainType(have), plainType(c.Type)) && fits(c.Type, have) && !slices.Contains(p.keys, i) {
				cv, err := newConversion(c, have, zone)
				if err != nil {
					return nil, err
				}
				if s.convert[p] == nil {
					s.convert[p] = map[int]*conversion{}
				}
				s.convert[p][i] = cv
				continue
			}
			if !schema.EqualIgnoringNullability(plainType(have), plainType(c.Type)) {
				code := CodeIncompatibleType
				if slices.Contains(p.keys, i) {
					code = CodeKeySchemaDrift
				}
				return nil, stored(code, "column %q has type %s in the target and %s in the source; a full refresh is needed to change it", c.Name, have, c.Type)
			}
		}
		if p.systemType != nil && typeName(p.systemType) != typeName(s.systemType) {
			return nil, stored(CodeSequencingTypeDrift, "the system sequence has type %s and then %s", typeName(s.systemType), typeName(p.systemType))
		}
		if typeName(p.seqType) != typeName(s.seqType) {
			return nil, stored(CodeSequencingTypeDrift, "the sequence has type %s and then %s", typeName(s.seqType), typeName(p.seqType))
		}
	}
	if rescued && s.schema.Index(rescuedColumn) < 0 {
		s.schema.Fields = append(s.schema.Fields, schema.Field{Name: rescuedColumn, Type: schema.String, Nullable: true})
		s.grown = true
	}
	if table == nil {
		s.joinHinted(rules)
	}
	if err := s.addFrame(frame); err != nil {
		return nil, err
	}
	for _, k := range plans[0].keys {
		name := plans[0].source.Fields[k].Name
		at := s.schema.Index(name)
		if at < 0 { // truncates alone
			return nil, running(CodeNullKey, "key column %q is null in every event, so that it has no type yet; declare its type", name)
		}
		s.keys = append(s.keys, at)
	}
	return s, s.finish()
}

// joinHinted adds the columns of a table to be created that hints or a declaration name
// and no event has brought yet.
func (s *shape) joinHinted(f *Flow) {
	for _, list := range []*schema.Struct{f.Declared, f.Hints} {
		if list == nil {
			continue
		}
		for _, c := range list.Fields {
			if s.schema.Index(c.Name) < 0 && !slices.Contains(f.ExceptColumnList, c.Name) && (f.ColumnList == nil || slices.Contains(f.ColumnList, c.Name)) {
				s.schema.Fields, s.grown = append(s.schema.Fields, schema.Field{Name: c.Name, Type: nullable(c.Type), Nullable: true}), true
			}
		}
	}
}

// joinNew adds the nested columns that join the table, each with the fields that any
// of the plans brings, and where types may be widened the widest type of plain ones:
// the same columns as if the plans had come in batches of their own.
func (s *shape) joinNew(table *schema.Struct, plans []*plan, widening bool) {
	for _, p := range plans {
		for _, i := range p.selected {
			c := p.source.Fields[i]
			if !isNested(c.Type) && !widening || table != nil && table.Index(c.Name) >= 0 || slices.Contains(p.keys, i) {
				continue
			}
			// A column of another plan comes first if it comes first in the source.
			first := slices.IndexFunc(plans, func(q *plan) bool { return q.source.Index(c.Name) >= 0 })
			if plans[first] != p {
				continue
			}
			t := c.Type
			for _, q := range plans[first+1:] {
				if at := q.source.Index(c.Name); at >= 0 {
					other := q.source.Fields[at].Type
					if j, ok := joined(c.Name, t, other); ok {
						t = j
					} else if widening && widens(t, other) {
						t = other
					}
				}
			}
			if !schema.EqualIgnoringNullability(plainType(t), plainType(c.Type)) {
				s.wider = append(s.wider, schema.Field{Name: c.Name, Type: nullable(t), Nullable: true})
			}
		}
	}
}

// finish derives fields and Arrow types from schema and keys.
func (s *shape) finish() error {
	s.fields, s.arrow, s.ofColumn = nil, nil, make([][]int, len(s.schema.Fields))
	for i, f := range s.schema.Fields {
		if strings.HasPrefix(strings.ToLower(f.Name), hiddenGroup) {
			return stored(CodeReservedTargetColumn, "target column %q uses the reserved prefix %s; rename or drop it", f.Name, hiddenGroup)
		}
		t, err := schema.ArrowType(f.Type)
		if err != nil {
			return stored(CodeInvalidTarget, "column %q: %v", f.Name, err)
		}
		s.arrow = append(s.arrow, t)
		if slices.Contains(s.keys, i) || slices.Contains(s.frame, i) {
			continue
		}
		for _, x := range fieldsOf(i, f, t, s.split[strings.ToLower(f.Name)]) {
			s.ofColumn[i] = append(s.ofColumn[i], len(s.fields))
			s.fields = append(s.fields, x)
		}
	}
	t, err := schema.ArrowType(s.seqType)
	if err != nil {
		return stored(CodeSequenceNotOrderable, "sequence: %v", err)
	}
	if s.code, err = keycode.NewEncoder([]arrow.DataType{t}); err != nil {
		return analysis(CodeSequenceNotOrderable, "sequence: %v", err)
	}
	if s.systemType == nil {
		return nil
	}
	if t, err = schema.ArrowType(s.systemType); err != nil {
		return stored(CodeSequenceNotOrderable, "system sequence: %v", err)
	}
	if s.system, err = keycode.NewEncoder([]arrow.DataType{t}); err != nil {
		return analysis(CodeSequenceNotOrderable, "system sequence: %v", err)
	}
	return nil
}

// cutFrame takes the framework columns off the end of a table's columns, so that
// columns that join come before them (auto-cdc 1.4). A table whose own order is
// another keeps it.
func (s *shape) cutFrame() []schema.Field {
	names := frameNames(s.storedAs)
	n := len(s.schema.Fields) - len(names)
	if n < 0 {
		return nil
	}
	for i, want := range names {
		if !strings.EqualFold(s.schema.Fields[n+i].Name, want) {
			return nil
		}
	}
	cut := slices.Clone(s.schema.Fields[n:])
	s.schema.Fields = s.schema.Fields[:n]
	return cut
}

// addFrame finds or adds the framework columns and holds them to the types of
// their sequences.
func (s *shape) addFrame(cut []schema.Field) error {
	s.schema.Fields = append(s.schema.Fields, cut...)
	s.frame = nil
	for i, name := range frameNames(s.storedAs) {
		t := s.seqType
		if i >= 2 {
			t = s.systemType
		}
		at := s.schema.Index(name)
		if at < 0 {
			at, s.grown = len(s.schema.Fields), true
			s.schema.Fields = append(s.schema.Fields, schema.Field{Name: name, Type: t, Nullable: true})
		}
		if have := s.schema.Fields[at].Type; !schema.EqualIgnoringNullability(plainType(have), plainType(t)) {
			return stored(CodeSequencingTypeDrift, "column %s of the target has type %s, the sequence has type %s", name, have, typeName(t))
		}
		s.frame = append(s.frame, at)
	}
	return nil
}

// identityNames are the target's names of the columns that tell its rows apart
// (auto-cdc 2.10).
func (s *shape) identityNames() []string {
	out := s.keyNames()
	for i := 0; i < len(s.frame); i += 2 {
		out = append(out, s.schema.Fields[s.frame[i]].Name)
	}
	return out
}

// statsNames are the columns that always get statistics.
func (s *shape) statsNames() []string {
	out := s.keyNames()
	for _, i := range s.frame {
		out = append(out, s.schema.Fields[i].Name)
	}
	return out
}

// keyNames are the target's names of the key columns.
func (s *shape) keyNames() []string {
	out := make([]string, len(s.keys))
	for i, k := range s.keys {
		out[i] = s.schema.Fields[k].Name
	}
	return out
}

// hidden is the group of row versions (apply-state 4.1) as a carry schema.
func (s *shape) hidden() *schema.Struct {
	return &schema.Struct{Fields: []schema.Field{{Name: hiddenGroup, Nullable: true, Type: &schema.Struct{Fields: []schema.Field{
		{Name: "v", Type: s.seqType, Nullable: true},
		{Name: "e", Type: schema.Integer, Nullable: true},
		{Name: "d", Type: schema.Binary, Nullable: true},
		{Name: "f", Nullable: true, Type: &schema.Array{ContainsNull: true, Elem: &schema.Struct{Fields: []schema.Field{
			{Name: "n", Type: schema.String, Nullable: true},
			{Name: "v", Type: schema.Binary, Nullable: true},
		}}}},
	}}}}}
}

// plainType is t without field metadata, which does not take part in comparing types.
func plainType(t schema.Type) schema.Type {
	switch t := t.(type) {
	case *schema.Struct:
		out := &schema.Struct{Fields: make([]schema.Field, len(t.Fields))}
		for i, f := range t.Fields {
			out.Fields[i] = schema.Field{Name: f.Name, Type: plainType(f.Type), Nullable: f.Nullable}
		}
		return out
	case *schema.Array:
		return &schema.Array{Elem: plainType(t.Elem), ContainsNull: t.ContainsNull}
	case *schema.Map:
		return &schema.Map{Key: plainType(t.Key), Value: plainType(t.Value), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// origin aligns a batch with the shape; keys are normalised already. silent are, per
// source column, the rows whose event does not list it (nil: none).
func (s *shape) origin(p *plan, b *event.Batch, keys []arrow.Array, rescued arrow.Array, silent []event.Bits) (*origin, error) {
	o := &origin{
		fields: make([]arrow.Array, len(s.fields)), unauth: make([]event.Bits, len(s.fields)),
		unavail: make([]event.Bits, len(s.fields)), keys: keys, whole: true,
	}
	at := map[int]int{} // schema column -> source column
	for _, i := range p.selected {
		at[s.schema.Index(p.source.Fields[i].Name)] = i
	}
	for col, own := range s.ofColumn {
		if len(own) == 0 {
			continue
		}
		i, ok := at[col]
		switch {
		case ok:
			a, err := s.convert[p][i].apply(p.source.Fields[i], b.Rows.Column(i))
			if err != nil {
				return nil, err
			}
			if a, err = canonical(s.stored(p.source.Fields[i].Name, a), false); err != nil {
				return nil, err
			}
			for _, f := range own {
				if o.fields[f], err = s.fields[f].leaf(a); err != nil {
					return nil, err
				}
				if b.Unauthored != nil {
					o.unauth[f] = b.Unauthored[i]
				}
				if silent != nil {
					o.unauth[f] = either(o.unauth[f], silent[i])
				}
				if p.covered[i] {
					o.unauth[f] = either(o.unauth[f], nulls(o.fields[f]))
				}
				if b.Unavailable != nil {
					o.unavail[f] = b.Unavailable[i]
				}
			}
		case s.schema.Fields[col].Name == rescuedColumn:
			o.fields[own[0]] = rescued
		default:
			o.whole = false
		}
	}
	return o, nil
}

// either is the union of two bitmaps, which stay as they are.
func either(a, b event.Bits) event.Bits {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make(event.Bits, max(len(a), len(b)))
	copy(out, a)
	for i, w := range b {
		out[i] |= w
	}
	return out
}

// nulls are the rows in which an array is null.
func nulls(a arrow.Array) event.Bits {
	if a.NullN() == 0 {
		return nil
	}
	out := make(event.Bits, (a.Len()+63)/64)
	for r := range a.Len() {
		if a.IsNull(r) {
			out[r>>6] |= 1 << (r & 63)
		}
	}
	return out
}

// authored are the physical names of the fields that an origin's schema has.
func (s *shape) authored(p *plan, o *origin) []string {
	var out []string
	for _, n := range s.later[p] { // nothing but nulls so far
		if !p.covered[p.source.Index(n)] {
			out = append(out, n)
		}
	}
	for f, a := range o.fields {
		if a != nil {
			out = append(out, s.fields[f].name)
		}
	}
	return out
}

// keyBytesText prints key bytes for messages.
func (s *shape) keyBytesText(key []byte) string {
	types := make([]arrow.DataType, len(s.keys))
	builders := make([]array.Builder, len(s.keys))
	for i, k := range s.keys {
		types[i] = s.arrow[k]
		builders[i] = array.NewBuilder(memory.DefaultAllocator, types[i])
		defer builders[i].Release()
	}
	enc, err := keycode.NewEncoder(types)
	if err != nil {
		return fmt.Sprintf("%x", key)
	}
	if _, err := enc.Decode(key, builders); err != nil {
		return fmt.Sprintf("%x", key)
	}
	parts := make([]string, len(s.keys))
	for i, b := range builders {
		parts[i] = s.schema.Fields[s.keys[i]].Name + "=" + cellString(b.NewArray(), 0)
	}
	return strings.Join(parts, ", ")
}

// carriedSequence is the sequence type of a table's hidden group.
func carriedSequence(carry *schema.Struct) (schema.Type, error) {
	if carry != nil && len(carry.Fields) == 1 {
		if g, ok := carry.Fields[0].Type.(*schema.Struct); ok && len(g.Fields) == 4 {
			return g.Fields[0].Type, nil
		}
	}
	return nil, stored(CodeStateMismatch, "the target's property sluice.carry does not describe row versions")
}

// stored is a column as the target keeps it: partition values cannot tell an empty
// text from null (protocol, Partition Value Serialization), so what is decided must not tell them apart either.
func (s *shape) stored(name string, a arrow.Array) arrow.Array {
	if !s.partitions[strings.ToLower(name)] {
		return a
	}
	switch a := a.(type) {
	case *array.String:
		return withoutEmpty(array.NewStringBuilder(memory.DefaultAllocator), a, a.Value)
	case *array.Binary:
		return withoutEmpty(array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary), a, a.Value)
	}
	return a
}

// withoutEmpty is a with null for every empty value.
func withoutEmpty[V string | []byte, B interface {
	array.Builder
	Append(V)
}](b B, a arrow.Array, value func(int) V) arrow.Array {
	defer b.Release()
	for i := range a.Len() {
		if a.IsNull(i) || len(value(i)) == 0 {
			b.AppendNull()
			continue
		}
		b.Append(value(i))
	}
	return b.NewArray()
}
