package source_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// decodeAll reads a source to its end, flushing every n records (0: once).
func decodeAll(t *testing.T, spec source.Spec, n int) ([]*event.Batch, *event.Decoded) {
	t.Helper()
	o, err := source.Open(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Source.Close()
	d := o.NewDecoder()
	all := &event.Decoded{Controls: map[event.ControlKind]int64{}}
	flush := func() {
		out, err := d.Flush()
		if err != nil {
			t.Fatal(err)
		}
		all.Batches = append(all.Batches, out.Batches...)
		all.Poison = append(all.Poison, out.Poison...)
		all.Warnings = append(all.Warnings, out.Warnings...)
		for k, v := range out.Controls {
			all.Controls[k] += v
		}
	}
	count := 0
	for rec, err := range o.Source.Records(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Add(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
		if count++; n > 0 && count%n == 0 {
			flush()
			// A decoder that starts anew from its state goes on in the same way.
			fresh := o.NewDecoder()
			if err := fresh.Restore(d.State()); err != nil {
				t.Fatal(err)
			}
			d = fresh
		}
	}
	flush()
	for _, b := range all.Batches {
		checkBatch(t, b)
	}
	return all.Batches, all
}

// checkBatch holds the contract of event.Batch.
func checkBatch(t *testing.T, b *event.Batch) {
	t.Helper()
	n := int(b.Rows.NumRows())
	if len(b.Ops) != n || len(b.Offsets) != n || len(b.Lines) != n || len(b.Unauthored) != len(b.Columns.Fields) {
		t.Fatalf("batch of %s: %d rows, %d ops, %d offsets, %d lines", b.Table.Name, n, len(b.Ops), len(b.Offsets), len(b.Lines))
	}
	want, err := schema.ArrowSchema(b.Columns)
	if err != nil {
		t.Fatal(err)
	}
	if !want.Equal(b.Rows.Schema()) {
		t.Fatalf("batch of %s: schema %s, want %s", b.Table.Name, b.Rows.Schema(), want)
	}
	if b.Seq != nil && (b.Seq.Len() != n || b.Seq.NullN() > 0) {
		t.Fatalf("batch of %s: %d sequences, %d null", b.Table.Name, b.Seq.Len(), b.Seq.NullN())
	}
	if b.Rescued != nil && len(b.Rescued) != n {
		t.Fatalf("batch of %s: %d rescued", b.Table.Name, len(b.Rescued))
	}
	for _, k := range b.Keys {
		col := b.Rows.Column(b.Columns.Index(k))
		for i := range n {
			if col.IsNull(i) && b.Ops[i] != event.Truncate {
				t.Fatalf("batch of %s: null key %s in row %d", b.Table.Name, k, i)
			}
		}
	}
}

func TestDecoder_Corpora(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "debezium")
	dirs, _ := filepath.Glob(filepath.Join(base, "*", "corpus.json"))
	for _, p := range dirs {
		dir := filepath.Dir(p)
		name := filepath.Base(dir)
		if name == "pg-wal2json" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if name == "pg-large" && os.Getenv("SLUICE_LONG") == "" {
				t.Skip("201,798 events in every order take minutes: set SLUICE_LONG=1")
			}
			c := corpora.Load(t, dir)
			for _, table := range slices.Sorted(maps.Keys(c.Tables)) {
				if len(c.Tables[table].Key) == 0 {
					continue
				}
				t.Run(table, func(t *testing.T) { corpusTable(t, c, dir, table) })
			}
		})
	}
}

func corpusTable(t *testing.T, c *corpora.Corpus, dir, table string) {
	s, opts := corpora.Hints(c, table)
	spec := source.Spec{Format: source.Auto, From: []string{corpora.EventsFile(t, dir)}, Tables: []string{table}, Options: opts, Schema: s}
	if table == "ri_index" {
		spec.Keys = []string{"code"}
	}
	if c.Schemas {
		spec.Schema = nil
	}
	if c.Unwrapped {
		spec.Format = source.DebeziumPlain
	}
	batches, all := decodeAll(t, spec, 0)
	for _, p := range all.Poison {
		t.Errorf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
	}
	var list []corpora.Change
	for _, b := range batches {
		list = append(list, corpora.Changes(b)...)
	}
	want := corpora.ExpectedRows(t, c, dir, table)
	check := func(what string, list []corpora.Change) {
		t.Helper()
		corpora.SameRows(t, what, corpora.CanonRows(c, table, corpora.Fold(list)[table].Images()), want)
	}
	check("in stream order", list)
	if only := corpora.Differs[c.Name][table]; len(only) > 0 && !slices.Contains(only, "*") {
		corpora.SameRows(t, "columns that differ, against the raw events", corpora.CanonColumns(c, table, corpora.Fold(list)[table].Images(), only, false),
			corpora.CanonColumns(c, table, corpora.RawFold(t, corpora.EventsFile(t, dir), table), only, true))
	}
	for _, n := range []int{1, 7} {
		if c.Name == "pg-large" {
			break
		}
		var cut []corpora.Change
		parts, _ := decodeAll(t, spec, n)
		for _, b := range parts {
			cut = append(cut, corpora.Changes(b)...)
		}
		check(fmt.Sprintf("cut every %d records", n), cut)
	}
	if c.Name == "pg-toast" {
		return
	}
	rng := rand.New(rand.NewSource(1))
	shuffles := 3
	if len(list) > 50_000 {
		shuffles = 1
	}
	for range shuffles {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		check("shuffled", list)
	}
}
