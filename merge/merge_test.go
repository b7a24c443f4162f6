package merge_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
)

var ctx = context.Background()

// bench is one table under two configurations, which must agree.
type bench struct {
	tables []*delta.Table // without and with deletion vectors
	ddl    string
	source string
	rows   string
}

func lines(t *testing.T, tb *delta.Table) string {
	return strings.Join(testtable.Read(t, tb, delta.ScanOptions{}), "\n")
}

// feed is the change rows of the newest version, pre-images before post-images.
func feed(t *testing.T, tb *delta.Table) []string {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	v := snap.Version
	f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &v}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for b, err := range f.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		kinds := b.Column(b.Schema().FieldIndices(cdf.ChangeTypeColumn)[0])
		n := int(b.NumCols()) - 3
		rows := array.NewRecordBatch(arrow.NewSchema(b.Schema().Fields()[:n], nil), b.Columns()[:n], b.NumRows())
		for i, line := range testtable.BatchLines(rows) {
			out = append(out, line+" "+kinds.ValueStr(i))
		}
	}
	slices.Sort(out)
	return out
}

func (b *bench) sourceOf(t *testing.T) merge.Source {
	return merge.Source{Schema: testtable.Struct(t, b.source), Rows: testtable.Rows(t, b.source, b.rows)}
}

