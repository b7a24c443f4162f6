package delta_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/merge"
)

// feedTable is one way a table can be in TestTable_FeedMatrix.
type feedTable struct {
	vectors, parts, evolved bool
	mapping                 string // "", name, id
}

func (f feedTable) String() string {
	return fmt.Sprintf("vectors=%t parts=%t mapping=%s evolved=%t", f.vectors, f.parts, f.mapping, f.evolved)
}

const feedDDL = "id BIGINT, v STRING, p INT"

func feedRow(id int, v string, p int) string { return fmt.Sprintf(`{"id":%d,"v":%q,"p":%d}`, id, v, p) }

// table has rows 1 to 6 in three appends; an evolved one got a column after them.
func (f feedTable) table(t *testing.T) *delta.Table {
	t.Helper()
	props := map[string]string{"delta.enableChangeDataFeed": "true"}
	if f.vectors {
		props["delta.enableDeletionVectors"] = "true"
	}
	if f.mapping != "" {
		props["delta.columnMapping.mode"] = f.mapping
	}
	spec := testtable.Spec{DDL: feedDDL, Properties: props, Rows: []string{
		feedRow(1, "a", 1) + feedRow(2, "b", 1), feedRow(3, "c", 2) + feedRow(4, "d", 2), feedRow(5, "e", 1) + feedRow(6, "f", 2)}}
	if f.parts {
		spec.Partition = []string{"p"}
	}
	tb := testtable.New(t, spec)
	if f.evolved {
		if _, err := tb.Alter(ctx, delta.AddColumns{Columns: []delta.NewColumn{{Field: testtable.Struct(t, "x INT").Fields[0]}}}, delta.AlterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return tb
}

// feedOp is an operation of 2.1: what it does to the rows of feedTable, and whether the
// commit has change files, with copy-on-write and with deletion vectors.
type feedOp struct {
	name string
	do   func(t *testing.T, tb *delta.Table) error
	// want is "kind id v p", one a change row, of the newest version.
	want []string
	// cow and dv: change files; partsCow where the table is partitioned by p.
	cow, partsCow, dv bool
	only              func(f feedTable) bool
}

func feedOps() []feedOp {
	app := func(rows ...string) func(*testing.T, *delta.Table) error {
		return func(t *testing.T, tb *delta.Table) error {
			_, err := tb.Append(ctx, testtable.Rows(t, feedDDL, strings.Join(rows, "")), delta.WriteOptions{})
			return err
		}
	}
	over := func(o delta.OverwriteOptions, rows ...string) func(*testing.T, *delta.Table) error {
		return func(t *testing.T, tb *delta.Table) error {
			_, err := tb.Overwrite(ctx, testtable.Rows(t, feedDDL, strings.Join(rows, "")), o)
			return err
		}
	}
	del := func(where string) func(*testing.T, *delta.Table) error {
		return func(t *testing.T, tb *delta.Table) error {
			_, err := tb.Delete(ctx, where, delta.DMLOptions{})
			return err
		}
	}
	update := func(set, where string) func(*testing.T, *delta.Table) error {
		return func(t *testing.T, tb *delta.Table) error {
			_, err := tb.Update(ctx, set, where, delta.DMLOptions{})
			return err
		}
	}
	into := func(text string, rows ...string) func(*testing.T, *delta.Table) error {
		return func(t *testing.T, tb *delta.Table) error {
			st, err := merge.Parse("MERGE INTO t USING s ON t.id = s.id " + text)
			if err != nil {
				return err
			}
			_, err = merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, feedDDL), Rows: testtable.Rows(t, feedDDL, strings.Join(rows, ""))}, st, merge.IntoOptions{})
			return err
		}
	}
	optimize := func(o delta.OptimizeOptions) func(*testing.T, *delta.Table) error {
		return func(t *testing.T, tb *delta.Table) error {
			_, err := tb.Optimize(ctx, o)
			return err
		}
	}
	all := []string{"delete 1 a 1", "delete 2 b 1", "delete 3 c 2", "delete 4 d 2", "delete 5 e 1", "delete 6 f 2"}
	parts := func(f feedTable) bool { return f.parts }
	return []feedOp{
		{name: "append", do: app(feedRow(7, "g", 1), feedRow(8, "h", 3)), want: []string{"insert 7 g 1", "insert 8 h 3"}},
		{name: "overwrite", do: over(delta.OverwriteOptions{}, feedRow(8, "h", 2)), want: append(slices.Clone(all), "insert 8 h 2")},
		{name: "replaceWhere by partition", do: over(delta.OverwriteOptions{Where: "p = 1"}, feedRow(9, "i", 1)), want: []string{"delete 1 a 1", "delete 2 b 1", "delete 5 e 1", "insert 9 i 1"}, cow: true},
		{name: "replaceWhere by data", do: over(delta.OverwriteOptions{Where: "id >= 2 AND p = 1"}, feedRow(10, "j", 1)), want: []string{"delete 2 b 1", "delete 5 e 1", "insert 10 j 1"}, cow: true, partsCow: true},
		{name: "dynamic overwrite", do: over(delta.OverwriteOptions{Dynamic: true}, feedRow(11, "k", 2)), want: []string{"delete 3 c 2", "delete 4 d 2", "delete 6 f 2", "insert 11 k 2"}, only: parts},
		{name: "delete of everything", do: del(""), want: all},
		{name: "delete by partition", do: del("p = 1"), want: []string{"delete 1 a 1", "delete 2 b 1", "delete 5 e 1"}, cow: true},
		{name: "delete of a file and a part of another", do: del("id IN (2, 3, 4)"), want: []string{"delete 2 b 1", "delete 3 c 2", "delete 4 d 2"}, cow: true, partsCow: true},
		{name: "update in two files", do: update("v = upper(v)", "id IN (1, 6)"), want: []string{"update_preimage 1 a 1", "update_postimage 1 A 1", "update_preimage 6 f 2", "update_postimage 6 F 2"}, cow: true, partsCow: true, dv: true},
		{name: "W-908 update of the partition", do: update("p = 3", "id = 2"), want: []string{"update_preimage 2 b 1", "update_postimage 2 b 3"}, cow: true, partsCow: true, dv: true},
		{name: "W-909 update to the same value", do: update("v = v", "id = 1"), want: []string{"update_preimage 1 a 1", "update_postimage 1 a 1"}, cow: true, partsCow: true, dv: true},
		{name: "merge of inserts only", do: into("WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p)", feedRow(7, "g", 1), feedRow(1, "z", 1)), want: []string{"insert 7 g 1"}},
		{name: "merge of all clauses", do: into("WHEN MATCHED AND s.v = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p) WHEN NOT MATCHED BY SOURCE AND t.id = 6 THEN DELETE",
			feedRow(1, "gone", 1), feedRow(3, "C", 2), feedRow(7, "g", 1)),
			want: []string{"delete 1 a 1", "update_preimage 3 c 2", "update_postimage 3 C 2", "insert 7 g 1", "delete 6 f 2"}, cow: true, partsCow: true, dv: true},
		{name: "optimize", do: optimize(delta.OptimizeOptions{})},
		{name: "optimize by Z-order", do: optimize(delta.OptimizeOptions{ZOrder: []string{"id"}})},
		{name: "R-902 restore of a delete", do: func(t *testing.T, tb *delta.Table) error {
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				return err
			}
			v := snap.Version
			if err := del("id = 2")(t, tb); err != nil {
				return err
			}
			_, err = tb.Restore(ctx, delta.RestoreOptions{Version: &v})
			return err
		}, want: []string{"insert 2 b 1"}, only: func(f feedTable) bool { return f.vectors }},
		{name: "restore of a rewrite", do: func(t *testing.T, tb *delta.Table) error {
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				return err
			}
			v := snap.Version
			if err := del("id = 2")(t, tb); err != nil {
				return err
			}
			_, err = tb.Restore(ctx, delta.RestoreOptions{Version: &v})
			return err
		}, want: []string{"delete 1 a 1", "insert 1 a 1", "insert 2 b 1"}, only: func(f feedTable) bool { return !f.vectors }},
		{name: "purge", do: func(t *testing.T, tb *delta.Table) error {
			if err := del("id = 2")(t, tb); err != nil {
				return err
			}
			return optimize(delta.OptimizeOptions{Purge: true})(t, tb)
		}, only: func(f feedTable) bool { return f.vectors }},
		{name: "change of a property", do: func(t *testing.T, tb *delta.Table) error {
			_, err := tb.SetProperties(ctx, map[string]string{"a": "b"}, delta.PropertyOptions{})
			return err
		}},
	}
}

