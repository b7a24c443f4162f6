package delta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// NewColumn is a column or nested field to add.
type NewColumn struct {
	// Parent is the path of the struct that gets the field, "" for a column.
	Parent string
	Field  schema.Field
	// First and After place it; without them it becomes the last.
	First bool
	After string
}

// AddColumns adds nullable columns and fields (W-407); rows that are there have null in
// them.
type AddColumns struct{ Columns []NewColumn }

func (c AddColumns) alter(a *alteration) error {
	type added struct {
		Column   json.RawMessage `json:"column"`
		Position string          `json:"position,omitempty"`
	}
	var log []added
	for _, n := range c.Columns {
		var parent []string
		if n.Parent != "" {
			var err error
			if parent, err = schema.ParsePath(n.Parent); err != nil {
				return err
			}
		}
		f := n.Field
		at := strings.Join(append(slices.Clone(parent), f.Name), ".")
		if !f.Nullable {
			return &schema.RuleError{ErrorCode: "DELTA_ADD_COLUMN_NOT_NULL", Column: at, Reason: "a new column cannot be NOT NULL: rows that are there have no value for it"}
		}
		if inner := firstNotNull(f.Type); inner != nil {
			return &schema.RuleError{ErrorCode: "DELTA_ADD_COLUMN_NOT_NULL", Column: strings.Join(append([]string{at}, inner...), "."),
				Reason: "a field of a new column cannot be NOT NULL: rows that are there have no value for it"}
		}
		for key, what := range map[string]string{keyDefault: "a default: add the column, then set its default", keyGeneration: "a generation expression", keyIdentityStart: "an identity"} {
			if _, ok := f.Metadata.Get(key); ok {
				return &schema.RuleError{ErrorCode: "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED", Column: at, Reason: "a column cannot be added with " + what}
			}
		}
		f.Metadata = f.Metadata.Without(schema.MappingIDKey).Without(schema.MappingNameKey)
		s, err := schema.EditStruct(a.schema, parent, func(s *schema.Struct) (*schema.Struct, error) {
			if s.Index(f.Name) >= 0 {
				return nil, &schema.RuleError{ErrorCode: "DELTA_COLUMN_ALREADY_EXISTS", Column: at, Reason: "there is such a column (names are compared ignoring case)"}
			}
			return place(s, f, len(s.Fields), n.First, n.After)
		})
		if err != nil {
			return err
		}
		a.schema = s
		log = append(log, added{columnJSON(parent, f), position(n.First, n.After)})
	}
	a.operation, a.params = "ADD COLUMNS", map[string]string{"columns": jsonText(log)}
	return nil
}

// firstNotNull is the path of a NOT NULL field of structs below t, nil if there is none.
func firstNotNull(t schema.Type) []string {
	s, ok := t.(*schema.Struct)
	if !ok {
		return nil
	}
	for _, f := range s.Fields {
		if !f.Nullable {
			return []string{f.Name}
		}
		if inner := firstNotNull(f.Type); inner != nil {
			return append([]string{f.Name}, inner...)
		}
	}
	return nil
}

func position(first bool, after string) string {
	switch {
	case first:
		return "FIRST"
	case after != "":
		return "AFTER " + after
	}
	return ""
}

// place inserts a field into a copy of s; at is where without a wish.
func place(s *schema.Struct, f schema.Field, at int, first bool, after string) (*schema.Struct, error) {
	switch {
	case first && after != "":
		return nil, &schema.RuleError{ErrorCode: "DELTA_INVALID_COLUMN_POSITION", Column: f.Name, Reason: "FIRST and AFTER exclude each other"}
	case first:
		at = 0
	case after != "":
		i := s.Index(after)
		if i < 0 {
			return nil, &schema.RuleError{ErrorCode: "DELTA_COLUMN_NOT_FOUND", Column: after, Reason: "there is no such column to stand after"}
		}
		at = i + 1
	}
	return &schema.Struct{Fields: slices.Insert(slices.Clone(s.Fields), at, f)}, nil
}

// DropColumns drops columns and fields. The table needs column mapping: files keep the
// data, and only their physical names hide it (W-407, W-504).
type DropColumns struct {
	Columns  []string
	IfExists bool
}

func (c DropColumns) alter(a *alteration) error {
	if err := a.needMapping("DELTA_UNSUPPORTED_DROP_COLUMN", "drop columns"); err != nil {
		return err
	}
	var dropped []string
	for _, text := range c.Columns {
		path, err := schema.ParsePath(text)
		if err != nil {
			return err
		}
		if _, err := schema.Lookup(a.schema, path); err != nil && c.IfExists {
			continue
		}
		n := len(path) - 1
		if err := a.mayLose(path, "dropped"); err != nil {
			return err
		}
		if n == 0 && slices.ContainsFunc(a.partition, func(p string) bool { return strings.EqualFold(p, path[0]) }) {
			return &schema.RuleError{ErrorCode: "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN", Column: text, Reason: "a partition column cannot be dropped"}
		}
		if a.schema, err = schema.EditStruct(a.schema, path[:n], func(s *schema.Struct) (*schema.Struct, error) {
			i := s.Index(path[n])
			if i < 0 {
				return nil, &schema.RuleError{ErrorCode: "DELTA_COLUMN_NOT_FOUND", Column: text, Reason: "there is no such column"}
			}
			if len(s.Fields) == 1 {
				return nil, &schema.RuleError{ErrorCode: "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA", Column: text, Reason: "it is the only one"}
			}
			return &schema.Struct{Fields: slices.Delete(slices.Clone(s.Fields), i, i+1)}, nil
		}); err != nil {
			return err
		}
		a.skipping(path, nil)
		dropped = append(dropped, attribute(path))
	}
	a.operation, a.params = "DROP COLUMNS", map[string]string{"columns": jsonText(dropped)}
	return nil
}

