package deltalog

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

// unpackLogs extracts the _delta_log folders of an archive, times kept, and returns
// the table roots in it, relative to the folder it unpacks to.
func unpackLogs(t testing.TB, archive string) (dir string, roots []string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir = t.TempDir()
	seen := map[string]bool{}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		root, _, ok := strings.Cut(h.Name, "/_delta_log/")
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		if !seen[root] {
			seen[root] = true
			roots = append(roots, root)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, h.ModTime, h.ModTime); err != nil {
			t.Fatal(err)
		}
	}
	sort.Strings(roots)
	return dir, roots
}

func openLocal(t testing.TB, dir string) *Log {
	t.Helper()
	store, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return Open(store, Options{})
}

// rowCount is the number of rows by statistics and deletion vectors; ok is false
// when some file has no numRecords.
func rowCount(t testing.TB, s *Snapshot) (n int64, ok bool) {
	t.Helper()
	files, err := s.FileList(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var stats struct {
			NumRecords *int64 `json:"numRecords"`
		}
		if json.Unmarshal([]byte(f.Stats), &stats) != nil || stats.NumRecords == nil {
			return 0, false
		}
		n += *stats.NumRecords
		if f.DeletionVector != nil {
			n -= f.DeletionVector.Cardinality
		}
	}
	return n, true
}

// replayForward is the independent check of replay: a forward fold over all plain
// commits from version 0.
func replayForward(t testing.TB, l *Log, version int64) (map[fileKey]*Add, bool) {
	t.Helper()
	live := map[fileKey]*Add{}
	for c, err := range l.Commits(context.Background(), 0, version) {
		if err != nil {
			return nil, false
		}
		for _, r := range c.Removes {
			k, err := keyOf(r.Path, r.DeletionVector)
			if err != nil {
				t.Fatal(err)
			}
			delete(live, k)
		}
		for _, a := range c.Adds {
			k, err := keyOf(a.Path, a.DeletionVector)
			if err != nil {
				t.Fatal(err)
			}
			live[k] = a
		}
	}
	return live, true
}

func checkReplay(t *testing.T, l *Log, s *Snapshot) {
	t.Helper()
	want, ok := replayForward(t, l, s.Version)
	if !ok {
		return
	}
	files, err := s.FileList(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := map[fileKey]bool{}
	for _, f := range files {
		k, err := keyOf(f.Path, f.DeletionVector)
		if err != nil {
			t.Fatal(err)
		}
		got[k] = true
		w := want[k]
		if w == nil {
			t.Errorf("R-221 version %d: %v is live in the snapshot only", s.Version, k)
		} else if w.Path != f.Path || w.Size != f.Size || len(w.PartitionValues) != len(f.PartitionValues) {
			t.Errorf("version %d: %v differs from its commit", s.Version, k)
		}
	}
	for k := range want {
		if !got[k] {
			t.Errorf("R-221 version %d: %v is live in the commits only", s.Version, k)
		}
	}
}

func archives(t *testing.T, folder string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(testenv.SharedDir(t, "golden", folder), "*.tar.zst"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no archives in %s: %v", folder, err)
	}
	return list
}

// TestSnapshot_Golden replays every log of the golden tables: each version of each
// table, from checkpoints and from plain commits.
func TestSnapshot_Golden(t *testing.T) {
	// Tables that must be refused, and how.
	refused := map[string]error{
		"reads/deltalog-state-reconstruction-from-checkpoint-missing-metadata": ErrCorrupt,
		"reads/deltalog-state-reconstruction-from-checkpoint-missing-protocol": ErrCorrupt,
		"reads/deltalog-state-reconstruction-without-protocol":                 ErrCorrupt,
		// No metaData in any commit.
		"reads/data-reader-absolute-paths-escaped-chars": ErrCorrupt,
		// Holds nothing but a .crc file.
		"features/crc-malformed":        ErrNotFound,
		"reads/versions-not-contiguous": ErrCorrupt,
		"features/table-with-geo":       ErrUnsupported,
	}
	ctx := context.Background()
	for _, folder := range []string{"reads", "features", "spark"} {
		for _, archive := range archives(t, folder) {
			name := folder + "/" + strings.TrimSuffix(filepath.Base(archive), ".tar.zst")
			if strings.Contains(name, "300k") && testing.Short() {
				continue
			}
			t.Run(name, func(t *testing.T) {
				dir, roots := unpackLogs(t, archive)
				if len(roots) == 0 {
					t.Fatal("no log in the archive")
				}
				for _, root := range roots {
					l := openLocal(t, filepath.Join(dir, root))
					s, err := l.Latest(ctx)
					if want := refused[name]; want != nil {
						if !errors.Is(err, want) {
							t.Errorf("R-302 R-701 %s: got %v, want %v", root, err, want)
						}
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", root, err)
						continue
					}
					checkReplay(t, l, s)
					if s.Version < 60 {
						for v := int64(0); v < s.Version; v++ {
							old, err := l.At(ctx, v)
							if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnsupported) {
								continue
							}
							if err != nil {
								t.Errorf("%s version %d: %v", root, v, err)
								continue
							}
							checkReplay(t, l, old)
						}
					}
				}
			})
		}
	}
}

