package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

var v2Policy = map[string]string{"delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsStruct": "true"}

func keysOf(t testing.TB, s storage.Store, prefix string) []string {
	t.Helper()
	var out []string
	for o, err := range s.List(context.Background(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o.Key)
	}
	return out
}

func TestWriteCheckpoint_V2(t *testing.T) {
	ctx := context.Background()
	open := func(t *testing.T, store storage.Store) *Log {
		return Open(store, Options{Clock: newTestClock().Now, Sleep: noSleep, SidecarActions: 3})
	}
	// table has 7 live files, 2 tombstones, a mark and a domain.
	table := func(t *testing.T, l *Log, props map[string]string) *Snapshot {
		s := newTable(t, l, []string{"p"}, props, V2Checkpoint, DomainMetadataF)
		for i := range 9 {
			tx := l.Begin(s)
			a := file(fmt.Sprint("f", i), "x")
			a.Stats = fmt.Sprintf(`{"numRecords":%d,"minValues":{"id":%d},"maxValues":{"id":%d},"nullCount":{"id":0}}`, i, i, i)
			tx.Add(a)
			if i >= 7 {
				old, _, err := s.File(ctx, fmt.Sprint("f", i-7))
				if err != nil {
					t.Fatal(err)
				}
				tx.Remove(old.Remove(time.Now().AddDate(10, 0, 0), true))
			}
			tx.SetTxn("app", int64(i))
			mustCommit(t, tx, CommitOptions{})
			s = mustLatest(t, l)
		}
		tx := l.Begin(s)
		tx.SetDomain(&DomainMetadata{Domain: "d", Configuration: "c"})
		mustCommit(t, tx, CommitOptions{Operation: "X"})
		return mustLatest(t, l)
	}
	t.Run("W-707 R-704 JSON top level, sidecars, equal state", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := open(t, m)
		s := table(t, l, v2Policy)
		// The commit of version 10 wrote it by itself (W-706).
		tops := keysOf(t, m, LogDir+"00000000000000000010.checkpoint.")
		sidecars := keysOf(t, m, sidecarDir)
		if len(tops) != 1 || !uuidName.MatchString(logName(tops[0])) || len(sidecars) != 3 {
			t.Fatalf("%q %q", tops, sidecars)
		}
		top := string(readKey(t, m, tops[0]))
		if !strings.HasPrefix(top, `{"checkpointMetadata":{"version":10}}`) || strings.Count(top, `{"sidecar":`) != 3 || strings.Contains(top, `"add"`) {
			t.Errorf("%s", top)
		}
		got := mustLatest(t, open(t, m))
		if got.CheckpointVersion() != 10 || len(got.tail) != 0 {
			t.Fatalf("checkpoint %d, %d commits", got.CheckpointVersion(), len(got.tail))
		}
		sameState(t, s, got)
		if err := l.WriteCheckpoint(ctx, got); err != nil {
			t.Fatal(err)
		}
		if again := keysOf(t, m, LogDir+"00000000000000000010.checkpoint."); len(again) != 1 || len(keysOf(t, m, sidecarDir)) != 3 {
			t.Error("W-104 a second checkpoint of the version was written")
		}
	})
	t.Run("W-707 policy classic writes a classic file, R-305 the policy needs its feature", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := open(t, m)
		table(t, l, map[string]string{"delta.checkpointPolicy": "classic"})
		if _, err := m.Head(ctx, CheckpointKey(10)); err != nil {
			t.Error(err)
		}
	})
	t.Run("W-707 an empty table has no sidecars", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := open(t, m)
		s := newTable(t, l, nil, v2Policy, V2Checkpoint)
		if err := l.WriteCheckpoint(ctx, s); err != nil {
			t.Fatal(err)
		}
		remove(t, m, CommitKey(0))
		append1(t, l, s, "a")
		if got := paths(t, mustLatest(t, l)); len(got) != 1 {
			t.Errorf("%q", got)
		}
	})
	t.Run("R-704 a missing sidecar: the older checkpoint is used", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := open(t, m)
		s := table(t, l, v2Policy)
		paths(t, s) // before a part of it goes
		remove(t, m, keysOf(t, m, sidecarDir)[1])
		got := mustLatest(t, open(t, m))
		if got.CheckpointVersion() != -1 {
			t.Errorf("checkpoint %d", got.CheckpointVersion())
		}
		sameState(t, s, got)
	})
	for _, mode := range []faultstore.Mode{faultstore.FailBefore, faultstore.FailAfter, faultstore.CrashBefore, faultstore.CrashAfter} {
		t.Run(fmt.Sprint("W-705 a fault at every operation leaves a readable table, mode ", mode), func(t *testing.T) {
			m := storage.NewMemory("m")
			s := table(t, Open(m, Options{Clock: newTestClock().Now, Sleep: noSleep, SidecarActions: 3, NoCheckpoints: true}), v2Policy)
			for n := 0; ; n++ {
				mem := storage.NewMemory("x")
				for _, k := range keysOf(t, m, "") {
					put(t, mem, k, string(readKey(t, m, k)))
				}
				fs := faultstore.New(mem, faultstore.Rule{Match: faultstore.After(n, func(c faultstore.Call) bool { return c.Op.Commits() }), Mode: mode})
				l := open(t, fs)
				err := l.WriteCheckpoint(ctx, mustLatest(t, l))
				if err == nil {
					break
				}
				if errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				sameState(t, s, mustLatest(t, open(t, mem)))
				if n > 100 {
					t.Fatal("no end: ", err)
				}
			}
		})
	}
	t.Run("W-308 no checkpoint before the protected version", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := open(t, m)
		s := newTable(t, l, nil, nil, CheckpointProtection)
		append1(t, l, s, "a")
		old := mustLatest(t, l)
		tx := l.Begin(old)
		tx.SetMetadata(withProps(old, "delta.requireCheckpointProtectionBeforeVersion", "2"))
		mustCommit(t, tx, CommitOptions{Operation: "SET TBLPROPERTIES"})
		wantError(t, l.WriteCheckpoint(ctx, old), ErrInvalid, "DELTA_CHECKPOINT_PROTECTED")
		if err := l.WriteCheckpoint(ctx, mustLatest(t, l)); err != nil {
			t.Error(err)
		}
	})
}

