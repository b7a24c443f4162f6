package delta_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// operation is one change of a table.
type operation func(*delta.Table) (delta.Result, error)

func updateOp(set, where string) operation {
	return func(tb *delta.Table) (delta.Result, error) { return tb.Update(ctx, set, where, delta.DMLOptions{}) }
}

func deleteOp(where string) operation {
	return func(tb *delta.Table) (delta.Result, error) { return tb.Delete(ctx, where, delta.DMLOptions{}) }
}

func appendOp(t *testing.T, ddl, rows string) operation {
	return func(tb *delta.Table) (delta.Result, error) {
		return tb.Append(ctx, testtable.Rows(t, ddl, rows), delta.WriteOptions{})
	}
}

// overtake runs the winners, one after the other, at the moment when the loser is
// about to commit what it decided on the version before them.
func overtake(t *testing.T, s storage.Store, o delta.Options, loser operation, winners ...operation) (delta.Result, error) {
	t.Helper()
	next := 0
	hooked := hookStore{Store: s, before: func(key string) {
		if next < len(winners) && strings.HasPrefix(key, "_delta_log/") && strings.HasSuffix(key, ".json") {
			w := winners[next]
			next++
			other, err := delta.Open(ctx, s, delta.Options{})
			if err == nil {
				_, err = w(other)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}}
	o.Sleep = func(context.Context, time.Duration) error { return nil }
	tb, err := delta.Open(ctx, &hooked, o)
	if err != nil {
		t.Fatal(err)
	}
	res, err := loser(tb)
	if next < len(winners) {
		t.Errorf("%d of %d winners ran", next, len(winners))
	}
	return res, err
}

// TestTable_RowLevel: section 3.5, one interleaving at a time. Attempts tells whether the
// decision stood or was made again.
func TestTable_RowLevel(t *testing.T) {
	const ddl = "id BIGINT, v INT"
	for _, c := range []struct {
		name    string
		loser   operation
		winners []operation
		stands  bool
		want    string // of id=v, in order
	}{
		{"two deletes of other rows of one file", deleteOp("id = 1"), []operation{deleteOp("id = 2")}, true, "0=0 3=30 4=40 5=50 6=60 7=70"},
		{"an update after a delete", updateOp("v = v + 1", "id = 1"), []operation{deleteOp("id = 2")}, true, "0=0 1=11 3=30 4=40 5=50 6=60 7=70"},
		{"an update after an update, whose new row does not match", updateOp("v = v + 1", "id = 1"), []operation{updateOp("v = 0", "id = 2")}, true, "0=0 1=11 2=0 3=30 4=40 5=50 6=60 7=70"},
		{"an update after an update, whose new row matches", updateOp("v = v + 1", "v <= 10"), []operation{updateOp("v = 5", "id = 2")}, false, "0=1 1=11 2=6 3=30 4=40 5=50 6=60 7=70"},
		{"two updates of one row", updateOp("v = v + 1", "id = 1"), []operation{updateOp("v = 100", "id = 1")}, false, "0=0 1=101 2=20 3=30 4=40 5=50 6=60 7=70"},
		{"a delete of a row that is gone", deleteOp("id <= 1"), []operation{deleteOp("id = 1")}, false, "2=20 3=30 4=40 5=50 6=60 7=70"},
		{"an append of rows that do not match", deleteOp("v < 20"), []operation{appendOp(t, ddl, `{"id":9,"v":90}`)}, true, "2=20 3=30 4=40 5=50 6=60 7=70 9=90"},
		{"an append of a row that matches", deleteOp("v < 20"), []operation{appendOp(t, ddl, `{"id":9,"v":9}`)}, false, "2=20 3=30 4=40 5=50 6=60 7=70"},
		{"three winners, one after each try", deleteOp("id = 1"), []operation{deleteOp("id = 2"), updateOp("v = 1", "id = 5"), deleteOp("id = 3")}, true, "0=0 4=40 5=1 6=60 7=70"},
		{"winners that take the rest of the file", deleteOp("id = 1"), []operation{deleteOp("id IN (0, 2)"), deleteOp("id = 3")}, true, "4=40 5=50 6=60 7=70"},
		{"a winner that deletes what a winner added", updateOp("v = 1", "id = 1"), []operation{appendOp(t, ddl, `{"id":1,"v":2}`)}, false, "0=0 1=1 1=1 2=20 3=30 4=40 5=50 6=60 7=70"},
		{"a winner that rewrites the file", deleteOp("id = 1"), []operation{func(tb *delta.Table) (delta.Result, error) {
			r, err := tb.Optimize(ctx, delta.OptimizeOptions{})
			return r.Result, err
		}}, false, "0=0 2=20 3=30 4=40 5=50 6=60 7=70"},
		{"the whole file goes", deleteOp("id < 4"), []operation{deleteOp("id = 2")}, false, "4=40 5=50 6=60 7=70"},
		{"the whole table goes", deleteOp(""), []operation{deleteOp("id = 2")}, false, ""},
		{"another file is touched", deleteOp("id = 1"), []operation{deleteOp("id = 6")}, true, "0=0 2=20 3=30 4=40 5=50 7=70"},
		{"replaceWhere", func(tb *delta.Table) (delta.Result, error) {
			return tb.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":1,"v":1}{"id":1,"v":2}`), delta.OverwriteOptions{Where: "id = 1"})
		}, []operation{deleteOp("id = 2")}, true, "0=0 1=1 1=2 3=30 4=40 5=50 6=60 7=70"},
	} {
		for _, feed := range []bool{true, false} {
			t.Run(fmt.Sprintf("C-35 3.5 %s, feed %v", c.name, feed), func(t *testing.T) {
				s := storage.NewMemory("c")
				testtable.New(t, testtable.Spec{DDL: ddl, Store: s, Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": fmt.Sprint(feed)},
					Rows: []string{`{"id":0,"v":0}{"id":1,"v":10}{"id":2,"v":20}{"id":3,"v":30}`, `{"id":4,"v":40}{"id":5,"v":50}{"id":6,"v":60}{"id":7,"v":70}`}})
				res, err := overtake(t, s, delta.Options{}, c.loser, c.winners...)
				if err != nil {
					t.Fatal(err)
				}
				if (res.Attempts == 1) != c.stands {
					t.Errorf("decided %d times", res.Attempts)
				}
				tb, err := delta.Open(ctx, s, delta.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got := pairsOf(t, tb); got != c.want {
					t.Errorf("rows %s, want %s", got, c.want)
				}
				if left := orphans(t, tb); len(left) > 0 {
					t.Errorf("left behind %v", left)
				}
				if feed {
					sumOfFeed(t, tb)
				}
			})
		}
	}
	t.Run("off by option, and without deletion vectors", func(t *testing.T) {
		for _, vectors := range []bool{true, false} {
			s := storage.NewMemory("c")
			testtable.New(t, testtable.Spec{DDL: ddl, Store: s, Properties: map[string]string{"delta.enableDeletionVectors": fmt.Sprint(vectors)}, Rows: []string{tenRows}})
			res, err := overtake(t, s, delta.Options{FileLevelConflicts: vectors}, deleteOp("id = 1"), deleteOp("id = 2"))
			if err != nil || res.Attempts != 2 {
				t.Errorf("decided %d times, %v", res.Attempts, err)
			}
		}
	})
	t.Run("C-24 a conflict that is left has its rule", func(t *testing.T) {
		s := storage.NewMemory("c")
		testtable.New(t, testtable.Spec{DDL: ddl, Store: s, Properties: map[string]string{"delta.enableDeletionVectors": "true"}, Rows: []string{tenRows}})
		_, err := overtake(t, s, delta.Options{Attempts: 1}, deleteOp("id = 1"), deleteOp("id <= 1"))
		var c *deltalog.ConflictError
		if !errors.As(err, &c) || c.Kind != deltalog.ConcurrentDeleteDelete {
			t.Errorf("got %v", err)
		}
	})
}

// pairsOf is the rows of the table as id=v.
func pairsOf(t *testing.T, tb *delta.Table) string {
	var out []string
	for _, line := range testtable.Read(t, tb, delta.ScanOptions{}) {
		line = strings.NewReplacer(`{"id":`, "", `,"v":`, "=", "}", "").Replace(line)
		out = append(out, line)
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

// sumOfFeed adds the change feed of all versions up and compares it with the rows.
func sumOfFeed(t *testing.T, tb *delta.Table) {
	t.Helper()
	net := map[string]int{}
	for v := int64(1); v <= mustSnapshot(t, tb).Version; v++ {
		for _, c := range feedAt(t, tb, v) {
			kind, row, _ := strings.Cut(c, " ")
			if kind == "insert" || kind == "update_postimage" {
				net[row]++
			} else {
				net[row]--
			}
		}
	}
	var got []string
	for row, n := range net {
		if n < 0 {
			t.Errorf("feed: %s is taken away %d times too often", row, -n)
		}
		for range n {
			got = append(got, row)
		}
	}
	sort.Strings(got)
	if d := testtable.Diff(got, testtable.Read(t, tb, delta.ScanOptions{})); d != "" {
		t.Errorf("R-912: feed: %s", d)
	}
}

// TestTable_RowLevelSerial: any two random operations that overlap end as if one had
// run after the other.
func TestTable_RowLevelSerial(t *testing.T) {
	const ddl = "id BIGINT, v INT"
	stood := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 11))
		n := r.IntN(9)
		rows := testtable.Numbers(0, 8, fmt.Sprintf(`,"v":%d`, n))
		spec := testtable.Spec{DDL: ddl, Rows: []string{rows, testtable.Numbers(8, 14, `,"v":%`)}, Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}}
		draw := func() (string, operation) {
			a, b := r.IntN(14), r.IntN(5)
			conds := []string{fmt.Sprintf("id = %d", a), fmt.Sprintf("id %% 5 = %d", b), fmt.Sprintf("v < %d", a), fmt.Sprintf("id BETWEEN %d AND %d", a, a+b), fmt.Sprintf("v = %d OR id = %d", b+8, a)}
			where := conds[r.IntN(len(conds))]
			switch r.IntN(5) {
			case 0:
				text := fmt.Sprintf(`{"id":%d,"v":%d}`, 20+a, b)
				return "append " + text, appendOp(t, ddl, text)
			case 1, 2:
				return "delete " + where, deleteOp(where)
			default:
				set := []string{"v = v + 1", fmt.Sprintf("v = %d", a), "id = id + 100"}[r.IntN(3)]
				return "update " + set + " where " + where, updateOp(set, where)
			}
		}
		loserText, loser := draw()
		winnerText, winner := draw()
		serial := func(ops ...operation) string {
			tb := testtable.New(t, spec)
			for _, op := range ops {
				if _, err := op(tb); err != nil {
					t.Fatal(err)
				}
			}
			return pairsOf(t, tb)
		}
		s := storage.NewMemory("c")
		both := spec
		both.Store = s
		base := testtable.New(t, both)
		before := mustSnapshot(t, base).Version
		// A loser that has nothing to do makes no commit to be overtaken.
		probe := testtable.New(t, spec)
		if res, err := loser(probe); err != nil || !res.Committed {
			continue
		}
		res, err := overtake(t, s, delta.Options{}, loser, winner)
		if err != nil {
			t.Fatalf("seed %d: %s after %s: %v", seed, loserText, winnerText, err)
		}
		tb, err := delta.Open(ctx, s, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := pairsOf(t, tb)
		if a, b := serial(winner, loser), serial(loser, winner); got != a && got != b {
			t.Fatalf("C-43 seed %d: %s overtaken by %s\ngot   %s\nafter %s\nbefore %s", seed, loserText, winnerText, got, a, b)
		}
		if mustSnapshot(t, tb).Version == before+2 && res.Attempts == 1 {
			stood++
		}
		sumOfFeed(t, tb)
		if left := orphans(t, tb); len(left) > 0 {
			t.Errorf("seed %d: left behind %v", seed, left)
		}
	}
	if stood < 30 {
		t.Errorf("only %d decisions stood", stood)
	}
	t.Logf("%d decisions stood", stood)
}

// TestTable_RowLevelWriters: many writers on other rows of one file; nothing is lost.
func TestTable_RowLevelWriters(t *testing.T) {
	const ddl, writers, rounds = "id BIGINT, v INT", 6, 6
	s := storage.NewMemory("c")
	testtable.New(t, testtable.Spec{DDL: ddl, Store: s, Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
		Rows: []string{testtable.Numbers(0, 200, `,"v":0`)}})
	fast := delta.Options{Sleep: func(ctx context.Context, d time.Duration) error { time.Sleep(d / 20); return ctx.Err() }, Attempts: 500}
	var wg sync.WaitGroup
	errs := make(chan error, writers*rounds)
	for w := range writers {
		wg.Go(func() {
			tb, err := delta.Open(ctx, s, fast)
			if err != nil {
				errs <- err
				return
			}
			for r := range rounds {
				if r%3 == 2 {
					_, err = tb.Delete(ctx, fmt.Sprintf("id = %d", 100+w*10+r), delta.DMLOptions{})
				} else {
					_, err = tb.Update(ctx, "v = v + 1", fmt.Sprintf("id = %d", w), delta.DMLOptions{})
				}
				if err != nil {
					errs <- fmt.Errorf("writer %d: %w", w, err)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	tb, err := delta.Open(ctx, s, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		wantRows(t, tb, delta.ScanOptions{Where: fmt.Sprintf("id = %d", w)}, fmt.Sprintf(`{"id":%d,"v":4}`, w))
	}
	if n := countRows(t, tb); n != 200-writers*2 {
		t.Errorf("%d rows", n)
	}
	sumOfFeed(t, tb)
	if left := orphans(t, tb); len(left) > 0 {
		t.Errorf("left behind %v", left)
	}
}
