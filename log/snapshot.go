package deltalog

import (
	"context"
	"iter"
	"sort"
	"time"
)

// Snapshot is the state of a table at one version. It is immutable and safe for
// concurrent use; the files are read from the checkpoint when they are first asked
// for. The embedded TableConfig is the validated protocol, metadata and schema.
type Snapshot struct {
	Version int64
	*TableConfig

	log *Log
	// info and fileTime are of the commit of Version, where its file was read.
	info     *CommitInfo
	fileTime time.Time
	txns     map[string]*Txn
	domains  map[string]*DomainMetadata
	// checksum is the .crc of Version where a listing showed it.
	checksum *logFile

	// tail are the commits after the checkpoint, oldest first; both are the raw
	// material of files and not looked at again once those are loaded.
	tail       []*Commit
	checkpoint *checkpointSource
	// checkpointVersion is that of the newest checkpoint known, -1 for none.
	checkpointVersion int64

	files lazyFiles
}

// newSnapshot reads everything of a segment but the checkpoint's file actions.
func (l *Log) newSnapshot(ctx context.Context, seg *segment) (*Snapshot, error) {
	s := &Snapshot{Version: seg.version, log: l, checkpointVersion: -1, files: newLazyFiles(),
		txns: map[string]*Txn{}, domains: map[string]*DomainMetadata{}}
	var protocol *Protocol
	var metadata *Metadata
	fold := func(a *Actions) {
		if a.Protocol != nil {
			protocol = a.Protocol
		}
		if a.Metadata != nil {
			metadata = a.Metadata
		}
		for _, t := range a.Txns {
			s.txns[t.AppID] = t
		}
		for _, d := range a.Domains {
			s.domains[d.Domain] = d
		}
	}
	if seg.checkpoint != nil {
		src, state, err := l.openCheckpoint(ctx, seg.checkpoint)
		if err != nil {
			return nil, err
		}
		s.checkpoint, s.checkpointVersion = src, seg.checkpoint.version
		fold(state)
	}
	var err error
	if s.tail, err = l.readTail(ctx, seg.tail); err != nil {
		return nil, err
	}
	for _, c := range s.tail {
		fold(&c.Actions)
		s.info, s.fileTime = c.Info, c.FileTime
	}
	s.checksum = seg.checksum
	for name, d := range s.domains {
		if d.Removed {
			delete(s.domains, name)
		}
	}
	s.TableConfig, err = NewTableConfig(protocol, metadata)
	if err != nil {
		if protocol == nil || metadata == nil {
			return nil, err
		}
		return nil, &RefusedError{Version: s.Version, Protocol: protocol, Metadata: metadata, Err: err}
	}
	return s, nil
}

// Log is the log the snapshot was read from.
func (s *Snapshot) Log() *Log { return s.log }

// CheckpointVersion is the version of the checkpoint the snapshot starts from, -1 if none.
func (s *Snapshot) CheckpointVersion() int64 { return s.checkpointVersion }

// TxnVersion is the newest version an application recorded, ok is false if none.
func (s *Snapshot) TxnVersion(appID string) (version int64, ok bool) {
	t, ok := s.txn(appID)
	if !ok {
		return 0, false
	}
	return t.Version, true
}

// txn applies delta.setTransactionRetentionDuration.
func (s *Snapshot) txn(appID string) (*Txn, bool) {
	t, ok := s.txns[appID]
	if !ok {
		return nil, false
	}
	if keep := s.Props.SetTransactionRetention; keep > 0 {
		cutoff := s.log.Now().Add(-keep).UnixMilli()
		if t.LastUpdated == nil || *t.LastUpdated < cutoff {
			return nil, false
		}
	}
	return t, true
}

// Txns lists the live application marks by appId.
func (s *Snapshot) Txns() []*Txn {
	var out []*Txn
	for id := range s.txns {
		if t, ok := s.txn(id); ok {
			out = append(out, t)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].AppID < out[j].AppID })
	return out
}

// Domain is the live metadata of a domain.
func (s *Snapshot) Domain(name string) (*DomainMetadata, bool) {
	d, ok := s.domains[name]
	return d, ok
}

// Domains lists the live domains by name.
func (s *Snapshot) Domains() []*DomainMetadata {
	out := make([]*DomainMetadata, 0, len(s.domains))
	for _, d := range s.domains {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Domain < out[j].Domain })
	return out
}

// Files yields the live files ordered by path and deletion vector.
func (s *Snapshot) Files(ctx context.Context) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		adds, err := s.FileList(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, a := range adds {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// FileList is the live files ordered by path and deletion vector. The caller must
// not change the slice or what it points to.
func (s *Snapshot) FileList(ctx context.Context) ([]*Add, error) {
	st, err := s.state(ctx)
	if err != nil {
		return nil, err
	}
	return st.sorted, nil
}

// File finds the live file of a path as written in the log.
func (s *Snapshot) File(ctx context.Context, path string) (*Add, bool, error) {
	st, err := s.state(ctx)
	if err != nil {
		return nil, false, err
	}
	p, err := canonicalPath(path)
	if err != nil {
		return nil, false, &InvalidError{ErrorCode: "DELTA_INVALID_PATH", Rule: "R-201", Reason: err.Error()}
	}
	i := sort.Search(len(st.sorted), func(i int) bool { return st.keys[i].path >= p })
	if i < len(st.sorted) && st.keys[i].path == p {
		return st.sorted[i], true, nil
	}
	return nil, false, nil
}

// Tombstones are the removed files that are still within
// delta.deletedFileRetentionDuration, in no order.
func (s *Snapshot) Tombstones(ctx context.Context) ([]*Remove, error) {
	st, err := s.state(ctx)
	if err != nil {
		return nil, err
	}
	cutoff := s.log.Now().Add(-s.Props.DeletedFileRetention).UnixMilli()
	var out []*Remove
	for _, r := range st.dead {
		if r.DeletionTimestamp > cutoff {
			out = append(out, r)
		}
	}
	return out, nil
}
