package deltalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

var ictOn = map[string]string{"delta.enableInCommitTimestamps": "true"}

func withProps(s *Snapshot, kv ...string) *Metadata {
	m := *s.Metadata
	m.Configuration = map[string]string{}
	for k, v := range s.Metadata.Configuration {
		m.Configuration[k] = v
	}
	for i := 0; i < len(kv); i += 2 {
		m.Configuration[kv[i]] = kv[i+1]
	}
	return &m
}

func mustRead(t testing.TB, l *Log, v int64) *Commit {
	t.Helper()
	c, err := l.ReadCommit(context.Background(), v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func append1(t testing.TB, l *Log, s *Snapshot, name string) CommitResult {
	t.Helper()
	tx := l.Begin(s)
	tx.Add(withRows(file(name), 1))
	return mustCommit(t, tx, CommitOptions{})
}

func withRows(a *Add, n int) *Add {
	a.Stats = fmt.Sprintf(`{"numRecords":%d}`, n)
	return a
}

func TestInCommitTimestamps(t *testing.T) {
	ctx := context.Background()
	t.Run("W-751 R-752 enabled since version 0: first line, growing, no pair", func(t *testing.T) {
		clock := &fixedClock{at: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
		m := storage.NewMemoryWith("m", storage.MemoryOptions{Clock: clock.Now})
		l := Open(m, Options{Clock: clock.Now, Sleep: noSleep})
		s := newTable(t, l, nil, ictOn, InCommitTimestamp)
		// A clock that stands still, then goes back.
		append1(t, l, s, "a")
		clock.at = clock.at.Add(-time.Hour)
		append1(t, l, mustLatest(t, l), "b")
		start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
		for v := range int64(3) {
			first, _, _ := strings.Cut(string(readKey(t, m, CommitKey(v))), "\n")
			if !strings.HasPrefix(first, fmt.Sprintf(`{"commitInfo":{"inCommitTimestamp":%d,`, start+v)) {
				t.Errorf("version %d: %s", v, first)
			}
		}
		s = mustLatest(t, l)
		if s.Props.ICTEnablementVersion != nil || s.Props.ICTEnablementTimestamp != nil {
			t.Errorf("pair is set: %v", s.Metadata.Configuration)
		}
		at, err := s.Time(ctx)
		if err != nil || at.UnixMilli() != start+2 {
			t.Errorf("%v %v", at, err)
		}
	})
	t.Run("W-751 the enabling commit writes the pair, replaces keep it", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		append1(t, l, s, "a")
		s = mustLatest(t, l)
		p, err := s.Protocol.With(InCommitTimestamp)
		if err != nil {
			t.Fatal(err)
		}
		tx := l.Begin(s)
		tx.SetProtocol(p)
		tx.SetMetadata(withProps(s, "delta.enableInCommitTimestamps", "true"))
		// Two winners: the pair must name the version that is written at last.
		append1(t, l, s, "w1")
		append1(t, l, mustLatest(t, l), "w2")
		r := mustCommit(t, tx, CommitOptions{Operation: "SET TBLPROPERTIES"})
		s = mustLatest(t, l)
		if r.Version != 4 || *s.Props.ICTEnablementVersion != 4 || *s.Props.ICTEnablementTimestamp != r.Time.UnixMilli() {
			t.Fatalf("%+v %v", r, s.Metadata.Configuration)
		}
		// A replacing metadata without the pair.
		tx = l.Begin(s)
		tx.SetMetadata(&Metadata{ID: s.Metadata.ID, Format: s.Metadata.Format, SchemaString: longSchema, Configuration: ictOn})
		mustCommit(t, tx, CommitOptions{Operation: "REPLACE TABLE"})
		now := mustLatest(t, l)
		if *now.Props.ICTEnablementVersion != 4 || *now.Props.ICTEnablementTimestamp != *s.Props.ICTEnablementTimestamp {
			t.Errorf("%v", now.Metadata.Configuration)
		}
		line, err := now.Timeline(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for v := int64(1); v <= now.Version; v++ {
			a, err1 := line.Time(ctx, v-1)
			b, err2 := line.Time(ctx, v)
			if err1 != nil || err2 != nil || !b.After(a) {
				t.Errorf("version %d: %v %v %v %v", v, a, b, err1, err2)
			}
		}
	})
	t.Run("R-752 one of the pair alone is corrupt", func(t *testing.T) {
		l, _ := testLog(t)
		p, _ := NewProtocol(InCommitTimestamp)
		tx := l.Begin(nil)
		tx.SetProtocol(p)
		tx.SetMetadata(meta(map[string]string{"delta.enableInCommitTimestamps": "true", ictVersionKey: "3"}, ""))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "CREATE TABLE"})
		wantError(t, err, ErrInvalid, "DELTA_INVALID_COMMIT_TIMESTAMP")
	})
	t.Run("W-751 from a checkpoint of the read version", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, ictOn, InCommitTimestamp)
		append1(t, l, s, "a")
		if err := l.WriteCheckpoint(ctx, mustLatest(t, l)); err != nil {
			t.Fatal(err)
		}
		old := Open(m, Options{Clock: (&fixedClock{at: time.Unix(1, 0)}).Now, Sleep: noSleep})
		s = mustLatest(t, old)
		before := *mustRead(t, l, 1).Info.InCommitTimestamp
		append1(t, old, s, "b")
		if got := *mustRead(t, l, 2).Info.InCommitTimestamp; got != before+1 {
			t.Errorf("%d after %d", got, before)
		}
	})
	t.Run("R-752 a commit without a timestamp fails the next write", func(t *testing.T) {
		l, m := testLog(t)
		newTable(t, l, nil, ictOn, InCommitTimestamp)
		put(t, m, CommitKey(1), addLine("x")+"\n")
		tx := l.Begin(mustLatest(t, l))
		tx.Add(file("y"))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrCorrupt, "DELTA_MISSING_COMMIT_TIMESTAMP")
	})
	t.Run("W-751 C-36 racing writers with clocks of their own", testenv.MakeCheck(func(rt *rapid.T) {
		m := storage.NewMemory("m")
		open := func() *Log {
			at := time.Unix(1_700_000_000+rapid.Int64Range(-500, 500).Draw(rt, "skew"), 0)
			return Open(m, Options{Clock: (&fixedClock{at: at}).Now, Sleep: noSleep})
		}
		newTable(t, open(), nil, ictOn, InCommitTimestamp)
		for i := range rapid.IntRange(2, 8).Draw(rt, "commits") {
			l := open()
			s, err := l.At(context.Background(), rapid.Int64Range(0, mustLatest(t, l).Version).Draw(rt, "from"))
			if err != nil {
				rt.Fatal(err)
			}
			append1(t, l, s, fmt.Sprint("f", i))
		}
		l := open()
		last := int64(-1)
		for v := range mustLatest(t, l).Version + 1 {
			got := *mustRead(t, l, v).Info.InCommitTimestamp
			if got <= last {
				rt.Fatalf("version %d: %d after %d", v, got, last)
			}
			last = got
		}
	}))
}

