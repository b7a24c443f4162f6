package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// writeResult is the result object of a command that changes one table.
type writeResult struct {
	Operation string           `json:"operation"`
	Table     string           `json:"table"`
	Version   int64            `json:"version"`
	Committed bool             `json:"committed"`
	Metrics   map[string]int64 `json:"metrics"`
}

// finish prints the result of a write, or wraps its error.
func (a *app) finish(op, location string, t *delta.Table, r delta.Result, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, location, err)
	}
	out := writeResult{Operation: op, Table: t.Store().URL(), Version: r.Version, Committed: r.Committed, Metrics: metricsOf(r.Metrics)}
	summary := fmt.Sprintf("%s %s: nothing changed, version %d stands", op, location, r.Version)
	if r.Committed {
		summary = fmt.Sprintf("%s %s: version %d: %s", op, location, r.Version, summaryOf(r.Metrics))
	}
	return a.printResult(out, summary)
}

// metricsOf names the counts of a write for the result object.
func metricsOf(m delta.Metrics) map[string]int64 {
	return map[string]int64{
		"rows_inserted": m.RowsInserted, "rows_updated": m.RowsUpdated, "rows_deleted": m.RowsDeleted, "rows_copied": m.RowsCopied,
		"files_added": m.FilesAdded, "files_removed": m.FilesRemoved, "change_files": m.ChangeFiles,
		"deletion_vectors_added": m.VectorsAdded, "deletion_vectors_removed": m.VectorsRemoved,
		"bytes_added": m.BytesAdded, "bytes_removed": m.BytesRemoved, "change_bytes": m.ChangeBytes,
	}
}

// rowsOf says in words which rows a write changed.
func rowsOf(m delta.Metrics) string {
	var parts []string
	for _, c := range []struct {
		n    int64
		verb string
	}{{m.RowsInserted, "inserted"}, {m.RowsUpdated, "updated"}, {m.RowsDeleted, "deleted"}} {
		if c.n > 0 {
			parts = append(parts, plural(c.n, "row ", "rows ")+c.verb)
		}
	}
	if len(parts) == 0 {
		return "no row counted"
	}
	return strings.Join(parts, ", ")
}

// summaryOf says in words what a write did.
func summaryOf(m delta.Metrics) string {
	parts := []string{rowsOf(m)}
	if m.VectorsAdded > 0 {
		parts = append(parts, plural(m.VectorsAdded, "deletion vector ", "deletion vectors ")+"written")
	}
	return fmt.Sprintf("%s; %s added, %d removed", strings.Join(parts, ", "), plural(m.FilesAdded, "file", "files"), m.FilesRemoved)
}

// openTable opens the table at a location.
func (a *app) openTable(ctx context.Context, location string) (*delta.Table, error) {
	store, err := a.open(location)
	if err != nil {
		return nil, err
	}
	o, err := a.deltaOptions()
	if err != nil {
		return nil, err
	}
	t, err := delta.Open(ctx, store, o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", location, err)
	}
	return t, nil
}

func (a *app) deltaOptions() (delta.Options, error) {
	zone, err := a.flags.zone()
	return delta.Options{Clock: a.clock, Logger: a.logger(), TimeZone: zone, EngineInfo: "sluice " + version}, err
}

// rowInput is the --from of append and overwrite.
type rowInput struct {
	from   string
	format oneOf
	// url is where from was fetched, "" for a file.
	url string
	// ddl describes columns that the table does not have yet; merge and replace say
	// whether the rows may add columns or bring their own.
	ddl            string
	merge, replace bool
}

func (in *rowInput) flags(c *cobra.Command) {
	in.format.values = []string{"parquet", "jsonl", "csv", "arrow"}
	c.Flags().StringVar(&in.from, "from", "", "file or URL with the rows, or - for standard input (required)")
	c.Flags().Var(&in.format, "format", "form of the rows (default: by the file's name)")
}

