package deltalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

func TestTransaction_Commit(t *testing.T) {
	ctx := context.Background()
	t.Run("W-101 W-102 W-204 the first commits as written", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		tx := l.Begin(s)
		tx.Add(file("a"))
		r := mustCommit(t, tx, CommitOptions{Operation: "WRITE", Parameters: map[string]string{"mode": "Append", "partitionBy": "[]"}, Metrics: map[string]string{"numFiles": "1"}})
		if r.Version != 1 || r.Attempts != 1 || r.Winners != 0 || r.TxnID == "" {
			t.Errorf("result %+v", r)
		}
		for v, want := range []string{
			`{"commitInfo":{"timestamp":1767323048000,"operation":"CREATE TABLE","operationParameters":{},"isolationLevel":"Serializable","isBlindAppend":true,"engineInfo":"sluice","txnId":"ID"}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"table","format":{"provider":"parquet","options":{}},"schemaString":"SCHEMA","partitionColumns":[],"configuration":{}}}
`,
			`{"commitInfo":{"timestamp":TIME,"operation":"WRITE","operationParameters":{"mode":"Append","partitionBy":"[]"},"readVersion":0,"isolationLevel":"Serializable","isBlindAppend":true,"operationMetrics":{"numFiles":"1"},"engineInfo":"sluice","txnId":"ID"}}
{"add":{"path":"a","partitionValues":{},"size":10,"modificationTime":1,"dataChange":true}}
`,
		} {
			got := string(readKey(t, m, CommitKey(int64(v))))
			c := parse(t, got)
			want = strings.NewReplacer("ID", c.Info.TxnID, "TIME", itoa(*c.Info.Timestamp), "1767323048000", itoa(*c.Info.Timestamp), "SCHEMA", strings.ReplaceAll(longSchema, `"`, `\"`)).Replace(want)
			if got != want {
				t.Errorf("version %d\n got %s\nwant %s", v, got, want)
			}
		}
	})
	t.Run("W-101 the first commit needs protocol and metadata", func(t *testing.T) {
		l, m := testLog(t)
		tx := l.Begin(nil)
		tx.SetMetadata(meta(nil, ""))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "CREATE TABLE"})
		wantError(t, err, ErrInvalid, "DELTA_INVALID_COMMIT")
		if _, err := m.Head(ctx, CommitKey(0)); err == nil {
			t.Error("something was written")
		}
	})
	t.Run("W-853 a recorded txn version is done already", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		for _, v := range []int64{3, 3, 2} {
			s = mustLatest(t, l)
			tx := l.Begin(s)
			tx.SetTxn("app", v)
			tx.Add(file("f"))
			r := mustCommit(t, tx, CommitOptions{})
			if r.AlreadyDone != (s.Version > 0) || r.Version != 1 {
				t.Errorf("txn %d on version %d: %+v", v, s.Version, r)
			}
		}
		if v, ok := mustLatest(t, l).TxnVersion("app"); v != 3 || !ok {
			t.Errorf("txn %d %t", v, ok)
		}
		tx := l.Begin(s)
		tx.SetTxn("x", 1)
		tx.SetTxn("x", 2)
		_, err := tx.Commit(ctx, CommitOptions{Operation: "W"})
		wantError(t, err, ErrInvalid, "DELTA_DUPLICATE_ACTIONS_FOUND")
	})
	t.Run("a transaction is committed once", func(t *testing.T) {
		l, _ := testLog(t)
		tx := l.Begin(newTable(t, l, nil, nil))
		tx.Add(file("a"))
		mustCommit(t, tx, CommitOptions{})
		_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrInvalid, "DELTA_INVALID_COMMIT")
	})
	t.Run("W-907 nothing to commit", func(t *testing.T) {
		l, _ := testLog(t)
		_, err := l.Begin(newTable(t, l, nil, nil)).Commit(ctx, CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrInvalid, "DELTA_EMPTY_COMMIT")
	})
	t.Run("W-104 a commit is never overwritten", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		put(t, m, CommitKey(1), addLine("theirs")+"\n")
		tx := l.Begin(s)
		tx.Add(file("ours"))
		if r := mustCommit(t, tx, CommitOptions{}); r.Version != 2 || r.Winners != 1 || r.Attempts != 2 {
			t.Errorf("result %+v", r)
		}
		if got := string(readKey(t, m, CommitKey(1))); got != addLine("theirs")+"\n" {
			t.Errorf("commit 1 is now %s", got)
		}
	})
	t.Run("W-125 attempts are bounded", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		v := int64(1)
		f := faultstore.New(m, faultstore.Rule{Match: faultstore.On(faultstore.Create, ""), Mode: faultstore.Observe, Times: -1, Hook: func(context.Context, faultstore.Call) error {
			put(t, m, CommitKey(v), addLine(fmt.Sprint(v))+"\n")
			v++
			return nil
		}})
		fl := Open(f, l.opts)
		tx := fl.Begin(s)
		tx.Add(file("x"))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE", MaxAttempts: 5})
		var ce *ConflictError
		if !errors.As(err, &ce) || ce.Rule != "W-125" || v != 6 {
			t.Errorf("got %v after %d tries", err, v-1)
		}
	})
	t.Run("W-125 ctx ends the tries", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		put(t, m, CommitKey(1), addLine("theirs")+"\n")
		opts := l.opts
		opts.Sleep = func(ctx context.Context, d time.Duration) error { cancel(); return ctx.Err() }
		tx := Open(m, opts).Begin(s)
		tx.Add(file("x"))
		if _, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if s := mustLatest(t, l); s.Version != 1 {
			t.Errorf("version %d", s.Version)
		}
	})
	t.Run("C-36 a caller rebases its own transaction", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		tx := l.Begin(s)
		tx.ReadWholeTable()
		tx.SetTxn("state", 1)
		tx.Add(file("x1"))
		for i := range 3 {
			w := l.Begin(mustLatest(t, l))
			w.SetTxn("state", int64(i+1))
			w.Add(file(fmt.Sprintf("w%d", i)))
			mustCommit(t, w, CommitOptions{})
		}
		calls := 0
		r := mustCommit(t, tx, CommitOptions{OnConflict: func(_ context.Context, winners []*Commit) (*Rebased, error) {
			calls++
			if len(winners) != 3 || winners[0].Version != 1 || winners[2].Txns[0].Version != 3 {
				t.Errorf("winners %+v", winners)
			}
			now := int64(1)
			return &Rebased{Actions: Actions{Txns: []*Txn{{AppID: "state", Version: 4, LastUpdated: &now}}, Adds: []*Add{file("x2")}}, Metrics: map[string]string{"n": "1"}}, nil
		}})
		if r.Version != 4 || calls != 1 {
			t.Errorf("result %+v, %d calls", r, calls)
		}
		s = mustLatest(t, l)
		if v, _ := s.TxnVersion("state"); v != 4 {
			t.Errorf("txn %d", v)
		}
		c, err := l.ReadCommit(ctx, 4)
		if err != nil || c.Adds[0].Path != "x2" || c.Info.OperationMetrics["n"] != "1" || *c.Info.ReadVersion != 0 {
			t.Errorf("commit %+v %v", c, err)
		}
	})
	t.Run("W-853 a rebase cannot go back in txn versions", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		tx := l.Begin(s)
		tx.SetTxn("state", 1)
		w := l.Begin(s)
		w.SetTxn("state", 1)
		mustCommit(t, w, CommitOptions{})
		_, err := tx.Commit(ctx, CommitOptions{Operation: "W", OnConflict: func(context.Context, []*Commit) (*Rebased, error) { return nil, nil }})
		var ce *ConflictError
		if !errors.As(err, &ce) || ce.Kind != ConcurrentTransaction {
			t.Errorf("got %v", err)
		}
	})
	t.Run("C-36 the caller's refusal ends the commit, metadata is checked first", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil)
		w := l.Begin(s)
		w.Add(file("w"))
		mustCommit(t, w, CommitOptions{})
		mine := errors.New("mine")
		tx := l.Begin(s)
		tx.Add(file("x"))
		if _, err := tx.Commit(ctx, CommitOptions{Operation: "W", OnConflict: func(context.Context, []*Commit) (*Rebased, error) { return nil, mine }}); !errors.Is(err, mine) {
			t.Errorf("got %v", err)
		}
		s = mustLatest(t, l)
		w = l.Begin(s)
		w.SetMetadata(withProps(s, "x", "y"))
		mustCommit(t, w, CommitOptions{})
		tx = l.Begin(s)
		tx.Add(file("x"))
		_, err := tx.Commit(ctx, CommitOptions{Operation: "W", OnConflict: func(context.Context, []*Commit) (*Rebased, error) {
			t.Error("called in spite of a metadata change")
			return nil, nil
		}})
		wantError(t, err, ErrConflict, "DELTA_METADATA_CHANGED")
	})
}

