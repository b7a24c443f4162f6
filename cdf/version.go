package cdf

import (
	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
)

// piece is a file some of whose rows are changes.
type piece struct {
	src    datafile.Source
	layout *datafile.Layout
	// kind is what happened to the rows that the deletion vector of src leaves; ""
	// for a change file, whose rows name their own.
	kind ChangeType
	// pair, if set, makes the piece a change of deletion vector: the rows that only
	// the new one has were deleted, those that only the old one has came back.
	pair *vectors
}

type vectors struct {
	before, after *deltalog.DeletionVectorDescriptor
}

// layoutOf answers how the files of a version lie: its own, or those it removes.
type layoutOf func(removed bool) (*datafile.Layout, error)

// changesOf says which files hold the changes of a commit, in an order that depends
// on the commit alone.
func changesOf(c *deltalog.Commit, layout layoutOf) ([]piece, error) {
	own, err := layout(false)
	if err != nil {
		return nil, err
	}
	if len(c.CDC) > 0 {
		out := make([]piece, len(c.CDC))
		for i, a := range c.CDC {
			out[i] = piece{src: datafile.Source{Path: a.Path, PartitionValues: a.PartitionValues, Size: a.Size}, layout: own}
		}
		return out, nil
	}
	if copiesOnly(c.Info) {
		return nil, nil
	}
	adds := map[string]*deltalog.Add{}
	for _, a := range c.Adds {
		if !a.DataChange {
			continue
		}
		p, err := a.Decoded()
		if err != nil {
			return nil, at(c.Version, err)
		}
		if adds[p] != nil {
			return nil, &Error{ErrorCode: CodeDuplicateFileActions, Version: c.Version, Path: a.Path, Reason: "it is added twice"}
		}
		adds[p] = a
	}
	var out []piece
	paired := map[string]bool{}
	for _, r := range c.Removes {
		if !r.DataChange {
			continue
		}
		p, err := r.Decoded()
		if err != nil {
			return nil, at(c.Version, err)
		}
		if paired[p] {
			return nil, &Error{ErrorCode: CodeDuplicateFileActions, Version: c.Version, Path: r.Path, Reason: "it is removed twice"}
		}
		if a := adds[p]; a != nil {
			paired[p] = true
			if r.DeletionVector.ID() != a.DeletionVector.ID() {
				out = append(out, piece{src: datafile.SourceOf(a), layout: own, pair: &vectors{r.DeletionVector, a.DeletionVector}})
			}
			continue
		}
		l, err := layout(true)
		if err != nil {
			return nil, err
		}
		gone, err := removed(c.Version, r, l)
		if err != nil {
			return nil, err
		}
		out = append(out, gone)
	}
	for _, a := range c.Adds {
		if !a.DataChange {
			continue
		}
		p, err := a.Decoded()
		if err != nil {
			return nil, at(c.Version, err)
		}
		if !paired[p] {
			out = append(out, piece{src: datafile.SourceOf(a), kind: Insert, layout: own})
		}
	}
	return out, nil
}

// copiesOnly is R-906: a MERGE that says it changed no row only copied some.
func copiesOnly(info *deltalog.CommitInfo) bool {
	if info == nil || info.Operation != "MERGE" {
		return false
	}
	for _, m := range []string{"numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"} {
		if info.OperationMetrics[m] != "0" {
			return false
		}
	}
	return true
}

// removed is a file that went away without coming back: the rows that its deletion
// vector left are deleted.
func removed(version int64, r *deltalog.Remove, l *datafile.Layout) (piece, error) {
	if r.PartitionValues == nil && len(l.Partition) > 0 {
		return piece{}, &Error{ErrorCode: CodeRemoveWithoutValues, Version: version, Path: r.Path,
			Reason: "the remove action has no partition values, so its rows cannot be rebuilt"}
	}
	size := int64(-1)
	if r.Size != nil {
		size = *r.Size
	}
	return piece{src: datafile.Source{Path: r.Path, PartitionValues: r.PartitionValues, Size: size, DeletionVector: r.DeletionVector}, kind: Delete, layout: l}, nil
}
