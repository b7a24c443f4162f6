package deltalog

import (
	"context"
	"fmt"
	"maps"
)

// Update is the newest snapshot, made from s by reading only what came after it; s
// itself when nothing did.
func (l *Log) Update(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	return l.update(ctx, s, latest)
}

// update makes the snapshot of version to (or of the newest) from an older one.
func (l *Log) update(ctx context.Context, s *Snapshot, to int64) (*Snapshot, error) {
	known := to
	if to == latest {
		known = -1
	}
	files, err := l.list(ctx, s.Version+1, s.Version+1, known)
	if err != nil {
		return nil, err
	}
	commits := commitFiles(files, s.Version, to)
	if len(commits) == 0 && newestVersion(files) < 0 && (to == latest || to == s.Version) {
		return s, nil
	}
	next := s.Version + 1
	for _, f := range commits {
		if f.version != next {
			break
		}
		next++
	}
	if int(next-s.Version-1) != len(commits) || len(commits) == 0 || to != latest && next != to+1 {
		// The log was cleaned or damaged behind s: start anew and let load say what is wrong.
		return l.load(ctx, to)
	}
	var read []*Commit
	for _, f := range commits {
		c, err := l.readCommitFile(ctx, f)
		if err != nil {
			return nil, err
		}
		read = append(read, c)
	}
	out, err := s.advance(read)
	if err != nil {
		return nil, err
	}
	for _, set := range checkpointsUpTo(files, out.Version) {
		out.checkpointVersion = max(out.checkpointVersion, set.version)
	}
	return out, nil
}

// advance is s after the given commits, which follow it without a hole.
func (s *Snapshot) advance(commits []*Commit) (*Snapshot, error) {
	if len(commits) == 0 {
		return s, nil
	}
	out := &Snapshot{
		TableConfig: s.TableConfig, log: s.log, txns: maps.Clone(s.txns), domains: maps.Clone(s.domains),
		checkpoint: s.checkpoint, checkpointVersion: s.checkpointVersion, files: newLazyFiles(),
	}
	protocol, metadata := s.Protocol, s.Metadata
	for _, c := range commits {
		if c.Protocol != nil {
			protocol = c.Protocol
		}
		if c.Metadata != nil {
			metadata = c.Metadata
		}
		for _, t := range c.Txns {
			out.txns[t.AppID] = t
		}
		for _, d := range c.Domains {
			if out.domains[d.Domain] = d; d.Removed {
				delete(out.domains, d.Domain)
			}
		}
		out.Version, out.info, out.fileTime = c.Version, c.Info, c.FileTime
	}
	if protocol != s.Protocol || metadata != s.Metadata {
		cfg, err := NewTableConfig(protocol, metadata)
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", out.Version, err)
		}
		out.TableConfig = cfg
	}
	if st := s.loaded(); st != nil {
		st = st.clone()
		for _, c := range commits {
			if err := st.fold(c); err != nil {
				return nil, err
			}
		}
		out.files.state = st
		return out, nil
	}
	out.tail = append(s.tail[:len(s.tail):len(s.tail)], commits...)
	return out, nil
}

// loaded is the file state if some call needed it already, else nil.
func (s *Snapshot) loaded() *fileState {
	select {
	case s.files.sem <- struct{}{}:
		defer func() { <-s.files.sem }()
		return s.files.state
	default:
		return nil
	}
}
