package apply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// Evolution is what happens to columns that the target does not have, and to values that
// do not fit its types (cdc-formats 20).
type Evolution string

// The modes. The zero value adds columns, widens types where the target allows it, and
// refuses other types.
const (
	EvolveAdd      Evolution = "addNewColumns"
	EvolveAddWiden Evolution = "addNewColumnsWithTypeWidening"
	EvolveRescue   Evolution = "rescue"
	EvolveFail     Evolution = "failOnNewColumns"
	EvolveNone     Evolution = "none"
)

// Evolutions lists the modes.
func Evolutions() []string {
	return []string{string(EvolveAdd), string(EvolveAddWiden), string(EvolveRescue), string(EvolveFail), string(EvolveNone)}
}

// CodeUnknownField stops a target under EvolveFail.
const CodeUnknownField = "UNKNOWN_FIELD"

func (f *Flow) validateEvolution() []error {
	var errs []error
	if f.Evolution != "" && !slices.Contains(Evolutions(), string(f.Evolution)) {
		errs = append(errs, analysis("INVALID_OPTION", "schema evolution %q: must be %s", f.Evolution, strings.Join(Evolutions(), ", ")))
	}
	for what, s := range map[string]*schema.Struct{"schema hints": f.Hints, "declared columns": f.Declared} {
		if s == nil {
			continue
		}
		seen := map[string]bool{}
		for _, c := range s.Fields {
			if l := strings.ToLower(c.Name); seen[l] {
				errs = append(errs, analysis(CodeDuplicateColumn, "%s name column %q twice", what, c.Name))
			} else {
				seen[l] = true
			}
		}
	}
	return errs
}

// evolution is a batch on its way to what the target takes of it.
type evolution struct {
	t       *target
	f       *Flow
	p       *plan
	b       *event.Batch
	out     *event.Batch
	columns []arrow.Array
	leave   []string // columns that do not land
	// rescue are the members of each row's rescued object.
	rescue map[int][]byte
}

// evolve is the batch as the flow's mode lets it into the target, with its plan:
// values that do not fit are cast one by one, and what cannot be held is rescued or
// left out. Without a mode and without hints the batch stays as it is.
func (t *target) evolve(b *event.Batch) (*event.Batch, *plan, error) {
	p, err := t.planOf(b)
	f := t.rules()
	if err != nil || f.Evolution == "" && f.Hints == nil {
		return b, p, err
	}
	out := *b
	if f.Evolution == EvolveNone && b.Rescued != nil {
		if table := t.heldBy(f); table == nil || table.Index(rescuedColumn) < 0 {
			t.run.warn(fmt.Sprintf("%s: values that do not fit the target are null there (schema evolution none)", t.title))
			out.Rescued = nil
		}
	}
	out.Columns = &schema.Struct{Fields: slices.Clone(b.Columns.Fields)}
	e := &evolution{t: t, f: f, p: p, b: b, out: &out, columns: slices.Clone(b.Rows.Columns()), rescue: map[int][]byte{}}
	for _, i := range p.selected {
		if b.Columns.Fields[i].Type == schema.Void {
			continue // joins, or not, when it has a value
		}
		if err := e.column(i); err != nil {
			return nil, nil, err
		}
	}
	return e.finish()
}

// column decides about one source column.
func (e *evolution) column(i int) error {
	c := e.b.Columns.Fields[i]
	key := slices.Contains(e.p.keys, i)
	var hint, have schema.Type
	if e.f.Hints != nil {
		if at := e.f.Hints.Index(c.Name); at >= 0 {
			hint = e.f.Hints.Fields[at].Type
		}
	}
	table := e.table()
	if table != nil {
		if at := table.Index(c.Name); at >= 0 {
			have = table.Fields[at].Type
		}
	}
	switch {
	case have != nil && key && hint == nil:
		return nil // a key is never rescued: the shape refuses it
	case have != nil:
		return e.known(i, c, have, key)
	case hint != nil:
		return e.cast(i, hint, key)
	case table == nil || key:
		return nil // of a table to be created
	}
	switch e.f.Evolution {
	case EvolveFail:
		return running(CodeUnknownField, "column %q %s is new in the source, and the flow fails on new columns; add it to the target (sluice alter TABLE add-column), leave it out (except-columns), or choose another schema evolution",
			c.Name, c.Type)
	case EvolveNone:
		e.t.run.warn(fmt.Sprintf("%s: column %q is not in the target and is left out (schema evolution none)", e.t.title, c.Name))
		e.leave = append(e.leave, c.Name)
	case EvolveRescue:
		e.leave = append(e.leave, c.Name)
		return e.rescueAll(i, c)
	}
	return nil
}

// table are the columns that there are: the target's, or those declared for a new one;
// nil if the batch makes them.
func (e *evolution) table() *schema.Struct { return e.t.heldBy(e.f) }

func (t *target) heldBy(f *Flow) *schema.Struct {
	if t.snap != nil && !t.state.target.Fresh {
		return t.snap.Schema
	}
	return f.Declared
}

// known fits a column into the one that the target has.
func (e *evolution) known(i int, c schema.Field, have schema.Type, key bool) error {
	if fits(c.Type, have) || e.f.Evolution == "" {
		return nil
	}
	if e.f.Evolution == EvolveAddWiden && e.widens(i) {
		return nil
	}
	if isNested(c.Type) || isNested(have) {
		if e.f.Evolution == EvolveAdd && e.widens(i) {
			return nil // fields that are new in a struct
		}
		return e.nothing(i, c, have)
	}
	return e.cast(i, have, key)
}

