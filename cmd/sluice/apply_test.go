package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/internal/demodata"
)

// writeEvents puts the bundled corpus, or its first lines, into dir/events.jsonl.
func writeEvents(t testing.TB, dir string, lines int) string {
	t.Helper()
	events, err := demodata.Events()
	if err != nil {
		t.Fatal(err)
	}
	if lines > 0 {
		events = events[:nthLine(events, lines)]
	}
	file := filepath.Join(dir, "events.jsonl")
	if err := os.WriteFile(file, events, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// sameRows compares rows as JSON values, in any order.
func sameRows(t testing.TB, name, got, want string) {
	t.Helper()
	norm := func(text string) []string {
		var out []string
		for line := range strings.Lines(text) {
			var v map[string]json.RawMessage
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			for k, raw := range v {
				v[k] = json.RawMessage(strings.ReplaceAll(string(raw), ", ", ","))
			}
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
		sort.Strings(out)
		return out
	}
	g, w := norm(got), norm(want)
	if strings.Join(g, "\n") != strings.Join(w, "\n") {
		t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
}

func TestApply_BundledCorpus(t *testing.T) {
	for _, batch := range []string{"100000", "7", "1", "7 --deletion-vectors on"} {
		t.Run("batches of "+batch, func(t *testing.T) {
			dir := t.TempDir()
			writeEvents(t, dir, 0)
			args := append([]string{"apply", "--into", "out/{table}", "--from", "events.jsonl", "--batch-rows"}, strings.Fields(batch)...)
			var r apply.Result
			if err := json.Unmarshal([]byte(must(t, dir, args...)), &r); err != nil {
				t.Fatal(err)
			}
			if len(r.Targets) != 3 || r.Events.Read == 0 || r.Events.Poison != 0 {
				t.Errorf("result: %+v", r)
			}
			for _, table := range demodata.Tables() {
				want, err := demodata.Expected(table)
				if err != nil {
					t.Fatal(err)
				}
				sameRows(t, table, must(t, dir, "cat", "out/"+table), string(want))
			}
			if vectors, _ := filepath.Glob(filepath.Join(dir, "out/*/deletion_vector_*.bin")); (len(vectors) > 0) != strings.HasSuffix(batch, "on") {
				t.Errorf("%d files of deletion vectors", len(vectors))
			}
			before := tree(t, filepath.Join(dir, "out"))
			if err := json.Unmarshal([]byte(must(t, dir, args...)), &r); err != nil || r.Events.Read != 0 || r.Batches != 0 {
				t.Errorf("second run: %+v, %v", r, err)
			}
			if after := tree(t, filepath.Join(dir, "out")); after != before {
				t.Errorf("the second run wrote:\n%s\n%s", before, after)
			}
		})
	}
}

func TestApply_OneTableGrowingFile(t *testing.T) {
	dir := t.TempDir()
	args := []string{"apply", "--into", "orders", "--from", "events.jsonl", "--table", "orders"}
	for _, lines := range []int{demodata.SnapshotLines, 30, 0} {
		writeEvents(t, dir, lines)
		must(t, dir, args...)
	}
	want, err := demodata.Expected("orders")
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, "orders", must(t, dir, "cat", "orders"), string(want))
}

func TestApply_PlainRows(t *testing.T) {
	dir := t.TempDir()
	rows := "{\"id\":1,\"name\":\"Ada\",\"op\":\"I\",\"ts\":1}\n{\"id\":2,\"name\":\"Bob\",\"op\":\"I\",\"ts\":2}\n{\"id\":1,\"name\":\"Ada L.\",\"op\":\"U\",\"ts\":3}\n{\"id\":2,\"op\":\"D\",\"ts\":4}\n"
	args := []string{"apply", "--into", "people", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--except-columns", "op,ts"}
	mustIn(t, dir, rows, args...)
	if got := must(t, dir, "cat", "people"); got != "{\"id\":1,\"name\":\"Ada L.\"}\n" {
		t.Errorf("got %s", got)
	}
	mustIn(t, dir, rows, args...) // sending it again is harmless
	if got := must(t, dir, "cat", "people", "--count"); got != "{\"count\":1}\n" {
		t.Errorf("got %s", got)
	}
}

func TestApply_HostileTableNames(t *testing.T) {
	dir := t.TempDir()
	event := func(table string, lsn string) string {
		source, err := json.Marshal(map[string]any{"connector": "postgresql", "db": "d", "schema": "s", "table": table, "lsn": json.Number(lsn), "sequence": "[null,\"" + lsn + "\"]", "snapshot": "false"})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := json.Marshal(map[string]any{"topic": "t", "partition": 0, "offset": json.Number(lsn), "key": map[string]any{"id": 1},
			"value": map[string]any{"op": "c", "before": nil, "after": map[string]any{"id": 1}, "source": json.RawMessage(source), "ts_ms": 1}})
		if err != nil {
			t.Fatal(err)
		}
		return string(rec) + "\n"
	}
	in := event("../x", "10") + event("..", "11") + event("_delta_log", "12") + event("a/b", "13") + event(".hidden", "14")
	mustIn(t, dir, in, "apply", "--into", "sub/out/{table}", "--from", "-", "--format", "debezium")
	for _, name := range []string{"%2E.%2Fx", "%2E.", "%5Fdelta_log", "a%2Fb", "%2Ehidden"} {
		if got := must(t, dir, "cat", "sub/out/"+name, "--count"); got != "{\"count\":1}\n" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("files beside the target: %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "sub")); err != nil || len(entries) != 1 {
		t.Errorf("files above the targets: %v, %v", entries, err)
	}
	two := event("t", "10") + strings.ReplaceAll(event("t", "11"), `\"schema\":\"s\"`, `\"schema\":\"s2\"`) + strings.Replace(event("t", "12"), `"schema":"s"`, `"schema":"s2"`, 1)
	r := sluiceIn(t, dir, two, "apply", "--into", "clash/{table}", "--from", "-", "--format", "debezium")
	if r.code == exitOK || !strings.Contains(r.stderr, apply.CodeTargetClash) || !strings.Contains(r.stderr, "{schema}") {
		t.Errorf("two tables on one directory: exit %d, %s", r.code, r.stderr)
	}
}

func TestApply_Refusals(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, 0)
	must(t, dir, "create", "table", "--schema", "id BIGINT")
	row := "{\"id\":1,\"name\":\"Ada\",\"ts\":1}\n"
	for _, c := range []struct {
		name, stdin string
		args        []string
		exit        int
		code        string
	}{
		{"missing key", row, []string{"--from", "-", "--format", "rows", "--sequence-by", "ts"}, exitUsage, "AUTOCDC_EMPTY_KEYS"},
		{"missing sequence", row, []string{"--from", "-", "--format", "rows", "--keys", "id"}, exitUsage, "AUTOCDC_MISSING_SEQUENCE_BY"},
		{"null key", "{\"id\":null,\"ts\":1,\"op\":\"I\"}\n", []string{"--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts"}, exitRefused, ""},
		{"null sequence", row + "{\"id\":2,\"ts\":null}\n", []string{"--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts"}, exitRefused, ""},
		{"unreadable event", row + "{broken\n", []string{"--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts"}, exitRefused, ""},
		{"several tables", "", []string{"--from", "events.jsonl"}, exitRefused, "AMBIGUOUS_TABLE"},
		{"unknown key column", row, []string{"--from", "-", "--format", "rows", "--keys", "nope", "--sequence-by", "ts"}, 0, ""},
		{"missing input", "", []string{"--from", "none.jsonl"}, exitNotFound, "NOT_FOUND"},
		{"unknown format", row, []string{"--from", "-", "--format", "xml"}, exitUsage, "UNKNOWN_FORMAT"},
		{"unknown option", row, []string{"--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--option", "x=1"}, exitUsage, "BAD_OPTION"},
		{"a Delta table as source", "", []string{"--from", "table"}, exitUsage, "KEYS_NEEDED"},
		{"no events", "", []string{"--from", "-"}, exitUsage, "FORMAT_UNCLEAR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sluiceIn(t, dir, c.stdin, append([]string{"apply", "--into", "t"}, c.args...)...)
			if r.code == exitOK || c.exit != 0 && r.code != c.exit || c.code != "" && !strings.HasPrefix(r.stderr, "sluice: "+c.code+": ") || strings.HasPrefix(r.stderr, "sluice: INTERNAL") {
				t.Errorf("exit %d, %s%s", r.code, r.stdout, r.stderr)
			}
			if got := sluice(t, dir, "cat", "t", "--count"); got.code == exitOK && got.stdout != "{\"count\":0}\n" {
				t.Errorf("rows were written: %s", got.stdout)
			}
		})
	}
}

func TestApply_DryRun(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, 0)
	before := tree(t, dir)
	var r apply.Result
	if err := json.Unmarshal([]byte(must(t, dir, "apply", "--into", "out/{table}", "--from", "events.jsonl", "--dry-run")), &r); err != nil || r.Rows.Inserted == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if after := tree(t, dir); after != before {
		t.Errorf("a dry run wrote:\n%s\n%s", before, after)
	}
}

func TestDemo_ShowsEverything(t *testing.T) {
	dir := t.TempDir()
	out := must(t, dir, "demo", "shop")
	for _, want := range []string{"Batch 1", "Batch 2", "update_preimage", "update_postimage", "delete", "insert", "Céline Roux", "CREATE TABLE", "Try next", "sluice cat", "changes", "apply --from"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
	want, err := demodata.Expected("customers")
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, "customers", must(t, dir, "cat", "shop/customers"), string(want))
	refused(t, sluice(t, dir, "demo", "shop"), exitRefused, "DIRECTORY_NOT_EMPTY")
}

func TestApply_StateAndQuarantineElsewhere(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, demodata.SnapshotLines)
	bad := "{\"topic\":\"shop.public.orders\",\"partition\":0,\"offset\":9999,\"key\":{\"id\":1},\"value\":{\"op\":\"z\",\"source\":{\"connector\":\"postgresql\",\"schema\":\"public\",\"table\":\"orders\",\"db\":\"shop\"}}}\n"
	if err := os.WriteFile(filepath.Join(dir, "bad.jsonl"), []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"apply", "--into", "out/{table}", "--from", "events.jsonl", "--state", "elsewhere", "--quarantine", "poison"}
	must(t, dir, args...)
	r := sluice(t, dir, append(args, "--from", "bad.jsonl")...)
	if r.code != exitOK || !strings.Contains(r.stderr, "warning: 1 events could not be applied") {
		t.Errorf("exit %d, %s%s", r.code, r.stdout, r.stderr)
	}
	for _, table := range demodata.Tables() {
		if _, err := os.Stat(filepath.Join(dir, "elsewhere", table, "state", "_delta_log")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "out", table, "_apply", "state")); err == nil {
			t.Errorf("%s: state also in the target", table)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "poison", "orders", "*")); err != nil || len(files) == 0 {
		t.Errorf("nothing in quarantine: %v, %v", files, err)
	}
	refused(t, sluice(t, dir, "apply", "--into", "out/orders", "--from", "events.jsonl", "--table", "orders"), exitRefused, apply.CodeStatePathMismatch)
}

