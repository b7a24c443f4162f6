//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

var soakFor = flag.Duration("soak", 0, "how long the soak lasts; 0: 15 seconds, 20 minutes under SLUICE_LONG")

// soakEnv holds the arguments of a process of the soak.
const soakEnv = "SLUICE_TEST_SOAK"

func init() {
	args := os.Getenv(soakEnv)
	if args == "" {
		return
	}
	m, err := soaker(args)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// model is what one process did: its own rows as they must be, what it added to the rows of
// all, and how many operations of each kind were acknowledged.
type model struct {
	Own    map[int64]int64
	Shared map[int64]int64
	Done   map[string]int
}

// shared rows have ids below it; process p owns those from (p+1)*own on.
const (
	sharedRows = 10
	ownRows    = 1_000_000
)

// soaker is one process: "location process seed seconds".
func soaker(args string) (*model, error) {
	var location string
	var process, seed int64
	var seconds float64
	if _, err := fmt.Sscan(args, &location, &process, &seed, &seconds); err != nil {
		return nil, err
	}
	s, err := open.Store(location, open.Options{})
	if err != nil {
		return nil, err
	}
	b := newBench(storage.WithRetry(s, storage.RetryOptions{}), "")
	t, err := delta.Open(b.ctx, b.store("t"), delta.Options{Attempts: 1000})
	if err != nil {
		return nil, err
	}
	m := &model{Own: map[int64]int64{}, Shared: map[int64]int64{}, Done: map[string]int{}}
	r := rand.New(rand.NewPCG(uint64(seed), uint64(process)))
	next := (process + 1) * ownRows
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		name, op := soakStep(b, t, m, r, process, &next)
		switch err := op(); {
		case err == nil:
			m.Done[name]++
		case errors.Is(err, delta.ErrConflict):
			m.Done[name+", given up after a conflict"]++
		default:
			return nil, fmt.Errorf("process %d: %s: %w", process, name, err)
		}
	}
	return m, nil
}

