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
	"github.com/sluice-data/sluice/apply/sql"
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
	for _, src := range flags.from {
		if scheme, _, ok := strings.Cut(src, "://"); ok && scheme != "file" {
			return sql.SourceSchema{}, notYet("source " + scheme + "://")
		}
		if isTable(src) {
			return sql.SourceSchema{}, notYet("a Delta table as source (" + src + ")")
		}
	}
	if slices.Contains(flags.from, "-") {
		return sql.SourceSchema{Columns: declared, OwnSequence: strings.HasPrefix(flags.format, "debezium")}, nil
	}
	in, err := r.openInput(ctx, &flags, declared)
	if err != nil {
		return sql.SourceSchema{}, err
	}
	batch, whole, err := firstBatch(ctx, in.Opened)
	if err = errors.Join(err, in.Source.Close()); err != nil {
		return sql.SourceSchema{}, err
	}
	out := sql.SourceSchema{Columns: declared}
	if batch == nil {
		return out, nil
	}
	if batch.SeqType != nil {
		out.OwnSequence, out.Position = true, batch.SeqType
	}
	if whole || in.Format != source.Rows || declared != nil {
		out.Columns = batch.Columns
	}
	return out, nil
}

// firstBatch decodes up to lookRecords records into the batch with the most
// columns of the table that comes first; whole: the source ended before.
func firstBatch(ctx context.Context, in *source.Opened) (best *event.Batch, whole bool, err error) {
	dec := in.NewDecoder()
	n := 0
	for rec, err := range in.Source.Records(ctx, nil) {
		if err != nil {
			return nil, false, err
		}
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
		if best == nil || b.Table == best.Table && len(b.Columns.Fields) > len(best.Columns.Fields) {
			best = b
		}
	}
	return best, n < lookRecords, nil
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
			if err == nil {
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
