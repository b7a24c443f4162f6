package conformance_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/internal/demodata"
	"github.com/sluice-data/sluice/internal/testenv"
)

// applied runs a flow over files into a table on the local disk.
func applied(t *testing.T, path string, spec source.Spec, flow apply.Flow, table string) (apply.Result, error) {
	t.Helper()
	in, err := source.Open(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Source.Close(); err != nil {
			t.Error(err)
		}
	}()
	targets := apply.Targets{Store: at(t, path), Name: filepath.Base(path)}
	if table != "" {
		targets.Select = func(e event.Table) bool { return e.Name == table }
	}
	return apply.Run(ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Target: targets, Flow: flow}, apply.Options{})
}

// Targets of the bundled corpus after several batches, hidden group and all.
func TestApplied_BundledCorpus(t *testing.T) {
	events, err := demodata.Events()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(file, events, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, table := range demodata.Tables() {
		t.Run(table, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), table)
			if _, err := applied(t, path, source.Spec{From: []string{file}}, apply.Flow{BatchRows: 5}, table); err != nil {
				t.Fatal(err)
			}
			want, err := demodata.Expected(table)
			if err != nil {
				t.Fatal(err)
			}
			o := open(t, path)
			engines.SameRows(t, o.rows(-1), strings.Split(strings.TrimSpace(string(want)), "\n"))
			for _, e := range engines.All(t) {
				o.same(e, 0)
			}
		})
	}
}

// Targets of recorded corpora: every column type that a source has.
func TestApplied_RecordedCorpora(t *testing.T) {
	for _, corpus := range []string{"pg-shop", "pg-types"} {
		t.Run(corpus, func(t *testing.T) {
			dir := testenv.SharedDir(t, "corpora", "debezium", corpus)
			files, err := filepath.Glob(filepath.Join(dir, "events.jsonl*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("events of %s: %v, %v", dir, files, err)
			}
			tables := tablesOf(t, files)
			for _, table := range tables {
				t.Run(table, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), table)
					_, err := applied(t, path, source.Spec{From: files}, apply.Flow{BatchRows: 40, OnPoison: apply.PoisonQuarantine}, table)
					var refused *apply.Error
					if errors.As(err, &refused) && refused.Code == apply.CodeEmptyKeys {
						t.Skipf("a source table without primary key is no target: %v", err)
					}
					if err != nil {
						t.Fatal(err)
					}
					o := open(t, path)
					for _, e := range engines.All(t) {
						o.same(e, 0)
					}
				})
			}
		})
	}
}

var sourceTable = regexp.MustCompile(`"source":\{[^{}]*"table":"(\w+)"`)

// tablesOf lists the source tables of Debezium events.
func tablesOf(t *testing.T, files []string) []string {
	t.Helper()
	in, err := source.Open(ctx, source.Spec{From: files})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Source.Close(); err != nil {
			t.Error(err)
		}
	}()
	var out []string
	for r, err := range in.Source.Records(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if m := sourceTable.FindSubmatch(r.Raw); m != nil && !slices.Contains(out, string(m[1])) {
			out = append(out, string(m[1]))
		}
	}
	if len(out) == 0 {
		t.Fatal("no table found in the events")
	}
	return out
}

// target is a flow of plain rows with a sequence into one table.
type target struct {
	*ours
	files int
	flow  apply.Flow
	dir   string
}

func newTarget(t *testing.T) *target {
	dir := t.TempDir()
	return &target{ours: &ours{t: t, path: filepath.Join(dir, "t")}, dir: dir,
		flow: apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "seq", ExceptColumnList: []string{"seq"}}}
}

// events applies lines such as "1@5 a" (an upsert) and "2@6" (a delete), one batch.
func (g *target) events(lines ...string) error {
	g.t.Helper()
	var text strings.Builder
	for _, l := range lines {
		at, value, upsert := strings.Cut(l, " ")
		id, seq, _ := strings.Cut(at, "@")
		if upsert {
			fmt.Fprintf(&text, `{"id":%s,"v":%q,"seq":%s,"op":"U"}`+"\n", id, value, seq)
		} else {
			fmt.Fprintf(&text, `{"id":%s,"v":null,"seq":%s,"op":"D"}`+"\n", id, seq)
		}
	}
	g.files++
	file := filepath.Join(g.dir, fmt.Sprintf("e%d.jsonl", g.files))
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		g.t.Fatal(err)
	}
	_, err := applied(g.t, g.path, source.Spec{Format: source.Rows, From: []string{file}, Keys: []string{"id"}}, g.flow, "")
	if err == nil {
		g.ours = open(g.t, g.path)
	}
	return err
}

// want applies events and holds the table against rows such as "1 a".
func (g *target) want(rows string, events ...string) {
	g.t.Helper()
	if err := g.events(events...); err != nil {
		g.t.Fatal(err)
	}
	var lines []string
	for _, r := range strings.Split(rows, ", ") {
		id, v, _ := strings.Cut(r, " ")
		lines = append(lines, fmt.Sprintf(`{"id":%s,"v":%q}`, id, v))
	}
	engines.SameRows(g.t, g.rows(-1), lines)
}