type fixedClock struct{ at time.Time }

func (c *fixedClock) Now() time.Time { return c.at }

var rowsOn = map[string]string{
	"delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-x",
	"delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-x",
}

// rowState is path -> baseRowId/defaultRowCommitVersion of the live files, and the mark.
func rowState(t testing.TB, s *Snapshot) (map[string]string, int64) {
	t.Helper()
	files, err := s.FileList(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		out[f.Path] = "none"
		if f.BaseRowID != nil && f.DefaultRowCommitVersion != nil {
			out[f.Path] = fmt.Sprintf("%d/%d", *f.BaseRowID, *f.DefaultRowCommitVersion)
		}
	}
	mark, err := s.RowIDHighWaterMark()
	if err != nil {
		t.Fatal(err)
	}
	return out, mark
}

func TestRowTracking(t *testing.T) {
	ctx := context.Background()
	t.Run("W-801 new adds get ids, versions and the mark moves", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, rowsOn, RowTracking)
		if mark, err := s.RowIDHighWaterMark(); mark != -1 || err != nil {
			t.Fatalf("%d %v", mark, err)
		}
		tx := l.Begin(s)
		a, b := withRows(file("a"), 10), withRows(file("b"), 5)
		tx.Add(a, b)
		mustCommit(t, tx, CommitOptions{})
		if a.BaseRowID != nil {
			t.Error("the caller's add was changed")
		}
		append1(t, l, mustLatest(t, l), "c")
		got, mark := rowState(t, mustLatest(t, l))
		if got["a"] != "0/1" || got["b"] != "10/1" || got["c"] != "15/2" || mark != 15 {
			t.Errorf("%v %d", got, mark)
		}
		d, _ := mustLatest(t, l).Domain(rowTrackingDomain)
		if d.Configuration != `{"rowIdHighWaterMark":15}` {
			t.Errorf("%s", d.Configuration)
		}
		if _, _, ok := s.MaterializedRowIDColumns(); !ok || !s.RowTracking() {
			t.Error("R-801 hidden columns")
		}
	})
	t.Run("C-21 C-36 renumbered above the winner", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, rowsOn, RowTracking)
		tx := l.Begin(s)
		tx.Add(withRows(file("mine"), 3))
		append1(t, l, s, "w1")
		append1(t, l, mustLatest(t, l), "w2")
		mustCommit(t, tx, CommitOptions{})
		got, mark := rowState(t, mustLatest(t, l))
		if got["w1"] != "0/1" || got["w2"] != "1/2" || got["mine"] != "2/3" || mark != 4 {
			t.Errorf("%v %d", got, mark)
		}
	})
	t.Run("W-802 files that come again keep both values", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, rowsOn, RowTracking, DeletionVectors)
		tx := l.Begin(s)
		tx.Add(withRows(file("a"), 10))
		mustCommit(t, tx, CommitOptions{})
		s = mustLatest(t, l)
		old, _, err := s.File(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		dv := *old
		dv.DeletionVector = &DeletionVectorDescriptor{StorageType: "u", PathOrInlineDv: "ab^-aqEH.-t@S}K{vb[*k^", SizeInBytes: 40, Cardinality: 2}
		tx = l.Begin(s)
		tx.Remove(old.Remove(l.Now(), true))
		tx.Add(&dv, withRows(file("b"), 2))
		mustCommit(t, tx, CommitOptions{Operation: "UPDATE"})
		c := mustRead(t, l, 2)
		if *c.Removes[0].BaseRowID != 0 || *c.Removes[0].DefaultRowCommitVersion != 1 {
			t.Errorf("%+v", c.Removes[0])
		}
		got, mark := rowState(t, mustLatest(t, l))
		if got["a"] != "0/1" || got["b"] != "10/2" || mark != 11 {
			t.Errorf("%v %d", got, mark)
		}
		// A restore from before the mark moved: the mark stays.
		s = mustLatest(t, l)
		tx = l.Begin(s)
		tx.Remove(dv.Remove(l.Now(), true))
		tx.Add(old)
		mustCommit(t, tx, CommitOptions{Operation: "RESTORE"})
		if c := mustRead(t, l, 3); len(c.Domains) != 0 || *c.Adds[0].BaseRowID != 0 {
			t.Errorf("%+v", c.Actions)
		}
	})
	t.Run("W-801 without numRecords nothing is written", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, rowsOn, RowTracking)
		for _, stats := range []string{"", "{", "{}", `{"numRecords":-1}`} {
			tx := l.Begin(s)
			a := file("a")
			a.Stats = stats
			tx.Add(a)
			_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
			wantError(t, err, ErrInvalid, "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS")
		}
		if _, err := m.Head(ctx, CommitKey(1)); err == nil {
			t.Error("a commit was written")
		}
	})
	t.Run("W-801 suspended: nothing is assigned", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, map[string]string{"delta.rowTrackingSuspended": "true"}, RowTracking)
		append1(t, l, s, "a")
		if got, mark := rowState(t, mustLatest(t, l)); got["a"] != "none" || mark != -1 {
			t.Errorf("%v %d", got, mark)
		}
	})
	t.Run("W-804 suspended and enabled never together", func(t *testing.T) {
		l, _ := testLog(t)
		p, _ := NewProtocol(RowTracking)
		tx := l.Begin(nil)
		tx.SetProtocol(p)
		tx.SetMetadata(meta(map[string]string{"delta.rowTrackingSuspended": "true", "delta.enableRowTracking": "true"}, ""))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "CREATE TABLE"})
		wantError(t, err, ErrInvalid, "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION")
	})
	t.Run("W-801 other keys of the domain stay, a broken mark is corrupt", func(t *testing.T) {
		l, m := testLog(t)
		newTable(t, l, nil, rowsOn, RowTracking)
		put(t, m, CommitKey(1), `{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"other\":[1],\"rowIdHighWaterMark\":9007199254740993}","removed":false}}`+"\n")
		append1(t, l, mustLatest(t, l), "a")
		d, _ := mustLatest(t, l).Domain(rowTrackingDomain)
		if d.Configuration != `{"other":[1],"rowIdHighWaterMark":9007199254740994}` {
			t.Errorf("%s", d.Configuration)
		}
		put(t, m, CommitKey(3), `{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"rowIdHighWaterMark\":\"x\"}","removed":false}}`+"\n")
		tx := l.Begin(mustLatest(t, l))
		tx.Add(withRows(file("b"), 1))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrCorrupt, "")
	})
	t.Run("W-803 the preserved tag", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, rowsOn, RowTracking)
		tag := func(v int64) string { return mustRead(t, l, v).Info.Tags[preservedTag] }
		append1(t, l, s, "a")
		a, _, _ := mustLatest(t, l).File(ctx, "a")
		tx := l.Begin(mustLatest(t, l))
		tx.Remove(a.Remove(l.Now(), true))
		tx.Add(withRows(file("b"), 1))
		mustCommit(t, tx, CommitOptions{Operation: "UPDATE"})
		b, _, _ := mustLatest(t, l).File(ctx, "b")
		tx = l.Begin(mustLatest(t, l))
		tx.Remove(b.Remove(l.Now(), true))
		tx.Add(withRows(file("c"), 1))
		mustCommit(t, tx, CommitOptions{Operation: "UPDATE", Tags: map[string]string{preservedTag: "true", "x": "y"}})
		if tag(1) != "true" || tag(2) != "false" || tag(3) != "true" {
			t.Errorf("%q %q %q", tag(1), tag(2), tag(3))
		}
	})
	t.Run("R-801 W-701 ids survive a checkpoint", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, rowsOn, RowTracking)
		append1(t, l, s, "a")
		if err := l.WriteCheckpoint(ctx, mustLatest(t, l)); err != nil {
			t.Fatal(err)
		}
		s = mustLatest(t, l)
		if s.CheckpointVersion() != 1 {
			t.Fatal("no checkpoint")
		}
		if got, mark := rowState(t, s); got["a"] != "0/1" || mark != 0 {
			t.Errorf("%v %d", got, mark)
		}
	})
	t.Run("W-801 W-802 C-21 random writers never share an id", testenv.MakeCheck(func(rt *rapid.T) {
		l := Open(storage.NewMemory("m"), Options{Clock: newTestClock().Now, Sleep: noSleep})
		newTable(t, l, nil, rowsOn, RowTracking)
		for i := range rapid.IntRange(1, 10).Draw(rt, "commits") {
			s, err := l.At(ctx, rapid.Int64Range(0, mustLatest(t, l).Version).Draw(rt, "from"))
			if err != nil {
				rt.Fatal(err)
			}
			tx := l.Begin(s)
			for j := range rapid.IntRange(1, 3).Draw(rt, "files") {
				tx.Add(withRows(file(fmt.Sprintf("f%d-%d", i, j)), rapid.IntRange(0, 4).Draw(rt, "rows")))
			}
			mustCommit(t, tx, CommitOptions{})
		}
		s := mustLatest(t, l)
		files, err := s.FileList(ctx)
		if err != nil {
			rt.Fatal(err)
		}
		seen := map[int64]string{}
		total := int64(0)
		for _, f := range files {
			n, err := numRecords(f)
			if err != nil {
				rt.Fatal(err)
			}
			total += n
			for id := *f.BaseRowID; id < *f.BaseRowID+n; id++ {
				if seen[id] != "" {
					rt.Fatalf("row id %d in %s and %s", id, seen[id], f.Path)
				}
				seen[id] = f.Path
			}
			if c := mustRead(t, l, *f.DefaultRowCommitVersion); !hasAdd(c, f.Path) {
				rt.Fatalf("%s was not committed in version %d", f.Path, c.Version)
			}
		}
		if mark, err := s.RowIDHighWaterMark(); err != nil || mark != total-1 {
			rt.Fatalf("mark %d of %d rows: %v", mark, total, err)
		}
	}))
}

