package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mixed are rows of three tables in one stream; only notes has no id.
const mixed = `{"topic":"people","partition":0,"offset":1,"key":null,"value":{"id":1,"name":"Ada","ts":1}}
{"topic":"people","partition":0,"offset":2,"key":null,"value":{"id":1,"name":"Ada L.","ts":2}}
{"topic":"notes","partition":0,"offset":3,"key":null,"value":{"day":"d1","n":1,"text":"a","at":5}}
{"topic":"notes","partition":0,"offset":4,"key":null,"value":{"day":"d1","n":1,"text":"late","at":4}}
{"topic":"notes","partition":0,"offset":5,"key":null,"value":{"day":"d1","n":2,"text":"b","at":6}}
{"topic":"pay","partition":0,"offset":6,"key":null,"value":{"id":7,"sum":"1.50","ts":1}}
`

// TestApply_Overrides: tables of one stream with keys, sequence, history and a place of their own.
func TestApply_Overrides(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("in.jsonl", mixed)
	write("own.yaml", `tables:
  - table: "*notes"
    keys: [day, n]
    sequence_by: at
    target: logs/{table}
  - table: people
    stored_as_scd_type: 2
  - table: "*"
    schema_hints: sum DECIMAL(10,2)
  - table: nowhere
    keys: id
`)
	args := []string{"apply", "--into", "lake/{table}", "--from", "in.jsonl", "--keys", "id", "--sequence-by", "ts", "--overrides", "own.yaml", "--format", "rows"}
	r := sluice(t, dir, args...)
	if r.code != 0 || !strings.Contains(r.stderr, "own.yaml:10:5: no table of the stream is nowhere") || strings.Contains(r.stderr, "own.yaml:2") {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	for table, want := range map[string]string{
		"lake/logs/notes": `{"day":"d1","n":1,"text":"a","at":5}` + "\n" + `{"day":"d1","n":2,"text":"b","at":6}` + "\n",
		"lake/people":     `{"id":1,"name":"Ada","ts":1,"__START_AT":1,"__END_AT":2}` + "\n" + `{"id":1,"name":"Ada L.","ts":2,"__START_AT":2,"__END_AT":null}` + "\n",
		"lake/pay":        `{"id":7,"sum":1.50,"ts":1}` + "\n",
	} {
		order := "id"
		if strings.Contains(table, "notes") {
			order = "n"
		} else if strings.Contains(table, "people") {
			order = "ts"
		}
		if got := must(t, dir, "cat", table, "--order-by", order); got != want {
			t.Errorf("%s: got\n%swant\n%s", table, got, want)
		}
	}
	again := sluice(t, dir, append(args, "-o", "table")...)
	if said := again.stdout + again.stderr; again.code != 0 || strings.Count(said, "nothing new") != 3 {
		t.Errorf("a second run: %s", said)
	}

	write("bad.yaml", "tables:\n  - table: a\n    target: ../out\n")
	refusedWith(t, sluice(t, dir, append(args[:len(args)-3:len(args)-3], "bad.yaml")...), exitUsage, "INVALID_TEMPLATE", "bad.yaml:3:5")
	write("bad.yaml", "tables:\n  - table: a\n    sequence: ts\n")
	refusedWith(t, sluice(t, dir, append(args[:len(args)-3:len(args)-3], "bad.yaml")...), exitUsage, "PARSE_SYNTAX_ERROR", "bad.yaml:3:5", "unknown key")
	write("bad.yaml", "tables:\n  - table: a\n    track_history_column_list: [name]\n")
	refusedWith(t, sluice(t, dir, append(args[:len(args)-3:len(args)-3], "bad.yaml")...), exitUsage, "AUTOCDC_TRACK_HISTORY_REQUIRES_SCD2", "bad.yaml:2:5")
	refusedWith(t, sluice(t, dir, "apply", "--into", "one", "--from", "in.jsonl", "--keys", "id", "--overrides", "own.yaml"), exitUsage, "INVALID_FLAG", "{table}")
}

// TestApply_OneTableStopsAlone: a table that the flow does not fit stops with its error,
// the others go on, unless all are to stop.
func TestApply_OneTableStopsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(strings.Replace(mixed, `"pay"`, `"other"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"apply", "--into", "lake/{table}", "--from", "in.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--on-poison", "quarantine"}
	own := filepath.Join(dir, "own.yaml")
	if err := os.WriteFile(own, []byte("tables:\n  - table: notes\n    keys: [n]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// notes has no ts, so that its flow cannot be bound.
	r := sluice(t, dir, append(args, "--overrides", "own.yaml")...)
	if r.code == 0 || !strings.Contains(r.stderr, "1 of 3 targets stopped") || !strings.Contains(r.stderr, "lake/notes") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	if got := must(t, dir, "cat", "lake/people"); got != "{\"id\":1,\"name\":\"Ada L.\",\"ts\":2}\n" {
		t.Errorf("got %s", got)
	}
	r = sluice(t, dir, append(args, "--overrides", "own.yaml", "--on-table-error", "stop", "--into", "stop/{table}")...)
	if r.code == 0 || strings.Contains(r.stderr, "of 3 targets") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	// The way out: say what orders it. What was read before comes too.
	if err := os.WriteFile(own, []byte("tables:\n  - table: notes\n    keys: [n]\n    sequence_by: at\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, dir, append(args, "--overrides", "own.yaml")...)
	if got := must(t, dir, "cat", "lake/notes", "--count"); got != "{\"count\":2}\n" {
		t.Errorf("got %s", got)
	}
}

// refusedWith is refused with texts that the error has too.
func refusedWith(t *testing.T, r ran, exit int, code string, texts ...string) {
	t.Helper()
	refused(t, r, exit, code)
	for _, x := range texts {
		if !strings.Contains(r.stderr, x) {
			t.Errorf("the error lacks %q: %s", x, r.stderr)
		}
	}
}
