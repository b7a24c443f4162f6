package delta

import (
	"context"
	"encoding/json"
	"fmt"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/storage"
)

// lastVacuumKey holds how far the last vacuum went, as Spark writes it.
const lastVacuumKey = deltalog.LogDir + "_last_vacuum_info"

type lastVacuumInfo struct {
	Version *int64 `json:"latestCommitVersionOutsideOfRetentionWindow,omitempty"`
}

// lastVacuum is the newest version whose left-overs a vacuum has deleted, -1 if that is
// not known.
func (t *Table) lastVacuum(ctx context.Context) int64 {
	data, err := storage.ReadAll(ctx, t.store, lastVacuumKey)
	var info lastVacuumInfo
	if err != nil || json.Unmarshal(data, &info) != nil || info.Version == nil || *info.Version < 0 {
		return -1
	}
	return *info.Version
}

// remember records how far this run went, unless an earlier one went as far.
func (v *vacuum) remember(ctx context.Context) error {
	if v.first <= v.t.lastVacuum(ctx) {
		return nil
	}
	data, err := json.Marshal(lastVacuumInfo{&v.first})
	if err != nil {
		return fmt.Errorf("encode %s: %w", lastVacuumKey, err)
	}
	if err := v.t.store.Put(ctx, lastVacuumKey, data); err != nil {
		return fmt.Errorf("write %s: %w", lastVacuumKey, err)
	}
	return nil
}