var generated = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]*`)

func errorText(err error) string {
	code := ""
	var c interface{ Code() string }
	if errors.As(err, &c) {
		code = c.Code() + ": "
	}
	return "error: " + code + generated.ReplaceAllString(err.Error(), "ID") + "\n"
}

// TestInto runs the stories of testdata/merge, each on a table that is rewritten and on
// one that gets deletion vectors: rows and change rows must be the same.
func TestInto(t *testing.T) {
	datadriven.Walk(t, "testdata/merge", func(t *testing.T, path string) {
		var b *bench
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "table":
				b = newTables(t, d)
				return ""
			case "source":
				b.source, b.rows, _ = strings.Cut(d.Input, "\n")
				return ""
			case "merge":
				return b.merge(t, d.Input, d.HasArg("metrics"))
			case "constraint":
				name, text, _ := strings.Cut(d.Input, " ")
				for _, tb := range b.tables {
					if _, err := tb.AddConstraint(ctx, name, text, delta.ConstraintOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				return ""
			case "rows":
				return lines(t, b.tables[0]) + "\n"
			case "schema":
				s, err := b.tables[0].Schema(ctx)
				if err != nil {
					t.Fatal(err)
				}
				return s.String() + "\n"
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func newTables(t *testing.T, d *datadriven.TestData) *bench {
	b := &bench{}
	var rows string
	b.ddl, rows, _ = strings.Cut(d.Input, "\n")
	for _, vectors := range []string{"false", "true"} {
		props := map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors}
		spec := testtable.Spec{DDL: b.ddl, Properties: props}
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "partition":
				spec.Partition = a.Vals
			case "mapped":
				props["delta.columnMapping.mode"] = "name"
			default:
				props[a.Key] = a.Vals[0]
			}
		}
		// A blank line ends a file.
		for _, file := range strings.Split(rows, "\n--\n") {
			if strings.TrimSpace(file) != "" {
				spec.Rows = append(spec.Rows, file)
			}
		}
		b.tables = append(b.tables, testtable.New(t, spec))
	}
	return b
}

func (b *bench) merge(t *testing.T, sql string, metrics bool) string {
	s, err := merge.Parse(sql)
	if err != nil {
		return errorText(err)
	}
	var out []string
	for _, tb := range b.tables {
		before := len(testtable.Files(t, tb.Store()))
		res, err := merge.Into(ctx, tb, b.sourceOf(t), s, merge.IntoOptions{})
		text := ""
		switch {
		case err != nil:
			text = errorText(err)
			if after := len(testtable.Files(t, tb.Store())); after != before {
				t.Errorf("%d files before the refused statement, %d after", before, after)
			}
		case !res.Committed:
			text = "nothing changed\n"
		default:
			text = lines(t, tb) + "\nfeed:\n  " + strings.Join(feed(t, tb), "\n  ") + "\n"
			if metrics {
				m := res.Metrics
				text += fmt.Sprintf("inserted %d updated %d deleted %d of %d source rows\n", m.RowsInserted, m.RowsUpdated, m.RowsDeleted, res.SourceRows)
			}
		}
		out = append(out, text)
	}
	if out[0] != out[1] {
		t.Errorf("%s\nwithout deletion vectors:\n%s\nwith them:\n%s", sql, out[0], out[1])
	}
	return out[0]
}

// TestParse prints statements in canonical form, which must read back to itself.
func TestParse(t *testing.T) {
	datadriven.RunTest(t, "testdata/parse", func(t *testing.T, d *datadriven.TestData) string {
		s, err := merge.Parse(d.Input)
		if err != nil {
			return errorText(err)
		}
		text := s.String()
		again, err := merge.Parse(text)
		if err != nil || again.String() != text {
			t.Errorf("%s: %v", text, err)
		}
		return text + "\n"
	})
}

// overtaken is a store at which a winner is faster, once.
type overtaken struct {
	storage.Store
	winner func()
}

func (o *overtaken) Create(ctx context.Context, key string, data []byte) error {
	if w := o.winner; w != nil && strings.HasPrefix(key, "_delta_log/") {
		o.winner = nil
		w()
	}
	return o.Store.Create(ctx, key, data)
}

// TestInto_RowLevel: a merge keeps what it decided when winners touched other rows
// (3.5), and decides again when a source row has gained or lost its partner.
func TestInto_RowLevel(t *testing.T) {
	const ddl = "id BIGINT, v INT"
	upsert := "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
	for _, c := range []struct {
		name, sql, source string
		winner            func(*delta.Table) error
		stands            bool
		want              string
	}{
		{"another row is deleted", upsert, `{"id":1,"v":11}{"id":9,"v":99}`, del("id = 2"), true, "0=0 1=11 3=30 9=99"},
		{"another row is updated", upsert, `{"id":1,"v":11}{"id":9,"v":99}`, upd("v = 5", "id = 2"), true, "0=0 1=11 2=5 3=30 9=99"},
		{"the new row is a partner", upsert, `{"id":1,"v":11}{"id":9,"v":99}`, upd("id = 9", "id = 2"), false, "0=0 1=11 3=30 9=99"},
		{"the partner goes", upsert, `{"id":1,"v":11}{"id":9,"v":99}`, del("id = 1"), false, "0=0 1=11 2=20 3=30 9=99"},
		{"a partner that no clause takes goes", upsert, `{"id":1,"v":11}{"id":2,"v":-1}`, del("id = 2"), false, "0=0 1=11 2=-1 3=30"},
		{"the same without inserts", "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v", `{"id":1,"v":11}{"id":2,"v":-1}`, del("id = 2"), true, "0=0 1=11 3=30"},
		{"an insert-only merge whose partner goes", "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", `{"id":2,"v":22}{"id":9,"v":99}`, del("id = 2"), false, "0=0 1=10 2=22 3=30 9=99"},
		{"an insert-only merge beside other rows", "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", `{"id":2,"v":22}{"id":9,"v":99}`, del("id = 3"), true, "0=0 1=10 2=20 9=99"},
		{"a row without a source appears", "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.v > 25 THEN DELETE", `{"id":1,"v":1}`, upd("v = 100", "id = 2"), false, "0=0 1=10"},
		{"a row without a source that no clause takes appears", "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.v > 25 THEN DELETE", `{"id":1,"v":1}`, upd("v = 1", "id = 2"), true, "0=0 1=10 2=1"},
	} {
		t.Run("C-35 3.5 "+c.name, func(t *testing.T) {
			s := &overtaken{Store: storage.NewMemory("t")}
			tb := testtable.New(t, testtable.Spec{DDL: ddl, Store: s, Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
				Rows: []string{`{"id":0,"v":0}{"id":1,"v":10}{"id":2,"v":20}{"id":3,"v":30}`}})
			s.winner = func() {
				other, err := delta.Open(ctx, s.Store, delta.Options{})
				if err == nil {
					err = c.winner(other)
				}
				if err != nil {
					t.Error(err)
				}
			}
			st, err := merge.Parse(c.sql)
			if err != nil {
				t.Fatal(err)
			}
			res, err := merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, ddl), Rows: testtable.Rows(t, ddl, c.source)}, st, merge.IntoOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if (res.Attempts == 1) != c.stands {
				t.Errorf("decided %d times", res.Attempts)
			}
			got := strings.NewReplacer(`{"id":`, "", `,"v":`, "=", "}", "", "\n", " ").Replace(lines(t, tb))
			if got != c.want {
				t.Errorf("rows %s, want %s", got, c.want)
			}
		})
	}
}

func del(where string) func(*delta.Table) error {
	return func(tb *delta.Table) error { _, err := tb.Delete(ctx, where, delta.DMLOptions{}); return err }
}

func upd(set, where string) func(*delta.Table) error {
	return func(tb *delta.Table) error { _, err := tb.Update(ctx, set, where, delta.DMLOptions{}); return err }
}

// TestInto_Source: B56: the source is run through once, whatever happens.
func TestInto_Source(t *testing.T) {
	const ddl = "id BIGINT, v INT"
	s := &overtaken{Store: storage.NewMemory("t")}
	tb := testtable.New(t, testtable.Spec{DDL: ddl, Store: s, Rows: []string{`{"id":1,"v":1}{"id":2,"v":2}`}})
	s.winner = func() {
		other, err := delta.Open(ctx, s.Store, delta.Options{})
		if err == nil {
			err = upd("v = 100", "id = 2")(other)
		}
		if err != nil {
			t.Error(err)
		}
	}
	runs := 0
	source := merge.Source{Schema: testtable.Struct(t, ddl), Rows: func(yield func(arrow.RecordBatch, error) bool) {
		runs++
		rows := fmt.Sprintf(`{"id":%d,"v":0}{"id":7,"v":7}`, runs) // other rows every time
		if yield(testtable.Batch(t, ddl, rows), nil) && runs > 1 {
			yield(testtable.Batch(t, ddl, `{"id":2,"v":-1}`), nil)
		}
	}}
	st, err := merge.Build(merge.Spec{On: "target.id = source.id", Clauses: []merge.Clause{
		{Kind: merge.Matched, If: "source.v < 5", Action: merge.Update, Set: []merge.Set{{Column: "v", Value: "source.v - 1"}}},
		{Kind: merge.NotMatched, Action: merge.InsertAll}}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := merge.Into(ctx, tb, source, st, merge.IntoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if runs != 1 || res.Attempts != 2 || res.SourceRows != 2 {
		t.Errorf("B56: the source ran %d times, %d attempts, %d rows", runs, res.Attempts, res.SourceRows)
	}
	if got, want := lines(t, tb), "{\"id\":1,\"v\":-1}\n{\"id\":2,\"v\":100}\n{\"id\":7,\"v\":7}"; got != want {
		t.Errorf("rows\n%s", got)
	}
	t.Run("an error of the source leaves nothing", func(t *testing.T) {
		before := len(testtable.Files(t, s.Store))
		boom := errors.New("boom")
		_, err := merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, ddl), Rows: func(yield func(arrow.RecordBatch, error) bool) { yield(nil, boom) }}, st, merge.IntoOptions{})
		if !errors.Is(err, boom) || len(testtable.Files(t, s.Store)) != before {
			t.Errorf("%v", err)
		}
	})
}
