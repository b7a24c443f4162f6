package delta_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
)

// TestCreate_LogProperties: properties that change what a commit leaves in the log.
func TestCreate_LogProperties(t *testing.T) {
	t.Run("W-707 W-751 V2 checkpoints and in-commit timestamps", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: map[string]string{
			"delta.checkpointPolicy": "V2", "delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "3"},
			Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`}})
		snap := mustSnapshot(t, tb)
		if !snap.Supports(deltalog.V2Checkpoint) || !snap.InCommitTimestamps() || snap.CheckpointVersion() != 3 {
			t.Errorf("%+v, checkpoint %d", snap.Protocol, snap.CheckpointVersion())
		}
		found := false
		name := regexp.MustCompile(`/0{19}3\.checkpoint\.[0-9a-f-]{36}\.json$`)
		for _, k := range testtable.Files(t, tb.Store()) {
			found = found || name.MatchString(k)
		}
		if !found {
			t.Error("no V2 checkpoint")
		}
		if h, err := tb.History(ctx, 1); err != nil || h[0].Info.InCommitTimestamp == nil {
			t.Errorf("%+v %v", h, err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`)
		if err := snap.VerifyChecksum(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("W-305 W-751 switched on later", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Rows: []string{`{"id":1}`}})
		if _, err := tb.SetProperties(ctx, map[string]string{"delta.enableInCommitTimestamps": "true"}, delta.PropertyOptions{Upgrade: true}); err != nil {
			t.Fatal(err)
		}
		snap := mustSnapshot(t, tb)
		if fmt.Sprint(*snap.Props.ICTEnablementVersion) != "2" {
			t.Errorf("%v", snap.Metadata.Configuration)
		}
	})
}
