//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// kinds reads jsonl change rows as "version kind id".
func changeKinds(t testing.TB, out string) []string {
	t.Helper()
	got := []string{}
	for l := range strings.Lines(out) {
		var row struct {
			ID      int64  `json:"id"`
			Kind    string `json:"_change_type"`
			Version int64  `json:"_commit_version"`
		}
		if err := json.Unmarshal([]byte(l), &row); err != nil {
			t.Fatalf("%v: %q", err, l)
		}
		got = append(got, fmt.Sprintf("%d %s %d", row.Version, row.Kind, row.ID))
	}
	slices.Sort(got)
	return got
}

func TestChanges_Checkpoint(t *testing.T) {
	dir := people(t)
	next := func(args ...string) []string {
		t.Helper()
		return changeKinds(t, must(t, dir, append([]string{"changes", "people", "--checkpoint", "at"}, args...)...))
	}
	same := func(what string, got []string, want ...string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	same("R-921 the snapshot first", next(), "1 insert 1")
	same("R-922 nothing new", next())
	mustIn(t, dir, "{\"id\":2}\n{\"id\":3}\n", "append", "people", "--from", "-", "--format", "jsonl")
	must(t, dir, "delete", "people", "--where", "id = 2")
	same("R-922 what came since", next("--from-version", "0"), "2 insert 2", "2 insert 3", "3 delete 2")
	same("R-922 nothing new again", next())
	raw, err := os.ReadFile(filepath.Join(dir, "at"))
	if err != nil || !strings.HasPrefix(string(raw), `{"format":1,"kind":"changes","tableId":"`) || !strings.HasSuffix(string(raw), "\"version\":4,\"index\":0,\"snapshot\":false}\n") {
		t.Errorf("%s, %v", raw, err)
	}
	for _, form := range []string{"csv", "json", "parquet", "arrow", "table"} {
		file := "at-" + form
		if out := must(t, dir, "changes", "people", "--checkpoint", file, "--from-version", "2", "-o", form); out == "" {
			t.Errorf("%s: nothing", form)
		}
		same(form, changeKinds(t, must(t, dir, "changes", "people", "--checkpoint", file)))
	}
	t.Run("a damaged file", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "bad"), []byte(`{"format":1`), 0o644); err != nil {
			t.Fatal(err)
		}
		r := sluice(t, dir, "changes", "people", "--checkpoint", "bad")
		if r.code != exitCorrupt || !strings.Contains(r.stderr, "STREAM_POSITION_INVALID") || !strings.Contains(r.stderr, "delete the file") {
			t.Errorf("exit %d, %s", r.code, r.stderr)
		}
	})
	t.Run("R-922 the file of another table", func(t *testing.T) {
		must(t, dir, "create", "other", "--schema", "id BIGINT", "--property", "delta.enableChangeDataFeed=true")
		r := sluice(t, dir, "changes", "other", "--checkpoint", "at")
		if r.code != exitNotFound && r.code != exitRefused {
			t.Errorf("exit %d, %s", r.code, r.stderr)
		}
	})
	t.Run("R-907 B08 vacuumed files", func(t *testing.T) {
		must(t, dir, "update", "people", "--set", "name = 'x'", "--where", "id = 3") // 4
		found, err := filepath.Glob(filepath.Join(dir, "people", "_change_data", "*.parquet"))
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		for _, f := range found {
			os.Remove(f)
		}
		must(t, dir, "delete", "people", "--where", "id = 3") // 5
		r := sluice(t, dir, "changes", "people", "--from-version", "1", "-o", "jsonl")
		if r.code != exitNotFound || !strings.Contains(r.stderr, `"code":"DATA_FILE_MISSING"`) || !strings.Contains(r.stderr, "from version 5 on") || !strings.Contains(r.stderr, "--ignore-missing") {
			t.Errorf("exit %d, %s", r.code, r.stderr)
		}
		r = sluice(t, dir, "changes", "people", "--from-version", "4", "--ignore-missing")
		if r.code != exitOK || fmt.Sprint(changeKinds(t, r.stdout)) != "[5 delete 3]" || !strings.Contains(r.stderr, "version 4 are left out") {
			t.Errorf("exit %d, %s%s", r.code, r.stdout, r.stderr)
		}
		if r := sluice(t, dir, "changes", "people", "--checkpoint", "at"); r.code != exitNotFound {
			t.Errorf("exit %d, %s", r.code, r.stderr)
		}
		same("after it", next("--ignore-missing"), "5 delete 3")
	})
}

