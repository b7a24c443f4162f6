package deltalog

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
)

func TestProtocol_Without(t *testing.T) {
	text := func(p *Protocol) string { b, _ := marshal(p); return string(b) }
	for _, c := range []struct {
		name string
		from *Protocol
		drop Feature
		want string // protocol or error code
	}{
		{"back to (1,2)", &Protocol{3, 7, []string{"deletionVectors"}, []string{"appendOnly", "invariants", "deletionVectors"}}, DeletionVectors, `{"minReaderVersion":1,"minWriterVersion":2}`},
		{"back to (1,1)", &Protocol{3, 7, []string{"deletionVectors"}, []string{"deletionVectors"}}, "DELETIONVECTORS", `{"minReaderVersion":1,"minWriterVersion":1}`},
		{"another reader feature stays", &Protocol{3, 7, []string{"deletionVectors", "timestampNtz"}, []string{"deletionVectors", "timestampNtz"}}, DeletionVectors, `{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timestampNtz"],"writerFeatures":["timestampNtz"]}`},
		{"reader version 2 for column mapping", &Protocol{3, 7, []string{"columnMapping", "v2Checkpoint"}, []string{"columnMapping", "v2Checkpoint", "appendOnly"}}, V2Checkpoint, `{"minReaderVersion":2,"minWriterVersion":7,"writerFeatures":["appendOnly","columnMapping"]}`},
		{"out of a legacy version", &Protocol{MinReaderVersion: 1, MinWriterVersion: 4}, ChangeDataFeed, `{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","invariants","checkConstraints","generatedColumns"]}`},
		{"to a lower legacy version", &Protocol{MinReaderVersion: 2, MinWriterVersion: 5}, ColumnMapping, `{"minReaderVersion":1,"minWriterVersion":4}`},
		{"unknown features stay", &Protocol{3, 7, []string{"zzz", "deletionVectors"}, []string{"zzz", "deletionVectors"}}, DeletionVectors, `{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["zzz"],"writerFeatures":["zzz"]}`},
		{"not there", &Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, DeletionVectors, "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"},
		{"not known", &Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, "zzz", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"},
		{"needed by another", &Protocol{1, 7, nil, []string{"domainMetadata", "rowTracking"}}, DomainMetadataF, "DELTA_FEATURE_DROP_DEPENDENT_FEATURE"},
	} {
		t.Run("W-303 "+c.name, func(t *testing.T) {
			got, err := c.from.Without(c.drop)
			if err != nil {
				if codeOf(err) != c.want {
					t.Errorf("got %v", err)
				}
				return
			}
			if text(got) != c.want {
				t.Errorf("got  %s\nwant %s", text(got), c.want)
			}
			if err := got.checkShape(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLog_DropFeature(t *testing.T) {
	ctx := context.Background()
	t.Run("W-303 W-308 reader features: dropped at once, with protection", func(t *testing.T) {
		l, m := testLog(t)
		s := newTable(t, l, nil, map[string]string{"delta.enableDeletionVectors": "true", "x": "y"}, DeletionVectors)
		append1(t, l, s, "a")
		s = mustLatest(t, l)
		tx := l.Begin(s)
		setVector(tx, mustFile(t, s, "a"), dvOf("v"), true)
		mustCommit(t, tx, CommitOptions{})
		_, err := l.DropFeature(ctx, DeletionVectors, DropFeatureOptions{})
		wantError(t, err, ErrInvalid, "DELTA_FEATURE_DROP_TRACES")
		s = mustLatest(t, l)
		if s.Version != 2 {
			t.Fatal("something was written")
		}
		// The table purges its vectors.
		tx = l.Begin(s)
		r := mustFile(t, s, "a").Remove(l.Now(), false)
		tx.Remove(r)
		b := file("b")
		b.DataChange = false
		tx.Add(b)
		mustCommit(t, tx, CommitOptions{Operation: "REORG"})
		got, err := l.DropFeature(ctx, DeletionVectors, DropFeatureOptions{})
		if err != nil || got.Version != 4 || !got.Protected {
			t.Fatalf("%+v %v", got, err)
		}
		s = mustLatest(t, l)
		if s.Supports(DeletionVectors) || !s.Supports(CheckpointProtection) || s.Protocol.MinReaderVersion != 1 || s.Props.RequireCheckpointBefore != 4 ||
			s.Metadata.Configuration["delta.enableDeletionVectors"] != "" || s.Metadata.Configuration["x"] != "y" {
			t.Errorf("%+v %v", s.Protocol, s.Metadata.Configuration)
		}
		if _, err := m.Head(ctx, CheckpointKey(4)); err != nil {
			t.Errorf("no checkpoint of the drop: %v", err)
		}
		if info := mustRead(t, l, 4).Info; info.Operation != "DROP FEATURE" || string(info.OperationParameters["featureName"]) != `"deletionVectors"` {
			t.Errorf("%+v", info)
		}
		append1(t, l, s, "c")
		// checkpointProtection itself goes only with the versions it protects.
		_, err = l.DropFeature(ctx, CheckpointProtection, DropFeatureOptions{})
		wantError(t, err, ErrInvalid, "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION")
	})
	t.Run("W-303 writer features: switched off and dropped in one commit", func(t *testing.T) {
		for _, c := range []struct {
			f     Feature
			props map[string]string
		}{
			{InCommitTimestamp, ictOn}, {RowTracking, rowsOn}, {ChangeDataFeed, map[string]string{"delta.enableChangeDataFeed": "true"}},
			{AppendOnly, map[string]string{"delta.appendOnly": "true"}}, {CheckConstraints, nil}, {IdentityColumns, nil}, {DomainMetadataF, nil},
		} {
			l, _ := testLog(t)
			l = Open(storage.NewMemory(string(c.f)), l.opts)
			s := newTable(t, l, nil, c.props, c.f)
			append1(t, l, s, "a")
			got, err := l.DropFeature(ctx, c.f, DropFeatureOptions{TruncateHistory: true})
			if err != nil || got.Version != 2 || got.Protected {
				t.Fatalf("%s: %+v %v", c.f, got, err)
			}
			s = mustLatest(t, l)
			if s.Supports(c.f) || len(s.Domains()) != 0 {
				t.Errorf("%s: %+v %v", c.f, s.Protocol, s.Domains())
			}
			for k := range c.props {
				if _, ok := s.Metadata.Configuration[k]; ok {
					t.Errorf("%s: %s stays", c.f, k)
				}
			}
			append1(t, l, s, "b")
		}
	})
	t.Run("W-303 in use, or not removable", func(t *testing.T) {
		l, _ := testLog(t)
		newTable(t, l, nil, map[string]string{"delta.constraints.c": "id > 0"}, CheckConstraints)
		_, err := l.DropFeature(ctx, CheckConstraints, DropFeatureOptions{})
		wantError(t, err, ErrInvalid, "DELTA_FEATURE_DROP_TRACES")
		_, err = l.DropFeature(ctx, DeletionVectors, DropFeatureOptions{})
		wantError(t, err, ErrInvalid, "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT")
	})
	t.Run("W-303 with history truncation: wait for the retention, then free of traces", func(t *testing.T) {
		clock := &fixedClock{at: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
		m := storage.NewMemoryWith("m", storage.MemoryOptions{Clock: clock.Now})
		l := Open(m, Options{Clock: clock.Now, Sleep: noSleep})
		s := newTable(t, l, nil, map[string]string{"delta.enableDeletionVectors": "true"}, DeletionVectors)
		append1(t, l, s, "a")
		truncate := DropFeatureOptions{TruncateHistory: true}
		_, err := l.DropFeature(ctx, DeletionVectors, truncate)
		wantError(t, err, ErrInvalid, "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD")
		_, err = l.DropFeature(ctx, DeletionVectors, truncate)
		wantError(t, err, ErrInvalid, "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST")
		clock.at = clock.at.Add(25 * time.Hour)
		append1(t, l, mustLatest(t, l), "b")
		// The checkpoint of version 2, made by the last try, is the newest that expired.
		got, err := l.DropFeature(ctx, DeletionVectors, truncate)
		if err != nil || got.Protected {
			t.Fatalf("%+v %v", got, err)
		}
		s = mustLatest(t, l)
		if s.Protocol.MinReaderVersion != 1 || s.Supports(CheckpointProtection) || len(paths(t, s)) != 2 {
			t.Errorf("%+v %q", s.Protocol, paths(t, s))
		}
		if _, err := m.Head(ctx, CommitKey(1)); err == nil {
			t.Error("the history was not truncated")
		}
	})
	t.Run("W-308 checkpointProtection goes with its history", func(t *testing.T) {
		clock := &fixedClock{at: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
		m := storage.NewMemoryWith("m", storage.MemoryOptions{Clock: clock.Now})
		l := Open(m, Options{Clock: clock.Now, Sleep: noSleep})
		newTable(t, l, nil, nil, VacuumProtocolCheck)
		if _, err := l.DropFeature(ctx, VacuumProtocolCheck, DropFeatureOptions{}); err != nil {
			t.Fatal(err)
		}
		clock.at = clock.at.Add(25 * time.Hour)
		append1(t, l, mustLatest(t, l), "a")
		if _, err := l.DropFeature(ctx, CheckpointProtection, DropFeatureOptions{TruncateHistory: true}); err != nil {
			t.Fatal(err)
		}
		s := mustLatest(t, l)
		if s.Protocol.MinWriterVersion != 2 || s.Props.RequireCheckpointBefore != 0 || len(s.Metadata.Configuration) != 0 {
			t.Errorf("%+v %v", s.Protocol, s.Metadata.Configuration)
		}
	})
	t.Run("W-303 C-13 a racing writer loses or the drop goes on above it", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, map[string]string{"delta.enableDeletionVectors": "true"}, DeletionVectors)
		tx := l.Begin(s)
		tx.Add(file("late"))
		if _, err := l.DropFeature(ctx, DeletionVectors, DropFeatureOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
		wantError(t, err, ErrConflict, "DELTA_PROTOCOL_CHANGED")
	})
	t.Run("W-303 no other commit takes features away", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, nil, DeletionVectors)
		tx := l.Begin(s)
		tx.SetProtocol(&Protocol{MinReaderVersion: 1, MinWriterVersion: 2})
		_, err := tx.Commit(ctx, CommitOptions{Operation: "X"})
		wantError(t, err, ErrInvalid, "DELTA_INVALID_PROTOCOL_DOWNGRADE")
	})
	t.Run("W-303 traces are named", func(t *testing.T) {
		l, _ := testLog(t)
		s := newTable(t, l, nil, map[string]string{"delta.checkpointPolicy": "v2", "delta.enableChangeDataFeed": "false"}, V2Checkpoint, ChangeDataFeed, DomainMetadataF)
		tx := l.Begin(s)
		tx.SetDomain(&DomainMetadata{Domain: "mine"})
		mustCommit(t, tx, CommitOptions{})
		s = mustLatest(t, l)
		show := func(f Feature) string {
			a, b, err := s.FeatureTraces(ctx, f)
			return strings.TrimSpace(fmt.Sprint(a, b, err))
		}
		for f, want := range map[Feature]string{V2Checkpoint: "[delta.checkpointPolicy=v2] [] <nil>", ChangeDataFeed: "[] [] <nil>", DomainMetadataF: "[] [domain mine] <nil>"} {
			if got := show(f); got != want {
				t.Errorf("%s: %s", f, got)
			}
		}
	})
}
