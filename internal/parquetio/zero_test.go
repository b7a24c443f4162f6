package parquetio

import (
	"bytes"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// Spark finds a -0.0 by the predicate = 0.0 only if no dictionary of a whole
// chunk holds the one without the other.
func TestWriter_NegativeZero(t *testing.T) {
	s := &schema.Struct{Fields: []schema.Field{{Name: "d", Type: schema.Double, Nullable: true}, {Name: "f", Type: schema.Float, Nullable: true}}}
	sch, err := schema.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		zero float64
		dict bool
	}{{"R-608 -0.0 takes no dictionary", math.Copysign(0, -1), false}, {"0.0 does", 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			b := array.NewRecordBuilder(memory.DefaultAllocator, sch)
			for i := range 200 {
				b.Field(0).(*array.Float64Builder).Append([]float64{1.5, c.zero}[i%2])
				b.Field(1).(*array.Float32Builder).Append([]float32{1.5, float32(c.zero)}[i%2])
			}
			data := writeFile(t, s, WriterOptions{}, b.NewRecordBatch())
			f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			for _, col := range f.Metadata().RowGroups[0].Columns {
				dict := false
				for _, e := range col.MetaData.Encoding {
					dict = dict || e == format.RLEDictionary
				}
				if dict != c.dict {
					t.Errorf("%v: encodings %v", col.MetaData.PathInSchema, col.MetaData.Encoding)
				}
			}
		})
	}
}
