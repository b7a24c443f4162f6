//go:build linux

package multiprocess

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// tableRows is a stream of the rows of one JSON object.
func tableRows(text string) (iter.Seq2[arrow.RecordBatch, error], error) {
	s, err := schema.ParseDDL(columns)
	if err != nil {
		return nil, err
	}
	return rowio.Read(context.Background(), strings.NewReader(text), rowio.JSONL, rowio.ReadOptions{Schema: s}), nil
}

// outcome is what a crowd left behind.
type outcome struct {
	ids      map[int64]int   // rows of the table by id, as sluice reads it
	versions map[int64]int64 // id to the version that the log says added it
	newest   int64
	orphans  []string // data files that no log entry names
}

// logAction is what the independent parser reads of one line of a log file.
type logAction struct {
	Add *struct {
		Path  string `json:"path"`
		Stats string `json:"stats"`
	} `json:"add"`
	Remove     *json.RawMessage `json:"remove"`
	CommitInfo *json.RawMessage `json:"commitInfo"`
}

func readOutcome(t *testing.T, dir string, store storage.Store) *outcome {
	t.Helper()
	o := &outcome{ids: map[int64]int{}, versions: map[int64]int64{}}
	ctx := context.Background()
	tab, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scan, err := tab.Scan(ctx, delta.ScanOptions{Columns: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range scan.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ids, ok := b.Column(0).(*array.Int64)
		if !ok {
			t.Fatalf("id is %T", b.Column(0))
		}
		for i := range ids.Len() {
			o.ids[ids.Value(i)]++
		}
	}
	o.parseLog(t, dir, scan.Snapshot().Version)
	return o
}

// parseLog reads the log's JSON files one by one, without any code of sluice.
func (o *outcome) parseLog(t *testing.T, dir string, newest int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "_delta_log", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	named := map[string]bool{}
	for v, name := range names {
		if want := fmt.Sprintf("%020d.json", v); filepath.Base(name) != want {
			t.Fatalf("log has %s where %s belongs", filepath.Base(name), want)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		adds, infos := 0, 0
		for line := range bytes.Lines(text) {
			var a logAction
			if err := json.Unmarshal(line, &a); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if a.Remove != nil {
				t.Fatalf("%s removes a file", name)
			}
			if a.CommitInfo != nil {
				infos++
			}
			if a.Add == nil {
				continue
			}
			adds++
			if named[a.Add.Path] {
				t.Fatalf("%s adds %s again", name, a.Add.Path)
			}
			named[a.Add.Path] = true
			o.addStats(t, name, a.Add.Stats, int64(v))
			if _, err := os.Stat(filepath.Join(dir, a.Add.Path)); err != nil {
				t.Fatal(err)
			}
		}
		if want := min(v, 1); adds != want || infos != 1 {
			t.Fatalf("%s has %d adds and %d commitInfo, want %d and 1", name, adds, infos, want)
		}
	}
	if o.newest = int64(len(names)) - 1; o.newest != newest {
		t.Fatalf("log ends at %d, sluice reads version %d", o.newest, newest)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !named[filepath.Base(f)] {
			o.orphans = append(o.orphans, filepath.Base(f))
		}
	}
}

// addStats takes the id of the one row of a file from its statistics.
func (o *outcome) addStats(t *testing.T, name, text string, version int64) {
	t.Helper()
	var stats struct {
		NumRecords int64 `json:"numRecords"`
		MinValues  struct {
			ID int64 `json:"id"`
		} `json:"minValues"`
		MaxValues struct {
			ID int64 `json:"id"`
		} `json:"maxValues"`
	}
	if err := json.Unmarshal([]byte(text), &stats); err != nil {
		t.Fatal(err)
	}
	id := stats.MinValues.ID
	if stats.NumRecords != 1 || stats.MaxValues.ID != id {
		t.Fatalf("%s: statistics %s", name, text)
	}
	if at, twice := o.versions[id]; twice {
		t.Fatalf("row %d is added by versions %d and %d", id, at, version)
	}
	o.versions[id] = version
}

// check holds rows and log against what the processes acknowledged.
func (o *outcome) check(t *testing.T, acks string, processes, appends int, victims map[int]*victim) {
	t.Helper()
	acked := map[int64]bool{}
	for p := range processes {
		f, err := os.Open(filepath.Join(acks, strconv.Itoa(p)))
		if err != nil && victims[p] == nil {
			t.Fatal(err)
		}
		if err != nil {
			continue
		}
		count := 0
		for lines := bufio.NewScanner(f); lines.Scan(); count++ {
			var id, version int64
			if _, err := fmt.Sscan(lines.Text(), &id, &version); err != nil {
				t.Fatal(err)
			}
			acked[id] = true
			if at, ok := o.versions[id]; !ok || at != version || o.ids[id] != 1 {
				t.Errorf("row %d was acknowledged at version %d: the log has it at %d (%v), the table %d times", id, version, at, ok, o.ids[id])
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if victims[p] == nil && count != appends {
			t.Errorf("process %d acknowledged %d appends, want %d", p, count, appends)
		}
	}
	for id, n := range o.ids {
		v := victims[int(id/1000)]
		if n != 1 || !acked[id] && (v == nil || !v.died || int(id%1000) != v.lastSeen) {
			t.Errorf("row %d is there %d times, acknowledged: %v", id, n, acked[id])
		}
	}
	if len(o.ids) != len(o.versions) || int64(len(o.ids)) != o.newest {
		t.Errorf("%d rows, %d in the log, newest version %d", len(o.ids), len(o.versions), o.newest)
	}
	t.Logf("%d appends acknowledged, %d rows, %d files of killed commits", len(acked), len(o.ids), len(o.orphans))
}
