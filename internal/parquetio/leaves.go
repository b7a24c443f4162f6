package parquetio

import "github.com/sluice-data/sluice/log/schema"

// Leaf is the position in [RowGroup.Columns] of a top-level column that is one leaf;
// -1 if the file has none, or only a nested one, for the field.
func (f *File) Leaf(want schema.Field, byID bool) int {
	n, err := f.root.child(want, byID)
	if err != nil || n == nil || !n.isLeaf() || n.maxRep > 0 {
		return -1
	}
	return n.leaf
}
