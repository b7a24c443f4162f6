package merge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
)

const pairDDL = "id BIGINT, v INT, p INT"

func mergeOp(t *testing.T, tb *delta.Table, sql, rows string, level deltalog.IsolationLevel) error {
	s, err := merge.Parse(sql)
	if err != nil {
		return err
	}
	_, err = merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, pairDDL), Rows: testtable.Rows(t, pairDDL, rows)}, s, merge.IntoOptions{Isolation: level})
	return err
}

// TestInto_Pairs: the pairs of operations of 3.4 on tables that are rewritten, the winner
// faster by one commit: a conflict, or both as if one had run after the other.
func TestInto_Pairs(t *testing.T) {
	upsert := "MERGE INTO t USING s ON t.id = s.id AND t.p = %d WHEN MATCHED THEN UPDATE SET v = s.v"
	type op func(tb *delta.Table, p int, level deltalog.IsolationLevel) error
	losers := []struct {
		name string
		run  op
	}{
		{"DELETE", func(tb *delta.Table, p int, level deltalog.IsolationLevel) error {
			_, err := tb.Delete(ctx, fmt.Sprintf("p = %d AND v < 15", p), delta.DMLOptions{Isolation: level})
			return err
		}},
		{"UPDATE", func(tb *delta.Table, p int, level deltalog.IsolationLevel) error {
			_, err := tb.Update(ctx, "v = v + 1", fmt.Sprintf("p = %d AND v < 15", p), delta.DMLOptions{Isolation: level})
			return err
		}},
		{"MERGE", func(tb *delta.Table, p int, level deltalog.IsolationLevel) error {
			return mergeOp(t, tb, fmt.Sprintf(upsert, p), fmt.Sprintf(`{"id":%d,"v":7}`, 10*p+1), level)
		}},
		{"insert-only MERGE", func(tb *delta.Table, p int, level deltalog.IsolationLevel) error {
			return mergeOp(t, tb, "MERGE INTO t USING s ON t.id = s.id AND t.p = s.p WHEN NOT MATCHED THEN INSERT *", fmt.Sprintf(`{"id":77,"v":7,"p":%d}`, p), level)
		}},
	}
	winners := []struct {
		name string
		run  op
	}{
		{"blind append", func(tb *delta.Table, p int, _ deltalog.IsolationLevel) error {
			_, err := tb.Append(ctx, testtable.Rows(t, pairDDL, fmt.Sprintf(`{"id":50,"v":1,"p":%d}`, p)), delta.WriteOptions{})
			return err
		}},
		{"DELETE", func(tb *delta.Table, p int, _ deltalog.IsolationLevel) error {
			_, err := tb.Delete(ctx, fmt.Sprintf("id = %d", 10*p+2), delta.DMLOptions{})
			return err
		}},
		{"MERGE", func(tb *delta.Table, p int, _ deltalog.IsolationLevel) error {
			return mergeOp(t, tb, fmt.Sprintf(upsert, p), fmt.Sprintf(`{"id":%d,"v":70}`, 10*p+2), "")
		}},
		{"overwrite", func(tb *delta.Table, p int, _ deltalog.IsolationLevel) error {
			_, err := tb.Overwrite(ctx, testtable.Rows(t, pairDDL, fmt.Sprintf(`{"id":60,"v":1,"p":%d}`, p)), delta.OverwriteOptions{Dynamic: true})
			return err
		}},
		{"OPTIMIZE", func(tb *delta.Table, p int, _ deltalog.IsolationLevel) error {
			_, err := tb.Optimize(ctx, delta.OptimizeOptions{Where: fmt.Sprintf("p = %d", p)})
			return err
		}},
	}
	for _, l := range losers {
		for _, w := range winners {
			for _, disjoint := range []bool{false, true} {
				for _, level := range []deltalog.IsolationLevel{deltalog.Serializable, deltalog.WriteSerializable} {
					want := !disjoint && (level == deltalog.Serializable || w.name != "blind append")
					t.Run(fmt.Sprintf("3.4 %s after %s, disjoint %v, %s", l.name, w.name, disjoint, level), func(t *testing.T) {
						s := &overtaken{Store: storage.NewMemory("t")}
						testtable.New(t, testtable.Spec{DDL: pairDDL, Store: s.Store, Partition: []string{"p"},
							Rows: []string{`{"id":11,"v":1,"p":1}{"id":12,"v":2,"p":1}{"id":21,"v":1,"p":2}{"id":22,"v":2,"p":2}`, `{"id":13,"v":20,"p":1}{"id":23,"v":20,"p":2}`}})
						tb, err := delta.Open(ctx, s, delta.Options{Attempts: 1, Sleep: func(context.Context, time.Duration) error { return nil }})
						if err != nil {
							t.Fatal(err)
						}
						s.winner = func() {
							other, err := delta.Open(ctx, s.Store, delta.Options{})
							p := 1
							if disjoint {
								p = 2
							}
							if err == nil {
								err = w.run(other, p, "")
							}
							if err != nil {
								t.Error(err)
							}
						}
						err = l.run(tb, 1, level)
						var c *deltalog.ConflictError
						if (err != nil) != want || err != nil && !errors.As(err, &c) {
							t.Fatalf("got %v, want a conflict: %v", err, want)
						}
						if c == nil {
							return
						}
						switch c.Kind {
						case deltalog.ConcurrentAppend, deltalog.ConcurrentDeleteRead, deltalog.ConcurrentDeleteDelete:
						default:
							t.Errorf("kind %v", c.Kind)
						}
						if w.name == "blind append" && c.Kind != deltalog.ConcurrentAppend {
							t.Errorf("C-23: kind %v", c.Kind)
						}
					})
				}
			}
		}
	}
}
