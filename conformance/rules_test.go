package conformance_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
)

// goldenTable is a copy of a table of golden/spark.
func goldenTable(t *testing.T, name string) *ours {
	t.Helper()
	dir := testenv.SharedDir(t, "golden", "spark")
	return open(t, filepath.Join(testtable.Unpack(t, filepath.Join(dir, name+".tar.zst")), name))
}

// some appends rows with the columns of ddl only.
func (o *ours) some(ddl string, rows ...string) {
	o.t.Helper()
	in := rowio.Read(ctx, strings.NewReader(strings.Join(rows, "\n")), rowio.JSONL, rowio.ReadOptions{Schema: testtable.Struct(o.t, ddl)})
	if _, err := o.Append(ctx, in, delta.WriteOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// sql runs a statement of Spark in which T is the table.
func (o *ours) sql(e *engines.Engine, text string) []string {
	o.t.Helper()
	return e.SQL(o.t, strings.ReplaceAll(text, "$T", "delta.`"+o.path+"`"), nil)
}

// refusedBy wants Spark to refuse a statement with the condition.
func (o *ours) refusedBy(e *engines.Engine, condition, text string) {
	o.t.Helper()
	_, err := e.Call("sql", map[string]any{"text": strings.ReplaceAll(text, "$T", "delta.`"+o.path+"`"), "tables": map[string]string{}})
	if err == nil || !strings.Contains(err.Error(), condition) {
		o.t.Errorf("%s: got %v, want %s", text, err, condition)
	}
}

// TestRules_Spark: tables whose rows are made and checked by rules, and tables with
// row ids, clustering and variants, made by Spark and by us, written by both in turn:
// each takes up the other's counters and holds the other's rules.
func TestRules_Spark(t *testing.T) {
	spark := engines.Spark(t)
	same := func(t *testing.T, o *ours) {
		t.Helper()
		engines.SameRows(t, spark.Rows(t, o.path), open(t, o.path).rows(-1))
	}
	t.Run("W-425 identity", func(t *testing.T) {
		o := goldenTable(t, "identity")
		o.some("v STRING", `{"v":"ours 1"}`, `{"v":"ours 2"}`)
		o.update("v = 'ours u'", "v = 'u'")
		o.sql(spark, "INSERT INTO $T (v) VALUES ('spark')")
		o.some("v STRING", `{"v":"ours 3"}`)
		same(t, o)
		ids := o.sql(spark, "SELECT id FROM $T")
		alts := o.sql(spark, "SELECT alt FROM $T")
		for _, l := range [][]string{ids, alts} {
			slices.Sort(l)
			if n := len(slices.Compact(slices.Clone(l))); n != len(l) {
				t.Errorf("values given twice: %v", l)
			}
		}
	})
	t.Run("W-423 generated", func(t *testing.T) {
		o := goldenTable(t, "generated")
		o.some("id BIGINT, ts TIMESTAMP, name STRING", `{"id":500,"ts":"2024-03-01T23:59:59.123456Z","name":"éa"}`, `{"id":501}`)
		o.update("ts = TIMESTAMP '2025-01-01 00:00:00Z', name = 'amy'", "id = 500")
		o.sql(spark, "UPDATE $T SET id = id + 1000 WHERE id >= 500") // holds every rule again
		same(t, o)
	})
	t.Run("W-424 defaults", func(t *testing.T) {
		o := goldenTable(t, "defaults")
		o.some("id BIGINT", `{"id":500}`)
		o.sql(spark, "INSERT INTO $T (id) VALUES (501)")
		rows := open(t, o.path).rows(-1)
		var mine []string
		for _, r := range rows {
			if strings.Contains(r, `"id":500,`) || strings.Contains(r, `"id":501,`) {
				mine = append(mine, strings.Replace(strings.Replace(r, `"id":501,`, "", 1), `"id":500,`, "", 1))
			}
		}
		if len(mine) != 2 || mine[0] != mine[1] {
			t.Errorf("the two writers' defaults differ: %v", mine)
		}
		same(t, o)
	})
	t.Run("W-422 W-403 W-405 constraints", func(t *testing.T) {
		o := goldenTable(t, "constraints")
		o.some("id BIGINT, name STRING, qty INT, s STRUCT<x: INT, y: STRING>, c STRING", `{"id":500,"name":"n","qty":1,"s":{"x":1},"c":"é"}`)
		if _, err := o.AddConstraint(ctx, "Not Huge", "qty < 10000 OR qty IS NULL", delta.ConstraintOptions{}); err != nil {
			t.Fatal(err)
		}
		o.refusedBy(spark, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "INSERT INTO $T (id, qty, s) VALUES (501, 20000, named_struct('x', 1, 'y', 'n'))")
		o.sql(spark, "UPDATE $T SET name = 'm' WHERE id >= 500")
		same(t, o)
	})
	t.Run("W-421 invariant_old", func(t *testing.T) {
		o := goldenTable(t, "invariant_old")
		o.some("id BIGINT, qty INT", `{"id":500,"qty":1}`)
		o.refusedBy(spark, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "INSERT INTO $T VALUES (501, -1)")
		o.sql(spark, "UPDATE $T SET qty = qty + 1")
		same(t, o)
	})
	t.Run("W-421 to W-425 a table of ours", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "t")
		tb, err := delta.Create(ctx, at(t, path), delta.CreateOptions{PartitionBy: []string{"y"}, Schema: testtable.Struct(t,
			"id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY -3), d DATE DEFAULT DATE '2024-05-06', y INT GENERATED ALWAYS AS (year(d)), "+
				"s STRING DEFAULT concat('a', 'b') NOT NULL, up STRING GENERATED ALWAYS AS (upper(s)), at TIMESTAMP DEFAULT current_timestamp()")}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tb.AddConstraint(ctx, "recent", "year(d) > 1999 AND s LIKE '%a%'", delta.ConstraintOptions{}); err != nil {
			t.Fatal(err)
		}
		o := open(t, path)
		o.some("d DATE", `{"d":"2020-02-02"}`, `{"d":"2021-02-02"}`)
		o.sql(spark, "INSERT INTO $T (s) VALUES ('xay'), ('zaz')")
		o.refusedBy(spark, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "INSERT INTO $T (s) VALUES ('x')")
		o.refusedBy(spark, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "INSERT INTO $T (s) VALUES (NULL)")
		o = open(t, path)
		o.some("s STRING", `{"s":"ours a"}`)
		o.update("d = DATE '2030-01-01'", "y = 2020")
		o.sql(spark, "UPDATE $T SET s = concat(s, '!') WHERE y = 2030")
		same(t, o)
		if l := o.sql(spark, "SELECT count(DISTINCT id) AS n, count(*) AS m, count(up) AS u FROM $T"); len(l) != 1 || l[0] != `{"n":5,"m":5,"u":5}` {
			t.Errorf("got %v", l)
		}
	})
	for _, name := range []string{"rowtrack", "rowtrack_later"} {
		t.Run("R-801 W-803 "+name, func(t *testing.T) {
			o := goldenTable(t, name)
			ids := func() map[string]bool {
				out := map[string]bool{}
				for _, l := range o.sql(spark, "SELECT id, _metadata.row_id AS r, _metadata.row_commit_version AS v FROM $T") {
					out[l] = true
				}
				return out
			}
			mine := func() map[string]bool {
				s, err := open(t, o.path).Scan(ctx, delta.ScanOptions{Columns: []string{"id"}, RowIDs: true})
				if err != nil {
					t.Fatal(err)
				}
				out := map[string]bool{}
				for b, err := range s.Batches(ctx) {
					if err != nil {
						t.Fatal(err)
					}
					for i := range int(b.NumRows()) {
						out[fmt.Sprintf(`{"id":%s,"r":%s,"v":%s}`, b.Column(0).ValueStr(i), b.Column(1).ValueStr(i), b.Column(2).ValueStr(i))] = true
					}
				}
				return out
			}
			agree := func(what string) {
				t.Helper()
				a, b := ids(), mine()
				for l := range a {
					if !b[l] || len(a) != len(b) {
						t.Errorf("%s: Spark has %s of %d, we have %d rows", what, l, len(a), len(b))
						return
					}
				}
			}
			o.some("id BIGINT, name STRING", `{"id":9001,"name":"a"}`, `{"id":9002,"name":"b"}`)
			o.update("name = 'ours'", "id % 3 = 0")
			o.delete("id = 9001")
			agree("after our update")
			o.sql(spark, "UPDATE $T SET qty = 7 WHERE id % 2 = 0")
			o = open(t, o.path)
			o.update("qty = 8", "id % 5 = 0")
			if _, err := o.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
				t.Fatal(err)
			}
			spark.Optimize(t, o.path)
			agree("after both")
			same(t, o)
		})
	}
	t.Run("W-804 row tracking that we enabled", func(t *testing.T) {
		o := create(t, "id BIGINT, v INT", nil, nil)
		o.some("id BIGINT, v INT", `{"id":1,"v":1}`, `{"id":2,"v":2}`)
		if _, err := o.SetProperties(ctx, map[string]string{"delta.enableRowTracking": "true"}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		o.update("v = 3", "id = 2")
		o.sql(spark, "UPDATE $T SET v = 4 WHERE id = 1")
		got := o.sql(spark, "SELECT id, _metadata.row_id AS r, _metadata.row_commit_version AS v FROM $T ORDER BY id")
		if strings.Join(got, " ") != `{"id":1,"r":0,"v":6} {"id":2,"r":1,"v":5}` {
			t.Errorf("got %v", got)
		}
		same(t, o)
	})
	t.Run("W-823 clustered", func(t *testing.T) {
		o := goldenTable(t, "clustered")
		o.some("id BIGINT, qty INT", `{"id":9001,"qty":1}`)
		o.update("qty = qty + 1", "id < 20")
		if _, err := o.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
			t.Fatal(err)
		}
		spark.Optimize(t, o.path)
		same(t, o)
		path := filepath.Join(t.TempDir(), "t")
		if _, err := delta.Create(ctx, at(t, path), delta.CreateOptions{Schema: testtable.Struct(t, "id BIGINT, k STRING, s STRUCT<x: INT>"), ClusterBy: []string{"k", "s.x"}}, delta.Options{}); err != nil {
			t.Fatal(err)
		}
		o = open(t, path)
		o.some("id BIGINT, k STRING, s STRUCT<x: INT>", `{"id":1,"k":"a","s":{"x":1}}`)
		o.sql(spark, "INSERT INTO $T VALUES (2, 'b', named_struct('x', 2))")
		spark.Optimize(t, o.path)
		// Spark saw the clustering columns: it put its provider's name on what it ordered.
		snap, err := open(t, path).Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		files, err := snap.FileList(ctx)
		if err != nil || len(files) != 1 || files[0].ClusteringProvider == nil || *files[0].ClusteringProvider != "liquid" {
			t.Errorf("files %v %v", files, err)
		}
		same(t, o)
	})
	for _, name := range []string{"variant", "variant_shredded"} {
		t.Run("R-841 "+name, func(t *testing.T) {
			o := goldenTable(t, name)
			o.some("id BIGINT, v VARIANT, s STRUCT<w: VARIANT, x: INT>", `{"id":9001,"v":{"a":"1","b":[1.50,null,{"c":"é"}],"d":12345678901234567890,"e":1e300},"s":{"w":"{\"k\":true}","x":1}}`, `{"id":9002,"v":"null"}`)
			o.update("v = parse_json('[1, 2.5]')", "id % 3 = 0")
			if _, err := o.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
				t.Fatal(err)
			}
			if n := o.sql(spark, "SELECT count(*) AS n FROM $T"); n[0] != fmt.Sprintf(`{"n":%d}`, len(testtable.Read(t, o.Table, delta.ScanOptions{}))) {
				t.Errorf("Spark has %v rows", n)
			}
			one := o.sql(spark, "SELECT to_json(v) AS v, to_json(s.w) AS w FROM $T WHERE id = 9001")
			if len(one) != 1 || !strings.Contains(one[0], `{\"a\":\"1\",\"b\":[1.5,null,{\"c\":\"é\"}],\"d\":12345678901234567890,\"e\":1.0E300}`) || !strings.Contains(one[0], `{\"k\":true}`) {
				t.Errorf("got %v", one)
			}
			o.sql(spark, "UPDATE $T SET v = parse_json('{\"z\": 1}') WHERE id = 9002")
			lines := o.sql(spark, "SELECT id, CAST(v AS STRING) AS v FROM $T WHERE id % 3 = 0")
			for _, l := range lines {
				if !strings.Contains(l, "[1,2.5]") {
					t.Errorf("got %s", l)
				}
			}
			rows := testtable.Read(t, open(t, o.path).Table, delta.ScanOptions{Where: "id = 9002"})
			if len(rows) != 1 || !strings.Contains(rows[0], `"v":"{\"z\":1}"`) {
				t.Errorf("got %v", rows)
			}
		})
	}
	t.Run("W-852 part_materialized", func(t *testing.T) {
		o := goldenTable(t, "part_materialized")
		o.some("id BIGINT, p STRING, d DATE", `{"id":500,"p":"q","d":"2020-01-01"}`)
		o.update("v = 5", "id = 500")
		o.sql(spark, "UPDATE $T SET v = v + 1")
		same(t, o)
	})
	t.Run("W-425 what Spark refuses we refuse", func(t *testing.T) {
		o := goldenTable(t, "identity")
		in := rowio.Read(ctx, strings.NewReader(`{"id":5,"v":"x"}`), rowio.JSONL, rowio.ReadOptions{Schema: testtable.Struct(t, "id BIGINT, v STRING")})
		_, err := o.Append(ctx, in, delta.WriteOptions{})
		var c *delta.ConstraintError
		if !errors.As(err, &c) || c.Code() != "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED" {
			t.Errorf("got %v", err)
		}
		o.refusedBy(spark, "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED", "INSERT INTO $T (id, v) VALUES (5, 'x')")
	})
}
