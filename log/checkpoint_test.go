package deltalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// openCheckpointFile opens a written checkpoint as Parquet.
func openCheckpointFile(t testing.TB, m storage.Store, version int64) *parquetio.File {
	t.Helper()
	data := readKey(t, m, CheckpointKey(version))
	f, err := parquetio.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestWriteCheckpoint(t *testing.T) {
	ctx := context.Background()
	t.Run("W-701 R-701 everything comes back", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, []string{"p"}, map[string]string{"mine": "x"}, DeletionVectors, DomainMetadataF)
		tag, id, off := "v", int64(7), int32(1)
		provider := "liquid"
		full := &Add{Path: "p=%25/x", PartitionValues: map[string]*string{"p": nil}, Size: 1 << 40, ModificationTime: 9007199254740993, DataChange: true,
			Stats: `{"numRecords":1}`, Tags: map[string]*string{"t": &tag, "n": nil}, DeletionVector: &DeletionVectorDescriptor{"u", "abc", &off, 3, 1 << 40},
			BaseRowID: &id, DefaultRowCommitVersion: &id, ClusteringProvider: &provider}
		inline := file("y", "1")
		inline.DeletionVector = &DeletionVectorDescriptor{StorageType: "i", PathOrInlineDv: "wi5b", SizeInBytes: 4, Cardinality: 1}
		tx := l.Begin(s)
		tx.Add(full, inline, file("gone", "2"), file("z", "3"))
		tx.SetTxn("app", 5)
		tx.SetDomain(&DomainMetadata{Domain: "d", Configuration: `{"a":1}`})
		tx.SetDomain(&DomainMetadata{Domain: "e", Configuration: `{}`})
		mustCommit(t, tx, CommitOptions{})
		tx = l.Begin(mustLatest(t, l))
		tx.Remove(file("gone", "2").Remove(l.Now(), true))
		tx.SetDomain(&DomainMetadata{Domain: "e", Removed: true})
		mustCommit(t, tx, CommitOptions{Operation: "DELETE"})
		before := mustLatest(t, l)
		want := describe(t, before)
		wantFiles, err := before.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		checkpointAt(t, l, 2)
		remove(t, m, CommitKey(0), CommitKey(1))
		after := mustLatest(t, l)
		if got := strings.Replace(describe(t, after), "checkpoint 2", "checkpoint -1", 1); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if !reflect.DeepEqual(after.Protocol, before.Protocol) || after.Metadata.SchemaString != before.Metadata.SchemaString || !reflect.DeepEqual(after.PartitionColumns(), before.PartitionColumns()) {
			t.Errorf("got %+v %+v", after.Protocol, after.Metadata)
		}
		files, err := after.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			w := *wantFiles[i]
			w.DataChange = false // on all file rows
			if !reflect.DeepEqual(f, &w) {
				a, _ := marshal(f)
				b, _ := marshal(w)
				t.Errorf("got  %s\nwant %s", a, b)
			}
		}
		if f := openCheckpointFile(t, m, 2); f.NumRows() != 2+1+1+1+3 {
			t.Errorf("%d rows", f.NumRows())
		}
	})
	t.Run("W-701 the smallest has two rows", func(t *testing.T) {
		l, m := testLog(t)
		newTable(t, l, nil, nil)
		checkpointAt(t, l, 0)
		if f := openCheckpointFile(t, m, 0); f.NumRows() != 2 {
			t.Errorf("%d rows", f.NumRows())
		}
		remove(t, m, CommitKey(0))
		if s := mustLatest(t, l); s.Version != 0 || len(paths(t, s)) != 0 {
			t.Errorf("got %d %v", s.Version, paths(t, s))
		}
	})
	t.Run("W-702 everything optional, also for NOT NULL columns", func(t *testing.T) {
		l, m := testLog(t)
		p, err := NewProtocol()
		if err != nil {
			t.Fatal(err)
		}
		s := newTableOf(t, l, p, &Metadata{ID: "t", Format: Format{Provider: "parquet"}, PartitionColumns: []string{"p"},
			SchemaString:  parseSchema(t, "id BIGINT NOT NULL, p INT NOT NULL, s STRUCT<x: INT NOT NULL>").JSON(),
			Configuration: map[string]string{"delta.checkpoint.writeStatsAsStruct": "true"}})
		tx := l.Begin(s)
		tx.Add(file("a", "1"))
		mustCommit(t, tx, CommitOptions{})
		checkpointAt(t, l, 1)
		var walk func(t *testing.T, typ schema.Type, path string)
		walk = func(t *testing.T, typ schema.Type, path string) {
			switch typ := typ.(type) {
			case *schema.Struct:
				for _, f := range typ.Fields {
					if !f.Nullable {
						t.Errorf("%s.%s is required", path, f.Name)
					}
					walk(t, f.Type, path+"."+f.Name)
				}
			case *schema.Array:
				if !typ.ContainsNull {
					t.Errorf("elements of %s are required", path)
				}
				walk(t, typ.Elem, path)
			case *schema.Map:
				if !typ.ValueContainsNull {
					t.Errorf("values of %s are required", path)
				}
			}
		}
		f := openCheckpointFile(t, m, 1)
		walk(t, f.Schema(), "")
		if !f.HasColumn("add", "partitionValues_parsed", "p") || !f.HasColumn("add", "stats_parsed", "minValues", "id") || !f.HasColumn("add", "stats_parsed", "nullCount", "s", "x") || f.HasColumn("add", "stats_parsed", "minValues", "p") {
			t.Errorf("W-704 columns %s", f.Schema())
		}
	})
	t.Run("W-704 which statistics are written", func(t *testing.T) {
		for _, c := range []struct {
			props              map[string]string
			json, parsed       bool
			stats, wantRestore string
		}{
			{nil, true, false, `{"numRecords":3}`, `{"numRecords":3}`},
			{map[string]string{"delta.checkpoint.writeStatsAsJson": "false"}, false, false, `{"numRecords":3}`, ""},
			{map[string]string{"delta.checkpoint.writeStatsAsStruct": "true"}, true, true, `{"numRecords":3}`, `{"numRecords":3}`},
			{map[string]string{"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}, false, true,
				`{"numRecords":3,"minValues":{"id":1,"p":"a"},"maxValues":{"id":9007199254740993,"p":"z"},"nullCount":{"id":0,"p":1},"tightBounds":true}`, ""},
			{map[string]string{"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}, false, true, `not JSON`, ""},
		} {
			l, m := testLog(t)
			tx := l.Begin(newTable(t, l, nil, c.props))
			f := file("a")
			f.Stats = c.stats
			tx.Add(f)
			mustCommit(t, tx, CommitOptions{})
			checkpointAt(t, l, 1)
			pf := openCheckpointFile(t, m, 1)
			if pf.HasColumn("add", "stats") != c.json || pf.HasColumn("add", "stats_parsed") != c.parsed {
				t.Errorf("%v: columns %s", c.props, pf.Schema())
			}
			files, err := mustLatest(t, l).FileList(ctx)
			if err != nil {
				t.Fatal(err)
			}
			want := c.wantRestore
			if !c.json && c.parsed && json.Valid([]byte(c.stats)) {
				want = c.stats
			}
			if files[0].Stats != want {
				t.Errorf("R-703 %v: stats %s, want %s", c.props, files[0].Stats, want)
			}
		}
	})
	t.Run("R-703 W-704 statistics of every type survive the struct form", func(t *testing.T) {
		l, _ := testLog(t)
		p, err := NewProtocol(TimestampNTZ)
		if err != nil {
			t.Fatal(err)
		}
		s := newTableOf(t, l, p, &Metadata{ID: "t", Format: Format{Provider: "parquet"}, PartitionColumns: []string{"part"},
			SchemaString: parseSchema(t, "s STRING, l BIGINT, i INT, h SMALLINT, b TINYINT, f FLOAT, d DOUBLE, m DECIMAL(38,18), dt DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, "+
				"bo BOOLEAN, bi BINARY, st STRUCT<x: INT, y: STRUCT<z: STRING>>, ar ARRAY<INT>, mp MAP<STRING, INT>, v VOID, part DATE").JSON(),
			Configuration: map[string]string{"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}})
		bounds := `{"s":"ü<","l":9007199254740993,"i":-1,"h":2,"b":3,"f":1.5,"d":"NaN","m":12345678901234567890.123456789012345678,"dt":"1969-12-31","ts":"2024-06-15T19:30:45.123Z","n":"2024-06-15T19:30:45.000","st":{"x":1,"y":{"z":"q"}}}`
		stats := `{"numRecords":3,"minValues":` + bounds + `,"maxValues":` + bounds + `,"nullCount":{"s":0,"bo":1,"bi":2,"st":{"x":0,"y":{"z":3}},"ar":1,"mp":2},"tightBounds":false}`
		day := "2024-01-01"
		f := &Add{Path: "a", PartitionValues: map[string]*string{"part": &day}, Size: 1, ModificationTime: 1, DataChange: true, Stats: stats}
		tx := l.Begin(s)
		tx.Add(f)
		mustCommit(t, tx, CommitOptions{})
		checkpointAt(t, l, 1)
		files, err := mustLatest(t, l).FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if files[0].Stats != stats {
			t.Errorf("got  %s\nwant %s", files[0].Stats, stats)
		}
	})
	t.Run("W-104 a checkpoint is never overwritten", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 3)
		checkpointAt(t, l, 1)
		first := readKey(t, m, CheckpointKey(1))
		checkpointAt(t, l, 1)
		if !bytes.Equal(first, readKey(t, m, CheckpointKey(1))) {
			t.Error("checkpoint 1 has changed")
		}
	})
	t.Run("W-706 after every tenth commit, or by the property", func(t *testing.T) {
		for props, want := range map[string][]int64{"": {10, 20}, "7": {7, 14, 21}, "100": nil} {
			l, m := testLog(t)
			conf := map[string]string{}
			if props != "" {
				conf["delta.checkpointInterval"] = props
			}
			newTable(t, l, nil, conf)
			for i := range 21 {
				tx := l.Begin(mustLatest(t, l))
				tx.Add(file(fmt.Sprint(i)))
				mustCommit(t, tx, CommitOptions{})
			}
			var got []int64
			for o, err := range m.List(ctx, LogDir, "") {
				if err != nil {
					t.Fatal(err)
				}
				if f := parseLogName(logName(o.Key)); f.kind == classicCheckpoint {
					got = append(got, f.version)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("interval %q: checkpoints %v, want %v", props, got, want)
			}
			if want != nil && l.readHint(ctx) != want[len(want)-1] {
				t.Errorf("interval %q: hint %d", props, l.readHint(ctx))
			}
		}
	})
	t.Run("W-705 a failed checkpoint does not fail the commit", func(t *testing.T) {
		for _, rule := range []faultstore.Rule{
			{Match: faultstore.On(faultstore.NewWriter, ""), Times: -1}, {Match: faultstore.On(faultstore.Write, ""), Times: -1},
			{Match: faultstore.On(faultstore.Close, ""), Times: -1}, {Match: faultstore.On(faultstore.Put, ""), Times: -1},
		} {
			l, m := testLog(t)
			s := newTable(t, l, nil, map[string]string{"delta.checkpointInterval": "1"})
			tx := Open(faultstore.New(m, rule), l.opts).Begin(s)
			tx.Add(file("a"))
			r := mustCommit(t, tx, CommitOptions{})
			if r.Version != 1 || r.Checkpoint || r.CheckpointErr == nil {
				t.Errorf("result %+v", r)
			}
			if s := mustLatest(t, l); s.Version != 1 || len(paths(t, s)) != 1 {
				t.Errorf("version %d %v", s.Version, paths(t, s))
			}
		}
	})
	t.Run("W-705 a cancelled checkpoint leaves nothing", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 2)
		s := mustLatest(t, l)
		if _, err := s.FileList(ctx); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if err := l.WriteCheckpoint(ctx, s); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := m.Head(context.Background(), CheckpointKey(1)); err == nil {
			t.Error("a checkpoint is there")
		}
	})
	t.Run("R-701 two protocols or metadata in a checkpoint", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 2)
		s := mustLatest(t, l)
		for _, which := range []string{"protocol", "metaData"} {
			w, err := newCheckpointWriter(s, false)
			if err != nil {
				t.Fatal(err)
			}
			var buf bytes.Buffer
			pw, err := parquetio.NewWriter(&buf, w.schema, parquetio.WriterOptions{AllOptional: true})
			if err != nil {
				t.Fatal(err)
			}
			w.protocol(s.Protocol)
			w.metadata(s.Metadata)
			if which == "protocol" {
				w.protocol(s.Protocol)
			} else {
				w.metadata(s.Metadata)
			}
			if err := errors.Join(w.flush(pw), pw.Close()); err != nil {
				t.Fatal(err)
			}
			put(t, m, CheckpointKey(1), buf.String())
			_, err = l.Latest(ctx)
			wantError(t, err, ErrCorrupt, "")
		}
	})
}

