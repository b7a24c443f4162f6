package conformance_test

import (
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	deltalog "github.com/sluice-data/sluice/log"
)

// TestLog_OtherEngines: what our log holds beside plain commits is read by Spark, and
// what Spark adds to it by us: in-commit timestamps, row ids, V2 checkpoints with
// sidecars, checksums, compaction files, a dropped feature, a cleaned log.
func TestLog_OtherEngines(t *testing.T) {
	spark := engines.Spark(t)
	const ddl = "id BIGINT, name STRING"
	verified := func(t *testing.T, o *ours) *deltalog.Snapshot {
		t.Helper()
		s, err := open(t, o.path).Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := s.Checksum(ctx)
		if err != nil || sum == nil {
			t.Errorf("R-722 checksum of version %d: %v %v", s.Version, sum, err)
		}
		if err := s.VerifyChecksum(ctx); err != nil {
			t.Errorf("R-722 %v", err)
		}
		return s
	}
	same := func(t *testing.T, o *ours) {
		t.Helper()
		engines.SameRows(t, spark.Rows(t, o.path), open(t, o.path).rows(-1))
	}
	for _, c := range []struct {
		name  string
		props map[string]string
	}{
		{"R-722 W-725 plain", nil},
		{"W-751 in-commit timestamps", map[string]string{"delta.enableInCommitTimestamps": "true"}},
		{"W-801 row tracking", map[string]string{"delta.enableRowTracking": "true"}},
		{"W-707 V2 checkpoints and vectors", map[string]string{"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := create(t, ddl, nil, c.props)
			o.append(`{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`)
			o.append(`{"id":3,"name":"c"}`)
			verified(t, o)
			if _, err := o.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			same(t, o)
			spark.Append(t, o.path, `{"id":4,"name":"d"}`)
			spark.Delete(t, o.path, "id = 2")
			verified(t, o)
			same(t, o)
			o = open(t, o.path)
			o.append(`{"id":5,"name":"e"}`)
			o.delete("id = 1")
			s := verified(t, o)
			if _, err := o.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Log().WriteCompaction(ctx, 1, s.Version); err != nil {
				t.Fatal(err)
			}
			same(t, o)
			spark.Update(t, o.path, map[string]string{"name": "'z'"}, "id = 5")
			same(t, o)
			line, err := verified(t, o).Timeline(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for v := line.First(); v < line.Last(); v++ {
				a, err1 := line.Time(ctx, v)
				b, err2 := line.Time(ctx, v+1)
				if err1 != nil || err2 != nil || !b.After(a) {
					t.Errorf("version %d of %v, the next of %v: %v %v", v, a, b, err1, err2)
				}
			}
		})
	}
	t.Run("W-303 a dropped feature", func(t *testing.T) {
		o := create(t, ddl, nil, map[string]string{"delta.checkpointPolicy": "v2"})
		o.append(`{"id":1,"name":"a"}`)
		s := verified(t, o)
		if _, err := s.Log().DropFeature(ctx, deltalog.V2Checkpoint, deltalog.DropFeatureOptions{}); err != nil {
			t.Fatal(err)
		}
		same(t, o)
		spark.Append(t, o.path, `{"id":2,"name":"b"}`)
		open(t, o.path).append(`{"id":3,"name":"c"}`)
		same(t, o)
	})
}
