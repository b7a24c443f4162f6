package apply

import (
	"context"
	"slices"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/merge"
)

// eachCurrent calls f for the current rows of the pinned target: all of them, or
// with history those whose validity is open.
func (t *target) eachCurrent(ctx context.Context, s *shape, f func(key string, o *origin, h entry, row int) error) error {
	end := t.snap.Schema.Index(frameColumns[1])
	files, err := t.snap.FileList(ctx)
	if err != nil {
		return err
	}
	for _, add := range files {
		for b, err := range datafile.Read(ctx, t.store, t.layout, add, datafile.ReadOptions{Hidden: true}) {
			if err != nil {
				return err
			}
			b.RecordBatch.Retain()
			o, err := s.storedImage(b.RecordBatch)
			if err != nil {
				return err
			}
			h, err := hiddenOf(b.RecordBatch)
			if err != nil {
				return err
			}
			keys := slices.Clone(o.keys)
			var buf []byte
			for r := range int(b.NumRows()) {
				if t.anyHistory() && end >= 0 && b.Column(end).IsValid(r) {
					continue
				}
				buf = merge.KeyOf(buf[:0], keys, r)
				if err := f(string(buf), o, h.values(r), r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// anyHistory tells whether the target keeps history.
func (t *target) anyHistory() bool {
	def, ok := t.anyFlow()
	return ok && def.StoredAs != "1"
}
