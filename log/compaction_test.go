package deltalog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

// busyTable commits n versions of everything that reconciles: files, vectors, marks,
// domains, properties. It writes no checkpoints.
func busyTable(t testing.TB, l *Log, n int, seed uint64) *Snapshot {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := newTable(t, l, nil, map[string]string{"delta.enableDeletionVectors": "true"}, DeletionVectors, DomainMetadataF)
	for i := 1; i < n; i++ {
		files, err := s.FileList(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		tx := l.Begin(s)
		tx.Add(withRows(file(fmt.Sprint("f", i)), i))
		if len(files) > 0 {
			old := files[rnd.IntN(len(files))]
			switch rnd.IntN(3) {
			case 0:
				tx.Remove(old.Remove(l.Now(), true))
			case 1:
				setVector(tx, old, dvOf(fmt.Sprint("v", i)), true)
			}
		}
		if rnd.IntN(3) == 0 {
			tx.SetTxn(fmt.Sprint("app", rnd.IntN(2)), int64(i))
		}
		if rnd.IntN(3) == 0 {
			tx.SetDomain(&DomainMetadata{Domain: fmt.Sprint("d", rnd.IntN(2)), Configuration: fmt.Sprint(i), Removed: rnd.IntN(2) == 0})
		}
		if rnd.IntN(8) == 0 {
			tx.SetMetadata(withProps(s, "k", fmt.Sprint(i)))
		}
		mustCommit(t, tx, CommitOptions{Operation: "UPDATE"})
		s = mustLatest(t, l)
	}
	return s
}

func quietLog(m storage.Store) *Log {
	return Open(m, Options{Clock: newTestClock().Now, Sleep: noSleep, NoCheckpoints: true})
}

func TestCompaction(t *testing.T) {
	ctx := context.Background()
	// tailShape lists the files that a snapshot of the newest version was read from.
	tailShape := func(t *testing.T, l *Log) []string {
		files, err := l.listOnce(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		var ck *checkpointSet
		if sets := checkpointsUpTo(files, 1<<62); len(sets) > 0 {
			ck = sets[0]
		}
		seg, err := buildSegment(files, ck, newestVersion(files))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range seg.tail {
			if f.plain != nil {
				out = append(out, fmt.Sprintf("%d-%d", f.version, f.last))
			} else {
				out = append(out, fmt.Sprint(f.version))
			}
		}
		return out
	}
	t.Run("R-721 R-107 random ranges: the state is that of the plain commits", testenv.MakeCheck(func(rt *rapid.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		n := rapid.IntRange(3, 14).Draw(rt, "commits")
		want := busyTable(t, l, n, rapid.Uint64().Draw(rt, "seed"))
		for range rapid.IntRange(1, 4).Draw(rt, "ranges") {
			first := rapid.IntRange(0, n-2).Draw(rt, "first")
			last := rapid.IntRange(first+1, n-1).Draw(rt, "last")
			if err := l.WriteCompaction(ctx, int64(first), int64(last)); err != nil {
				rt.Fatal(err)
			}
		}
		if rapid.Bool().Draw(rt, "checkpoint") {
			s, err := l.At(ctx, rapid.Int64Range(0, int64(n-1)).Draw(rt, "at"))
			if err != nil {
				rt.Fatal(err)
			}
			if err := l.WriteCheckpoint(ctx, s); err != nil {
				rt.Fatal(err)
			}
		}
		for v := range int64(n) {
			got, err := l.At(ctx, v)
			if err != nil {
				rt.Fatal(err)
			}
			plain, err := quietLog(noCompactions{m}).At(ctx, v)
			if err != nil {
				rt.Fatal(err)
			}
			sameState(t, plain, got)
		}
		sameState(t, want, mustLatest(t, l))
	}))
	t.Run("R-107 which files are used", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		busyTable(t, l, 12, 7)
		for _, r := range [][2]int64{{0, 3}, {1, 2}, {4, 6}, {4, 8}, {9, 30}} {
			if r[1] < 12 {
				if err := l.WriteCompaction(ctx, r[0], r[1]); err != nil {
					t.Fatal(err)
				}
			} else {
				put(t, m, CompactionKey(r[0], r[1]), "x")
			}
		}
		if got := tailShape(t, l); !slices.Equal(got, []string{"0-3", "4-8", "9", "10", "11"}) {
			t.Errorf("%q", got)
		}
		s, err := l.At(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.WriteCheckpoint(ctx, s); err != nil {
			t.Fatal(err)
		}
		// [0,3] starts at or below the checkpoint.
		if got := tailShape(t, l); !slices.Equal(got, []string{"3", "4-8", "9", "10", "11"}) {
			t.Errorf("%q", got)
		}
	})
	t.Run("R-107 a hole below a compaction file is still a hole", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		busyTable(t, l, 6, 1)
		if err := l.WriteCompaction(ctx, 1, 4); err != nil {
			t.Fatal(err)
		}
		remove(t, m, CommitKey(3))
		_, err := l.Latest(ctx)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	})
	t.Run("R-107 a damaged file falls back to the commits", func(t *testing.T) {
		for _, damage := range []string{"", "garbage", `{"add":{}}`} {
			m := storage.NewMemory("m")
			l := quietLog(m)
			want := busyTable(t, l, 6, 2)
			put(t, m, CompactionKey(1, 4), damage)
			sameState(t, want, mustLatest(t, l))
		}
	})
	t.Run("R-721 content: tombstones, no commitInfo, dataChange false", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		s := newTable(t, l, nil, nil)
		append1(t, l, s, "a")
		s = mustLatest(t, l)
		tx := l.Begin(s)
		tx.Remove(mustFile(t, s, "a").Remove(l.Now(), true))
		tx.Add(file("b"))
		mustCommit(t, tx, CommitOptions{})
		if err := l.WriteCompaction(ctx, 1, 2); err != nil {
			t.Fatal(err)
		}
		text := string(readKey(t, m, CompactionKey(1, 2)))
		if strings.Contains(text, "commitInfo") || strings.Contains(text, `"dataChange":true`) || !strings.Contains(text, `{"remove":{"path":"a"`) || strings.Count(text, "\n") != 2 {
			t.Errorf("%s", text)
		}
		h, err := mustLatest(t, l).History(ctx, 0)
		if err != nil || len(h) != 3 {
			t.Errorf("%d %v", len(h), err)
		}
		if err := l.WriteCompaction(ctx, 1, 2); err != nil {
			t.Errorf("W-104 %v", err)
		}
	})
	t.Run("R-721 illegal ranges", func(t *testing.T) {
		l := quietLog(storage.NewMemory("m"))
		busyTable(t, l, 4, 1)
		for _, r := range [][2]int64{{-1, 2}, {2, 2}, {3, 1}} {
			wantError(t, l.WriteCompaction(ctx, r[0], r[1]), ErrInvalid, "DELTA_INVALID_COMPACTION_RANGE")
		}
		wantError(t, l.WriteCompaction(ctx, 1, 9), ErrNotFound, "DELTA_VERSION_NOT_FOUND")
	})
	t.Run("R-107 golden compacted-log-files-table", func(t *testing.T) {
		for _, archive := range archives(t, "features") {
			if !strings.Contains(archive, "compacted-log-files-table") {
				continue
			}
			dir, roots := unpackLogs(t, archive)
			l := openLocal(t, dir+"/"+roots[0])
			if got := tailShape(t, l); got[0] != "0-5" || got[1] != "6-15" {
				t.Errorf("%q", got)
			}
			// Its compaction files are concatenations, which are seen through.
			s := mustLatest(t, l)
			sameState(t, mustLatest(t, quietLog(noCompactions{l.Store()})), s)
			if n := len(paths(t, s)); n != 2 {
				t.Errorf("%d files", n)
			}
		}
	})
}

