package deltalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Row ids (1.13): while a table supports row tracking and has not suspended it, every
// new add gets the next free range of ids, and the version it was committed in. What
// is assigned belongs to one attempt: after a lost race it is assigned anew above the
// winner's high water mark (C-21, C-36).

const (
	rowTrackingDomain = "delta.rowTracking"
	highWaterMarkKey  = "rowIdHighWaterMark"
	preservedTag      = "delta.rowTracking.preserved"
	backfillOperation = "ROW TRACKING BACKFILL"
)

// AssignsRowIDs is true when new adds get row ids: the feature is supported and not
// suspended (W-801).
func (c *TableConfig) AssignsRowIDs() bool {
	return c.Supports(RowTracking) && !c.Props.RowTrackingSuspended
}

// RowTracking is true when row ids are enabled, so that every file has them and
// rewrites should keep them (W-803).
func (c *TableConfig) RowTracking() bool {
	return c.Props.RowTracking && c.Supports(RowTracking)
}

// MaterializedRowIDColumns are the hidden physical columns that hold the row ids and
// row commit versions of rewritten rows; ok is false unless both are named.
func (c *TableConfig) MaterializedRowIDColumns() (rowID, commitVersion string, ok bool) {
	rowID, ok1 := c.property("rowTracking.materializedRowIdColumnName")
	commitVersion, ok2 := c.property("rowTracking.materializedRowCommitVersionColumnName")
	return rowID, commitVersion, ok1 && ok2 && rowID != "" && commitVersion != ""
}

// RowIDHighWaterMark is the largest row id given out, -1 for none.
func (s *Snapshot) RowIDHighWaterMark() (int64, error) {
	d, ok := s.Domain(rowTrackingDomain)
	if !ok {
		return -1, nil
	}
	return parseHighWaterMark(d)
}

func parseHighWaterMark(d *DomainMetadata) (int64, error) {
	if d.Removed {
		return -1, nil
	}
	var m map[string]json.RawMessage
	err := json.Unmarshal([]byte(d.Configuration), &m)
	if err == nil && !isSet(m[highWaterMarkKey]) {
		return -1, nil
	}
	var n int64
	if err == nil {
		err = json.Unmarshal(m[highWaterMarkKey], &n)
	}
	if err != nil || n < -1 {
		return 0, &CorruptError{ErrorCode: codeCorrupt, Reason: fmt.Sprintf("domain %s: %q has no usable %s", rowTrackingDomain, d.Configuration, highWaterMarkKey), Cause: err}
	}
	return n, nil
}

// highWaterMarkDomain is the domain with a new mark; other keys of the old one stay.
func highWaterMarkDomain(old *DomainMetadata, mark int64) *DomainMetadata {
	m := map[string]json.RawMessage{}
	if old != nil && !old.Removed {
		// What does not parse was refused when the mark was read.
		_ = json.Unmarshal([]byte(old.Configuration), &m)
	}
	m[highWaterMarkKey] = json.RawMessage(strconv.FormatInt(mark, 10))
	// A map of raw JSON always encodes.
	text, _ := marshal(m)
	return &DomainMetadata{Domain: rowTrackingDomain, Configuration: string(text)}
}

