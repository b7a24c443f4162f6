//go:build linux

package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/storage"
)

// storedCase is a run of three batches into a target that two flows write: lines for the
// flow that is killed, and for the other one.
type storedCase struct {
	name          string
	flow          apply.Flow
	first, second []string
	snapshots     [][]string // instead of first: the rows of dated snapshots
}

const firstBatch = 4 // rows; the stories have three times as many

var storedCases = []storedCase{
	{name: "SCD1",
		first: []string{put("1", 1, "Ann", "Rome"), put("2", 2, "Bob", "Oslo"), put("3", 3, "Cy", "Lima"), del("4", 4),
			put("1", 5, "Ann", "Rome"), put("2", 6, "Bob", "Bonn"), del("3", 7), put("5", 7, "Cy", "Lima"),
			truncate(2), put("6", 8, "Di", "Kyiv"), put("4", 3, "Ed", "Bern"), put("2", 9, "Bob", "Zug")},
		second: []string{put("7", 1, "Flo", "Nice"), put("1", 6, "Anna", "Rome"), del("6", 9)}},
	{name: "SCD2", flow: apply.Flow{StoredAsSCDType: "2", TrackHistoryColumnList: []string{"name"}},
		first: []string{put("1", 1, "Ann", "Rome"), put("2", 2, "Bob", "Oslo"), put("1", 9, "Ann", "Rome"), del("2", 4),
			put("1", 5, "Ann", "Bonn"), put("2", 3, "Bo", "Zug"), del("3", 3), put("1", 7, "Anna", "Bonn"),
			del("1", 6), put("2", 8, "Bob", "Kiel"), put("3", 2, "Cy", "Lima"), put("2", 9, "Bob", "Reno")},
		second: []string{put("1", 8, "Ann", "Nice"), del("2", 5), put("3", 1, "Cyd", "Bern"), put("4", 1, "Ed", "Graz")}},
	{name: "BITEMPORAL", flow: apply.Flow{StoredAsSCDType: "bitemporal", SystemSequenceBy: "sys"},
		first: []string{known(put("1", 1, "Ann", "Rome"), 1), known(put("2", 2, "Bob", "Oslo"), 3), known(put("3", 1, "Cy", "Lima"), 2), known(put("1", 9, "Ann", "Kiel"), 5),
			known(put("1", 5, "Ann", "Bonn"), 4), known(del("2", 4), 2), known(put("3", 4, "Cy", "Zug"), 1), known(put("4", 1, "Ed", "Graz"), 4),
			known(put("1", 3, "Abe", "Rome"), 6), known(put("2", 2, "Bo", "Oslo"), 5), known(del("3", 2), 7), known(put("4", 1, "Edd", "Graz"), 3)},
		second: []string{known(put("1", 5, "Anna", "Bonn"), 5), known(del("1", 7), 7), known(put("5", 1, "Flo", "Nice"), 1)}},
	{name: "snapshots",
		snapshots: [][]string{{row("1", "Ann", "Rome"), row("2", "Bob", "Oslo")}, {row("1", "Ann", "Bonn"), row("3", "Cy", "Lima")},
			{row("2", "Bob", "Kiel"), row("3", "Cy", "Lima")}},
		second: []string{put("1", 3, "Ann", "Zug"), del("3", 6), put("4", 2, "Di", "Bern"), put("2", 1, "Bo", "Graz")}},
}

func row(id, name, city string) string {
	return `{"id":` + id + `,"name":"` + name + `","city":"` + city + `"}`
}

func put(id string, seq int, name, city string) string {
	return fmt.Sprintf(`{"id":%s,"name":"%s","city":"%s","seq":%d,"op":"U"}`, id, name, city, seq)
}

func del(id string, seq int) string {
	return fmt.Sprintf(`{"id":%s,"name":null,"city":null,"seq":%d,"op":"D"}`, id, seq)
}