type expectedTable struct {
	Version    *int64 `json:"latest_version"`
	Count      int64
	Partitions []string          `json:"partition_columns"`
	Properties map[string]string `json:"properties"`
	Protocol   struct {
		MinReaderVersion int      `json:"minReaderVersion"`
		MinWriterVersion int      `json:"minWriterVersion"`
		ReaderFeatures   []string `json:"readerFeatures"`
		WriterFeatures   []string `json:"writerFeatures"`
	}
	Schema []struct {
		Name string
	}
	Commits []struct {
		Version   int64
		Operation string
		Timestamp string
	}
}

// TestSnapshot_SparkExpectations compares what Spark reads with what the log says:
// version, protocol, properties, columns, row count, commit times and operations.
func TestSnapshot_SparkExpectations(t *testing.T) {
	ctx := context.Background()
	for _, folder := range []string{"features", "spark"} {
		for _, archive := range archives(t, folder) {
			base := strings.TrimSuffix(archive, ".tar.zst")
			data, err := os.ReadFile(base + ".expected.json")
			if err != nil {
				continue
			}
			t.Run(folder+"/"+filepath.Base(base), func(t *testing.T) {
				var want expectedTable
				if err := json.Unmarshal(data, &want); err != nil {
					t.Fatal(err)
				}
				dir, roots := unpackLogs(t, archive)
				l := openLocal(t, filepath.Join(dir, roots[0]))
				s, err := l.Latest(ctx)
				if errors.Is(err, ErrUnsupported) {
					t.Skipf("not readable by this version: %v", err)
				}
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, f := range want.Schema {
					names = append(names, f.Name)
				}
				if !slices.Equal(s.Schema.Names(), names) {
					t.Errorf("columns %q, want %q", s.Schema.Names(), names)
				}
				if name := filepath.Base(base); name == "compacted-log-files-table" {
					// Its compacted files are not reconciled, so Spark, which uses them, sees
					// removed files. The plain commits are the truth.
					want.Count = 5
				}
				if n, ok := rowCount(t, s); ok && n != want.Count {
					t.Errorf("R-603 rows by statistics %d, want %d", n, want.Count)
				}
				if want.Version == nil {
					return
				}
				if s.Version != *want.Version {
					t.Errorf("version %d, want %d", s.Version, *want.Version)
				}
				if len(want.Partitions)+len(s.PartitionColumns()) > 0 && !slices.Equal(s.PartitionColumns(), want.Partitions) {
					t.Errorf("partition columns %q, want %q", s.PartitionColumns(), want.Partitions)
				}
				if s.Protocol.MinReaderVersion != want.Protocol.MinReaderVersion || s.Protocol.MinWriterVersion != want.Protocol.MinWriterVersion {
					t.Errorf("protocol %+v, want %+v", s.Protocol, want.Protocol)
				}
				for _, f := range want.Protocol.WriterFeatures {
					if !s.Supports(Feature(f)) {
						t.Errorf("feature %s is missing", f)
					}
				}
				for k, v := range want.Properties {
					if s.Metadata.Configuration[k] != v {
						t.Errorf("property %s = %q, want %q", k, s.Metadata.Configuration[k], v)
					}
				}
				history, err := s.History(ctx, 0)
				if err != nil {
					t.Fatal(err)
				}
				byVersion := map[int64]HistoryEntry{}
				for _, h := range history {
					byVersion[h.Version] = h
				}
				for _, c := range want.Commits {
					h, ok := byVersion[c.Version]
					if !ok {
						continue
					}
					at, err := time.Parse(time.RFC3339Nano, c.Timestamp)
					if err != nil {
						t.Fatal(err)
					}
					if h.Info == nil || h.Info.Operation != c.Operation {
						t.Errorf("version %d: operation %v, want %s", c.Version, h.Info, c.Operation)
					}
					if !h.Time.Equal(at) {
						t.Errorf("R-751 R-752 version %d: time %v, want %v", c.Version, h.Time, at)
					}
					if got, err := l.AtTime(ctx, at, AtTimeOptions{}); err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnsupported) {
						t.Errorf("R-753 at %v: %v", at, err)
					} else if err == nil && got.Version != c.Version {
						t.Errorf("R-753 at %v: version %d, want %d", at, got.Version, c.Version)
					}
				}
			})
		}
	}
}
