package schema

import (
	"fmt"
	"strings"
)

// ParsePath reads the name of a column or nested field: parts between dots, in
// backticks (doubled inside) where they hold special characters. In an array the part
// is "element", in a map "key" or "value". The error is a *[SyntaxError].
func ParsePath(text string) ([]string, error) {
	p := &ddlParser{text: text}
	fail := func(reason string) error { return &SyntaxError{text, p.pos, reason} }
	var out []string
	for {
		var b strings.Builder
		if p.pos < len(text) && text[p.pos] == '`' {
			p.pos++
			for {
				if p.pos >= len(text) {
					return nil, fail("a backtick is open")
				}
				c := text[p.pos]
				p.pos++
				if c == '`' {
					if p.pos >= len(text) || text[p.pos] != '`' {
						break
					}
					p.pos++
				}
				b.WriteByte(c)
			}
		} else {
			for p.pos < len(text) && text[p.pos] != '.' && text[p.pos] != '`' {
				b.WriteByte(text[p.pos])
				p.pos++
			}
		}
		part := b.String()
		if part == "" {
			return nil, fail("a name is empty")
		}
		out = append(out, part)
		switch {
		case p.pos == len(text):
			return out, nil
		case text[p.pos] != '.':
			return nil, fail("expected a dot")
		}
		p.pos++
	}
}

// PathText is the text of a path for [ParsePath].
func PathText(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = QuoteName(p)
	}
	return strings.Join(parts, ".")
}

// EditStruct is s with the struct at path replaced by what edit makes of it; an empty
// path is s itself. Names are matched ignoring case; "element", "key" and "value"
// lead into arrays and maps. The error is a *[RuleError] when the path leads nowhere,
// or edit's own.
func EditStruct(s *Struct, path []string, edit func(*Struct) (*Struct, error)) (*Struct, error) {
	t, err := editStruct(s, path, "", edit)
	if err != nil {
		return nil, err
	}
	return t.(*Struct), nil
}

func editStruct(t Type, path []string, at string, edit func(*Struct) (*Struct, error)) (Type, error) {
	if len(path) == 0 {
		s, ok := t.(*Struct)
		if !ok {
			return nil, &RuleError{"DELTA_ADD_COLUMN_PARENT_NOT_STRUCT", at, fmt.Sprintf("it has type %s and no fields of its own", t)}
		}
		return edit(s)
	}
	return editChild(t, path[0], at, func(c Type, at string) (Type, error) { return editStruct(c, path[1:], at, edit) })
}

// editChild replaces the child of a type that a part of a path names.
func editChild(t Type, part, at string, edit func(Type, string) (Type, error)) (Type, error) {
	next := join(at, part)
	switch x := t.(type) {
	case *Struct:
		i := x.Index(part)
		if i < 0 {
			return nil, &RuleError{"DELTA_COLUMN_NOT_FOUND", next, "there is no such column (there are " + strings.Join(x.Names(), ", ") + ")"}
		}
		f := x.Fields[i]
		c, err := edit(f.Type, join(at, f.Name))
		if err != nil {
			return nil, err
		}
		out := &Struct{Fields: append([]Field(nil), x.Fields...)}
		out.Fields[i].Type = c
		return out, nil
	case *Array:
		if strings.EqualFold(part, "element") {
			c, err := edit(x.Elem, next)
			return &Array{Elem: c, ContainsNull: x.ContainsNull}, err
		}
	case *Map:
		switch {
		case strings.EqualFold(part, "key"):
			c, err := edit(x.Key, next)
			return &Map{Key: c, Value: x.Value, ValueContainsNull: x.ValueContainsNull}, err
		case strings.EqualFold(part, "value"):
			c, err := edit(x.Value, next)
			return &Map{Key: x.Key, Value: c, ValueContainsNull: x.ValueContainsNull}, err
		}
	}
	return nil, &RuleError{"DELTA_COLUMN_NOT_FOUND", next, fmt.Sprintf("there is no such part of %s", t)}
}

// ChangeType is s with the type at path changed from what it is to to, with its
// history on the nearest field (W-831). may decides over the change.
func ChangeType(s *Struct, path []string, to Type, may func(from, to Type) error) (*Struct, error) {
	out, _, err := changeType(s, path, "", to, may)
	if err != nil {
		return nil, err
	}
	return out.(*Struct), nil
}

// changeType answers the new type and the change, if one has still to be noted on a
// field around.
func changeType(t Type, path []string, at string, to Type, may func(from, to Type) error) (Type, *TypeChange, error) {
	if len(path) == 0 {
		if err := may(t, to); err != nil {
			return nil, nil, &RuleError{"DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", at, err.Error()}
		}
		if t == Void || Equal(t, to) {
			return to, nil, nil
		}
		return to, &TypeChange{From: t, To: to}, nil
	}
	var change *TypeChange
	out, err := editChild(t, path[0], at, func(c Type, at string) (Type, error) {
		n, ch, err := changeType(c, path[1:], at, to, may)
		change = ch
		return n, err
	})
	if err != nil || change == nil {
		return out, nil, err
	}
	if x, ok := out.(*Struct); ok {
		i := x.Index(path[0])
		x.Fields[i] = x.Fields[i].WithTypeChange(*change)
		return x, nil, nil
	}
	change.FieldPath = join(strings.ToLower(path[0]), change.FieldPath)
	change.FieldPath = strings.TrimSuffix(change.FieldPath, ".")
	return out, change, nil
}

// Lookup finds the field at a path. A part of an array or map is a field of its own
// without metadata.
func Lookup(s *Struct, path []string) (Field, error) {
	at, t := "", Type(s)
	f := Field{Type: s}
	for _, part := range path {
		parent := t
		_, err := editChild(t, part, at, func(c Type, next string) (Type, error) {
			t, at = c, next
			return c, nil
		})
		if err != nil {
			return Field{}, err
		}
		f = Field{Name: part, Type: t, Nullable: true}
		switch x := parent.(type) {
		case *Struct:
			f = x.Fields[x.Index(part)]
		case *Array:
			f.Nullable = x.ContainsNull
		case *Map:
			f.Nullable = x.ValueContainsNull && strings.EqualFold(part, "value")
		}
	}
	return f, nil
}