// A schema change ends the command; the next run goes on behind it.
func TestChanges_SchemaChange(t *testing.T) {
	dir := people(t)
	// As another engine would add a column.
	log := filepath.Join(dir, "people", "_delta_log")
	raw, err := os.ReadFile(filepath.Join(log, "00000000000000000000.json"))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(raw)) {
		if strings.HasPrefix(l, `{"metaData"`) {
			evolved := strings.Replace(l, `\"fields\":[`, `\"fields\":[{\"name\":\"extra\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}},`, 1)
			if evolved == l {
				t.Fatal(l)
			}
			if err := os.WriteFile(filepath.Join(log, "00000000000000000002.json"), []byte(evolved), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustIn(t, dir, "{\"id\":5,\"extra\":\"e\"}\n", "append", "people", "--from", "-", "--format", "jsonl")
	r := sluice(t, dir, "changes", "people", "--checkpoint", "at", "--from-version", "0")
	if r.code != exitRefused || strings.Contains(r.stdout, "extra") || len(changeKinds(t, r.stdout)) != 1 || !strings.Contains(r.stderr, "DELTA_SCHEMA_CHANGED_WITH_VERSION") || !strings.Contains(r.stderr, "run the same command again") {
		t.Errorf("R-923: exit %d, %s%s", r.code, r.stdout, r.stderr)
	}
	got := must(t, dir, "changes", "people", "--checkpoint", "at", "--from-version", "0")
	if !strings.Contains(got, `"extra":"e"`) || len(changeKinds(t, got)) != 1 {
		t.Errorf("R-923: after it %s", got)
	}
	r = sluice(t, dir, "changes", "people", "--follow", "--from-version", "0")
	if r.code != exitRefused || !strings.Contains(r.stderr, "--from-version 2") {
		t.Errorf("R-923: exit %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// follow starts changes --follow and answers its rows line by line.
func follow(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, lines chan string, stderr *strings.Builder) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), binary, append([]string{"changes", "people", "--follow", "--poll", "5ms"}, args...)...)
	cmd.Dir, stderr = dir, &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines = make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return cmd, lines, stderr
}

func take(t *testing.T, lines chan string, n int) []string {
	t.Helper()
	var out []string
	for range n {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("the output ended after %q", out)
			}
			out = append(out, l)
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing more after %q", out)
		}
	}
	return changeKinds(t, strings.Join(out, "\n"))
}

// waitFor waits until a file holds a text.
func waitFor(t *testing.T, file, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		raw, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(raw), text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s, %v", file, raw, err)
		}
	}
}

func TestChanges_Follow(t *testing.T) {
	dir := people(t)
	add := func(id int) {
		mustIn(t, dir, fmt.Sprintf("{\"id\":%d}\n", id), "append", "people", "--from", "-", "--format", "jsonl")
	}
	cmd, lines, stderr := follow(t, dir, "--checkpoint", "at")
	if got := take(t, lines, 1); got[0] != "1 insert 1" {
		t.Errorf("R-921: %q", got)
	}
	add(2)
	add(3)
	if got := take(t, lines, 2); fmt.Sprint(got) != "[2 insert 2 3 insert 3]" {
		t.Errorf("%q", got)
	}
	waitFor(t, filepath.Join(dir, "at"), `"version":4`)
	cmd.Process.Signal(os.Interrupt)
	for range lines {
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr.String(), "the rows before version 4 were printed; the same command goes on there") {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
	add(4)
	if got := changeKinds(t, must(t, dir, "changes", "people", "--checkpoint", "at")); fmt.Sprint(got) != "[4 insert 4]" {
		t.Errorf("resumed: %q", got)
	}
	cmd, lines, _ = follow(t, dir, "--from-version", "latest")
	for id := 5; len(lines) == 0 && id < 100; id++ { // it may take a moment to come up
		time.Sleep(100 * time.Millisecond)
		add(id)
	}
	if got := take(t, lines, 1); !strings.Contains(got[0], " insert ") {
		t.Errorf("from latest: %q", got)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// the rows are out, and then the process cannot write its checkpoint or is
// killed: the batch comes again, and nothing is lost.
func TestChanges_KilledBeforeCheckpoint(t *testing.T) {
	t.Run("the checkpoint cannot be written", func(t *testing.T) {
		dir := people(t)
		must(t, dir, "changes", "people", "--checkpoint", "at")
		cmd, lines, stderr := follow(t, dir, "--checkpoint", "at")
		mustIn(t, dir, "{\"id\":2}\n", "append", "people", "--from", "-", "--format", "jsonl")
		take(t, lines, 1)
		waitFor(t, filepath.Join(dir, "at"), `"version":3`)
		if err := os.Remove(filepath.Join(dir, "at")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "at", "in the way"), 0o755); err != nil {
			t.Fatal(err)
		}
		mustIn(t, dir, "{\"id\":3}\n", "append", "people", "--from", "-", "--format", "jsonl")
		if got := take(t, lines, 1); got[0] != "3 insert 3" {
			t.Errorf("%q", got)
		}
		for range lines {
		}
		if cmd.Wait(); cmd.ProcessState.ExitCode() == exitOK || !strings.Contains(stderr.String(), "--checkpoint") {
			t.Errorf("exit %d, %s", cmd.ProcessState.ExitCode(), stderr.String())
		}
	})
	t.Run("killed at any moment", func(t *testing.T) {
		dir := people(t)
		const n = 40
		want := []string{"1 insert 1"}
		for id := 2; id <= n; id++ {
			mustIn(t, dir, fmt.Sprintf("{\"id\":%d}\n", id), "append", "people", "--from", "-", "--format", "jsonl")
			want = append(want, fmt.Sprintf("%d insert %d", id, id))
		}
		slices.Sort(want)
		seen, kills, repeated := map[string]int{}, 0, 0
		for rows := 1; len(seen) < n; rows = rows%5 + 1 {
			if kills++; kills > 200 {
				t.Fatalf("%d rows after %d kills", len(seen), kills)
			}
			cmd, lines, _ := follow(t, dir, "--checkpoint", "at", "--from-version", "1", "--max-files", "1")
			kill := func() { cmd.Process.Kill() }
			again := 0
			i := 0
			for l := range lines {
				k := changeKinds(t, l)[0]
				if seen[k]++; seen[k] > 1 {
					again++
				}
				if i++; i == rows || len(seen) == n {
					kill()
				}
			}
			cmd.Wait()
			if again > 1 {
				t.Errorf("kill %d: %d batches came again, at most the last one may", kills, again)
			}
			repeated += again
		}
		var got []string
		for k := range seen {
			got = append(got, k)
		}
		slices.Sort(got)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q", got, want)
		}
		t.Logf("%d kills, %d batches came twice", kills, repeated)
	})
}
