package expr

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

func BenchmarkBound_EvalFilter(b *testing.B) {
	s, err := schema.ParseDDL("id BIGINT, name STRING, price DECIMAL(10,2)")
	if err != nil {
		b.Fatal(err)
	}
	sc, err := schema.ArrowSchema(s)
	if err != nil {
		b.Fatal(err)
	}
	const rows = 8192
	rb := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	for i := range rows {
		rb.Field(0).(*array.Int64Builder).Append(int64(i))
		rb.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("name-%05d", i%1000))
		n, _ := floatDecimal(float64(i)/4, 64, schema.Decimal{Precision: 10, Scale: 2})
		rb.Field(2).(*array.Decimal128Builder).Append(n)
	}
	var batch arrow.RecordBatch = rb.NewRecordBatch()
	for _, text := range []string{"id < 4000", "name = 'name-00007'", "id between 100 and 7000 and name like 'name-00%'", "price * 2 > 1000", "id in (1, 2, 3, 4, 5, 6)", "case when id % 2 = 0 then price else 0 end > 10"} {
		b.Run(text, func(b *testing.B) {
			x, err := Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			bound, err := x.Bind(s)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := bound.EvalFilter(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
