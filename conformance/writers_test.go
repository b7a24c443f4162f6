package conformance_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/conformance/engines"
)

// stream is a table of apply's with a growing input.
type stream struct {
	t           *testing.T
	path, input string
	flow        apply.Flow
}

func newStream(t *testing.T) *stream {
	dir := t.TempDir()
	return &stream{t: t, path: filepath.Join(dir, "target"), input: filepath.Join(dir, "events.jsonl"),
		flow: apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "seq", ExceptColumnList: []string{"seq", "op"}, ApplyAsDeletes: "op = 'D'"}}
}

// run adds events to the input and applies what is new.
func (x *stream) run(events ...string) (apply.Result, error) {
	x.t.Helper()
	f, err := os.OpenFile(x.input, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, e := range events {
		if _, err := f.WriteString(e + "\n"); err != nil {
			x.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		x.t.Fatal(err)
	}
	o, err := source.Open(ctx, source.Spec{Format: source.Rows, From: []string{x.input}, NoOp: true})
	if err != nil {
		x.t.Fatal(err)
	}
	defer o.Source.Close()
	return apply.Run(ctx, apply.Spec{Source: o.Source, NewDecoder: o.NewDecoder, Flow: x.flow,
		Target: apply.Targets{Store: at(x.t, x.path), Name: "target"}}, apply.Options{})
}

func (x *stream) must(events ...string) {
	x.t.Helper()
	if _, err := x.run(events...); err != nil {
		x.t.Fatal(err)
	}
}

func upsert(id, seq, name, city string) string {
	return `{"id":` + id + `,"seq":` + seq + `,"op":"U","name":"` + name + `","city":"` + city + `"}`
}

func row(id, name, city string) string {
	return `{"id":` + id + `,"name":"` + name + `","city":"` + city + `"}`
}

// Other engines write the target between two batches; a late, a tied and a newer
// event of a rewritten key do what they would have done (apply-state 5, 8), and
// every engine sees the same feed.
func TestTarget_OtherEngines(t *testing.T) {
	for _, e := range engines.All(t) {
		start := func(t *testing.T) *stream {
			x := newStream(t)
			x.must(upsert("1", "5", "Ann", "Rome"), upsert("2", "5", "Bob", "Oslo"))
			x.must(upsert("3", "5", "Cy", "Lima"), upsert("1", "9", "Ann", "Rome"))
			return x
		}
		check := func(t *testing.T, x *stream, want ...string) {
			t.Helper()
			engines.SameRows(t, e.Rows(t, x.path), want)
		}
		finish := func(t *testing.T, x *stream, third string) {
			t.Helper()
			x.must(upsert("1", "8", "Late", "Bern"), upsert("2", "4", "Late", "Bern"), upsert("2", "5", "Bob", "Bern"))
			want := []string{row("1", "Ann", "Rome"), row("2", "Bob", "Oslo")}
			if third != "" {
				want = append(want, third)
			}
			check(t, x, want...)
			from := e.Version(t, x.path)
			x.must(upsert("1", "9", "Anna", "Rome"), upsert("2", "6", "Bob", "Bonn"))
			want[0], want[1] = row("1", "Anna", "Rome"), row("2", "Bob", "Bonn")
			check(t, x, want...)
			feeds := [][]string{}
			for _, reader := range engines.All(t) {
				feeds = append(feeds, reader.Changes(t, x.path, from+1, e.Version(t, x.path)))
			}
			engines.SameRows(t, feeds[0], feeds[1])
			if len(feeds[0]) != 4 {
				t.Errorf("feed %q", feeds[0])
			}
		}
		t.Run(e.Name()+" OPTIMIZE", func(t *testing.T) {
			x := start(t)
			e.Optimize(t, x.path)
			finish(t, x, row("3", "Cy", "Lima"))
		})
		t.Run(e.Name()+" UPDATE", func(t *testing.T) {
			x := start(t)
			e.Update(t, x.path, map[string]string{"city": "'Quito'"}, "id = 3")
			x.must(upsert("3", "4", "Late", "Bern"))
			finish(t, x, row("3", "Cy", "Quito"))
		})
		t.Run(e.Name()+" MERGE", func(t *testing.T) {
			x := start(t)
			e.Merge(t, x.path, engines.MergeOptions{On: "t.id = s.id"}, row("3", "Cy", "Quito"), row("4", "Di", "Kyiv"))
			x.must(upsert("3", "4", "Late", "Bern"), `{"id":4,"seq":1,"op":"D"}`)
			finish(t, x, row("3", "Cy", "Quito"))
		})
		t.Run(e.Name()+" DELETE", func(t *testing.T) {
			x := start(t)
			e.Delete(t, x.path, "id = 3")
			finish(t, x, "")
			x.must(upsert("3", "1", "Cy", "Lima")) // comes back: a deletion by hand leaves no tombstone
			check(t, x, row("1", "Anna", "Rome"), row("2", "Bob", "Bonn"), row("3", "Cy", "Lima"))
		})
		if e.Name() == "Spark" {
			t.Run("Spark UPDATE, MERGE and DELETE by deletion vectors", func(t *testing.T) {
				x := start(t)
				e.SQL(t, "ALTER TABLE delta.`"+x.path+"` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", nil)
				x.must(upsert("5", "5", "Ed", "Graz"), upsert("6", "5", "Flo", "Nice"), upsert("7", "5", "Gus", "Kiel"))
				e.Update(t, x.path, map[string]string{"city": "'Quito'"}, "id = 3")
				e.Update(t, x.path, map[string]string{"city": "'Linz'"}, "id = 5") // 6 and 7 stay in the file
				if n := withVectors(t, x.path); n == 0 {
					t.Error("Spark wrote no deletion vector: the case shows nothing")
				}
				e.Merge(t, x.path, engines.MergeOptions{On: "t.id = s.id"}, row("6", "Flo", "Nizza"))
				e.Delete(t, x.path, "id = 7")
				x.must(upsert("3", "4", "Late", "Bern"), upsert("5", "4", "Late", "Bern"), upsert("6", "4", "Late", "Bern"))
				check(t, x, row("1", "Ann", "Rome"), row("2", "Bob", "Oslo"), row("3", "Cy", "Quito"), row("5", "Ed", "Linz"), row("6", "Flo", "Nizza"))
				x.must(`{"id":5,"seq":6,"op":"D"}`, `{"id":6,"seq":6,"op":"D"}`)
				finish(t, x, row("3", "Cy", "Quito"))
			})
		}
		t.Run(e.Name()+" RESTORE", func(t *testing.T) {
			x := start(t)
			e.Restore(t, x.path, 1)
			_, err := x.run(upsert("1", "8", "Late", "Bern"))
			var refused *apply.Error
			if !errors.As(err, &refused) || refused.Code != apply.CodeTargetRewound {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), "--accept-rows") {
				t.Errorf("the error names no way out: %v", err)
			}
		})
	}
}

// withVectors is how many files of a table have a deletion vector.
func withVectors(t *testing.T, path string) (n int) {
	t.Helper()
	snap, err := open(t, path).Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.DeletionVector != nil {
			n++
		}
	}
	return n
}