// TestCheckpoint_V2 reads the V2 checkpoints of the golden tables with a sidecar
// taken away.
func TestCheckpoint_V2(t *testing.T) {
	ctx := context.Background()
	for _, archive := range archives(t, "spark") {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.zst")
		if !strings.HasPrefix(name, "v2ckpt") {
			continue
		}
		t.Run("R-704 R-705 "+name, func(t *testing.T) {
			dir, roots := unpackLogs(t, archive)
			l := openLocal(t, filepath.Join(dir, roots[0]))
			s := mustLatest(t, l)
			if s.CheckpointVersion() < 0 || s.checkpoint == nil || len(s.checkpoint.sidecars) == 0 {
				t.Fatalf("not a checkpoint with sidecars: %+v", s.checkpoint)
			}
			want := paths(t, s)
			side := s.checkpoint.sidecars[0]
			remove(t, l.Store(), side)
			// Commits of before are all there, or an older checkpoint is: the state comes out
			// the same, or the missing file is named.
			again, err := l.Latest(ctx)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), side) {
					t.Errorf("got %v", err)
				}
				return
			}
			if again.CheckpointVersion() >= s.CheckpointVersion() || !reflect.DeepEqual(paths(t, again), want) {
				t.Errorf("from checkpoint %d: %v, want %v", again.CheckpointVersion(), paths(t, again), want)
			}
		})
	}
}

