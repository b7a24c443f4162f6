package delta_test

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sliceColumns is the first n columns of b.
func sliceColumns(b arrow.RecordBatch, n int) arrow.RecordBatch {
	return array.NewRecordBatch(arrow.NewSchema(b.Schema().Fields()[:n], nil), b.Columns()[:n], b.NumRows())
}