// TestTable_FeedMatrix is the table of 2.1: every operation, with copy-on-write and
// with deletion vectors, plain, partitioned, mapped by name and by id, before and after
// a column was added; the exact change rows, and change files only where they must be.
func TestTable_FeedMatrix(t *testing.T) {
	for _, f := range feedTables() {
		for _, op := range feedOps() {
			if op.only != nil && !op.only(f) {
				continue
			}
			t.Run(fmt.Sprintf("R-901 W-901 W-902 W-906 %s, %s", op.name, f), func(t *testing.T) {
				tb := f.table(t)
				before := testtable.Read(t, tb, delta.ScanOptions{})
				if err := op.do(t, tb); err != nil {
					t.Fatal(err)
				}
				f.check(t, tb, op, before)
			})
		}
	}
}

func feedTables() (out []feedTable) {
	for _, vectors := range []bool{false, true} {
		for _, parts := range []bool{false, true} {
			for _, mapping := range []string{"", "name", "id"} {
				for _, evolved := range []bool{false, true} {
					out = append(out, feedTable{vectors, parts, evolved, mapping})
				}
			}
		}
	}
	return out
}

func (f feedTable) check(t *testing.T, tb *delta.Table, op feedOp, before []string) {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	extra := ""
	if f.evolved {
		extra = `,"x":null`
	}
	var want []string
	for _, w := range op.want {
		part := strings.Fields(w)
		want = append(want, fmt.Sprintf(`{"_change_type":%q,"id":%s,"p":%s,"v":%q%s}`, part[0], part[1], part[3], part[2], extra))
	}
	got := changesOf(t, tb, snap.Version)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the feed has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c := actionsOf(t, tb)
	files := op.cow
	switch {
	case f.vectors:
		files = op.dv
	case f.parts:
		files = op.partsCow
	}
	if (len(c.CDC) > 0) != files {
		t.Errorf("%d change files, wanted any: %t", len(c.CDC), files)
	}
	for _, a := range c.CDC {
		if a.DataChange || len(a.PartitionValues) != len(snap.PartitionColumns()) || !strings.HasPrefix(a.Path, "_change_data/") && f.mapping == "" {
			t.Errorf("W-903: %+v", a)
		}
	}
	if op.name == "restore of a rewrite" || strings.HasPrefix(op.name, "R-902") || op.name == "purge" {
		return // two commits, of which the feed of the last was asked for
	}
	if d := testtable.Diff(applied(t, before, got), testtable.Read(t, tb, delta.ScanOptions{})); d != "" {
		t.Errorf("R-912: the rows before with the changes are not those after: %s", d)
	}
}

// applied are rows after change rows, all as canonical text; the columns of the feed
// sort first.
func applied(t *testing.T, rows, changes []string) []string {
	t.Helper()
	for _, c := range changes {
		kind, rest, ok := strings.Cut(strings.TrimPrefix(c, `{"_change_type":"`), `",`)
		if !ok {
			t.Fatalf("no change row: %s", c)
		}
		row := "{" + rest
		if kind == "insert" || kind == "update_postimage" {
			rows = append(rows, row)
		}
	}
	for _, c := range changes {
		kind, rest, _ := strings.Cut(strings.TrimPrefix(c, `{"_change_type":"`), `",`)
		if kind == "insert" || kind == "update_postimage" {
			continue
		}
		i := slices.Index(rows, "{"+rest)
		if i < 0 {
			t.Fatalf("%s takes a row away that is not there", c)
		}
		rows = slices.Delete(rows, i, i+1)
	}
	slices.Sort(rows)
	return rows
}
