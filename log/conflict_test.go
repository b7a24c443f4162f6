package deltalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

// TestConflict runs testdata/conflict: for each case a table with files a (p=1),
// b (p=2) and c (p=3), a transaction on it ("ours") and the commits that win races
// against it ("winner", one line each). The output is what became of ours.
//
// Words of a line: read-all, read p=V, read-file F, read-txn APP, add F [p=V],
// remove F, dv F (a new deletion vector), move (dataChange=false from here on),
// cdc F, txn APP N, domain D, metadata K=V, protocol FEATURE, nothing. The first argument is the item of the checklist; the
// others: level, op, plain (no partitions),
// norebase, notblind.
func TestConflict(t *testing.T) {
	datadriven.Walk(t, "testdata/conflict", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				t.Fatalf("unknown command %s", d.Cmd)
			}
			var out string
			t.Run(d.CmdArgs[0].Key, func(t *testing.T) { out = runConflict(t, d) })
			return out
		})
	})
}

func runConflict(t *testing.T, d *datadriven.TestData) string {
	ctx := context.Background()
	l, _ := testLog(t)
	parts := []string{"p"}
	if d.HasArg("plain") {
		parts = nil
	}
	s := newTable(t, l, parts, map[string]string{"delta.enableChangeDataFeed": "true"}, ChangeDataFeed, DeletionVectors, DomainMetadataF)
	base := map[string]*Add{}
	tx := l.Begin(s)
	for i, name := range []string{"a", "b", "c"} {
		f := file(name)
		if parts != nil {
			f = file(name, strconv.Itoa(i+1))
		}
		base[name] = f
		tx.Add(f)
	}
	mustCommit(t, tx, CommitOptions{Operation: "WRITE"})
	s = mustLatest(t, l)

	opts := CommitOptions{Operation: "WRITE", NoRebase: d.HasArg("norebase"), NotBlind: d.HasArg("notblind")}
	if d.HasArg("op") {
		d.ScanArgs(t, "op", &opts.Operation)
	}
	if d.HasArg("level") {
		var level string
		d.ScanArgs(t, "level", &level)
		opts.Isolation = IsolationLevel(level)
	}
	ours := l.Begin(s)
	for _, line := range strings.Split(d.Input, "\n") {
		who, words, _ := strings.Cut(line, " ")
		switch who {
		case "ours":
			applyWords(t, ours, s, base, words)
		case "winner":
			latest := mustLatest(t, l)
			w := l.Begin(latest)
			op := applyWords(t, w, latest, base, words)
			if !strings.Contains(words, "nothing") {
				mustCommit(t, w, CommitOptions{Operation: op})
				continue
			}
			data, err := encodeCommit(&commitInfoWire{Operation: "NOTHING", IsBlindAppend: true}, &Actions{})
			if err != nil {
				t.Fatal(err)
			}
			put(t, l.Store(), CommitKey(latest.Version+1), string(data))
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	r, err := ours.Commit(ctx, opts)
	var ce *ConflictError
	switch {
	case err == nil:
		c, err := l.ReadCommit(ctx, r.Version)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("committed %d level=%s blind=%t\n", r.Version, c.Info.IsolationLevel, *c.Info.IsBlindAppend)
	case errors.As(err, &ce):
		if !errors.Is(err, ErrConflict) || ce.Code() == "" {
			t.Errorf("C-41 %v is no ErrConflict", err)
		}
		return err.Error() + "\n"
	default:
		return fmt.Sprintf("error: %v\n", err)
	}
}

// applyWords stages what the words say and returns the operation name to commit with.
func applyWords(t *testing.T, tx *Transaction, s *Snapshot, base map[string]*Add, line string) (op string) {
	t.Helper()
	op = "WRITE"
	words := strings.Fields(line)
	change := true
	next := func() string {
		if len(words) == 0 {
			t.Fatalf("%q: a word is missing", line)
		}
		w := words[0]
		words = words[1:]
		return w
	}
	value := func() (string, bool) {
		if len(words) > 0 && strings.HasPrefix(words[0], "p=") {
			return strings.TrimPrefix(next(), "p="), true
		}
		return "", false
	}
	for len(words) > 0 {
		switch w := next(); w {
		case "read-all":
			tx.ReadWholeTable()
		case "read":
			want, _ := value()
			tx.ReadPartitions(func(v map[string]*string) bool { return v["p"] != nil && *v["p"] == want })
		case "read-file":
			tx.ReadFiles(base[next()])
		case "read-txn":
			tx.ReadTxn(next())
		case "move":
			change, op = false, "OPTIMIZE"
		case "add":
			f := file(next())
			if v, ok := value(); ok {
				f.PartitionValues["p"] = &v
			}
			f.DataChange = change
			tx.Add(f)
		case "remove":
			op = map[bool]string{true: "DELETE", false: "OPTIMIZE"}[change]
			tx.Remove(base[next()].Remove(tx.log.Now(), change))
		case "dv":
			op = "DELETE"
			old := base[next()]
			f := *old
			f.DeletionVector = &DeletionVectorDescriptor{StorageType: "u", PathOrInlineDv: tx.log.NewID(), SizeInBytes: 1, Cardinality: 1}
			tx.Remove(old.Remove(tx.log.Now(), true))
			tx.Add(&f)
		case "cdc":
			c := &CDC{Path: "_change_data/" + next(), PartitionValues: map[string]*string{}, Size: 1}
			if v, ok := value(); ok {
				c.PartitionValues["p"] = &v
			}
			tx.AddCDC(c)
		case "txn":
			app := next()
			n, err := strconv.ParseInt(next(), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			tx.SetTxn(app, n)
		case "domain":
			tx.SetDomain(&DomainMetadata{Domain: next(), Configuration: "{}"})
		case "metadata":
			m := *s.Metadata
			m.Configuration = maps.Clone(m.Configuration)
			k, v, _ := strings.Cut(next(), "=")
			m.Configuration[k] = v
			op = "SET TBLPROPERTIES"
			tx.SetMetadata(&m)
		case "protocol":
			p, err := s.Protocol.With(Feature(next()))
			if err != nil {
				t.Fatal(err)
			}
			op = "UPGRADE PROTOCOL"
			tx.SetProtocol(p)
		case "nothing":
		default:
			t.Fatalf("unknown word %q", w)
		}
	}
	return op
}

// A winner that we could not have written ourselves is put there as bytes.
func TestConflict_ForeignProtocol(t *testing.T) {
	for _, c := range []struct {
		name, winner string
		kind         ConflictKind
		class        error
	}{
		{"C-11 a protocol that we cannot write", `{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","invariants","zzz"]}}`, "", ErrUnsupported},
		{"C-11 a protocol that we cannot read", `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["zzz"],"writerFeatures":["appendOnly","invariants","zzz"]}}`, "", ErrUnsupported},
		{"C-13 a feature is dropped", `{"protocol":{"minReaderVersion":1,"minWriterVersion":1}}`, ProtocolChanged, ErrConflict},
		{"C-14 a feature that fails at upgrade", `{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","invariants","checkConstraints"]}}`, ProtocolChanged, ErrConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, m := testLog(t)
			s := newTable(t, l, nil, nil)
			put(t, m, CommitKey(1), c.winner+"\n")
			tx := l.Begin(s)
			tx.Add(file("x"))
			_, err := tx.Commit(context.Background(), CommitOptions{Operation: "WRITE"})
			wantError(t, err, c.class, "")
			var ce *ConflictError
			if c.kind != "" && (!errors.As(err, &ce) || ce.Kind != c.kind || ce.Rule != c.name[:4]) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestConflict_TwoCreators(t *testing.T) {
	l, _ := testLog(t)
	newTable(t, l, nil, nil)
	tx := l.Begin(nil)
	p, err := NewProtocol()
	if err != nil {
		t.Fatal(err)
	}
	tx.SetProtocol(p)
	tx.SetMetadata(meta(nil, ""))
	_, err = tx.Commit(context.Background(), CommitOptions{Operation: "CREATE TABLE"})
	var ce *ConflictError
	if !errors.As(err, &ce) || ce.Kind != ProtocolChanged || ce.Rule != "C-12" {
		t.Errorf("C-12 got %v", err)
	}
}

// TestConflict_Serializable: random transactions begun at random versions and
// committed one after the other. What a committed transaction read must be what it
// would have read at its place in the order of commits: under Serializable all of
// it, under WriteSerializable but for files that blind appends brought in between
// (C-43, 3.3).
func TestConflict_Serializable(t *testing.T) {
	for _, level := range []IsolationLevel{Serializable, WriteSerializable} {
		t.Run("C-43 C-23 C-24 C-25 C-26 "+string(level), testenv.MakeCheck(func(rt *rapid.T) {
			ctx := context.Background()
			clock := newTestClock()
			l := Open(storage.NewMemory("m"), Options{Clock: clock.Now, Sleep: noSleep})
			newTable(t, l, []string{"p"}, nil)
			for i := range rapid.IntRange(3, 10).Draw(rt, "transactions") {
				newest := mustLatest(t, l)
				from, err := l.At(ctx, max(0, newest.Version-rapid.Int64Range(0, 3).Draw(rt, "behind")))
				if err != nil {
					t.Fatal(err)
				}
				tx := l.Begin(from)
				whole := rapid.IntRange(0, 4).Draw(rt, "whole") == 0
				read := map[string]bool{}
				if whole {
					tx.ReadWholeTable()
				} else {
					for _, p := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "2", "3"}), 0, 2, rapid.ID[string]).Draw(rt, "partitions") {
						read[p] = true
						tx.ReadPartitions(func(v map[string]*string) bool { return v["p"] != nil && *v["p"] == p })
					}
				}
				sees := func(s *Snapshot) (files []*Add) {
					all, err := s.FileList(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range all {
						if whole || read[*f.PartitionValues["p"]] {
							files = append(files, f)
						}
					}
					return files
				}
				// A transaction removes only what it read, and reads what it removes.
				for _, f := range sees(from) {
					tx.ReadFiles(f)
					if rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
						tx.Remove(f.Remove(l.Now(), true))
					}
				}
				if len(tx.Actions().Removes) == 0 || rapid.Bool().Draw(rt, "add") {
					tx.Add(file(fmt.Sprintf("f%d", i), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "into")))
				}
				r, err := tx.Commit(ctx, CommitOptions{Operation: "WRITE", Isolation: level})
				if errors.Is(err, ErrConflict) {
					if from.Version == newest.Version {
						rt.Fatalf("a conflict without a winner: %v", err)
					}
					continue
				}
				if err != nil {
					rt.Fatal(err)
				}
				before, err := l.At(ctx, r.Version-1)
				if err != nil {
					t.Fatal(err)
				}
				ignore := map[string]bool{}
				if level == WriteSerializable {
					for v := from.Version + 1; v < r.Version; v++ {
						c, err := l.ReadCommit(ctx, v)
						if err != nil {
							t.Fatal(err)
						}
						for _, a := range c.Adds {
							ignore[a.Path] = *c.Info.IsBlindAppend
						}
					}
				}
				var had, has []string
				for _, f := range sees(from) {
					had = append(had, f.Path)
				}
				for _, f := range sees(before) {
					if !ignore[f.Path] {
						has = append(has, f.Path)
					}
				}
				if !slices.Equal(had, has) {
					rt.Fatalf("transaction %d at version %d read %q, in its place it would have read %q", i, r.Version, had, has)
				}
			}
		}))
	}
}