// assignRowIDs gives the adds of final that have none their row ids and commit
// version, and moves the high water mark in the same commit (W-801, W-802). The
// caller's adds are not changed.
func (c *committer) assignRowIDs(final *Actions) error {
	if !c.after.AssignsRowIDs() {
		return nil
	}
	mark := int64(-1)
	var base *DomainMetadata
	for _, d := range append([]*DomainMetadata{c.rowDomain}, final.Domains...) {
		if d == nil || d.Domain != rowTrackingDomain {
			continue
		}
		m, err := parseHighWaterMark(d)
		if err != nil {
			return err
		}
		// A staged mark (clone, restore) only ever raises the table's.
		mark, base = max(mark, m), d
	}
	start := mark
	adds := slices.Clone(final.Adds)
	for i, a := range adds {
		fresh := a.BaseRowID == nil
		if !fresh && a.DefaultRowCommitVersion != nil && *a.BaseRowID <= mark {
			continue
		}
		b := *a
		n := int64(0)
		if fresh || *a.BaseRowID > mark {
			var err error
			if n, err = numRecords(a); err != nil {
				return err
			}
		}
		if fresh {
			if n > 0 && mark > (1<<63-1)-n {
				return invalid("DELTA_ROW_ID_OVERFLOW", "W-801", "add %s: row ids are used up", a.Path)
			}
			id := mark + 1
			b.BaseRowID, mark = &id, mark+n
		} else if n > 0 {
			mark = max(mark, *a.BaseRowID+n-1)
		}
		if b.DefaultRowCommitVersion == nil {
			v := c.version
			b.DefaultRowCommitVersion = &v
		}
		adds[i] = &b
	}
	final.Adds = adds
	if mark == start && !slices.ContainsFunc(final.Domains, func(d *DomainMetadata) bool { return d.Domain == rowTrackingDomain }) {
		return nil
	}
	domains := slices.DeleteFunc(slices.Clone(final.Domains), func(d *DomainMetadata) bool { return d.Domain == rowTrackingDomain })
	final.Domains = append(domains, highWaterMarkDomain(base, mark))
	return nil
}

// numRecords is the number of physical rows by the statistics of an add.
func numRecords(a *Add) (int64, error) {
	var s struct {
		NumRecords *int64 `json:"numRecords"`
	}
	if a.Stats != "" && json.Unmarshal([]byte(a.Stats), &s) != nil || s.NumRecords == nil || *s.NumRecords < 0 {
		return 0, invalid("DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS", "W-801", "add %s: row ids need numRecords in its statistics", a.Path)
	}
	return *s.NumRecords, nil
}

// tagPreserved says in commitInfo.tags whether the commit kept the ids of all rows
// that it moved (W-803), unless the caller said so itself: without knowing the rows
// only a commit that copies nothing is sure to.
func (c *committer) tagPreserved() {
	if !c.after.RowTracking() {
		return
	}
	if _, said := c.opts.Tags[preservedTag]; said {
		return
	}
	tags := map[string]string{preservedTag: strconv.FormatBool(!copiesRows(&c.t.actions))}
	for k, v := range c.info.Tags {
		tags[k] = v
	}
	c.info.Tags = tags
}

// copiesRows: files go away while others come that are not the same files again.
func copiesRows(a *Actions) bool {
	removed := map[string]bool{}
	for _, r := range a.Removes {
		if p, err := canonicalPath(r.Path); err == nil {
			removed[p] = true
		}
	}
	for _, f := range a.Adds {
		p, err := canonicalPath(f.Path)
		if err != nil || len(removed) > 0 && !removed[p] {
			return true
		}
	}
	return false
}

// isBackfill: the winner only gave row ids to files that lacked them (C-34).
func isBackfill(w *Commit) bool {
	if w.Info == nil || !strings.EqualFold(w.Info.Operation, backfillOperation) || len(w.Removes) > 0 || len(w.CDC) > 0 || w.Metadata != nil {
		return false
	}
	return !slices.ContainsFunc(w.Adds, func(a *Add) bool { return a.DataChange || a.BaseRowID == nil })
}

// takeBackfill carries the row ids that a backfill gave to files into our actions on
// the same files (C-34).
func takeBackfill(a *Actions, w *Commit) {
	given := map[fileKey]*Add{}
	for _, f := range w.Adds {
		if k, err := keyOf(f.Path, nil); err == nil {
			given[k] = f
		}
	}
	for i, r := range a.Removes {
		k, err := keyOf(r.Path, nil)
		if f := given[k]; err == nil && f != nil && r.BaseRowID == nil {
			g := *r
			g.BaseRowID, g.DefaultRowCommitVersion = f.BaseRowID, f.DefaultRowCommitVersion
			a.Removes[i] = &g
		}
	}
	for i, x := range a.Adds {
		// Only files that are the same file again.
		if k, err := keyOf(x.Path, nil); err == nil && given[k] != nil && x.BaseRowID == nil {
			g := *x
			g.BaseRowID, g.DefaultRowCommitVersion = given[k].BaseRowID, given[k].DefaultRowCommitVersion
			a.Adds[i] = &g
		}
	}
}
