package apply_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func long() bool { return os.Getenv("SLUICE_LONG") != "" }

// TestRun_Corpora applies every recorded stream to fresh tables: in one batch, in
// batches of 500, 7 and 1, and, where events carry their position, row by row in
// random order. After each the target holds what the database held (or what the
// events say where the README says that they differ), and the feed replayed from
// version 0 gives the same rows.
func TestRun_Corpora(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "debezium")
	dirs, _ := filepath.Glob(filepath.Join(base, "*", "corpus.json"))
	for _, p := range dirs {
		dir := filepath.Dir(p)
		name := filepath.Base(dir)
		if name == "pg-wal2json" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "pg-large" && !long() {
				t.Skip("201,798 events in every cut take minutes: set SLUICE_LONG=1")
			}
			c := corpora.Load(t, dir)
			for _, table := range slices.Sorted(maps.Keys(c.Tables)) {
				if len(c.Tables[table].Key) > 0 {
					t.Run(table, func(t *testing.T) { applyCorpus(t, c, dir, table) })
				}
			}
		})
	}
}

func corpusSpec(t *testing.T, c *corpora.Corpus, dir, table string) source.Spec {
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
	return spec
}

func applyCorpus(t *testing.T, c *corpora.Corpus, dir, table string) {
	want := corpora.ExpectedRows(t, c, dir, table)
	spec := corpusSpec(t, c, dir, table)
	flow := apply.Flow{Name: "f", Keys: spec.Keys}
	var events int64
	wide := refuseTypeChanges(t, c, table, spec, flow)
	for _, rows := range []int{0, 500, 7, 1} {
		if rows == 1 && events > 400 && !long() || rows < 500 && c.Name == "pg-large" || rows == 7 && events > 600 && !long() {
			continue
		}
		name := fmt.Sprintf("batches of %d", rows)
		o, err := source.Open(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		flow.BatchRows = rows
		store := wideTable(t, table, wide)
		res, err := apply.Run(context.Background(), apply.Spec{Source: o.Source, NewDecoder: o.NewDecoder,
			Target: apply.Targets{Store: store, Name: table}, Flow: flow}, apply.Options{})
		o.Source.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		events = res.Events.Read
		if e := res.Events; e.Read != e.Applied+e.Stale+e.Duplicate+e.Poison || e.Poison > 0 {
			t.Errorf("%s: events %+v do not add up", name, e)
		}
		checkTarget(t, name, c, table, store, want)
	}
	if trail, _ := filepath.Glob(filepath.Join(dir, "expected", table+".history.jsonl*")); wide == nil && len(trail) == 0 && c.Name != "pg-large" {
		openRowsEqual(t, c, table, spec, want)
	}
	if c.Name == "pg-toast" {
		return
	}
	batches := decodeRows(t, spec)
	r := rand.New(rand.NewSource(7))
	r.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	flow.BatchRows = max(len(batches)/5, 1)
	store := wideTable(t, table, wide)
	_, err := apply.Run(context.Background(), apply.Spec{Source: rowSource{len(batches)}, NewDecoder: func() event.Decoder { return &rowDecoder{rows: batches} },
		Target: apply.Targets{Store: store, Name: table}, Flow: flow}, apply.Options{})
	if err != nil {
		t.Fatalf("random order: %v", err)
	}
	checkTarget(t, "random order", c, table, store, want)
}

// openRowsEqual is law 3 (auto-cdc 2.12): the open rows of an SCD2 table equal the
// SCD1 table of the same events.
func openRowsEqual(t *testing.T, c *corpora.Corpus, table string, spec source.Spec, want corpora.Table) {
	t.Helper()
	store, err := runHistory(t, spec, table, 113, nil)
	if err != nil && strings.Contains(err.Error(), apply.CodeTruncateRequiresSCD1) {
		return
	}
	if err != nil {
		t.Fatalf("SCD2: %v", err)
	}
	ctx := context.Background()
	tab, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scan, err := tab.Scan(ctx, delta.ScanOptions{Where: "__END_AT IS NULL"})
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	for b, err := range scan.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, maps_(b, 0)...)
	}
	if len(rows) != len(want) {
		t.Errorf("law 3: %d open rows, want %d", len(rows), len(want))
	}
	corpora.SameRows(t, "law 3", corpora.CanonRows(c, table, rows), want)
}