// soakStep draws an operation; its function changes the model once it was acknowledged.
func soakStep(b *bench, t *delta.Table, m *model, r *rand.Rand, process int64, next *int64) (string, func() error) {
	ids := []int64{}
	for id := range m.Own {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	into := func(rows, sql string) error {
		src, err := rowsOf(b, rows)
		if err != nil {
			return err
		}
		s, err := merge.Parse(sql)
		if err == nil {
			_, err = merge.Into(b.ctx, t, src, s, merge.IntoOptions{})
		}
		return err
	}
	switch n := r.IntN(100); {
	case n < 35 || len(ids) == 0:
		return "append", func() error {
			text, from := "", *next
			for range 3 {
				text += fmt.Sprintf(`{"id":%d,"k":1,"p":%d}`+"\n", *next, process%3)
				*next++
			}
			if err := appendRows(b, t, text, delta.WriteOptions{}); err != nil {
				return err
			}
			for id := from; id < *next; id++ {
				m.Own[id] = 1
			}
			return nil
		}
	case n < 60:
		id, fresh := ids[r.IntN(len(ids))], *next
		*next++
		return "merge of own keys", func() error {
			err := into(fmt.Sprintf(`{"id":%d,"k":5,"p":%d}`+"\n"+`{"id":%d,"k":7,"p":%d}`, id, process%3, fresh, process%3),
				"MERGE INTO target USING source ON target.id = source.id WHEN MATCHED THEN UPDATE SET k = target.k + source.k WHEN NOT MATCHED THEN INSERT *")
			if err == nil {
				m.Own[id] += 5
				m.Own[fresh] = 7
			}
			return err
		}
	case n < 80:
		id := r.Int64N(sharedRows)
		return "merge of shared keys", func() error {
			err := into(fmt.Sprintf(`{"id":%d,"k":1,"p":0}`, id), "MERGE INTO target USING source ON target.id = source.id WHEN MATCHED THEN UPDATE SET k = target.k + source.k")
			if err == nil {
				m.Shared[id]++
			}
			return err
		}
	case n < 92:
		id := ids[r.IntN(len(ids))]
		return "delete", func() error {
			_, err := t.Delete(b.ctx, fmt.Sprintf("id = %d", id), delta.DMLOptions{})
			if err == nil {
				delete(m.Own, id)
			}
			return err
		}
	case n < 97:
		return "optimize", func() error { _, err := t.Optimize(b.ctx, delta.OptimizeOptions{}); return err }
	}
	// Longer than any operation takes.
	retain := 5 * time.Minute
	return "vacuum", func() error {
		_, err := t.Vacuum(b.ctx, delta.VacuumOptions{Retain: &retain, AllowShortRetention: true})
		return err
	}
}

// soak: eight processes append, merge the same and different keys, delete, optimize and
// vacuum one table on S3 at the same time; in the end it holds what their models say, for
// sluice, for its change feed and for delta-rs.
func soak(t *testing.T, s server, rs *engines.Engine) {
	last := *soakFor
	if last == 0 {
		if last = 15 * time.Second; long() {
			last = 20 * time.Minute
		}
	}
	location := s.Bucket(t) + "/soak"
	b := newBench(openStore(t, location, nil), t.TempDir())
	if err := soakTable(b); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 8
	ctx, cancel := context.WithTimeout(t.Context(), 2*last+5*time.Minute)
	defer cancel()
	models := make([]model, processes)
	var all sync.WaitGroup
	for p := range processes {
		all.Go(func() {
			c := exec.CommandContext(ctx, exe)
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %f", soakEnv, location, p, *seed, last.Seconds()), "GOMAXPROCS=2")
			var said strings.Builder
			c.Stderr = &said
			out, err := c.Output()
			if err == nil {
				err = json.Unmarshal(out, &models[p])
			}
			if err != nil {
				t.Errorf("process %d: %v\n%s", p, err, said.String())
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	want, done := soaked(models)
	rows, version, err := b.rows("t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows, want) {
		t.Errorf("version %d has %d rows, the models %d: %s", version, len(rows), len(want), difference(rows, want))
	}
	if err := b.fsck("t"); err != nil {
		t.Error(err)
	}
	if got := rs.Rows(t, location+"/t"); len(got) != len(want) {
		t.Errorf("delta-rs reads %d rows, want %d", len(got), len(want))
	}
	if err := b.vacuumed("t"); err != nil {
		t.Error(err)
	}
	t.Logf("%v, version %d, %d rows, acknowledged %v", last, version, len(rows), done)
	if t.Failed() {
		return
	}
	for name, n := range done {
		survived(fmt.Sprintf("soak: %d processes on S3, %v", processes, last), name, n)
	}
}

func soakTable(b *bench) error {
	if err := table(map[string]string{"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "10"})(b); err != nil {
		return err
	}
	t, err := b.open("t")
	if err != nil {
		return err
	}
	var text strings.Builder
	for id := range sharedRows {
		fmt.Fprintf(&text, `{"id":%d,"k":0,"p":0}`+"\n", id)
	}
	src, err := rowsOf(b, text.String())
	if err != nil {
		return err
	}
	_, err = t.Overwrite(b.ctx, src.Rows, delta.OverwriteOptions{})
	return err
}

// soaked is the table that the models make, and what was acknowledged.
func soaked(models []model) (rows []string, done map[string]int) {
	done = map[string]int{}
	total := map[int64]int64{}
	for id := range int64(sharedRows) {
		total[id] = 0
	}
	for p, m := range models {
		for id, n := range m.Shared {
			total[id] += n
		}
		for name, n := range m.Done {
			done[name] += n
		}
		for id, k := range m.Own {
			rows = append(rows, fmt.Sprintf(`{"id":%d,"k":%d,"p":%d}`, id, k, p%3))
		}
	}
	for id, k := range total {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"k":%d,"p":0}`, id, k))
	}
	slices.Sort(rows)
	return rows, done
}

// difference names some rows that only one side has.
func difference(got, want []string) string {
	var out []string
	for _, r := range got {
		if _, ok := slices.BinarySearch(want, r); !ok {
			out = append(out, "+"+r)
		}
	}
	for _, r := range want {
		if _, ok := slices.BinarySearch(got, r); !ok {
			out = append(out, "-"+r)
		}
	}
	return strings.Join(out[:min(len(out), 20)], " ")
}
