package merge

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/internal/testtable"
)

// BenchmarkFind: 1000 uniform keys, and 1000 beside each other, in 1 Mi rows of one file;
// the key a long and a string.
func BenchmarkFind(b *testing.B) {
	const n, wanted = 1 << 20, 1000
	ctx := context.Background()
	const ddl = "k BIGINT, s STRING, v DOUBLE"
	table := testtable.New(b, testtable.Spec{DDL: ddl})
	kb, sb, vb := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator), array.NewFloat64Builder(memory.DefaultAllocator)
	for i := range n {
		kb.Append(int64(2 * i))
		sb.Append(fmt.Sprintf("%09d", 2*i))
		vb.Append(float64(i) / 3)
	}
	as := testtable.Batch(b, ddl, "").Schema()
	rows := array.NewRecordBatch(as, []arrow.Array{kb.NewArray(), sb.NewArray(), vb.NewArray()}, n)
	if _, err := table.Append(ctx, delta.Batches(rows), delta.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		b.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		b.Fatal(err)
	}
	l, err := table.Layout(snap)
	if err != nil {
		b.Fatal(err)
	}
	for column, name := range []string{"k", "s"} {
		for spread, step := range map[string]int{"uniform": n / wanted, "close": 1} {
			b.Run(name+" "+spread, func(b *testing.B) {
				keys := Keys{Columns: []string{name}, Set: map[string]int{}}
				for i := range wanted {
					keys.Set[string(keycode.AppendValue(nil, rows.Column(column), i*step))] = i
				}
				for b.Loop() {
					groups, err := Find(ctx, table.Store(), l, files, keys, Options{})
					if err != nil || len(groups) != 1 || len(groups[0].Rows) != wanted {
						b.Fatal(len(groups), err)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
		b.Run(name+" unique", func(b *testing.B) {
			for b.Loop() {
				if dup, err := FirstDuplicate(ctx, table.Store(), l, files, []string{name}, Options{}); err != nil || dup != nil {
					b.Fatal(dup, err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
