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
)

var ctx = context.Background()

// bench is one table under two configurations, which must agree.
type bench struct {
	tables  []*delta.Table // without and with deletion vectors
	ddl     string
	source  string
	rows    string
	evolved bool
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
