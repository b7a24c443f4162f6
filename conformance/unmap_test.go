package conformance_test

import (
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"
)

// TestOperations_ColumnMappingDropped: the table without its column mapping is read,
// followed and written by the other engines, and Spark's by us; no engine reads a feed
// across the removal.
func TestOperations_ColumnMappingDropped(t *testing.T) {
	spark := engines.Spark(t)
	o := create(t, "id BIGINT, name STRING, s STRUCT<x: INT>, p STRING", []string{"p"}, map[string]string{"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"})
	o.append(`{"id":1,"name":"a","s":{"x":1},"p":"a/b"}`, `{"id":2,"name":"b","s":{"x":2},"p":"a/b"}`, `{"id":3,"name":"c","s":null,"p":null}`)
	o.alter(delta.RenameColumn{Column: "name", To: "title"}, delta.RenameColumn{Column: "s.x", To: "y"})
	o.update("title = upper(title)", "id = 2")
	theirs := copyOf(t, o)
	t.Run("W-303 W-503 ours", func(t *testing.T) {
		r, err := o.DropFeature(ctx, deltalog.ColumnMapping, deltalog.DropFeatureOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// delta-rs does not write under checkpointProtection, which the drop leaves behind.
		engines.SameRows(t, engines.DeltaRS(t).Rows(t, o.path), o.rows(-1))
		spark.Append(t, o.path, `{"id":10,"title":"theirs","s":{"y":5},"p":"q"}`)
		spark.Update(t, o.path, map[string]string{"title": "'u'"}, "id = 1")
		o = open(t, o.path)
		o.same(spark, r.Version-1)
		_, err = spark.Call("changes", map[string]any{"path": o.path, "start": 1, "end": nil})
		if err == nil || !strings.Contains(err.Error(), "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE") {
			t.Errorf("R-911 Spark across the removal: %v", err)
		}
	})
	t.Run("W-303 Spark's", func(t *testing.T) {
		theirs.sql(spark, "ALTER TABLE $T DROP FEATURE columnMapping")
		theirs = open(t, theirs.path)
		engines.SameRows(t, theirs.rows(-1), spark.Rows(t, theirs.path))
		theirs.append(`{"id":10,"title":"ours","s":{"y":5},"p":"q"}`)
		engines.SameRows(t, spark.Rows(t, theirs.path), theirs.rows(-1))
	})
}
