package merge_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

// TestInto_Rules: rows that a MERGE makes are made and checked like all others.
func TestInto_Rules(t *testing.T) {
	golden := func(t *testing.T, name string) *delta.Table {
		t.Helper()
		dir := testtable.Unpack(t, filepath.Join(testenv.SharedDir(t, "golden", "spark"), name+".tar.zst"))
		store, err := storage.NewLocal(filepath.Join(dir, name), storage.LocalOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		tb, err := delta.Open(ctx, store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return tb
	}
	run := func(t *testing.T, tb *delta.Table, ddl, rows, sql string) error {
		t.Helper()
		_, err := into(t, tb, ddl, testtable.Rows(t, ddl, rows), sql)
		return err
	}
	want := func(t *testing.T, tb *delta.Table, where string, rows ...string) {
		t.Helper()
		if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{Where: where}), rows); d != "" {
			t.Error(d)
		}
	}
	for _, vectors := range []string{"false", "true"} {
		t.Run("B61 W-422 a CHECK constraint, vectors "+vectors, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, v INT", Rows: []string{`{"id":1,"v":1}{"id":2,"v":2}`},
				Properties: map[string]string{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}})
			if _, err := tb.AddConstraint(ctx, "c", "v > 0", delta.ConstraintOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, rows := range []string{`{"id":1,"v":-1}`, `{"id":3,"v":0}`, `{"id":3}`, `{"id":2}`} {
				files := testtable.Files(t, tb.Store())
				var c *delta.ConstraintError
				if err := run(t, tb, "id BIGINT, v INT", rows, upsert); !errors.As(err, &c) || c.Constraint != "c" || c.Code() != delta.CodeCheck {
					t.Errorf("%s: %v", rows, err)
				}
				if !slices.Equal(files, testtable.Files(t, tb.Store())) {
					t.Errorf("%s: files left behind", rows)
				}
			}
			if err := run(t, tb, "id BIGINT, v INT", `{"id":1,"v":5}{"id":3,"v":3}`, upsert); err != nil {
				t.Fatal(err)
			}
			want(t, tb, "", `{"id":1,"v":5}`, `{"id":2,"v":2}`, `{"id":3,"v":3}`)
		})
	}
	t.Run("B61 W-425 identity", func(t *testing.T) {
		tb := golden(t, "identity")
		if err := run(t, tb, "w STRING", `{"w":"m1"}{"w":"m2"}`, "MERGE INTO t USING s ON t.v = s.w WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (v) VALUES (s.w)"); err != nil {
			t.Fatal(err)
		}
		want(t, tb, "v LIKE 'm_'", `{"alt":-33,"id":252,"v":"m1"}`, `{"alt":-35,"id":262,"v":"m2"}`)
		err := run(t, tb, "w STRING", `{"w":"m1"}`, "MERGE INTO t USING s ON t.v = s.w WHEN MATCHED THEN UPDATE SET id = 5")
		var coded interface{ Code() string }
		if !errors.As(err, &coded) || coded.Code() != delta.CodeIdentityUpdate {
			t.Errorf("got %v", err)
		}
	})
	t.Run("B61 W-423 generated", func(t *testing.T) {
		tb := golden(t, "generated")
		if err := run(t, tb, "k BIGINT, n STRING", `{"k":10,"n":"ann"}{"k":500,"n":"bob"}`,
			"MERGE INTO t USING s ON t.id = s.k WHEN MATCHED THEN UPDATE SET name = s.n, id = t.id + 1000 WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.k, s.n)"); err != nil {
			t.Fatal(err)
		}
		want(t, tb, "id IN (500, 1010)", `{"day":"2016-09-22","id":1010,"initial":"a","name":"ann","ts":"2016-09-22T12:00:00.000000Z","twice":2020}`,
			`{"day":null,"id":500,"initial":"b","name":"bob","ts":null,"twice":1000}`)
	})
	t.Run("B61 W-424 defaults", func(t *testing.T) {
		tb := golden(t, "defaults")
		if err := run(t, tb, "k BIGINT", `{"k":500}`, "MERGE INTO t USING s ON t.id = s.k WHEN NOT MATCHED THEN INSERT (id) VALUES (s.k)"); err != nil {
			t.Fatal(err)
		}
		want(t, tb, "id = 500", `{"arr":[1,2],"d":"2002-02-22","id":500,"n":null,"status":"changed","z":9}`)
	})
	t.Run("B61 W-803 row tracking", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, v INT", Rows: []string{`{"id":1,"v":1}{"id":2,"v":2}`}, Properties: map[string]string{"delta.enableRowTracking": "true"}})
		if err := run(t, tb, "id BIGINT, v INT", `{"id":2,"v":5}{"id":3,"v":3}`, upsert); err != nil {
			t.Fatal(err)
		}
		s, err := tb.Scan(ctx, delta.ScanOptions{Columns: []string{"id"}, RowIDs: true})
		if err != nil {
			t.Fatal(err)
		}
		got := testtable.Lines(t, s.Batches(ctx))
		if d := testtable.Diff(got[:2], []string{`{"_row_commit_version":1,"_row_id":0,"id":1}`, `{"_row_commit_version":2,"_row_id":1,"id":2}`}); d != "" {
			t.Error(d)
		}
	})
}
