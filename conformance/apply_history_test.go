package conformance_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/conformance/engines"
)

func newHistoryTarget(t *testing.T) *target {
	g := newTarget(t)
	g.flow.StoredAsSCDType = "2"
	return g
}

// spans applies events and holds the history against rows such as "1 a 5 9" or, of an
// open one, "1 a 5".
func (g *target) spans(rows string, events ...string) {
	g.t.Helper()
	if err := g.events(events...); err != nil {
		g.t.Fatal(err)
	}
	var lines []string
	for _, r := range strings.Split(rows, ", ") {
		f := append(strings.Fields(r), "null")
		lines = append(lines, fmt.Sprintf(`{"id":%s,"v":%q,"__START_AT":%s,"__END_AT":%s}`, f[0], f[1], f[2], f[3]))
	}
	engines.SameRows(g.t, g.rows(-1), lines)
}

// Other writers in the middle of a history (apply-state 5): a row keeps the version of
// the row it replaced, by key and start; late, tied and newer events find their place.
func TestApplied_OtherWritersOfHistory(t *testing.T) {
	for _, e := range engines.All(t) {
		t.Run("SCD2 "+e.Name(), func(t *testing.T) {
			t.Run("OPTIMIZE keeps versions of runs", func(t *testing.T) {
				g := newHistoryTarget(t)
				g.spans("1 a 4", "1@4 a", "1@8 a")
				g.spans("1 a 4, 2 b 5 7", "2@5 b", "2@7")
				e.Optimize(t, g.path)
				g.spans("1 a 4 6, 1 x 6 8, 1 a 8, 2 b 5 7", "1@6 x")
				g.spans("1 a 4 6, 1 x 6 8, 1 a 8, 2 c 3 5, 2 b 5 7", "2@3 c", "1@8 a")
			})
			t.Run("UPDATE keeps versions", func(t *testing.T) {
				g := newHistoryTarget(t)
				g.spans("1 a 5 9, 1 b 9, 2 c 5", "1@5 a", "1@9 b", "2@5 c")
				e.Update(t, g.path, map[string]string{"v": "'theirs'"}, "id = 1 AND __END_AT IS NULL")
				g.spans("1 a 5 7, 1 late 7 9, 1 theirs 9, 2 c 5", "1@7 late")
				g.spans("1 a 5 7, 1 late 7 9, 1 theirs 9 12, 1 new 12, 2 c 5", "1@12 new")
				g.seenBy(t, 0)
			})
			t.Run("DELETE leaves nothing behind", func(t *testing.T) {
				g := newHistoryTarget(t)
				g.spans("1 a 5 9, 1 b 9, 2 c 5", "1@5 a", "1@9 b", "2@5 c")
				e.Delete(t, g.path, "id = 2 OR __END_AT = 9")
				g.spans("1 late 7 9, 1 b 9, 2 back 3", "1@7 late", "2@3 back")
				g.seenBy(t, 0)
			})
			t.Run("MERGE", func(t *testing.T) {
				g := newHistoryTarget(t)
				g.spans("1 a 5 9, 1 b 9", "1@5 a", "1@9 b")
				e.Merge(t, g.path, engines.MergeOptions{On: "t.id = s.id AND t.__START_AT = s.__START_AT", DeleteWhen: "s.v = 'gone'"},
					`{"id":1,"v":"theirs","__START_AT":9,"__END_AT":null}`, `{"id":3,"v":"three","__START_AT":4,"__END_AT":null}`)
				g.spans("1 a 5 7, 1 late 7 9, 1 theirs 9, 3 three 4 6, 3 new 6", "1@7 late", "3@6 new")
			})
			t.Run("RESTORE stops with TARGET_REWOUND", func(t *testing.T) {
				g := newHistoryTarget(t)
				g.spans("1 a 5", "1@5 a")
				g.spans("1 a 5 9, 1 b 9", "1@9 b")
				e.Restore(t, g.path, 1)
				var refused *apply.Error
				if err := g.events("1@7 late"); !errors.As(err, &refused) || refused.Code != apply.CodeTargetRewound {
					t.Fatalf("got %v, want TARGET_REWOUND", err)
				}
			})
		})
	}
}

// Spark's DML by deletion vectors on a history, and what it makes of a target as a
// whole: a clone has no state, a replaced table is another one.
func TestApplied_SparkOnHistory(t *testing.T) {
	spark := engines.Spark(t)
	t.Run("SCD2 deletion vectors", func(t *testing.T) {
		g := newHistoryTarget(t)
		g.spans("1 a 5 9, 1 b 9, 2 c 5, 3 d 5", "1@5 a", "1@9 b", "2@5 c", "3@5 d")
		spark.SQL(t, "ALTER TABLE delta.`"+g.path+"` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", nil)
		spark.Update(t, g.path, map[string]string{"v": "'theirs'"}, "id = 1 AND __START_AT = 9")
		spark.Delete(t, g.path, "id = 2")
		g.spans("1 a 5 7, 1 late 7 9, 1 theirs 9, 2 back 2, 3 d 5 8", "1@7 late", "2@2 back", "3@8")
		engines.SameRows(t, spark.Rows(t, g.path), g.rows(-1))
		engines.SameRows(t, spark.Changes(t, g.path, 0, g.version()), g.changes(0, g.version()))
	})
	refused := func(t *testing.T, g *target, code string) {
		t.Helper()
		version := open(t, g.path).version()
		var e *apply.Error
		if err := g.events("1@7 late"); !errors.As(err, &e) || e.Code != code {
			t.Fatalf("got %v, want %s", err, code)
		}
		if now := open(t, g.path).version(); now != version {
			t.Errorf("version %d was committed after the refusal", now)
		}
	}
	for _, stored := range []string{"1", "2"} {
		t.Run("SHALLOW CLONE stored as "+stored, func(t *testing.T) {
			g := newTarget(t)
			g.flow.StoredAsSCDType = stored
			if err := g.events("1@5 a"); err != nil {
				t.Fatal(err)
			}
			clone := filepath.Join(g.dir, "clone")
			spark.SQL(t, "CREATE TABLE delta.`"+clone+"` SHALLOW CLONE delta.`"+g.path+"`", nil)
			g.ours = &ours{t: t, path: clone}
			refused(t, g, apply.CodeStateMismatch)
		})
		t.Run("REPLACE TABLE stored as "+stored, func(t *testing.T) {
			g := newTarget(t)
			g.flow.StoredAsSCDType = stored
			if err := g.events("1@5 a"); err != nil {
				t.Fatal(err)
			}
			spark.SQL(t, "CREATE OR REPLACE TABLE delta.`"+g.path+"` USING delta AS SELECT CAST(1 AS BIGINT) AS id, 'theirs' AS v", nil)
			var e *apply.Error
			if err := g.events("1@7 late"); !errors.As(err, &e) || e.Code != apply.CodeTargetRewound && e.Code != apply.CodeStateMismatch {
				t.Fatalf("got %v, want a refusal by name", err)
			}
		})
	}
}
