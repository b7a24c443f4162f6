package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// follower is a sluice that runs until it is killed.
type follower struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{}
}

func follow(t *testing.T, dir string, args ...string) *follower {
	t.Helper()
	f := &follower{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	f.cmd.Dir, f.cmd.Stderr = dir, &f.stderr
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = f.cmd.Wait(); close(f.done) }()
	return f
}

// kill ends it as a power cut would; it must have been running.
func (f *follower) kill(t *testing.T) {
	t.Helper()
	select {
	case <-f.done:
		t.Fatalf("sluice ended by itself: %s", f.stderr.String())
	default:
	}
	if err := f.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.done
}

// object reads a row, without its nulls; numbers keep their digits.
func object(t *testing.T, line string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	out := map[string]any{}
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

func text(row map[string]any) string {
	b, _ := json.Marshal(row) // of what was JSON
	return string(b)
}

// same compares lists of rows as sets with counts.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if slices.Equal(got, want) {
		return
	}
	count := map[string]int{}
	for _, r := range got {
		count[r]++
	}
	for _, r := range want {
		count[r]--
	}
	told := 0
	for _, r := range slices.Sorted(maps.Keys(count)) {
		if n := count[r]; n != 0 && told < 6 {
			t.Errorf("%s: %+d of %.300s", what, n, r)
			told++
		}
	}
	t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
}

// tables compares every target with its table.
func tables(t *testing.T, c *cluster, dir, lake string) {
	t.Helper()
	for _, table := range workloadTables {
		var got, want []string
		for line := range strings.Lines(must(t, dir, "cat", lake+"/"+table)) {
			got = append(got, text(object(t, line)))
		}
		for _, line := range c.rows("select * from " + table) {
			want = append(want, text(object(t, line)))
		}
		same(t, lake+"/"+table, got, want)
	}
}

// versionsOf turns the trail into the versions of each key, in order.
func versionsOf(t *testing.T, c *cluster, table string) map[string][]string {
	t.Helper()
	keys := map[string][]string{"main": {"id"}, "pair": {"a", "b"}, "idx": {"code"}, "cleared": {"id"}, "part": {"id", "region"}}[table]
	keyOf := func(row map[string]any) string {
		var out []string
		for _, k := range keys {
			out = append(out, fmt.Sprint(row[k]))
		}
		return strings.Join(out, "/")
	}
	out, open := map[string][]string{}, map[string]string{}
	for _, line := range c.rows(fmt.Sprintf("select op, old::text, new::text from trail where tab = '%s' order by at", table)) {
		r := object(t, line)
		image := func(name string) map[string]any {
			if s, ok := r[name].(string); ok {
				return object(t, s)
			}
			return nil
		}
		was, is := image("old"), image("new")
		if r["op"] == "TRUNCATE" {
			clear(open)
			continue
		}
		if was != nil && (is == nil || keyOf(was) != keyOf(is)) {
			delete(open, keyOf(was))
		}
		if is != nil && open[keyOf(is)] != text(is) {
			out[keyOf(is)] = append(out[keyOf(is)], text(is))
			open[keyOf(is)] = text(is)
		}
	}
	return out
}

// histories compares every target with history with what the triggers wrote.
func histories(t *testing.T, c *cluster, dir, lake string) {
	t.Helper()
	for _, table := range workloadTables {
		if table == "cleared" {
			continue // a target with history refuses truncates
		}
		var got, want []string
		for line := range strings.Lines(must(t, dir, "cat", lake+"/"+table)) {
			row := object(t, line)
			if row["__START_AT"] == nil {
				t.Fatalf("%s: a version without a start: %s", table, line)
			}
			delete(row, "__START_AT")
			delete(row, "__END_AT")
			got = append(got, text(row))
		}
		for _, versions := range versionsOf(t, c, table) {
			want = append(want, versions...)
		}
		same(t, lake+"/"+table, got, want)
		if len(want) < 60 {
			t.Errorf("%s: only %d versions: the workload did next to nothing", table, len(want))
		}
		t.Logf("%s: %d versions", table, len(want))
	}
}

// TestFollow_Kills: sluice follows a busy server; it is killed, the server crashes, at
// moments that the workload's progress picks. At the end each target is its table, and
// each history what triggers noted (F11, apply-state 2.6, 2.7).
func TestFollow_Kills(t *testing.T) {
	c := start(t, "-c wal_level=logical -c logical_decoding_work_mem=64kB -c wal_sender_timeout=5s")
	c.exec("shop", workloadSchema)
	dir := t.TempDir()
	rounds, gap := 3, int64(60)
	if os.Getenv("SLUICE_LONG") == "1" {
		rounds, gap = 25, 400
	}
	now := []string{"apply", "--from", c.from("tables=main,pair,idx,part,cleared&slot=now"), "--into", "now/{table}", "--batch-interval", "50ms"}
	past := []string{"apply", "--from", c.from("tables=main,pair,idx,part&slot=past"), "--into", "past/{table}", "--stored-as", "2", "--batch-interval", "50ms"}
	must(t, dir, append(past, "--follow=false")...) // the history begins before the workload does
	w := c.workload(7, 3)
	for i := range rounds {
		one, two := follow(t, dir, now...), follow(t, dir, past...)
		w.after(gap)
		switch i % 3 {
		case 0:
			one.kill(t)
			one = follow(t, dir, now...)
			w.after(gap)
		case 1:
			c.crash()
			c.up()
			w.after(gap)
		default:
			c.exec("shop", fmt.Sprintf("alter table main add column extra%d int", i))
			w.after(gap)
			c.crash()
			c.up()
		}
		one.kill(t)
		two.kill(t)
	}
	w.end()
	for _, args := range [][]string{now, past} {
		must(t, dir, append(args, "--follow=false")...)
	}
	tables(t, c, dir, "now")
	histories(t, c, dir, "past")
	// The slots stand where the targets stand: nothing older is kept for them.
	if left := c.rows("select slot_name from pg_replication_slots where temporary"); len(left) > 0 {
		t.Errorf("slots were left behind: %v", left)
	}
	var quarantined []string
	for _, lake := range []string{"now", "past"} {
		for _, table := range workloadTables {
			if _, err := os.Stat(dir + "/" + lake + "/" + table + "/_apply/quarantine"); err == nil {
				quarantined = append(quarantined, lake+"/"+table)
			}
		}
	}
	if len(quarantined) > 0 {
		t.Errorf("quarantined events of %v", quarantined)
	}
}
