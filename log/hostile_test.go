package deltalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage"
)

// bigStore claims that one object is huge; reading it would fail the test.
type bigStore struct {
	storage.Store
	key string
}

type bigReader struct{}

func (bigReader) Size() int64                       { return 1 << 50 }
func (bigReader) ReadAt([]byte, int64) (int, error) { return 0, errors.New("read") }
func (bigReader) Close() error                      { return nil }

func (s bigStore) Open(ctx context.Context, key string) (storage.Reader, error) {
	if key == s.key {
		return bigReader{}, nil
	}
	return s.Store.Open(ctx, key)
}

// TestHostileLog: what an attacker may put into a log ends in a typed error, without
// memory in proportion to what it claims and without a look outside the table.
func TestHostileLog(t *testing.T) {
	ctx := context.Background()
	deep := strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)
	deepType := strings.Repeat(`{"type":"array","containsNull":true,"elementType":`, 5000) + `"long"` + strings.Repeat("}", 5000)
	deepSchema := `{"type":"struct","fields":[{"name":"x","type":` + deepType + `,"nullable":true,"metadata":{}}]}`
	quote := func(s string) string { b, _ := marshal(s); return string(b) }
	for name, line := range map[string]string{
		"R-110 deep nesting in an unknown field":  `{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"x":` + deep + `}}`,
		"R-110 deep nesting in an unknown action": `{"future":` + deep + `}`,
		"R-109 a size beyond int64":               `{"add":{"path":"x","partitionValues":{},"size":9223372036854775808,"modificationTime":1,"dataChange":true}}`,
		"R-109 a size with an exponent":           `{"add":{"path":"x","partitionValues":{},"size":1e400,"modificationTime":1,"dataChange":true}}`,
		"R-109 a fraction":                        `{"txn":{"appId":"a","version":1.5}}`,
		"R-109 a million digits":                  `{"txn":{"appId":"a","version":` + strings.Repeat("9", 1_000_000) + `}}`,
		"R-304 versions beyond int64":             `{"protocol":{"minReaderVersion":99999999999999999999,"minWriterVersion":2}}`,
		"R-304 negative versions":                 `{"protocol":{"minReaderVersion":-1,"minWriterVersion":-9223372036854775808}}`,
		"R-401 a type nested 5000 deep":           `{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":` + quote(deepSchema) + `,"partitionColumns":[],"configuration":{}}}`,
		"R-201 a broken escape in a path":         `{"add":{"path":"%zz","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`,
		"R-653 a vector larger than int32":        `{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"deletionVector":{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":4294967296,"cardinality":1000000000000}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			l, m := testLog(t)
			first := protocolLine + "\n" + metadataLine + "\n"
			if strings.HasPrefix(line, `{"metaData"`) {
				first = protocolLine + "\n"
			} else if strings.HasPrefix(line, `{"protocol"`) {
				first = metadataLine + "\n"
			}
			put(t, m, CommitKey(0), first+line+"\n")
			s, err := l.Latest(ctx)
			if err == nil {
				_, err = s.FileList(ctx)
			}
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			if err != nil && len(err.Error()) > 4000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
	t.Run("R-102 names of absurd versions", func(t *testing.T) {
		for _, name := range []string{"9223372036854775807.json", "9223372036854775807.checkpoint.parquet", "00000000000000000001.9223372036854775807.compacted.json",
			"99999999999999999999.json", "00000000000000000001.checkpoint.0000000001.2147483647.parquet", "9223372036854775807.crc"} {
			l, m := testLog(t)
			rawTable(t, m, 2)
			put(t, m, LogDir+name, "x")
			s, err := l.Latest(ctx)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil && s.Version != 1 {
				t.Errorf("%s: version %d", name, s.Version)
			}
			for _, err := range l.Commits(ctx, 0, math.MaxInt64) {
				if err != nil {
					break
				}
			}
		}
	})
	t.Run("R-105 hints of absurd versions", func(t *testing.T) {
		for _, hint := range []string{`{"version":9223372036854775807,"size":1}`, `{"version":-5}`, `{"version":1e300}`, `{"version":1,"x":` + deep + `,"checksum":"x"}`} {
			l, m := testLog(t)
			rawTable(t, m, 3)
			put(t, m, LogDir+hintName, hint)
			if s := mustLatest(t, l); s.Version != 2 {
				t.Errorf("%.40s: version %d", hint, s.Version)
			}
		}
	})
	t.Run("R-704 sidecars outside of the table", func(t *testing.T) {
		for _, path := range []string{"../../../etc/passwd", "..%2f..%2fx", "..", ".", "/etc/passwd", "file:///etc/passwd", "s3://other/_delta_log/_sidecars/x",
			"mem://" + t.Name() + "/_delta_log/../../x", "a/../../x"} {
			l, m := testLog(t)
			rawTable(t, m, 2)
			top := `{"checkpointMetadata":{"version":1}}` + "\n" + protocolLine + "\n" + metadataLine + "\n" + fmt.Sprintf(`{"sidecar":{"path":%q,"sizeInBytes":1,"modificationTime":1}}`, path) + "\n"
			put(t, m, LogDir+"00000000000000000001.checkpoint.abc.json", top)
			s, err := l.Latest(ctx)
			if err == nil {
				_, err = s.FileList(ctx)
			}
			if err == nil {
				t.Errorf("%s was read", path)
			}
			// Clean-up deletes nothing for it either.
			before := len(keysOf(t, m, ""))
			if gone, err := l.deleteSidecars(ctx, nil, false); err == nil && (len(gone) != 0 || len(keysOf(t, m, "")) != before) {
				t.Errorf("%s: deleted %q", path, gone)
			}
		}
	})
	t.Run("R-202 paths that climb out are kept apart from the table's", func(t *testing.T) {
		l, m := testLog(t)
		put(t, m, CommitKey(0), protocolLine+"\n"+metadataLine+"\n"+addLine("../../etc/passwd")+"\n"+addLine("/etc/passwd")+"\n"+addLine("a")+"\n")
		s := mustLatest(t, l)
		if err := l.WriteCheckpoint(ctx, s); err != nil {
			t.Fatal(err)
		}
		for _, k := range keysOf(t, m, "") {
			if !strings.HasPrefix(k, LogDir) {
				t.Errorf("wrote %s", k)
			}
		}
		if got := paths(t, mustLatest(t, l)); len(got) != 3 {
			t.Errorf("%q", got)
		}
	})
	t.Run("a text file of a petabyte is refused unread", func(t *testing.T) {
		_, m := testLog(t)
		rawTable(t, m, 3)
		for _, key := range []string{CommitKey(1), LogDir + hintName} {
			l := Open(bigStore{m, key}, Options{Sleep: noSleep})
			put(t, m, LogDir+hintName, `{"version":0,"size":1}`)
			s, err := l.Latest(ctx)
			if key == CommitKey(1) {
				wantError(t, err, ErrCorrupt, codeCorrupt)
			} else if err != nil || s.Version != 2 {
				t.Errorf("%v", err)
			}
		}
		l := Open(bigStore{m, ChecksumKey(2)}, Options{Sleep: noSleep})
		put(t, m, ChecksumKey(2), "x")
		wantError(t, mustLatest(t, l).VerifyChecksum(ctx), ErrCorrupt, codeCorrupt)
	})
	t.Run("R-752 in-commit timestamps that are no times", func(t *testing.T) {
		for _, ms := range []string{"9223372036854775807", "-1"} {
			l, m := testLog(t)
			newTable(t, l, nil, ictOn, InCommitTimestamp)
			put(t, m, CommitKey(1), `{"commitInfo":{"inCommitTimestamp":`+ms+`}}`+"\n"+addLine("x")+"\n")
			tx := l.Begin(mustLatest(t, l))
			tx.Add(file("y"))
			_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
			wantError(t, err, ErrCorrupt, "DELTA_INVALID_COMMIT_TIMESTAMP")
		}
	})
	t.Run("W-801 row ids that would overflow", func(t *testing.T) {
		l, m := testLog(t)
		newTable(t, l, nil, rowsOn, RowTracking)
		put(t, m, CommitKey(1), `{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"rowIdHighWaterMark\":9223372036854775806}","removed":false}}`+"\n")
		tx := l.Begin(mustLatest(t, l))
		tx.Add(withRows(file("a"), 2))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrInvalid, "DELTA_ROW_ID_OVERFLOW")
	})
}

func FuzzParseChecksum(f *testing.F) {
	f.Add([]byte(`{"txnId":"t","tableSizeBytes":1,"numFiles":1,"numMetadata":1,"numProtocol":1,"setTransactions":[{"appId":"a","version":1}],"domainMetadata":[{"domain":"d","configuration":"","removed":false}],"deletedRecordCountsHistogramOpt":{"deletedRecordCounts":[1]},"metadata":{"id":"m","format":{"provider":"parquet"}},"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseChecksum("x", data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("not a CorruptError: %v", err)
			}
			return
		}
		c.count(1, &DeletionVectorDescriptor{Cardinality: 5}, 1)
		out, err := marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseChecksum("x", out); err != nil {
			t.Fatalf("does not read back: %v\n%s", err, out)
		}
	})
}