// TestCommit_Rules: each rule of 1.3 is held before anything is written.
func TestCommit_Rules(t *testing.T) {
	one := func(s string) *string { return &s }
	dv := func(id string) *DeletionVectorDescriptor {
		return &DeletionVectorDescriptor{StorageType: "u", PathOrInlineDv: id, SizeInBytes: 1, Cardinality: 1}
	}
	add := func(path string, change func(*Add)) *Add {
		a := file(path, "1")
		if change != nil {
			change(a)
		}
		return a
	}
	rm := func(a *Add) *Remove { return a.Remove(time.UnixMilli(5), a.DataChange) }
	withDV := func(id string) func(*Add) { return func(a *Add) { a.DeletionVector = dv(id) } }
	md := func(s *Snapshot, change func(*Metadata)) *Metadata {
		m := *s.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		change(&m)
		return &m
	}
	for _, c := range []struct {
		name, code string // code "" is legal
		stage      func(tx *Transaction, s *Snapshot)
	}{
		{"W-201 keys equal the partition columns", "", func(tx *Transaction, s *Snapshot) { tx.Add(add("a", nil)) }},
		{"W-201 a key is missing", "DELTA_INVALID_PARTITION_VALUES", func(tx *Transaction, s *Snapshot) { tx.Add(file("a")) }},
		{"W-201 a key too many", "DELTA_INVALID_PARTITION_VALUES", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", func(a *Add) { a.PartitionValues["q"] = one("1") }))
		}},
		{"W-201 cdc too", "DELTA_INVALID_PARTITION_VALUES", func(tx *Transaction, s *Snapshot) { tx.AddCDC(&CDC{Path: "_change_data/a"}) }},
		{"W-202 remove without size", "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", func(tx *Transaction, s *Snapshot) {
			r := rm(add("a", nil))
			r.Size = nil
			tx.Remove(r)
		}},
		{"W-205 protocol keys in the configuration", "DELTA_UNKNOWN_CONFIGURATION", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) { m.Configuration["delta.feature.deletionVectors"] = "supported" }))
		}},
		{"W-206 two adds of a path", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) { tx.Add(add("a", nil), add("a", nil)) }},
		{"W-206 two adds of a path in two spellings", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) { tx.Add(add("a%41", nil), add("aA", nil)) }},
		{"W-206 two adds of a path with two vectors", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) { tx.Add(add("a", withDV("x")), add("a", withDV("y"))) }},
		{"W-206 two removes of a path", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) { tx.Remove(rm(add("a", nil)), rm(add("a", nil))) }},
		{"W-206 add and remove of the same file", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) { tx.Add(add("a", nil)); tx.Remove(rm(add("a", nil))) }},
		{"W-206 add and remove with the same vector", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", withDV("x")))
			tx.Remove(rm(add("a", withDV("x"))))
		}},
		{"W-206 a new vector", "", func(tx *Transaction, s *Snapshot) { tx.Add(add("a", withDV("x"))); tx.Remove(rm(add("a", nil))) }},
		{"W-206 a vector replaced", "", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", withDV("y")))
			tx.Remove(rm(add("a", withDV("x"))))
		}},
		{"W-206 two txn of an application", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) { tx.SetTxn("a", 1); tx.SetTxn("a", 1) }},
		{"W-206 a domain twice", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) {
			tx.SetDomain(&DomainMetadata{Domain: "d"})
			tx.SetDomain(&DomainMetadata{Domain: "d", Removed: true})
		}},
		{"W-206 a cdc file twice", "DELTA_DUPLICATE_ACTIONS_FOUND", func(tx *Transaction, s *Snapshot) {
			f := &CDC{Path: "_change_data/a", PartitionValues: map[string]*string{"p": nil}}
			tx.AddCDC(f, f)
		}},
		{"W-207 mixed dataChange", "DELTA_INVALID_ACTION", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", nil), add("b", func(a *Add) { a.DataChange = false }))
		}},
		{"W-207 mixed between add and remove", "DELTA_INVALID_ACTION", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", nil))
			tx.Remove(add("b", nil).Remove(time.UnixMilli(1), false))
		}},
		{"W-207 cdc is not counted", "", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", nil))
			tx.AddCDC(&CDC{Path: "_change_data/a", PartitionValues: map[string]*string{"p": nil}})
		}},
		{"W-207 cdc is always false", "DELTA_INVALID_ACTION", func(tx *Transaction, s *Snapshot) {
			tx.AddCDC(&CDC{Path: "_change_data/a", PartitionValues: map[string]*string{"p": nil}, DataChange: true})
		}},
		{"W-902 cdc in a commit that changes nothing", "DELTA_INVALID_ACTION", func(tx *Transaction, s *Snapshot) {
			tx.Add(add("a", func(a *Add) { a.DataChange = false }))
			tx.AddCDC(&CDC{Path: "_change_data/a", PartitionValues: map[string]*string{"p": nil}})
		}},
		{"W-303 a downgrade", "DELTA_INVALID_PROTOCOL_DOWNGRADE", func(tx *Transaction, s *Snapshot) {
			tx.SetProtocol(&Protocol{MinReaderVersion: 1, MinWriterVersion: 2})
		}},
		{"W-303 an upgrade", "", func(tx *Transaction, s *Snapshot) {
			p, _ := s.Protocol.With(TimestampNTZ)
			tx.SetProtocol(p)
		}},
		{"W-306 a property without its feature", "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) { m.Configuration["delta.columnMapping.mode"] = "name" }))
		}},
		{"W-306 a type without its feature", "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) {
				m.SchemaString = parseSchema(t, "id BIGINT, p STRING, t ARRAY<TIMESTAMP_NTZ>").JSON()
			}))
		}},
		{"W-401 names", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) { m.SchemaString = parseSchema(t, "`a b` BIGINT, p STRING").JSON() }))
		}},
		{"W-401 duplicate names", "DELTA_DUPLICATE_COLUMNS_FOUND", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) { m.SchemaString = parseSchema(t, "id BIGINT, P STRING, p STRING").JSON() }))
		}},
		{"W-905 reserved names under the change feed", "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) { m.SchemaString = parseSchema(t, "_Change_Type BIGINT, p STRING").JSON() }))
		}},
		{"R-401 a schema that is none", "DELTA_SCHEMA_NOT_PARSEABLE", func(tx *Transaction, s *Snapshot) {
			tx.SetMetadata(md(s, func(m *Metadata) { m.SchemaString = "x" }))
		}},
		{"R-201 a path that is none", "DELTA_INVALID_PATH", func(tx *Transaction, s *Snapshot) { tx.Add(add("a%zz", nil)) }},
		{"R-201 an empty path", "DELTA_INVALID_PATH", func(tx *Transaction, s *Snapshot) { tx.Add(add("", nil)) }},
		{"W-204 the operation is named", "DELTA_INVALID_COMMIT", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, m := testLog(t)
			s := newTable(t, l, []string{"p"}, map[string]string{"delta.enableChangeDataFeed": "true"}, ChangeDataFeed, DeletionVectors, DomainMetadataF)
			tx := l.Begin(s)
			opts := CommitOptions{Operation: "WRITE"}
			if c.stage == nil {
				opts.Operation = ""
			} else {
				c.stage(tx, s)
			}
			_, err := tx.Commit(context.Background(), opts)
			if c.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, ErrInvalid, c.code)
			if _, err := m.Head(context.Background(), CommitKey(1)); err == nil {
				t.Error("the commit was written")
			}
		})
	}
	t.Run("W-306 a deletion vector without the feature", func(t *testing.T) {
		l, _ := testLog(t)
		tx := l.Begin(newTable(t, l, []string{"p"}, nil))
		tx.Add(add("a", withDV("x")))
		_, err := tx.Commit(context.Background(), CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrInvalid, "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH")
	})
	t.Run("W-306 cdc without the change feed", func(t *testing.T) {
		l, _ := testLog(t)
		tx := l.Begin(newTable(t, l, nil, nil))
		tx.AddCDC(&CDC{Path: "_change_data/a"})
		_, err := tx.Commit(context.Background(), CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrInvalid, "DELTA_INVALID_ACTION")
	})
	t.Run("W-426 append-only", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, []string{"p"}, map[string]string{"delta.appendOnly": "true"})
		tx := l.Begin(s)
		tx.Remove(rm(add("a", nil)))
		_, err := tx.Commit(context.Background(), CommitOptions{Operation: "DELETE"})
		wantError(t, err, ErrInvalid, "DELTA_CANNOT_MODIFY_APPEND_ONLY")
		tx = l.Begin(s)
		tx.Remove(add("a", nil).Remove(time.UnixMilli(1), false))
		mustCommit(t, tx, CommitOptions{Operation: "OPTIMIZE"})
	})
	t.Run("W-426 not in force below writer version 2", func(t *testing.T) {
		l, m := testLog(t)
		put(t, m, CommitKey(0), `{"protocol":{"minReaderVersion":1,"minWriterVersion":1}}`+"\n"+strings.Replace(metadataLine, `"configuration":{}`, `"configuration":{"delta.appendOnly":"true"}`, 1)+"\n")
		tx := l.Begin(mustLatest(t, l))
		tx.Remove(rm(file("a")))
		mustCommit(t, tx, CommitOptions{Operation: "DELETE"})
	})
	t.Run("W-506 mapping and rows in one commit under the change feed", func(t *testing.T) {
		mapped := func(names ...string) string {
			var fields []string
			for i, n := range names {
				fields = append(fields, fmt.Sprintf(`{"name":%q,"type":"long","nullable":true,"metadata":{"delta.columnMapping.id":%d,"delta.columnMapping.physicalName":"x%d"}}`, n, i+1, i+1))
			}
			return strings.Join(fields, ",")
		}
		on := map[string]string{"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
		off := map[string]string{"delta.enableChangeDataFeed": "true"}
		for _, c := range []struct {
			name          string
			before, after map[string]string
			fields        string
			rows, legal   bool
		}{
			{"switched on", off, on, mapped("a", "b"), true, false},
			{"switched on without rows", off, on, mapped("a", "b"), false, true},
			{"renamed", on, on, mapped("a", "c"), true, false},
			{"renamed without rows", on, on, mapped("a", "c"), false, true},
			{"dropped", on, on, mapped("a"), true, false},
			{"added", on, on, mapped("a", "b", "c"), true, true},
		} {
			l, m := testLog(t)
			p, err := NewProtocol(ChangeDataFeed, ColumnMapping)
			if err != nil {
				t.Fatal(err)
			}
			s := newTableOf(t, l, p, meta(c.before, mapped("a", "b")))
			tx := l.Begin(s)
			md := meta(c.after, c.fields)
			md.ID = s.Metadata.ID
			tx.SetMetadata(md)
			if c.rows {
				tx.Add(file("f"))
			}
			_, err = tx.Commit(context.Background(), CommitOptions{Operation: "ALTER"})
			if c.legal {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			wantError(t, err, ErrInvalid, "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION")
			if _, err := m.Head(context.Background(), CommitKey(1)); err == nil {
				t.Errorf("%s: the commit was written", c.name)
			}
		}
	})
	t.Run("W-502 W-503 column mapping", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil, ColumnMapping)
		change := func(s *Snapshot, conf map[string]string, ids ...int) error {
			fields := []string{}
			for i, id := range ids {
				fields = append(fields, fmt.Sprintf(`{"name":"c%d","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":%d,"delta.columnMapping.physicalName":"x%d"}}`, i, id, id))
			}
			tx := l.Begin(s)
			m := meta(conf, strings.Join(fields, ","))
			m.ID = s.Metadata.ID
			tx.SetMetadata(m)
			_, err := tx.Commit(context.Background(), CommitOptions{Operation: "ALTER"})
			return err
		}
		name := func(maxID int) map[string]string {
			return map[string]string{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": fmt.Sprint(maxID)}
		}
		wantError(t, change(s, name(1), 1, 2), ErrInvalid, "DELTA_COLUMN_MAPPING_SET_COLUMN_ID_NOT_SET")
		wantError(t, change(s, name(2), 1, 1), ErrInvalid, "DELTA_DUPLICATED_COLUMN_MAPPING_ID")
		wantError(t, change(s, map[string]string{"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"}, 1, 2), ErrInvalid, "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE")
		if err := change(s, name(5), 1, 2); err != nil {
			t.Fatal(err)
		}
		s = mustLatest(t, l)
		wantError(t, change(s, name(4), 1, 2), ErrInvalid, "DELTA_COLUMN_MAPPING_SET_COLUMN_ID_NOT_SET")
		wantError(t, change(s, nil, 1, 2), ErrInvalid, "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE")
		if err := change(s, name(6), 1, 6); err != nil {
			t.Error(err)
		}
	})
}

