package apply

import (
	"path"
	"slices"

	"github.com/sluice-data/sluice/apply/event"
)

// TableNames are the names that a table goes by: its own, and with as many of those
// above it as it has, shortest first.
func TableNames(t event.Table) []string {
	names := []string{t.Name}
	for _, above := range []string{t.Schema, t.Database} {
		if above != "" {
			names = append(names, above+"."+names[len(names)-1])
		}
	}
	if t.Schema != "" && t.Database != "" {
		names = append(names, t.Database+"."+t.Name)
	}
	return names
}

// SelectTables makes a [Targets.Select] of patterns: a table is taken if one of include
// fits it (nil: every table) and none of exclude does. A pattern is a name in which *
// stands for any characters, ? for one and [a-z] for one of a set; it fits a table
// if it fits one of its names (see [TableNames]) whole, case included.
func SelectTables(include, exclude []string) (func(event.Table) bool, error) {
	for _, p := range slices.Concat(include, exclude) {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return nil, analysis("INVALID_OPTION", "table pattern %q: a set [...] is not closed, or it is empty", p)
		}
	}
	fits := func(patterns, names []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return matchName(p, n) })
		})
	}
	return func(t event.Table) bool {
		names := TableNames(t)
		return (include == nil || fits(include, names)) && !fits(exclude, names)
	}, nil
}

// matchName is path.Match over names in which a slash is a character like others.
func matchName(pattern, name string) bool {
	b := []byte(name)
	for i, c := range b {
		if c == '/' {
			b[i] = 0
		}
	}
	p := []byte(pattern)
	for i, c := range p {
		if c == '/' {
			p[i] = 0
		}
	}
	ok, err := path.Match(string(p), string(b))
	return err == nil && ok
}
