package deltalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// testClock advances one second with every look.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newTestClock() *testClock {
	return &testClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	return c.now
}

func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// testLog is a log on a fresh memory store with a test clock.
func testLog(t testing.TB) (*Log, *storage.Memory) {
	t.Helper()
	clock := newTestClock()
	m := storage.NewMemoryWith(t.Name(), storage.MemoryOptions{Clock: clock.Now})
	return Open(m, Options{Clock: clock.Now, Sleep: noSleep}), m
}

const longSchema = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},{"name":"p","type":"string","nullable":true,"metadata":{}}]}`

// newTable creates version 0 with columns id, p and the given partition columns and
// properties; features are added to the protocol.
func newTable(t testing.TB, l *Log, partitions []string, props map[string]string, features ...Feature) *Snapshot {
	t.Helper()
	p, err := NewProtocol(features...)
	if err != nil {
		t.Fatal(err)
	}
	return newTableOf(t, l, p, &Metadata{ID: "table", Format: Format{Provider: "parquet"}, SchemaString: longSchema, PartitionColumns: partitions, Configuration: props})
}

func newTableOf(t testing.TB, l *Log, p *Protocol, m *Metadata) *Snapshot {
	t.Helper()
	tx := l.Begin(nil)
	tx.SetProtocol(p)
	tx.SetMetadata(m)
	mustCommit(t, tx, CommitOptions{Operation: "CREATE TABLE"})
	return mustLatest(t, l)
}

func mustLatest(t testing.TB, l *Log) *Snapshot {
	t.Helper()
	s, err := l.Latest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustCommit(t testing.TB, tx *Transaction, opts CommitOptions) CommitResult {
	t.Helper()
	if opts.Operation == "" {
		opts.Operation = "WRITE"
	}
	r, err := tx.Commit(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// file is an add of a path; part, if any, is the value of partition column p.
func file(path string, part ...string) *Add {
	a := &Add{Path: path, PartitionValues: map[string]*string{}, Size: 10, ModificationTime: 1, DataChange: true}
	if len(part) > 0 {
		a.PartitionValues["p"] = &part[0]
	}
	return a
}

// put writes raw bytes into the store.
func put(t testing.TB, s storage.Store, key, data string) {
	t.Helper()
	if err := s.Put(context.Background(), key, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func paths(t testing.TB, s *Snapshot) []string {
	t.Helper()
	files, err := s.FileList(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}

// wantError checks class and code of an error.
func wantError(t testing.TB, err, class error, code string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("got %v, want class %v", err, class)
		return
	}
	if got := codeOf(err); code != "" && got != code {
		t.Errorf("got code %q (%v), want %q", got, err, code)
	}
}

const (
	protocolLine = `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`
	metadataLine = `{"metaData":{"id":"m","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{}}}`
)

func addLine(path string) string {
	return fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`, path)
}

// rawTable writes n commits, version v adding file f<v>.
func rawTable(t testing.TB, s storage.Store, n int) {
	t.Helper()
	for v := range n {
		data := addLine(fmt.Sprintf("f%d", v)) + "\n"
		if v == 0 {
			data = protocolLine + "\n" + metadataLine + "\n" + data
		}
		put(t, s, CommitKey(int64(v)), data)
	}
}

func readKey(t testing.TB, s storage.Store, key string) []byte {
	t.Helper()
	b, err := storage.ReadAll(context.Background(), s, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parseSchema(t testing.TB, ddl string) *schema.Struct {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