// TestCommit_Ambiguous: whatever the store answers, a commit is written once.
func TestCommit_Ambiguous(t *testing.T) {
	ctx := context.Background()
	count := func(t *testing.T, m storage.Store, path string) (n int) {
		l := Open(m, Options{})
		for c, err := range l.Commits(ctx, 0, mustLatest(t, l).Version) {
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range c.Adds {
				if a.Path == path {
					n++
				}
			}
		}
		return n
	}
	on := func(op faultstore.Op) faultstore.Match { return faultstore.On(op, LogDir+"00000000000000000001.json") }
	for _, c := range []struct {
		name  string
		rules []faultstore.Rule
		times int // ours in the log
		want  error
	}{
		{"applied, reported as unknown", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailAfter}}, 1, nil},
		{"not applied, reported as unknown", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrAmbiguous}}, 1, nil},
		{"not applied, transient", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrTransient}}, 1, nil},
		{"unknown several times, applied at last", []faultstore.Rule{
			{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrAmbiguous, Times: 3},
			{Match: on(faultstore.Create), Mode: faultstore.FailAfter},
		}, 1, nil},
		{"applied, and the first read back fails", []faultstore.Rule{
			{Match: on(faultstore.Create), Mode: faultstore.FailAfter},
			{Match: on(faultstore.Head), Mode: faultstore.FailBefore, Err: storage.ErrTransient, Times: 2},
		}, 1, nil},
		{"applied, and it cannot be read back", []faultstore.Rule{
			{Match: on(faultstore.Create), Mode: faultstore.FailAfter},
			{Match: on(faultstore.Head), Mode: faultstore.FailBefore, Err: storage.ErrTransient, Times: -1},
		}, 1, storage.ErrAmbiguous},
		{"never applied, always unknown", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrAmbiguous, Times: -1}}, 0, storage.ErrAmbiguous},
		{"full disk", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrNoSpace}}, 0, storage.ErrNoSpace},
		{"read-only", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrPermission}}, 0, storage.ErrPermission},
		{"a fault of no class", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.FailBefore}}, 0, faultstore.ErrInjected},
		{"crash before", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.CrashBefore}}, 0, faultstore.ErrCrashed},
		{"crash after", []faultstore.Rule{{Match: on(faultstore.Create), Mode: faultstore.CrashAfter}}, 1, faultstore.ErrCrashed},
	} {
		t.Run("W-124 "+c.name, func(t *testing.T) {
			l, m := testLog(t)
			s := newTable(t, l, nil, nil)
			fl := Open(faultstore.New(m, c.rules...), l.opts)
			tx := fl.Begin(s)
			tx.Add(file("ours"))
			r, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if err == nil && r.Version != 1 {
				t.Errorf("version %d", r.Version)
			}
			var ue *UnknownOutcomeError
			if errors.Is(c.want, storage.ErrAmbiguous) && (!errors.As(err, &ue) || ue.Version != 1) {
				t.Errorf("not an UnknownOutcomeError: %v", err)
			}
			if n := count(t, m.Crash(), "ours"); n != c.times {
				t.Errorf("the commit is in the log %d times, want %d", n, c.times)
			}
		})
	}
	t.Run("W-124 lost to another writer behind an unknown answer", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		f := faultstore.New(m, faultstore.Rule{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrAmbiguous, Hook: func(context.Context, faultstore.Call) error {
			put(t, m, CommitKey(1), addLine("theirs")+"\n")
			return nil
		}})
		tx := Open(f, l.opts).Begin(s)
		tx.Add(file("ours"))
		if r := mustCommit(t, tx, CommitOptions{}); r.Version != 2 {
			t.Errorf("version %d", r.Version)
		}
	})
	t.Run("W-124 the answer arrives late: applied after the read back", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		// The first request hangs: it is applied when the second one comes.
		var late []byte
		f := faultstore.New(m)
		f.Add(
			faultstore.Rule{Match: on(faultstore.Create), Mode: faultstore.FailBefore, Err: storage.ErrAmbiguous},
			faultstore.Rule{Match: on(faultstore.Create), Mode: faultstore.Observe, Hook: func(context.Context, faultstore.Call) error {
				return m.Create(ctx, CommitKey(1), late)
			}},
		)
		tx := Open(captureStore{f, &late}, l.opts).Begin(s)
		tx.Add(file("ours"))
		if r := mustCommit(t, tx, CommitOptions{}); r.Version != 1 {
			t.Errorf("version %d", r.Version)
		}
		if n := count(t, m, "ours"); n != 1 {
			t.Errorf("in the log %d times", n)
		}
	})
	t.Run("W-124 ErrExists of a retry inside the store", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		var data []byte
		f := faultstore.New(m, faultstore.Rule{Match: on(faultstore.Create), Mode: faultstore.Observe, Hook: func(context.Context, faultstore.Call) error {
			return m.Create(ctx, CommitKey(1), data)
		}})
		tx := Open(captureStore{f, &data}, l.opts).Begin(s)
		tx.Add(file("ours"))
		if r := mustCommit(t, tx, CommitOptions{}); r.Version != 1 {
			t.Errorf("version %d", r.Version)
		}
		if n := count(t, m, "ours"); n != 1 {
			t.Errorf("in the log %d times", n)
		}
	})
	t.Run("W-124 cancelled while the answer is out", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		f := faultstore.New(m, faultstore.Rule{Match: on(faultstore.Create), Mode: faultstore.FailAfter, Err: context.Canceled, Hook: func(context.Context, faultstore.Call) error { return nil }},
			faultstore.Rule{Match: on(faultstore.Head), Mode: faultstore.Observe, Hook: func(context.Context, faultstore.Call) error { cancel(); return nil }})
		tx := Open(f, l.opts).Begin(s)
		tx.Add(file("ours"))
		if r, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"}); err != nil || r.Version != 1 {
			t.Errorf("got %+v %v", r, err)
		}
	})
}

