package cdf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

var feedOn = map[string]string{"delta.enableChangeDataFeed": "true"}

// base is when version 0 of the tables of this file was committed; each further
// version is ten seconds later.
var base = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// fixture is a table with hand-written commits.
type fixture struct {
	t     *testing.T
	store *storage.Memory
	table *delta.Table
	next  int64
}

// newFixture makes a table whose rows are written by one append each; the commit
// files have the times base, base+10s, ...
func newFixture(t *testing.T, spec testtable.Spec) *fixture {
	t.Helper()
	f := &fixture{t: t}
	f.store = storage.NewMemoryWith("t", storage.MemoryOptions{Clock: func() time.Time {
		return base.Add(time.Duration(f.next) * 10 * time.Second)
	}})
	rows := spec.Rows
	spec.Store, spec.Rows, spec.Options.NoCheckpoints = f.store, nil, true
	f.table = testtable.New(t, spec)
	f.next++
	for _, r := range rows {
		f.append(spec.DDL, r)
	}
	return f
}

func (f *fixture) append(ddl, rows string) {
	f.t.Helper()
	if _, err := f.table.Append(context.Background(), testtable.Rows(f.t, ddl, rows), delta.WriteOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.next++
}

// commit writes the next version by hand: actions, each a pair of name and value.
func (f *fixture) commit(actions ...any) int64 {
	f.t.Helper()
	var b strings.Builder
	for i := 0; i < len(actions); i += 2 {
		raw, err := json.Marshal(map[string]any{actions[i].(string): actions[i+1]})
		if err != nil {
			f.t.Fatal(err)
		}
		b.Write(append(raw, '\n'))
	}
	if err := f.store.Create(context.Background(), deltalog.CommitKey(f.next), []byte(b.String())); err != nil {
		f.t.Fatal(err)
	}
	f.next++
	return f.next - 1
}

func (f *fixture) snapshot() *deltalog.Snapshot {
	f.t.Helper()
	s, err := f.table.Snapshot(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// file is the only live file.
func (f *fixture) file() *deltalog.Add {
	f.t.Helper()
	files, err := f.snapshot().FileList(context.Background())
	if err != nil || len(files) != 1 {
		f.t.Fatalf("%d files, %v", len(files), err)
	}
	a := *files[0]
	return &a
}

func (f *fixture) feed(o cdf.Options) ([]string, error) {
	f.t.Helper()
	feed, err := f.table.Changes(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return collect(f.t, feed)
}

func versions(from, to int64) cdf.Range { return cdf.Range{FromVersion: &from, ToVersion: &to} }

// changes reads a range as sorted texts: version, change type and the id column.
func (f *fixture) changes(from, to int64) []string {
	f.t.Helper()
	lines, err := f.feed(cdf.Options{Range: versions(from, to)})
	if err != nil {
		f.t.Fatal(err)
	}
	out := []string{}
	for _, l := range lines {
		var row struct {
			ID      int64  `json:"id"`
			Kind    string `json:"_change_type"`
			Version int64  `json:"_commit_version"`
		}
		if err := json.Unmarshal([]byte(l), &row); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d %s %d", row.Version, row.Kind, row.ID))
	}
	slices.Sort(out)
	return out
}

func (f *fixture) want(version int64, want ...string) {
	f.t.Helper()
	got := f.changes(version, version)
	for i, w := range want {
		want[i] = fmt.Sprintf("%d %s", version, w)
	}
	slices.Sort(want)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("version %d: got %q, want %q", version, got, want)
	}
}

func wantCode(t *testing.T, err error, code string, class error) {
	t.Helper()
	var coded interface{ Code() string }
	if !errors.As(err, &coded) || coded.Code() != code || !errors.Is(err, class) {
		t.Errorf("got %v, want %s", err, code)
	}
}

func vector(rows ...uint64) *deltalog.DeletionVectorDescriptor {
	bm := roaring64.New()
	bm.AddMany(rows)
	d := dv.EncodeInline(bm)
	return &deltalog.DeletionVectorDescriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv, SizeInBytes: d.SizeInBytes, Cardinality: d.Cardinality}
}

const ddl = "id BIGINT, name STRING"

func TestRange(t *testing.T) {
	f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`}})
	v := func(n int64) *int64 { return &n }
	at := func(seconds int) *time.Time {
		t := base.Add(time.Duration(seconds) * time.Second)
		return &t
	}
	type span struct{ from, to int64 }
	for _, c := range []struct {
		name  string
		r     cdf.Range
		want  span
		empty bool
		code  string
		class error
	}{
		{name: "no start", r: cdf.Range{ToVersion: v(1)}, code: "DELTA_NO_START_FOR_CDC_READ", class: deltalog.ErrInvalid},
		{name: "two starts", r: cdf.Range{FromVersion: v(1), FromTime: at(0)}, code: "DELTA_MULTIPLE_CDC_BOUNDARY", class: deltalog.ErrInvalid},
		{name: "two ends", r: cdf.Range{FromVersion: v(1), ToVersion: v(1), ToTime: at(0)}, code: "DELTA_MULTIPLE_CDC_BOUNDARY", class: deltalog.ErrInvalid},
		{name: "both ends", r: cdf.Range{FromVersion: v(1), ToVersion: v(2)}, want: span{1, 2}},
		{name: "one version", r: cdf.Range{FromVersion: v(2), ToVersion: v(2)}, want: span{2, 2}},
		{name: "no end", r: cdf.Range{FromVersion: v(1)}, want: span{1, 3}},
		{name: "end before start", r: cdf.Range{FromVersion: v(2), ToVersion: v(1)}, code: "DELTA_INVALID_CDC_RANGE", class: deltalog.ErrInvalid},
		{name: "negative", r: cdf.Range{FromVersion: v(-1)}, code: "DELTA_INVALID_CDC_RANGE", class: deltalog.ErrInvalid},
		{name: "start after latest", r: cdf.Range{FromVersion: v(4)}, code: "DELTA_CDC_START_VERSION_AFTER_LATEST", class: deltalog.ErrNotFound},
		{name: "start after latest, allowed", r: cdf.Range{FromVersion: v(4), OutOfRange: true}, empty: true},
		{name: "end version after latest", r: cdf.Range{FromVersion: v(2), ToVersion: v(99)}, want: span{2, 3}},
		{name: "start time between", r: cdf.Range{FromTime: at(15)}, want: span{2, 3}},
		{name: "start time exact", r: cdf.Range{FromTime: at(10)}, want: span{1, 3}},
		{name: "start time before all", r: cdf.Range{FromTime: at(-100)}, want: span{0, 3}},
		{name: "start time after latest", r: cdf.Range{FromTime: at(31)}, code: "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", class: deltalog.ErrNotFound},
		{name: "start time after latest, allowed", r: cdf.Range{FromTime: at(31), OutOfRange: true}, empty: true},
		{name: "end time between", r: cdf.Range{FromVersion: v(0), ToTime: at(25)}, want: span{0, 2}},
		{name: "end time exact", r: cdf.Range{FromVersion: v(0), ToTime: at(20)}, want: span{0, 2}},
		{name: "end time before all", r: cdf.Range{FromVersion: v(0), ToTime: at(-1)}, code: "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", class: deltalog.ErrNotFound},
		{name: "end time after latest", r: cdf.Range{FromVersion: v(0), ToTime: at(31)}, code: "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", class: deltalog.ErrNotFound},
		{name: "end time after latest, allowed", r: cdf.Range{FromVersion: v(1), ToTime: at(31), OutOfRange: true}, want: span{1, 3}},
		{name: "times between two commits", r: cdf.Range{FromTime: at(11), ToTime: at(19)}, empty: true},
		{name: "times the wrong way round", r: cdf.Range{FromTime: at(19), ToTime: at(11)}, code: "DELTA_INVALID_CDC_RANGE", class: deltalog.ErrInvalid},
		{name: "end time before start version", r: cdf.Range{FromVersion: v(2), ToTime: at(11)}, code: "DELTA_INVALID_CDC_RANGE", class: deltalog.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			feed, err := f.table.Changes(context.Background(), cdf.Options{Range: c.r})
			if c.code != "" {
				wantCode(t, err, c.code, c.class)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if feed.Empty != c.empty || !c.empty && (span{feed.From, feed.To}) != c.want {
				t.Errorf("got %d..%d empty %v", feed.From, feed.To, feed.Empty)
			}
			if lines, err := collect(t, feed); err != nil || c.empty && len(lines) > 0 {
				t.Errorf("%d rows, %v", len(lines), err)
			}
		})
	}
}

func TestFeed_Inserts(t *testing.T) {
	f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1,"name":"a"}`, `{"id":2,"name":"b"}{"id":3,"name":"b"}`}})
	t.Run("R-905 version and time", func(t *testing.T) {
		got, err := f.feed(cdf.Options{Range: versions(1, 1)})
		want := `{"_change_type":"insert","_commit_timestamp":"2024-01-01T00:00:10.000000Z","_commit_version":1,"id":1,"name":"a"}`
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("columns and condition", func(t *testing.T) {
		feed, err := f.table.Changes(context.Background(), cdf.Options{Range: versions(0, 2), Columns: []string{"NAME"}, Where: "id > 2 and _commit_version = 2 and _change_type <> 'delete' and _commit_timestamp > '2024-01-01'"})
		if err != nil {
			t.Fatal(err)
		}
		if names := strings.Join(feed.Schema.Names(), " "); names != "name _change_type _commit_version _commit_timestamp" {
			t.Errorf("columns %s", names)
		}
		got, err := collect(t, feed)
		if err != nil || len(got) != 1 || !strings.Contains(got[0], `"name":"b"`) || strings.Contains(got[0], `"id"`) {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("no table column", func(t *testing.T) {
		got, err := f.feed(cdf.Options{Range: versions(1, 1), Columns: []string{}})
		if err != nil || len(got) != 1 || strings.Contains(got[0], "name") {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("unknown column", func(t *testing.T) {
		_, err := f.feed(cdf.Options{Range: versions(1, 1), Columns: []string{"nope"}})
		wantCode(t, err, "UNRESOLVED_COLUMN", deltalog.ErrInvalid)
	})
	t.Run("condition that is none", func(t *testing.T) {
		_, err := f.feed(cdf.Options{Range: versions(1, 1), Where: "id"})
		wantCode(t, err, "DATATYPE_MISMATCH", deltalog.ErrInvalid)
	})
	t.Run("read twice, at once, and left early", func(t *testing.T) {
		feed, err := f.table.Changes(context.Background(), cdf.Options{Range: versions(0, 2)})
		if err != nil {
			t.Fatal(err)
		}
		for range feed.Rows(context.Background()) {
			break
		}
		done := make(chan []string)
		for range 2 {
			go func() {
				lines, _ := collect(t, feed)
				done <- lines
			}()
		}
		if a, b := <-done, <-done; len(a) != 3 || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%v and %v", a, b)
		}
	})
}

// protocolDV supports what the hand-written commits use.
var protocolDV = map[string]any{"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []string{"deletionVectors"},
	"writerFeatures": []string{"deletionVectors", "changeDataFeed", "appendOnly", "invariants"}}

func TestFeed_DeletionVectors(t *testing.T) {
	f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{testtable.Numbers(0, 6, "")}})
	f.commit("protocol", protocolDV)
	file := f.file()
	with := func(d *deltalog.DeletionVectorDescriptor) *deltalog.Add {
		a := *file
		a.DeletionVector, a.DataChange = d, true
		return &a
	}
	gone := func(d *deltalog.DeletionVectorDescriptor) *deltalog.Remove { return with(d).Remove(base, true) }
	a, b := vector(1, 3), vector(3, 4)

	t.Run("R-902 none to A", func(t *testing.T) {
		f.want(f.commit("remove", gone(nil), "add", with(a)), "delete 1", "delete 3")
	})
	t.Run("R-902 A to B, add first", func(t *testing.T) {
		f.want(f.commit("add", with(b), "remove", gone(a)), "delete 4", "insert 1")
	})
	t.Run("R-902 B to none", func(t *testing.T) {
		f.want(f.commit("remove", gone(b), "add", with(nil)), "insert 3", "insert 4")
	})
	t.Run("R-902 none to none", func(t *testing.T) { f.want(f.commit("remove", gone(nil), "add", with(nil))) })
	t.Run("R-902 the same vector", func(t *testing.T) { f.want(f.commit("remove", gone(a), "add", with(a))) })
	t.Run("R-902 two spellings of one path", func(t *testing.T) {
		r := gone(nil)
		r.Path = strings.Replace(r.Path, "part-", "%70art-", 1)
		f.want(f.commit("remove", r, "add", with(a)), "delete 1", "delete 3")
	})
	t.Run("R-901 without dataChange", func(t *testing.T) {
		add, remove := with(nil), gone(a)
		add.DataChange, remove.DataChange = false, false
		f.want(f.commit("remove", remove, "add", add))
	})
	t.Run("R-903 lone remove", func(t *testing.T) {
		f.want(f.commit("remove", gone(a)), "delete 0", "delete 2", "delete 4", "delete 5")
	})
	t.Run("R-903 lone add", func(t *testing.T) {
		f.want(f.commit("add", with(b)), "insert 0", "insert 1", "insert 2", "insert 5")
	})
	t.Run("R-653 vector of another file", func(t *testing.T) {
		v := f.commit("remove", gone(b), "add", with(vector(3, 77)))
		_, err := f.feed(cdf.Options{Range: versions(v, v)})
		wantCode(t, err, "DELETION_VECTOR_CORRUPT", deltalog.ErrCorrupt)
	})
	t.Run("R-653 vector of far more rows than the file has", func(t *testing.T) {
		many := roaring64.New()
		many.AddRange(0, 1<<27)
		d := dv.EncodeInline(many)
		v := f.commit("remove", gone(b), "add", with(&deltalog.DeletionVectorDescriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv, SizeInBytes: d.SizeInBytes, Cardinality: d.Cardinality}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := f.feed(cdf.Options{Range: versions(v, v)})
		runtime.ReadMemStats(&after)
		wantCode(t, err, "DELETION_VECTOR_CORRUPT", deltalog.ErrCorrupt)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%d MiB were allocated for a vector of %d bytes", took>>20, d.SizeInBytes)
		}
	})
	t.Run("R-907 vector gone", func(t *testing.T) {
		lost := vector(1)
		off := int32(1)
		lost.StorageType, lost.PathOrInlineDv, lost.Offset = "u", "ab^-aqEH.-t@S}K{vb[*k^", &off
		v := f.commit("remove", gone(b), "add", with(lost))
		_, err := f.feed(cdf.Options{Range: versions(v, v)})
		if !errors.Is(err, deltalog.ErrNotFound) || !strings.Contains(err.Error(), file.Path) {
			t.Error(err)
		}
	})
	t.Run("added twice", func(t *testing.T) {
		v := f.commit("add", with(nil), "add", with(a))
		_, err := f.feed(cdf.Options{Range: versions(v, v)})
		wantCode(t, err, "DELTA_DUPLICATE_ACTIONS_FOUND", deltalog.ErrCorrupt)
	})
}

func copyObject(t *testing.T, s storage.Store, from, to string) {
	t.Helper()
	r, err := s.Open(context.Background(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data := make([]byte, r.Size())
	if _, err := r.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(context.Background(), to, data); err != nil {
		t.Fatal(err)
	}
}

func TestFeed_Files(t *testing.T) {
	const ddl = "id BIGINT, p STRING"
	ctx := context.Background()
	f := newFixture(t, testtable.Spec{DDL: ddl, Partition: []string{"p"}, Properties: feedOn, Rows: []string{`{"id":1,"p":"x"}{"id":2,"p":"x"}`}})
	file := f.file()
	t.Run("R-904 partition values come from the action", func(t *testing.T) {
		other, p := *file, "right"
		other.Path, other.PartitionValues = "p=wrong/file.parquet", map[string]*string{"p": &p}
		copyObject(t, f.store, file.Path, other.Path)
		v := f.commit("add", &other)
		lines, err := f.feed(cdf.Options{Range: versions(v, v)})
		if err != nil || len(lines) != 2 || !strings.Contains(lines[0], `"p":"right"`) {
			t.Errorf("%v, %v", lines, err)
		}
		if _, err := f.table.Update(ctx, "id = id + 10", "p = 'right' and id = 1", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		f.next++
		c, err := f.table.Log().ReadCommit(ctx, f.next-1)
		if err != nil || len(c.CDC) != 1 {
			t.Fatalf("%v, %v", c, err)
		}
		// The same for a change file that lies elsewhere.
		cdc := *c.CDC[0]
		copyObject(t, f.store, cdc.Path, "_change_data/p=wrong/cdc.parquet")
		cdc.Path = "_change_data/p=wrong/cdc.parquet"
		f.want(f.commit("cdc", &cdc), "update_preimage 1", "update_postimage 11")
	})
	t.Run("R-901 change files hide adds and removes", func(t *testing.T) {
		f.want(f.next-2, "update_preimage 1", "update_postimage 11")
	})
	t.Run("R-906 a merge that changed nothing", func(t *testing.T) {
		merge := func(deleted string) map[string]any {
			return map[string]any{"operation": "MERGE", "operationMetrics": map[string]string{
				"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": deleted, "numTargetRowsCopied": "2"}}
		}
		again := *file
		again.Path, again.DataChange = "p=x/again.parquet", true
		copyObject(t, f.store, file.Path, again.Path)
		f.want(f.commit("commitInfo", merge("0"), "remove", file.Remove(base, true), "add", &again))
		f.want(f.commit("commitInfo", merge("1"), "remove", again.Remove(base, true), "add", file), "delete 1", "delete 2", "insert 1", "insert 2")
	})
	t.Run("R-908 remove without partition values", func(t *testing.T) {
		v := f.commit("remove", map[string]any{"path": file.Path, "dataChange": true})
		_, err := f.feed(cdf.Options{Range: versions(v, v)})
		wantCode(t, err, "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", deltalog.ErrCorrupt)
		var e *cdf.Error
		if !errors.As(err, &e) || e.Version != v || e.Path != file.Path {
			t.Errorf("%+v", e)
		}
	})
	t.Run("R-907 a file that is gone", func(t *testing.T) {
		if err := f.store.Delete(ctx, file.Path); err != nil {
			t.Fatal(err)
		}
		_, err := f.feed(cdf.Options{Range: versions(1, 1)})
		wantCode(t, err, "DATA_FILE_MISSING", deltalog.ErrNotFound)
		if err == nil || !strings.Contains(err.Error(), file.Path) || !strings.Contains(err.Error(), "VACUUM") {
			t.Error(err)
		}
	})
	t.Run("R-908 without partitions a bare remove is enough", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: "id BIGINT", Properties: feedOn, Rows: []string{`{"id":1}`}})
		f.want(f.commit("remove", map[string]any{"path": f.file().Path, "dataChange": true}), "delete 1")
	})
}

func TestFeed_Enablement(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, testtable.Spec{DDL: ddl, Rows: []string{`{"id":1}`}})
	set := func(v string) {
		t.Helper()
		if _, err := f.table.SetProperties(ctx, map[string]string{"delta.enableChangeDataFeed": v}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		f.next++
	}
	set("true") // 2
	f.append(ddl, `{"id":2}`)
	set("false") // 4
	f.append(ddl, `{"id":3}`)
	set("true") // 6
	f.append(ddl, `{"id":4}`)
	for _, c := range []struct {
		from, to, fault int64
		rows            int
	}{
		{0, 7, 0, 0}, {1, 1, 1, 0}, {2, 3, -1, 1}, {2, 2, -1, 0}, {3, 3, -1, 1}, {3, 4, 4, 0}, {4, 4, 4, 0}, {2, 7, 4, 0}, {5, 7, 5, 0}, {6, 7, -1, 1},
	} {
		t.Run(fmt.Sprintf("R-909 %d-%d", c.from, c.to), func(t *testing.T) {
			lines, err := f.feed(cdf.Options{Range: versions(c.from, c.to)})
			if c.fault < 0 {
				if err != nil || len(lines) != c.rows {
					t.Errorf("%d rows, %v", len(lines), err)
				}
				return
			}
			wantCode(t, err, "DELTA_MISSING_CHANGE_DATA", deltalog.ErrUnsupported)
			var e *cdf.Error
			if errors.As(err, &e) && e.Version != c.fault {
				t.Errorf("version %d at fault, want %d", e.Version, c.fault)
			}
		})
	}
}

func TestFeed_SchemaChanges(t *testing.T) {
	// evolve commits a metadata with another schema (and partitioning).
	evolve := func(f *fixture, ddl string, partition ...string) int64 {
		s, err := schema.ParseDDL(ddl)
		if err != nil {
			f.t.Fatal(err)
		}
		m := *f.snapshot().Metadata
		m.SchemaString = s.JSON()
		m.PartitionColumns = partition
		return f.commit("metaData", &m)
	}
	const ddl = "id BIGINT, name STRING, s STRUCT<a: INT>"
	row := `{"id":1,"name":"a","s":{"a":1}}`
	t.Run("R-910 a column added later is null before", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{row}})
		v := evolve(f, "id BIGINT, late INT, name STRING, s STRUCT<a: INT, b: STRING>")
		lines, err := f.feed(cdf.Options{Range: versions(0, v)})
		if err != nil || len(lines) != 1 || !strings.Contains(lines[0], `"late":null`) || !strings.Contains(lines[0], `"s":{"a":1,"b":null}`) {
			t.Errorf("%v, %v", lines, err)
		}
		// A range that ends before has the schema of its own end.
		lines, err = f.feed(cdf.Options{Range: versions(0, v-1)})
		if err != nil || len(lines) != 1 || strings.Contains(lines[0], "late") {
			t.Errorf("%v, %v", lines, err)
		}
	})
	for _, c := range []struct{ name, ddl string }{
		{"type", "id STRING, name STRING, s STRUCT<a: INT>"},
		{"wider type", "id BIGINT, name STRING, s STRUCT<a: BIGINT>"},
		{"rename", "id BIGINT, title STRING, s STRUCT<a: INT>"},
		{"drop", "id BIGINT, name STRING"},
		{"drop inside", "id BIGINT, name STRING, s STRUCT<z: INT>"},
		{"NOT NULL", "id BIGINT NOT NULL, name STRING, s STRUCT<a: INT>"},
		{"new NOT NULL column", "id BIGINT, name STRING, s STRUCT<a: INT>, n INT NOT NULL"},
	} {
		t.Run("R-911 "+c.name, func(t *testing.T) {
			f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{row}})
			v := evolve(f, c.ddl)
			_, err := f.feed(cdf.Options{Range: versions(0, v)})
			wantCode(t, err, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA", deltalog.ErrUnsupported)
			back := evolve(f, ddl)
			_, err = f.feed(cdf.Options{Range: versions(0, back)})
			if c.name == "drop" { // what is absent in between reads as null
				if err != nil {
					t.Error(err)
				}
				return
			}
			if c.name == "NOT NULL" { // relaxed again
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, err, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE", deltalog.ErrUnsupported)
			var e *cdf.Error
			if errors.As(err, &e) && e.Version != v {
				t.Errorf("version %d at fault, want %d", e.Version, v)
			}
		})
	}
	t.Run("W-408 a version that changes the partitioning", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{row}})
		file := f.file()
		moved, name := *file, "other"
		moved.Path, moved.PartitionValues = "moved.parquet", map[string]*string{"name": &name}
		copyObject(t, f.store, file.Path, moved.Path)
		m := *f.snapshot().Metadata
		m.PartitionColumns = []string{"name"}
		v := f.commit("metaData", &m, "remove", file.Remove(base, true), "add", &moved)
		lines, err := f.feed(cdf.Options{Range: versions(v, v)})
		if err != nil || len(lines) != 2 || !strings.Contains(lines[0], `"delete"`) || !strings.Contains(lines[0], `"name":"a"`) || !strings.Contains(lines[1], `"name":"other"`) {
			t.Errorf("%v, %v", lines, err)
		}
		if all, err := f.feed(cdf.Options{Range: versions(0, v)}); err != nil || len(all) != 3 {
			t.Errorf("%v, %v", all, err)
		}
	})
}