// RenameColumn gives a column or field another name; To is its last part. The table
// needs column mapping (W-407, W-504).
type RenameColumn struct{ Column, To string }

func (c RenameColumn) alter(a *alteration) error {
	if err := a.needMapping("DELTA_UNSUPPORTED_RENAME_COLUMN", "rename columns"); err != nil {
		return err
	}
	path, err := schema.ParsePath(c.Column)
	if err != nil {
		return err
	}
	if c.To == "" {
		return &schema.RuleError{ErrorCode: "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", Column: c.Column, Reason: "the new name is empty"}
	}
	if err := a.mayLose(path, "renamed"); err != nil {
		return err
	}
	n := len(path) - 1
	if a.schema, err = schema.EditStruct(a.schema, path[:n], func(s *schema.Struct) (*schema.Struct, error) {
		i := s.Index(path[n])
		if i < 0 {
			return nil, &schema.RuleError{ErrorCode: "DELTA_COLUMN_NOT_FOUND", Column: c.Column, Reason: "there is no such column (there are " + strings.Join(s.Names(), ", ") + ")"}
		}
		if j := s.Index(c.To); j >= 0 && j != i {
			return nil, &schema.RuleError{ErrorCode: "DELTA_COLUMN_ALREADY_EXISTS", Column: c.To, Reason: "there is such a column (names are compared ignoring case)"}
		}
		out := &schema.Struct{Fields: slices.Clone(s.Fields)}
		out.Fields[i].Name = c.To
		return out, nil
	}); err != nil {
		return err
	}
	to := append(slices.Clone(path[:n]), c.To)
	if n == 0 {
		for i, p := range a.partition {
			if strings.EqualFold(p, path[0]) {
				a.partition[i] = c.To
			}
		}
	}
	a.skipping(path, to)
	a.operation, a.params = "RENAME COLUMN", map[string]string{"oldColumnPath": attribute(path), "newColumnPath": attribute(to)}
	return nil
}

// needMapping refuses what only physical names make possible.
func (a *alteration) needMapping(code, what string) error {
	if a.snap.Mode() != schema.ModeNone {
		return nil
	}
	return &deltalog.InvalidError{ErrorCode: code, Rule: "W-407",
		Reason: "to " + what + " the table needs column mapping: set delta.columnMapping.mode=name with an explicit upgrade (older readers cannot read it then)"}
}

// mayLose refuses a column that something else of the table uses.
func (a *alteration) mayLose(path []string, what string) error {
	if by := dependents(a.snap, a.schema, path); by != "" {
		return dependent(what, strings.Join(path, "."), by)
	}
	return nil
}

// skipping keeps delta.dataSkippingStatsColumns in step with a column that goes (to is
// nil) or gets another name.
func (a *alteration) skipping(path, to []string) {
	const key = "delta.dataSkippingStatsColumns"
	if _, set := a.config[key]; !set || a.stats == nil {
		return
	}
	var texts []string
	have := a.stats
	a.stats = [][]string{}
	for _, p := range have {
		switch {
		case !prefixed(p, path):
		case to == nil:
			continue
		default:
			p = append(slices.Clone(to), p[len(path):]...)
		}
		texts = append(texts, schema.PathText(p))
		a.stats = append(a.stats, p)
	}
	a.config[key] = strings.Join(texts, ",")
}

// ChangeColumn changes what is not nil or empty: the type (type widening), whether it
// takes nulls, its comment, its default, its place.
type ChangeColumn struct {
	Column string
	// Type is the wider type; the table needs delta.enableTypeWidening=true (W-831).
	Type schema.Type
	// Length is the length of a string column as schema.CharVarcharKey keeps it,
	// "varchar(20)", "" for none; it may only grow (W-405).
	Length *string
	// NotNull true needs rows without nulls in it.
	NotNull *bool
	Comment *string // "" removes it
	// Default is SQL text of a constant, "" removes it (W-424).
	Default *string
	First   bool
	After   string
}

