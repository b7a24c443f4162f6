package apply

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

// Codes that need a story of their own (auto-cdc 1.6, apply-state 4.6).
func TestRun_Codes(t *testing.T) {
	ctx := context.Background()
	full := []string{"(1, Ann, Rome)"}
	t.Run(CodeInteropStorage, func(t *testing.T) {
		b := newBench(t, "stored-as: 2")
		b.must(t, "U 1@5 (Ann, Rome)")
		_, err := b.snapshot("9", full)
		wantCode(t, err, CodeInteropStorage)
	})
	t.Run(CodeInteropIgnoreNull, func(t *testing.T) {
		b := newBench(t, "")
		b.flow.IgnoreNullUpdates = true
		b.must(t, "U 1@5 (Ann, Rome)")
		spec := b.snapshotSpec(textSnapshot{version: "9", rows: full})
		spec.Flow.IgnoreNullUpdates = false
		_, err := Run(ctx, spec, b.opts)
		wantCode(t, err, CodeInteropIgnoreNull)
	})
	t.Run("FROM SNAPSHOT with other clauses", func(t *testing.T) {
		b := newBench(t, "")
		for _, set := range []func(*Flow){func(f *Flow) { f.ApplyAsDeletes = "true" }, func(f *Flow) { f.StoredAsSCDType = "bitemporal" }, func(f *Flow) { f.IgnoreNullUpdates = true },
			func(f *Flow) { f.SequenceBy = "id" }, func(f *Flow) { f.MaxDeleteFraction = 2 }, func(f *Flow) { f.MissingGrace = -1 }} {
			spec := b.snapshotSpec(textSnapshot{version: "9", rows: full})
			set(&spec.Flow)
			if _, err := Run(ctx, spec, b.opts); err == nil || !strings.Contains(err.Error(), "INVALID_OPTION") {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run(CodeExpectationInvalid, func(t *testing.T) {
		b := newBench(t, "")
		b.flow.Expectations = []Expectation{{Name: "c", Expr: "name IS NOT NULL"}, {Name: "c", Expr: "city IS NOT NULL"}}
		_, err := b.run("U 1@5 (Ann, Rome)")
		wantCode(t, err, CodeExpectationInvalid)
	})
	t.Run(CodeReservedTargetColumn, func(t *testing.T) {
		b := newBench(t, "")
		b.must(t, "U 1@5 (Ann, Rome)")
		if _, err := b.open(t).Alter(ctx, delta.AddColumns{Columns: []delta.NewColumn{{Field: schema.Field{Name: "__sluice_x", Type: schema.String, Nullable: true}}}}, delta.AlterOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := b.run("U 1@6 (Ann, Bonn)")
		wantCode(t, err, CodeReservedTargetColumn)
	})
	t.Run("dry run tells what would be", func(t *testing.T) {
		b := newBench(t, "")
		b.flow.DryRun = true
		res := b.must(t, "U 1@5 (Ann, Rome)")
		p := res.Plan
		if p == nil || !p.Creates || strings.Join(p.Keys, ",") != "id" || p.Sequence != "BIGINT" || p.StoredAs != "1" || !strings.Contains(p.Schema, "city") {
			t.Fatalf("plan %+v", p)
		}
		b.wantTable(t)
		b.flow.DryRun, b.source = false, &textSource{name: "file:events"}
		b.must(t, "U 1@5 (name=Ann)")
		b.flow.DryRun = true
		if res := b.must(t, "U 1@6 (Ann, Rome)"); res.Plan == nil || res.Plan.Creates || strings.Join(res.Plan.Adds, ",") != "city" {
			t.Fatalf("plan %+v", res.Plan)
		}
	})
}
