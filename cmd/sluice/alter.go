package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

// alterFlags are the flags of alter, for all of its verbs.
type alterFlags struct {
	parent, after, typ, comment, setDefault  string
	first, notNull, nullable, none, ifExists bool
	dropDefault, upgrade, truncate           bool
	changed                                  func(flag string) bool
}

// alterVerb is one way to change a table.
type alterVerb struct {
	name, args, does string
	least, most      int // of arguments; most below 0 is any number
	flags            string
	run              func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error)
}

func change(ctx context.Context, t *delta.Table, c delta.Alteration, f *alterFlags) (delta.Result, error) {
	return t.Alter(ctx, c, delta.AlterOptions{Upgrade: f.upgrade})
}

// alterVerbs lists the verbs in the order of the help text.
func alterVerbs() []alterVerb {
	return []alterVerb{
		{"add-column", "DDL...", "add columns (name TYPE [COMMENT 'x']), nullable", 1, -1, "parent first after upgrade", alterAddColumn},
		{"drop-column", "COLUMN...", "drop columns or nested fields (column mapping)", 1, -1, "if-exists",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return change(ctx, t, delta.DropColumns{Columns: args, IfExists: f.ifExists}, f)
			}},
		{"rename-column", "COLUMN NAME", "rename a column or nested field (column mapping)", 2, 2, "",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return change(ctx, t, delta.RenameColumn{Column: args[0], To: args[1]}, f)
			}},
		{"change-column", "COLUMN", "change type (type widening), nullability, comment, default or place", 1, 1,
			"type not-null nullable comment default drop-default first after upgrade", alterChangeColumn},
		{"set", "KEY=VALUE...", "set table properties", 1, -1, "upgrade", alterSet},
		{"unset", "KEY...", "remove table properties", 1, -1, "",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return t.SetProperties(ctx, nil, delta.PropertyOptions{Unset: args})
			}},
		{"add-constraint", "NAME EXPR", "add a CHECK constraint that every row meets", 2, 2, "",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return t.AddConstraint(ctx, args[0], args[1], delta.ConstraintOptions{})
			}},
		{"drop-constraint", "NAME", "drop a CHECK constraint", 1, 1, "if-exists",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return t.DropConstraint(ctx, args[0], delta.ConstraintOptions{IfExists: f.ifExists})
			}},
		{"cluster-by", "COLUMN...", "cluster the table by columns, or not any more (--none)", 0, -1, "none", alterClusterBy},
		{"set-description", "TEXT", "describe the table; an empty text removes the description", 1, 1, "",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return change(ctx, t, delta.SetDescription{Text: args[0]}, f)
			}},
		{"add-feature", "NAME...", "add features to the protocol", 1, -1, "upgrade",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				props := map[string]string{}
				for _, name := range args {
					props["delta.feature."+name] = "supported"
				}
				return t.SetProperties(ctx, props, delta.PropertyOptions{Upgrade: f.upgrade})
			}},
		{"drop-feature", "NAME", "take a feature out of the protocol; files are rewritten if need be", 1, 1, "truncate-history",
			func(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
				return t.DropFeature(ctx, deltalog.Feature(args[0]), deltalog.DropFeatureOptions{TruncateHistory: f.truncate})
			}},
	}
}

