package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

func TestDetect_BundledCorpus(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, 0)
	var r lookResult
	if err := json.Unmarshal([]byte(must(t, dir, "detect", "events.jsonl")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Format != "debezium" || len(r.Tables) < 2 || len(r.Poison) != 0 {
		t.Errorf("%+v", r)
	}
	for _, table := range r.Tables {
		if len(table.Keys) == 0 || len(table.Sequence) == 0 || table.Schema == "" || string(table.Sample) == "null" {
			t.Errorf("%+v", table)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("detect left %v", files)
	}
	text := must(t, dir, "detect", "events.jsonl", "-o", "table")
	if !strings.Contains(text, "format    debezium") || !strings.Contains(text, "keys      ") {
		t.Error(text)
	}
}

func TestDetect_SaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(file, []byte("{\"id\":1,\"name\":\"a\",\"op\":\"I\"}\n{\"id\":2,\"op\":\"Q\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := must(t, dir, "detect", "rows.jsonl", "-o", "table", "--format", "rows")
	for _, want := range []string{"needs --keys", "needs --sequence-by"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestApply_ChainedTables: a target of apply is the source of the next one.
func TestApply_ChainedTables(t *testing.T) {
	dir := t.TempDir()
	for _, lines := range []int{20, 60, 0} {
		writeEvents(t, dir, lines)
		must(t, dir, "apply", "--into", "orders", "--from", "events.jsonl", "--table", "orders")
		must(t, dir, "apply", "--into", "copy", "--from", "orders", "--keys", "id")
		sameRows(t, "copy", must(t, dir, "cat", "copy"), must(t, dir, "cat", "orders"))
	}
	before := must(t, dir, "log", "copy")
	must(t, dir, "apply", "--into", "copy", "--from", "orders", "--keys", "id")
	if after := must(t, dir, "log", "copy"); after != before {
		t.Errorf("nothing new, but\n%s", after)
	}
	if r := sluice(t, dir, "apply", "--into", "c3", "--from", "orders", "--keys", "id", "--sequence-by", "total"); r.code != exitUsage || !strings.Contains(r.stderr, "AUTOCDC_CHANGELOG_REQUIRES_COMMIT_VERSION_SEQUENCING") {
		t.Error(r.code, r.stderr)
	}
	must(t, dir, "apply", "--into", "c4", "--from", "orders", "--keys", "id", "--sequence-by", "_commit_version")
	sameRows(t, "c4", must(t, dir, "cat", "c4"), must(t, dir, "cat", "orders"))
	if r := sluice(t, dir, "apply", "--into", "c2", "--from", "orders"); r.code != exitUsage || !strings.Contains(r.stderr, "KEYS_NEEDED") {
		t.Error(r.code, r.stderr)
	}
}

// TestDetect_TableAndFiles: a table is looked at without keys, which apply asks for;
// files without header are told apart by --schema.
func TestDetect_TableAndFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "orders", "--schema", "id BIGINT, v STRING", "--property", "delta.enableChangeDataFeed=true")
	mustIn(t, dir, "{\"id\":1,\"v\":\"x\"}\n", "append", "orders", "--from", "-", "--format", "jsonl")
	if out := must(t, dir, "detect", "orders"); !strings.Contains(out, "delta") || !strings.Contains(out, "orders") {
		t.Errorf("detect of a table: %s", out)
	}
	if err := os.WriteFile(filepath.Join(dir, "20240517-083015123.csv"), []byte("U,1,x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := sluice(t, dir, "detect", "20240517-083015123.csv"); r.code == 0 || !strings.Contains(r.stderr, "--schema") {
		t.Errorf("without columns: %d %s", r.code, r.stderr)
	}
	if out := must(t, dir, "detect", "20240517-083015123.csv", "--schema", "id BIGINT, v STRING", "--keys", "id"); !strings.Contains(out, "dms") {
		t.Errorf("with columns: %s", out)
	}
}

// TestDetect_EveryCorpus: detect says something of every recorded stream, and never
// that it is broken itself.
func TestDetect_EveryCorpus(t *testing.T) {
	var dirs []string
	for _, pattern := range []string{"corpora/foreign/*/*", "corpora/producers/*", "corpora/debezium/*"} {
		dirs = append(dirs, testenv.SharedFiles(t, strings.Split(pattern, "/")...)...)
	}
	if len(dirs) == 0 {
		testenv.SharedDir(t, "corpora")
	}
	tmp := t.TempDir()
	for _, dir := range dirs {
		var files []string
		for _, name := range []string{"events*.jsonl*", "*.csv"} {
			found, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, found...)
		}
		if len(files) == 0 {
			continue
		}
		r := sluice(t, tmp, append([]string{"detect", "-o", "table"}, files...)...)
		if strings.Contains(r.stderr, "INTERNAL") || r.code == 0 && !strings.Contains(r.stdout, "format    ") || r.code != 0 && !strings.Contains(r.stderr, "FORMAT_UNCLEAR") && !strings.Contains(r.stderr, "header=false") {
			t.Errorf("%s: %d\n%s%s", dir, r.code, r.stdout, r.stderr)
		}
	}
}

// TestDetect_Doubts: input that only looks like plain rows is said to.
func TestDetect_Doubts(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"message.jsonl": {`{"key":{"id":1},"value":{"id":1,"v":"x"}}`, "lack topic, partition and offset"},
		"base64.jsonl":  {`{"value_b64":"AAAAAFEAAgI="}`, "lack topic, partition and offset"},
		"bare.csv":      {"I,1,x\nU,1,y", "begins with the operation I"},
		"op.csv":        {"Op,id,v\nI,1,x\nU,1,y", "--format dms"},
		"people.csv":    {"I,id\nMarcus,1", ""},
		"rows.jsonl":    {`{"key":1,"value":2,"name":"x"}`, ""},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		text := must(t, dir, "detect", name, "-o", "table")
		if c.want == "" && (strings.Contains(text, "lack topic") || strings.Contains(text, "operation")) || !strings.Contains(text, c.want) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	var line strings.Builder
	for _, row := range []string{`{"id":1,"a":1}`, `{"id":1,"b":2}`} {
		line.WriteString(`{"database":"d","table":"t","type":"insert","ts":1,"data":` + row + "}\n")
	}
	if err := os.WriteFile(filepath.Join(dir, "later.jsonl"), []byte(line.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	// A column that appears later is no column of the first row.
	if text := must(t, dir, "detect", "later.jsonl", "-o", "table"); !strings.Contains(text, `sample    {"id":1,"a":1}`) || !strings.Contains(text, "2 inserts") {
		t.Error(text)
	}
}

// A flow keeps the format that was detected when it began: records of another one are
// refused by name, and only the user changes it (issue: never detected anew in silence).
func TestApply_KeepsFormat(t *testing.T) {
	change := `{"op":"c","before":null,"after":{"id":1,"name":"Ann"},"source":{"connector":"postgresql","schema":"public","table":"a","db":"d","lsn":1}}` + "\n"
	for _, into := range []string{"t", "many/{table}"} {
		t.Run(into, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "a.jsonl", change)
			put(t, dir, "b.jsonl", `{"id":2,"op":"I","ts":1}`+"\n")
			put(t, dir, "empty.jsonl", "")
			must(t, dir, "apply", "--into", into, "--from", "a.jsonl", "--keys", "id")
			refused(t, sluice(t, dir, "apply", "--into", into, "--from", "b.jsonl", "--keys", "id"), exitUsage, "FORMAT_CHANGED")
			must(t, dir, "apply", "--into", into, "--from", "empty.jsonl", "--keys", "id")
			put(t, dir, "c.jsonl", "{\"broken\n")
			r := sluice(t, dir, "apply", "--into", into, "--from", "c.jsonl", "--keys", "id")
			if r.code != exitOK || !strings.Contains(r.stderr, "lie in quarantine") {
				t.Errorf("what is of no format goes to the decoder that the flow keeps: exit %d, %s", r.code, r.stderr)
			}
		})
	}
	dir := t.TempDir()
	put(t, dir, "a.jsonl", `{"id":1,"name":"Ann","ts":1}`+"\n")
	put(t, dir, "b.jsonl", change)
	args := []string{"apply", "--into", "t", "--keys", "id", "--sequence-by", "ts", "--from"}
	must(t, dir, append(args, "a.jsonl")...)
	if got := must(t, dir, "inspect", "t", "-o", "table"); !strings.Contains(got, "format rows") {
		t.Errorf("inspect: %s", got)
	}
	refused(t, sluice(t, dir, append(args, "b.jsonl")...), exitUsage, "FORMAT_CHANGED")
	put(t, dir, "c.jsonl", `{"id":1,"name":"Anna","ts":2}`+"\n")
	must(t, dir, append(args, "c.jsonl", "--format", "rows")...) // named: never looked at again
	put(t, dir, "d.jsonl", `{"id":2,"ts":3,"op":"c","after":{"id":9},"source":{"lsn":1}}`+"\n")
	must(t, dir, append(args, "d.jsonl")...)
}