func TestChecksum(t *testing.T) {
	ctx := context.Background()
	t.Run("W-725 R-722 after every commit what a replay counts", testenv.MakeCheck(func(rt *rapid.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		n := rapid.IntRange(2, 12).Draw(rt, "commits")
		busyTable(t, l, n, rapid.Uint64().Draw(rt, "seed"))
		for v := range int64(n) {
			s, err := l.At(ctx, v)
			if err != nil {
				rt.Fatal(err)
			}
			c, err := s.Checksum(ctx)
			if err != nil || c == nil {
				rt.Fatalf("version %d: %v %v", v, c, err)
			}
			if err := s.VerifyChecksum(ctx); err != nil {
				rt.Fatal(err)
			}
			st, err := s.state(ctx)
			if err != nil {
				rt.Fatal(err)
			}
			a, _ := json.Marshal(checksumOf(s.TableConfig, st).DeletedCounts)
			b, _ := json.Marshal(c.DeletedCounts)
			if string(a) != string(b) || len(*c.Txns) != len(s.Txns()) || c.TxnID != mustRead(t, l, v).Info.TxnID {
				rt.Fatalf("version %d: %s, want %s, %d marks", v, b, a, len(*c.Txns))
			}
		}
	}))
	t.Run("W-725 without loaded files the chain goes on from the file before", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		newTable(t, l, nil, nil)
		for i := range 5 {
			append1(t, l, mustLatest(t, l), fmt.Sprint("f", i))
		}
		if err := mustLatest(t, l).VerifyChecksum(ctx); err != nil {
			t.Error(err)
		}
		if c, _ := mustLatest(t, l).Checksum(ctx); c == nil || *c.NumFiles != 5 || *c.TableSizeBytes != 50 || c.NumVectors != nil {
			t.Errorf("%+v", c)
		}
		// A gap in the chain: nothing is guessed.
		remove(t, m, ChecksumKey(5))
		append1(t, l, mustLatest(t, l), "x")
		if c, err := mustLatest(t, l).Checksum(ctx); c != nil || err != nil {
			t.Errorf("%+v %v", c, err)
		}
		if err := mustLatest(t, l).VerifyChecksum(ctx); err != nil {
			t.Errorf("absent is no error: %v", err)
		}
		// ... until a writer knows every file.
		s := mustLatest(t, l)
		paths(t, s)
		append1(t, l, s, "y")
		if c, _ := mustLatest(t, l).Checksum(ctx); c == nil || *c.NumFiles != 7 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("W-725 R-224 a live file that comes again is one file", func(t *testing.T) {
		l := quietLog(storage.NewMemory("m"))
		s := newTable(t, l, nil, nil)
		append1(t, l, s, "a")
		for _, loaded := range []bool{true, false} {
			s = mustLatest(t, l)
			again := *mustFile(t, mustLatest(t, l), "a")
			again.DataChange = false
			if loaded {
				paths(t, s)
			}
			tx := l.Begin(s)
			tx.Add(&again)
			mustCommit(t, tx, CommitOptions{Operation: "COMPUTE STATS"})
			s = mustLatest(t, l)
			if c, err := s.Checksum(ctx); err != nil || (c != nil) != loaded || loaded && *c.NumFiles != 1 {
				t.Errorf("loaded %t: %+v %v", loaded, c, err)
			}
		}
	})
	t.Run("W-725 after a lost race", func(t *testing.T) {
		l := quietLog(storage.NewMemory("m"))
		s := newTable(t, l, nil, nil)
		paths(t, s)
		append1(t, l, s, "a")
		append1(t, l, s, "b")
		append1(t, l, s, "c")
		s = mustLatest(t, l)
		if c, _ := s.Checksum(ctx); c == nil || *c.NumFiles != 3 || s.VerifyChecksum(ctx) != nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("R-722 R-723 a mismatch is reported, and the checksum is never the source", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		s := newTable(t, l, nil, nil)
		append1(t, l, s, "a")
		good := string(readKey(t, m, ChecksumKey(1)))
		for _, c := range [][2]string{{`"numFiles":1`, `"numFiles":2`}, {`"tableSizeBytes":10`, `"tableSizeBytes":11`}, {`"id":"table"`, `"id":"x"`}, {`"minWriterVersion":2`, `"minWriterVersion":1`}} {
			if !strings.Contains(good, c[0]) {
				t.Fatalf("%s", good)
			}
			put(t, m, ChecksumKey(1), strings.Replace(good, c[0], c[1], 1))
			wantError(t, mustLatest(t, l).VerifyChecksum(ctx), ErrCorrupt, "DELTA_CHECKSUM_MISMATCH")
			if now := mustLatest(t, l); len(paths(t, now)) != 1 || now.Metadata.ID != "table" || now.Protocol.MinWriterVersion != 2 {
				t.Errorf("the checksum was believed: %+v", now.Metadata)
			}
		}
		put(t, m, ChecksumKey(1), "malformed")
		wantError(t, mustLatest(t, l).VerifyChecksum(ctx), ErrCorrupt, "DELTA_CHECKSUM_MALFORMED")
		append1(t, l, mustLatest(t, l), "b")
	})
	t.Run("R-722 the bins of deleted rows", func(t *testing.T) {
		for n, bin := range map[int64]int{0: 0, 1: 1, 9: 1, 10: 2, 99: 2, 100: 3, 999: 3, 1000: 4, 10_000: 5, 100_000: 6, 999_999: 6, 1_000_000: 7, 9_999_999: 7, 10_000_000: 8, 1<<31 - 2: 8, 1<<31 - 1: 9, 1 << 62: 9} {
			if got := deletedBin(n); got != bin {
				t.Errorf("%d: bin %d, want %d", n, got, bin)
			}
		}
	})
	t.Run("R-722 in-commit timestamp and options", func(t *testing.T) {
		m := storage.NewMemory("m")
		l := quietLog(m)
		newTable(t, l, nil, ictOn, InCommitTimestamp)
		c, err := mustLatest(t, l).Checksum(ctx)
		if err != nil || *c.InCommitTimestamp != *mustRead(t, l, 0).Info.InCommitTimestamp {
			t.Errorf("%+v %v", c, err)
		}
		quiet := Open(storage.NewMemory("n"), Options{Clock: newTestClock().Now, NoChecksums: true})
		if c, err := newTable(t, quiet, nil, nil).Checksum(ctx); c != nil || err != nil {
			t.Errorf("%+v %v", c, err)
		}
	})
	t.Run("R-722 golden crc-full and crc-malformed", func(t *testing.T) {
		for _, archive := range archives(t, "features") {
			full := strings.Contains(archive, "crc-full")
			if !full && !strings.Contains(archive, "crc-malformed") {
				continue
			}
			dir, roots := unpackLogs(t, archive)
			data := readKey(t, openLocal(t, dir+"/"+roots[0]).Store(), ChecksumKey(0))
			c, err := ParseChecksum("x", data)
			if !full {
				wantError(t, err, ErrCorrupt, "DELTA_CHECKSUM_MALFORMED")
				continue
			}
			if err != nil || *c.NumFiles != 10 || *c.TableSizeBytes != 5259 || len(*c.Txns) != 2 || len(*c.Domains) != 3 || c.Protocol.MinReaderVersion != 3 {
				t.Errorf("%+v %v", c, err)
			}
		}
	})
}

// noCompactions hides compaction files.
type noCompactions struct{ storage.Store }

func (s noCompactions) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for o, err := range s.Store.List(ctx, prefix, after) {
			if !strings.Contains(o.Key, ".compacted.") && !yield(o, err) {
				return
			}
		}
	}
}

