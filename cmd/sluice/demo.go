package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/demodata"
	"github.com/sluice-data/sluice/internal/rowio"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// demoColumns are what the demo prints of the customers table; the others are
// too wide for a screen.
var demoColumns = []string{"id", "name", "email", "vip", "credit", "born"}

func newDemoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [DIR]",
		Short: "Apply bundled Debezium events to a fresh table and show what came of it",
		Long: "Apply real Debezium events (recorded from a small shop in PostgreSQL, embedded in this binary) to a fresh\n" +
			"table in two batches, and print the table, its change feed and its history. Needs no network.\n" +
			"DIR is created, or must be empty; without it a temporary folder is made and stays.",
		Example: "  sluice demo\n  sluice demo shop\n  sluice cat shop/customers --columns id,name",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := demoDir(args)
			if err != nil {
				return err
			}
			return a.demo(cmd.Context(), dir)
		},
	}
}

func demoDir(args []string) (string, error) {
	if len(args) == 0 {
		return os.MkdirTemp("", "sluice-demo-")
	}
	entries, err := os.ReadDir(args[0])
	if err == nil && len(entries) > 0 {
		return "", &cliError{code: "DIRECTORY_NOT_EMPTY", exit: exitRefused, message: "the folder of the demo holds files: " + args[0], hint: "name a new one"}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return args[0], os.MkdirAll(args[0], 0o755)
}

func (a *app) demo(ctx context.Context, dir string) error {
	start := a.clock()
	if a.flags.output == "" {
		a.flags.output = string(rowio.Table)
	}
	events, err := demodata.Events()
	if err != nil {
		return err
	}
	cut := nthLine(events, demodata.SnapshotLines)
	table, file := filepath.Join(dir, "customers"), filepath.Join(dir, "events.jsonl")
	say := func(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }
	say("A shop's database was recorded with Debezium: %d change events of %s.", bytes.Count(events, []byte("\n")), strings.Join(demodata.Tables(), ", "))
	for i, part := range [][]byte{events[:cut], events[cut:]} {
		if err := appendFile(file, part); err != nil {
			return err
		}
		result, err := a.demoApply(ctx, table, file)
		if err != nil {
			return err
		}
		what := "the snapshot"
		if i > 0 {
			what = "what happened then"
		}
		say("Batch %d, %s: %d customer events, version %d: %d inserted, %d updated, %d deleted.",
			i+1, what, result.Events.Read, result.Version, result.Rows.Inserted, result.Rows.Updated, result.Rows.Deleted)
	}
	took := a.clock().Sub(start)
	if err := a.demoShow(ctx, say, table); err != nil {
		return err
	}
	me := "sluice"
	if len(os.Args) > 0 && strings.ContainsRune(os.Args[0], os.PathSeparator) {
		me = os.Args[0]
	}
	say("\nThe table lies in %s (%.1f s, no service was asked). Any engine that reads Delta reads it. Try next:", table, took.Seconds())
	say("  %s cat %s --where \"vip\" --order-by id -o jsonl", me, table)
	say("  %s changes %s --from-version 2 -o csv", me, table)
	say("  %s apply --from %s --into '%s/{table}'", me, file, filepath.Join(dir, "all"))
	return nil
}

// demoApply is one run of the flow of the demo.
func (a *app) demoApply(ctx context.Context, table, file string) (apply.Result, error) {
	f := &applyFlags{into: table, table: "customers", format: "debezium", from: []string{file}, batchRows: 100000, batchBytes: 256e6}
	targets, err := a.targets(f.into, f.table, nil, nil)
	if err != nil {
		return apply.Result{}, err
	}
	in, err := a.openInput(ctx, f, nil)
	if err != nil {
		return apply.Result{}, err
	}
	r, err := apply.Run(ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Target: targets, Flow: a.flowOf(f, false, in.onPoison)},
		apply.Options{Clock: a.clock, Logger: a.logger(), EngineInfo: "sluice " + version})
	return r, errors.Join(err, in.Source.Close())
}

func (a *app) demoShow(ctx context.Context, say func(string, ...any), location string) error {
	t, err := a.openTable(ctx, location)
	if err != nil {
		return err
	}
	say("\nThe table now:\n")
	scan, err := t.Scan(ctx, delta.ScanOptions{Columns: demoColumns, OrderBy: []delta.Order{{Column: "id"}}})
	if err != nil {
		return err
	}
	if err := a.printRows(scan.Schema(), scan.Batches(ctx)); err != nil {
		return err
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return err
	}
	say("\nIts change feed of version %d, what a downstream job reads:\n", snap.Version)
	feed, err := cdf.OpenAt(ctx, snap, cdf.Options{Range: cdf.Range{FromVersion: &snap.Version}, Columns: demoColumns[:5]})
	if err != nil {
		return err
	}
	rows, err := byColumn(feed.Rows(ctx), 0)
	if err != nil {
		return err
	}
	if err := a.printRows(feed.Schema, rows); err != nil {
		return err
	}
	say("\nIts history:\n")
	entries, err := snap.History(ctx, 0)
	if err != nil {
		return err
	}
	return a.printValues(demoHistory(entries))
}

// demoHistory is the history with the counts that a reader of the demo can place.
func demoHistory(entries []deltalog.HistoryEntry) (*schema.Struct, [][]any) {
	s := &schema.Struct{Fields: []schema.Field{{Name: "version", Type: schema.Long}, {Name: "timestamp", Type: schema.Timestamp},
		{Name: "operation", Type: schema.String, Nullable: true}}}
	counts := []string{"inserted", "updated", "deleted"}
	for _, name := range counts {
		s.Fields = append(s.Fields, schema.Field{Name: name, Type: schema.Long, Nullable: true})
	}
	var rows [][]any
	for _, e := range entries {
		row := []any{e.Version, e.Time, nil, nil, nil, nil}
		if e.Info != nil {
			row[2] = orNull(e.Info.Operation)
			for i, name := range counts {
				metric := "numTargetRows" + strings.ToUpper(name[:1]) + name[1:]
				if n, err := strconv.ParseInt(e.Info.OperationMetrics[metric], 10, 64); err == nil {
					row[3+i] = n
				}
			}
		}
		rows = append(rows, row)
	}
	return s, rows
}

// byColumn sorts a small stream by its column c of 64-bit integers, so that the
// two images of an update stand together.
func byColumn(stream iter.Seq2[arrow.RecordBatch, error], c int) (iter.Seq2[arrow.RecordBatch, error], error) {
	var parts []arrow.RecordBatch
	for b, err := range stream {
		if err != nil {
			return nil, err
		}
		parts = append(parts, b)
		b.Retain()
	}
	type place struct {
		part, row int
		key       int64
	}
	var order []place
	for p, b := range parts {
		keys, ok := b.Column(c).(*array.Int64)
		if !ok {
			return nil, fmt.Errorf("sort by column %d: not a BIGINT", c)
		}
		for r := range keys.Len() {
			order = append(order, place{p, r, keys.Value(r)})
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, o := range order {
			if !yield(parts[o.part].NewSlice(int64(o.row), int64(o.row+1)), nil) {
				return
			}
		}
	}, nil
}

// nthLine is the offset after the first n lines.
func nthLine(b []byte, n int) int {
	at := 0
	for range n {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return len(b)
		}
		at += i + 1
	}
	return at
}

func appendFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