// captureStore remembers the bytes of the last Create.
type captureStore struct {
	storage.Store
	data *[]byte
}

func (c captureStore) Create(ctx context.Context, key string, data []byte) error {
	*c.data = data
	return c.Store.Create(ctx, key, data)
}

// TestCommit_Race: many writers, faults among them; every acknowledged commit is
// there once and versions have no gap (W-121, W-125).
func TestCommit_Race(t *testing.T) {
	const writers, each = 16, 12
	ctx := context.Background()
	m := storage.NewMemory(t.Name())
	l := Open(m, Options{Sleep: noSleep})
	newTable(t, l, nil, map[string]string{"delta.checkpointInterval": "5"})
	n := 0
	f := faultstore.New(m,
		faultstore.Rule{Match: func(c faultstore.Call) bool {
			if c.Op == faultstore.Create && strings.HasSuffix(c.Key, ".json") {
				n++
				return n%7 == 3
			}
			return false
		}, Mode: faultstore.FailAfter, Times: -1},
		faultstore.Rule{Match: func(c faultstore.Call) bool {
			return c.Op == faultstore.Create && strings.HasSuffix(c.Key, ".json") && n%11 == 5
		}, Mode: faultstore.FailBefore, Err: storage.ErrAmbiguous, Times: -1},
		faultstore.Rule{Match: func(c faultstore.Call) bool {
			return strings.HasSuffix(c.Key, ".checkpoint.parquet") && c.N%5 == 0
		}, Mode: faultstore.FailBefore, Times: -1},
	)
	fl := Open(f, Options{Sleep: noSleep})
	var wg sync.WaitGroup
	acked := make([][]int64, writers)
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				s, err := fl.Latest(ctx)
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				tx := fl.Begin(s)
				tx.Add(file(fmt.Sprintf("w%d-%d", w, i)))
				tx.SetTxn(fmt.Sprintf("w%d", w), int64(i))
				r, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
				if err != nil {
					t.Errorf("W-121 commit: %v", err)
					return
				}
				acked[w] = append(acked[w], r.Version)
			}
		}()
	}
	wg.Wait()
	t.Run("W-121 W-125 acknowledged once, no gap", func(t *testing.T) {
		s := mustLatest(t, Open(m.Crash(), Options{}))
		if s.Version != writers*each || len(paths(t, s)) != writers*each {
			t.Errorf("version %d with %d files, want %d", s.Version, len(paths(t, s)), writers*each)
		}
		seen := map[int64]bool{}
		for w, versions := range acked {
			if v, _ := s.TxnVersion(fmt.Sprintf("w%d", w)); v != each-1 {
				t.Errorf("writer %d: txn %d", w, v)
			}
			for _, v := range versions {
				if seen[v] {
					t.Errorf("version %d acknowledged twice", v)
				}
				seen[v] = true
			}
		}
		checkReplay(t, Open(m, Options{}), s)
	})
}

