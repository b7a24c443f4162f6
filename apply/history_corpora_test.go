package apply_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/storage"
)

// version is one row of a key's history: what it showed and how it ended, "open",
// "next" (the next version follows at once) or "gone".
type version struct {
	row map[string]string
	end string
}

// TestRun_History applies every recorded stream with an audit trail as SCD2, in
// several cuts, and in random order with redelivery: the versions of every key are those that the
// database's own triggers wrote down (field report B63).
func TestRun_History(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "debezium")
	files, _ := filepath.Glob(filepath.Join(base, "*", "expected", "*.history.jsonl*"))
	for _, p := range files {
		dir := filepath.Dir(filepath.Dir(p))
		name, table := filepath.Base(dir), strings.SplitN(filepath.Base(p), ".history", 2)[0]
		t.Run(name+" "+table, func(t *testing.T) {
			t.Parallel()
			c := corpora.Load(t, dir)
			if why := otherHistory(c, table); why != "" {
				t.Skip(why)
			}
			trail := corpora.ReadRows(t, p)
			spec := corpusSpec(t, c, dir, table)
			if slices.ContainsFunc(trail, func(m map[string]any) bool { return m["op"] == "t" }) {
				_, err := runHistory(t, spec, table, 0, nil)
				if err == nil || !strings.Contains(err.Error(), apply.CodeTruncateRequiresSCD1) {
					t.Fatalf("got %v, want a truncate to be refused", err)
				}
				return
			}
			if name == "pg-schema-change" && table == "item" { // INT became BIGINT, in its key too
				if _, err := runHistory(t, spec, table, 0, nil); err == nil || !strings.Contains(err.Error(), apply.CodeIncompatibleType) {
					t.Fatalf("got %v, want the changed type to be refused", err)
				}
				return
			}
			want := trailOf(c, table, trail)
			if strings.HasPrefix(name, "mysql-types") && table == "types" {
				want["11"] = nil // the trigger wrote a version that was never stored (README)
			}
			// One cut a table by default, so that all of them take minutes and not an hour
			// under the race detector.
			pick := int(crc32.ChecksumIEEE([]byte(name + table)))
			cuts := []int{[]int{0, 97}[pick%2]}
			if long() {
				cuts = []int{0, 500, 97, 7}
			}
			for _, rows := range cuts {
				store, err := runHistory(t, spec, table, rows, nil)
				if err != nil {
					t.Fatal(err)
				}
				sameHistory(t, fmt.Sprintf("batches of %d", rows), historyOf(t, c, table, store), want)
			}
			if pick%3 != 0 && !long() {
				return
			}
			batches := decodeRows(t, spec)
			if slices.ContainsFunc(batches, func(b *event.Batch) bool { return b.OldKeys != nil }) {
				// Values of a changed key are taken over in stream order: all of it twice.
				store, err := runHistory(t, spec, table, max(len(batches)/5, 1), append(slices.Clone(batches), batches...))
				if err != nil {
					t.Fatal(err)
				}
				sameHistory(t, "twice", historyOf(t, c, table, store), want)
				return
			}
			orders := 1
			if long() {
				orders = 4
			}
			for seed := range orders {
				r := rand.New(rand.NewSource(int64(11 + seed)))
				shuffled := slices.Clone(batches)
				for range len(batches) / 3 { // redelivered
					shuffled = append(shuffled, batches[r.Intn(len(batches))])
				}
				r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				cut := max(1+r.Intn(len(shuffled)), len(shuffled)/12)
				store, err := runHistory(t, spec, table, cut, shuffled)
				if err != nil {
					t.Fatal(err)
				}
				sameHistory(t, fmt.Sprintf("random order %d in batches of %d", seed, cut), historyOf(t, c, table, store), want)
			}
		})
	}
}

// otherHistory says why a recorded stream does not tell what the audit trail does
// (the corpus's README).
func otherHistory(c *corpora.Corpus, table string) string {
	switch {
	case c.Name == "pg-wal2json":
		return "it has no snapshot: its histories begin before its events (README of the corpus)"
	case c.Name == "pg-schema-change-noschema" && table == "item":
		return "its column color changed its type, and the schema beside the stream is the last one"
	case len(c.Tables[table].Key) == 0:
		return "the table has no key"
	case slices.Contains(corpora.Differs[c.Name][table], "*"):
		return "the stream differs from the database (README of the corpus)"
	case table == "ri_index":
		return "its events do not carry the key (README of the corpus)"
	case c.Name == "pg-restart-snapshot":
		return "rows deleted between two snapshots have no event (README of the corpus)"
	case c.Name == "pg-truncate-skipped":
		return "the stream leaves truncates out (README of the corpus)"
	}
	return ""
}

