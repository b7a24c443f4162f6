package apply

import (
	"context"
	"slices"
	"testing"
)

// A snapshot that comes after a newer one was applied refuses the run by name, and
// what was applied is not taken for late (auto-cdc 2.8, E62).
func TestRun_LateSnapshot(t *testing.T) {
	row := []string{"(1, Ann, Rome)"}
	at := func(v string) textSnapshot { return textSnapshot{version: v, rows: row} }
	run := func(b *bench, held []textSnapshot, next ...textSnapshot) error {
		spec := b.snapshotSpec()
		spec.Snapshots = &textSnapshots{n: b.n, list: next, held: held}
		_, err := Run(context.Background(), spec, b.opts)
		return err
	}
	b := newBench(t, "")
	two := []textSnapshot{at("1"), at("5")}
	if err := run(b, two, two...); err != nil {
		t.Fatal(err)
	}
	// Both were applied in one run; neither is late in the next.
	seven := append(slices.Clone(two), at("7"))
	if err := run(b, seven, at("7")); err != nil {
		t.Fatal(err)
	}
	before := b.pinned(t).snap.Version
	wantCode(t, run(b, []textSnapshot{at("1"), at("3"), at("5"), at("7"), at("8")}, at("8")), CodeOutOfOrderSnapshot)
	if now := b.pinned(t).snap.Version; now != before {
		t.Errorf("the refused run committed version %d", now)
	}
	// Away with it, and old folders may be cleaned up.
	if err := run(b, []textSnapshot{at("7"), at("8")}, at("8")); err != nil {
		t.Fatal(err)
	}
	if got := len(b.pinned(t).state.snapshot.Applied); got != 2 {
		t.Errorf("the state remembers %d versions, want those that the source still shows", got)
	}
	// A state that kept no list takes what it finds for applied.
	c := newBench(t, "")
	if err := run(c, nil, at("5")); err != nil {
		t.Fatal(err)
	}
	if err := run(c, []textSnapshot{at("1"), at("5"), at("6")}, at("6")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, run(c, []textSnapshot{at("1"), at("2"), at("5"), at("6")}), CodeOutOfOrderSnapshot)
}

// An empty first snapshot that tells its columns makes the target and is remembered;
// one that tells none says so.
func TestRun_EmptyFirstSnapshot(t *testing.T) {
	for _, stored := range []string{"1", "2"} {
		t.Run("E62 stored as "+stored, func(t *testing.T) {
			b := newBench(t, "stored-as: "+stored)
			if _, err := Run(context.Background(), b.snapshotSpec(textSnapshot{version: "5", columns: true}), b.opts); err != nil {
				t.Fatal(err)
			}
			if m := b.pinned(t).state.snapshot; m == nil {
				t.Fatal("the version of the empty snapshot is not remembered")
			}
			_, err := b.snapshot("4", []string{"(1, Ann, Rome)"})
			wantCode(t, err, CodeOutOfOrderSnapshot)
			if _, err := b.snapshot("6", []string{"(1, Ann, Rome)"}); err != nil {
				t.Fatal(err)
			}
			if got := b.table(t); len(got) != 1 {
				t.Errorf("table %q", got)
			}
		})
	}
	t.Run("E62 beside a change flow", func(t *testing.T) {
		b := newBench(t, "")
		b.must(t, "U 1@1 (Ann, Rome)", "U 2@6 (Bob, Oslo)")
		if _, err := b.snapshot("3", nil); err != nil {
			t.Fatal(err)
		}
		b.wantTable(t, "2, Bob, Oslo")
		b.must(t, "U 3@2 (Cy, Lima)", "U 4@3 (Di, Bonn)")
		b.wantTable(t, "2, Bob, Oslo", "4, Di, Bonn")
	})
	b := newBench(t, "")
	res, err := b.snapshot("5", nil)
	if err != nil || len(res.Warnings) != 1 {
		t.Errorf("%+v, %v: want a warning that nothing is recorded", res, err)
	}
}

// A flow whose first commit moves positions only is known by name: inspect shows it,
// reset finds it, and collection waits for it (apply-state 7.1).
func TestRun_PositionsOnlyFlow(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		keys  int
	}{{"nothing read", nil, 0}, {"all of it stale", []string{"U 1@3 (Ann, Bonn)"}, 1}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "")
			b.must(t, "U 1@5 (Ann, Rome)")
			spec := b.spec()
			spec.Flow.Name, spec.Source = "g", &textSource{name: "file:other", lines: c.lines}
			if _, err := Run(context.Background(), spec, b.opts); err != nil {
				t.Fatal(err)
			}
			r, err := Inspect(context.Background(), b.operator(), b.opts)
			if err != nil || len(r.Flows) != 2 || r.Flows[1].Name != "g" || len(r.Flows[1].Positions) != 1 || len(r.Flows[1].Keys) != c.keys {
				t.Fatalf("%+v, %v", r, err)
			}
			if last := b.pinned(t).state.flows["g"].Last; last == 0 {
				t.Error("the time of the flow's last commit is unknown: collection would not wait for it")
			}
			if _, err := Reset(context.Background(), b.operator(), "g", false, b.opts); err != nil {
				t.Fatal(err)
			}
			// It goes on as the flow that it turns out to be.
			spec.Source = &textSource{name: "file:other", lines: append(slices.Clone(c.lines), "U 1@9 (Ann, Oslo)")}
			if _, err := Run(context.Background(), spec, b.opts); err != nil {
				t.Fatal(err)
			}
			b.wantTable(t, "1, Ann, Oslo")
		})
	}
}
