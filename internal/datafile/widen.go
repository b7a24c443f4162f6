package datafile

import (
	"context"
	"slices"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Narrower reports whether a data file holds a column in a type that was widened since
// by its footer.
func Narrower(ctx context.Context, store storage.Store, l *Layout, add *deltalog.Add) (bool, error) {
	r, err := Open(ctx, store, add.Path)
	if err != nil {
		return false, fileError(add.Path, err)
	}
	defer r.Close()
	f, err := parquetio.Open(r, r.Size())
	if err != nil {
		return false, fileError(add.Path, err)
	}
	return narrower(f.Schema(), l.file, l.Mapping == schema.ModeID), nil
}

func narrower(file, table schema.Type, byID bool) bool {
	switch t := table.(type) {
	case *schema.Struct:
		s, ok := file.(*schema.Struct)
		if !ok {
			return false
		}
		return slices.ContainsFunc(t.Fields, func(want schema.Field) bool {
			i := s.Index(want.Name)
			if id, has := schema.FieldID(want); byID && has {
				i = slices.IndexFunc(s.Fields, func(f schema.Field) bool { have, ok := schema.FieldID(f); return ok && have == id })
			}
			return i >= 0 && narrower(s.Fields[i].Type, want.Type, byID)
		})
	case *schema.Array:
		a, ok := file.(*schema.Array)
		return ok && narrower(a.Elem, t.Elem, byID)
	case *schema.Map:
		m, ok := file.(*schema.Map)
		return ok && (narrower(m.Key, t.Key, byID) || narrower(m.Value, t.Value, byID))
	}
	return schema.CanWiden(file, table)
}