// runHistory applies a stream as SCD2; rows replace its events if given.
func runHistory(t *testing.T, spec source.Spec, table string, batch int, rows []*event.Batch) (storage.Store, error) {
	t.Helper()
	store := storage.NewMemory(table)
	s := apply.Spec{Target: apply.Targets{Store: store, Name: table}, Flow: apply.Flow{Name: "f", Keys: spec.Keys, StoredAsSCDType: "2", BatchRows: batch}}
	if rows != nil {
		s.Source, s.NewDecoder = rowSource{len(rows)}, func() event.Decoder { return &rowDecoder{rows: rows} }
	} else {
		o, err := source.Open(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Source.Close()
		s.Source, s.NewDecoder = o.Source, o.NewDecoder
	}
	res, err := apply.Run(context.Background(), s, apply.Options{})
	if e := res.Events; err == nil && (e.Read != e.Applied+e.Stale+e.Duplicate+e.Poison || e.Poison > 0) {
		t.Errorf("events %+v do not add up", e)
	}
	return store, err
}

// trailOf is the history by key that an audit trail tells: equal images one after
// the other are one version. A column that the table has lost keeps its value until
// the row is deleted (auto-cdc 2.3).
func trailOf(c *corpora.Corpus, table string, trail []map[string]any) map[string][]version {
	out := map[string][]version{}
	last := map[string]map[string]any{}
	for _, m := range trail {
		image, _ := m["row"].(map[string]any)
		id := fmt.Sprint(m["key"])
		for column, v := range last[id] {
			if _, ok := image[column]; !ok && image != nil && m["op"] != "d" {
				image[column] = v
			}
		}
		if last[id] = image; m["op"] == "d" {
			delete(last, id)
		}
		if image == nil {
			image, _ = m["key"].(map[string]any)
		}
		for key, row := range corpora.CanonDB(c, table, []map[string]any{image}) {
			list := out[key]
			last := len(list) - 1
			switch {
			case m["op"] == "d":
				list[last].end = "gone"
			case last >= 0 && list[last].end == "open" && maps.Equal(list[last].row, row):
			default:
				if last >= 0 && list[last].end == "open" {
					list[last].end = "next"
				}
				out[key] = append(list, version{row, "open"})
			}
		}
	}
	return out
}

// historyOf is the history by key that an SCD2 table holds.
func historyOf(t *testing.T, c *corpora.Corpus, table string, store storage.Store) map[string][]version {
	t.Helper()
	ctx := context.Background()
	tab, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scan, err := tab.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		version
		start, stop []byte
	}
	rows := map[string][]row{}
	for b, err := range scan.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		start, stop := b.Column(b.Schema().FieldIndices("__START_AT")[0]), b.Column(b.Schema().FieldIndices("__END_AT")[0])
		for r, image := range maps_(b, 0) {
			delete(image, "__START_AT")
			delete(image, "__END_AT")
			for key, m := range corpora.CanonRows(c, table, []map[string]any{image}) {
				x := row{version: version{m, "open"}, start: keycode.AppendValue(nil, start, r)}
				if stop.IsValid(r) {
					x.end, x.stop = "gone", keycode.AppendValue(nil, stop, r)
				}
				rows[key] = append(rows[key], x)
			}
		}
	}
	merged := corpora.Skips(c, table) // versions may differ in what is not compared
	out := map[string][]version{}
	for key, list := range rows {
		slices.SortFunc(list, func(a, b row) int { return bytes.Compare(a.start, b.start) })
		for i, x := range list {
			if i+1 < len(list) && bytes.Equal(x.stop, list[i+1].start) {
				x.end = "next"
			}
			if x.stop != nil && bytes.Compare(x.start, x.stop) >= 0 {
				t.Fatalf("key %s: a version without width", key)
			}
			n := len(out[key]) - 1
			if n >= 0 && merged && out[key][n].end == "next" && maps.Equal(out[key][n].row, x.row) {
				out[key][n].end = x.end
				continue
			}
			out[key] = append(out[key], x.version)
		}
	}
	return out
}

func sameHistory(t *testing.T, what string, got, want map[string][]version) {
	t.Helper()
	n := 0
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if want[key] != nil && !slices.EqualFunc(got[key], want[key], func(a, b version) bool { return a.end == b.end && maps.Equal(a.row, b.row) }) {
			if n++; n < 4 {
				t.Errorf("%s: key %s:\ngot  %v\nwant %v", what, key, got[key], want[key])
			}
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: key %s is not expected", what, key)
		}
	}
	if n > 0 {
		t.FailNow()
	}
}