func FuzzJSONChecksum(f *testing.F) {
	f.Add([]byte(`{"k0":"'v 0'","checksum":"x","k1":{"k2":2,"k3":["v3",[1,2]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := jsonChecksum(data)
		if err != nil {
			return
		}
		if b, err := jsonChecksum(append([]byte(" \n"), data...)); err != nil || a != b {
			t.Fatalf("%s, with space %s %v", a, b, err)
		}
	})
}

func FuzzParseLogName(f *testing.F) {
	for _, s := range []string{"00000000000000000001.json", "1.checkpoint.0000000001.0000000002.parquet", "1.2.compacted.json", "1.crc", "1.checkpoint.a-b.json"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		g := parseLogName(name)
		if g.version < 0 || g.kind == compactedFile && g.last <= g.version || g.kind == multipartCheckpoint && (g.part < 1 || g.part > g.parts) {
			t.Fatalf("%+v", g)
		}
	})
}

func FuzzDomains(f *testing.F) {
	f.Add(`{"clusteringColumns":[["a"]]}`)
	f.Add(`{"rowIdHighWaterMark":5}`)
	f.Fuzz(func(t *testing.T, text string) {
		if paths, err := parseClustering(text); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		} else if err == nil {
			if again, err := parseClustering(NewClusteringDomain(paths).Configuration); err != nil || fmt.Sprint(again) != fmt.Sprint(paths) {
				t.Fatalf("%v %v %v", paths, again, err)
			}
		}
		d := &DomainMetadata{Domain: rowTrackingDomain, Configuration: text}
		if mark, err := parseHighWaterMark(d); err == nil {
			next, err := parseHighWaterMark(highWaterMarkDomain(d, mark+1))
			if mark < math.MaxInt64 && (err != nil || next != mark+1) {
				t.Fatalf("%d %d %v", mark, next, err)
			}
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// FuzzSnapshot replays two commits and a V2 checkpoint of any bytes.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(addLine("a")), []byte(`{"checkpointMetadata":{"version":1}}`+"\n"+protocolLine+"\n"+metadataLine+"\n"+`{"sidecar":{"path":"x","sizeInBytes":1,"modificationTime":1}}`))
	f.Fuzz(func(t *testing.T, commit, checkpoint []byte) {
		l, m := testLog(t)
		put(t, m, CommitKey(0), protocolLine+"\n"+metadataLine+"\n")
		put(t, m, CommitKey(1), string(commit))
		put(t, m, LogDir+"00000000000000000001.checkpoint.abc.json", string(checkpoint))
		put(t, m, CompactionKey(0, 1), string(checkpoint))
		s, err := l.Latest(context.Background())
		if err == nil {
			_, err = s.FileList(context.Background())
		}
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotFound) {
			t.Fatalf("untyped error %v", err)
		}
	})
}