// refuseTypeChanges: where a column of the stream changes its type, a run into a
// new table stops there with the code of auto-cdc 1.4; the answer is the schema of
// a table that holds every version of its columns.
func refuseTypeChanges(t *testing.T, c *corpora.Corpus, table string, spec source.Spec, flow apply.Flow) *schema.Struct {
	t.Helper()
	wide := &schema.Struct{}
	changed := false
	for _, b := range decodeRows(t, spec) {
		for _, f := range b.Columns.Fields {
			at := wide.Index(f.Name)
			f.Nullable = true
			switch {
			case f.Type == schema.Void:
			case at < 0:
				wide.Fields = append(wide.Fields, f)
			case !schema.EqualIgnoringNullability(wide.Fields[at].Type, f.Type):
				changed = true
				_, decimals := wide.Fields[at].Type.(schema.Decimal)
				if wide.Fields[at].Type == schema.Integer && f.Type == schema.Long || decimals {
					wide.Fields[at].Type = f.Type
				} else if f.Type != schema.Integer || wide.Fields[at].Type != schema.Long {
					wide.Fields[at].Type = schema.String
				}
			}
		}
	}
	if !changed {
		return nil
	}
	o, err := source.Open(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Source.Close()
	_, err = apply.Run(context.Background(), apply.Spec{Source: o.Source, NewDecoder: o.NewDecoder,
		Target: apply.Targets{Store: storage.NewMemory("t"), Name: table}, Flow: flow}, apply.Options{})
	var e *apply.Error
	if !errors.As(err, &e) || e.Code != apply.CodeIncompatibleType && e.Code != apply.CodeKeySchemaDrift {
		t.Fatalf("a changed type: got %v, want %s", err, apply.CodeIncompatibleType)
	}
	return wide
}

// wideTable is an empty store, or one with a table made for the wider types.
func wideTable(t *testing.T, name string, wide *schema.Struct) storage.Store {
	t.Helper()
	store := storage.NewMemory(name)
	if wide != nil {
		_, err := delta.Create(context.Background(), store, delta.CreateOptions{Schema: wide,
			Properties: map[string]string{"delta.enableChangeDataFeed": "true"}}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// checkTarget compares rows and the replayed feed with what is expected.
func checkTarget(t *testing.T, what string, c *corpora.Corpus, table string, store storage.Store, want corpora.Table) {
	t.Helper()
	ctx := context.Background()
	tab, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		if len(want) == 0 {
			return
		}
		t.Fatalf("%s: %v", what, err)
	}
	scan, err := tab.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	for b, err := range scan.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, maps_(b, 0)...)
	}
	got := corpora.CanonRows(c, table, rows)
	corpora.SameRows(t, what, got, want)
	if len(rows) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(rows), len(want))
	}
	zero := int64(0)
	feed, err := cdf.Open(ctx, tab.Log(), cdf.Options{Range: cdf.Range{FromVersion: &zero}})
	if err != nil {
		t.Fatal(err)
	}
	now := corpora.Table{}
	for b, err := range feed.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		kinds := b.Column(int(b.NumCols()) - 3).(*array.String)
		images := maps_(b, 3)
		for _, adding := range []bool{false, true} { // what goes, before what comes
			for r, image := range images {
				kind := cdf.ChangeType(kinds.Value(r))
				if adding != (kind == cdf.Insert || kind == cdf.UpdatePost) {
					continue
				}
				for k, row := range corpora.CanonRows(c, table, []map[string]any{image}) {
					have, there := now[k]
					switch {
					case adding && there:
						t.Fatalf("%s: feed: %s of %s, which is there", what, kind, k)
					case adding:
						now[k] = row
					case !there || !maps.Equal(have, row):
						t.Fatalf("%s: feed: %s of %s is %v, it was %v", what, kind, k, row, have)
					default:
						delete(now, k)
					}
				}
			}
		}
	}
	corpora.SameRows(t, what+": feed", now, got)
}

// maps_ are the rows of a batch as plain values, without the last drop columns.
func maps_(b arrow.RecordBatch, drop int) []map[string]any {
	out := make([]map[string]any, b.NumRows())
	for r := range out {
		out[r] = map[string]any{}
		for i := range int(b.NumCols()) - drop {
			out[r][b.ColumnName(i)] = corpora.Value(b.Column(i), r)
		}
	}
	return out
}

// decodeRows decodes a stream in its order and cuts the batches into rows.
func decodeRows(t *testing.T, spec source.Spec) []*event.Batch {
	t.Helper()
	o, err := source.Open(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Source.Close()
	d := o.NewDecoder()
	for rec, err := range o.Source.Records(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Add(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Flush()
	if err != nil {
		t.Fatal(err)
	}
	var out []*event.Batch
	for _, b := range all.Batches {
		for r := range int(b.Rows.NumRows()) {
			out = append(out, rowOf(b, r))
		}
	}
	return out
}

func rowOf(b *event.Batch, r int) *event.Batch {
	i := int64(r)
	out := *b
	out.Source = "" // rows have no position in another order
	out.Rows = b.Rows.NewSlice(i, i+1)
	out.Ops, out.Offsets, out.Lines = b.Ops[r:r+1], b.Offsets[r:r+1], b.Lines[r:r+1]
	bits := func(in []event.Bits) []event.Bits {
		cut := make([]event.Bits, len(in))
		for c, x := range in {
			if x.Get(r) {
				cut[c] = event.Bits{1}
			}
		}
		return cut
	}
	out.Unauthored, out.Unavailable = bits(b.Unauthored), bits(b.Unavailable)
	if b.Seq != nil {
		out.Seq = array.NewSlice(b.Seq, i, i+1)
	}
	if b.OldKeys != nil {
		out.OldKeys = b.OldKeys.NewSlice(i, i+1)
	}
	if b.NewKeys != nil {
		out.NewKeys = b.NewKeys.NewSlice(i, i+1)
	}
	if b.Rescued != nil {
		out.Rescued = b.Rescued[r : r+1]
	}
	return &out
}

// rowSource and rowDecoder hand decoded rows over in their order.
type rowSource struct{ n int }

func (s rowSource) Records(_ context.Context, _ map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		for i := range s.n {
			if !yield(&event.Record{Transport: int64(i)}, nil) {
				return
			}
		}
	}
}
func (rowSource) Positions() ([]event.Position, error) { return nil, nil }
func (rowSource) Close() error                         { return nil }

type rowDecoder struct {
	rows []*event.Batch
	out  []*event.Batch
}

func (d *rowDecoder) Add(_ context.Context, r *event.Record) error {
	d.out = append(d.out, d.rows[r.Transport])
	return nil
}
func (d *rowDecoder) Pending() (int, int64) { return len(d.out), 0 }
func (d *rowDecoder) State() string         { return "" }
func (d *rowDecoder) Restore(string) error  { return nil }
func (d *rowDecoder) Flush() (*event.Decoded, error) {
	out := &event.Decoded{Batches: d.out}
	d.out = nil
	return out, nil
}
