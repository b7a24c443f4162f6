package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

func newDetectCommand(a *app) *cobra.Command {
	f := &detectFlags{}
	c := &cobra.Command{
		Use:   "detect SRC...",
		Short: "Say what a source of changes holds",
		Long: "Say what a source of changes holds, from its first records: format and why, tables, keys, sequence, columns,\n" +
			"a sample row, what cannot be read and what to watch out for. SRC is what apply takes with --from. Nothing is\n" +
			"written or remembered.",
		Example: `  printf '%s\n' '{"database":"d","table":"t","type":"insert","ts":1,"data":{"id":1}}' > events.jsonl
  sluice detect events.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("expected a source: files, directories, - or a table")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.detect(cmd.Context(), args, f) },
	}
	p := c.Flags()
	p.StringVar(&f.format, "format", "auto", "form of the events: "+formatNames())
	p.Var(&f.keys, "keys", "key columns, for formats that carry none: a,b")
	p.StringVar(&f.schema, "schema", "", "columns and types as DDL, where the records do not tell them: 'id BIGINT, name STRING'")
	p.Var(&f.option, "option", "source or format option; may be repeated")
	return c
}

type detectFlags struct {
	format string
	keys   listFlag
	schema string
	option propertyFlag
}

// lookResult is the JSON form of what detect finds.
type lookResult struct {
	Format   string            `json:"format"`
	Why      string            `json:"why"`
	Records  int               `json:"records"`
	More     bool              `json:"more"`
	Tables   []lookTableResult `json:"tables"`
	Controls map[string]int64  `json:"controls"`
	Poison   []lookPoison      `json:"poison"`
	Warnings []string          `json:"warnings"`
}

type lookTableResult struct {
	Table    string           `json:"table"`
	Keys     []string         `json:"keys"`
	Sequence []string         `json:"sequence"`
	Schema   string           `json:"schema"`
	Changes  map[string]int64 `json:"changes"`
	Sample   json.RawMessage  `json:"sample"`
}

type lookPoison struct {
	Line   int64  `json:"line"`
	Class  string `json:"class"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

var changeWords = map[event.Op]string{event.Insert: "inserts", event.Update: "updates", event.Upsert: "upserts", event.Delete: "deletes", event.Truncate: "truncates"}

func (a *app) detect(ctx context.Context, from []string, f *detectFlags) error {
	if err := a.checkResultForm(); err != nil {
		return err
	}
	format, err := source.ParseFormat(f.format)
	if err != nil {
		return err
	}
	zone, err := a.flags.zone()
	if err != nil {
		return err
	}
	spec := source.Spec{Format: format, From: from, Keys: f.keys.values, Options: f.option.values, Stdin: a.stdin, Now: a.clock, TimeZone: zone, OpenTable: a.sourceTable, OpenStore: a.open, Warn: a.warn, Getenv: os.Getenv}
	if f.schema != "" {
		if spec.Schema, err = schema.ParseDDL(f.schema); err != nil {
			return fmt.Errorf("read --schema: %w", err)
		}
	}
	look, err := source.LookAt(ctx, spec)
	if err != nil {
		return fmt.Errorf("look at input: %w", err)
	}
	r, err := resultOf(look)
	if err != nil {
		return err
	}
	if a.wantsSummary() {
		_, err := fmt.Fprintln(a.stdout, r.summary())
		return err
	}
	return a.printResult(r, "")
}

func resultOf(l *source.Look) (*lookResult, error) {
	r := &lookResult{Format: string(l.Format), Why: l.Explain, Records: l.Records, More: l.More, Tables: []lookTableResult{},
		Controls: map[string]int64{}, Poison: []lookPoison{}, Warnings: append([]string{}, l.Warnings...)}
	for k, n := range l.Controls {
		r.Controls[strings.ToLower(string(k))] = n
	}
	for _, p := range l.Poison {
		r.Poison = append(r.Poison, lookPoison{p.Record.Line, string(p.Class), p.Code, p.Reason})
	}
	for _, t := range l.Tables {
		row := lookTableResult{Table: tableName(t.Table), Keys: append([]string{}, t.Keys...), Sequence: append([]string{}, t.Sequence...), Changes: map[string]int64{}, Sample: json.RawMessage("null")}
		if t.Columns != nil {
			row.Schema = ddl(t.Columns)
		}
		for op, n := range t.Changes {
			row.Changes[changeWords[op]] = n
		}
		if t.Sample != nil {
			var out bytes.Buffer
			w, err := rowio.NewWriter(&out, rowio.JSONL, t.SampleColumns, rowio.WriteOptions{})
			if err != nil {
				return nil, fmt.Errorf("print sample row: %w", err)
			}
			if err := w.Write(t.Sample); err != nil {
				return nil, fmt.Errorf("print sample row: %w", err)
			}
			if err := w.Close(); err != nil {
				return nil, fmt.Errorf("print sample row: %w", err)
			}
			row.Sample = json.RawMessage(bytes.TrimSpace(out.Bytes()))
		}
		if len(t.Keys) == 0 {
			r.Warnings = append(r.Warnings, theTable(row.Table)+" names no key: apply needs --keys")
		}
		if len(t.Sequence) == 0 {
			r.Warnings = append(r.Warnings, theTable(row.Table)+" has no position of its own: apply needs --sequence-by")
		}
		r.Tables = append(r.Tables, row)
	}
	return r, nil
}

// ddl prints columns as --schema takes them.
func ddl(s *schema.Struct) string {
	var parts []string
	for _, f := range s.Fields {
		parts = append(parts, schema.QuoteName(f.Name)+" "+f.Type.String())
	}
	return strings.Join(parts, ", ")
}

func theTable(name string) string {
	if name == "" {
		return "the table"
	}
	return "table " + name
}

func tableName(t event.Table) string {
	var parts []string
	for _, p := range []string{t.Database, t.Schema, t.Name} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ".")
}

// summary is the form for a terminal.
func (r *lookResult) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "format    %s (%s)\n", r.Format, r.Why)
	more := ""
	if r.More {
		more = ", there are more"
	}
	fmt.Fprintf(&b, "looked at %s%s\n", plural(int64(r.Records), "record", "records"), more)
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "\ntable     %s\n  columns   %s\n", orNone(t.Table), t.Schema)
		fmt.Fprintf(&b, "  keys      %s\n  sequence  %s\n", orNone(strings.Join(t.Keys, ", ")), orNone(strings.Join(t.Sequence, ", ")))
		var parts []string
		for _, op := range []event.Op{event.Insert, event.Update, event.Upsert, event.Delete, event.Truncate} {
			if n := t.Changes[changeWords[op]]; n > 0 {
				parts = append(parts, plural(n, strings.TrimSuffix(changeWords[op], "s"), changeWords[op]))
			}
		}
		fmt.Fprintf(&b, "  changes   %s\n", strings.Join(parts, ", "))
		if string(t.Sample) != "null" {
			fmt.Fprintf(&b, "  sample    %s\n", t.Sample)
		}
	}
	for _, p := range r.Poison {
		fmt.Fprintf(&b, "\nunreadable line %d: %s %s: %s", p.Line, p.Class, p.Code, p.Reason)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s", w)
	}
	return strings.TrimRight(b.String(), "\n")
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
