package deltalog

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

func TestParseLogName(t *testing.T) {
	for name, want := range map[string]logFile{
		"00000000000000000003.json":               {kind: commitFile, version: 3},
		"3.json":                                  {kind: commitFile, version: 3},
		"000000000000000000000000000003.json":     {kind: commitFile, version: 3},
		"00000000000000000003.checkpoint.parquet": {kind: classicCheckpoint, version: 3},
		"00000000000000000003.checkpoint.0000000002.0000000005.parquet":                {kind: multipartCheckpoint, version: 3, part: 2, parts: 5},
		"00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json":    {kind: uuidCheckpoint, version: 3},
		"00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet": {kind: uuidCheckpoint, version: 3},
		"00000000000000000003.00000000000000000007.compacted.json":                     {kind: compactedFile, version: 3, last: 7},
		"00000000000000000003.crc":                                      {kind: checksumFile, version: 3},
		"9223372036854775807.json":                                      {kind: commitFile, version: 1<<63 - 1},
		"9223372036854775808.json":                                      {},
		"00000000000000000003.checkpoint.0000000006.0000000005.parquet": {},
		"00000000000000000003.checkpoint.0000000000.0000000005.parquet": {},
		"00000000000000000007.00000000000000000003.compacted.json":      {},
		"_last_checkpoint":                                              {}, ".00000000000000000003.json.crc": {}, ".00000000000000000003.json.0f.tmp": {}, "00000000000000000003.json.tmp": {},
		"a00000000000000000003.json": {}, "00000000000000000003.jsonx": {}, "-3.json": {}, "": {}, "_last_vacuum_info": {}, "3.checkpoint.json": {},
	} {
		if got := parseLogName(name); got != want {
			t.Errorf("R-102 %q: got %+v, want %+v", name, got, want)
		}
	}
}

func TestLog_NotATable(t *testing.T) {
	ctx := context.Background()
	for name, files := range map[string][]string{
		"empty directory":                nil,
		"only a hint":                    {LogDir + hintName},
		"only data":                      {"part-0.parquet"},
		"only a .crc and temporaries":    {LogDir + "00000000000000000000.crc", LogDir + ".00000000000000000000.json.x.tmp"},
		"only a zero-byte checkpoint":    {CheckpointKey(3)},
		"part of a multipart checkpoint": {LogDir + "00000000000000000003.checkpoint.0000000001.0000000002.parquet"},
	} {
		t.Run("R-101 "+name, func(t *testing.T) {
			l, m := testLog(t)
			for _, f := range files {
				data := "{}"
				if f == CheckpointKey(3) {
					data = ""
				}
				put(t, m, f, data)
			}
			_, err := l.Latest(ctx)
			wantError(t, err, ErrNotFound, "DELTA_TABLE_NOT_FOUND")
			if ok, err := l.Exists(ctx); ok || err != nil {
				t.Errorf("exists: %t %v", ok, err)
			}
		})
	}
}

func remove(t testing.TB, s storage.Store, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if err := s.Delete(context.Background(), k); err != nil {
			t.Fatal(err)
		}
	}
}

func checkpointAt(t testing.TB, l *Log, version int64) {
	t.Helper()
	s, err := l.At(context.Background(), version)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WriteCheckpoint(context.Background(), s); err != nil {
		t.Fatal(err)
	}
}

