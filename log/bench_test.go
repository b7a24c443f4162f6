package deltalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// benchTable is a memory table of n files with two partition columns' worth of text
// and statistics, in commits of 1000, without checkpoints.
func benchTable(b *testing.B, n int) (*Log, *storage.Memory) {
	b.Helper()
	m := storage.NewMemory("bench")
	l := Open(m, Options{NoCheckpoints: true})
	newTable(b, l, []string{"p"}, nil)
	stats := `{"numRecords":1000,"minValues":{"id":123456,"name":"aaaaaaaaaaaaaaaaaaaaaaaa"},"maxValues":{"id":999999,"name":"zzzzzzzzzzzzzzzzzzz"},"nullCount":{"id":0,"name":3}}`
	for i := 0; i < n; i += 1000 {
		a := &Actions{}
		for j := range 1000 {
			f := file(fmt.Sprintf("p=%d/part-%05d-6a92d155-a59b-4f2e-8ecb-d4b4ec7fd1f8-c000.snappy.parquet", j%10, i+j), fmt.Sprint(j%10))
			f.Stats = stats
			a.Adds = append(a.Adds, f)
		}
		data, err := encodeCommit(&commitInfoWire{Operation: "WRITE"}, a)
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Create(context.Background(), CommitKey(int64(i/1000+1)), data); err != nil {
			b.Fatal(err)
		}
	}
	return l, m
}

// BenchmarkParseCommit decodes a commit of 1000 adds with statistics.
func BenchmarkParseCommit(b *testing.B) {
	_, m := benchTable(b, 1000)
	data := readKey(b, m, CommitKey(1))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCommit(1, "x", data, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot opens a table of 50,000 files and lists them, from commits and
// from a checkpoint.
func BenchmarkSnapshot(b *testing.B) {
	ctx := context.Background()
	l, _ := benchTable(b, 50_000)
	open := func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := l.Latest(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if files, err := s.FileList(ctx); err != nil || len(files) != 50_000 {
				b.Fatal(len(files), err)
			}
		}
	}
	b.Run("commits", open)
	s := mustLatest(b, l)
	if err := l.WriteCheckpoint(ctx, s); err != nil {
		b.Fatal(err)
	}
	b.Run("checkpoint", open)
	b.Run("checkpoint without files", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Latest(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWriteCheckpoint writes the checkpoint of a table of 50,000 files.
func BenchmarkWriteCheckpoint(b *testing.B) {
	ctx := context.Background()
	l, m := benchTable(b, 50_000)
	s := mustLatest(b, l)
	if _, err := s.FileList(ctx); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := l.WriteCheckpoint(ctx, s); err != nil {
			b.Fatal(err)
		}
		if err := m.Delete(ctx, CheckpointKey(s.Version)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit appends one file to a table of 50,000 whose snapshot is kept up by
// Update.
func BenchmarkCommit(b *testing.B) {
	ctx := context.Background()
	l, _ := benchTable(b, 50_000)
	s := mustLatest(b, l)
	if _, err := s.FileList(ctx); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		tx := l.Begin(s)
		tx.Add(file(strings.Repeat("x", 20)+fmt.Sprint(i), "1"))
		i++
		mustCommit(b, tx, CommitOptions{})
		var err error
		if s, err = l.Update(ctx, s); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen_W6 opens, cold, a table of 100,000 files in 10,000 commits whose last
// checkpoint is 99 commits back, and lists its files (W6 of performance.md): with the
// hint, and without, when all of the log is listed.
func BenchmarkOpen_W6(b *testing.B) {
	ctx := context.Background()
	dir := b.TempDir()
	l := openLocal(b, dir)
	newTable(b, l, []string{"p"}, nil)
	const commits, perCommit = 10_000, 10
	stats := `{"numRecords":1000,"minValues":{"id":123456,"name":"aaaaaaaaaaaaaaaaaaaaaaaa"},"maxValues":{"id":999999,"name":"zzzzzzzzzzzzzzzzzzz"},"nullCount":{"id":0,"name":3}}`
	for v := 1; v < commits; v++ {
		a := &Actions{}
		for j := range perCommit {
			f := file(fmt.Sprintf("p=%d/part-%05d-6a92d155-a59b-4f2e-8ecb-%012d-c000.snappy.parquet", j, v, v), fmt.Sprint(j))
			f.Stats = stats
			a.Adds = append(a.Adds, f)
		}
		data, err := encodeCommit(&commitInfoWire{Operation: "WRITE"}, a)
		if err != nil {
			b.Fatal(err)
		}
		// Without the fsync of the store, which is not what is measured.
		if err := os.WriteFile(filepath.Join(dir, CommitKey(int64(v))), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	at, err := l.At(ctx, commits-1-99)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.WriteCheckpoint(ctx, at); err != nil {
		b.Fatal(err)
	}
	open := func(b *testing.B) {
		b.ReportAllocs()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var s *Snapshot
		for b.Loop() {
			if s, err = l.Latest(ctx); err != nil {
				b.Fatal(err)
			}
			files, err := s.FileList(ctx)
			if err != nil || len(files) != (commits-1)*perCommit {
				b.Fatal(len(files), err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6, "MB-kept")
		runtime.KeepAlive(s)
	}
	b.Run("hint", open)
	if err := l.store.Delete(ctx, LogDir+hintName); err != nil {
		b.Fatal(err)
	}
	b.Run("no hint", open)
}