// TestCheckpoint_StructStats: the row counts of checkpoints that hold statistics as
// structs alone, see TestSnapshot_SparkExpectations, and their bounds.
func TestCheckpoint_StructStats(t *testing.T) {
	ctx := context.Background()
	found := 0
	for _, archive := range archives(t, "features") {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.zst")
		if !strings.Contains(name, "struct-stats-only") {
			continue
		}
		t.Run("R-703 "+name, func(t *testing.T) {
			dir, roots := unpackLogs(t, archive)
			s := mustLatest(t, openLocal(t, filepath.Join(dir, roots[0])))
			files, err := s.FileList(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				var st struct {
					NumRecords           *int64
					MinValues, NullCount map[string]any
				}
				if err := json.Unmarshal([]byte(f.Stats), &st); err != nil || st.NumRecords == nil {
					t.Fatalf("stats %q of %s: %v", f.Stats, f.Path, err)
				}
			}
			found++
		})
	}
	if found == 0 {
		t.Error("no table with struct statistics found")
	}
}

func TestSnapshot_AbsolutePaths(t *testing.T) {
	for _, archive := range archives(t, "reads") {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.zst")
		if !strings.HasPrefix(name, "canonicalized-paths") {
			continue
		}
		t.Run("R-202 R-221 "+name, func(t *testing.T) {
			dir, roots := unpackLogs(t, archive)
			s := mustLatest(t, openLocal(t, filepath.Join(dir, roots[0])))
			if got := paths(t, s); len(got) != 0 {
				t.Errorf("/x, file:/x and file:///x are one path, but these are live: %q", got)
			}
		})
	}
}