func newAlterCommand(a *app) *cobra.Command {
	var f alterFlags
	long := "Change a table's schema, properties, constraints or protocol, in one commit. Verbs:\n"
	for _, v := range alterVerbs() {
		long += fmt.Sprintf("  %-30s %s\n", v.name+" "+v.args, v.does)
	}
	long += "Nested fields are named with dots (s.a, list.element.b, map.value.c), odd names in backticks.\n" +
		"What older readers could not read any more needs --upgrade."
	c := &cobra.Command{
		Use:   "alter TABLE VERB ARGUMENTS",
		Short: "Change a table's schema, properties, constraints or protocol",
		Long:  long,
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  sluice alter people add-column "born DATE COMMENT 'day of birth'" --after id
  sluice alter people set delta.columnMapping.mode=name --upgrade
  sluice alter people rename-column name full_name
  sluice alter people add-constraint positive "id > 0"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("expected a table and a verb, found %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			v, err := alterVerbOf(cmd, args)
			if err != nil {
				return err
			}
			f.changed = cmd.Flags().Changed
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := v.run(cmd.Context(), t, args[2:], &f)
			return a.finish("alter", args[0], t, r, err)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.parent, "parent", "", "add-column: the struct that gets the field")
	fl.BoolVar(&f.first, "first", false, "add-column, change-column: make it the first one")
	fl.StringVar(&f.after, "after", "", "add-column, change-column: place it after this one")
	fl.StringVar(&f.typ, "type", "", "change-column: the wider type, or the greater length as VARCHAR(n), or STRING for none")
	fl.BoolVar(&f.notNull, "not-null", false, "change-column: forbid nulls (no row may have one)")
	fl.BoolVar(&f.nullable, "nullable", false, "change-column: allow nulls")
	fl.StringVar(&f.comment, "comment", "", "change-column: the comment, empty to remove it")
	fl.StringVar(&f.setDefault, "default", "", "change-column: the default of new rows, a constant expression")
	fl.BoolVar(&f.dropDefault, "drop-default", false, "change-column: remove the default")
	fl.BoolVar(&f.none, "none", false, "cluster-by: end clustering")
	fl.BoolVar(&f.ifExists, "if-exists", false, "drop-column, drop-constraint: what is not there is no error")
	fl.BoolVar(&f.upgrade, "upgrade", false, "allow a feature that older readers do not know")
	fl.BoolVar(&f.truncate, "truncate-history", false, "drop-feature: clean the log of versions that use it, and add no checkpointProtection")
	return c
}

// alterVerbOf finds the verb and refuses flags and arguments that are not its own.
func alterVerbOf(cmd *cobra.Command, args []string) (*alterVerb, error) {
	verbs := alterVerbs()
	var names []string
	for i := range verbs {
		v := &verbs[i]
		names = append(names, v.name)
		if v.name != args[1] {
			continue
		}
		if n := len(args) - 2; n < v.least || v.most >= 0 && n > v.most {
			return nil, usage("INVALID_ARGUMENTS", "alter %s: expected %s, found %d arguments", v.name, v.args, n)
		}
		own := strings.Fields(v.flags)
		for _, name := range []string{"parent", "first", "after", "type", "not-null", "nullable", "comment", "default", "drop-default", "none", "if-exists", "upgrade", "truncate-history"} {
			if cmd.Flags().Changed(name) && !slices.Contains(own, name) {
				return nil, usage("INVALID_FLAG", "alter %s: --%s is not a flag of it", v.name, name)
			}
		}
		return v, nil
	}
	return nil, usage("INVALID_ARGUMENTS", "alter: %q is no verb: expected one of %s", args[1], strings.Join(names, ", "))
}

func alterAddColumn(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
	var c delta.AddColumns
	for _, text := range args {
		s, err := schema.ParseDDL(text)
		if err != nil {
			return delta.Result{}, fmt.Errorf("read column: %w", err)
		}
		for _, field := range s.Fields {
			n := delta.NewColumn{Parent: f.parent, Field: field, First: f.first, After: f.after}
			if k := len(c.Columns); k > 0 && (f.first || f.after != "") {
				// The next ones follow the one before.
				n.First, n.After = false, c.Columns[k-1].Field.Name
			}
			c.Columns = append(c.Columns, n)
		}
	}
	return change(ctx, t, c, f)
}

func alterChangeColumn(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
	c := delta.ChangeColumn{Column: args[0], First: f.first, After: f.after}
	if f.notNull && f.nullable || f.dropDefault && f.setDefault != "" {
		return delta.Result{}, usage("INVALID_FLAG", "alter change-column: two flags ask for opposites")
	}
	if f.typ != "" {
		typ, length, err := schema.ParseColumnType(f.typ)
		if err != nil {
			return delta.Result{}, fmt.Errorf("read --type: %w", err)
		}
		if c.Type = typ; typ == schema.String {
			c.Length = &length
		}
	}
	if f.notNull || f.nullable {
		c.NotNull = &f.notNull
	}
	if f.changed("comment") {
		c.Comment = &f.comment
	}
	if f.setDefault != "" || f.dropDefault {
		c.Default = &f.setDefault
	}
	return change(ctx, t, c, f)
}

func alterSet(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
	props := map[string]string{}
	for _, arg := range args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok || k == "" {
			return delta.Result{}, usage("INVALID_ARGUMENTS", "alter set: %q: expected KEY=VALUE", arg)
		}
		props[k] = v
	}
	return t.SetProperties(ctx, props, delta.PropertyOptions{Upgrade: f.upgrade})
}

func alterClusterBy(ctx context.Context, t *delta.Table, args []string, f *alterFlags) (delta.Result, error) {
	var columns []string
	for _, arg := range args {
		for _, c := range strings.Split(arg, ",") {
			columns = append(columns, strings.TrimSpace(c))
		}
	}
	if f.none == (len(columns) > 0) {
		return delta.Result{}, usage("INVALID_ARGUMENTS", "alter cluster-by: expected columns, or --none")
	}
	return change(ctx, t, delta.ClusterBy{Columns: columns}, f)
}
