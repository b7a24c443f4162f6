package merge_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/merge"
)

// mrow is a row of either side: nil is null.
type mrow struct{ k, v, p *int }

func (r mrow) json() string {
	return fmt.Sprintf(`{"k":%s,"v":%s,"p":%s}`, num(r.k), num(r.v), num(r.p))
}

func num(v *int) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

const mddl = "k INT, v INT, p INT"

func drawRows(rt *rapid.T, name string, most int) []mrow {
	value := func(what string, n int) *int {
		x := rapid.IntRange(-1, n).Draw(rt, what)
		if x < 0 {
			return nil
		}
		return &x
	}
	out := make([]mrow, rapid.IntRange(0, most).Draw(rt, name))
	for i := range out {
		out[i] = mrow{value("k", 7), value("v", 4), value("p", 2)}
	}
	return out
}

// tri is a truth value: nil is NULL.
type tri *bool

func yes(b bool) tri { return &b }

func isTrue(t tri) bool { return t != nil && *t }

// condition is a text over t and s beside its meaning.
type condition struct {
	text string
	eval func(t, s mrow) tri
}

func cmp(a, b *int, f func(a, b int) bool) tri {
	if a == nil || b == nil {
		return nil
	}
	return yes(f(*a, *b))
}

func and(a, b tri) tri {
	switch {
	case a != nil && !*a, b != nil && !*b:
		return yes(false)
	case a == nil || b == nil:
		return nil
	}
	return yes(true)
}

func eq(a, b int) bool { return a == b }

var ons = []condition{
	{"t.k = s.k", func(t, s mrow) tri { return cmp(t.k, s.k, eq) }},
	{"t.k <=> s.k", func(t, s mrow) tri { return yes(num(t.k) == num(s.k)) }},
	{"t.k = s.k AND t.p = s.p", func(t, s mrow) tri { return and(cmp(t.k, s.k, eq), cmp(t.p, s.p, eq)) }},
	{"t.k = s.k AND t.v < s.v", func(t, s mrow) tri {
		return and(cmp(t.k, s.k, eq), cmp(t.v, s.v, func(a, b int) bool { return a < b }))
	}},
	{"t.k + 1 = s.k * 2 AND t.p = 1", func(t, s mrow) tri {
		return and(cmp(t.k, s.k, func(a, b int) bool { return a+1 == b*2 }), cmp(t.p, t.p, func(a, _ int) bool { return a == 1 }))
	}},
	{"t.k = s.k AND s.v > 1", func(t, s mrow) tri {
		return and(cmp(t.k, s.k, eq), cmp(s.v, s.v, func(a, _ int) bool { return a > 1 }))
	}},
	{"t.k < s.k", func(t, s mrow) tri { return cmp(t.k, s.k, func(a, b int) bool { return a < b }) }},
	{"t.k = s.k OR t.p = s.v", func(t, s mrow) tri {
		a, b := cmp(t.k, s.k, eq), cmp(t.p, s.v, eq)
		switch {
		case isTrue(a) || isTrue(b):
			return yes(true)
		case a == nil || b == nil:
			return nil
		}
		return yes(false)
	}},
	{"FALSE", func(t, s mrow) tri { return yes(false) }},
}

// mclause is a clause beside its meaning; f makes the new row, nil is a delete.
type mclause struct {
	text string
	when func(t, s mrow) tri
	f    func(t, s mrow) mrow
}

func always(mrow, mrow) tri { return yes(true) }

var (
	matchedClauses = []mclause{
		{"WHEN MATCHED AND s.v = 3 THEN DELETE", func(t, s mrow) tri { return cmp(s.v, s.v, func(a, _ int) bool { return a == 3 }) }, nil},
		{"WHEN MATCHED AND t.v > s.v THEN UPDATE SET v = s.v + 10, p = t.v", func(t, s mrow) tri { return cmp(t.v, s.v, func(a, b int) bool { return a > b }) },
			func(t, s mrow) mrow { n := *s.v + 10; return mrow{t.k, &n, t.v} }},
		{"WHEN MATCHED AND t.p IS NULL THEN UPDATE SET *", func(t, s mrow) tri { return yes(t.p == nil) }, func(t, s mrow) mrow { return s }},
		{"WHEN MATCHED THEN UPDATE SET v = s.v", always, func(t, s mrow) mrow { return mrow{t.k, s.v, t.p} }},
		{"WHEN MATCHED THEN DELETE", always, nil},
	}
	insertClauses = []mclause{
		{"WHEN NOT MATCHED AND s.p = 2 THEN INSERT (k, p) VALUES (s.k, s.v)", func(t, s mrow) tri { return cmp(s.p, s.p, func(a, _ int) bool { return a == 2 }) },
			func(t, s mrow) mrow { return mrow{k: s.k, p: s.v} }},
		{"WHEN NOT MATCHED THEN INSERT *", always, func(t, s mrow) mrow { return s }},
	}
	aloneClauses = []mclause{
		{"WHEN NOT MATCHED BY SOURCE AND t.v = 2 THEN DELETE", func(t, s mrow) tri { return cmp(t.v, t.v, func(a, _ int) bool { return a == 2 }) }, nil},
		{"WHEN NOT MATCHED BY SOURCE AND v < 2 THEN UPDATE SET p = 2, v = v + 1", func(t, s mrow) tri { return cmp(t.v, t.v, func(a, _ int) bool { return a < 2 }) },
			func(t, s mrow) mrow { n, p := *t.v+1, 2; return mrow{t.k, &n, &p} }},
		{"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = NULL", always, func(t, s mrow) mrow { return mrow{t.k, nil, t.p} }},
	}
)

