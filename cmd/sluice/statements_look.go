package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/source/deltafeed"
	"github.com/sluice-data/sluice/apply/source/kafka"
	"github.com/sluice-data/sluice/apply/source/postgres"
	"github.com/sluice-data/sluice/apply/sql"
	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/log/schema"
)

// lookRecords is how many records of a source are read to know its columns.
const lookRecords = 10_000

// columns are those that CREATE SOURCE declares.
func (b *boundFlow) columns() *schema.Struct {
	if b.plan.Binding == nil {
		return nil
	}
	return b.plan.Binding.Schema
}

// declared are the types that the columns of a target have: those that its statement
// declares, else those of the table that is there. Nil if nothing tells.
func (r *statementRun) declared(script *sql.Script, target string) *schema.Struct {
	for _, t := range script.Tables {
		if !strings.EqualFold(t.Name, target) || t.Schema == nil {
			continue
		}
		out := &schema.Struct{}
		for _, f := range t.Schema.Fields {
			switch {
			case slices.ContainsFunc([]string{sql.StartAt, sql.EndAt, sql.SystemStartAt, sql.SystemEndAt}, func(n string) bool { return strings.EqualFold(n, f.Name) }):
			default:
				out.Fields = append(out.Fields, f)
			}
		}
		return out
	}
	return nil
}

// look reads the first records of a source for its columns. Standard input cannot
// be read twice, and inferred columns of a source that goes on behind the sample
// may be incomplete: then nothing is claimed but what is declared.
func (r *statementRun) look(ctx context.Context, script *sql.Script, f *sql.Flow, flags applyFlags) (sql.SourceSchema, error) {
	var declared *schema.Struct
	for _, s := range script.Sources {
		if strings.EqualFold(s.Name, f.Source) {
			declared = s.Schema
		}
	}
	carries := flags.format != string(source.Rows)
	for _, src := range flags.from {
		switch {
		case kafka.IsURL(src) || postgres.IsURL(src):
			return sql.SourceSchema{Columns: declared, OwnSequence: carries}, nil
		case isTable(src):
			return r.lookTable(ctx, src, flags.option.values)
		case flags.format == string(source.DeltaFeed): // an earlier flow of the script makes it
			return sql.SourceSchema{OwnSequence: true, ChangeFeed: true, Position: deltafeed.SeqType()}, nil
		}
	}
	if slices.Contains(flags.from, "-") {
		return sql.SourceSchema{Columns: declared, OwnSequence: strings.HasPrefix(flags.format, "debezium")}, nil
	}
	flags.keys = listFlag{} // the analysis says what is wrong with them, and where
	in, err := r.openInput(ctx, &flags, declared)
	if err != nil {
		return sql.SourceSchema{}, err
	}
	seen, whole, err := firstColumns(ctx, in.Opened)
	if err = errors.Join(err, in.Source.Close()); err != nil {
		return sql.SourceSchema{}, err
	}
	out := sql.SourceSchema{Columns: declared}
	if seen == nil {
		if flags.table != "" {
			return out, r.noSuchTable(ctx, &flags)
		}
		return out, nil
	}
	if seen.position != nil {
		out.OwnSequence, out.Position = true, seen.position
	}
	if whole || in.Format != source.Rows || declared != nil {
		out.Columns = seen.columns
		if seen.inferred && flags.types != nil && declared == nil {
			r.addDeclared(f, out.Columns, flags.types)
		}
	}
	return out, nil
}

// lookTable is look of a Delta table, whose change feed is read, or the rows that are
// appended where it has none or the options say so.
func (r *statementRun) lookTable(ctx context.Context, src string, options map[string]string) (sql.SourceSchema, error) {
	snap, err := r.sourceTable(ctx, src)
	if err != nil {
		return sql.SourceSchema{}, err
	}
	cols := &schema.Struct{}
	for _, c := range snap.Schema.Fields {
		cols.Fields = append(cols.Fields, schema.Field{Name: c.Name, Type: c.Type, Nullable: true})
	}
	if !snap.Props.ChangeDataFeed || options["appends"] == "true" || options["skip_change_commits"] == "true" {
		return sql.SourceSchema{Columns: cols, OwnSequence: true, Position: deltafeed.SeqType()}, nil
	}
	cols.Fields = append(cols.Fields, schema.Field{Name: cdf.ChangeTypeColumn, Type: schema.String, Nullable: true},
		schema.Field{Name: cdf.CommitVersionColumn, Type: schema.Long, Nullable: true}, schema.Field{Name: cdf.CommitTimestampColumn, Type: schema.Timestamp, Nullable: true})
	return sql.SourceSchema{Columns: cols, OwnSequence: true, ChangeFeed: true, Position: deltafeed.SeqType()}, nil
}

// addDeclared gives the inferred columns of JSON records those that the target declares
// and no record has had yet: they are absent, not wrong.
func (r *statementRun) addDeclared(f *sql.Flow, cols, declared *schema.Struct) {
	for _, c := range declared.Fields {
		if cols.Index(c.Name) < 0 {
			cols.Fields = append(cols.Fields, schema.Field{Name: c.Name, Type: c.Type, Nullable: true})
			r.warn("table %s declares column %s, which no record of %s has yet", f.Target, c.Name, f.Source)
		}
	}
}

// seenColumns are the columns of the table that comes first in a source.
type seenColumns struct {
	table    event.Table
	columns  *schema.Struct
	position schema.Type // nil: the format carries none
	inferred bool        // from records that name their fields one by one
}

