package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Misuse is named before anything is read or written (auto-cdc 1.6, phases P and A).
func TestFlow_Refusals(t *testing.T) {
	for _, c := range []struct {
		name, code string
		config     string
		set        func(*Flow)
	}{
		{"unknown key", CodeColumnsNotFound, "", func(f *Flow) { f.Keys = []string{"nope"} }},
		{"key twice", CodeDuplicateColumn, "", func(f *Flow) { f.Keys = []string{"id", "ID"} }},
		{"key not selected", CodeKeyNotSelected, "", func(f *Flow) { f.ExceptColumnList = []string{"id"} }},
		{"unknown column", CodeColumnsNotFound, "", func(f *Flow) { f.ColumnList, f.ExceptColumnList = []string{"id", "nope"}, nil }},
		{"both lists", CodeCannotSetTogether, "", func(f *Flow) { f.ColumnList = []string{"id"} }},
		{"no sequence", CodeMissingSequence, "", func(f *Flow) { f.SequenceBy = "" }},
		{"sequence syntax", "PARSE_SYNTAX_ERROR", "", func(f *Flow) { f.SequenceBy = "seq +" }},
		{"sequence of an unknown column", CodeColumnsNotFound, "", func(f *Flow) { f.SequenceBy = "nope" }},
		{"aggregate", CodeExpressionNotAllowed, "", func(f *Flow) { f.SequenceBy = "max(seq)" }},
		{"random", CodeExpressionNotAllowed, "", func(f *Flow) { f.ApplyAsDeletes = "rand() > 0.5" }},
		{"condition not boolean", CodeConditionNotBoolean, "", func(f *Flow) { f.ApplyAsDeletes = "name" }},
		{"truncate condition not boolean", CodeConditionNotBoolean, "", func(f *Flow) { f.ApplyAsTruncates = "seq + 1" }},
		{"reserved prefix", CodeReservedPrefix, "data: __sluice_x STRING, city STRING", nil},
		{"bitemporal without system sequence", CodeBitemporalSystemSequence, "", func(f *Flow) { f.StoredAsSCDType = "bitemporal" }},
		{"system sequence without bitemporal", CodeBitemporalSystemSequence, "", func(f *Flow) { f.SystemSequenceBy = "seq" }},
		{"system sequence of no order", CodeSequenceNotOrderable, "", func(f *Flow) { f.StoredAsSCDType, f.SystemSequenceBy = "bitemporal", "NULL" }},
		{"truncate with SCD2", CodeTruncateRequiresSCD1, "", func(f *Flow) { f.StoredAsSCDType, f.ApplyAsTruncates = "2", "seq = 1" }},
		{"track history with SCD1", CodeTrackHistoryRequiresSCD2, "", func(f *Flow) { f.TrackHistoryColumnList = []string{"name"} }},
		{"both track history lists", CodeCannotSetTogether, "", func(f *Flow) {
			f.StoredAsSCDType, f.TrackHistoryColumnList, f.TrackHistoryExceptColumnList = "2", []string{"name"}, []string{"city"}
		}},
		{"unknown tracked column", CodeColumnsNotFound, "", func(f *Flow) { f.StoredAsSCDType, f.TrackHistoryColumnList = "2", []string{"nope"} }},
		{"tracked key", CodeColumnsNotFound, "", func(f *Flow) { f.StoredAsSCDType, f.TrackHistoryColumnList = "2", []string{"id"} }},
		{"tracked column twice", CodeDuplicateColumn, "", func(f *Flow) { f.StoredAsSCDType, f.TrackHistoryColumnList = "2", []string{"name", "NAME"} }},
		{"framework column in the source", CodeReservedColumn, "data: __START_AT STRING, city STRING", func(f *Flow) { f.StoredAsSCDType = "2" }},
		{"two ignore-null options", CodeConflictingIgnoreNull, "", func(f *Flow) { f.IgnoreNullUpdates, f.IgnoreNullUpdatesColumnList = true, []string{"name"} }},
		{"empty ignore-null list", CodeIgnoreNullEmptyList, "", func(f *Flow) { f.IgnoreNullUpdatesColumnList = []string{} }},
		{"unknown ignore-null column", CodeColumnsNotFound, "", func(f *Flow) { f.IgnoreNullUpdatesColumnList = []string{"nope"} }},
		{"ignore-null of a key", CodeColumnsNotFound, "", func(f *Flow) { f.IgnoreNullUpdatesExceptColumnList = []string{"id"} }},
		{"columns to update with ignore-null", CodeInvalidColumnsToUpdate, "", func(f *Flow) { f.ColumnsToUpdate, f.IgnoreNullUpdates = "name", true }},
		{"columns to update with bitemporal", CodeInvalidColumnsToUpdate, "", func(f *Flow) {
			f.ColumnsToUpdate, f.StoredAsSCDType, f.SystemSequenceBy = "name", "bitemporal", "seq"
		}},
		{"columns to update of another type", CodeInvalidColumnsToUpdate, "", func(f *Flow) { f.ColumnsToUpdate = "name" }},
		{"unknown columns to update", CodeColumnsNotFound, "", func(f *Flow) { f.ColumnsToUpdate = "nope" }},
		{"SCD type 3", "PARSE_SYNTAX_ERROR", "", func(f *Flow) { f.StoredAsSCDType = "3" }},
		{"unknown partition column", CodeInvalidLayout, "", func(f *Flow) { f.PartitionBy = []string{"nope"} }},
		{"unknown property", "DELTA_UNKNOWN_CONFIGURATION", "", func(f *Flow) { f.Properties = map[string]string{"delta.nonsense": "1"} }},
		{"reserved property", CodeInvalidTarget, "", func(f *Flow) { f.Properties = map[string]string{"sluice.carry": "x"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.config)
			if c.set != nil {
				c.set(&b.flow)
			}
			_, err := b.run("U 1@1 (Ann, Rome)")
			wantCode(t, err, c.code)
			for o := range b.store.List(context.Background(), "", "") {
				t.Errorf("%s was written", o.Key)
			}
		})
	}
}

