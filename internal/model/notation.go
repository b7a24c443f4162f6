package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Type is the type of a value of the notation: the DDL name of a plain type, or
// "struct" with its fields.
type Type struct {
	Name   string
	Fields []Named
}

// Named is a column of the notation.
type Named struct {
	Name string
	Type Type
}

// ParseColumns reads "name STRING, addr STRUCT<city: STRING, zip: STRING>".
func ParseColumns(text string) ([]Named, error) {
	var out []Named
	for _, part := range Split(text) {
		name, typ, ok := strings.Cut(part, " ")
		if !ok {
			return nil, fmt.Errorf("column %q has no type", part)
		}
		t, err := parseType(strings.TrimSpace(typ))
		if err != nil {
			return nil, err
		}
		out = append(out, Named{name, t})
	}
	return out, nil
}

func parseType(text string) (Type, error) {
	lower := strings.ToLower(text)
	if !strings.HasPrefix(lower, "struct<") {
		return Type{Name: lower}, nil
	}
	t := Type{Name: "struct"}
	for _, part := range Split(text[len("struct<") : len(text)-1]) {
		name, typ, ok := strings.Cut(part, ":")
		if !ok {
			return t, fmt.Errorf("struct field %q has no type", part)
		}
		inner, err := parseType(strings.TrimSpace(typ))
		if err != nil {
			return t, err
		}
		t.Fields = append(t.Fields, Named{strings.TrimSpace(name), inner})
	}
	return t, nil
}

// Split cuts a list at its commas that no bracket encloses.
func Split(text string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range text {
		switch r {
		case '{', '(', '<', '[':
			depth++
		case '}', ')', '>', ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		}
	}
	if last := strings.TrimSpace(text[from:]); last != "" || out != nil {
		out = append(out, last)
	}
	return out
}

// Parse reads a value of the notation: null, 5, NaN, Ann, {10,null}.
func (t Type) Parse(text string) (Value, error) {
	if text == "null" {
		return nil, nil
	}
	switch t.Name {
	case "struct":
		parts := Split(strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"))
		if len(parts) != len(t.Fields) {
			return nil, fmt.Errorf("value %q: want %d fields", text, len(t.Fields))
		}
		out := make([]Value, len(parts))
		for i, p := range parts {
			v, err := t.Fields[i].Type.Parse(p)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case "bigint", "int":
		return strconv.ParseInt(text, 10, 64)
	case "double":
		v, err := strconv.ParseFloat(text, 64)
		return v + 0, err
	case "boolean":
		return strconv.ParseBool(text)
	case "string":
		return text, nil
	}
	return nil, fmt.Errorf("no notation for type %s", t.Name)
}

// Line is one event of the notation, its values as text:
//
//	U 1@5 (Ann, Rome)            an upsert under the full schema
//	U 1@2 (name=Anna)            read under a schema with only the named columns
//	U 1@2 (Anna, ?)              city is unavailable
//	U 1@2 (Ann, null) cols[city] its COLUMNS TO UPDATE list
//	U 1@10 sys 11 (Ann, Rome)    its system sequence
//	U 2@3 (Ann, ?) old=1         a create of a key change
//	D 1@6   D 1@3 new=2   T@3    deletes, truncates
//
// Keys and sequences are written 1, {eu,1}, {10,null}, null, NaN, -200.
type Line struct {
	Kind          byte
	Key, Seq, Sys string
	Columns       []string // data columns of its schema
	Values        map[string]string
	Listed        []string // nil: none
	Old, New      string
}

// ParseLine reads an event; columns are the data columns of the full schema.
func ParseLine(text string, columns []string) (Line, error) {
	l := Line{Kind: text[0], Values: map[string]string{}}
	rest := strings.TrimSpace(text[1:])
	tail := func(mark, end string) (string, bool) {
		i := strings.LastIndex(rest, mark)
		if i < 0 || end != "" && !strings.HasSuffix(rest, end) {
			return "", false
		}
		v := strings.TrimSuffix(rest[i+len(mark):], end)
		rest = strings.TrimSpace(rest[:i])
		return strings.TrimSpace(v), true
	}
	l.Old, _ = tail(" old=", "")
	l.New, _ = tail(" new=", "")
	if list, ok := tail(" cols[", "]"); ok {
		l.Listed = append([]string{}, Split(list)...)
	}
	list := ""
	if i := strings.IndexByte(rest, '('); i >= 0 {
		list, rest = strings.TrimSuffix(rest[i+1:], ")"), strings.TrimSpace(rest[:i])
	}
	l.Sys, _ = tail(" sys ", "")
	var ok bool
	if l.Key, l.Seq, ok = strings.Cut(rest, "@"); !ok {
		return l, fmt.Errorf("event %q: no sequence", text)
	}
	if l.Kind != 'U' {
		l.Columns = append(l.Columns, columns...)
		return l, nil
	}
	for i, v := range Split(list) {
		name := ""
		if c, val, named := strings.Cut(v, "="); named {
			name, v = strings.TrimSpace(c), strings.TrimSpace(val)
		} else if i < len(columns) {
			name = columns[i]
		} else {
			return l, fmt.Errorf("event %q: too many values", text)
		}
		l.Columns = append(l.Columns, name)
		if v != "?" {
			l.Values[name] = v
		}
	}
	return l, nil
}