// sameState compares everything that a snapshot shows.
func sameState(t testing.TB, want, got *Snapshot) {
	t.Helper()
	ctx := context.Background()
	show := func(s *Snapshot) string {
		var b strings.Builder
		put := func(v any) {
			text, err := marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(text, '\n'))
		}
		put(s.Protocol)
		put(s.Metadata)
		for _, x := range s.Txns() {
			put(x)
		}
		for _, x := range s.Domains() {
			put(x)
		}
		files, err := s.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			g := *f
			g.DataChange = false
			put(g)
		}
		dead, err := s.Tombstones(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{}
		for _, r := range dead {
			lines = append(lines, fmt.Sprint(r.Path, r.DeletionTimestamp, *r.Size))
		}
		for _, l := range slices.Sorted(slices.Values(lines)) {
			put(l)
		}
		return b.String()
	}
	if a, b := show(want), show(got); want.Version != got.Version || a != b {
		t.Errorf("version %d:\n%s\nversion %d:\n%s", want.Version, a, got.Version, b)
	}
}

// TestSnapshot_TxnRetention: marks of applications expire by property.
func TestSnapshot_TxnRetention(t *testing.T) {
	ctx := context.Background()
	clock := &fixedClock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m := storage.NewMemory("m")
	l := Open(m, Options{Clock: clock.Now, Sleep: noSleep})
	s := newTable(t, l, nil, map[string]string{"delta.setTransactionRetentionDuration": "interval 2 days"})
	put(t, m, CommitKey(1), `{"txn":{"appId":"undated","version":1}}`+"\n")
	clock.at = clock.at.AddDate(0, 0, 1)
	tx := l.Begin(mustLatest(t, l))
	tx.SetTxn("old", 1)
	mustCommit(t, tx, CommitOptions{})
	clock.at = clock.at.AddDate(0, 0, 2)
	tx = l.Begin(mustLatest(t, l))
	tx.SetTxn("young", 1)
	mustCommit(t, tx, CommitOptions{})
	names := func(s *Snapshot) string {
		var out []string
		for _, x := range s.Txns() {
			out = append(out, x.AppID)
		}
		return strings.Join(out, " ")
	}
	s = mustLatest(t, l)
	t.Run("R-227 in the snapshot", func(t *testing.T) {
		if got := names(s); got != "old young" {
			t.Errorf("%q", got)
		}
		clock.at = clock.at.Add(time.Second)
		if _, ok := s.TxnVersion("old"); ok || names(s) != "young" {
			t.Errorf("%q", names(s))
		}
	})
	t.Run("R-227 in checkpoints", func(t *testing.T) {
		if err := l.WriteCheckpoint(ctx, s); err != nil {
			t.Fatal(err)
		}
		s := mustLatest(t, l)
		if len(s.txns) != 1 || s.CheckpointVersion() != 3 {
			t.Errorf("%v from checkpoint %d", s.txns, s.CheckpointVersion())
		}
	})
	t.Run("R-227 W-853 an expired mark does not stop its application", func(t *testing.T) {
		tx := l.Begin(mustLatest(t, l))
		tx.SetTxn("old", 1)
		tx.Add(file("a"))
		if r := mustCommit(t, tx, CommitOptions{}); r.AlreadyDone {
			t.Error("done already")
		}
	})
}