// evolution adds the flags of rows that change the schema.
func (in *rowInput) evolution(c *cobra.Command) {
	c.Flags().BoolVar(&in.merge, "merge-schema", false, "add the columns and nested fields that the table lacks, and widen types\nwhere the table has type widening on")
	c.Flags().StringVar(&in.ddl, "schema", "", "with --merge-schema or --overwrite-schema: the new columns, or those with other types,\nof rows that do not tell them (jsonl, csv, standard input)")
}

// target is the schema that the input is read with.
func (in *rowInput) target(table *schema.Struct) (*schema.Struct, error) {
	if !in.merge && !in.replace {
		if in.ddl != "" {
			return nil, usage("INVALID_FLAG", "--schema needs --merge-schema or --overwrite-schema")
		}
		return table, nil
	}
	own, err := rowio.SchemaOf(in.from, rowio.Form(in.format.value))
	if in.ddl != "" {
		if own, err = schema.ParseDDL(in.ddl); err != nil {
			return nil, fmt.Errorf("read --schema: %w", err)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case own == nil && in.replace:
		return nil, usage("MISSING_FLAG", "--overwrite-schema: rows of this form do not tell their columns: name them with --schema")
	case own == nil:
		return table, nil
	case in.replace:
		return own, nil
	}
	// The table decides later whether its types widen; here they follow the rows.
	s, err := schema.Merge(table, own, schema.MergeOptions{Widen: schema.CanWiden})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", in.from, err)
	}
	return s, nil
}

// check refuses what can be refused before a table is opened.
func (in *rowInput) check() error {
	if in.from == "" {
		return usage("MISSING_FLAG", "--from is missing")
	}
	if _, known := rowio.InputForm(in.from); !known && in.format.value == "" {
		return usage("MISSING_FLAG", "--from %s: the name does not tell the form: add --format", in.from)
	}
	if in.from == "-" || strings.Contains(in.from, "://") {
		return nil
	}
	st, err := os.Stat(in.from)
	if err != nil {
		return fmt.Errorf("open input: %w", err)
	}
	if st.IsDir() {
		return usage("INVALID_ARGUMENTS", "--from %s: a directory, not a file", in.from)
	}
	return nil
}

// rows reads the input against the table's schema.
func (in *rowInput) rows(ctx context.Context, a *app, t *delta.Table) (iter.Seq2[arrow.RecordBatch, error], error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	zone, err := a.flags.zone()
	if err != nil {
		return nil, err
	}
	target, err := in.target(snap.Schema)
	if err != nil {
		return nil, err
	}
	rows := rowio.ReadPath(ctx, in.from, rowio.Form(in.format.value), a.stdin, rowio.ReadOptions{File: in.url, Schema: target, Optional: delta.MadeColumns(snap.TableConfig), Zone: zone})
	return in.explained(rows), nil
}

// explained says of a column that the table lacks what would let it in.
func (in *rowInput) explained(rows iter.Seq2[arrow.RecordBatch, error]) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for b, err := range rows {
			var e *rowio.Error
			if errors.As(err, &e) && e.ErrorCode == rowio.CodeUnknownColumn {
				hint := "correct the input, or add the column with --merge-schema"
				if in.merge || in.replace {
					hint = "rows of this form do not tell the types of new columns: name them with --schema"
				}
				err = &cliError{code: e.ErrorCode, exit: exitRefused, message: err.Error(), hint: hint + "; nothing of it was written", err: err}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// counted shows progress while the rows of a write go by.
func (a *app) counted(verb string, rows iter.Seq2[arrow.RecordBatch, error]) (iter.Seq2[arrow.RecordBatch, error], func()) {
	p := a.startProgress(verb, 0, false)
	return func(yield func(arrow.RecordBatch, error) bool) {
		for b, err := range rows {
			if err == nil {
				p.done.Add(b.NumRows())
			}
			if !yield(b, err) {
				return
			}
		}
	}, p.Stop
}

// notEmpty refuses a condition that was given and is empty: most likely a shell
// variable that is not set, and without a condition every row is meant.
func notEmpty(cmd *cobra.Command, flag string) error {
	if f := cmd.Flags().Lookup(flag); f != nil && f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return usage("INVALID_FLAG", "%s: --%s is empty; leave it out to mean all rows", cmd.Name(), flag)
	}
	return nil
}
