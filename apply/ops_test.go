package apply

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/storage"
)

func (b *bench) operator() Operator { return Operator{Store: b.store, Name: "t"} }

func pointer[T any](v T) *T { return &v }

// Rewind restores rows, hidden state and positions together (E69): what the source
// still has is read again from there.
func TestRewind_RowsStateAndPositions(t *testing.T) {
	ctx := context.Background()
	for _, stored := range []string{"1", "2"} {
		t.Run("E69 stored as "+stored, func(t *testing.T) {
			b := newBench(t, "stored-as: "+stored)
			first := b.must(t, "U 1@5 (Ann, Rome)", "U 2@5 (Bob, Oslo)")
			then := b.table(t)
			b.must(t, "D 2@9", "U 1@7 (Ann, Bonn)")
			last := b.table(t)
			res, err := Rewind(ctx, b.operator(), &first.Version, nil, b.opts)
			if err != nil || !res.Committed || res.To != first.Version {
				t.Fatalf("%+v, %v", res, err)
			}
			b.wantTable(t, then...)
			// The positions went back too: the same events are read and applied again.
			again := b.must(t)
			if again.Events.Read != 2 {
				t.Errorf("read %d events again, want 2", again.Events.Read)
			}
			b.wantTable(t, last...)
			// The tombstone of key 2 is there again.
			b.must(t, "U 2@8 (Zoe, Zug)")
			if stored == "1" {
				b.wantTable(t, last...)
			}
		})
	}
	t.Run("to a time, and back to now", func(t *testing.T) {
		b := newBench(t, "")
		b.opts.Clock = time.Now // as the times of the memory store
		b.must(t, "U 1@5 (Ann, Rome)")
		time.Sleep(5 * time.Millisecond)
		at := time.Now()
		time.Sleep(5 * time.Millisecond)
		b.must(t, "U 1@7 (Ann, Bonn)")
		if _, err := Rewind(ctx, b.operator(), nil, &at, b.opts); err != nil {
			t.Fatal(err)
		}
		b.wantTable(t, "1, Ann, Rome")
	})
	t.Run("after TARGET_REWOUND by another writer", func(t *testing.T) {
		b := newBench(t, "")
		first := b.must(t, "U 1@5 (Ann, Rome)")
		b.must(t, "U 1@7 (Ann, Bonn)")
		tab, err := delta.Open(ctx, b.store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Restore(ctx, delta.RestoreOptions{Version: &first.Version}); err != nil {
			t.Fatal(err)
		}
		_, err = b.run("U 1@6 (Ann, Lima)")
		wantCode(t, err, CodeTargetRewound)
		if _, err := Rewind(ctx, b.operator(), &first.Version, nil, b.opts); err != nil {
			t.Fatal(err)
		}
		b.must(t, "U 1@6 (Ann, Lima)")
		b.wantTable(t, "1, Ann, Bonn")
	})
	t.Run("not across a full refresh", func(t *testing.T) {
		b := newBench(t, "")
		first := b.must(t, "U 1@5 (Ann, Rome)")
		if _, err := Refresh(ctx, b.operator(), b.opts); err != nil {
			t.Fatal(err)
		}
		_, err := Rewind(ctx, b.operator(), &first.Version, nil, b.opts)
		wantCode(t, err, CodeRewindAcrossRefresh)
	})
	t.Run("files gone", func(t *testing.T) {
		b := newBench(t, "")
		first := b.must(t, "U 1@5 (Ann, Rome)")
		for o, err := range b.store.List(ctx, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Key) > 5 && o.Key[:5] == "part-" {
				defer func() { _ = b.store.Delete(ctx, o.Key) }()
			}
		}
		b.must(t, "U 1@7 (Ann, Bonn)")
		snap, err := delta.Open(ctx, b.store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		old, err := snap.SnapshotAt(ctx, first.Version)
		if err != nil {
			t.Fatal(err)
		}
		files, err := old.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.store.Delete(ctx, files[0].Path); err != nil {
			t.Fatal(err)
		}
		_, err = Rewind(ctx, b.operator(), &first.Version, nil, b.opts)
		wantCode(t, err, CodeRewindGone)
	})
	t.Run("a table that is no target", func(t *testing.T) {
		_, err := Rewind(ctx, Operator{Store: storage.NewMemory("x"), Name: "x"}, pointer(int64(0)), nil, Options{})
		wantCode(t, err, CodeTargetMissing)
		_, err = Rewind(ctx, Operator{Store: storage.NewMemory("x"), Name: "x"}, nil, nil, Options{})
		wantCode(t, err, "INVALID_OPTION")
	})
}

func TestRefresh_ForgetsEverything(t *testing.T) {
	ctx := context.Background()
	t.Run("types, keys and storage type may change", func(t *testing.T) {
		b := newBench(t, "data: n INT")
		b.must(t, "U 1@5 (7)", "D 2@9")
		if _, err := Refresh(ctx, b.operator(), b.opts); err != nil {
			t.Fatal(err)
		}
		b.wantTable(t)
		c := newBench(t, "keys: k STRING\ndata: n BIGINT, m STRING\nseq: STRING\nstored-as: 2")
		c.store, c.opts = b.store, b.opts
		c.must(t, "U x@a (7000000000, y)")
		c.wantTable(t, "x, 7000000000, y, a→∞")
		c.must(t, "U x@b (1, y)")
		c.wantTable(t, "x, 1, y, b→∞", "x, 7000000000, y, a→b")
	})
	t.Run("refused by property", func(t *testing.T) {
		b := newBench(t, "")
		b.flow.Properties = map[string]string{propResetAllowed: "false"}
		b.must(t, "U 1@5 (Ann, Rome)")
		_, err := Refresh(ctx, b.operator(), b.opts)
		wantCode(t, err, CodeRefreshNotAllowed)
	})
	t.Run("is the way out of a lost state", func(t *testing.T) {
		b := newBench(t, "")
		b.must(t, "U 1@5 (Ann, Rome)")
		for o, err := range b.store.List(ctx, "_apply/state/", "") {
			if err != nil {
				t.Fatal(err)
			}
			if err := b.store.Delete(ctx, o.Key); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.run("U 1@6 (Ann, Bonn)")
		wantCode(t, err, CodeStateMismatch)
		if _, err := Refresh(ctx, b.operator(), b.opts); err != nil {
			t.Fatal(err)
		}
		b.source = &textSource{name: "file:events"}
		b.must(t, "U 1@6 (Ann, Bonn)")
		b.wantTable(t, "1, Ann, Bonn")
	})
	t.Run("once marks and snapshot versions", func(t *testing.T) {
		b := newBench(t, "")
		b.flow.Once = true
		b.must(t, "U 1@5 (Ann, Rome)")
		if res := b.must(t, "U 1@6 (Ann, Bonn)"); res.Events.Read != 0 {
			t.Fatalf("ONCE read again: %+v", res)
		}
		if _, err := Refresh(ctx, b.operator(), b.opts); err != nil {
			t.Fatal(err)
		}
		b.must(t)
		b.wantTable(t, "1, Ann, Bonn")
		c := newBench(t, "")
		for range 2 {
			if _, err := c.snapshot("4", []string{"(1, Ann, Rome)"}); err != nil {
				t.Fatal(err)
			}
			if _, err := Refresh(ctx, c.operator(), c.opts); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestReset_ForgetsPositions(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "")
	b.must(t, "U 1@5 (Ann, Rome)", "D 2@9")
	_, err := Reset(ctx, b.operator(), "nobody", false, b.opts)
	wantCode(t, err, CodeUnknownFlow)
	_, err = Reset(ctx, b.operator(), "f", true, b.opts)
	wantCode(t, err, CodeUnknownFlow)
	if _, err := Reset(ctx, b.operator(), "f", false, b.opts); err != nil {
		t.Fatal(err)
	}
	// E69: the tombstone rejects what is read again.
	if res := b.must(t, "U 2@3 (Bob, Oslo)"); res.Events.Read != 3 || res.Rows != (Rows{}) {
		t.Errorf("%+v", res)
	}
	b.wantTable(t, "1, Ann, Rome")
	b.flow.Name = "g"
	b.source = &textSource{name: "file:g"}
	b.must(t, "U 3@1 (Cy, Lima)")
	if _, err := Reset(ctx, b.operator(), "g", true, b.opts); err != nil {
		t.Fatal(err)
	}
	report, err := Inspect(ctx, b.operator(), b.opts)
	if err != nil || len(report.Flows) != 1 || report.Flows[0].Name != "f" {
		t.Errorf("%+v, %v", report, err)
	}
}

// A run whose target goes back under it stops: what it has read would be lost.
func TestRun_TargetGoesBack(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "")
	first := b.must(t, "U 1@5 (Ann, Rome)")
	b.must(t, "U 1@6 (Ann, Oslo)")
	b.source.lines = append(b.source.lines, "U 1@7 (Ann, Bonn)", "U 1@8 (Ann, Zug)")
	spec := b.spec()
	spec.Flow.BatchRows = 1
	batches := 0
	spec.Progress = func(p Progress) {
		if p.Batches == 1 && batches == 0 {
			batches++
			if _, err := Rewind(ctx, b.operator(), &first.Version, nil, b.opts); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := Run(ctx, spec, b.opts)
	wantCode(t, err, CodeTargetWentBack)
	b.must(t)
	b.wantTable(t, "1, Ann, Zug")
}

// A stream with several targets reads again what a target that went back needs.
func TestRewind_OneOfSeveralTargets(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "")
	root := storage.NewMemory("root")
	spec := b.spec()
	spec.Target = Targets{Name: "root", Root: root, Route: func(event.Table) (string, error) { return "t", nil },
		Open: func(dir string) (storage.Store, error) { return storage.Sub(root, dir), nil }}
	run := func(lines ...string) Result {
		t.Helper()
		b.source.lines = append(b.source.lines, lines...)
		res, err := Run(ctx, spec, b.opts)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	b.store = storage.Sub(root, "t")
	first := run("U 1@5 (Ann, Rome)")
	run("U 1@6 (Ann, Oslo)")
	if _, err := Rewind(ctx, b.operator(), &first.Targets[0].Version, nil, b.opts); err != nil {
		t.Fatal(err)
	}
	b.wantTable(t, "1, Ann, Rome")
	run()
	b.wantTable(t, "1, Ann, Oslo")
	if res := run(); res.Events.Read != 0 {
		t.Errorf("read %d events once more", res.Events.Read)
	}
}