// E35: what is stored is compared at start; the run fails before it changes anything.
func TestFlow_Drift(t *testing.T) {
	for _, c := range []struct{ name, code, config, event string }{
		{"E35 sequence type", CodeSequencingTypeDrift, "seq: INT", "U 1@2 (Ann, Oslo)"},
		{"E35 key set", CodeKeySchemaDrift, "keys: id BIGINT, region STRING", "U {1,eu}@2 (Ann, Oslo)"},
		{"E35 key type", CodeKeySchemaDrift, "keys: id STRING", "U 1@2 (Ann, Oslo)"},
		{"E35 data type", CodeIncompatibleType, "data: name STRING, city BIGINT", "U 1@2 (Ann, 7)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := newBench(t, "data: name STRING, city STRING")
			if c.code == CodeIncompatibleType { // a BIGINT column that becomes text
				first = newBench(t, "data: name STRING, city BIGINT")
				first.must(t, "U 1@1 (Ann, 7)")
				c.config, c.event = "data: name STRING, city STRING", "U 1@2 (Ann, Oslo)"
			} else {
				first.must(t, "U 1@1 (Ann, Rome)")
			}
			version := first.must(t).Version
			b := newBench(t, c.config)
			b.store, b.source.name = first.store, "file:other"
			res, err := b.run(c.event)
			wantCode(t, err, c.code)
			if res.Version != version {
				t.Errorf("version %d, want %d", res.Version, version)
			}
		})
	}
	t.Run("E35 the same keys in another order are the same", func(t *testing.T) {
		a := newBench(t, "keys: region STRING, id BIGINT")
		a.must(t, "U {eu,1}@1 (Ann, Rome)")
		a.flow.Keys = []string{"id", "region"}
		a.must(t, "U {eu,1}@2 (Ann, Oslo)")
		a.wantTable(t, "eu, 1, Ann, Oslo")
	})
}

// What can be known without an event is refused without one, also when all input
// has been consumed before.
func TestFlow_RefusedWithoutEvents(t *testing.T) {
	for _, c := range []struct {
		name, code string
		set        func(*Flow)
	}{
		{"sequence syntax", "PARSE_SYNTAX_ERROR", func(f *Flow) { f.SequenceBy = "seq +" }},
		{"condition syntax", "PARSE_SYNTAX_ERROR", func(f *Flow) { f.ApplyAsDeletes = "op = " }},
		{"E35 other keys", CodeKeySchemaDrift, func(f *Flow) { f.Keys = []string{"id", "name"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "")
			b.must(t, "U 1@1 (Ann, Rome)")
			c.set(&b.flow)
			_, err := b.run()
			wantCode(t, err, c.code)
			b.wantTable(t, "1, Ann, Rome")
		})
	}
}