func TestTimeline(t *testing.T) {
	ctx := context.Background()
	base := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	// Files with times out of order: 0, 10, 5, 10, 30.
	setup := func(t *testing.T) *Log {
		dir := t.TempDir()
		l := openLocal(t, dir)
		rawTable(t, l.Store(), 5)
		for v, s := range []int{0, 10, 5, 10, 30} {
			if err := os.Chtimes(filepath.Join(dir, CommitKey(int64(v))), at(s), at(s)); err != nil {
				t.Fatal(err)
			}
		}
		return l
	}
	t.Run("R-751 times are strictly increasing", func(t *testing.T) {
		l := setup(t)
		tl, err := mustLatest(t, l).Timeline(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for v, want := range []time.Time{at(0), at(10), at(10).Add(time.Millisecond), at(10).Add(2 * time.Millisecond), at(30)} {
			if got, err := tl.Time(ctx, int64(v)); err != nil || !got.Equal(want) {
				t.Errorf("version %d: %v %v, want %v", v, got, err, want)
			}
		}
		if v, ok, err := tl.AtOrAfter(ctx, at(10).Add(time.Microsecond)); v != 2 || !ok || err != nil {
			t.Errorf("at or after: %d %t %v", v, ok, err)
		}
		if v, ok, err := tl.AtOrAfter(ctx, at(10)); v != 1 || !ok || err != nil {
			t.Errorf("at or after: %d %t %v", v, ok, err)
		}
		if _, ok, _ := tl.AtOrAfter(ctx, at(31)); ok {
			t.Error("a version after the last")
		}
		if _, ok, _ := tl.AtOrBefore(ctx, at(-1)); ok {
			t.Error("a version before the first")
		}
		_, err = tl.Time(ctx, 5)
		wantError(t, err, ErrNotFound, "DELTA_VERSION_NOT_FOUND")
	})
	t.Run("R-753 travel by time", func(t *testing.T) {
		l := setup(t)
		for _, c := range []struct {
			at   time.Time
			want int64
			code string
		}{
			{at(0), 0, ""}, {at(9), 0, ""}, {at(10), 1, ""}, {at(11), 3, ""}, {at(30), 4, ""},
			{at(-1), 0, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"}, {at(31), 0, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"},
		} {
			s, err := l.AtTime(ctx, c.at, AtTimeOptions{})
			if c.code != "" {
				wantError(t, err, ErrNotFound, c.code)
			} else if err != nil || s.Version != c.want {
				t.Errorf("at %v: %v %v, want version %d", c.at, s, err, c.want)
			}
		}
		if s, err := l.AtTime(ctx, at(99), AtTimeOptions{LatestIfAfter: true}); err != nil || s.Version != 4 {
			t.Errorf("latest if after: %v", err)
		}
	})
	t.Run("R-753 before the first rebuildable version", func(t *testing.T) {
		l := setup(t)
		checkpointAt(t, l, 2)
		remove(t, l.Store(), CommitKey(0))
		_, err := l.AtTime(ctx, at(10), AtTimeOptions{})
		wantError(t, err, ErrNotFound, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION")
		// The chain of times starts at the oldest commit that is left.
		if s, err := l.AtTime(ctx, at(10).Add(time.Millisecond), AtTimeOptions{}); err != nil || s.Version != 2 {
			t.Errorf("got %v %v", s, err)
		}
	})
	t.Run("R-752 in-commit timestamps from their enablement on", func(t *testing.T) {
		l, m := testLog(t)
		conf := `"configuration":{"delta.enableInCommitTimestamps":"true","delta.inCommitTimestampEnablementVersion":"2","delta.inCommitTimestampEnablementTimestamp":"1900000000000"}`
		put(t, m, CommitKey(0), protocolLine+"\n"+metadataLine+"\n")
		put(t, m, CommitKey(1), addLine("a")+"\n")
		ict := func(ms int64) string { return fmt.Sprintf(`{"commitInfo":{"inCommitTimestamp":%d}}`, ms) }
		put(t, m, CommitKey(2), ict(1900000000000)+"\n"+`{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}`+"\n"+strings.Replace(metadataLine, `"configuration":{}`, conf, 1)+"\n")
		put(t, m, CommitKey(3), ict(1900000000005)+"\n"+addLine("b")+"\n")
		s := mustLatest(t, l)
		h, err := s.History(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(h) != 4 || h[0].Time.UnixMilli() != 1900000000005 || h[1].Time.UnixMilli() != 1900000000000 || h[2].Time.Year() != 2026 {
			t.Errorf("history %+v", h)
		}
		if got, err := l.AtTime(ctx, time.UnixMilli(1900000000003), AtTimeOptions{}); err != nil || got.Version != 2 {
			t.Errorf("got %v %v", got, err)
		}
		put(t, m, CommitKey(4), addLine("c")+"\n")
		s = mustLatest(t, l)
		tl, err := s.Timeline(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tl.Time(ctx, 4)
		wantError(t, err, ErrCorrupt, "DELTA_MISSING_COMMIT_TIMESTAMP")
	})
	t.Run("history is bounded and names operations", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		tx := l.Begin(s)
		tx.Add(file("a"))
		mustCommit(t, tx, CommitOptions{Operation: "WRITE"})
		h, err := mustLatest(t, l).History(ctx, 1)
		if err != nil || len(h) != 1 || h[0].Version != 1 || h[0].Info.Operation != "WRITE" || h[0].Info.EngineInfo != "sluice" {
			t.Errorf("got %+v %v", h, err)
		}
	})
}

func TestLog_Update(t *testing.T) {
	ctx := context.Background()
	l, m := testLog(t)
	rawTable(t, m, 3)
	s, err := l.At(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("R-104 new commits alone are read", func(t *testing.T) {
		f := faultstore.New(m)
		got, err := Open(f, l.opts).Update(ctx, s)
		if err != nil || got.Version != 2 || len(paths(t, got)) != 3 {
			t.Fatalf("got %+v %v", got, err)
		}
		for _, c := range f.Trace() {
			if c.Op == faultstore.Open && c.Key != CommitKey(2) {
				t.Errorf("%s was read", c.Key)
			}
		}
		again, err := l.Update(ctx, got)
		if err != nil || again != got {
			t.Errorf("nothing new: another snapshot %v", err)
		}
	})
	t.Run("R-103 a hole behind the snapshot", func(t *testing.T) {
		put(t, m, CommitKey(4), addLine("f4")+"\n")
		_, err := l.Update(ctx, s)
		wantError(t, err, ErrCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS")
	})
	t.Run("R-301 the gate is passed again", func(t *testing.T) {
		remove(t, m, CommitKey(4))
		put(t, m, CommitKey(3), `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["zzz"],"writerFeatures":["zzz"]}}`+"\n")
		_, err := l.Update(ctx, s)
		wantError(t, err, ErrUnsupported, "DELTA_UNSUPPORTED_FEATURES_FOR_READ")
	})
	t.Run("R-104 the log was cleaned behind the snapshot", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 6)
		s, err := l.At(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		checkpointAt(t, l, 4)
		for v := range int64(4) {
			remove(t, m, CommitKey(v))
		}
		got, err := l.Update(ctx, s)
		if err != nil || got.Version != 5 || len(paths(t, got)) != 6 {
			t.Errorf("got %+v %v", got, err)
		}
	})
}