func hasAdd(c *Commit, path string) bool {
	for _, a := range c.Adds {
		if a.Path == path {
			return true
		}
	}
	return false
}

func TestDomains(t *testing.T) {
	ctx := context.Background()
	t.Run("W-821 set, carried, checkpointed, removed", func(t *testing.T) {
		for _, policy := range []string{"classic", "v2"} {
			l, _ := testLog(t)
			s := newTable(t, l, nil, map[string]string{"delta.checkpointPolicy": policy}, DomainMetadataF, V2Checkpoint)
			tx := l.Begin(s)
			if err := tx.SetUserDomain("my.domain", `{"a":"é"}`); err != nil {
				t.Fatal(err)
			}
			tx.SetDomain(&DomainMetadata{Domain: "other", Configuration: ""})
			mustCommit(t, tx, CommitOptions{Operation: "SET DOMAIN METADATA"})
			append1(t, l, mustLatest(t, l), "a")
			if err := l.WriteCheckpoint(ctx, mustLatest(t, l)); err != nil {
				t.Fatal(err)
			}
			s = mustLatest(t, l)
			d, ok := s.Domain("my.domain")
			if !ok || d.Configuration != `{"a":"é"}` || len(s.Domains()) != 2 {
				t.Fatalf("%v", s.Domains())
			}
			tx = l.Begin(s)
			if ok, err := tx.RemoveUserDomain("my.domain"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if ok, err := tx.RemoveUserDomain("nope"); ok || err != nil {
				t.Fatal(ok, err)
			}
			mustCommit(t, tx, CommitOptions{Operation: "REMOVE DOMAIN METADATA"})
			if c := mustRead(t, l, 3); !c.Domains[0].Removed {
				t.Errorf("%+v", c.Domains[0])
			}
			s = mustLatest(t, l)
			if err := l.WriteCheckpoint(ctx, s); err != nil {
				t.Fatal(err)
			}
			if s = mustLatest(t, l); len(s.Domains()) != 1 || s.CheckpointVersion() != 3 {
				t.Errorf("%v", s.Domains())
			}
		}
	})
	t.Run("W-821 the system's names are refused", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil, DomainMetadataF)
		for _, name := range []string{"delta.rowTracking", "delta.x", "Delta.y", ""} {
			if err := l.Begin(s).SetUserDomain(name, ""); err == nil {
				t.Errorf("%q was set", name)
			}
			if name == "delta.rowTracking" {
				continue
			}
			tx := l.Begin(s)
			tx.SetDomain(&DomainMetadata{Domain: name})
			_, err := tx.Commit(ctx, CommitOptions{Operation: "X"})
			wantError(t, err, ErrInvalid, "DELTA_DOMAIN_METADATA_NOT_SUPPORTED")
		}
	})
	t.Run("W-821 W-306 needs the feature", func(t *testing.T) {
		l, _ := testLog(t)
		tx := l.Begin(newTable(t, l, nil, nil))
		tx.SetDomain(&DomainMetadata{Domain: "x"})
		_, err := tx.Commit(ctx, CommitOptions{Operation: "X"})
		wantError(t, err, ErrInvalid, "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH")
	})
	t.Run("W-821 unknown system domains of others are carried", func(t *testing.T) {
		l, m := testLog(t)
		newTable(t, l, nil, nil, DomainMetadataF)
		put(t, m, CommitKey(1), `{"domainMetadata":{"domain":"delta.future","configuration":"{}","removed":false}}`+"\n")
		append1(t, l, mustLatest(t, l), "a")
		if err := l.WriteCheckpoint(ctx, mustLatest(t, l)); err != nil {
			t.Fatal(err)
		}
		if _, ok := mustLatest(t, l).Domain("delta.future"); !ok {
			t.Error("lost")
		}
	})
	t.Run("R-821 every form of clustering columns", func(t *testing.T) {
		for in, want := range map[string]string{
			`{"clusteringColumns":[["a","b"],["c"]]}`:                      `[["a","b"],["c"]]`,
			`{"clusteringColumns":["a","b"]}`:                              `[["a"],["b"]]`,
			`{"clusteringColumns":[{"physicalName":["a","b"]}],"x":1}`:     `[["a","b"]]`,
			`{"clusteringColumns":[]}`:                                     `[]`,
			`{"clusterBy":[["a"]]}`:                                        `[["a"]]`,
			`{"domainName":"delta.clustering","clusterColumnNames":["a"]}`: `[["a"]]`,
			`{}`: "", `{"clusteringColumns":[1]}`: "", `{"clusteringColumns":"a"}`: "", `x`: "", `{"aColumn":[],"bColumn":[]}`: "",
		} {
			got, err := parseClustering(in)
			text, _ := json.Marshal(got)
			if want == "" {
				wantError(t, err, ErrCorrupt, "")
			} else if err != nil || string(text) != want {
				t.Errorf("%s: %s %v", in, text, err)
			}
		}
		d := NewClusteringDomain([][]string{{"a", "b"}})
		if d.Configuration != `{"clusteringColumns":[["a","b"]]}` {
			t.Errorf("%s", d.Configuration)
		}
	})
	t.Run("W-822 replace removes clustering, restore brings it back", func(t *testing.T) {
		at := func(cluster string) *Snapshot {
			s := &Snapshot{domains: map[string]*DomainMetadata{"user": {Domain: "user"}}}
			if cluster != "" {
				s.domains[ClusteringDomain] = NewClusteringDomain([][]string{{cluster}})
			}
			return s
		}
		show := func(ds []*DomainMetadata) string {
			var out []string
			for _, d := range ds {
				out = append(out, fmt.Sprintf("%s %s %t", d.Domain, d.Configuration, d.Removed))
			}
			return strings.Join(out, "; ")
		}
		for _, c := range [][2]string{
			{show(at("a").ReplaceDomains()), `delta.clustering {"clusteringColumns":[["a"]]} true`},
			{show(at("a").ReplaceDomains(NewClusteringDomain([][]string{{"b"}}))), `delta.clustering {"clusteringColumns":[["b"]]} false`},
			{show(at("").ReplaceDomains()), ``},
			{show(at("a").RestoreDomains(at("b"))), `delta.clustering {"clusteringColumns":[["b"]]} false`},
			{show(at("a").RestoreDomains(at(""))), `delta.clustering {"clusteringColumns":[["a"]]} true`},
			{show(at("").RestoreDomains(at("b"))), `delta.clustering {"clusteringColumns":[["b"]]} false`},
			{show(at("a").RestoreDomains(at("a"))), ``},
		} {
			if c[0] != c[1] {
				t.Errorf("got %s, want %s", c[0], c[1])
			}
		}
	})
}
