package merge_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
)

func into(t *testing.T, tb *delta.Table, ddl string, rows iter.Seq2[arrow.RecordBatch, error], sql string) (merge.Result, error) {
	t.Helper()
	s, err := merge.Parse(sql)
	if err != nil {
		t.Fatal(err)
	}
	return merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, ddl), Rows: rows}, s, merge.IntoOptions{})
}

// liar answers the first Create of a commit, which it applies, with an error.
type liar struct {
	storage.Store
	answer error
	lies   int
}

func (s *liar) Create(ctx context.Context, key string, data []byte) error {
	err := s.Store.Create(ctx, key, data)
	if err == nil && s.lies > 0 && strings.HasPrefix(key, deltalog.LogDir) {
		s.lies--
		return &storage.Error{Op: "create", Root: s.URL(), Key: key, Class: s.answer}
	}
	return err
}

const upsert = "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

// TestInto_FieldReports are public bug reports about MERGE.
func TestInto_FieldReports(t *testing.T) {
	const ddl = "id BIGINT, v STRING"
	for _, answer := range []error{storage.ErrAmbiguous, storage.ErrExists} {
		t.Run(fmt.Sprintf("B13 the merge landed, the answer says %v", answer), func(t *testing.T) {
			store := &liar{Store: storage.NewMemory("t"), answer: answer}
			tb := testtable.New(t, testtable.Spec{DDL: ddl, Store: store, Rows: []string{`{"id":1,"v":"a"}`}})
			store.lies = 1
			res, err := into(t, tb, ddl, testtable.Rows(t, ddl, `{"id":1,"v":"b"}{"id":2,"v":"c"}`), upsert)
			if err != nil || res.Version != 2 || !res.Committed {
				t.Fatalf("%+v, %v", res, err)
			}
			if got := lines(t, tb); got != `{"id":1,"v":"b"}`+"\n"+`{"id":2,"v":"c"}` {
				t.Errorf("%s", got)
			}
			if snap, err := tb.Snapshot(ctx); err != nil || snap.Version != 2 {
				t.Errorf("version %d, %v", snap.Version, err)
			}
		})
	}
	for _, vectors := range []string{"false", "true"} {
		t.Run("B53 every row that is not matched stays, vectors "+vectors, func(t *testing.T) {
			files, each, updates, inserts := 20, 500, 300, 500
			if os.Getenv("SLUICE_LONG") != "" {
				files, each, updates, inserts = 20, 75_000, 5_000, 50_000
			}
			spec := testtable.Spec{DDL: ddl, Properties: map[string]string{"delta.enableDeletionVectors": vectors}}
			for f := range files {
				spec.Rows = append(spec.Rows, testtable.Numbers(f*each, (f+1)*each, `,"v":"old %"`))
			}
			tb := testtable.New(t, spec)
			n := files * each
			for round, source := range []string{ddl, ddl + ", extra INT"} {
				var rows strings.Builder
				for i := range updates {
					fmt.Fprintf(&rows, `{"id":%d,"v":"new %d"}`, i*(n/updates), round)
				}
				for i := range inserts {
					fmt.Fprintf(&rows, `{"id":%d,"v":"added %d"}`, n+round*inserts+i, round)
				}
				sql := upsert
				if round == 1 {
					sql = strings.Replace(upsert, "MERGE INTO", "MERGE WITH SCHEMA EVOLUTION INTO", 1)
				}
				res, err := into(t, tb, source, testtable.Rows(t, source, rows.String()), sql)
				if err != nil {
					t.Fatal(err)
				}
				if res.MatchedUpdated != int64(updates) || res.Metrics.RowsInserted != int64(inserts) {
					t.Errorf("round %d: %+v", round, res)
				}
				count := func(where string) int64 {
					s, err := tb.Scan(ctx, delta.ScanOptions{Where: where})
					if err != nil {
						t.Fatal(err)
					}
					c, err := s.Count(ctx)
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				if got, want := count(""), int64(n+(round+1)*inserts); got != want {
					t.Errorf("round %d: %d rows, want %d", round, got, want)
				}
				if got, want := count(fmt.Sprintf("id < %d AND v = concat('old ', CAST(id AS STRING))", n)), int64(n-updates); got != want {
					t.Errorf("round %d: %d rows as they were, want %d", round, got, want)
				}
			}
		})
	}
	t.Run("B56 a source that differs when it is read twice", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{`{"id":1,"v":"a"}{"id":2,"v":"b"}`}})
		runs := 0
		source := func(yield func(arrow.RecordBatch, error) bool) {
			runs++
			rows := `{"id":1,"v":"x"}`
			if runs > 1 {
				rows += `{"id":2,"v":"only in the second run"}`
			}
			testtable.Rows(t, ddl, rows)(yield)
		}
		if _, err := into(t, tb, ddl, source, upsert); err != nil {
			t.Fatal(err)
		}
		if got := lines(t, tb); runs != 1 || got != `{"id":1,"v":"x"}`+"\n"+`{"id":2,"v":"b"}` {
			t.Errorf("%d runs, %s", runs, got)
		}
	})
	t.Run("B51 a dot in the name of the key", func(t *testing.T) {
		const ddl = "`a.b` BIGINT, `é` STRING, a STRUCT<b: BIGINT>"
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{`{"a.b":1,"é":"x","a":{"b":2}}{"a.b":2,"é":"y","a":{"b":1}}`}})
		_, err := into(t, tb, ddl, testtable.Rows(t, ddl, `{"a.b":1,"é":"new","a":{"b":2}}`), "MERGE INTO t USING s ON t.`a.b` = s.`a.b` WHEN MATCHED THEN UPDATE SET `é` = s.`é` WHEN NOT MATCHED THEN INSERT *")
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(t, tb); !strings.Contains(got, `{"a":{"b":2},"a.b":1,"é":"new"}`) || !strings.Contains(got, `{"a":{"b":1},"a.b":2,"é":"y"}`) {
			t.Errorf("%s", got)
		}
	})
}