func TestLog_CleanUp(t *testing.T) {
	ctx := context.Background()
	day := 24 * time.Hour
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	// table makes one version a day, checkpoints at the given versions.
	table := func(t *testing.T, versions int, props map[string]string, checkpoints []int64, features ...Feature) (*Log, *storage.Memory, *fixedClock, *Snapshot) {
		clock := &fixedClock{at: start}
		m := storage.NewMemoryWith("m", storage.MemoryOptions{Clock: clock.Now})
		l := Open(m, Options{Clock: clock.Now, Sleep: noSleep, NoCheckpoints: true, SidecarActions: 2})
		conf := map[string]string{"delta.logRetentionDuration": "interval 5 days"}
		for k, v := range props {
			conf[k] = v
		}
		s := newTable(t, l, nil, conf, features...)
		for v := int64(1); v < int64(versions); v++ {
			clock.at = clock.at.Add(day)
			append1(t, l, s, fmt.Sprint("f", v))
			s = mustLatest(t, l)
			if slices.Contains(checkpoints, v) {
				if err := l.WriteCheckpoint(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
		}
		return l, m, clock, s
	}
	check := func(t *testing.T, l *Log, from, to int64) {
		t.Helper()
		for v := from; v <= to; v++ {
			s, err := l.At(ctx, v)
			if err != nil {
				t.Fatalf("version %d is stranded: %v", v, err)
			}
			if got := paths(t, s); len(got) != int(v) {
				t.Errorf("version %d has %d files", v, len(got))
			}
		}
	}
	t.Run("W-721 below the newest checkpoint that expired", func(t *testing.T) {
		// Version v is of January 1+v; now is January 20, the cut is January 15, 00:00,
		// so version 13 is the newest expired commit and 10 the newest checkpoint below.
		l, m, _, s := table(t, 20, nil, []int64{5, 10, 15})
		if err := l.WriteCompaction(ctx, 3, 6); err != nil {
			t.Fatal(err)
		}
		if err := l.WriteCompaction(ctx, 10, 12); err != nil {
			t.Fatal(err)
		}
		if err := l.WriteCompaction(ctx, 11, 14); err != nil {
			t.Fatal(err)
		}
		dry, err := l.CleanUp(ctx, s, CleanUpOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		before := keysOf(t, m, "")
		r, err := l.CleanUp(ctx, s, CleanUpOptions{})
		if err != nil || r.Cutoff != 10 || !slices.Equal(r.Deleted, dry.Deleted) {
			t.Fatalf("%+v %v", r, err)
		}
		if after := keysOf(t, m, ""); len(before)-len(after) != len(r.Deleted) {
			t.Errorf("%d keys, then %d, deleted %d", len(before), len(after), len(r.Deleted))
		}
		// 10 commits, 10 checksums, checkpoint 5, compactions from 3 and from 10.
		if len(r.Deleted) != 23 {
			t.Errorf("%q", r.Deleted)
		}
		if _, err := m.Head(ctx, CommitKey(10)); err != nil {
			t.Error("R-106 the commit of the checkpoint is gone")
		}
		check(t, l, 10, 19)
		_, err = l.At(ctx, 9)
		wantError(t, err, ErrNotFound, "DELTA_VERSION_NOT_FOUND")
		if r, err := l.CleanUp(ctx, s, CleanUpOptions{}); err != nil || len(r.Deleted) != 0 {
			t.Errorf("again: %+v %v", r, err)
		}
	})
	t.Run("W-721 nothing expired, or no checkpoint", func(t *testing.T) {
		for _, checkpoints := range [][]int64{{15, 18}, nil} {
			l, _, _, s := table(t, 20, nil, checkpoints)
			if r, err := l.CleanUp(ctx, s, CleanUpOptions{}); err != nil || r.Cutoff != -1 || len(r.Deleted) != 0 {
				t.Errorf("%+v %v", r, err)
			}
		}
	})
	t.Run("W-722 readable after every single deletion", func(t *testing.T) {
		l, m, _, s := table(t, 16, nil, []int64{3, 6, 9})
		r, err := l.CleanUp(ctx, s, CleanUpOptions{DryRun: true})
		if err != nil || r.Cutoff != 9 {
			t.Fatalf("%+v %v", r, err)
		}
		for _, k := range r.Deleted {
			remove(t, m, k)
			check(t, l, r.Cutoff, 15)
			if _, err := l.Latest(ctx); err != nil {
				t.Fatalf("after %s: %v", k, err)
			}
		}
	})
	t.Run("W-722 after a checkpoint, unless switched off", func(t *testing.T) {
		for _, off := range []bool{false, true} {
			props := map[string]string{"delta.checkpointInterval": "4"}
			if off {
				props["delta.enableExpiredLogCleanup"] = "false"
			}
			clock := &fixedClock{at: start}
			m := storage.NewMemoryWith("m", storage.MemoryOptions{Clock: clock.Now})
			l := Open(m, Options{Clock: clock.Now, Sleep: noSleep})
			props["delta.logRetentionDuration"] = "interval 2 days"
			s := newTable(t, l, nil, props)
			deleted := 0
			for v := 1; v <= 12; v++ {
				clock.at = clock.at.Add(day)
				deleted += append1(t, l, s, fmt.Sprint("f", v)).LogFilesDeleted
				s = mustLatest(t, l)
			}
			_, err := m.Head(ctx, CommitKey(0))
			if gone := err != nil; gone == off || (deleted == 0) != off {
				t.Errorf("off %t: gone %t, deleted %d", off, gone, deleted)
			}
			check(t, l, 8, 12)
		}
	})
	t.Run("W-722 ages are in-commit timestamps", func(t *testing.T) {
		l, m, _, s := table(t, 20, ictOn, []int64{5, 10}, InCommitTimestamp)
		// A copied table: all files are new, their timestamps are not.
		for _, k := range keysOf(t, m, LogDir) {
			put(t, m, k, string(readKey(t, m, k)))
		}
		if r, err := l.CleanUp(ctx, s, CleanUpOptions{}); err != nil || r.Cutoff != 10 {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("W-721 R-704 sidecars that nobody names, older than a day", func(t *testing.T) {
		l, m, clock, s := table(t, 20, map[string]string{"delta.checkpointPolicy": "v2"}, []int64{5, 10, 15}, V2Checkpoint)
		put(t, m, sidecarDir+"young.parquet", "x")
		named := 0
		for _, k := range keysOf(t, m, sidecarDir) {
			if strings.Contains(k, "00010.") || strings.Contains(k, "00015.") {
				named++
			}
		}
		r, err := l.CleanUp(ctx, s, CleanUpOptions{})
		if err != nil || r.Cutoff != 10 {
			t.Fatalf("%+v %v", r, err)
		}
		if _, err := m.Head(ctx, CheckpointKey(10)); err != nil {
			t.Errorf("W-723 no classic checkpoint at the cutoff: %v", err)
		}
		left := keysOf(t, m, sidecarDir)
		if len(left) != named+1 {
			t.Errorf("%q", left)
		}
		check(t, l, 10, 19)
		clock.at = clock.at.Add(2 * day)
		append1(t, l, s, "f20")
		if _, err := l.deleteSidecars(ctx, nil, false); err != nil {
			t.Fatal(err)
		}
		if got := keysOf(t, m, sidecarDir); len(got) != named {
			t.Errorf("%q", got)
		}
		// A checkpoint that cannot be read may name any of them.
		put(t, m, fmt.Sprintf("%s%020d.checkpoint.abc.json", LogDir, 3), "garbage")
		put(t, m, sidecarDir+"old.parquet", "x")
		clock.at = clock.at.Add(2 * day)
		if gone, err := l.deleteSidecars(ctx, nil, false); err != nil || len(gone) != 0 {
			t.Errorf("%q %v", gone, err)
		}
		check(t, l, 10, 20)
	})
	t.Run("W-721 a checkpoint with a missing sidecar is no cutoff", func(t *testing.T) {
		l, m, _, s := table(t, 20, map[string]string{"delta.checkpointPolicy": "v2"}, []int64{5, 10}, V2Checkpoint)
		for _, k := range keysOf(t, m, sidecarDir) {
			if strings.Contains(k, "00010.") {
				remove(t, m, k)
				break
			}
		}
		r, err := l.CleanUp(ctx, s, CleanUpOptions{})
		if err != nil || r.Cutoff != 5 {
			t.Errorf("%+v %v", r, err)
		}
		check(t, l, 5, 19)
	})
	t.Run("W-721 a checkpoint whose files cannot be read is no cutoff", func(t *testing.T) {
		for _, policy := range []string{"classic", "v2"} {
			for _, how := range []string{"damaged", "garbage", "short"} {
				t.Run(policy+" "+how, func(t *testing.T) {
					l, m, _, s := table(t, 20, map[string]string{"delta.checkpointPolicy": policy}, []int64{5, 10}, V2Checkpoint)
					key := CheckpointKey(10)
					for _, k := range keysOf(t, m, sidecarDir) {
						if strings.Contains(k, "00010.") {
							key = k
						}
					}
					data := []byte(readKey(t, m, key))
					switch how {
					case "damaged": // the pages of file actions, behind an intact footer
						data = damagePages(t, m, key, 10, data)
					case "garbage":
						data = []byte("no Parquet")
					case "short": // a checksum tells of more files than there are
						put(t, m, ChecksumKey(10), `{"tableSizeBytes":1,"numFiles":99,"numMetadata":1,"numProtocol":1,"metadata":`+
							string(asJSON(t, s.Metadata))+`,"protocol":`+string(asJSON(t, s.Protocol))+`}`)
					}
					put(t, m, key, string(data))
					r, err := l.CleanUp(ctx, s, CleanUpOptions{})
					if err != nil || r.Cutoff != 5 {
						t.Errorf("%+v %v", r, err)
					}
				})
			}
		}
	})
	t.Run("W-308 protected versions go all at once or not at all", func(t *testing.T) {
		for _, c := range []struct {
			before string
			kept   bool
		}{{"12", true}, {"10", false}, {"3", false}, {"0", false}} {
			l, _, _, s := table(t, 20, nil, []int64{10, 15}, CheckpointProtection)
			tx := l.Begin(s)
			tx.SetMetadata(withProps(s, "delta.requireCheckpointProtectionBeforeVersion", c.before))
			mustCommit(t, tx, CommitOptions{Operation: "SET TBLPROPERTIES"})
			s = mustLatest(t, l)
			r, err := l.CleanUp(ctx, s, CleanUpOptions{})
			if err != nil || (r.Kept != "") != c.kept || (len(r.Deleted) == 0) != c.kept {
				t.Errorf("before %s: %+v %v", c.before, r, err)
			}
			if !c.kept {
				check(t, l, 10, 19)
			}
		}
	})
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// damagePages changes a byte of a checkpoint file so that the version opens and only its
// file actions cannot be read.
func damagePages(t *testing.T, m *storage.Memory, key string, version int64, data []byte) []byte {
	t.Helper()
	for at := 4; at < len(data)-8; at += 3 {
		bad := slices.Clone(data)
		bad[at] ^= 0xff
		put(t, m, key, string(bad))
		s, err := Open(m, Options{Sleep: noSleep}).At(context.Background(), version)
		if err != nil || s.CheckpointVersion() != version {
			continue
		}
		if _, err = s.FileList(context.Background()); err != nil {
			return bad
		}
	}
	t.Fatal("no byte of the file does that")
	return nil
}
