package conformance_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/merge"
)

func (o *ours) merge(s *ours, sql string) error {
	o.t.Helper()
	st, err := merge.Parse(sql)
	if err != nil {
		return err
	}
	scan, err := s.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	_, err = merge.Into(ctx, o.Table, merge.Source{Schema: scan.Schema(), Rows: scan.Batches(ctx)}, st, merge.IntoOptions{})
	return err
}

// copyOf is the table once more, under another path.
func copyOf(t *testing.T, o *ours) *ours {
	t.Helper()
	dir := t.TempDir() + "/a copy"
	if err := os.CopyFS(dir, os.DirFS(o.path)); err != nil {
		t.Fatal(err)
	}
	return open(t, dir)
}

// TestConformance_Vectors: tables with deletion vectors of ours, as the others read and
// follow them, and as Spark goes on with them.
func TestConformance_Vectors(t *testing.T) {
	for _, c := range []struct {
		name      string
		partition []string
		props     map[string]string
		inline    int
	}{
		{"W-653 stored", nil, nil, 0},
		{"W-654 inline", nil, nil, 1000},
		{"R-651 W-653 random prefix, partitioned", []string{"p"}, map[string]string{"delta.randomizeFilePrefixes": "true"}, 0},
		{"column mapping, checkpoints", nil, map[string]string{"delta.columnMapping.mode": "name", "delta.checkpointInterval": "2"}, 0},
	} {
		if long := os.Getenv("SLUICE_LONG") != ""; !long && (c.inline > 0 || c.props["delta.columnMapping.mode"] != "") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			props := map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
			for k, v := range c.props {
				props[k] = v
			}
			o := create(t, "id BIGINT, v STRING, p STRING", c.partition, props)
			again := func() {
				tb, err := delta.Open(ctx, at(t, o.path), delta.Options{InlineVectorBytes: c.inline})
				if err != nil {
					t.Fatal(err)
				}
				o = &ours{t, o.path, tb}
			}
			again()
			var rows []string
			for i := range 40 {
				rows = append(rows, fmt.Sprintf(`{"id":%d,"v":"v%d","p":"%d"}`, i, i, i%3))
			}
			o.append(rows[:25]...)
			o.append(rows[25:]...)
			o.delete("id % 10 = 3")
			o.update("v = upper(v)", "id BETWEEN 5 AND 9 OR id = 30")
			o.update("p = '0', v = NULL", "id IN (1, 2, 31)")
			o.delete("id < 2 OR id > 38")
			s := create(t, "id BIGINT, v STRING", nil, nil)
			s.append(`{"id":4,"v":"merged"}`, `{"id":10,"v":null}`, `{"id":100,"v":"new"}`)
			if err := o.merge(s, "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v) WHEN NOT MATCHED BY SOURCE AND t.id = 20 THEN DELETE"); err != nil {
				t.Fatal(err)
			}
			spark := engines.Spark(t)
			o.same(spark, 0)
			if e := engines.DeltaRS(t); c.props["delta.columnMapping.mode"] == "" {
				// It gives rows of its own for removed files with vectors in the feed.
				engines.SameRows(t, e.Rows(t, o.path), o.rows(-1))
			}
			// Spark's vectors take ours in, and ours take Spark's.
			spark.Delete(t, o.path, "id IN (11, 26)")
			spark.Update(t, o.path, map[string]string{"v": "'spark'"}, "id = 12")
			again()
			o.delete("id IN (14, 27)")
			o.update("v = concat(v, '!')", "id <= 12 AND v = 'spark'")
			o.same(spark, 0)
			spark.Optimize(t, o.path)
			again()
			engines.SameRows(t, spark.Rows(t, o.path), o.rows(-1))
		})
	}
}

