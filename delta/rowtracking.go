package delta

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// Columns that ScanOptions.RowIDs appends.
const (
	RowIDColumn            = "_row_id"
	RowCommitVersionColumn = "_row_commit_version"
)

const (
	propRowTracking = "delta.enableRowTracking"
	propRowID       = "delta.rowTracking.materializedRowIdColumnName"
	propRowVersion  = "delta.rowTracking.materializedRowCommitVersionColumnName"
)

// rowIDColumns are the two columns of a scan, refused where the table has none.
func rowIDColumns(l *datafile.Layout) ([]schema.Field, error) {
	if l.RowIDs == nil {
		return nil, &deltalog.InvalidError{ErrorCode: "DELTA_ROW_TRACKING_NOT_ENABLED", Rule: "R-801", Reason: "the table has no row ids (" + propRowTracking + " is not true)"}
	}
	out := []schema.Field{{Name: RowIDColumn, Type: schema.Long, Nullable: true}, {Name: RowCommitVersionColumn, Type: schema.Long, Nullable: true}}
	for _, f := range out {
		if l.Schema.Index(f.Name) >= 0 {
			return nil, &deltalog.InvalidError{ErrorCode: "AMBIGUOUS_COLUMN", Rule: "R-801", Reason: "the table has a column " + f.Name + " of its own"}
		}
	}
	return out, nil
}

// nameRowIDs gives the last two columns of b the names of a scan.
func nameRowIDs(b arrow.RecordBatch) arrow.RecordBatch {
	fields := slices.Clone(b.Schema().Fields())
	n := len(fields)
	fields[n-2].Name, fields[n-1].Name = RowIDColumn, RowCommitVersionColumn
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), b.Columns(), b.NumRows())
}

// nameHidden puts names for the hidden columns of row tracking into the properties
// that enable it (W-804).
func (t *Table) nameHidden(config map[string]string) {
	if !strings.EqualFold(config[propRowTracking], "true") {
		return
	}
	if config[propRowID] == "" {
		config[propRowID] = "_row-id-col-" + t.opts.NewID()
	}
	if config[propRowVersion] == "" {
		config[propRowVersion] = "_row-commit-version-col-" + t.opts.NewID()
	}
}

// backfillFiles bounds the files that one commit of a back-fill gives row ids to.
const backfillFiles = 100_000

// prepareRowTracking makes an existing table ready for row tracking (W-804): the
// protocol gets the feature, so that from then on every new file has row ids, and then
// the files that are there get theirs, in commits that change no data. Enabling it is
// left to the caller. All of it may be repeated.
func (t *Table) prepareRowTracking(ctx context.Context, userMetadata string) error {
	o := WriteOptions{UserMetadata: userMetadata}
	_, err := t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		p, err := snap.Protocol.With(deltalog.RowTracking)
		if err != nil || p == snap.Protocol && !snap.Props.RowTrackingSuspended {
			return nothing(snap), err
		}
		tx := t.log.Begin(snap)
		if p != snap.Protocol {
			tx.SetProtocol(p)
		}
		if snap.Props.RowTrackingSuspended {
			m := *snap.Metadata
			m.Configuration = maps.Clone(m.Configuration)
			maps.DeleteFunc(m.Configuration, func(k, _ string) bool { return strings.EqualFold(k, "delta.rowTrackingSuspended") })
			tx.SetMetadata(&m)
		}
		return t.finish(ctx, tx, &Staged{}, o, deltalog.CommitOptions{
			Operation: "UPGRADE PROTOCOL", Parameters: map[string]string{"newProtocol": jsonText(p)}, Metrics: map[string]string{},
		})
	})
	for batch := 0; err == nil; batch++ {
		var res Result
		res, err = t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) { return t.backfill(ctx, snap, batch, o) })
		if err == nil && !res.Committed {
			return nil
		}
	}
	return fmt.Errorf("prepare row tracking: %w", err)
}

// backfill adds files that have no row ids again; the commit gives them theirs.
func (t *Table) backfill(ctx context.Context, snap *deltalog.Snapshot, batch int, o WriteOptions) (Result, error) {
	files, err := snap.FileList(ctx)
	if err != nil {
		return Result{}, err
	}
	tx := t.log.Begin(snap)
	s := &Staged{store: t.store}
	for _, a := range files {
		if a.BaseRowID != nil || len(s.Adds) == backfillFiles {
			continue
		}
		again := *a
		again.DataChange = false
		if datafile.ParseStats(a.Stats).NumRecords < 0 {
			l, err := t.Layout(snap)
			if err != nil {
				return Result{}, err
			}
			n, err := datafile.CountRows(ctx, t.store, l, a)
			if err != nil {
				return Result{}, err
			}
			again.Stats = `{"numRecords":` + itoa(n) + `}`
			if a.DeletionVector != nil {
				again.Stats = `{"numRecords":` + itoa(n) + `,"tightBounds":false}`
			}
		}
		tx.ReadFiles(a)
		s.Adds = append(s.Adds, &again)
	}
	if len(s.Adds) == 0 {
		return nothing(snap), nil
	}
	return t.finish(ctx, tx, s, o, deltalog.CommitOptions{
		Operation: "ROW TRACKING BACKFILL", Parameters: map[string]string{"batchId": itoa(int64(batch))}, Metrics: map[string]string{}, NotBlind: true,
	})
}
