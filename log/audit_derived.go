package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/storage"
)

// checksum holds the .crc of version v against the state.
func (a *auditor) checksum(ctx context.Context, v int64) error {
	a.out.Checksums++
	f := Finding{Code: FsckChecksum, Severity: SevereWarning, File: ChecksumKey(v), Version: v, Repair: "delete the checksum: it says nothing that the commits do not"}
	c, err := a.l.readChecksum(ctx, v)
	if err != nil {
		return a.damage(err, f)
	}
	if c == nil || a.st == nil || a.cfg == nil {
		return nil
	}
	s := &Snapshot{Version: v, TableConfig: a.cfg, log: a.l, domains: a.domains}
	return a.damageIf(s.compareChecksum(c, a.st), f)
}

// damageIf is damage of an error that may be nil.
func (a *auditor) damageIf(err error, f Finding) error {
	if err == nil {
		return nil
	}
	return a.damage(err, f)
}

// partial finds checkpoints that are empty or lack parts.
func (a *auditor) partial(context.Context) error {
	type key struct {
		version int64
		parts   int
	}
	sets := map[key][]logFile{}
	for _, f := range a.files {
		switch {
		case f.kind == multipartCheckpoint:
			k := key{f.version, f.parts}
			sets[k] = append(sets[k], f)
		case f.size == 0 && (f.kind == classicCheckpoint || f.kind == uuidCheckpoint):
			a.find(Finding{Code: FsckCheckpointPart, Severity: SevereWarning, File: f.key, Version: f.version,
				Detail: "the checkpoint is empty: a writer died while it wrote it", Repair: "delete the file"})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(sets), func(a, b key) int { return int(a.version - b.version) }) {
		whole := map[int]bool{}
		for _, f := range sets[k] {
			if f.size > 0 {
				whole[f.part] = true
			}
		}
		if len(whole) == k.parts {
			continue
		}
		for _, f := range sets[k] {
			a.find(Finding{Code: FsckCheckpointPart, Severity: SevereWarning, File: f.key, Version: f.version,
				Detail: fmt.Sprintf("%d of %d parts of the checkpoint are there: a writer died while it wrote it", len(whole), k.parts), Repair: "delete the part"})
		}
	}
	return nil
}

// compactions holds every compaction file against the commits of its range, where
// those are all there.
func (a *auditor) compactions(ctx context.Context) error {
	have := map[int64]bool{}
	for _, f := range commitFiles(a.files, -1, a.out.Latest) {
		have[f.version] = true
	}
	for _, f := range a.files {
		if f.kind != compactedFile {
			continue
		}
		a.out.Compactions++
		whole := f.last <= a.out.Latest && f.last > f.version
		for v := f.version; whole && v <= f.last; v++ {
			whole = have[v]
		}
		if !whole {
			continue
		}
		finding := Finding{Code: FsckCompaction, Severity: SevereWarning, File: f.key, Version: f.last, Repair: "delete the compaction file: the commits are there"}
		want, err := a.l.reconcile(ctx, f.version, f.last)
		if errors.Is(err, ErrCorrupt) {
			continue // the commit is reported
		}
		if err != nil {
			return err
		}
		got, err := a.l.readCommitFile(ctx, f)
		if err == nil {
			err = checkReconciled(f.key, got)
		}
		if err != nil {
			if err := a.damage(err, finding); err != nil {
				return err
			}
			continue
		}
		if d := compactionDifference(want, &got.Actions); d != "" {
			finding.Severity, finding.Detail = SevereError, "the compaction file differs from its commits in "+d+": a reader that uses it sees other rows"
			a.find(finding)
		}
	}
	return nil
}

func compactionDifference(want, got *Actions) string {
	keys := func(x *Actions) map[string]bool {
		out := map[string]bool{}
		for _, add := range x.Adds {
			k, _ := keyOf(add.Path, add.DeletionVector)
			out["file "+k.path+" "+k.dv] = true
		}
		for _, r := range x.Removes {
			k, _ := keyOf(r.Path, r.DeletionVector)
			out["removed file "+k.path+" "+k.dv] = true
		}
		for _, t := range x.Txns {
			out[fmt.Sprintf("transaction mark %s %d", t.AppID, t.Version)] = true
		}
		for _, d := range x.Domains {
			out[fmt.Sprintf("domain %s %v", d.Domain, d.Removed)] = true
		}
		if x.Metadata != nil {
			out["metadata "+x.Metadata.SchemaString] = true
		}
		if x.Protocol != nil {
			out[fmt.Sprint("protocol ", x.Protocol.Features())] = true
		}
		return out
	}
	w, g := keys(want), keys(got)
	var diff []string
	for k := range w {
		if !g[k] {
			diff = append(diff, k)
		}
	}
	for k := range g {
		if !w[k] {
			diff = append(diff, k)
		}
	}
	if diff == nil {
		return ""
	}
	slices.Sort(diff)
	return strings.TrimSpace(diff[0])
}

// hint checks _last_checkpoint, which readers may believe.
func (a *auditor) hint(ctx context.Context) error {
	key := LogDir + hintName
	data, err := a.l.readText(ctx, key, maxHint)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	f := Finding{Code: FsckHint, Severity: SevereWarning, File: key, Version: -1, Repair: "delete it: a listing finds the newest checkpoint"}
	if err != nil {
		return a.damage(err, f)
	}
	h := hint{Version: -1}
	switch err := json.Unmarshal(data, &h); {
	case err != nil || h.Version < 0:
		f.Detail = "the file is no JSON with a version"
	case h.Checksum != "" && a.l.readHint(ctx) < 0:
		f.Detail = "its checksum does not fit its content"
	default:
		f.Version = h.Version
		f.Detail = fmt.Sprintf("it names version %d, of which there is no whole checkpoint", h.Version)
		for _, set := range checkpointsUpTo(a.files, a.out.Latest) {
			if set.version == h.Version && !a.isBad(set) {
				return nil
			}
		}
	}
	a.find(f)
	return nil
}

// newest says so when the newest version cannot be made from what is there.
func (a *auditor) newest(ctx context.Context) error {
	_, err := a.l.Latest(ctx)
	if err == nil {
		return nil
	}
	severity := SevereError
	if errors.Is(err, ErrUnsupported) {
		severity = SevereNote
	}
	return a.damage(err, Finding{Code: FsckNoVersion, Severity: severity, Version: a.out.Latest})
}

func (a *auditor) isBad(set *checkpointSet) bool {
	_, bad := a.bad[set.files[0].key]
	return bad
}

// twice finds files of the newest version that are in the table with several deletion
// vectors: one replaces the other, so a remove is missing.
func (a *auditor) twice(context.Context) error {
	if a.st == nil {
		return nil
	}
	a.st.sort()
	for i, k := range a.st.keys {
		if i > 0 && a.st.keys[i-1].path == k.path {
			a.find(Finding{Code: FsckFileTwice, Severity: SevereError, File: k.path, Version: a.out.Latest,
				Detail: "the file is in the table twice, with two deletion vectors: its rows count double"})
		}
	}
	return nil
}
