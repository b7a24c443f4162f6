package apply_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// BenchmarkRun_Debezium applies the large recorded stream, table by table, in
// batches of the default size; the rate is in events.
func BenchmarkRun_Debezium(b *testing.B) {
	dir := testenv.SharedDir(b, "corpora", "debezium", "pg-large")
	events := int64(0)
	for b.Loop() {
		for _, table := range corpora.Tables(b, dir) {
			o, err := source.Open(context.Background(), source.Spec{From: []string{corpora.EventsFile(b, dir)}, Tables: []string{table}})
			if err != nil {
				b.Fatal(err)
			}
			res, err := apply.Run(context.Background(), apply.Spec{Source: o.Source, NewDecoder: o.NewDecoder,
				Target: apply.Targets{Store: storage.NewMemory("t"), Name: table}, Flow: apply.Flow{Name: "f"}}, apply.Options{})
			o.Source.Close()
			if err != nil {
				b.Fatal(err)
			}
			events += res.Events.Read
		}
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRun_History applies batches to an SCD2 table of 1000 keys with 500 versions
// each: 1000 events in order (one a key), or 1000 events in the middle of the history
// of ten keys.
func BenchmarkRun_History(b *testing.B) {
	const keys, versions = 1000, 500
	source := &schema.Struct{Fields: []schema.Field{{Name: "id", Type: schema.Long}, {Name: "name", Type: schema.String, Nullable: true}, {Name: "seq", Type: schema.Long}}}
	sch, err := schema.ArrowSchema(source)
	if err != nil {
		b.Fatal(err)
	}
	batch := func(n int, at func(i int) (id, seq int64)) *event.Batch {
		rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
		out := &event.Batch{Table: event.Table{Name: "t"}, Columns: source, Keys: []string{"id"}}
		for i := range n {
			id, seq := at(i)
			rb.Field(0).(*array.Int64Builder).Append(id)
			rb.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("name %d of %d", seq, id))
			rb.Field(2).(*array.Int64Builder).Append(seq)
			out.Ops, out.Offsets, out.Lines = append(out.Ops, event.Upsert), append(out.Offsets, int64(i+1)), append(out.Lines, int64(i+1))
		}
		out.Rows = rb.NewRecordBatch()
		return out
	}
	run := func(store storage.Store, in *event.Batch) apply.Result {
		on := true
		res, err := apply.Run(context.Background(), apply.Spec{Source: rowSource{1}, NewDecoder: func() event.Decoder { return &rowDecoder{rows: []*event.Batch{in}} },
			Target: apply.Targets{Store: store, Name: "t"},
			Flow:   apply.Flow{Name: "f", SequenceBy: "seq", ExceptColumnList: []string{"seq"}, StoredAsSCDType: "2", DeletionVectors: &on}}, apply.Options{})
		if err != nil {
			b.Fatal(err)
		}
		return res
	}
	for _, c := range []struct {
		name string
		at   func(round, i int) (id, seq int64)
	}{
		{"in order", func(round, i int) (int64, int64) { return int64(i), int64(10*versions + round*10) }},
		{"late", func(round, i int) (int64, int64) { return int64(i % 10), int64(i/10*10 + round%9 + 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := storage.NewMemory("t")
			run(store, batch(keys*versions, func(i int) (int64, int64) { return int64(i / versions), int64(i % versions * 10) }))
			b.ResetTimer()
			round := 0
			for b.Loop() {
				round++
				run(store, batch(keys, func(i int) (int64, int64) { return c.at(round, i) }))
			}
			b.ReportMetric(float64(b.N*keys)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
