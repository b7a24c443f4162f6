package delta_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
)

// TestTable_Metamorphic: what must hold between operations whatever the rows are, on
// rewritten and vectored, partitioned and mapped tables, one after the other on top of
// older vectors: DELETE p leaves the rows that a filter on NOT (p IS TRUE) gives; an
// UPDATE is a DELETE and an INSERT of its new rows; DELETE p and DELETE q commute.
func TestTable_Metamorphic(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		vectors, parts, mapped := seed%2 == 0, r.IntN(2) == 0, r.IntN(3) == 0
		t.Run(fmt.Sprintf("seed %d, vectors %v, partitioned %v, mapped %v", seed, vectors, parts, mapped), func(t *testing.T) {
			spec := testtable.Spec{DDL: modelDDL, Properties: map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": fmt.Sprint(vectors)}}
			if parts {
				spec.Partition = []string{"p"}
			}
			if mapped {
				spec.Properties["delta.columnMapping.mode"] = "name"
			}
			m := &modelTable{t: t, r: r}
			for range 3 {
				var b strings.Builder
				for _, row := range m.draw(4+r.IntN(20), nil) {
					b.WriteString(row.json())
				}
				spec.Rows = append(spec.Rows, b.String())
			}
			one, three := testtable.New(t, spec), testtable.New(t, spec)
			for range 4 {
				fresh := spec
				fresh.Rows = []string{strings.Join(testtable.Read(t, one, delta.ScanOptions{}), "")}
				two := testtable.New(t, fresh)
				p, q := drawCondition(r).text, drawCondition(r).text
				if p == "" || q == "" {
					p, q = "k > 3", "p = 1"
				}
				// DELETE is a filter.
				want := testtable.Read(t, one, delta.ScanOptions{Where: fmt.Sprintf("NOT coalesce(%s, FALSE)", p)})
				dml(t, func() (delta.Result, error) { return one.Delete(ctx, p, delta.DMLOptions{}) })
				if d := testtable.Diff(testtable.Read(t, one, delta.ScanOptions{}), want); d != "" {
					t.Fatalf("DELETE %s: %s", p, d)
				}
				// DELETEs commute.
				dml(t, func() (delta.Result, error) { return one.Delete(ctx, q, delta.DMLOptions{}) })
				dml(t, func() (delta.Result, error) { return two.Delete(ctx, q, delta.DMLOptions{}) })
				dml(t, func() (delta.Result, error) { return two.Delete(ctx, p, delta.DMLOptions{}) })
				if d := testtable.Diff(testtable.Read(t, two, delta.ScanOptions{}), testtable.Read(t, one, delta.ScanOptions{})); d != "" {
					t.Fatalf("DELETE %s and DELETE %s: %s", p, q, d)
				}
				gone := testtable.Read(t, three, delta.ScanOptions{Where: fmt.Sprintf("coalesce(%s, FALSE) OR coalesce(%s, FALSE)", p, q)})
				dml(t, func() (delta.Result, error) {
					return three.Delete(ctx, fmt.Sprintf("(%s) OR (%s)", p, q), delta.DMLOptions{})
				})
				if d := testtable.Diff(testtable.Read(t, three, delta.ScanOptions{}), testtable.Read(t, one, delta.ScanOptions{})); d != "" {
					t.Fatalf("DELETE %s OR %s: %s", p, q, d)
				}
				if len(gone) > 0 {
					for _, tb := range []*delta.Table{one, two, three} {
						dml(t, func() (delta.Result, error) {
							return tb.Append(ctx, testtable.Rows(t, modelDDL, strings.Join(gone, "")), delta.WriteOptions{})
						})
					}
				}
				// UPDATE is DELETE and INSERT of the new rows.
				next := testtable.Read(t, one, delta.ScanOptions{Where: q})
				dml(t, func() (delta.Result, error) { return one.Update(ctx, "id = id + 1000", q, delta.DMLOptions{}) })
				dml(t, func() (delta.Result, error) { return two.Delete(ctx, q, delta.DMLOptions{}) })
				if len(next) > 0 {
					dml(t, func() (delta.Result, error) {
						return two.Append(ctx, testtable.Rows(t, modelDDL, strings.Join(next, "")), delta.WriteOptions{})
					})
				}
				dml(t, func() (delta.Result, error) { return three.Update(ctx, "id = id + 1000", q, delta.DMLOptions{}) })
				shifted := testtable.Read(t, one, delta.ScanOptions{Columns: []string{"k", "p"}})
				if d := testtable.Diff(testtable.Read(t, two, delta.ScanOptions{Columns: []string{"k", "p"}}), shifted); d != "" {
					t.Fatalf("UPDATE %s: %s", q, d)
				}
				if d := testtable.Diff(testtable.Read(t, three, delta.ScanOptions{}), testtable.Read(t, one, delta.ScanOptions{})); d != "" {
					t.Fatalf("UPDATE %s twice: %s", q, d)
				}
			}
			for _, tb := range []*delta.Table{one, three} {
				sumOfFeed(t, tb)
				if left := orphans(t, tb); len(left) > 0 {
					t.Errorf("left behind %v", left)
				}
			}
		})
	}
}