// TestConformance_MergeSpark: the same statements run by Spark and by us on copies of one
// table leave the same rows and the same change rows, or are refused by both.
func TestConformance_MergeSpark(t *testing.T) {
	spark := engines.Spark(t)
	s := create(t, "id BIGINT, v INT, op STRING, p STRING", nil, nil)
	s.append(`{"id":1,"v":11,"op":"U","p":"a"}`, `{"id":2,"v":null,"op":"D","p":"b"}`, `{"id":3,"v":33,"op":null,"p":null}`, `{"id":5,"v":55,"op":"U","p":"c"}`,
		`{"id":9,"v":99,"op":"I","p":"a"}`, `{"id":9,"v":98,"op":"I","p":"b"}`, `{"id":10,"v":1,"op":"D","p":"z"}`, `{"id":null,"v":0,"op":"N","p":null}`, `{"id":7,"v":1,"op":"U","p":"q"}`, `{"id":7,"v":2,"op":"X","p":"q"}`)
	statements := []string{
		"ON t.id = s.id AND s.id <> 7 WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
		"ON t.id = s.id AND s.id <> 7 WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED AND s.op = 'U' THEN UPDATE SET v = s.v + t.v, p = s.p WHEN NOT MATCHED AND s.op = 'I' THEN INSERT (id, op) VALUES (s.id, lower(s.op))",
		"ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
		"ON t.id = s.id WHEN MATCHED THEN DELETE",
		// Of two source rows of one new key Spark inserts one beside such a delete.
		"ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.v <> 98 THEN INSERT *",
		"ON t.id = s.id WHEN MATCHED AND s.op = 'U' THEN UPDATE SET v = s.v",
		"ON t.id = s.id WHEN MATCHED AND s.op = 'U' THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
		"ON t.id <=> s.id AND s.id IS NULL WHEN MATCHED THEN UPDATE SET op = 'null key' WHEN NOT MATCHED AND s.id = 10 THEN INSERT *",
		"ON t.id = s.id AND s.v > 10 WHEN NOT MATCHED THEN INSERT *",
		"ON t.id = s.id AND s.id < 4 WHEN NOT MATCHED BY SOURCE AND t.v > 40 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET op = 'alone', v = t.v - 1",
		"ON t.id = s.id AND t.p = 'a' AND s.id <> 7 WHEN MATCHED THEN UPDATE SET p = 'moved' WHEN NOT MATCHED BY SOURCE AND p = 'b' THEN DELETE",
		"ON t.v < s.v AND s.id = 5 AND t.id < 4 WHEN MATCHED THEN UPDATE SET v = t.v * 10 + s.v",
		"ON FALSE WHEN NOT MATCHED AND s.id = 1 THEN INSERT (id, v) VALUES (s.id + 1000, -s.v)",
		// Whether Spark finds the several matches of id 7 here depends on the files that it skips.
		"ON t.id = s.id AND s.id <> 7 WHEN MATCHED AND t.v IS NULL THEN UPDATE SET *",
		"ON t.id = s.id AND s.id = 3 WHEN MATCHED THEN UPDATE SET v = t.v",
	}
	for _, c := range []struct {
		name      string
		partition []string
		vectors   string
	}{{"rewritten", nil, "false"}, {"partitioned, deletion vectors", []string{"p"}, "true"}} {
		base := create(t, "id BIGINT, v INT, op STRING, p STRING", c.partition, map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": c.vectors})
		base.append(`{"id":1,"v":10,"op":"x","p":"a"}`, `{"id":2,"v":20,"op":"x","p":"b"}`, `{"id":3,"v":30,"op":"x","p":null}`, `{"id":4,"v":40,"op":null,"p":"a"}`, `{"id":null,"v":50,"op":"n","p":"b"}`)
		base.append(`{"id":5,"v":null,"op":"x","p":"a"}`, `{"id":6,"v":60,"op":"x","p":"c"}`, `{"id":7,"v":70,"op":"x","p":"b"}`, `{"id":8,"v":80,"op":"x","p":"a"}`)
		for i, sql := range statements {
			if c.vectors == "false" && i%4 != 1 && os.Getenv("SLUICE_LONG") == "" {
				continue
			}
			t.Run(c.name+" "+sql, func(t *testing.T) {
				mine, theirs := copyOf(t, base), copyOf(t, base)
				full := "MERGE INTO delta.`" + theirs.path + "` AS t USING delta.`" + s.path + "` AS s " + sql
				_, theirErr := spark.Call("sql", map[string]any{"text": full, "tables": map[string]string{}})
				myErr := mine.merge(s, full)
				if (theirErr == nil) != (myErr == nil) {
					t.Fatalf("Spark: %v\nsluice: %v", theirErr, myErr)
				}
				if myErr != nil {
					if !strings.Contains(theirErr.Error(), "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE") {
						t.Errorf("Spark refuses for another reason: %v", theirErr)
					}
					return
				}
				theirs = open(t, theirs.path)
				engines.SameRows(t, mine.rows(-1), theirs.rows(-1))
				if mine.version() != theirs.version() {
					t.Skipf("one of the two had nothing to commit: versions %d and %d", mine.version(), theirs.version())
				}
				v := mine.version()
				engines.SameRows(t, mine.changes(v, v), theirs.changes(v, v))
				engines.SameRows(t, spark.Rows(t, mine.path), mine.rows(-1))
				engines.SameRows(t, spark.Changes(t, mine.path, v, v), mine.changes(v, v))
			})
		}
	}
}
