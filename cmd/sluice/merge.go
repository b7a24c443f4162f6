package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

// mergeFlags are the flags of merge.
type mergeFlags struct {
	in     rowInput
	sql    string
	source propertyFlag
	ddl    string
	on     string
	evolve bool

	matchedUpdate, matchedDelete, insert string
	bySourceUpdate, bySourceDelete       string
}

func newMergeCommand(a *app) *cobra.Command {
	f := &mergeFlags{}
	c := &cobra.Command{
		Use:   "merge TABLE (--sql STATEMENT --source NAME=FILE | --from FILE --on EXPR --when-...)",
		Short: "Merge the rows of a file into a table",
		Long: "Update, delete and insert rows of a table by the rows of a file, in one commit: with a MERGE statement,\n" +
			"which names the table by its folder, as delta.`path` or as target, or with flags, where the two sides are\n" +
			"called target and source and rows are deleted before others are updated. A target row that several source rows\n" +
			"want to change is an error, and nothing is written. Columns of JSON and CSV files have the type of the\n" +
			"table's column of that name, else one that holds their values (see --schema).",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  echo '{"id":1,"name":"Ada L."}' > new.jsonl
  sluice merge people --source new=new.jsonl --sql "MERGE INTO people p USING new n ON p.id = n.id
    WHEN MATCHED AND p.name <> n.name THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
  sluice merge people --from new.jsonl --on "target.id = source.id" --when-matched-update "*" --when-not-matched-insert "*"`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			return a.merge(cmd.Context(), args[0], f)
		},
	}
	p := c.Flags()
	p.StringVar(&f.sql, "sql", "", "the MERGE statement")
	p.Var(&f.source, "source", "NAME=FILE or NAME=URL: the rows that the statement calls NAME")
	f.in.format.values = []string{"parquet", "jsonl", "csv", "arrow"}
	p.StringVar(&f.in.from, "from", "", "file or URL with the source rows, or - for standard input")
	p.Var(&f.in.format, "format", "form of the rows (default: by the file's name)")
	p.StringVar(&f.ddl, "schema", "", "columns of the source rows (default: see above)")
	p.StringVar(&f.on, "on", "", `which rows meet, for example "target.id = source.id"`)
	p.StringVar(&f.matchedUpdate, "when-matched-update", "", `assignments for rows that meet, or "*" for all columns`)
	p.StringVar(&f.matchedDelete, "when-matched-delete", "", `delete rows that meet and for which this expression is true`)
	p.StringVar(&f.insert, "when-not-matched-insert", "", `"column = value, ..." of rows that only the source has, or "*"`)
	p.StringVar(&f.bySourceUpdate, "when-not-matched-by-source-update", "", "assignments for rows that only the table has")
	p.StringVar(&f.bySourceDelete, "when-not-matched-by-source-delete", "", "delete rows that only the table has and for which this expression is true")
	p.BoolVar(&f.evolve, "schema-evolution", false, "columns that only the source has join the table")
	return c
}

// statement reads the SQL or the flags.
func (f *mergeFlags) statement() (*merge.Statement, error) {
	clauses := f.clauses()
	switch {
	case f.sql != "" && (f.on != "" || len(clauses) > 0):
		return nil, usage("INVALID_FLAG", "merge: --sql and the flags --on and --when-... exclude each other")
	case f.sql != "":
		s, err := merge.Parse(f.sql)
		if err == nil && f.evolve {
			s = s.WithSchemaEvolution()
		}
		return s, err
	case f.on == "" || len(clauses) == 0:
		return nil, usage("MISSING_FLAG", "merge: --sql is missing, or --from, --on and a --when-... flag")
	case strings.EqualFold(strings.TrimSpace(f.matchedDelete), "true") && f.matchedUpdate != "":
		return nil, usage("INVALID_FLAG", "merge: --when-matched-delete true takes every row that meets, and none is left for --when-matched-update")
	case strings.EqualFold(strings.TrimSpace(f.bySourceDelete), "true") && f.bySourceUpdate != "":
		return nil, usage("INVALID_FLAG", "merge: --when-not-matched-by-source-delete true takes every row that only the table has, and none is left for --when-not-matched-by-source-update")
	}
	spec := merge.Spec{On: f.on, SchemaEvolution: f.evolve}
	if _, err := expr.Parse(f.on); err != nil {
		return nil, fmt.Errorf("--on: %w", err)
	}
	for _, c := range clauses {
		clause, err := c.clause()
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", c.flag, err)
		}
		spec.Clauses = append(spec.Clauses, clause)
	}
	return merge.Build(spec)
}

// mergeClause is a --when-... flag that was given.
type mergeClause struct {
	flag, text string
	kind       merge.Kind
	action     merge.Action
}

// clauses are the flags given, in the order in which they are tried: deletes go first.
func (f *mergeFlags) clauses() []mergeClause {
	var out []mergeClause
	for _, c := range []mergeClause{
		{"when-matched-delete", f.matchedDelete, merge.Matched, merge.Delete},
		{"when-matched-update", f.matchedUpdate, merge.Matched, merge.Update},
		{"when-not-matched-insert", f.insert, merge.NotMatched, merge.Insert},
		{"when-not-matched-by-source-delete", f.bySourceDelete, merge.NotMatchedBySource, merge.Delete},
		{"when-not-matched-by-source-update", f.bySourceUpdate, merge.NotMatchedBySource, merge.Update},
	} {
		if c.text != "" {
			out = append(out, c)
		}
	}
	return out
}

// clause reads the text of the flag; positions in errors are places in it.
func (c mergeClause) clause() (merge.Clause, error) {
	out := merge.Clause{Kind: c.kind, Action: c.action}
	text := strings.TrimSpace(c.text)
	switch {
	case c.action == merge.Delete && strings.EqualFold(text, "true"):
	case c.action == merge.Delete:
		out.If = c.text
		_, err := expr.Parse(c.text)
		return out, err
	case text == "*" && c.action == merge.Insert:
		out.Action = merge.InsertAll
	case text == "*":
		out.Action = merge.UpdateAll
	default:
		out.Assignments = c.text
		_, err := expr.ParseAssignments(c.text)
		return out, err
	}
	return out, nil
}

// input finds the file of the source.
func (f *mergeFlags) input(s *merge.Statement) error {
	if f.in.from != "" {
		if len(f.source.values) > 0 {
			return usage("INVALID_FLAG", "merge: --from and --source exclude each other")
		}
		return f.in.check()
	}
	if len(f.source.values) == 0 {
		return usage("MISSING_FLAG", "merge: --source %s=FILE is missing", s.SourceName())
	}
	for name, file := range f.source.values {
		if !strings.EqualFold(name, s.SourceName()) {
			return usage("INVALID_FLAG", "merge: --source %s: the statement's source is called %s", name, s.SourceName())
		}
		f.in.from = file
	}
	return f.in.check()
}

func (a *app) merge(ctx context.Context, location string, f *mergeFlags) error {
	s, err := f.statement()
	if err != nil {
		return err
	}
	if err := f.input(s); err != nil {
		return err
	}
	if f.sql != "" {
		if err := a.checkTarget(s.TargetParts(), location); err != nil {
			return err
		}
	}
	t, err := a.openTable(ctx, location)
	if err != nil {
		return err
	}
	done, err := f.in.fetch(ctx, a)
	defer done()
	if err != nil {
		return err
	}
	src, err := a.mergeSource(ctx, f, t)
	if err != nil {
		return err
	}
	rows, stop := a.counted("merging", src.Rows)
	src.Rows = rows
	r, err := merge.Into(ctx, t, src, s, merge.IntoOptions{})
	stop()
	return a.finish("merge", location, t, r.Result, err)
}

// checkTarget refuses a statement that names another table than the one given: by its
// folder, as delta.`path`, or as target.
func (a *app) checkTarget(parts []string, location string) error {
	store, err := a.open(location)
	if err != nil {
		return err
	}
	folder := path.Base(strings.TrimSuffix(store.URL(), "/"))
	if plain, err := schema.DecodePath(folder); err == nil {
		folder = plain
	}
	last := parts[len(parts)-1]
	if strings.EqualFold(last, folder) || len(parts) == 1 && strings.EqualFold(last, "target") {
		return nil
	}
	if len(parts) == 2 && strings.EqualFold(parts[0], "delta") {
		if named, err := a.open(last); err == nil && strings.TrimSuffix(named.URL(), "/") == strings.TrimSuffix(store.URL(), "/") {
			return nil
		}
	}
	return &cliError{code: "MERGE_TARGET_MISMATCH", exit: exitUsage, message: fmt.Sprintf("merge: the statement changes table %s, but the table given is %s", strings.Join(parts, "."), location),
		hint: fmt.Sprintf("write MERGE INTO %s, or MERGE INTO target", schema.PathText([]string{folder}))}
}

// mergeSource opens the source rows.
func (a *app) mergeSource(ctx context.Context, f *mergeFlags, t *delta.Table) (merge.Source, error) {
	zone, err := a.flags.zone()
	if err != nil {
		return merge.Source{}, err
	}
	o := rowio.ReadOptions{File: f.in.url, Zone: zone}
	if f.ddl != "" {
		if o.Schema, err = schema.ParseDDL(f.ddl); err != nil {
			return merge.Source{}, fmt.Errorf("--schema: %w", err)
		}
		return merge.Source{Schema: o.Schema, Rows: rowio.ReadPath(ctx, f.in.from, rowio.Form(f.in.format.value), a.stdin, o)}, nil
	}
	if o.Schema, err = t.Schema(ctx); err != nil {
		return merge.Source{}, err
	}
	var src merge.Source
	src.Schema, src.Rows, err = rowio.Open(ctx, f.in.from, rowio.Form(f.in.format.value), a.stdin, o)
	return src, err
}