// firstColumns decodes up to lookRecords records; whole: the source ended before.
func firstColumns(ctx context.Context, in *source.Opened) (seen *seenColumns, whole bool, err error) {
	dec := in.NewDecoder()
	n, inferred := 0, in.Format == source.Rows
	for rec, err := range in.Source.Records(ctx, nil) {
		if err != nil {
			return nil, false, err
		}
		inferred = inferred && rec.Columns == nil
		if err := dec.Add(ctx, rec); err != nil {
			return nil, false, err
		}
		if n++; n == lookRecords {
			break
		}
	}
	got, err := dec.Flush()
	if err != nil {
		return nil, false, err
	}
	for _, b := range got.Batches {
		if seen == nil {
			seen = &seenColumns{table: b.Table, columns: &schema.Struct{}, inferred: inferred}
			if b.SeqType != nil {
				seen.position = b.SeqType
			}
		}
		if b.Table == seen.table {
			seen.add(b.Columns)
		}
	}
	return seen, n < lookRecords, nil
}

// add takes the columns of a later batch in; its types are the wider ones.
func (s *seenColumns) add(cols *schema.Struct) {
	for _, f := range cols.Fields {
		switch at := s.columns.Index(f.Name); {
		case at < 0:
			s.columns.Fields = append(s.columns.Fields, f)
		case f.Type != schema.Type(schema.Void):
			s.columns.Fields[at].Type = f.Type
		}
	}
}

// described is the result of `apply -f FILE --dry-run`.
type described struct {
	Tables []describedTable `json:"tables"`
}

// describedTable is a target, what would become of it and what stands against it.
type describedTable struct {
	sql.TableReport
	Location string `json:"location,omitempty"`
	// Creates: the table does not exist and would be created.
	Creates bool          `json:"creates"`
	Refused []refusal     `json:"refused,omitempty"`
	Results []flowResults `json:"results,omitempty"`
	// Servers are what flows would read from servers, of which a dry run reads no rows.
	Servers []flowServer `json:"servers,omitempty"`
}

type flowServer struct {
	Flow string `json:"flow"`
	*serverPlan
}

type refusal struct {
	Flow    string `json:"flow"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

type flowResults struct {
	Flow   string       `json:"flow"`
	Events apply.Events `json:"events"`
	Rows   apply.Rows   `json:"rows"`
}

// columnsText is a struct type as a list of columns.
func columnsText(text string) string {
	t, err := schema.ParseType(text)
	s, ok := t.(*schema.Struct)
	if err != nil || !ok {
		return text
	}
	cols := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		cols[i] = schema.QuoteName(f.Name) + " " + f.Type.String()
	}
	return strings.Join(cols, ", ")
}

// describe shows what a run would do. What the engine refuses is shown and then
// is the failure of the command.
func (r *statementRun) describe(ctx context.Context) error {
	o, err := r.deltaOptions()
	if err != nil {
		return err
	}
	var out described
	var text strings.Builder
	text.WriteString("dry run, nothing was written\n")
	var failure error
	for i, rep := range r.plan.Report() {
		d := describedTable{TableReport: rep}
		text.WriteString(rep.String())
		for _, b := range r.flows {
			if b.plan.Into != r.plan.Tables[i] {
				continue
			}
			if d.Location == "" {
				exists, err := tableExists(ctx, b.target.Store, o)
				if err != nil {
					return fmt.Errorf("open %s: %w", b.where, err)
				}
				d.Location, d.Creates = b.where, !exists
				fmt.Fprintf(&text, "  location: %s (%s)\n", b.where, map[bool]string{true: "is created", false: "exists"}[d.Creates])
			}
			err := b.flow.Validate()
			var result apply.Result
			var server *serverPlan
			switch {
			case err != nil:
			case b.readsServer():
				server, err = r.planFlow(ctx, b)
			default:
				result, err = r.applyFlow(ctx, b)
			}
			if err != nil {
				err = fmt.Errorf("flow %s: %w", b.plan.FlowName, err)
				failed := describeError(err)
				d.Refused = append(d.Refused, refusal{b.plan.FlowName, failed.code, failed.message})
				fmt.Fprintf(&text, "  refused: %s: %s\n", failed.code, failed.message)
				if failure == nil {
					failure = err
				}
				continue
			}
			if server != nil {
				d.Servers = append(d.Servers, flowServer{b.plan.FlowName, server})
				fmt.Fprintf(&text, "  flow %s reads %s\n", b.plan.FlowName, strings.ReplaceAll(server.summary(), "\n", "\n    "))
				continue
			}
			if p := result.Plan; p != nil && d.Schema == "" { // the sample did not tell all of it
				d.Schema = columnsText(p.Schema)
				fmt.Fprintf(&text, "  columns: %s\n", d.Schema)
			}
			d.Results = append(d.Results, flowResults{b.plan.FlowName, result.Events, result.Rows})
			fmt.Fprintf(&text, "  flow %s: %s read; rows: %d inserted, %d updated, %d deleted\n", b.plan.FlowName,
				plural(result.Events.Read, "event", "events"), result.Rows.Inserted, result.Rows.Updated, result.Rows.Deleted)
		}
		out.Tables = append(out.Tables, d)
	}
	if err := r.printResult(out, strings.TrimSuffix(text.String(), "\n")); err != nil {
		return err
	}
	return failure
}