// TestApply_EmptyPartitionValue: a partition value cannot tell an empty text from
// null, so an event with one is the same event when it comes again, and as a key
// it is none.
func TestApply_EmptyPartitionValue(t *testing.T) {
	dir := t.TempDir()
	args := []string{"apply", "--into", "t", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--except-columns", "ts"}
	event := "{\"id\":1,\"p\":\"\",\"n\":1,\"ts\":1}\n"
	mustIn(t, dir, event, append(args, "--partition-by", "p")...)
	before := must(t, dir, "log", "t")
	mustIn(t, dir, event, append(args, "--flow", "again")...)
	if feed := must(t, dir, "changes", "t", "--from-version", "0"); strings.Contains(feed, "update_") {
		t.Errorf("the same event again gives\n%s\nafter\n%s", feed, before)
	}
	if got := must(t, dir, "cat", "t"); got != "{\"id\":1,\"p\":null,\"n\":1}\n" {
		t.Errorf("got %s", got)
	}
	r := sluiceIn(t, dir, "{\"id\":\"\",\"n\":1,\"ts\":1}\n", "apply", "--into", "k", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--partition-by", "id")
	if r.code != exitRefused || !strings.Contains(r.stderr, "NULL_KEY") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}

// TestApply_ChosenTables: of a stream of several tables, patterns choose.
func TestApply_ChosenTables(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, demodata.SnapshotLines)
	must(t, dir, "apply", "--into", "out/{schema}/{table}", "--from", "events.jsonl", "--include-tables", "*.order*,customers", "--exclude-tables", "*_lines")
	got, err := filepath.Glob(filepath.Join(dir, "out", "[a-z]*", "*", "_delta_log"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got {
		names = append(names, filepath.Base(filepath.Dir(p)))
	}
	if strings.Join(names, " ") != "customers orders" {
		t.Errorf("tables %q", names)
	}
	refused(t, sluice(t, dir, "apply", "--into", "x/{table}", "--from", "events.jsonl", "--include-tables", "[a"), exitUsage, "INVALID_OPTION")
	refused(t, sluice(t, dir, "apply", "--into", "x/{table}", "--from", "events.jsonl", "--include-tables", "a", "--table", "b"), exitUsage, "INVALID_FLAG")
}