func TestLog_Segments(t *testing.T) {
	ctx := context.Background()
	versionOf := func(t *testing.T, l *Log, at int64, n int) {
		t.Helper()
		s, err := l.At(ctx, at)
		if err != nil {
			t.Errorf("version %d: %v", at, err)
		} else if len(paths(t, s)) != n {
			t.Errorf("version %d: files %v", at, paths(t, s))
		}
	}
	t.Run("R-103 a hole without a checkpoint", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		remove(t, m, CommitKey(3))
		_, err := l.Latest(ctx)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
		versionOf(t, l, 2, 3)
		_, err = l.At(ctx, 3)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
		_, err = l.At(ctx, 4)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	})
	t.Run("R-103 a hole that a checkpoint covers", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		checkpointAt(t, l, 4)
		remove(t, m, CommitKey(3))
		versionOf(t, l, 5, 6)
		versionOf(t, l, 4, 5)
		versionOf(t, l, 2, 3)
		_, err := l.At(ctx, 3)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	})
	t.Run("R-103 the commit after the checkpoint is missing", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 8)
		checkpointAt(t, l, 4)
		remove(t, m, CommitKey(5))
		_, err := l.Latest(ctx)
		wantError(t, err, ErrCorrupt, "DELTA_TRUNCATED_TRANSACTION_LOG")
	})
	t.Run("R-103 the log starts behind version 0", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 4)
		remove(t, m, CommitKey(0))
		_, err := l.Latest(ctx)
		wantError(t, err, ErrCorrupt, "DELTA_TRUNCATED_TRANSACTION_LOG")
	})
	t.Run("R-104 zero-byte checkpoints are skipped", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		checkpointAt(t, l, 2)
		put(t, m, CheckpointKey(4), "")
		versionOf(t, l, 5, 6)
		if s := mustLatest(t, l); s.CheckpointVersion() != 2 {
			t.Errorf("starts at %d", s.CheckpointVersion())
		}
	})
	t.Run("R-104 R-702 incomplete multipart sets are skipped, also of mixed sizes", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		name := func(part, parts int) string {
			return fmt.Sprintf("%s%020d.checkpoint.%010d.%010d.parquet", LogDir, 4, part, parts)
		}
		put(t, m, name(1, 2), "garbage")
		put(t, m, name(2, 3), "garbage")
		put(t, m, name(3, 3), "garbage")
		versionOf(t, l, 5, 6)
		if s := mustLatest(t, l); s.CheckpointVersion() != -1 {
			t.Errorf("starts at %d", s.CheckpointVersion())
		}
		// A complete one-part set is a checkpoint.
		checkpointAt(t, l, 4)
		put(t, m, name(1, 1), string(readKey(t, m, CheckpointKey(4))))
		remove(t, m, CheckpointKey(4))
		versionOf(t, l, 5, 6)
		if s := mustLatest(t, l); s.CheckpointVersion() != 4 {
			t.Errorf("starts at %d", s.CheckpointVersion())
		}
	})
	t.Run("R-106 a checkpoint alone can be read", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 3)
		checkpointAt(t, l, 2)
		remove(t, m, CommitKey(0), CommitKey(1), CommitKey(2))
		versionOf(t, l, 2, 3)
		_, err := l.At(ctx, 1)
		wantError(t, err, ErrNotFound, "DELTA_VERSION_NOT_FOUND")
	})
	t.Run("R-753 versions outside of the log", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		checkpointAt(t, l, 4)
		for v := range int64(4) {
			remove(t, m, CommitKey(v))
		}
		versionOf(t, l, 4, 5)
		for _, v := range []int64{-1, 0, 3, 6, 100} {
			_, err := l.At(ctx, v)
			wantError(t, err, ErrNotFound, "DELTA_VERSION_NOT_FOUND")
		}
	})
	t.Run("R-753 the error names all versions, not those behind the hint", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		checkpointAt(t, l, 4)
		if _, err := l.At(ctx, 9); err == nil || !strings.Contains(err.Error(), "versions 0 to 5") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("R-104 a corrupt checkpoint without the commits before it is an error naming it", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		checkpointAt(t, l, 4)
		whole := readKey(t, m, CheckpointKey(4))
		remove(t, m, CommitKey(2))
		for _, data := range [][]byte{[]byte("garbage"), whole[:len(whole)/2], whole[:len(whole)-1]} {
			put(t, m, CheckpointKey(4), string(data))
			_, err := l.Latest(ctx)
			wantError(t, err, ErrCorrupt, "DELTA_CHECKPOINT_MALFORMED")
			if err != nil && !strings.Contains(err.Error(), CheckpointKey(4)) {
				t.Errorf("the file is not named: %v", err)
			}
		}
	})
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprint("R-104 a corrupt checkpoint is passed over, an older one there: ", older), func(t *testing.T) {
			var said bytes.Buffer
			m := storage.NewMemory("m")
			l := Open(m, Options{Clock: newTestClock().Now, Sleep: noSleep, NoCheckpoints: true, Logger: slog.New(slog.NewTextHandler(&said, nil))})
			rawTable(t, m, 6)
			from := int64(-1)
			if older {
				from = 2
				checkpointAt(t, l, from)
				remove(t, m, CommitKey(0), CommitKey(1))
			}
			want := paths(t, mustLatest(t, l))
			checkpointAt(t, l, 4)
			whole := readKey(t, m, CheckpointKey(4))
			for _, data := range [][]byte{[]byte("garbage"), whole[:len(whole)/2], whole[:len(whole)-1]} {
				put(t, m, CheckpointKey(4), string(data))
				said.Reset()
				s := mustLatest(t, l)
				if s.CheckpointVersion() != from || !slices.Equal(paths(t, s), want) {
					t.Errorf("from %d: %q, want from %d: %q", s.CheckpointVersion(), paths(t, s), from, want)
				}
				if !strings.Contains(said.String(), CheckpointKey(4)) {
					t.Errorf("no warning: %q", said.String())
				}
			}
			// Single bytes: what is found damaged when it is opened, what later.
			later := 0
			for i := 0; i < len(whole); i += 11 {
				damaged := bytes.Clone(whole)
				damaged[i] ^= 0xff
				put(t, m, CheckpointKey(4), string(damaged))
				s, err := l.Latest(ctx)
				if err != nil {
					continue // its first rows tell another table
				}
				files, err := s.FileList(ctx)
				if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("byte %d: %v", i, err)
				}
				if s.CheckpointVersion() == 4 && strings.Contains(said.String(), "the files of the version") {
					later++
					if len(files) != len(want) {
						t.Fatalf("byte %d: %d files", i, len(files))
					}
				}
				said.Reset()
			}
			if later == 0 {
				t.Error("no damage was found only in the file actions")
			}
		})
	}
	t.Run("R-104 the log is cleaned while it is read", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 4)
		f := faultstore.New(m, faultstore.Rule{Match: faultstore.On(faultstore.Open, CommitKey(1)), Mode: faultstore.Observe, Hook: func(context.Context, faultstore.Call) error {
			checkpointAt(t, l, 2)
			remove(t, m, CommitKey(0), CommitKey(1))
			return nil
		}})
		if s := mustLatest(t, Open(f, l.opts)); s.Version != 3 || s.CheckpointVersion() != 2 {
			t.Errorf("version %d from %d", s.Version, s.CheckpointVersion())
		}
	})
	t.Run("R-102 other files in the log are ignored", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 2)
		for _, n := range []string{"_last_vacuum_info", "_sidecars/x.parquet", ".tmp/00000000000000000002.json.x", "00000000000000000001.crc", "_staged_commits/00000000000000000002.x.json", "00000000000000000000.00000000000000000001.compacted.json", "zzz", "_commits/00000000000000000007.json"} {
			put(t, m, LogDir+n, "garbage")
		}
		versionOf(t, l, 1, 2)
	})
	t.Run("R-102 any digit count is read, 20 written", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 1)
		put(t, m, LogDir+"1.json", addLine("f1"))
		versionOf(t, l, 1, 2)
		tx := l.Begin(mustLatest(t, l))
		tx.Add(file("f2"))
		mustCommit(t, tx, CommitOptions{})
		if _, err := m.Head(ctx, LogDir+"00000000000000000002.json"); err != nil {
			t.Error(err)
		}
	})
}

