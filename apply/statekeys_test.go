package apply

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// Of a large state a batch reads the facts of its own keys, and of the files those
// that may hold them; between batches none are held.
func TestStateTable_Fetch(t *testing.T) {
	b := newBench(t, "")
	b.opts.stateBudget = -1
	store := faultstore.New(b.store)
	b.store = store
	for _, from := range []int{1, 1000, 2000} {
		var lines []string
		for k := range 50 {
			lines = append(lines, fmt.Sprintf("D %d@9", from+k))
		}
		b.must(t, lines...)
	}
	tg := b.pinned(t)
	if tg.state.whole || len(tg.state.deletes) != 0 || len(tg.files.facts) != 3 {
		t.Fatalf("whole %v, %d facts held of %d files", tg.state.whole, len(tg.state.deletes), len(tg.files.facts))
	}
	if err := tg.fetch(context.Background(), slices.Values([]string{"none"})); err != nil || len(tg.state.deletes) != 0 {
		t.Fatalf("%d facts of a key without any, %v", len(tg.state.deletes), err)
	}
	var facts []string
	for _, f := range tg.files.facts {
		facts = append(facts, path.Base(f.Path))
	}
	store.Reset()
	res := b.must(t, "U 1020@3 (Ann, Rome)", "U 5000@3 (Bob, Oslo)")
	if res.Events.Stale != 1 {
		t.Errorf("%+v: the tombstone of key 1020 was not met", res.Events)
	}
	opened := map[string]bool{}
	for _, c := range store.Trace() {
		if name := path.Base(c.Key); strings.Contains(c.Key, "_apply/state") && slices.Contains(facts, name) {
			opened[name] = true
		}
	}
	if len(opened) != 1 {
		t.Errorf("opened %d of 3 files of facts, want the one whose keys may match", len(opened))
	}
	b.wantTable(t, "5000, Bob, Oslo")
}

// Compaction of a state that is not held whole keeps what counts and leaves out what
// is void, and does not rewrite the large files for the small ones.
func TestStateTable_CompactionByKeys(t *testing.T) {
	b := newBench(t, "")
	b.opts.stateBudget, b.opts.factFiles = -1, 4
	var lines []string
	for k := range 5000 {
		lines = append(lines, fmt.Sprintf("D %d@9", k))
	}
	b.must(t, lines...)
	large := b.pinned(t).files.facts[0].Path
	for k := range 12 {
		b.must(t, fmt.Sprintf("D %d@%d", 10000+k%3, 10+k))
	}
	tg := b.pinned(t)
	if len(tg.files.facts) > 5 {
		t.Errorf("%d files of facts", len(tg.files.facts))
	}
	if !strings.Contains(fmt.Sprint(paths(tg)), large) {
		t.Error("the large file was rewritten for the small ones")
	}
	for _, c := range []struct {
		line  string
		stale int64
	}{{"U 10001@19 (Ann, Rome)", 1}, {"U 10001@20 (Ann, Rome)", 0}, {"U 4999@8 (Ann, Rome)", 1}} {
		if res := b.must(t, c.line); res.Events.Stale != c.stale {
			t.Errorf("%s: %+v", c.line, res.Events)
		}
	}
}

func paths(t *target) (out []string) {
	for _, f := range t.files.facts {
		out = append(out, f.Path)
	}
	return out
}

func TestMayHold(t *testing.T) {
	f := &factTags{first: []byte("b1"), last: []byte("d")}
	tag := f.Tags()[tagKeys]
	for keys, want := range map[string]bool{"a": false, "b": true, "b1": true, "c": true, "d": true, "e": false, "a,e": false, "a,c,e": true} {
		a := addWithTag(tagKeys, tag)
		if got := mayHold(a, strings.Split(keys, ",")); got != want {
			t.Errorf("%s: %v", keys, got)
		}
	}
}

func addWithTag(name, value string) *deltalog.Add {
	return &deltalog.Add{Tags: map[string]*string{name: &value}}
}
