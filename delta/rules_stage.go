package delta

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
)

// newRows reports whether the edits make rows that rules must be applied to.
func (e Edits) newRows() bool {
	return e.inserts() || slices.ContainsFunc(e.Files, func(f FileEdit) bool { return len(f.Update) > 0 })
}

func unsupportedIdentity(c *deltalog.TableConfig) error {
	return &deltalog.UnsupportedError{ErrorCode: "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", Op: deltalog.OpWrite,
		Features: []string{string(deltalog.IdentityColumns)}, Reason: "this operation does not hand out identity values",
		MinReaderVersion: c.Protocol.MinReaderVersion, MinWriterVersion: c.Protocol.MinWriterVersion}
}

// newRows makes inserted rows as the table wants them, hidden columns included. This
// and changedRows are the only ways of rows into [Table.Stage].
func (s *stager) newRows(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	n := len(s.l.Schema.Fields)
	if int(b.NumCols()) < n {
		rows, err := s.rules.Make(b)
		if err != nil {
			return nil, err
		}
		defer rows.Release()
		return s.complete(rows)
	}
	full, err := s.complete(b)
	if err != nil {
		return nil, err
	}
	defer full.Release()
	return s.rules.placed(full, s.o.Recompute)
}

// needsBefore: updated rows are made or checked with the help of the old ones.
func (s *stager) needsBefore() bool { return s.moves || s.rules != nil && s.rules.identities() }

// changedRows makes updated rows as the table wants them; before may be nil unless
// needsBefore.
func (s *stager) changedRows(before, after arrow.RecordBatch) (arrow.RecordBatch, error) {
	full, err := s.complete(after)
	if err != nil {
		return nil, err
	}
	defer full.Release()
	if s.o.Recompute {
		again, err := s.rules.Regenerate(full, nil)
		if err != nil {
			return nil, err
		}
		defer again.Release()
		full = again
	}
	if !s.moves {
		return s.rules.changed(before, full)
	}
	rows, err := s.rules.changed(before, full)
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	return s.keepRowIDs(before, rows), nil
}

// keepRowIDs gives new forms of rows the row ids of the old ones; their commit
// version is that of the commit to come, which null stands for (W-803).
func (s *stager) keepRowIDs(before, after arrow.RecordBatch) arrow.RecordBatch {
	cols := slices.Clone(after.Columns())
	n := len(cols)
	null := datafile.NullArray(arrow.PrimitiveTypes.Int64, int(after.NumRows()))
	defer null.Release()
	cols[n-2], cols[n-1] = before.Column(n-2), null
	return array.NewRecordBatch(after.Schema(), cols, after.NumRows())
}

// placed checks new rows that have every column in its place. Identity columns are
// given where they are not null.
func (r *Rules) placed(rows arrow.RecordBatch, recompute bool) (arrow.RecordBatch, error) {
	cols := slices.Clone(rows.Columns())
	n := int(rows.NumRows())
	given := make([]bool, len(r.columns))
	for i, c := range r.columns {
		given[i] = !recompute || c.generated == nil
		if c.identity == nil {
			continue
		}
		a, ok := cols[i].(*array.Int64)
		if ok && !c.identity.explicit && a.NullN() < a.Len() {
			return nil, &ConstraintError{ErrorCode: CodeIdentityGiven, Column: r.schema.Fields[i].Name, Row: -1,
				Reason: "values cannot be given for a GENERATED ALWAYS AS IDENTITY column"}
		}
		if ok && a.NullN() > 0 {
			v, err := r.allot(i, n, a)
			if err != nil {
				return nil, err
			}
			cols[i] = v
		}
	}
	return r.finish(rows.Schema(), cols, n, given)
}
