package apply

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
)

func TestSelectTables(t *testing.T) {
	table := func(text string) event.Table {
		p := strings.Split(text, ".")
		return event.Table{Database: p[0], Schema: p[1], Name: p[2]}
	}
	for _, c := range []struct {
		include, exclude []string
		table            string
		want             bool
	}{
		{nil, nil, "d.s.t", true},
		{[]string{"t"}, nil, "d.s.t", true},
		{[]string{"s.t"}, nil, "d.s.t", true},
		{[]string{"d.s.t"}, nil, "d.s.t", true},
		{[]string{"d.t"}, nil, "d.s.t", true},
		{[]string{"s.*"}, nil, "d.s.t", true},
		{[]string{"S.*"}, nil, "d.s.t", false},
		{[]string{"*.s.*"}, nil, "d.s.t", true},
		{[]string{"*"}, []string{"tmp_*"}, "d.s.tmp_1", false},
		{[]string{"*"}, []string{"tmp_*"}, "d.s.x", true},
		{nil, []string{"s.[ab]?"}, "d.s.a1", false},
		{nil, []string{"s.[ab]?"}, "d.s.a12", true},
		{[]string{}, nil, "d.s.t", false},
		{[]string{"a*c"}, nil, "d.s.a/b/c", true},
	} {
		sel, err := SelectTables(c.include, c.exclude)
		if err != nil {
			t.Fatal(err)
		}
		if got := sel(table(c.table)); got != c.want {
			t.Errorf("include %q exclude %q: %s: %v", c.include, c.exclude, c.table, got)
		}
	}
	for _, p := range []string{"[a", ""} {
		if _, err := SelectTables(nil, []string{p}); err == nil {
			t.Errorf("pattern %q was taken", p)
		}
	}
}

// Thousands of source tables in one stream: each gets its table, memory stays
// bounded, a table that appears later is picked up, and only what changed is
// written (issue: one stream, many tables). The full number runs with SLUICE_LONG.
func TestRun_ManyTables(t *testing.T) {
	n := 60
	if os.Getenv("SLUICE_LONG") != "" {
		n = 2000
	}
	m := newMany(t)
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("t%d|U 1@1 (Ann, Rome)", i), fmt.Sprintf("t%d|U 2@2 (Bob, Oslo)", i))
	}
	r, err := m.apply(lines...)
	if err != nil || len(r.Targets) != n || r.Batches != int64(n) || r.Rows.Inserted != int64(2*n) {
		t.Fatalf("%d targets, %d batches, %v", len(r.Targets), r.Batches, err)
	}
	before := map[string]int64{}
	for _, x := range r.Targets {
		before[x.Target] = x.Version
	}
	r, err = m.apply("t7|D 1@3", "late|U 1@1 (Cy, Lima)")
	if err != nil || r.Batches != 2 || len(r.Targets) != n+1 {
		t.Fatalf("%d targets, %d batches, %v", len(r.Targets), r.Batches, err)
	}
	m.want(t, "t7", "2, Bob, Oslo")
	m.want(t, "late", "1, Cy, Lima")
	m.want(t, fmt.Sprintf("t%d", n-1), "1, Ann, Rome", "2, Bob, Oslo")
	moved := 0
	for _, x := range r.Targets {
		if old, ok := before[x.Target]; ok && x.Version > old+1 {
			t.Errorf("%s went from version %d to %d", x.Target, old, x.Version)
		} else if ok && x.Version > old {
			moved++
		}
	}
	t.Logf("%d of %d older targets got a commit", moved, n)
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("heap in use %d MiB, with the memory store", mem.HeapInuse>>20)
	if _, err := m.apply(); err != nil {
		t.Fatal(err)
	}
}