func truncate(seq int) string {
	return fmt.Sprintf(`{"id":null,"name":null,"city":null,"seq":%d,"op":"T"}`, seq)
}

// known adds when an event became known.
func known(event string, sys int) string {
	return fmt.Sprintf(`%s,"sys":%d}`, strings.TrimSuffix(event, "}"), sys)
}

// write puts the inputs of both flows into dir.
func (c *storedCase) write(t *testing.T, dir string) {
	t.Helper()
	put := func(name string, lines []string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("first.jsonl", c.first)
	put("second.jsonl", c.second)
	for i, rows := range c.snapshots {
		put(fmt.Sprintf("days/%d/rows.jsonl", 2*(i+1)), rows)
	}
}

// flowOf is a flow of the case under a name.
func (c *storedCase) flowOf(name string, vectors bool) apply.Flow {
	f := c.flow
	f.Name, f.Keys, f.BatchRows, f.DeletionVectors = name, []string{"id"}, firstBatch, &vectors
	f.SequenceBy, f.ApplyAsDeletes, f.ExceptColumnList = "seq", "op = 'D'", []string{"seq", "op"}
	switch f.StoredAsSCDType {
	case "":
		f.ApplyAsTruncates = "op = 'T'"
	case "bitemporal":
		f.ExceptColumnList = append(f.ExceptColumnList, "sys")
	}
	return f
}

// run is the flow that is killed.
func (c *storedCase) run(store storage.Store, dir string, vectors bool) (apply.Result, error) {
	flow := c.flowOf("first", vectors)
	if c.snapshots == nil {
		return c.changes(store, filepath.Join(dir, "first.jsonl"), flow)
	}
	s, err := source.OpenSnapshots(source.SnapshotSpec{Version: "{version:BIGINT}", Spec: source.Spec{From: []string{filepath.Join(dir, "days")}, Keys: flow.Keys}})
	if err != nil {
		return apply.Result{}, err
	}
	flow.SequenceBy, flow.ApplyAsDeletes, flow.ApplyAsTruncates, flow.ExceptColumnList = "", "", "", nil
	r, err := apply.Run(context.Background(), apply.Spec{Snapshots: s, Flow: flow, Target: apply.Targets{Store: store, Name: "t"}}, apply.Options{})
	return r, errors.Join(err, s.Close())
}

// other is the flow beside it, in two batches.
func (c *storedCase) other(store storage.Store, dir string, vectors bool) (apply.Result, error) {
	flow := c.flowOf("second", vectors)
	flow.BatchRows = 2
	return c.changes(store, filepath.Join(dir, "second.jsonl"), flow)
}

func (c *storedCase) changes(store storage.Store, path string, flow apply.Flow) (apply.Result, error) {
	ctx := context.Background()
	in, err := source.Open(ctx, source.Spec{Format: source.Rows, From: []string{path}, NoOp: true})
	if err != nil {
		return apply.Result{}, err
	}
	r, err := apply.Run(ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Flow: flow,
		Target: apply.Targets{Store: store, Name: "t"}}, apply.Options{})
	return r, errors.Join(err, in.Source.Close())
}

// runStored is what a child does for "INDEX,VECTORS,DIR" as its events.
func runStored(store storage.Store, which string) (apply.Result, error) {
	var i int
	var vectors bool
	var dir string
	if _, err := fmt.Sscanf(which, "%d,%t,%s", &i, &vectors, &dir); err != nil {
		return apply.Result{}, fmt.Errorf("read %q: %w", which, err)
	}
	return storedCases[i].run(store, dir, vectors)
}

