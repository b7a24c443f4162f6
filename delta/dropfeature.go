package delta

import (
	"context"
	"errors"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// DropFeature takes a feature out of the table's protocol (W-303). What only a rewrite
// removes is rewritten first, in commits of their own that change no row: deletion
// vectors are purged, files of types that were widened since are written in the
// present ones, files of mapped tables under the names of their columns. Everything else that uses the feature is named in the error
// (DELTA_FEATURE_DROP_TRACES); see [deltalog.Log.DropFeature] for the other errors.
func (t *Table) DropFeature(ctx context.Context, f deltalog.Feature, o deltalog.DropFeatureOptions) (Result, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return Result{}, err
	}
	if _, err := snap.Protocol.Without(f); err != nil {
		return Result{}, err
	}
	switch f {
	case deltalog.DeletionVectors:
		err = t.dropVectors(ctx, o)
	case deltalog.ColumnMapping:
		err = t.dropMapping(ctx, o)
	case deltalog.TypeWidening, deltalog.TypeWideningPreview:
		err = t.dropWidening(ctx, o)
	}
	if err != nil {
		return Result{}, err
	}
	r, err := t.log.DropFeature(ctx, f, o)
	return Result{Version: r.Version, Committed: err == nil}, err
}

// dropVectors stops the table from writing deletion vectors and purges those it has.
func (t *Table) dropVectors(ctx context.Context, o deltalog.DropFeatureOptions) error {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snap.WritesDeletionVectors() {
		if _, err := t.SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": "false"}, PropertyOptions{UserMetadata: o.UserMetadata}); err != nil {
			return err
		}
	}
	_, err = t.Optimize(ctx, OptimizeOptions{Purge: true, UserMetadata: o.UserMetadata})
	return err
}

// dropWidening rewrites the files of older types, then removes the history of types.
func (t *Table) dropWidening(ctx context.Context, o deltalog.DropFeatureOptions) error {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snap.Props.TypeWidening {
		if _, err := t.SetProperties(ctx, map[string]string{"delta.enableTypeWidening": "false"}, PropertyOptions{UserMetadata: o.UserMetadata}); err != nil {
			return err
		}
	}
	if !schema.HasTypeChanges(snap.Schema) {
		return nil
	}
	errNarrow := errors.New("a file of an older type came back")
	for range t.opts.Attempts {
		narrow, err := t.narrowFiles(ctx)
		if err != nil {
			return err
		}
		if _, err := t.Optimize(ctx, OptimizeOptions{Purge: true, UserMetadata: o.UserMetadata, stale: func(a *deltalog.Add) bool { return narrow[a.Path] }}); err != nil {
			return err
		}
		_, err = t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
			left, err := t.narrowFiles(ctx)
			if err != nil {
				return Result{}, err
			}
			if len(left) > 0 {
				return Result{}, errNarrow
			}
			tx := t.log.Begin(snap)
			tx.ReadWholeTable() // a file that comes in between may be of an older type
			m := *snap.Metadata
			m.SchemaString = schema.WithoutTypeChanges(snap.Schema).JSON()
			tx.SetMetadata(&m)
			return t.finish(ctx, tx, &Staged{}, WriteOptions{UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
				Operation: "UPDATE COLUMN METADATA", Parameters: map[string]string{"operationName": "DROP FEATURE"}, Metrics: map[string]string{}, NotBlind: true,
			})
		})
		if !errors.Is(err, errNarrow) {
			return err
		}
	}
	return errNarrow
}

// narrowFiles are the paths of live files with a column of an older type.
func (t *Table) narrowFiles(ctx context.Context) (map[string]bool, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	l, err := t.Layout(snap)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for a, err := range snap.Files(ctx) {
		if err != nil {
			return nil, err
		}
		narrow, err := datafile.Narrower(ctx, t.store, l, a)
		if err != nil {
			return nil, err
		}
		if narrow {
			out[a.Path] = true
		}
	}
	return out, nil
}
