package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const peopleDDL = "id BIGINT NOT NULL, name STRING, score DECIMAL(20,2), born DATE"

// people makes a table with a change feed and three rows in two files.
func people(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, dir, "create", "people", "--schema", peopleDDL, "--property", "delta.enableChangeDataFeed=true")
	mustIn(t, dir, "{\"id\":1,\"name\":\"Ada\",\"score\":9007199254740993.10}\n", "append", "people", "--from", "-", "--format", "jsonl", "-o", "json")
	return dir
}

func TestTable_WriteAndRead(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "people", "--schema", peopleDDL, "--property", "delta.enableChangeDataFeed=true")
	var r writeResult
	out := mustIn(t, dir, "{\"id\":1,\"name\":\"Ada\",\"score\":12345678.90}\n{\"id\":2,\"born\":\"1815-12-10\"}\n", "append", "people", "--from", "-", "--format", "jsonl")
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Version != 1 || !r.Committed || r.Metrics["rows_inserted"] != 2 {
		t.Errorf("append: %s (%v)", out, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "more.csv"), []byte("name,id\n\"\",3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "append", "people", "--from", "more.csv")
	must(t, dir, "update", "people", "--set", "name = concat(name, '!')", "--where", "id IN (1, 3)")
	must(t, dir, "delete", "people", "--where", "born IS NOT NULL")

	const rows = "{\"id\":1,\"name\":\"Ada!\",\"score\":12345678.90,\"born\":null}\n{\"id\":3,\"name\":\"!\",\"score\":null,\"born\":null}\n"
	if got := must(t, dir, "cat", "people", "--order-by", "id"); got != rows {
		t.Errorf("cat:\n%s", got)
	}
	for _, c := range []struct{ args, want string }{
		{"--count", "{\"count\":2}\n"},
		{"--count --where id=3", "{\"count\":1}\n"},
		{"--columns name,id --where id=3 -o csv", "name,id\n!,3\n"},
		{"--version 1 --order-by id --columns id", "{\"id\":1}\n{\"id\":2}\n"},
		{"--version 0", ""},
		{"--limit 0", ""},
		{"--limit 1 --order-by id --columns id", "{\"id\":1}\n"},
		{"--columns id,name --order-by id -o table", "id  name\n--  ----\n 1  Ada!\n 3  !\n"},
		{"--columns id --order-by id -o json", "[\n{\"id\":1},\n{\"id\":3}\n]\n"},
		{"--where false -o json", "[]\n"},
	} {
		if got := must(t, dir, append([]string{"cat", "people"}, strings.Fields(c.args)...)...); got != c.want {
			t.Errorf("cat %s:\n%s", c.args, got)
		}
	}

	changes := must(t, dir, "changes", "people", "--from-version", "3", "--columns", "id,name", "-o", "csv")
	var kinds []string
	for _, line := range strings.Split(strings.TrimSpace(changes), "\n")[1:] {
		f := strings.Split(line, ",")
		kinds = append(kinds, strings.Join(f[:4], ","))
	}
	want := []string{"1,Ada,update_preimage,3", "1,Ada!,update_postimage,3", "3,\"\",update_preimage,3", "3,!,update_postimage,3", "2,,delete,4"}
	for _, w := range want {
		if !strings.Contains(strings.Join(kinds, "\n")+"\n", w+"\n") {
			t.Errorf("changes lack %s:\n%s", w, changes)
		}
	}
	if len(kinds) != len(want) {
		t.Errorf("%d changes, want %d:\n%s", len(kinds), len(want), changes)
	}

	history := must(t, dir, "log", "people", "-o", "csv")
	for i, op := range []string{"DELETE", "UPDATE", "WRITE", "WRITE", "CREATE TABLE"} {
		line := strings.Split(history, "\n")[i+1]
		if !strings.Contains(line, ","+op+",") {
			t.Errorf("history line %d: %s, want %s", i, line, op)
		}
	}
	if got := must(t, dir, "log", "people", "--version", "4", "--actions"); !strings.Contains(got, `{"commitInfo":`) || !strings.Contains(got, `{"cdc":`) {
		t.Errorf("actions: %s", got)
	}
}

func TestTable_FormsRoundTrip(t *testing.T) {
	dir := people(t)
	want := must(t, dir, "cat", "people")
	for _, ext := range []string{"parquet", "arrow", "csv", "jsonl"} {
		file := "rows." + ext
		if err := os.WriteFile(filepath.Join(dir, file), []byte(must(t, dir, "cat", "people", "-o", ext)), 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, dir, "create", "t_"+ext, "--schema", peopleDDL)
		must(t, dir, "append", "t_"+ext, "--from", file)
		if got := must(t, dir, "cat", "t_"+ext); got != want {
			t.Errorf("%s: got %s, want %s", ext, got, want)
		}
	}
}

func TestTable_Overwrite(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "t", "--schema", "p STRING, v INT", "--partition-by", "p")
	write := func(rows string, args ...string) ran {
		return sluiceIn(t, dir, rows, append([]string{args[0], "t", "--from", "-", "--format", "csv"}, args[1:]...)...)
	}
	read := func() string { return must(t, dir, "cat", "t", "--order-by", "p,v", "-o", "csv") }
	for _, step := range []struct {
		rows string
		args []string
		want string
	}{
		{"p,v\na,1\nb,2\n", []string{"append"}, "p,v\na,1\nb,2\n"},
		{"p,v\na,3\n", []string{"overwrite", "--dynamic"}, "p,v\na,3\nb,2\n"},
		{"p,v\nb,4\n", []string{"overwrite", "--where", "p = 'b'"}, "p,v\na,3\nb,4\n"},
		{"p,v\nc,5\n", []string{"overwrite"}, "p,v\nc,5\n"},
	} {
		if r := write(step.rows, step.args...); r.code != exitOK {
			t.Fatalf("%v: exit %d %s", step.args, r.code, r.stderr)
		}
		if got := read(); got != step.want {
			t.Errorf("%v: got %s, want %s", step.args, got, step.want)
		}
	}
	if r := write("p,v\nz,1\n", "overwrite", "--where", "p = 'c'"); r.code != exitRefused {
		t.Errorf("a row outside of --where: exit %d, %s", r.code, r.stderr)
	}
	if got := read(); got != "p,v\nc,5\n" {
		t.Errorf("after the refusal: %s", got)
	}
}