func TestHint(t *testing.T) {
	ctx := context.Background()
	setup := func(t *testing.T) (*Log, *storage.Memory) {
		l, m := testLog(t)
		rawTable(t, m, 8)
		checkpointAt(t, l, 2)
		checkpointAt(t, l, 5)
		return l, m
	}
	for name, text := range map[string]string{
		"missing": "", "not JSON": "{", "an array": "[]", "a vanished checkpoint": `{"version":7,"size":3}`,
		"beyond the log": `{"version":99,"size":3}`, "negative": `{"version":-5}`, "not a number": `{"version":"5"}`,
		"an older checkpoint": `{"version":2,"size":3}`, "a wrong checksum": `{"version":7,"size":3,"checksum":"00"}`,
		"another number of parts": `{"version":5,"size":3,"parts":4}`, "a wrong size": `{"version":5,"size":99999}`,
	} {
		t.Run("R-105 "+name, func(t *testing.T) {
			l, m := setup(t)
			if text == "" {
				remove(t, m, LogDir+hintName)
			} else {
				put(t, m, LogDir+hintName, text)
			}
			s, err := l.Latest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if s.Version != 7 || len(paths(t, s)) != 8 {
				t.Errorf("version %d files %v", s.Version, paths(t, s))
			}
		})
	}
	t.Run("R-105 the latest version comes from the listing", func(t *testing.T) {
		l, m := setup(t)
		put(t, m, LogDir+hintName, `{"version":5,"size":8}`)
		if s := mustLatest(t, l); s.Version != 7 || s.CheckpointVersion() != 5 {
			t.Errorf("version %d from %d", s.Version, s.CheckpointVersion())
		}
	})
	t.Run("R-708 what we write", func(t *testing.T) {
		l, m := setup(t)
		_ = l
		text := string(readKey(t, m, LogDir+hintName))
		sum, err := jsonChecksum([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		// protocol, metaData and six adds.
		want := fmt.Sprintf(`{"version":5,"size":8,"sizeInBytes":%d,"numOfAddFiles":6,"checksum":"%s"}`, len(readKey(t, m, CheckpointKey(5))), sum)
		if text != want {
			t.Errorf("got %s\nwant %s", text, want)
		}
	})
	t.Run("W-705 the hint never goes back", func(t *testing.T) {
		l, m := setup(t)
		checkpointAt(t, l, 3)
		if got := l.readHint(ctx); got != 5 {
			t.Errorf("hint %d after an older checkpoint: %s", got, readKey(t, m, LogDir+hintName))
		}
	})
}

func TestJSONChecksum(t *testing.T) {
	for text, want := range map[string]string{
		`{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}`: "6a92d155a59bf2eecbd4b4ec7fd1f875",
	} {
		if got, err := jsonChecksum([]byte(text)); err != nil || got != want {
			t.Errorf("R-709 got %s %v, want %s", got, err, want)
		}
	}
	sum := md5.Sum([]byte(`"a"="%C3%BC%20A",` + `"b"+0=true,"b"+1=null,"b"+2=1.50`))
	if got, err := jsonChecksum([]byte(`{"b":[true,null,1.50],"a":"ü A"}`)); err != nil || got != hex.EncodeToString(sum[:]) {
		t.Errorf("R-709 got %s %v", got, err)
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `{`, strings.Repeat("[", 1000)} {
		if _, err := jsonChecksum([]byte(bad)); err == nil {
			t.Errorf("R-709 %.20s: accepted", bad)
		}
	}
}

func TestLog_Commits(t *testing.T) {
	ctx := context.Background()
	l, m := testLog(t)
	rawTable(t, m, 5)
	collect := func(from, to int64) (versions []int64, err error) {
		for c, e := range l.Commits(ctx, from, to) {
			if e != nil {
				return versions, e
			}
			versions = append(versions, c.Version)
		}
		return versions, nil
	}
	if got, err := collect(1, 3); err != nil || !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("got %v %v", got, err)
	}
	if got, err := collect(3, 2); err != nil || got != nil {
		t.Errorf("empty range: %v %v", got, err)
	}
	_, err := collect(3, 9)
	wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	remove(t, m, CommitKey(0), CommitKey(3))
	_, err = collect(0, 2)
	wantError(t, err, ErrNotFound, "DELTA_VERSION_NOT_FOUND")
	got, err := collect(1, 4)
	wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	if !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("got %v before the hole", got)
	}
	if _, err := l.ReadCommit(ctx, 3); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
