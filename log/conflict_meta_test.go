package deltalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestConflict_Metadata: which metadata of a winner a running transaction lives with.
func TestConflict_Metadata(t *testing.T) {
	ctx := context.Background()
	identity := func(mark string) string {
		return `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"delta.identity.start":1,"delta.identity.step":1,"delta.identity.highWaterMark":` + mark + `,"delta.identity.allowExplicitInsert":false}},{"name":"p","type":"string","nullable":true,"metadata":{}}]}`
	}
	mapped := func(name string) string {
		return `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"id"}},{"name":"` + name + `","type":"string","nullable":true,"metadata":{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"p"}}]}`
	}
	base := map[string]string{"delta.enableChangeDataFeed": "false", "user": "1"}
	with := func(kv ...string) map[string]string {
		m := map[string]string{}
		for k, v := range base {
			m[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name   string
		before string // schema, default longSchema
		after  string
		conf   map[string]string
		tag    bool
		desc   string
		fails  bool
	}{
		{name: "C-17 identity marks, tagged", before: identity("1"), after: identity("9"), conf: base, tag: true},
		{name: "C-17 identity marks without the tag", before: identity("1"), after: identity("9"), conf: base, fails: true},
		{name: "C-17 the tag on another change", before: identity("1"), after: identity("9"), conf: with("x", "y"), tag: true, fails: true},
		{name: "C-18 C-32 deletion vectors on", conf: with("delta.enableDeletionVectors", "true")},
		{name: "C-18 C-32 checkpoint policy", conf: with("delta.checkpointPolicy", "v2")},
		{name: "C-18 C-32 in-commit timestamps on", conf: with("delta.enableInCommitTimestamps", "true", ictVersionKey, "2", ictTimestampKey, "5")},
		{name: "C-18 C-32 row tracking on", conf: with("delta.enableRowTracking", "true", "delta.rowTracking.materializedRowIdColumnName", "a", "delta.rowTracking.materializedRowCommitVersionColumnName", "b")},
		{name: "C-18 C-32 column mapping none to name", after: mapped("p"), conf: with("delta.columnMapping.mode", "name", "delta.columnMapping.maxColumnId", "2")},
		{name: "C-32 column mapping with a rename", after: mapped("q"), conf: with("delta.columnMapping.mode", "name", "delta.columnMapping.maxColumnId", "2"), fails: true},
		{name: "C-32 deletion vectors off", conf: with("delta.enableDeletionVectors", "false"), fails: true},
		{name: "C-32 a key goes", conf: map[string]string{"delta.enableChangeDataFeed": "false"}, fails: true},
		{name: "C-33 the change feed on", conf: with("delta.enableChangeDataFeed", "true"), fails: true},
		{name: "C-19 a new description", conf: base, desc: "x", fails: true},
		{name: "C-19 append-only on", conf: with("delta.appendOnly", "true"), fails: true},
		{name: "C-19 a user's property", conf: with("user", "2"), fails: true},
		{name: "C-19 another schema", after: identity("1"), conf: base, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, m := testLog(t)
			if c.before == "" {
				c.before = longSchema
			}
			if c.after == "" {
				c.after = c.before
			}
			p, err := NewProtocol(IdentityColumns, DeletionVectors, V2Checkpoint, InCommitTimestamp, RowTracking, ColumnMapping, ChangeDataFeed)
			if err != nil {
				t.Fatal(err)
			}
			s := newTableOf(t, l, p, &Metadata{ID: "t", Format: Format{Provider: "parquet"}, SchemaString: c.before, Configuration: base})
			append1(t, l, s, "old")
			s = mustLatest(t, l)
			now := *s.Metadata
			now.SchemaString, now.Configuration, now.Description = c.after, c.conf, c.desc
			info := &commitInfoWire{Operation: "ALTER", IsBlindAppend: true}
			if strings.HasPrefix(c.name, "C-18 C-32 in-commit") {
				five := int64(4_000_000_000_000)
				info.InCommitTimestamp = &five
			}
			if c.tag {
				info.Tags = map[string]string{IdentityTag: "true"}
			}
			data, err := encodeCommit(info, &Actions{Metadata: &now})
			if err != nil {
				t.Fatal(err)
			}
			put(t, m, CommitKey(2), string(data))
			for _, kind := range []string{"blind", "rewrite"} {
				tx := l.Begin(s)
				tx.Add(withRows(file("new-"+kind), 1))
				if kind == "rewrite" {
					old, _, err := s.File(ctx, "old")
					if err != nil {
						t.Fatal(err)
					}
					tx.ReadFiles(old)
					tx.Remove(old.Remove(l.Now(), true))
				}
				r, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE", Isolation: WriteSerializable})
				if c.fails {
					var ce *ConflictError
					if !errors.As(err, &ce) || ce.Kind != MetadataChanged || ce.Rule != "C-19" {
						t.Errorf("%s: got %v", kind, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				got := mustLatest(t, l)
				if got.Version != r.Version || got.Metadata.SchemaString != c.after {
					t.Errorf("%s: the winner's metadata is gone", kind)
				}
				if _, err := got.Time(ctx); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
	t.Run("C-16 metadata of both", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil, DeletionVectors)
		tx := l.Begin(s)
		tx.SetMetadata(withProps(s, "mine", "1"))
		w := l.Begin(s)
		w.SetMetadata(withProps(s, "delta.enableDeletionVectors", "true"))
		mustCommit(t, w, CommitOptions{})
		_, err := tx.Commit(ctx, CommitOptions{Operation: "SET TBLPROPERTIES"})
		var ce *ConflictError
		if !errors.As(err, &ce) || ce.Rule != "C-16" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("C-15 C-18 protocol and metadata of one winner", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		w := l.Begin(s)
		p, err := s.Protocol.With(DeletionVectors)
		if err != nil {
			t.Fatal(err)
		}
		w.SetProtocol(p)
		w.SetMetadata(withProps(s, "delta.enableDeletionVectors", "true"))
		mustCommit(t, w, CommitOptions{})
		append1(t, l, s, "a")
		if got := mustLatest(t, l); !got.WritesDeletionVectors() || len(paths(t, got)) != 1 {
			t.Error("the winner's change is gone")
		}
	})
	t.Run("C-17 our own commit of identity marks is tagged", func(t *testing.T) {
		l, _ := testLog(t)
		p, _ := NewProtocol(IdentityColumns)
		s := newTableOf(t, l, p, &Metadata{ID: "t", Format: Format{Provider: "parquet"}, SchemaString: identity("1")})
		tx := l.Begin(s)
		m := *s.Metadata
		m.SchemaString = identity("7")
		tx.SetMetadata(&m)
		tx.Add(file("a"))
		blind := l.Begin(s)
		blind.Add(file("b"))
		r := mustCommit(t, tx, CommitOptions{Tags: map[string]string{"k": "v"}})
		if tags := mustRead(t, l, r.Version).Info.Tags; tags[IdentityTag] != "true" || tags["k"] != "v" {
			t.Errorf("%v", tags)
		}
		mustCommit(t, blind, CommitOptions{})
		tx = l.Begin(mustLatest(t, l))
		tx.SetMetadata(withProps(mustLatest(t, l), "x", "y"))
		r = mustCommit(t, tx, CommitOptions{})
		if tags := mustRead(t, l, r.Version).Info.Tags; tags[IdentityTag] != "" {
			t.Errorf("%v", tags)
		}
	})
}

// TestFeatures_FailAtUpgrade is the list of C-31.
func TestFeatures_FailAtUpgrade(t *testing.T) {
	yesList := []string{"invariants", "checkConstraints", "generatedColumns", "identityColumns", "allowColumnDefaults", "variantType", "variantType-preview",
		"variantShredding", "variantShredding-preview", "geospatial", "geospatial-dev", "clustering", "materializePartitionColumns", "checkpointProtection", "coordinatedCommits-preview"}
	noList := []string{"appendOnly", "changeDataFeed", "columnMapping", "timestampNtz", "deletionVectors", "rowTracking", "domainMetadata", "icebergCompatV1",
		"icebergCompatV2", "icebergCompatV3", "v2Checkpoint", "catalogManaged", "typeWidening", "inCommitTimestamp", "vacuumProtocolCheck"}
	for _, row := range featureTable() {
		in := slices.Contains(yesList, string(row.name))
		if row.failAtUpgrade != in && (in || slices.Contains(noList, string(row.name))) {
			t.Errorf("C-31 %s: fails at upgrade: %t", row.name, row.failAtUpgrade)
		}
	}
	for _, f := range []Feature{CheckConstraints, DeletionVectors} {
		t.Run("C-31 C-14 "+string(f), func(t *testing.T) {
			l, _ := testLog(t)
			s := newTable(t, l, nil, nil)
			p, err := s.Protocol.With(f)
			if err != nil {
				t.Fatal(err)
			}
			w := l.Begin(s)
			w.SetProtocol(p)
			mustCommit(t, w, CommitOptions{})
			tx := l.Begin(s)
			tx.Add(file("a"))
			_, err = tx.Commit(context.Background(), CommitOptions{Operation: "WRITE"})
			if f == DeletionVectors && err != nil || f == CheckConstraints && !errors.Is(err, ErrConflict) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func dvOf(id string) *DeletionVectorDescriptor {
	return &DeletionVectorDescriptor{StorageType: "i", PathOrInlineDv: id, SizeInBytes: 4, Cardinality: 1}
}

// setVector stages the half pair of a deletion vector update.
func setVector(tx *Transaction, old *Add, dv *DeletionVectorDescriptor, change bool) {
	now := *old
	now.DeletionVector, now.DataChange = dv, change
	tx.Remove(old.Remove(tx.log.Now(), change))
	tx.Add(&now)
}

func mustFile(t testing.TB, s *Snapshot, path string) *Add {
	t.Helper()
	f, ok, err := s.File(context.Background(), path)
	if err != nil || !ok {
		t.Fatalf("%s: %t %v", path, ok, err)
	}
	return f
}

// TestConflict_RowLevel: what a transaction is asked about with row-level concurrency.
func TestConflict_RowLevel(t *testing.T) {
	ctx := context.Background()
	setup := func(t *testing.T) (*Log, *Snapshot) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, map[string]string{"delta.enableDeletionVectors": "true"}, DeletionVectors)
		tx := l.Begin(s)
		tx.Add(file("a"), file("b"))
		mustCommit(t, tx, CommitOptions{})
		return l, mustLatest(t, l)
	}
	t.Run("3.5 C-26 disjoint rows of one file: the vectors are joined", func(t *testing.T) {
		l, s := setup(t)
		w := l.Begin(s)
		setVector(w, mustFile(t, s, "a"), dvOf("w1"), true)
		mustCommit(t, w, CommitOptions{Operation: "DELETE"})
		s2 := mustLatest(t, l)
		w = l.Begin(s2)
		setVector(w, mustFile(t, s2, "a"), dvOf("w2"), true)
		mustCommit(t, w, CommitOptions{Operation: "DELETE"})

		tx := l.Begin(s)
		tx.ReadFiles(mustFile(t, s, "a"), mustFile(t, s, "b"))
		setVector(tx, mustFile(t, s, "a"), dvOf("mine"), true)
		r := mustCommit(t, tx, CommitOptions{Operation: "DELETE", RowLevel: func(_ context.Context, r *RowConflicts) (*Rebased, error) {
			if len(r.Files) != 1 || len(r.Added) != 0 || len(r.Winners) != 2 {
				t.Fatalf("%+v", r)
			}
			f := r.Files[0]
			if f.Before != nil || f.Now.DeletionVector.PathOrInlineDv != "w2" || !f.Removed || f.Now.Path != "a" {
				t.Errorf("%+v", f)
			}
			joined := *f.Now
			joined.DeletionVector = dvOf("w2+mine")
			return &Rebased{Actions: Actions{Removes: []*Remove{f.Now.Remove(l.Now(), true)}, Adds: []*Add{&joined}}}, nil
		}})
		if r.Winners != 2 {
			t.Errorf("%+v", r)
		}
		got := mustLatest(t, l)
		if f := mustFile(t, got, "a"); f.DeletionVector.PathOrInlineDv != "w2+mine" || len(paths(t, got)) != 2 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("3.5 C-24 a file that was only read, C-23 an added file", func(t *testing.T) {
		l, s := setup(t)
		w := l.Begin(s)
		setVector(w, mustFile(t, s, "b"), dvOf("w"), true)
		w.Add(file("updated"))
		mustCommit(t, w, CommitOptions{Operation: "UPDATE"})
		commit := func(f func(*RowConflicts) (*Rebased, error)) error {
			tx := l.Begin(s)
			tx.ReadWholeTable()
			tx.ReadFiles(mustFile(t, s, "a"), mustFile(t, s, "b"))
			setVector(tx, mustFile(t, s, "a"), dvOf("mine"), true)
			_, err := tx.Commit(ctx, CommitOptions{Operation: "DELETE", RowLevel: func(_ context.Context, r *RowConflicts) (*Rebased, error) { return f(r) }})
			return err
		}
		var ce *ConflictError
		err := commit(func(r *RowConflicts) (*Rebased, error) {
			if len(r.Files) != 1 || r.Files[0].Removed || r.Files[0].Now.Path != "b" || len(r.Added) != 1 || r.Added[0].Path != "updated" {
				t.Errorf("%+v", r)
			}
			return nil, r.Conflict("b")
		})
		if !errors.As(err, &ce) || ce.Rule != "C-24" || ce.WinnerVersion != 2 {
			t.Errorf("%v", err)
		}
		err = commit(func(r *RowConflicts) (*Rebased, error) { return nil, r.Conflict("updated") })
		if !errors.As(err, &ce) || ce.Rule != "C-23" || ce.Operation != "UPDATE" {
			t.Errorf("%v", err)
		}
		if err := commit(func(*RowConflicts) (*Rebased, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
	})
	t.Run("3.5 C-24 C-25 C-26 a file that is gone stays a conflict", func(t *testing.T) {
		for _, rule := range []string{"C-24", "C-25", "C-26"} {
			l, s := setup(t)
			w := l.Begin(s)
			setVector(w, mustFile(t, s, "a"), dvOf("w"), true)
			mustCommit(t, w, CommitOptions{})
			s2 := mustLatest(t, l)
			w = l.Begin(s2)
			w.Remove(mustFile(t, s2, "a").Remove(l.Now(), true))
			mustCommit(t, w, CommitOptions{})
			tx := l.Begin(s)
			switch rule {
			case "C-24":
				tx.ReadFiles(mustFile(t, s, "a"))
				tx.Add(file("x"))
			case "C-25":
				tx.ReadWholeTable()
				tx.Add(file("x"))
			default:
				setVector(tx, mustFile(t, s, "a"), dvOf("mine"), true)
			}
			_, err := tx.Commit(ctx, CommitOptions{Operation: "X", RowLevel: func(context.Context, *RowConflicts) (*Rebased, error) {
				t.Error("asked")
				return nil, nil
			}})
			var ce *ConflictError
			if !errors.As(err, &ce) || ce.Rule != rule {
				t.Errorf("%s: %v", rule, err)
			}
		}
	})
	t.Run("3.5 files that winners added and took away again are not asked about", func(t *testing.T) {
		l, s := setup(t)
		w := l.Begin(s)
		w.Add(file("x"), file("y"))
		mustCommit(t, w, CommitOptions{})
		s2 := mustLatest(t, l)
		w = l.Begin(s2)
		w.Remove(mustFile(t, s2, "x").Remove(l.Now(), true))
		setVector(w, mustFile(t, s2, "y"), dvOf("y2"), true)
		mustCommit(t, w, CommitOptions{})
		tx := l.Begin(s)
		tx.ReadWholeTable()
		tx.Add(file("mine"))
		mustCommit(t, tx, CommitOptions{RowLevel: func(_ context.Context, r *RowConflicts) (*Rebased, error) {
			if len(r.Added) != 1 || r.Added[0].Path != "y" || r.Added[0].DeletionVector == nil || len(r.Files) != 0 {
				t.Errorf("%+v", r)
			}
			return nil, nil
		}})
	})
	t.Run("C-35 without RowLevel a vector update of the file is a conflict", func(t *testing.T) {
		l, s := setup(t)
		w := l.Begin(s)
		setVector(w, mustFile(t, s, "a"), dvOf("w"), true)
		mustCommit(t, w, CommitOptions{})
		tx := l.Begin(s)
		setVector(tx, mustFile(t, s, "a"), dvOf("mine"), true)
		_, err := tx.Commit(ctx, CommitOptions{Operation: "DELETE"})
		wantError(t, err, ErrConflict, "")
	})
	t.Run("C-42 a compaction whose inputs are all live goes on", func(t *testing.T) {
		l, s := setup(t)
		tx := l.Begin(s)
		for _, name := range []string{"a", "b"} {
			f := mustFile(t, s, name)
			tx.ReadFiles(f)
			tx.Remove(f.Remove(l.Now(), false))
		}
		big := file("big")
		big.DataChange = false
		tx.Add(big)
		append1(t, l, s, "c")
		s2 := mustLatest(t, l)
		w := l.Begin(s2)
		w.Remove(mustFile(t, s2, "c").Remove(l.Now(), true))
		mustCommit(t, w, CommitOptions{Operation: "DELETE"})
		mustCommit(t, tx, CommitOptions{Operation: "OPTIMIZE"})
		if got := paths(t, mustLatest(t, l)); !slices.Equal(got, []string{"big"}) {
			t.Errorf("%q", got)
		}
	})
	for _, op := range []string{"RESTORE", "CLONE", "CONVERT"} {
		t.Run("C-27 by name "+op, func(t *testing.T) {
			l, s := setup(t)
			tx := l.Begin(s)
			tx.Add(file("x"))
			append1(t, l, s, "c")
			_, err := tx.Commit(ctx, CommitOptions{Operation: op})
			wantError(t, err, ErrConflict, "DELTA_CONCURRENT_WRITE")
		})
	}
	t.Run("C-28 VACUUM writes commitInfo alone and meets nobody", func(t *testing.T) {
		l, s := setup(t)
		tx := l.Begin(s)
		_, err := tx.Commit(ctx, CommitOptions{Operation: "VACUUM START"})
		wantError(t, err, ErrInvalid, "DELTA_EMPTY_COMMIT")
		dml := l.Begin(s)
		dml.ReadWholeTable()
		dml.Add(file("x"))
		mustCommit(t, l.Begin(s), CommitOptions{Operation: "VACUUM START", InfoOnly: true})
		mustCommit(t, dml, CommitOptions{})
	})
}

// TestConflict_Backfill: row ids that come to files we touch (C-34).
func TestConflict_Backfill(t *testing.T) {
	l, m := testLog(t)
	s := newTable(t, l, nil, map[string]string{"delta.rowTrackingSuspended": "true"}, RowTracking, DeletionVectors)
	tx := l.Begin(s)
	tx.Add(withRows(file("a"), 3), withRows(file("b"), 2))
	mustCommit(t, tx, CommitOptions{})
	tx = l.Begin(mustLatest(t, l))
	tx.SetMetadata(&Metadata{ID: "table", Format: s.Metadata.Format, SchemaString: longSchema})
	mustCommit(t, tx, CommitOptions{})
	s = mustLatest(t, l)
	put(t, m, CommitKey(3), `{"commitInfo":{"operation":"ROW TRACKING BACKFILL"}}
{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"rowIdHighWaterMark\":4}","removed":false}}
{"add":{"path":"a","partitionValues":{},"size":10,"modificationTime":1,"dataChange":false,"stats":"{\"numRecords\":3}","baseRowId":0,"defaultRowCommitVersion":3}}
{"add":{"path":"b","partitionValues":{},"size":10,"modificationTime":1,"dataChange":false,"stats":"{\"numRecords\":2}","baseRowId":3,"defaultRowCommitVersion":3}}
`)
	t.Run("C-34 removes and files that come again take the ids, new files get theirs above", func(t *testing.T) {
		tx := l.Begin(s)
		tx.ReadWholeTable()
		tx.ReadFiles(mustFile(t, s, "a"), mustFile(t, s, "b"))
		setVector(tx, mustFile(t, s, "a"), dvOf("v"), true)
		tx.Remove(mustFile(t, s, "b").Remove(l.Now(), true))
		tx.Add(withRows(file("c"), 2))
		r := mustCommit(t, tx, CommitOptions{Operation: "UPDATE"})
		c := mustRead(t, l, r.Version)
		for _, x := range c.Removes {
			if x.BaseRowID == nil || *x.DefaultRowCommitVersion != 3 {
				t.Errorf("remove %s without ids", x.Path)
			}
		}
		got, mark := rowState(t, mustLatest(t, l))
		if got["a"] != "0/3" || got["c"] != "5/4" || mark != 6 {
			t.Errorf("%v %d", got, mark)
		}
	})
	t.Run("C-34 a winner that only calls itself a backfill", func(t *testing.T) {
		c := &Commit{Info: &CommitInfo{Operation: backfillOperation}}
		c.Adds = []*Add{file("x")}
		if isBackfill(c) {
			t.Error("it changes data")
		}
	})
}