func TestTable_NothingToDo(t *testing.T) {
	dir := people(t)
	before := tree(t, dir)
	for _, args := range [][]string{{"delete", "people", "--where", "id = 99"}, {"update", "people", "--set", "name = 'x'", "--where", "false"}} {
		var r writeResult
		if err := json.Unmarshal([]byte(must(t, dir, args...)), &r); err != nil || r.Committed || r.Version != 1 {
			t.Errorf("%v: %+v, %v", args, r, err)
		}
	}
	if after := tree(t, dir); after != before {
		t.Errorf("something was written:\n%s\n%s", before, after)
	}
}

func TestTable_InspectAndCheckpoint(t *testing.T) {
	dir := people(t)
	must(t, dir, "checkpoint", "people")
	if _, err := os.Stat(filepath.Join(dir, "people", "_delta_log", "00000000000000000001.checkpoint.parquet")); err != nil {
		t.Error(err)
	}
	var r tableReport
	if err := json.Unmarshal([]byte(must(t, dir, "inspect", "people", "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Version != 1 || r.Files != 1 || r.Rows == nil || *r.Rows != 1 || r.Log.Checkpoint != 1 || !r.ChangeFeed.Enabled || *r.ChangeFeed.FromVersion != 0 || *r.ChangeFeed.ToVersion != 1 || len(r.Schema) != 4 || r.Schema[0].Nullable {
		t.Errorf("%+v", r)
	}
	text := must(t, dir, "inspect", "people", "-o", "table")
	for _, want := range []string{"columns           id BIGINT NOT NULL\n", "change feed       on, versions 0 to 1\n", "log               versions 0 to 1, checkpoint at 1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestTable_TimeZone(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "t", "--schema", "at TIMESTAMP")
	mustIn(t, dir, "at\n2024-05-01 10:00:00\n", "append", "t", "--from", "-", "--format", "csv", "--time-zone", "Europe/Berlin")
	if got := must(t, dir, "cat", "t"); got != "{\"at\":\"2024-05-01T08:00:00.000000Z\"}\n" {
		t.Errorf("got %s", got)
	}
}
