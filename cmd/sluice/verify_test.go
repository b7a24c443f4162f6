package main

import (
	"strings"
	"testing"
)

func TestVerify_Tables(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "e.jsonl", `{"id":1,"name":"Ann","n":1.5,"ts":1}`+"\n"+`{"id":2,"name":"Bob","n":null,"ts":2}`+"\n"+`{"id":3,"name":"Cy","n":0.5,"ts":3}`+"\n")
	must(t, dir, "apply", "--into", "t", "--from", "e.jsonl", "--keys", "id", "--sequence-by", "ts", "--columns", "id,name,n")
	must(t, dir, "cat", "t", "-o", "jsonl")
	put(t, dir, "same.jsonl", must(t, dir, "cat", "t", "-o", "jsonl"))
	must(t, dir, "verify", "t", "--against", "same.jsonl")
	must(t, dir, "verify", "t", "--against", "t")
	must(t, dir, "verify", "t", "--against", "e.jsonl", "--columns", "id,name")
	put(t, dir, "other.jsonl", `{"id":1,"name":"Anna","n":1.5}`+"\n"+`{"id":3,"name":"Cy","n":0.5}`+"\n"+`{"id":4,"name":"Di","n":null}`+"\n")
	r := sluice(t, dir, "verify", "t", "--against", "other.jsonl", "-o", "json")
	if r.code != exitRefused || !strings.Contains(r.stderr, "ROWS_DIFFER") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
	out := strings.ReplaceAll(r.stdout, " ", "")
	for _, want := range []string{`"equal":false`, `"missing":["id=4"]`, `"extra":["id=2"]`, `"differing":["id=1"]`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, r.stdout)
		}
	}
	refused(t, sluice(t, dir, "verify", "t"), exitUsage, "MISSING_FLAG")
	refused(t, sluice(t, dir, "verify", "t", "--against", "-"), exitUsage, "INVALID_FLAG")
	refused(t, sluice(t, dir, "verify", "t", "--against", "same.jsonl", "--columns", "nothing"), exitUsage, "COLUMN_NOT_FOUND")
}

func TestExplain_Command(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "e.jsonl", `{"id":1,"name":"Ann","op":"I","ts":1}`+"\n"+`{"id":1,"op":"D","ts":4}`+"\n"+`{"id":1,"name":"late","op":"U","ts":3}`+"\n")
	must(t, dir, "apply", "--into", "t", "--from", "e.jsonl", "--keys", "id", "--sequence-by", "ts", "--except-columns", "op,ts")
	out := must(t, dir, "explain", "t", "--key", "id=1", "-o", "json")
	if flat := strings.ReplaceAll(out, " ", ""); !strings.Contains(flat, `"sequence":"4"`) || !strings.Contains(flat, `"fate":"won"`) {
		t.Errorf("explain: %s", out)
	}
	refused(t, sluice(t, dir, "explain", "t"), exitUsage, "MISSING_FLAG")
	refused(t, sluice(t, dir, "explain", "t", "--key", "id"), exitUsage, "INVALID_FLAG")
	refused(t, sluice(t, dir, "explain", "t", "--key", "id=x"), exitUsage, "INVALID_OPTION")
}