// Other writers on a target (apply-state 5): what they do stays, rows keep their
// versions, and late, tied and newer events are judged by them.
func TestApplied_OtherWriters(t *testing.T) {
	for _, e := range engines.All(t) {
		t.Run(e.Name(), func(t *testing.T) {
			t.Run("OPTIMIZE keeps versions", func(t *testing.T) {
				g := newTarget(t)
				g.want("1 a, 2 b", "1@5 a", "2@5 b")
				g.want("1 a, 2 b, 3 c", "3@5 c", "4@5")
				e.Optimize(t, g.path)
				g.want("1 a, 2 b, 3 c", "1@4 late", "4@3 late")
				g.want("1 a, 2 b, 3 c", "2@5 b")
				g.want("1 new, 2 b, 3 c", "1@6 new", "2@4 late")
				g.seenBy(t, 0)
			})
			t.Run("UPDATE keeps versions", func(t *testing.T) {
				g := newTarget(t)
				g.want("1 a, 2 b, 3 c", "1@5 a", "2@5 b", "3@5 c")
				e.Update(t, g.path, map[string]string{"v": "'theirs'"}, "id < 3")
				g.want("1 theirs, 2 theirs, 3 c", "1@4 late", "3@4 late")
				g.want("1 theirs, 2 new, 3 c", "2@6 new")
				g.want("1 newer, 2 new, 3 c", "1@7 newer", "2@5 late")
				g.seenBy(t, 0)
			})
			t.Run("DELETE leaves no tombstone", func(t *testing.T) {
				g := newTarget(t)
				g.want("1 a, 2 b, 3 c", "1@5 a", "2@5 b", "3@5 c")
				e.Delete(t, g.path, "id = 2")
				g.want("1 a, 2 back, 3 c", "2@3 back", "1@4 late")
				g.want("1 a, 2 new, 3 c", "2@4 new")
				g.seenBy(t, 0)
			})
			t.Run("MERGE", func(t *testing.T) {
				g := newTarget(t)
				g.want("1 a, 2 b, 3 c", "1@5 a", "2@5 b", "3@5 c")
				e.Merge(t, g.path, engines.MergeOptions{On: "t.id = s.id", DeleteWhen: "s.v = 'gone'"}, `{"id":1,"v":"theirs"}`, `{"id":2,"v":"gone"}`, `{"id":9,"v":"nine"}`)
				g.want("1 theirs, 3 c, 9 nine", "1@4 late", "3@4 late")
				g.want("1 theirs, 2 back, 3 new, 9 ours", "2@1 back", "9@1 ours", "3@6 new")
				g.seenBy(t, 0)
			})
			t.Run("append", func(t *testing.T) {
				g := newTarget(t)
				g.want("1 a", "1@5 a")
				e.Append(t, g.path, `{"id":7,"v":"theirs"}`)
				g.want("1 a, 7 theirs", "1@4 late")
				g.want("1 b, 7 ours", "7@1 ours", "1@6 b")
				g.seenBy(t, 0)
			})
			for name, rewound := range map[string]func(g *target){
				"RESTORE":         func(g *target) { e.Restore(g.t, g.path, 1) },
				"whole overwrite": func(g *target) { e.Overwrite(g.t, g.path, `{"id":1,"v":"theirs"}`) },
			} {
				t.Run(name+" stops with TARGET_REWOUND", func(t *testing.T) {
					g := newTarget(t)
					g.want("1 a", "1@5 a")
					g.want("1 b, 2 c", "1@9 b", "2@9 c")
					rewound(g)
					version, rows := open(t, g.path).version(), open(t, g.path).rows(-1)
					var refused *apply.Error
					if err := g.events("1@7 late"); !errors.As(err, &refused) || refused.Code != "TARGET_REWOUND" {
						t.Fatalf("got %v, want TARGET_REWOUND", err)
					}
					if after := open(t, g.path); after.version() != version {
						t.Fatalf("version %d, want %d: the table was touched", after.version(), version)
					} else {
						engines.SameRows(t, after.rows(-1), rows)
					}
					g.flow.AcceptRows = true
					if err := g.events("1@10 new", "3@10 d"); err != nil {
						t.Fatal(err)
					}
					if got := strings.Join(g.rows(-1), " "); !strings.Contains(got, `"v":"new"`) || !strings.Contains(got, `"v":"d"`) {
						t.Errorf("rows %s", got)
					}
					g.seenBy(t, -1)
				})
			}
		})
	}
}

// Spark's DML by deletion vectors on a target.
func TestApplied_SparkDeletionVectors(t *testing.T) {
	spark := engines.Spark(t)
	g := newTarget(t)
	g.want("1 a, 2 b, 3 c, 4 d", "1@5 a", "2@5 b", "3@5 c", "4@5 d")
	spark.SQL(t, "ALTER TABLE delta.`"+g.path+"` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", nil)
	spark.Update(t, g.path, map[string]string{"v": "'theirs'"}, "id = 1")
	spark.Delete(t, g.path, "id = 2")
	g.want("1 theirs, 2 back, 3 c, 4 d", "1@4 late", "2@2 back", "3@4 late")
	g.want("1 new, 2 back, 3 c", "1@6 new", "4@6")
	engines.SameRows(t, spark.Rows(t, g.path), g.rows(-1))
	engines.SameRows(t, spark.Changes(t, g.path, 0, g.version()), g.changes(0, g.version()))
	engines.SameRows(t, engines.DeltaRS(t).Rows(t, g.path), g.rows(-1))
}

// seenBy holds what the engines read of the target against what we read.
func (g *target) seenBy(t *testing.T, from int64) {
	t.Helper()
	for _, e := range engines.All(t) {
		engines.SameRows(t, e.Rows(t, g.path), g.rows(-1))
		if from >= 0 {
			engines.SameRows(t, e.Changes(t, g.path, from, g.version()), g.changes(from, g.version()))
		}
	}
}