// TestCommit_FaultAtEveryOperation fails operation 0, 1, 2 ... of a commit with a
// checkpoint, in every way; after each the table is readable, gapless, and holds the
// commit if it was acknowledged.
func TestCommit_FaultAtEveryOperation(t *testing.T) {
	ctx := context.Background()
	for _, mode := range []faultstore.Mode{faultstore.FailBefore, faultstore.FailAfter, faultstore.CrashBefore, faultstore.CrashAfter} {
		t.Run(fmt.Sprintf("W-104 W-705 mode %d", mode), func(t *testing.T) {
			for i := 0; ; i++ {
				l, m := testLog(t)
				newTable(t, l, nil, map[string]string{"delta.checkpointInterval": "1"})
				f := faultstore.New(m, faultstore.Rule{Match: faultstore.Nth(i), Mode: mode})
				fl := Open(f, l.opts)
				s, err := fl.Latest(ctx)
				var r CommitResult
				if err == nil {
					tx := fl.Begin(s)
					tx.Add(file("x"))
					r, err = tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
				}
				after := mustLatest(t, Open(m.Crash(), l.opts))
				n := len(paths(t, after))
				if err == nil && (r.Version != 1 || n != 1) {
					t.Errorf("operation %d: acknowledged, but %d files", i, n)
				}
				if after.Version != int64(n) || n > 1 {
					t.Errorf("operation %d: version %d with %d files", i, after.Version, n)
				}
				// A retry with what is there now must work.
				tx := Open(m, l.opts).Begin(after)
				tx.Add(file("y"))
				mustCommit(t, tx, CommitOptions{})
				if f.Count() <= i {
					return
				}
			}
		})
	}
}
