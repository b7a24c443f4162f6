package deltalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluice-data/sluice/storage"
)

// V2 checkpoints (W-707): a JSON file with a name of its own holds everything but the
// file actions and names the sidecars that hold those, so that two writers of one
// version never meet and a checkpoint is never half there.

const (
	sidecarDir = LogDir + "_sidecars/"
	// sidecarActions is how many file actions a sidecar has at most, as in Spark.
	sidecarActions = 50_000
)

// writesV2Checkpoints: the policy counts only with its feature.
func (c *TableConfig) writesV2Checkpoints() bool {
	return c.Props.CheckpointPolicy == "v2" && c.Supports(V2Checkpoint)
}

// writeV2Checkpoint writes sidecars, then the top level. The hint is nil when a
// checkpoint of the version is there already.
func (l *Log) writeV2Checkpoint(ctx context.Context, s *Snapshot, adds []*Add, removes []*Remove) (_ *hint, err error) {
	files, err := l.listOnce(ctx, s.Version)
	if err != nil {
		return nil, err
	}
	if sets := checkpointsUpTo(files, s.Version); len(sets) > 0 {
		// Listed from s.Version on, so it is one of that version.
		return nil, nil
	}
	perFile := l.opts.SidecarActions
	if perFile <= 0 {
		perFile = sidecarActions
	}
	parts := (len(adds) + len(removes) + perFile - 1) / perFile
	var sidecars []sidecar
	defer func() {
		if err == nil {
			return
		}
		// Nothing names them; should a delete fail, log clean-up finds them later.
		for _, c := range sidecars {
			_ = l.store.Delete(context.WithoutCancel(ctx), sidecarDir+c.Path)
		}
	}()
	h := &hint{Version: s.Version, Size: int64(len(adds) + len(removes)), NumOfAddFiles: int64(len(adds))}
	for part := 1; part <= parts; part++ {
		r := removes[:min(perFile, len(removes))]
		a := adds[:min(perFile-len(r), len(adds))]
		removes, adds = removes[len(r):], adds[len(a):]
		c, err := l.writeSidecar(ctx, s, part, parts, a, r)
		if err != nil {
			return nil, err
		}
		sidecars = append(sidecars, c)
		h.SizeInBytes += c.SizeInBytes
	}
	top, lines, err := v2TopLevel(s, sidecars)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%s%020d.checkpoint.%s.json", LogDir, s.Version, l.NewID())
	if err := l.store.Create(ctx, key, top); err != nil {
		if errors.Is(err, storage.ErrAmbiguous) {
			// It may be there, and then its sidecars must be too.
			sidecars = nil
		}
		return nil, fmt.Errorf("create %s: %w", key, err)
	}
	h.Size += lines
	h.SizeInBytes += int64(len(top))
	return h, nil
}

func (l *Log) writeSidecar(ctx context.Context, s *Snapshot, part, parts int, adds []*Add, removes []*Remove) (sidecar, error) {
	w, err := newCheckpointWriter(s, true)
	if err != nil {
		return sidecar{}, err
	}
	name := fmt.Sprintf("%020d.checkpoint.%010d.%010d.%s.parquet", s.Version, part, parts, l.NewID())
	key := sidecarDir + name
	out, err := l.store.NewWriter(ctx, key)
	if err != nil {
		return sidecar{}, fmt.Errorf("create %s: %w", key, err)
	}
	defer out.Abort()
	size, err := w.write(ctx, out, nil, adds, removes)
	if err != nil {
		return sidecar{}, fmt.Errorf("write %s: %w", key, err)
	}
	if err := out.Close(); err != nil {
		return sidecar{}, fmt.Errorf("close %s: %w", key, err)
	}
	return sidecar{Path: name, SizeInBytes: size, ModificationTime: l.Now().UnixMilli()}, nil
}

// v2TopLevel is the JSON file of a V2 checkpoint and its number of lines.
func v2TopLevel(s *Snapshot, sidecars []sidecar) ([]byte, int64, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	var err error
	lines := int64(0)
	put := func(key string, v any) {
		if err == nil {
			err = enc.Encode(map[string]any{key: v})
			lines++
		}
	}
	put("checkpointMetadata", map[string]any{"version": s.Version})
	put("protocol", s.Protocol)
	put("metaData", s.Metadata)
	for _, t := range s.Txns() {
		put("txn", t)
	}
	for _, d := range s.Domains() {
		put("domainMetadata", d)
	}
	for _, c := range sidecars {
		put("sidecar", c)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("encode checkpoint of version %d: %w", s.Version, err)
	}
	return b.Bytes(), lines, nil
}

// checkpointAllowed is W-308: below delta.requireCheckpointProtectionBeforeVersion the
// log holds versions of other protocols, and a checkpoint there is made only by
// somebody who supports every one of them. We make none. The property is that of the
// newest version: s may be older.
func (l *Log) checkpointAllowed(ctx context.Context, s *Snapshot) error {
	now, err := l.Update(ctx, s)
	if err != nil {
		return err
	}
	before := now.Props.RequireCheckpointBefore
	if now.Supports(CheckpointProtection) && s.Version < before {
		return invalid("DELTA_CHECKPOINT_PROTECTED", "W-308",
			"version %d is before version %d (delta.requireCheckpointProtectionBeforeVersion), where no new checkpoint may be made", s.Version, before)
	}
	return nil
}