// pickClauses draws clauses of one kind, conditional ones first.
func pickClauses(rt *rapid.T, name string, from []mclause) []mclause {
	var out []mclause
	for _, c := range from {
		last := len(out) > 0 && !strings.Contains(out[len(out)-1].text, " AND ")
		if !last && rapid.Bool().Draw(rt, name) {
			out = append(out, c)
		}
	}
	return out
}

// naive is MERGE by its definition: every pair of rows, one after the other.
func naive(target, source []mrow, on condition, matched, inserts, alone []mclause) (rows []mrow, changes []string, several bool) {
	change := func(before, after *mrow) {
		switch {
		case before == nil:
			changes = append(changes, canon(*after)+" insert")
		case after == nil:
			changes = append(changes, canon(*before)+" delete")
		default:
			changes = append(changes, canon(*before)+" update_preimage", canon(*after)+" update_postimage")
		}
	}
	first := func(clauses []mclause, t, s mrow) *mclause {
		for i, c := range clauses {
			if isTrue(c.when(t, s)) {
				return &clauses[i]
			}
		}
		return nil
	}
	partner := make([]bool, len(source))
	for _, t := range target {
		var hits []int
		for i, s := range source {
			if !isTrue(on.eval(t, s)) {
				continue
			}
			hits, partner[i] = append(hits, i), true
		}
		single := len(matched) == 1 && matched[0].text == "WHEN MATCHED THEN DELETE"
		if len(matched) > 0 && len(hits) > 1 && !single {
			return nil, nil, true
		}
		var c *mclause
		s := mrow{}
		if len(hits) == 0 {
			c = first(alone, t, s)
		} else {
			s = source[hits[0]]
			c = first(matched, t, s)
		}
		switch {
		case c == nil:
			rows = append(rows, t)
		case c.f == nil:
			change(&t, nil)
		default:
			after := c.f(t, s)
			rows = append(rows, after)
			change(&t, &after)
		}
	}
	for i, s := range source {
		if partner[i] {
			continue
		}
		if c := first(inserts, mrow{}, s); c != nil {
			after := c.f(mrow{}, s)
			rows = append(rows, after)
			change(nil, &after)
		}
	}
	sort.Strings(changes)
	return rows, changes, false
}

func canon(r mrow) string {
	return fmt.Sprintf(`{"k":%s,"p":%s,"v":%s}`, num(r.k), num(r.p), num(r.v))
}

// TestInto_Model: MERGE equals the nested loop of its definition, rows and change rows,
// whatever the layout of the table.
func TestInto_Model(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		spec := testtable.Spec{DDL: mddl, Properties: map[string]string{"delta.enableChangeDataFeed": "true",
			"delta.enableDeletionVectors": fmt.Sprint(rapid.Bool().Draw(rt, "vectors"))}, Options: delta.Options{Workers: rapid.IntRange(1, 3).Draw(rt, "workers")}}
		if rapid.Bool().Draw(rt, "partitioned") {
			spec.Partition = []string{"p"}
		}
		if rapid.IntRange(0, 3).Draw(rt, "mapped") == 0 {
			spec.Properties["delta.columnMapping.mode"] = "name"
		}
		var target []mrow
		for range rapid.IntRange(0, 3).Draw(rt, "files") {
			var file strings.Builder
			rows := drawRows(rt, "rows of a file", 8)
			for _, r := range rows {
				file.WriteString(r.json())
			}
			if len(rows) > 0 {
				spec.Rows = append(spec.Rows, file.String())
			}
			target = append(target, rows...)
		}
		tb := testtable.New(t, spec)
		for step := range rapid.IntRange(1, 3).Draw(rt, "merges") {
			source := drawRows(rt, "source", 6)
			on := rapid.SampledFrom(ons).Draw(rt, "on")
			matched := pickClauses(rt, "matched", matchedClauses)
			inserts := pickClauses(rt, "not matched", insertClauses)
			alone := pickClauses(rt, "by source", aloneClauses)
			sql := "MERGE INTO t USING s ON " + on.text
			for _, c := range slices.Concat(matched, inserts, alone) {
				sql += " " + c.text
			}
			if len(matched)+len(inserts)+len(alone) == 0 {
				return
			}
			s, err := merge.Parse(sql)
			if err != nil {
				rt.Fatal(err)
			}
			var rows strings.Builder
			for _, r := range source {
				rows.WriteString(r.json())
			}
			want, changes, several := naive(target, source, on, matched, inserts, alone)
			before, err := tb.Snapshot(ctx)
			if err != nil {
				rt.Fatal(err)
			}
			res, err := merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, mddl), Rows: testtable.Rows(t, mddl, rows.String())}, s, merge.IntoOptions{})
			if several {
				if err == nil {
					rt.Fatalf("%s: several source rows match, no error", sql)
				}
				return
			}
			if err != nil {
				rt.Fatalf("%s: %v", sql, err)
			}
			var text []string
			for _, r := range want {
				text = append(text, canon(r))
			}
			sort.Strings(text)
			if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), text); d != "" {
				rt.Fatalf("step %d: %s\nsource %s\n%s", step, sql, rows.String(), d)
			}
			if res.Committed != (len(changes) > 0) {
				rt.Fatalf("W-907: committed %v with %d changes", res.Committed, len(changes))
			}
			if m := res.Metrics; m.RowsInserted-m.RowsDeleted != int64(len(want)-len(target)) {
				rt.Fatalf("B53: %d rows became %d, but metrics are %+v", len(target), len(want), m)
			}
			if res.Committed {
				if d := testtable.Diff(feed(t, tb), changes); d != "" {
					rt.Fatalf("R-912: feed of %s: %s", sql, d)
				}
			} else if res.Version != before.Version {
				rt.Fatalf("version %d, was %d", res.Version, before.Version)
			}
			target = want
		}
	})
}