// A property of an existing table changes by an explicit flag alone, in its
// canonical form and with the feature that it needs (W-305).
func TestRun_PropertyOfAnExistingTable(t *testing.T) {
	b := newBench(t, "")
	b.must(t, "U 1@1 (Ann, Rome)")
	b.flow.Properties = map[string]string{"delta.columnmapping.mode": "name", "DELTA.logRetentionDuration": "3 days"}
	b.must(t, "U 1@2 (Ann, Oslo)")
	b.wantTable(t, "1, Ann, Oslo")
	snap, err := b.open(t).Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c := snap.Metadata.Configuration
	if snap.Mode() != schema.ModeName || c["delta.logRetentionDuration"] != "interval 3 days" || c["DELTA.logRetentionDuration"] != "" {
		t.Errorf("mode %s, properties %v", snap.Mode(), c)
	}
}

func TestPoisonError_Codes(t *testing.T) {
	for code, want := range map[string]string{"KEY_NULL": CodeNullKey, "KEY_ABSENT": CodeNullKey, "KEY_UNAVAILABLE": CodePoison, "UNKNOWN_OP": CodePoison} {
		if got := poisonError(event.Poison{Class: event.PoisonKey, Code: code}); got.Code != want {
			t.Errorf("%s: got %s, want %s", code, got.Code, want)
		}
	}
}

