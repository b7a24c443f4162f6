package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// walk reads snapshots until there is none: version and number of rows of each.
func walk(t *testing.T, s Snapshots, last *event.SnapshotVersion) (versions []string, rows []int64, types string) {
	t.Helper()
	ctx := context.Background()
	for {
		x, err := s.Next(ctx, last)
		if err != nil {
			t.Fatal(err)
		}
		if x == nil {
			return versions, rows, types
		}
		n := int64(0)
		for b, err := range x.Rows {
			if err != nil {
				t.Fatal(err)
			}
			n += b.Rows.NumRows()
		}
		rows = append(rows, n)
		if x.Version == nil {
			return versions, rows, types
		}
		versions, types, last = append(versions, x.Version.Value.ValueStr(0)), x.Version.Type.String(), x.Version
	}
}

func TestOpenSnapshots_Pattern(t *testing.T) {
	for _, c := range []struct {
		name, pattern string
		files         map[string]string
		versions      []string
		rows          []int64
		typ           string
	}{
		{"one folder a day", "{version}", map[string]string{"2024-05-02/a.jsonl": `{"id":1}`, "2024-05-01/a.jsonl": "{\"id\":1}\n{\"id\":2}", "2024-05-01/b.jsonl": `{"id":3}`,
			"_tmp/x.jsonl": `{"id":9}`}, []string{"2024-05-01", "2024-05-02"}, []int64{3, 1}, "DATE"},
		{"numbers sort as numbers", "people-{version}.csv", map[string]string{"people-10.csv": "id,n\n1,a\n", "people-9.csv": "id,n\n1,a\n2,b\n", "other.csv": "id\n1\n"},
			[]string{"9", "10"}, []int64{2, 1}, "BIGINT"},
		{"a type of one's own", "dt={version:STRING}/*.jsonl", map[string]string{"dt=10/a.jsonl": `{"id":1}`, "dt=9/a.jsonl": `{"id":1}`}, []string{"10", "9"}, []int64{1, 1}, "STRING"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			s, err := OpenSnapshots(SnapshotSpec{Version: c.pattern, Spec: Spec{From: []string{dir}, Keys: []string{"id"}}})
			if err != nil {
				t.Fatal(err)
			}
			held, err := s.Held(context.Background(), nil)
			if err != nil || len(held) != len(c.versions) {
				t.Errorf("held %d versions, %v", len(held), err)
			}
			versions, rows, typ := walk(t, s, nil)
			if !slices.Equal(versions, c.versions) || !slices.Equal(rows, c.rows) || typ != c.typ {
				t.Errorf("got %q %d %s", versions, rows, typ)
			}
		})
	}
	t.Run("a version that does not fit the last type", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"1/a.jsonl": `{"id":1}`, "x/a.jsonl": `{"id":1}`})
		s, err := OpenSnapshots(SnapshotSpec{Version: "{version}", Spec: Spec{From: []string{dir}}})
		if err != nil {
			t.Fatal(err)
		}
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.Append(0)
		_, err = s.Next(context.Background(), &event.SnapshotVersion{Column: "version", Type: schema.Long, Value: b.NewArray()})
		wantSourceCode(t, err, "AUTO_CDC_FROM_SNAPSHOT_VERSION_SCHEMA_CHANGED")
	})
	t.Run("nothing there", func(t *testing.T) {
		s, err := OpenSnapshots(SnapshotSpec{Version: "{version}", Spec: Spec{From: []string{filepath.Join(t.TempDir(), "none")}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Next(context.Background(), nil)
		wantSourceCode(t, err, "SNAPSHOT_NOT_FOUND")
	})
}

func wantSourceCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestOpenSnapshots_Expression(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.jsonl": `{"id":1,"day":3}` + "\n" + `{"id":2,"day":3}`, "b.jsonl": `{"id":1,"day":3}` + "\n" + `{"id":2,"day":4}`})
	open := func(file, version string) Snapshots {
		s, err := OpenSnapshots(SnapshotSpec{Version: version, Spec: Spec{From: []string{filepath.Join(dir, file)}}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if v, rows, _ := walk(t, open("a.jsonl", "day"), nil); !slices.Equal(v, []string{"3"}) || rows[0] != 2 {
		t.Errorf("got %q %d", v, rows)
	}
	if _, rows, _ := walk(t, open("a.jsonl", ""), nil); rows[0] != 2 {
		t.Errorf("without version: %d", rows)
	}
	_, err := open("b.jsonl", "day").Next(context.Background(), nil)
	wantSourceCode(t, err, "INVALID_AUTO_CDC_FROM_SNAPSHOT_VERSION_QUERY")
	_, err = open("a.jsonl", "nothing").Next(context.Background(), nil)
	wantSourceCode(t, err, "INVALID_AUTO_CDC_FROM_SNAPSHOT_VERSION_QUERY")
}

func TestOpenSnapshots_Table(t *testing.T) {
	ctx := context.Background()
	st := &schema.Struct{Fields: []schema.Field{{Name: "id", Type: schema.Long, Nullable: true}}}
	tab, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: st}, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	as, err := schema.ArrowSchema(st)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.Append(int64(i))
		if _, err := tab.Append(ctx, delta.Batches(array.NewRecordBatch(as, []arrow.Array{b.NewArray()}, 1)), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := OpenSnapshots(SnapshotSpec{Version: VersionOfTable, Table: func(context.Context) (*delta.Table, error) { return tab, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if v, rows, _ := walk(t, s, nil); !slices.Equal(v, []string{"0", "1", "2", "3"}) || !slices.Equal(rows, []int64{0, 1, 2, 3}) {
		t.Errorf("got %q %d", v, rows)
	}
}
