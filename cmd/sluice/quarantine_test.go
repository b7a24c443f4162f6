package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
)

// What the quarantine holds is listed, shown, repaired and replayed, whatever the
// form of the file it came from.
func TestQuarantine(t *testing.T) {
	write := func(t *testing.T, dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type shown struct{ ID, Value, Raw string }
	show := func(t *testing.T, dir, table string) (out []shown) {
		t.Helper()
		for line := range strings.Lines(must(t, dir, "quarantine", "show", table)) {
			var x shown
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			out = append(out, x)
		}
		return out
	}
	t.Run("a null key beside a condition that truncates", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "e.jsonl", `{"id":1,"op":"I","ts":1}`+"\n"+`{"id":null,"op":"I","ts":2,"name":"lost"}`+"\n"+`{"id":2,"op":"I","ts":4}`+"\n"+`{"op":"T","ts":3}`+"\n")
		args := []string{"apply", "--into", "t", "--from", "e.jsonl", "--keys", "id", "--sequence-by", "ts", "--columns", "id", "--apply-as-truncates", "op = 'T'"}
		refused(t, sluice(t, dir, args...), exitRefused, apply.CodeNullKey)
		must(t, dir, append(args, "--on-poison", "quarantine")...)
		sameRows(t, "rows", must(t, dir, "cat", "t", "-o", "jsonl"), `{"id":2}`+"\n")
		if list := show(t, dir, "t"); len(list) != 1 || !strings.Contains(list[0].Raw, "lost") {
			t.Errorf("%+v", list)
		}
	})
	t.Run("a broken line of a topic", func(t *testing.T) {
		dir := t.TempDir()
		record := func(offset, id, name string) string {
			return `{"topic":"s.public.a","partition":0,"offset":` + offset + `,"key":{"id":` + id + `},"value":{"op":"c","before":null,"after":{"id":` + id + `,"name":"` + name +
				`"},"source":{"connector":"postgresql","schema":"public","table":"a","db":"d","lsn":` + offset + `}}}`
		}
		write(t, dir, "e.jsonl", record("1", "1", "Ann")+"\n"+record("2", "2", "Bob")[:60]+"\n"+record("3", "3", "Cy")+"\n")
		r := sluice(t, dir, "apply", "--into", "out/{table}", "--from", "e.jsonl", "--format", "debezium")
		if r.code != exitOK || !strings.Contains(r.stderr, "warning: 1 events could not be applied") {
			t.Fatalf("exit %d, %s", r.code, r.stderr)
		}
		list := show(t, dir, "out/{table}")
		if len(list) != 1 || list[0].Value != record("2", "2", "Bob")[:60] {
			t.Fatalf("%+v", list)
		}
		refused(t, sluice(t, dir, "quarantine", "replay", "out/{table}", "--id", "nope"), exitNotFound, apply.CodeUnknownRecord)
		r = sluice(t, dir, "quarantine", "replay", "out/{table}", "--format", "debezium", "-o", "table")
		if r.code != exitRefused || !strings.Contains(r.stderr, apply.CodePoison) {
			t.Errorf("unrepaired: exit %d, %s", r.code, r.stderr)
		}
		good, err := json.Marshal(map[string]string{"id": list[0].ID, "value": record("2", "2", "Bob")})
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "good.jsonl", string(good)+"\n")
		must(t, dir, "quarantine", "replay", "out/{table}", "--repaired", "good.jsonl")
		if got := must(t, dir, "cat", "out/a", "--order-by", "id", "--columns", "name", "-o", "csv"); got != "name\nAnn\nBob\nCy\n" {
			t.Errorf("got %q", got)
		}
		if list := show(t, dir, "out/{table}"); len(list) != 0 {
			t.Errorf("left %+v", list)
		}
	})
	t.Run("a row of a CSV file", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "e.csv", "id,name,op,ts\n1,Ann,I,1\n2,Bob,what,2\n1,Anna,U,3\n")
		flow := []string{"--keys", "id", "--sequence-by", "ts", "--except-columns", "op,ts"}
		must(t, dir, append([]string{"apply", "--into", "t", "--from", "e.csv", "--on-poison", "quarantine"}, flow...)...)
		list := show(t, dir, "t")
		if len(list) != 1 || !strings.Contains(list[0].Value, "what") {
			t.Fatalf("%+v", list)
		}
		if got := must(t, dir, "quarantine", "list", "t", "-o", "csv"); !strings.Contains(got, "UNKNOWN_OP") || strings.Count(got, "\n") != 2 {
			t.Errorf("list %q", got)
		}
		good := `{"id":"` + list[0].ID + `","value":` + strings.Replace(list[0].Value, "what", "I", 1) + "}\n"
		refused(t, sluiceIn(t, dir, good+good, append([]string{"quarantine", "replay", "t", "--repaired", "-"}, flow...)...), exitUsage, apply.CodeInvalidRepair)
		before := tree(t, dir)
		mustIn(t, dir, good, append([]string{"quarantine", "replay", "t", "--repaired", "-", "--dry-run"}, flow...)...)
		if tree(t, dir) != before {
			t.Error("a dry run wrote something")
		}
		mustIn(t, dir, good, append([]string{"quarantine", "replay", "t", "--repaired", "-"}, flow...)...)
		if got := must(t, dir, "cat", "t", "--order-by", "id", "-o", "csv"); got != "id,name\n1,Anna\n2,Bob\n" {
			t.Errorf("got %q", got)
		}
		if got := must(t, dir, "quarantine", "replay", "t"); !strings.Contains(got, `"replayed":0`) {
			t.Errorf("nothing to replay: %q", got)
		}
	})
	t.Run("no quarantine", func(t *testing.T) {
		dir := t.TempDir()
		refused(t, sluice(t, dir, "quarantine", "list", "t"), exitNotFound, "DELTA_TABLE_NOT_FOUND")
		refused(t, sluice(t, dir, "quarantine"), exitUsage, "INVALID_ARGUMENTS")
	})
}