// Poison fails the batch or goes to the quarantine, once.
func TestRun_Poison(t *testing.T) {
	quarantined := func(t *testing.T, b *bench) []string {
		t.Helper()
		ctx := context.Background()
		store := storage.Sub(b.store, "_apply/quarantine")
		tab, err := delta.Open(ctx, store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		snap, err := tab.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tab.Layout(snap)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for f, err := range snap.Files(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			for batch, err := range datafile.Read(ctx, store, l, f, datafile.ReadOptions{Columns: []string{"position", "code", "reason"}}) {
				if err != nil {
					t.Fatal(err)
				}
				for r := range int(batch.NumRows()) {
					out = append(out, cellText(batch.Column(0), r)+" "+cellText(batch.Column(1), r)+" "+cellText(batch.Column(2), r))
				}
			}
		}
		slices.Sort(out)
		return out
	}
	t.Run("fail", func(t *testing.T) {
		b := newBench(t, "")
		b.must(t, "U 1@1 (Ann, Rome)")
		_, err := b.run("U 1@2 (Ann, Oslo)", "!broken")
		wantCode(t, err, CodePoison)
		b.wantTable(t, "1, Ann, Rome")
	})
	t.Run("quarantine", func(t *testing.T) {
		b := newBench(t, "")
		b.flow.OnPoison = PoisonQuarantine
		res := b.must(t, "U 1@1 (Ann, Rome)", "!broken", "U 2@2 (Bob, Oslo)")
		b.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo")
		if res.Events.Poison != 1 || res.Events.Read != 3 {
			t.Errorf("events %+v", res.Events)
		}
		b.must(t, "U 1@3 (Ann, Bonn)", "!again")
		if got, want := quarantined(t, b), []string{"2 INVALID_TEXT broken", "5 INVALID_TEXT again"}; !slices.Equal(got, want) {
			t.Errorf("quarantine %q, want %q", got, want)
		}
		res = b.must(t)
		if res.Events.Read != 0 {
			t.Errorf("read again: %+v", res.Events)
		}
	})
	// Rows that only the engine can tell (conditions and expressions decide) go the same
	// way; the null key of a truncate is none (auto-cdc 2.8, cdc-formats 0.4).
	for _, stored := range []string{"1", "2", "bitemporal"} {
		t.Run("E57 set aside, stored as "+stored, func(t *testing.T) {
			for _, rows := range []int{0, 1, 2} {
				b := newBench(t, "stored-as: "+stored)
				b.flow.OnPoison, b.flow.BatchRows = PoisonQuarantine, rows
				lines := []string{"U 1@1 (Ann, Rome)", "U null@2 (Bob, Oslo)", "!broken", "D 2@null", "U 3@3 (Cy, Lima)", "D null@4"}
				if stored == "1" {
					lines = append(lines, "T@2")
				}
				want := []string{"2 " + CodeNullKey + ` key column "id" is null`, "3 INVALID_TEXT broken", "4 " + CodeNullSequence + " the sequence is null",
					"6 " + CodeNullKey + ` key column "id" is null`}
				if stored == "bitemporal" {
					for i, l := range lines {
						if at, rest, ok := strings.Cut(l, " ("); ok {
							lines[i] = at + " sys 1 (" + rest
						} else if !strings.HasPrefix(l, "!") {
							lines[i] = l + " sys 1"
						}
					}
					lines = append(lines, "U 4@1 sys null (Dee, Bern)")
					want = append(want, "7 "+CodeNullSequence+" system: the sequence is null")
				}
				res := b.must(t, lines...)
				if got := quarantined(t, b); !slices.Equal(got, want) {
					t.Errorf("%d rows a batch: quarantine %q, want %q", rows, got, want)
				}
				if n := int64(len(want)); res.Events.Poison != n || res.Events.PoisonDeletes != 2 || res.Events.Read != int64(len(lines)) {
					t.Errorf("%d rows a batch: events %+v", rows, res.Events)
				}
				var names []string
				for _, row := range b.table(t) {
					names = append(names, strings.Split(row, ", ")[1])
				}
				shown := []string{"Ann", "Cy"}
				if stored == "1" {
					shown = shown[1:] // the truncate
				}
				if !slices.Equal(names, shown) {
					t.Errorf("%d rows a batch: names %q, want %q", rows, names, shown)
				}
				if res = b.must(t); res.Events.Read != 0 {
					t.Errorf("%d rows a batch: read again: %+v", rows, res.Events)
				}
			}
		})
	}
}

// Columns whose names files cannot hold turn column mapping on, with a warning.
func TestRun_ColumnMapping(t *testing.T) {
	b := newBench(t, "data: `first name` STRING, city STRING")
	res := b.must(t, "U 1@1 (first name=Ann, city=Rome)")
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "first name") {
		t.Errorf("warnings %q", res.Warnings)
	}
	b.must(t, "U 1@2 (first name=Anna, city=Rome)", "U 2@1 (first name=Bob, city=Oslo)")
	b.wantTable(t, "1, Anna, Rome", "2, Bob, Oslo")
	b.check(t, "mapped", []string{"1, Anna, Rome", "2, Bob, Oslo"})

	later := newBench(t, "data: name STRING, `home town` STRING")
	later.must(t, "U 1@1 (name=Ann)")
	res = later.must(t, "U 1@2 (name=Ann, home town=Rome)", "U 2@1 (name=Bob)")
	if len(res.Warnings) != 1 {
		t.Errorf("warnings %q", res.Warnings)
	}
	later.must(t, "U 2@0 (name=Abe, home town=Oslo)")
	later.wantTable(t, "1, Ann, Rome", "2, Bob, Oslo")
	t.Run("W-506 W-407 the commit that maps and adds columns changes no row", func(t *testing.T) {
		mapped := 0
		tab := later.open(t)
		for c, err := range tab.Log().Commits(context.Background(), 0, res.Version) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Version > 0 && c.Metadata != nil {
				mapped++
				if n := len(c.Adds) + len(c.Removes) + len(c.CDC); n > 0 || c.Protocol == nil {
					t.Errorf("version %d: %d file actions, protocol %v", c.Version, n, c.Protocol)
				}
			}
		}
		if mapped != 1 {
			t.Errorf("%d commits changed the table's metadata, want 1", mapped)
		}
		later.check(t, "mapped later", []string{"1, Ann, Rome", "2, Bob, Oslo"})
	})
}

