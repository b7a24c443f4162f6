package main

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// template is a location with {table} or {schema} in it, cut before the first
// path element that holds one.
type template struct {
	root string // location above the targets
	rest string // slash-separated, relative to root
}

// parseTemplate reads the value of --into. ok is false for a plain location.
func parseTemplate(into string) (t template, ok bool, err error) {
	scheme := strings.Contains(into, "://")
	slashed := into
	if !scheme {
		slashed = filepath.ToSlash(into)
	}
	at := strings.IndexByte(slashed, '{')
	if at < 0 {
		return template{}, false, nil
	}
	cut := strings.LastIndexByte(slashed[:at], '/') + 1
	t = template{root: slashed[:cut], rest: strings.TrimRight(slashed[cut:], "/")}
	if t.root == "" {
		t.root = "."
	}
	if strings.HasSuffix(t.root, "://") {
		return template{}, false, usage("INVALID_TEMPLATE", "--into %s: the placeholder must stand in the path", into)
	}
	bare := strings.NewReplacer("{table}", "", "{schema}", "").Replace(t.rest)
	if strings.ContainsAny(bare, "{}") || !strings.Contains(t.rest, "{table}") {
		return template{}, false, usage("INVALID_TEMPLATE", "--into %s: a template holds {table}, and may hold {schema}", into)
	}
	for elem := range strings.SplitSeq(t.rest, "/") {
		if elem == "" || elem == "." || elem == ".." {
			return template{}, false, usage("INVALID_TEMPLATE", "--into %s: the path element %q is not allowed after a placeholder", into, elem)
		}
	}
	return t, true, nil
}

// dir is the directory of a source table, relative to root. It never leaves root,
// whatever the table is called.
func (t template) dir(tab event.Table) (string, error) {
	schemaName := tab.Schema
	if schemaName == "" { // sources with one level call it database
		schemaName = tab.Database
	}
	if tab.Name == "" || schemaName == "" && strings.Contains(t.rest, "{schema}") {
		return "", &cliError{code: "TABLE_NAME_MISSING", exit: exitRefused,
			message: fmt.Sprintf("the stream names no table for {table} or no schema for {schema} (table %q, schema %q)", tab.Name, schemaName)}
	}
	return strings.NewReplacer("{table}", pathElement(tab.Name), "{schema}", pathElement(schemaName)).Replace(t.rest), nil
}

// pathElement percent-encodes what a name from a stream must not bring into a
// path: / \ %, control characters, and a leading dot or underscore.
func pathElement(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c < 0x20 || c == 0x7f || c == '/' || c == '\\' || c == '%' || i == 0 && (c == '.' || c == '_') {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// targets makes the targets of --into.
func (a *app) targets(into, table string, include, exclude []string) (apply.Targets, error) {
	t, isTemplate, err := parseTemplate(into)
	if err != nil {
		return apply.Targets{}, err
	}
	var out apply.Targets
	if table != "" {
		out.Select = func(tab event.Table) bool { return tableMatches(tab, table) }
	} else if include != nil || exclude != nil {
		if out.Select, err = apply.SelectTables(include, exclude); err != nil {
			return out, err
		}
	}
	if !isTemplate {
		out.Name = open.Base(into)
		out.Store, err = a.open(into)
		return out, err
	}
	if out.Root, err = a.open(t.root); err != nil {
		return out, err
	}
	out.Name, out.Route = open.Base(t.root), t.dir
	out.Open = func(dir string) (storage.Store, error) { return a.open(open.Join(t.root, dir)) }
	return out, nil
}

// tableMatches compares --table with a source table: its name alone, or with as
// many of the names above it as were given.
func tableMatches(tab event.Table, want string) bool {
	return slices.Contains(apply.TableNames(tab), want)
}

// below answers a store for each target under a path that the user named:
// the path itself for one table, PATH/<target> for several.
func (a *app) below(location string, several bool, sub string) func(target string) (storage.Store, error) {
	return func(target string) (storage.Store, error) {
		where := location
		if several {
			where = open.Join(where, path.Clean(target))
		}
		if sub != "" {
			where = open.Join(where, sub)
		}
		return a.open(where)
	}
}
