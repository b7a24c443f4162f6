package datafile

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// rowIDFields are the hidden columns of a table with row tracking, nil without it:
// row id and row commit version, under the names that its properties give.
func rowIDFields(c *deltalog.TableConfig) []schema.Field {
	if !c.RowTracking() {
		return nil
	}
	id, version, ok := c.MaterializedRowIDColumns()
	if !ok {
		return nil
	}
	return []schema.Field{{Name: id, Type: schema.Long, Nullable: true}, {Name: version, Type: schema.Long, Nullable: true}}
}

// checkRowIDs refuses hidden names that are those of other columns.
func (l *Layout) checkRowIDs() error {
	for _, f := range l.RowIDs {
		if l.file.Index(f.Name) >= 0 || l.Schema.Index(f.Name) >= 0 || l.Carry != nil && l.Carry.Index(f.Name) >= 0 || l.RowIDs[0].Name == l.RowIDs[1].Name {
			return &LayoutError{"delta.rowTracking.materialized…ColumnName", f.Name, "another column has this name"}
		}
	}
	return nil
}

// hidden are the columns after the logical ones in batches of rows that move from
// file to file.
func (l *Layout) hidden(carry, rowIDs bool) []schema.Field {
	var out []schema.Field
	if carry && l.Carry != nil {
		out = slices.Clone(l.Carry.Fields)
	}
	if rowIDs {
		out = append(out, l.RowIDs...)
	}
	return out
}

// fillRowIDs gives the rows that have no materialised value what the action says:
// the file's base row id and the row's physical number, the file's commit version.
// Files without them (row tracking came later and was not back-filled) leave null.
func (r *reader) fillRowIDs(cols []arrow.Array, rows []int64) error {
	for k, base := range []*int64{r.baseID, r.version} {
		at := r.rowIDs - 1 + k
		a, ok := cols[at].(*array.Int64)
		if !ok {
			return fmt.Errorf("hidden column %s: Arrow type %s", r.schema.Field(at).Name, cols[at].DataType())
		}
		if a.NullN() == 0 || base == nil {
			continue
		}
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.Reserve(a.Len())
		for i := range a.Len() {
			switch {
			case a.IsValid(i):
				b.UnsafeAppend(a.Value(i))
			case k == 0:
				b.UnsafeAppend(*base + rows[i])
			default:
				b.UnsafeAppend(*base)
			}
		}
		cols[at] = b.NewArray()
		b.Release()
		a.Release()
	}
	return nil
}
