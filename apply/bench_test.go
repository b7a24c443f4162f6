package apply_test

import (
	"context"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
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
