package delta

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// logicalPath turns physical names into logical ones as far as they are known.
func logicalPath(s *schema.Struct, path []string) []string {
	out := slices.Clone(path)
	for i, name := range path {
		if s == nil {
			break
		}
		j := slices.IndexFunc(s.Fields, func(f schema.Field) bool { return schema.PhysicalName(f) == name })
		if j < 0 {
			break
		}
		out[i] = s.Fields[j].Name
		s, _ = s.Fields[j].Type.(*schema.Struct)
	}
	return out
}

// rulesOn names the first SQL text of the table that reads the column: a CHECK
// constraint, an invariant, a generated column.
func rulesOn(s *schema.Struct, conf map[string]string, path []string) string {
	var names []string
	for k := range conf {
		if strings.HasPrefix(strings.ToLower(k), "delta.constraints.") {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range names {
		if reads(s, conf[k], path) {
			return "CHECK constraint " + k[len("delta.constraints."):]
		}
	}
	found := ""
	var visit func(t schema.Type, at []string)
	visit = func(t schema.Type, at []string) {
		switch t := t.(type) {
		case *schema.Struct:
			for _, f := range t.Fields {
				own := append(at[:len(at):len(at)], f.Name)
				if text, ok := textOf(f, keyGeneration); ok && !prefixed(own, path) && reads(s, text, path) {
					found = "generated column " + strings.Join(own, ".")
				}
				if text, ok := invariantOf(f); ok && !prefixed(own, path) && reads(s, text, path) {
					found = "the invariant of column " + strings.Join(own, ".")
				}
				visit(f.Type, own)
			}
		case *schema.Array:
			visit(t.Elem, append(at[:len(at):len(at)], "element"))
		case *schema.Map:
			visit(t.Value, append(at[:len(at):len(at)], "value"))
		}
	}
	visit(s, nil)
	return found
}

// reads reports whether SQL text reads the column. Text that is beyond our
// expressions is searched for the name, which errs toward yes.
func reads(s *schema.Struct, text string, path []string) bool {
	if e, err := expr.Parse(text); err == nil {
		if b, err := e.Bind(s); err == nil {
			return slices.ContainsFunc(b.Paths(), func(p []string) bool { return prefixed(p, path) || prefixed(path, p) })
		}
	}
	word := `(?i)(^|[^\pL\pN_])` + regexp.QuoteMeta(path[len(path)-1]) + `($|[^\pL\pN_])`
	return regexp.MustCompile(word).MatchString(text)
}
