package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/sql"
)

// overrides are what single tables of a stream of many have of their own, from the
// file of --overrides. The first entry that fits a table is its own. The zero value has none.
type overrides struct {
	file string
	list []*sql.Override
	used []bool
}

// readOverrides reads the file and holds each entry to the flow that it changes.
func readOverrides(file string, base apply.Flow) (*overrides, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read overrides: %w", err)
	}
	list, err := sql.ParseOverrides(string(raw))
	if err != nil {
		return nil, statementError(file, err)
	}
	o := &overrides{file: file, list: list, used: make([]bool, len(list))}
	for _, x := range list {
		own := x.Apply(base)
		if err := own.Validate(); err != nil {
			return nil, fmt.Errorf("%s: with the other options of the flow: %w", o.place(x.Place()), err)
		}
		if err := checkOwnTarget(x.Target); err != nil {
			return nil, &cliError{code: "INVALID_TEMPLATE", exit: exitUsage, message: fmt.Sprintf("%s: target %s: %v", o.place(x.PlaceOfTarget()), x.Target, err)}
		}
	}
	return o, nil
}

func (o *overrides) place(at sql.Pos) string {
	return fmt.Sprintf("%s:%d:%d", o.file, at.Line, at.Col)
}

// checkOwnTarget refuses a path that could leave the root of the targets.
func checkOwnTarget(target string) error {
	if target == "" {
		return nil
	}
	if strings.ContainsAny(strings.NewReplacer("{table}", "", "{schema}", "").Replace(target), `{}\:`) {
		return fmt.Errorf("a path below the folder of the targets is expected, in which {table} and {schema} may stand")
	}
	for elem := range strings.SplitSeq(target, "/") {
		if elem == "" || strings.HasPrefix(elem, ".") || strings.HasPrefix(elem, "_") {
			return fmt.Errorf("the path element %q is not allowed", elem)
		}
	}
	return nil
}

// of is the entry of a table, nil if it has none.
func (o *overrides) of(t event.Table) *sql.Override {
	if o == nil {
		return nil
	}
	for i, x := range o.list {
		if x.Fits(t) {
			o.used[i] = true
			return x
		}
	}
	return nil
}

// flowOf is the flow of each table.
func (o *overrides) flowOf(base apply.Flow) func(event.Table) apply.Flow {
	if o == nil {
		return nil
	}
	return func(t event.Table) apply.Flow {
		if x := o.of(t); x != nil {
			return x.Apply(base)
		}
		return base
	}
}

// keysOf are the keys that a table has of its own.
func (o *overrides) keysOf() func(event.Table) []string {
	if o == nil {
		return nil
	}
	return func(t event.Table) []string {
		if x := o.of(t); x != nil {
			return x.Keys()
		}
		return nil
	}
}

// route puts the tables that have a place of their own there.
func (o *overrides) route(other func(event.Table) (string, error)) func(event.Table) (string, error) {
	if o == nil {
		return other
	}
	return func(t event.Table) (string, error) {
		if x := o.of(t); x != nil && x.Target != "" {
			return template{rest: x.Target}.dir(t)
		}
		return other(t)
	}
}

// unused names the entries that fitted no table.
func (o *overrides) unused() []string {
	if o == nil {
		return nil
	}
	var out []string
	for i, x := range o.list {
		if !o.used[i] {
			out = append(out, fmt.Sprintf("%s: no table of the stream is %s; the entry changed nothing", o.place(x.Place()), strings.Join(x.Tables, " or ")))
		}
	}
	return out
}

// tableOf is the table that a record of a quarantine says it is of.
func tableOf(name string) event.Table {
	parts := strings.Split(name, ".")
	t := event.Table{Name: parts[len(parts)-1]}
	if len(parts) > 1 {
		t.Schema = parts[len(parts)-2]
	}
	if len(parts) > 2 {
		t.Database = parts[len(parts)-3]
	}
	return t
}
