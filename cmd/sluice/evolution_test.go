package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApply_SchemaEvolution: the modes of cdc-formats 20 by a new column and a changed type.
func TestApply_SchemaEvolution(t *testing.T) {
	const first = `{"id":1,"n":1,"ts":1}` + "\n"
	const later = `{"id":1,"n":2,"ts":2,"x":1.10}` + "\n" + `{"id":2,"n":"many","ts":3}` + "\n"
	for mode, want := range map[string]string{
		"addNewColumns": `{"id":1,"n":2,"x":1.10,"_rescued_data":null}` + "\n" + `{"id":2,"n":null,"x":null,"_rescued_data":"{\"n\":\"many\"}"}` + "\n",
		"rescue":        `{"id":1,"n":2,"_rescued_data":"{\"x\":1.10}"}` + "\n" + `{"id":2,"n":null,"_rescued_data":"{\"n\":\"many\"}"}` + "\n",
		"none":          `{"id":1,"n":2}` + "\n" + `{"id":2,"n":null}` + "\n",
	} {
		t.Run("Files.G "+mode, func(t *testing.T) {
			for _, into := range []string{"t", "lake/{table}"} {
				dir := t.TempDir()
				run := func(text string) ran {
					for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
						text = strings.Replace(text, line, `{"topic":"t","partition":0,"offset":1,"key":null,"value":`+line+`}`, 1)
					}
					return sluiceIn(t, dir, text, "apply", "--into", into, "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--except-columns", "ts", "--schema-evolution", mode)
				}
				if r := run(first); r.code != 0 {
					t.Fatalf("exit %d: %s", r.code, r.stderr)
				}
				r := run(later)
				if r.code != 0 {
					t.Fatalf("exit %d: %s", r.code, r.stderr)
				}
				if mode == "none" && (!strings.Contains(r.stderr, `"x" is not in the target`) || !strings.Contains(r.stderr, "do not fit")) {
					t.Errorf("no warning of what is lost: %s", r.stderr)
				}
				where := "t"
				if into != "t" {
					where = "lake/t"
				}
				if got := must(t, dir, "cat", where, "--order-by", "id"); got != want {
					t.Errorf("%s: got\n%swant\n%s", into, got, want)
				}
			}
		})
	}
}

// TestApply_FailOnNewColumns: one table stops with what to do, the other goes on, and
// nothing of the first is lost.
func TestApply_FailOnNewColumns(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	rec := func(topic, value string) string {
		return `{"topic":"` + topic + `","partition":0,"offset":1,"key":null,"value":` + value + "}\n"
	}
	text := rec("a", `{"id":1,"ts":1}`) + rec("b", `{"id":1,"ts":1}`)
	args := []string{"apply", "--into", "lake/{table}", "--from", "in.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--schema-evolution", "failOnNewColumns"}
	write := func() {
		t.Helper()
		if err := os.WriteFile(in, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	must(t, dir, args...)
	text += rec("a", `{"id":2,"ts":2,"new":"x"}`) + rec("b", `{"id":2,"ts":2}`)
	write()
	r := sluice(t, dir, args...)
	for _, x := range []string{"UNKNOWN_FIELD", `"new"`, "add-column", "lake/a", "1 of 2"} {
		if r.code != exitRefused || !strings.Contains(r.stderr, x) {
			t.Errorf("exit %d without %s: %s", r.code, x, r.stderr)
		}
	}
	if got := must(t, dir, "cat", "lake/b", "--count"); got != "{\"count\":2}\n" {
		t.Errorf("b: %s", got)
	}
	must(t, dir, "alter", "lake/a", "add-column", "new STRING")
	must(t, dir, args...)
	if got := must(t, dir, "cat", "lake/a", "--order-by", "id"); got != `{"id":1,"ts":1,"new":null}`+"\n"+`{"id":2,"ts":2,"new":"x"}`+"\n" {
		t.Errorf("a: %s", got)
	}
}

// TestApply_SchemaHints: a hint goes before what the source says, columns of hints are
// there from the start, and what does not fit is kept aside.
func TestApply_SchemaHints(t *testing.T) {
	dir := t.TempDir()
	text := `{"id":1,"sum":"1.5","day":"2024-05-01","ts":1}` + "\n" + `{"id":2,"sum":"plenty","day":"someday","ts":1}` + "\n"
	args := []string{"apply", "--into", "t", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--except-columns", "ts", "--schema-hints", "sum DECIMAL(10,2), day DATE, note STRING"}
	mustIn(t, dir, text, args...)
	want := `{"id":1,"sum":1.50,"day":"2024-05-01","note":null,"_rescued_data":null}` + "\n" +
		`{"id":2,"sum":null,"day":null,"note":null,"_rescued_data":"{\"sum\":\"plenty\",\"day\":\"someday\"}"}` + "\n"
	if got := must(t, dir, "cat", "t", "--order-by", "id", "--columns", "id,sum,day,note,_rescued_data"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	refusedWith(t, sluiceIn(t, dir, text, append(args[:len(args)-1:len(args)-1], "a.b INT")...), exitUsage, "INVALID_SCHEMA", "--schema-hints")
}

// TestApply_DeclaredAndRescue: beyond --schema columns are new from the first record on.
func TestApply_DeclaredAndRescue(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, `{"id":1,"n":"x","more":true,"ts":1}`+"\n", "apply", "--into", "t", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--except-columns", "ts",
		"--schema", "id BIGINT, n INT, later STRING, ts BIGINT", "--schema-evolution", "rescue")
	if got := must(t, dir, "cat", "t"); got != `{"id":1,"n":null,"later":null,"_rescued_data":"{\"n\":\"x\",\"more\":true}"}`+"\n" {
		t.Errorf("got %s", got)
	}
}
