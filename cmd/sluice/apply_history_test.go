package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-data/sluice/apply"
)

const historyEvents = `{"id":1,"name":"Ada","city":"Rome","op":"U","ts":1,"seen":10}
{"id":2,"name":"Bob","city":"Oslo","op":"U","ts":2,"seen":11}
{"id":1,"name":"Ada","city":"Bonn","op":"U","ts":5,"seen":12}
{"id":2,"name":null,"city":null,"op":"D","ts":6,"seen":13}
{"id":1,"name":"Ada","city":null,"op":"U","ts":3,"seen":14}
`

func writeHistory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "people.jsonl"), []byte(historyEvents), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The flags of history, of field mode and of both sequences.
func TestApply_HistoryFlags(t *testing.T) {
	dir := writeHistory(t)
	base := []string{"apply", "--from", "people.jsonl", "--keys", "id", "--sequence-by", "ts", "--except-columns", "op,ts,seen", "--batch-rows", "2"}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"scd2", []string{"--stored-as", "2"}, `{"id":1,"name":"Ada","city":"Rome","__START_AT":1,"__END_AT":3}
{"id":1,"name":"Ada","city":null,"__START_AT":3,"__END_AT":5}
{"id":1,"name":"Ada","city":"Bonn","__START_AT":5,"__END_AT":null}
{"id":2,"name":"Bob","city":"Oslo","__START_AT":2,"__END_AT":6}
`},
		{"scd2 ignoring nulls", []string{"--stored-as", "2", "--ignore-null-updates"}, `{"id":1,"name":"Ada","city":"Rome","__START_AT":1,"__END_AT":5}
{"id":1,"name":"Ada","city":"Bonn","__START_AT":5,"__END_AT":null}
{"id":2,"name":"Bob","city":"Oslo","__START_AT":2,"__END_AT":6}
`},
		{"scd2 tracking the name", []string{"--stored-as", "2", "--track-history=except:city"}, `{"id":1,"name":"Ada","city":"Bonn","__START_AT":1,"__END_AT":null}
{"id":2,"name":"Bob","city":"Oslo","__START_AT":2,"__END_AT":6}
`},
		{"bitemporal", []string{"--stored-as", "bitemporal", "--system-sequence-by", "seen"}, `{"id":1,"name":"Ada","city":"Rome","__START_AT":1,"__END_AT":null,"__SYSTEM_START_AT":10,"__SYSTEM_END_AT":12}
{"id":1,"name":"Ada","city":"Rome","__START_AT":1,"__END_AT":5,"__SYSTEM_START_AT":12,"__SYSTEM_END_AT":14}
{"id":1,"name":"Ada","city":"Rome","__START_AT":1,"__END_AT":3,"__SYSTEM_START_AT":14,"__SYSTEM_END_AT":null}
{"id":1,"name":"Ada","city":null,"__START_AT":3,"__END_AT":5,"__SYSTEM_START_AT":14,"__SYSTEM_END_AT":null}
{"id":1,"name":"Ada","city":"Bonn","__START_AT":5,"__END_AT":null,"__SYSTEM_START_AT":12,"__SYSTEM_END_AT":null}
{"id":2,"name":"Bob","city":"Oslo","__START_AT":2,"__END_AT":null,"__SYSTEM_START_AT":11,"__SYSTEM_END_AT":13}
{"id":2,"name":"Bob","city":"Oslo","__START_AT":2,"__END_AT":6,"__SYSTEM_START_AT":13,"__SYSTEM_END_AT":null}
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append(append([]string{}, base...), c.args...)
			must(t, dir, append(args, "--into", c.name)...)
			sameRows(t, c.name, must(t, dir, "cat", c.name, "-o", "jsonl"), c.want)
		})
	}
	t.Run("ignore-null-updates=on:city", func(t *testing.T) {
		must(t, dir, append(append([]string{}, base...), "--into", "fields", "--ignore-null-updates=on:city")...)
		sameRows(t, "fields", must(t, dir, "cat", "fields", "-o", "jsonl"), `{"id":1,"name":"Ada","city":"Bonn"}`+"\n")
	})
}

// Statements with history, field mode and an expectation.
func TestApply_HistoryStatements(t *testing.T) {
	dir := writeHistory(t)
	script := `CREATE STREAMING TABLE staff (CONSTRAINT has_city EXPECT (city IS NOT NULL) ON VIOLATION DROP ROW);
CREATE FLOW f AS AUTO CDC INTO staff FROM STREAM people KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY ts
COLUMNS * EXCEPT (op, ts, seen) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (name);`
	if err := os.WriteFile(filepath.Join(dir, "flow.sql"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	out := must(t, dir, "apply", "-f", "flow.sql", "--source", "people=people.jsonl", "-o", "json")
	var r apply.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if c := r.Expectations["has_city"]; c != (apply.ExpectationCount{Passed: 3, Failed: 1, Dropped: 1}) {
		t.Errorf("expectations %+v in %s", c, out)
	}
	sameRows(t, "staff", must(t, dir, "cat", "staff", "-o", "jsonl"), `{"id":1,"name":"Ada","city":"Rome","__START_AT":1,"__END_AT":3}
{"id":1,"name":"Ada","city":"Bonn","__START_AT":5,"__END_AT":null}
{"id":2,"name":"Bob","city":"Oslo","__START_AT":2,"__END_AT":6}
`)
}