func (c ChangeColumn) alter(a *alteration) error {
	path, err := schema.ParsePath(c.Column)
	if err != nil {
		return err
	}
	old, err := schema.Lookup(a.schema, path)
	if err != nil {
		return err
	}
	n := len(path) - 1
	if c.Type != nil && !schema.Equal(old.Type, c.Type) {
		if err := a.mayLose(path, "given another type"); err != nil {
			return err
		}
		if a.schema, err = schema.ChangeType(a.schema, path, c.Type, a.mayWiden); err != nil {
			return err
		}
	}
	f, err := schema.Lookup(a.schema, path)
	if err != nil {
		return err
	}
	if c.NotNull != nil || c.Length != nil || c.Comment != nil || c.Default != nil || c.First || c.After != "" {
		a.schema, err = schema.EditStruct(a.schema, path[:n], func(s *schema.Struct) (*schema.Struct, error) {
			i := s.Index(path[n])
			if i < 0 {
				return nil, &schema.RuleError{ErrorCode: "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", Column: c.Column, Reason: "only the type of array elements, map keys and values can be changed"}
			}
			f = s.Fields[i]
			if err := c.edit(a, path, &f); err != nil {
				return nil, err
			}
			if !c.First && c.After == "" {
				out := &schema.Struct{Fields: slices.Clone(s.Fields)}
				out.Fields[i] = f
				return out, nil
			}
			if strings.EqualFold(c.After, path[n]) {
				return nil, &schema.RuleError{ErrorCode: "DELTA_INVALID_COLUMN_POSITION", Column: c.Column, Reason: "a column cannot stand after itself"}
			}
			rest := &schema.Struct{Fields: slices.Delete(slices.Clone(s.Fields), i, i+1)}
			return place(rest, f, i, c.First, c.After)
		})
		if err != nil {
			return err
		}
	}
	if schema.Equal(a.schema, a.snap.Schema) && a.schema.JSON() == a.snap.Schema.JSON() {
		a.schema = a.snap.Schema
	}
	told := f
	told.Metadata = old.Metadata // as Spark does: the history before this change
	column := columnJSON(path[:n], told)
	a.operation, a.params = "CHANGE COLUMN", map[string]string{"column": string(column)}
	if p := position(c.First, c.After); p != "" {
		a.params["position"] = p
	}
	return nil
}

// edit changes everything but type and place.
func (c ChangeColumn) edit(a *alteration, path []string, f *schema.Field) error {
	if c.NotNull != nil && f.Nullable == *c.NotNull {
		if *c.NotNull {
			if err := plainPath(a.schema, path); err != nil {
				return err
			}
			a.notNull = append(a.notNull, path)
		}
		f.Nullable = !*c.NotNull
	}
	if c.Length != nil {
		if err := c.resize(a, path, f); err != nil {
			return err
		}
	}
	if c.Comment != nil {
		if f.Metadata = f.Metadata.Without("comment"); *c.Comment != "" {
			f.Metadata = f.Metadata.With("comment", *c.Comment)
		}
	}
	if c.Default != nil {
		if len(path) > 1 {
			return &schema.RuleError{ErrorCode: "DELTA_UNSUPPORTED_NESTED_DEFAULT", Column: c.Column, Reason: "only columns can have a default"}
		}
		if f.Metadata = f.Metadata.Without(keyDefault); *c.Default != "" {
			f.Metadata = f.Metadata.With(keyDefault, *c.Default)
			a.features = append(a.features, featureDefaults)
		}
	}
	return nil
}

// resize changes the length of a string column.
func (c ChangeColumn) resize(a *alteration, path []string, f *schema.Field) error {
	var have string
	if raw, ok := f.Metadata.Get(schema.CharVarcharKey); ok && json.Unmarshal(raw, &have) != nil {
		return &schema.RuleError{ErrorCode: "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", Column: c.Column, Reason: "the metadata of its length cannot be read"}
	}
	if have == *c.Length {
		return nil
	}
	reason := schema.CanChangeLength(have, *c.Length)
	if f.Type != schema.String {
		reason = fmt.Sprintf("it is %s, not a string", f.Type)
	}
	if reason != "" {
		return &schema.RuleError{ErrorCode: "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", Column: c.Column, Reason: reason}
	}
	if f.Metadata = f.Metadata.Without(schema.CharVarcharKey); *c.Length != "" {
		f.Metadata = f.Metadata.With(schema.CharVarcharKey, *c.Length)
	}
	return nil
}

// plainPath refuses NOT NULL where it cannot be enforced (W-403).
func plainPath(s *schema.Struct, path []string) error {
	for i := range path[:len(path)-1] {
		f, err := schema.Lookup(s, path[:i+1])
		if err != nil {
			return err
		}
		if _, ok := f.Type.(*schema.Struct); !ok {
			return &schema.RuleError{ErrorCode: "DELTA_NESTED_NOT_NULL_CONSTRAINT", Column: strings.Join(path, "."), Reason: "NOT NULL inside an array or map cannot be enforced"}
		}
	}
	return nil
}

// mayWiden is W-831.
func (a *alteration) mayWiden(from, to schema.Type) error {
	switch {
	case from == schema.Void:
		return nil
	case !schema.CanWiden(from, to):
		return fmt.Errorf("%s cannot become %s: only type widening is possible", from, to)
	case !a.snap.WidensTypes():
		return fmt.Errorf("%s becomes %s only with type widening: set delta.enableTypeWidening=true with an explicit upgrade (older readers cannot read the table then)", from, to)
	}
	return nil
}
