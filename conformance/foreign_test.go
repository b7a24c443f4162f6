package conformance_test

import (
	"path/filepath"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/log/schema"
)

// TestForeign_Types: tables of every type, written by the others (Spark with INT96
// timestamps, on request with column mapping), are read value by value, changed by
// us, and read by all again.
func TestForeign_Types(t *testing.T) {
	s, err := schema.ParseDDL(wideDDL)
	if err != nil {
		t.Fatal(err)
	}
	delta, spark := engines.DeltaRS(t), engines.Spark(t)
	for _, c := range []struct {
		name    string
		writer  *engines.Engine
		props   map[string]string
		rows    []string
		deltaRS int64 // first version of the feed that delta-rs reads right, -1: none
	}{
		{"delta-rs", delta, map[string]string{"delta.enableChangeDataFeed": "true"}, wideRows, 0},
		// wideRows[3] has a timestamp that delta-rs wraps when it is INT96 (TestEngine_FarTimestamps).
		{"Spark", spark, map[string]string{"delta.enableChangeDataFeed": "true"}, wideRows[:3], 0},
		{"Spark with column mapping", spark, map[string]string{"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}, wideRows[:3], -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t")
			c.writer.Create(t, path, s.JSON(), engines.CreateOptions{Properties: c.props})
			c.writer.Append(t, path, c.rows...)
			o := open(t, path)
			engines.SameRows(t, o.rows(-1), c.rows)
			c.writer.Update(t, path, map[string]string{"i": "5"}, "id = 3")
			c.writer.Checkpoint(t, path)
			o = open(t, path) // by their checkpoint
			o.append(c.rows[:2]...)
			o.update("t = 'ours', st = NULL", "id = 3")
			o.delete("id = 2")
			o.checkpoint()
			c.writer.Append(t, path, c.rows[1]) // by ours
			o = open(t, path)
			for _, e := range engines.All(t) {
				t.Run(e.Name(), func(t *testing.T) {
					engines.SameRows(t, e.Rows(t, path), o.rows(-1))
					if e.Name() == "delta-rs" && c.deltaRS < 0 {
						t.Skip("rows compared; no feed: " + mappingFeed)
					}
					engines.SameRows(t, e.Changes(t, path, 0, o.version()), o.changes(0, o.version()))
				})
			}
		})
	}
}
