package deltalog

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

// TestReplay runs testdata/replay. Commands, the first argument being the item of
// the checklist:
//
//	commit      actions, one a line: add F [dv=X], remove F [dv=X] [age=DAYS],
//	            txn APP N [age=DAYS], domain D V, undomain D, protocol F,
//	            property K=V, schema DDL
//	checkpoint  [at=N] writes a checkpoint
//	state       [at=N] prints what the snapshot says
//
// A table is made anew by `new`.
func TestReplay(t *testing.T) {
	datadriven.Walk(t, "testdata/replay", func(t *testing.T, path string) {
		var l *Log
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			name := d.Cmd
			if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
				name = d.CmdArgs[0].Key + " " + name
			}
			var out string
			t.Run(name, func(t *testing.T) { out = runReplay(t, &l, d) })
			return out
		})
	})
}

func runReplay(t *testing.T, l **Log, d *datadriven.TestData) string {
	ctx := context.Background()
	if d.Cmd == "new" {
		now := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		clock := func() time.Time { return now }
		*l = Open(storage.NewMemoryWith(t.Name(), storage.MemoryOptions{Clock: clock}), Options{Clock: clock, Sleep: noSleep})
		newTable(t, *l, nil, nil, DomainMetadataF, DeletionVectors)
		return ""
	}
	log := *l
	s := mustLatest(t, log)
	if d.HasArg("at") {
		var at int64
		d.ScanArgs(t, "at", &at)
		var err error
		if s, err = log.At(ctx, at); err != nil {
			return err.Error() + "\n"
		}
	}
	switch d.Cmd {
	case "commit":
		a, err := replayActions(log, s, d.Input)
		if err != nil {
			t.Fatal(err)
		}
		data, err := encodeCommit(&commitInfoWire{Operation: "TEST"}, a)
		if err != nil {
			t.Fatal(err)
		}
		put(t, log.Store(), CommitKey(s.Version+1), string(data))
		return ""
	case "checkpoint":
		if err := log.WriteCheckpoint(ctx, s); err != nil {
			return err.Error() + "\n"
		}
		return ""
	case "state":
		return describe(t, s)
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func replayActions(l *Log, s *Snapshot, input string) (*Actions, error) {
	a := &Actions{}
	for _, line := range strings.Split(input, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var dv *DeletionVectorDescriptor
		at := l.Now()
		for _, w := range words[1:] {
			if id, ok := strings.CutPrefix(w, "dv="); ok {
				dv = &DeletionVectorDescriptor{StorageType: "u", PathOrInlineDv: id, SizeInBytes: 1, Cardinality: 1}
				if name, off, ok := strings.Cut(id, "@"); ok {
					n, err := strconv.ParseInt(off, 10, 32)
					if err != nil {
						return nil, err
					}
					o := int32(n)
					dv.PathOrInlineDv, dv.Offset = name, &o
				}
			}
			if days, ok := strings.CutPrefix(w, "age="); ok {
				n, err := strconv.Atoi(days)
				if err != nil {
					return nil, err
				}
				at = at.AddDate(0, 0, -n)
			}
		}
		switch words[0] {
		case "add":
			f := file(words[1])
			f.DeletionVector = dv
			f.Stats = strings.TrimPrefix(strings.Join(words[2:], " "), "stats=")
			if dv != nil {
				f.Stats = ""
			}
			a.Adds = append(a.Adds, f)
		case "remove":
			f := file(words[1])
			f.DeletionVector = dv
			a.Removes = append(a.Removes, f.Remove(at, true))
		case "bare-remove":
			a.Removes = append(a.Removes, &Remove{Path: words[1], DataChange: true})
		case "txn":
			n, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil {
				return nil, err
			}
			ms := at.UnixMilli()
			a.Txns = append(a.Txns, &Txn{AppID: words[1], Version: n, LastUpdated: &ms})
		case "domain":
			a.Domains = append(a.Domains, &DomainMetadata{Domain: words[1], Configuration: words[2]})
		case "undomain":
			a.Domains = append(a.Domains, &DomainMetadata{Domain: words[1], Removed: true})
		case "protocol":
			p, err := s.Protocol.With(Feature(words[1]))
			if err != nil {
				return nil, err
			}
			a.Protocol = p
		case "property":
			m := *s.Metadata
			k, v, _ := strings.Cut(words[1], "=")
			m.Configuration = map[string]string{k: strings.ReplaceAll(v, "_", " ")}
			a.Metadata = &m
		default:
			return nil, fmt.Errorf("unknown action %q", line)
		}
	}
	return a, nil
}

func describe(t *testing.T, s *Snapshot) string {
	ctx := context.Background()
	var b bytes.Buffer
	fmt.Fprintf(&b, "version %d from checkpoint %d, protocol (%d,%d)\n", s.Version, s.CheckpointVersion(), s.Protocol.MinReaderVersion, s.Protocol.MinWriterVersion)
	files, err := s.FileList(ctx)
	if err != nil {
		return err.Error() + "\n"
	}
	for _, f := range files {
		fmt.Fprintf(&b, "live %s", f.Path)
		if f.DeletionVector != nil {
			fmt.Fprintf(&b, " dv=%s", f.DeletionVector.ID())
		}
		if f.Stats != "" {
			fmt.Fprintf(&b, " stats=%s", f.Stats)
		}
		b.WriteByte('\n')
	}
	dead, err := s.Tombstones(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range dead {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("tombstone %s %s", r.Path, r.DeletionVector.ID())))
	}
	sort.Strings(lines)
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	for _, x := range s.Txns() {
		fmt.Fprintf(&b, "txn %s %d\n", x.AppID, x.Version)
	}
	for _, x := range s.Domains() {
		fmt.Fprintf(&b, "domain %s %s\n", x.Domain, x.Configuration)
	}
	for _, k := range sortedKeys(s.Metadata.Configuration) {
		fmt.Fprintf(&b, "property %s=%s\n", k, s.Metadata.Configuration[k])
	}
	return b.String()
}

// TestReplay_Random checks, on random histories with random checkpoints, that the
// replay from newest to oldest equals the forward fold, from every checkpoint, and
// that incremental updates equal both.
func TestReplay_Random(t *testing.T) {
	t.Run("R-225 R-223 R-221", testenv.MakeCheck(func(t *rapid.T) {
		ctx := context.Background()
		m := storage.NewMemory("random")
		clock := newTestClock()
		l := Open(m, Options{Clock: clock.Now, Sleep: noSleep})
		p, err := NewProtocol(DomainMetadataF, DeletionVectors)
		if err != nil {
			t.Fatal(err)
		}
		model := newModel()
		var walked *Snapshot
		versions := rapid.IntRange(2, 14).Draw(t, "versions")
		for v := range int64(versions) {
			a := model.draw(t, clock)
			if v == 0 {
				a.Protocol, a.Metadata = p, &Metadata{ID: "0", Format: Format{Provider: "parquet"}, SchemaString: longSchema}
			} else if rapid.IntRange(0, 9).Draw(t, "metadata") == 0 {
				a.Metadata = &Metadata{ID: fmt.Sprint(v), Format: Format{Provider: "parquet"}, SchemaString: longSchema}
			}
			if a.Metadata != nil {
				model.metadata = a.Metadata.ID
			}
			data, err := encodeCommit(&commitInfoWire{}, a)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
			if rapid.Bool().Draw(t, "shuffle") {
				lines = rapid.Permutation(lines).Draw(t, "lines")
				for i, l := range lines {
					lines[i] = strings.TrimSuffix(l, "\n") + "\n"
				}
			}
			if err := m.Create(ctx, CommitKey(v), []byte(strings.Join(lines, ""))); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 2).Draw(t, "checkpoint") == 0 {
				s, err := l.Latest(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.WriteCheckpoint(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			fresh, err := l.Latest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			model.compare(t, fresh, "from the log")
			if walked == nil {
				walked = fresh
			} else if rapid.Bool().Draw(t, "update") {
				if walked, err = l.Update(ctx, walked); err != nil {
					t.Fatal(err)
				}
				if rapid.Bool().Draw(t, "look") {
					model.compare(t, walked, "by update")
				}
			}
		}
	}))
}

// model is a naive table: what is live, by key.
type model struct {
	live, dead map[string]bool // path and dv
	dvOf       map[string]string
	txns       map[string]int64
	domains    map[string]string
	metadata   string
	n          int
}

func newModel() *model {
	return &model{live: map[string]bool{}, dead: map[string]bool{}, dvOf: map[string]string{}, txns: map[string]int64{}, domains: map[string]string{}}
}

func modelDV(id string) *DeletionVectorDescriptor {
	if id == "" {
		return nil
	}
	return &DeletionVectorDescriptor{StorageType: "u", PathOrInlineDv: id, SizeInBytes: 1, Cardinality: 1}
}

// draw makes the actions of one legal commit and applies them to the model.
func (m *model) draw(t *rapid.T, clock *testClock) *Actions {
	a := &Actions{}
	touched := map[string]bool{}
	for range rapid.IntRange(0, 5).Draw(t, "actions") {
		var live []string
		for k := range m.dvOf {
			if !touched[k] {
				live = append(live, k)
			}
		}
		slices.Sort(live)
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		if len(live) == 0 && kind > 1 {
			kind = 0
		}
		add := func(path, dv string) {
			f := file(path)
			f.DeletionVector = modelDV(dv)
			a.Adds = append(a.Adds, f)
			m.live[path+" "+dv], m.dvOf[path] = true, dv
			delete(m.dead, path+" "+dv)
			touched[path] = true
		}
		drop := func(path string) {
			dv := m.dvOf[path]
			f := file(path)
			f.DeletionVector = modelDV(dv)
			a.Removes = append(a.Removes, f.Remove(clock.Now(), true))
			delete(m.live, path+" "+dv)
			delete(m.dvOf, path)
			m.dead[path+" "+dv] = true
			touched[path] = true
		}
		switch kind {
		case 0, 1: // a new file, or one that was removed before
			path := fmt.Sprintf("f%d", rapid.IntRange(0, 12).Draw(t, "file"))
			if _, is := m.dvOf[path]; is || touched[path] {
				continue
			}
			add(path, "")
		case 2:
			drop(rapid.SampledFrom(live).Draw(t, "remove"))
		case 3: // another deletion vector, perhaps one it had before, or none
			path := rapid.SampledFrom(live).Draw(t, "vector of")
			dv := rapid.SampledFrom([]string{"", "A", "B", "C"}).Draw(t, "vector")
			if dv == m.dvOf[path] {
				continue
			}
			drop(path)
			add(path, dv)
		case 4: // refresh
			path := rapid.SampledFrom(live).Draw(t, "refresh")
			add(path, m.dvOf[path])
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "txn") == 0 {
		app := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app")
		m.txns[app]++
		a.Txns = []*Txn{{AppID: app, Version: m.txns[app]}}
	}
	if rapid.IntRange(0, 3).Draw(t, "domain") == 0 {
		name := rapid.SampledFrom([]string{"d", "e"}).Draw(t, "name")
		m.n++
		d := &DomainMetadata{Domain: name, Configuration: fmt.Sprint(m.n), Removed: rapid.Bool().Draw(t, "removed")}
		m.domains[name] = d.Configuration
		if d.Removed {
			delete(m.domains, name)
		}
		a.Domains = []*DomainMetadata{d}
	}
	return a
}

func (m *model) compare(t *rapid.T, s *Snapshot, how string) {
	ctx := context.Background()
	files, err := s.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := s.Tombstones(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id := func(dv *DeletionVectorDescriptor) string { return strings.TrimPrefix(dv.ID(), "u") }
	var got, want []string
	for _, f := range files {
		got = append(got, "live "+f.Path+" "+id(f.DeletionVector))
	}
	for _, r := range dead {
		got = append(got, "dead "+r.Path+" "+id(r.DeletionVector))
	}
	for _, x := range s.Txns() {
		got = append(got, fmt.Sprintf("txn %s %d", x.AppID, x.Version))
	}
	for _, x := range s.Domains() {
		got = append(got, "domain "+x.Domain+" "+x.Configuration)
	}
	got = append(got, "metadata "+s.Metadata.ID)
	for k := range m.live {
		want = append(want, "live "+k)
	}
	for k := range m.dead {
		want = append(want, "dead "+k)
	}
	for k, v := range m.txns {
		want = append(want, fmt.Sprintf("txn %s %d", k, v))
	}
	for k, v := range m.domains {
		want = append(want, "domain "+k+" "+v)
	}
	want = append(want, "metadata "+m.metadata)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("version %d %s:\ngot  %q\nwant %q", s.Version, how, got, want)
	}
}