// Apply-state 8 and law 8, with real processes: for every way to store rows, with and
// without deletion vectors, the process of one of two flows is killed after an operation
// on its store; started again, rows and feed are those of a run that nobody disturbed. At
// even operations the other flow was there before, and the feed is the same change by
// change; at odd ones it comes between the kill and the second run.
func TestApply_KilledForEveryStorage(t *testing.T) {
	for i := range storedCases {
		for _, vectors := range []bool{false, true} {
			c := &storedCases[i]
			t.Run(fmt.Sprintf("law 8 %s, deletion vectors %v", c.name, vectors), func(t *testing.T) {
				t.Parallel()
				k := &storedKills{t: t, c: c, dir: t.TempDir(), vectors: vectors}
				c.write(t, k.dir)
				k.which = fmt.Sprintf("%d,%t,%s", i, vectors, k.dir)
				k.all()
			})
		}
	}
}

// storedKills are the kills of one case.
type storedKills struct {
	t          *testing.T
	c          *storedCase
	dir, which string
	vectors    bool
	want       state
}

func (k *storedKills) all() {
	operations := k.straight()
	kills := 8
	switch {
	case testing.Short():
		kills = 2
	case os.Getenv("SLUICE_LONG") != "":
		kills = operations
	}
	for i := range kills {
		n := i * operations / kills
		if kills < operations && (n+i)%2 == 1 { // even and odd ones in turn
			n++
		}
		k.kill(n, operations)
	}
	k.t.Logf("%d kills at %d operations", kills, operations)
}

// straight is the run that nobody disturbed, and its number of operations.
func (k *storedKills) straight() int {
	k.t.Helper()
	table := filepath.Join(k.dir, "straight")
	if _, err := k.c.other(local(k.t, table), k.dir, k.vectors); err != nil {
		k.t.Fatal(err)
	}
	c, out := start(k.t, undisturbed, -1, table, k.which)
	if killed(k.t, c, out) {
		k.t.Fatal("killed")
	}
	var operations, batches int
	if _, err := fmt.Sscanf(out.String(), "%d operations, %d batches", &operations, &batches); err != nil {
		k.t.Fatalf("%v: %s", err, out)
	}
	k.want = read(k.t, table)
	if batches != 3 || operations < 50 || len(k.want.rows) == 0 {
		k.t.Fatalf("undisturbed run: %s, %d rows", out, len(k.want.rows))
	}
	k.want.same(k.t, "undisturbed", k.want)
	return operations
}

func (k *storedKills) kill(n, operations int) {
	t := k.t
	t.Helper()
	at := fmt.Sprintf("killed after operation %d of %d", n, operations)
	table := filepath.Join(k.dir, "t")
	other := func() {
		t.Helper()
		if _, err := k.c.other(local(t, table), k.dir, k.vectors); err != nil {
			t.Fatalf("%s: the other flow: %v", at, err)
		}
	}
	first := n%2 == 0
	if first {
		other()
	}
	c, out := start(t, after, n, table, k.which)
	// Pages of a file may be written in one call more or less.
	if !killed(t, c, out) && n < operations-operations/20 && first {
		t.Fatalf("%s: came to its end: %s", at, out)
	}
	if !first {
		other()
	}
	if _, err := k.c.run(local(t, table), k.dir, k.vectors); err != nil {
		t.Fatalf("%s: second run: %v", at, err)
	}
	got := read(t, table)
	if first {
		got.same(t, at, k.want)
	}
	if !slices.Equal(got.rows, k.want.rows) {
		t.Fatalf("%s: rows\n%swant\n%s", at, strings.Join(got.rows, ""), strings.Join(k.want.rows, ""))
	}
	if sum := got.sum(t); !slices.Equal(sum, k.want.sorted(t)) {
		t.Fatalf("%s: feed sums to\n%s\nwant\n%s", at, strings.Join(sum, "\n"), strings.Join(k.want.sorted(t), "\n"))
	}
	if r, err := k.c.run(local(t, table), k.dir, k.vectors); err != nil || r.Batches != 0 || r.Version != got.version {
		t.Fatalf("%s: third run: %+v, %v", at, r, err)
	}
	if err := os.RemoveAll(table); err != nil {
		t.Fatal(err)
	}
}
