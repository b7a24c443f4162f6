package deltalog

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// racyStore leaves out keys of listings, as a listing does that ran while they were
// created: each key of hide as often as its number says.
type racyStore struct {
	storage.Store
	hide  map[string]int
	lists int
}

func (s *racyStore) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Object, error] {
	s.lists++
	return func(yield func(storage.Object, error) bool) {
		for o, err := range s.Store.List(ctx, prefix, after) {
			if s.hide[o.Key] > 0 {
				s.hide[o.Key]--
				continue
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

func hideOnce(versions ...int64) map[string]int {
	out := map[string]int{}
	for _, v := range versions {
		out[CommitKey(v)] = 1
	}
	return out
}

// TestLog_ListingIsNotAtomic: a commit that one listing misses is no hole.
func TestLog_ListingIsNotAtomic(t *testing.T) {
	ctx := context.Background()
	open := func(t *testing.T, commits int, hide map[string]int) (*Log, *racyStore) {
		_, m := testLog(t)
		rawTable(t, m, commits)
		s := &racyStore{Store: m}
		l := Open(s, Options{Clock: newTestClock().Now, Sleep: noSleep})
		s.hide = hide
		return l, s
	}
	check := func(t *testing.T, s *Snapshot, err error, version int64) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if got := paths(t, s); s.Version != version || len(got) != int(version)+1 {
			t.Errorf("version %d with %d files, want version %d", s.Version, len(got), version)
		}
	}
	for _, missed := range []int64{0, 3, 8} {
		t.Run(fmt.Sprintf("R-103 latest, commit %d missed once", missed), func(t *testing.T) {
			l, _ := open(t, 10, hideOnce(missed))
			s, err := l.Latest(ctx)
			check(t, s, err, 9)
		})
	}
	t.Run("R-103 the newest commit missed is an older version", func(t *testing.T) {
		l, _ := open(t, 10, hideOnce(9))
		s, err := l.Latest(ctx)
		check(t, s, err, 8)
	})
	t.Run("R-103 missed by both listings, found by name", func(t *testing.T) {
		l, _ := open(t, 10, map[string]int{CommitKey(4): 1 << 20, CommitKey(5): 1 << 20})
		s, err := l.Latest(ctx)
		check(t, s, err, 9)
	})
	t.Run("R-103 what the second listing adds beyond the first is not used", func(t *testing.T) {
		l, s := open(t, 10, nil)
		s.hide = map[string]int{CommitKey(3): 1, CommitKey(8): 2, CommitKey(9): 1}
		snap, err := l.Latest(ctx)
		check(t, snap, err, 7)
	})
	t.Run("R-103 from the hint, after a checkpoint", func(t *testing.T) {
		l, s := open(t, 10, nil)
		at, err := l.At(ctx, 5)
		check(t, at, err, 5)
		if err := l.WriteCheckpoint(ctx, at); err != nil {
			t.Fatal(err)
		}
		s.hide = hideOnce(6, 7)
		snap, err := l.Latest(ctx)
		check(t, snap, err, 9)
		if snap.CheckpointVersion() != 5 {
			t.Errorf("checkpoint %d", snap.CheckpointVersion())
		}
	})
	t.Run("R-103 an old version below a checkpoint", func(t *testing.T) {
		l, s := open(t, 10, nil)
		if err := l.WriteCheckpoint(ctx, mustLatest(t, l)); err != nil {
			t.Fatal(err)
		}
		s.hide = hideOnce(2)
		snap, err := l.At(ctx, 4)
		check(t, snap, err, 4)
	})
	t.Run("R-103 incremental update", func(t *testing.T) {
		l, s := open(t, 10, nil)
		old, err := l.At(ctx, 4)
		check(t, old, err, 4)
		for _, missed := range [][]int64{{5}, {7}, {5, 6, 8}} {
			s.hide = hideOnce(missed...)
			snap, err := l.Update(ctx, old)
			check(t, snap, err, 9)
		}
	})
	t.Run("R-103 ranges of commits", func(t *testing.T) {
		l, s := open(t, 10, nil)
		for _, missed := range [][]int64{{2}, {4}, {7}, {2, 3, 4, 5, 6, 7}} {
			s.hide = hideOnce(missed...)
			var got []int64
			for c, err := range l.Commits(ctx, 2, 7) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, c.Version)
			}
			if !slices.Equal(got, []int64{2, 3, 4, 5, 6, 7}) {
				t.Errorf("missed %v: %v", missed, got)
			}
		}
	})
	t.Run("R-103 timeline, history and times", func(t *testing.T) {
		l, s := open(t, 10, nil)
		snap := mustLatest(t, l)
		s.hide = hideOnce(5)
		line, err := snap.Timeline(ctx)
		if err != nil || line.First() != 0 || line.Last() != 9 {
			t.Fatalf("%v: %+v", err, line)
		}
		s.hide = hideOnce(9)
		h, err := snap.History(ctx, 0)
		if err != nil || len(h) != 10 || h[0].Version != 9 {
			t.Fatalf("%v: %d entries", err, len(h))
		}
		s.hide = hideOnce(1)
		at, err := l.AtTime(ctx, h[6].Time, AtTimeOptions{})
		check(t, at, err, h[6].Version)
	})
	t.Run("R-103 winners of a lost race and the checkpoint after it", func(t *testing.T) {
		l, s := open(t, 9, nil)
		snap := mustLatest(t, l)
		for v := range int64(3) {
			put(t, s.Store, CommitKey(9+v), addLine(fmt.Sprintf("f%d", 9+v))+"\n")
		}
		s.hide = hideOnce(9, 10)
		tx := l.Begin(snap)
		tx.Add(file("mine"))
		if r := mustCommit(t, tx, CommitOptions{}); r.Version != 12 || r.Winners != 3 {
			t.Errorf("%+v", r)
		}
		s.hide = hideOnce(11)
		check(t, mustLatest(t, l), nil, 12)
	})
	t.Run("R-103 a commit that is really missing stays corrupt", func(t *testing.T) {
		l, s := open(t, 10, nil)
		old, err := l.At(ctx, 2)
		check(t, old, err, 2)
		remove(t, s.Store, CommitKey(4))
		_, err = l.Latest(ctx)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
		_, err = l.Update(ctx, old)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
		var last error
		for _, err := range l.Commits(ctx, 2, 6) {
			last = err
		}
		wantError(t, last, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	})
	t.Run("R-103 a log without holes is listed once", func(t *testing.T) {
		l, s := open(t, 10, nil)
		mustLatest(t, l)
		if s.lists != 1 {
			t.Errorf("%d listings", s.lists)
		}
	})
	t.Run("R-103 a wide hole costs a bounded number of looks", func(t *testing.T) {
		l, s := open(t, 2, nil)
		put(t, s.Store, CommitKey(1<<40), addLine("far")+"\n")
		start := time.Now()
		_, err := l.Latest(ctx)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
		if d := time.Since(start); d > 5*time.Second || s.lists > 4 {
			t.Errorf("%d listings in %v", s.lists, d)
		}
	})
}
