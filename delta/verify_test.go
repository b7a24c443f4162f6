package delta_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
)

const verifyDDL = "id BIGINT, part STRING, v DOUBLE, tags MAP<STRING, INT>"

func verifyTable(t *testing.T, ddl string, rows ...string) *delta.Table {
	t.Helper()
	tb := testtable.New(t, testtable.Spec{DDL: ddl})
	for _, r := range rows {
		if _, err := tb.Append(context.Background(), testtable.Rows(t, ddl, "["+r+"]"), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return tb
}

func verified(t *testing.T, a, b *delta.Table, o delta.VerifyOptions) *delta.VerifyReport {
	t.Helper()
	rows, err := b.RowSet(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Verify(context.Background(), rows, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTable_Verify(t *testing.T) {
	keys := delta.VerifyOptions{Keys: []string{"ID", "part"}}
	a := verifyTable(t, verifyDDL, `{"id":1,"part":"x","v":0.0,"tags":[{"key":"a","value":1},{"key":"b","value":2}]}`, `{"id":2,"part":null,"v":2.5}`)
	same := verifyTable(t, verifyDDL, `{"id":2,"part":null,"v":2.5},{"id":1,"part":"x","v":-0.0,"tags":[{"key":"b","value":2},{"key":"a","value":1}]}`)
	if r := verified(t, a, same, keys); !r.Equal || r.Rows != 2 || r.AgainstRows != 2 || r.Ranges != 0 || len(r.Columns) != 4 {
		t.Errorf("equal tables: %+v", r)
	}
	other := verifyTable(t, verifyDDL, `{"id":1,"part":"x","v":1.0},{"id":3,"part":"y","v":2.5},{"id":4,"part":"z","v":1}`)
	r := verified(t, a, other, delta.VerifyOptions{Keys: keys.Keys, Limit: 1})
	if r.Equal || r.MissingCount != 2 || r.ExtraCount != 1 || r.DifferingCount != 1 || len(r.Missing) != 1 ||
		!slices.Equal(r.Extra, []string{"id=2, part=null"}) || !slices.Equal(r.Differing, []string{"id=1, part=x"}) {
		t.Errorf("%+v", r)
	}
	narrow := verifyTable(t, "id BIGINT, part STRING", `{"id":1,"part":"x"},{"id":2,"part":null}`)
	if r := verified(t, a, narrow, keys); !r.Equal || !slices.Equal(r.Left, []string{"v", "tags"}) {
		t.Errorf("fewer columns: %+v", r)
	}
	rows, err := narrow.RowSet(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []delta.VerifyOptions{{}, {Keys: []string{"v"}}, {Keys: []string{"id"}, Columns: []string{"id", "v"}}, {Keys: []string{"id"}, Columns: []string{"nothing"}}, {Keys: []string{"part"}, Columns: []string{"id"}}} {
		var e *delta.ColumnError
		if _, err := a.Verify(context.Background(), rows, o); !errors.As(err, &e) || e.Code() != "COLUMN_NOT_FOUND" {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestTable_Verify_Random: the report is that of comparing two maps.
func TestTable_Verify_Random(t *testing.T) {
	const ddl = "id BIGINT, v BIGINT"
	rng := rand.New(rand.NewSource(3))
	for range 6 {
		make := func() (map[int]int, *delta.Table) {
			rows := map[int]int{}
			var text []string
			for id := range 40 {
				if rng.Intn(4) > 0 {
					rows[id] = rng.Intn(3)
					text = append(text, fmt.Sprintf(`{"id":%d,"v":%d}`, id, rows[id]))
				}
			}
			return rows, verifyTable(t, ddl, strings.Join(text, ","))
		}
		a, ta := make()
		b, tb := make()
		var missing, extra, differing []string
		for id := range 40 {
			x, in := a[id]
			y, there := b[id]
			name := fmt.Sprintf("id=%d", id)
			switch {
			case in && !there:
				extra = append(extra, name)
			case !in && there:
				missing = append(missing, name)
			case in && x != y:
				differing = append(differing, name)
			}
		}
		r := verified(t, ta, tb, delta.VerifyOptions{Keys: []string{"id"}})
		for i, got := range [][]string{r.Missing, r.Extra, r.Differing} {
			want := [][]string{missing, extra, differing}[i]
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("list %d: %v, want %v", i, got, want)
			}
		}
	}
}
