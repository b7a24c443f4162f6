package cdf

import (
	"fmt"
	"slices"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// incompatible says why data of one version cannot be read with the schema of
// another, "" if it can: every column must still be there, under the same
// name in files, with the same type, and must not have become NOT NULL.
func incompatible(old, read *deltalog.TableConfig) string {
	if unmapped(old, read) {
		return "column mapping was removed since, and files name columns otherwise"
	}
	return compareStructs(old.Schema, read.Schema, comparison{byFile: mapped(old, read)}, "")
}

// unmapped reports whether column mapping went between two versions, which Spark does
// not read across either.
func unmapped(before, after *deltalog.TableConfig) bool {
	return before.Mode() != schema.ModeNone && after.Mode() == schema.ModeNone
}

// mapped reports whether both versions name their file columns apart.
func mapped(old, read *deltalog.TableConfig) bool {
	return old.Mode() != schema.ModeNone && read.Mode() != schema.ModeNone
}

// comparison says how two schemas are compared: by the names of columns in files, and
// whether old is the later one, which turns the words of the reasons around.
type comparison struct{ byFile, later bool }

func (c comparison) tightened() string {
	if c.later {
		return "may be null now"
	}
	return "became NOT NULL"
}

func compareStructs(old, read *schema.Struct, c comparison, path string) string {
	for _, f := range old.Fields {
		name := path + f.Name
		i := slices.IndexFunc(read.Fields, func(g schema.Field) bool { return strings.EqualFold(f.Name, g.Name) })
		if i < 0 {
			return fmt.Sprintf("column %s is not in the schema of the end version (dropped or renamed)", name)
		}
		g := read.Fields[i]
		if c.byFile {
			a, _ := f.Metadata.Get("delta.columnMapping.physicalName")
			b, _ := g.Metadata.Get("delta.columnMapping.physicalName")
			if string(a) != string(b) {
				return fmt.Sprintf("column %s is another column in the end version (dropped and added again)", name)
			}
		}
		if f.Nullable && !g.Nullable {
			return fmt.Sprintf("column %s %s", name, c.tightened())
		}
		if reason := compareTypes(f.Type, g.Type, c, name); reason != "" {
			return reason
		}
	}
	for _, g := range read.Fields {
		if !g.Nullable && !slices.ContainsFunc(old.Fields, func(f schema.Field) bool { return strings.EqualFold(f.Name, g.Name) }) {
			return fmt.Sprintf("column %s is NOT NULL in the end version and did not exist before", path+g.Name)
		}
	}
	return ""
}

func compareTypes(old, read schema.Type, c comparison, name string) string {
	if old == schema.Void {
		return ""
	}
	switch a := old.(type) {
	case *schema.Struct:
		if b, ok := read.(*schema.Struct); ok {
			return compareStructs(a, b, c, name+".")
		}
	case *schema.Array:
		if b, ok := read.(*schema.Array); ok {
			if a.ContainsNull && !b.ContainsNull {
				return fmt.Sprintf("elements of %s %s", name, c.tightened())
			}
			return compareTypes(a.Elem, b.Elem, c, name+".element")
		}
	case *schema.Map:
		if b, ok := read.(*schema.Map); ok {
			if a.ValueContainsNull && !b.ValueContainsNull {
				return fmt.Sprintf("values of %s %s", name, c.tightened())
			}
			if reason := compareTypes(a.Key, b.Key, c, name+".key"); reason != "" {
				return reason
			}
			return compareTypes(a.Value, b.Value, c, name+".value")
		}
	default:
		if old == read {
			return ""
		}
	}
	if c.later {
		old, read = read, old
	}
	return fmt.Sprintf("column %s changed its type from %s to %s", name, describe(old), describe(read))
}

// differs says how the schema of a stream is no longer that of the table.
func differs(read, now *deltalog.TableConfig) string {
	if unmapped(read, now) {
		return "column mapping was removed, and files name columns otherwise"
	}
	if reason := additions(read.Schema, now.Schema, ""); reason != "" {
		return reason
	}
	return compareStructs(now.Schema, read.Schema, comparison{byFile: mapped(now, read), later: true}, "")
}

// additions names a column that only one of two schemas has.
func additions(read, now *schema.Struct, path string) string {
	find := func(s *schema.Struct, name string) int {
		return slices.IndexFunc(s.Fields, func(f schema.Field) bool { return strings.EqualFold(f.Name, name) })
	}
	for _, f := range now.Fields {
		i := find(read, f.Name)
		if i < 0 {
			return fmt.Sprintf("column %s%s was added (or renamed)", path, f.Name)
		}
		if reason := additionsIn(read.Fields[i].Type, f.Type, path+f.Name); reason != "" {
			return reason
		}
	}
	for _, f := range read.Fields {
		if find(now, f.Name) < 0 {
			return fmt.Sprintf("column %s%s was dropped", path, f.Name)
		}
	}
	return ""
}

func additionsIn(read, now schema.Type, path string) string {
	switch a := read.(type) {
	case *schema.Struct:
		if b, ok := now.(*schema.Struct); ok {
			return additions(a, b, path+".")
		}
	case *schema.Array:
		if b, ok := now.(*schema.Array); ok {
			return additionsIn(a.Elem, b.Elem, path+".element")
		}
	case *schema.Map:
		if b, ok := now.(*schema.Map); ok {
			if reason := additionsIn(a.Key, b.Key, path+".key"); reason != "" {
				return reason
			}
			return additionsIn(a.Value, b.Value, path+".value")
		}
	}
	return ""
}
