package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuarantine_Statements: what a flow of statements set aside goes back through them.
func TestQuarantine_Statements(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("e.jsonl", strings.Repeat(`{"id":1,"name":"Ada","op":"I","ts":1}`+"\n", 30)+`{"id":2,"name":"Bob","op":"I","ts":2`+"\n"+`{"id":1,"name":"Ada L.","op":"U","ts":3}`+"\n")
	write("flow.sql", "create streaming table hr.staff; create streaming table other;\napply changes into hr.staff from stream(people) keys (id) apply as delete when op = 'D' sequence by ts columns * except (op, ts);\n"+
		"apply changes into other from stream(people) keys (id) sequence by ts")
	must(t, dir, "apply", "-f", "flow.sql", "--source", "people=e.jsonl", "--into", "lake", "--on-poison", "quarantine")
	var bad struct{ ID, Value string }
	if err := json.Unmarshal([]byte(must(t, dir, "quarantine", "show", "lake/hr/staff")), &bad); err != nil {
		t.Fatal(err)
	}
	good, err := json.Marshal(map[string]string{"id": bad.ID, "value": bad.Value + "}"})
	if err != nil {
		t.Fatal(err)
	}
	write("good.jsonl", string(good)+"\n")
	replay := []string{"quarantine", "replay", "lake/hr/staff", "--repaired", "good.jsonl", "-f", "flow.sql", "--source", "people=e.jsonl"}
	refused(t, sluice(t, dir, append(replay, "--keys", "id")...), exitUsage, "INVALID_FLAG")
	if r := sluice(t, dir, append([]string{"quarantine", "replay", "lake/other2"}, replay[3:]...)...); r.code == 0 {
		t.Errorf("a table that is not there: %s", r.stdout)
	}
	must(t, dir, replay...)
	if got := must(t, dir, "cat", "lake/hr/staff", "--order-by", "id"); got != `{"id":1,"name":"Ada L."}`+"\n"+`{"id":2,"name":"Bob"}`+"\n" {
		t.Errorf("got %s", got)
	}
	if got := must(t, dir, "quarantine", "list", "lake/hr/staff"); strings.Contains(got, bad.ID) {
		t.Errorf("left %s", got)
	}
}