// widens tells whether the target can take a column's type over.
func (e *evolution) widens(i int) bool {
	one := *e.p
	one.selected = []int{i}
	return e.t.widening([]*plan{&one}) != nil
}

// cast reads each value as the type; what cannot be is rescued, and refused of a key.
func (e *evolution) cast(i int, to schema.Type, key bool) error {
	c := e.b.Columns.Fields[i]
	if schema.EqualIgnoringNullability(plainType(c.Type), plainType(to)) {
		return nil
	}
	if isNested(c.Type) || isNested(to) {
		return e.nothing(i, c, to)
	}
	zone := e.t.run.zone()
	bound, err := expr.Parse("TRY_CAST(`" + strings.ReplaceAll(c.Name, "`", "``") + "` AS " + to.String() + ")")
	if err != nil {
		return fmt.Errorf("read column %s as %s: %w", c.Name, to, err)
	}
	in := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: c.Name, Type: e.columns[i].DataType(), Nullable: true}}, nil), []arrow.Array{e.columns[i]}, int64(e.columns[i].Len()))
	of, err := bound.BindWith(&schema.Struct{Fields: []schema.Field{c}}, zone)
	if err != nil {
		return e.nothing(i, c, to) // no value of the one type is one of the other
	}
	a, err := of.Eval(in)
	if err != nil {
		return fmt.Errorf("read column %s as %s: %w", c.Name, to, err)
	}
	for r := range a.Len() {
		if a.IsValid(r) || !e.carries(i, r) {
			continue
		}
		if key {
			return running(CodeKeySchemaDrift, "key column %q: a value of type %s is no %s%s", c.Name, c.Type, to, lineText(e.b, r))
		}
		if err := e.keep(i, c, r); err != nil {
			return err
		}
	}
	e.columns[i] = a
	e.out.Columns.Fields[i].Type = to
	return nil
}

// nothing puts all values of a column into the rescued data, and nulls in their place.
func (e *evolution) nothing(i int, c schema.Field, to schema.Type) error {
	if slices.Contains(e.p.keys, i) {
		return nil
	}
	dt, err := schema.ArrowType(to)
	if err != nil {
		return stored(CodeInvalidTarget, "column %q: %v", c.Name, err)
	}
	if err := e.rescueAll(i, c); err != nil {
		return err
	}
	e.columns[i] = datafile.NullArray(dt, e.columns[i].Len())
	e.out.Columns.Fields[i].Type = to
	return nil
}

func (e *evolution) rescueAll(i int, c schema.Field) error {
	for r := range e.columns[i].Len() {
		if e.carries(i, r) {
			if err := e.keep(i, c, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// carries tells whether a row brings a value of the column.
func (e *evolution) carries(i, r int) bool {
	op := e.b.Ops[r]
	return e.columns[i].IsValid(r) && op != event.Delete && op != event.Truncate && (e.b.Unauthored == nil || !e.b.Unauthored[i].Get(r))
}

// keep adds a value to the rescued object of its row. Under EvolveNone only a target
// that has the column for it keeps it.
func (e *evolution) keep(i int, c schema.Field, r int) error {
	if e.f.Evolution == EvolveNone {
		if table := e.table(); table == nil || table.Index(rescuedColumn) < 0 {
			e.t.run.warn(fmt.Sprintf("%s: values of column %q do not fit the target and are null there (schema evolution none)", e.t.title, c.Name))
			return nil
		}
	}
	buf := e.rescue[r]
	if len(buf) > 0 {
		buf = append(buf, ',')
	}
	buf = append(rowio.AppendJSONString(buf, c.Name), ':')
	buf, err := rowio.AppendJSONValue(buf, c.Type, e.columns[i], r)
	if err != nil {
		return fmt.Errorf("rescue column %s: %w", c.Name, err)
	}
	e.rescue[r] = buf
	return nil
}

// finish is the batch with the new columns and the plan that leaves out the others.
func (e *evolution) finish() (*event.Batch, *plan, error) {
	as, err := schema.ArrowSchema(e.out.Columns)
	if err != nil {
		return nil, nil, err
	}
	e.out.Rows = array.NewRecordBatch(as, e.columns, e.b.Rows.NumRows())
	if len(e.rescue) > 0 {
		texts := make([]string, e.b.Rows.NumRows())
		copy(texts, e.out.Rescued)
		for r, members := range e.rescue {
			if was := strings.TrimSuffix(texts[r], "}"); was != "" && was != "{" {
				texts[r] = was + "," + string(members) + "}"
			} else {
				texts[r] = "{" + string(members) + "}"
			}
		}
		e.out.Rescued = texts
	}
	p, err := e.t.planWithout(e.out, e.leave)
	return e.out, p, err
}

// planWithout is planOf for the flow that leaves further columns out.
func (t *target) planWithout(b *event.Batch, leave []string) (*plan, error) {
	if len(leave) == 0 {
		return t.planOf(b)
	}
	k := describe(b.Columns, b.Keys, b.SeqType) + "|-" + strings.Join(leave, ",")
	if p := t.plans[k]; p != nil {
		return p, nil
	}
	f := *t.rules()
	if f.ColumnList != nil {
		f.ColumnList = slices.DeleteFunc(slices.Clone(f.ColumnList), func(c string) bool {
			return slices.ContainsFunc(leave, func(l string) bool { return strings.EqualFold(l, c) })
		})
	} else {
		f.ExceptColumnList = slices.Concat(f.ExceptColumnList, leave)
	}
	p, err := f.planFor(b, t.sequenceType(), t.run.zone())
	if err != nil {
		return nil, t.named(err)
	}
	t.plans[k] = p
	return p, nil
}