// A key change may be cut by a batch boundary, and an old value may come late.
func TestRun_KeyChange(t *testing.T) {
	want := []string{"2, Ann, Rome"}
	for _, c := range []struct {
		name    string
		batches [][]string
	}{
		{"one batch", [][]string{{"U 1@1 (Ann, Rome)", "D 1@3 new=2", "U 2@3 (Ann, ?) old=1"}}},
		{"row stored", [][]string{{"U 1@1 (Ann, Rome)"}, {"D 1@3 new=2", "U 2@3 (Ann, ?) old=1"}}},
		{"cut after the delete", [][]string{{"U 1@1 (Ann, Rome)"}, {"D 1@3 new=2"}, {"U 2@3 (Ann, ?) old=1"}}},
		{"create first", [][]string{{"U 1@1 (Ann, Rome)"}, {"U 2@3 (Ann, ?) old=1"}, {"D 1@3 new=2"}}},
		{"old value last", [][]string{{"D 1@3 new=2"}, {"U 2@3 (Ann, ?) old=1"}, {"U 1@1 (Ann, Rome)"}}},
		{"old row unknown at the create", [][]string{{"U 2@3 (Ann, ?) old=1"}, {"D 1@3 new=2"}, {"U 1@1 (Ann, Rome)"}}},
		{"freed key reused", [][]string{{"U 1@1 (Ann, Rome)"}, {"D 1@3 new=2", "U 1@4 (Zoe, Lima)", "D 1@5"}, {"U 2@3 (Ann, ?) old=1"}}},
		{"redelivered", [][]string{{"U 1@1 (Ann, Rome)", "D 1@3 new=2", "U 2@3 (Ann, ?) old=1"}, {"U 1@1 (Ann, Rome)", "D 1@3 new=2", "U 2@3 (Ann, ?) old=1"}}},
		{"chain in one batch", [][]string{{"U 8@1 (Ann, Rome)"}, {"D 8@2 new=9", "U 9@2 (Ann, ?) old=8", "D 9@3 new=2", "U 2@3 (Ann, ?) old=9"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "")
			for _, lines := range c.batches {
				b.must(t, lines...)
			}
			b.wantTable(t, want...)
			b.must(t, "U 2@2 (Late, Late)") // the taken-over value has the create's version
			b.wantTable(t, want...)
		})
	}
}

// The hidden group never shows.
func TestTarget_HiddenGroup(t *testing.T) {
	b := newBench(t, "")
	b.must(t, "U 1@5 (Ann, Rome)")
	s := mustSchema(t, b)
	if s.Index(hiddenGroup) >= 0 {
		t.Errorf("schema %s", s)
	}
	ctx := context.Background()
	snap, err := b.open(t).Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if tag := files[0].Tags[tagRows]; tag == nil || !strings.HasPrefix(*tag, "1;"+snap.Metadata.ID+";") {
		t.Errorf("tag %v", files[0].Tags)
	}
	if strings.Contains(files[0].Stats, hiddenGroup) {
		t.Errorf("statistics %s", files[0].Stats)
	}
	carry, err := schema.ParseJSON([]byte(snap.Metadata.Configuration[datafile.PropCarry]))
	if err != nil || carry.Index(hiddenGroup) != 0 {
		t.Errorf("carry %v, %v", carry, err)
	}
}

// ONCE runs to completion once.
func TestRun_Once(t *testing.T) {
	b := newBench(t, "")
	b.flow.Once = true
	b.must(t, "U 1@5 (Ann, Rome)")
	res := b.must(t, "U 1@6 (Ann, Oslo)")
	if res.Events.Read != 0 {
		t.Errorf("events %+v", res.Events)
	}
	b.wantTable(t, "1, Ann, Rome")
}

// A cancelled run says so and leaves a table that goes on.
func TestRun_Cancelled(t *testing.T) {
	b := newBench(t, "")
	b.must(t, "U 1@5 (Ann, Rome)")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.source.lines = append(b.source.lines, "U 1@6 (Ann, Oslo)")
	if _, err := Run(ctx, b.spec(), b.opts); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	b.must(t)
	b.wantTable(t, "1, Ann, Oslo")
}

// B61: a target with rules of its own holds them, or is refused before anything is
// written.
func TestRun_TableRules(t *testing.T) {
	t.Run("B61 W-422 a CHECK constraint", func(t *testing.T) {
		b := newBench(t, "")
		b.must(t, "U 1@1 (Ann, Rome)")
		if _, err := b.open(t).AddConstraint(context.Background(), "no_oslo", "city <> 'Oslo'", delta.ConstraintOptions{}); err != nil {
			t.Fatal(err)
		}
		before := b.open(t)
		snap, err := before.Snapshot(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"U 2@2 (Bob, Oslo)", "U 1@2 (Ann, Oslo)"} {
			var c *delta.ConstraintError
			if _, err = b.run(line); !errors.As(err, &c) || c.Code() != delta.CodeCheck {
				t.Fatalf("got %v", err)
			}
		}
		if now, err := b.open(t).Snapshot(context.Background()); err != nil || now.Version != snap.Version {
			t.Errorf("version %d %v, want %d", now.Version, err, snap.Version)
		}
	})
}
