package main

import (
	"strings"
	"testing"
)

const visits = `{"id":1,"name":"Ann","city":"Rome","ts":1}
{"id":2,"name":"Bob","city":"Oslo","ts":2}
{"id":null,"op":"T","ts":3}
{"id":3,"name":"Cy","city":"Lima","ts":4}
`

// TestStatements_TruncateAndDeclared: a truncate needs no key, and a declared column
// that no record has yet is no error; its type is that of the declaration.
func TestStatements_E15_TruncateAndDeclared(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", visits)
	write(t, dir, "f.sql", `create or refresh streaming table v (id bigint, name string, born date, city string);
apply changes into v from stream(src) keys (ID) apply as truncate when OP = 'T' sequence by ts columns * except (op, ts);`)
	out := must(t, dir, "apply", "-f", "f.sql", "--source", "src=a.jsonl", "--dry-run")
	if !strings.Contains(out, "born DATE") {
		t.Errorf("dry run: %s", out)
	}
	must(t, dir, "apply", "-f", "f.sql", "--source", "src=a.jsonl")
	write(t, dir, "b.jsonl", `{"id":3,"name":null,"born":"1999-12-31","city":null,"ts":5,"op":null}`+"\n")
	must(t, dir, "apply", "-f", "f.sql", "--source", "src=b.jsonl")
	if got := must(t, dir, "cat", "v"); got != `{"id":3,"name":null,"born":"1999-12-31","city":null}`+"\n" {
		t.Error(got)
	}
	must(t, dir, "apply", "--into", "byflags", "--from", "a.jsonl", "--keys", "Id", "--sequence-by", "TS", "--apply-as-truncates", "op = 'T'", "--except-columns", "OP,ts")
	if got := must(t, dir, "cat", "byflags"); got != `{"id":3,"name":"Cy","city":"Lima"}`+"\n" {
		t.Error(got)
	}
	// The same of CSV, whose values are text until a declaration says otherwise.
	write(t, dir, "c.csv", "id,name,born,city,ts,op\n3,Cy,1999-12-31,,1,\n")
	write(t, dir, "c.sql", strings.ReplaceAll(`create or refresh streaming table c (id bigint, name string, born date, city string);
apply changes into c from stream(src) keys (id) apply as truncate when op = 'T' sequence by cast(ts as bigint) columns * except (op, ts);`, "\n", " "))
	must(t, dir, "apply", "-f", "c.sql", "--source", "src=c.csv")
	if got := must(t, dir, "cat", "c"); got != `{"id":3,"name":"Cy","born":"1999-12-31","city":null}`+"\n" {
		t.Error(got)
	}
}

// TestStatements_UnknownKey: a key that no record has is told with its place.
func TestStatements_UnknownKey(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", visits)
	write(t, dir, "f.sql", "create streaming table v;\napply changes into v from stream(src) keys (nosuch) sequence by ts;")
	r := sluice(t, dir, "apply", "-f", "f.sql", "--source", "src=a.jsonl")
	refused(t, r, exitUsage, "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA")
	if !strings.Contains(r.stderr, "f.sql:2:45") || !strings.Contains(r.stderr, "columns there: id, name, city, ts") {
		t.Error(r.stderr)
	}
	r = sluice(t, dir, "apply", "--into", "t", "--from", "a.jsonl", "--keys", "nosuch", "--sequence-by", "ts", "--option", "op_column=none")
	refused(t, r, exitUsage, "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA")
	if !strings.Contains(r.stderr, "id, name, city, ts") {
		t.Error(r.stderr)
	}
}

// TestApply_NothingToRead: what is not there is NOT_FOUND, what is empty is empty.
func TestApply_NothingToRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "empty.jsonl", "")
	args := func(into, from string, more ...string) []string {
		return append([]string{"apply", "--into", into, "--from", from, "--keys", "id", "--sequence-by", "ts"}, more...)
	}
	refused(t, sluice(t, dir, args("t", "no*.jsonl")...), exitNotFound, "NOT_FOUND")
	refused(t, sluice(t, dir, args("t", "no*.jsonl", "--format", "rows")...), exitNotFound, "NOT_FOUND")
	refused(t, sluice(t, dir, args("t", "empty.jsonl")...), exitUsage, "FORMAT_UNCLEAR")
	must(t, dir, args("t", "empty.jsonl", "--format", "rows")...)
	write(t, dir, "in-1.jsonl", `{"id":1,"ts":1}`+"\n")
	must(t, dir, args("t", "in-*.jsonl")...)
	must(t, dir, args("t", "empty.jsonl")...)
	write(t, dir, "f.sql", "create streaming table v; apply changes into v from stream(src) keys (id) sequence by ts;")
	must(t, dir, "apply", "-f", "f.sql", "--source", "src=in-*.jsonl")
	must(t, dir, "apply", "-f", "f.sql", "--source", "src=empty.jsonl")
	if got := must(t, dir, "cat", "v"); got != `{"id":1,"ts":1}`+"\n" {
		t.Error(got)
	}
}

// TestApply_NoSuchTable names the tables that the stream has.
func TestApply_NoSuchTable(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, 0)
	for _, into := range []string{"t", "out/{table}"} {
		r := sluice(t, dir, "apply", "--into", into, "--from", "events.jsonl", "--table", "nosuch")
		refused(t, r, exitNotFound, "SOURCE_TABLE_NOT_FOUND")
		if !strings.Contains(r.stderr, "orders") || !strings.Contains(r.stderr, "customers") {
			t.Error(r.stderr)
		}
	}
	write(t, dir, "f.sql", "create source s from 'events.jsonl' table 'nosuch'; create streaming table v; apply changes into v from stream(s) keys (id);")
	refused(t, sluice(t, dir, "apply", "-f", "f.sql"), exitNotFound, "SOURCE_TABLE_NOT_FOUND")
}

// TestStatements_TablesAsSources: a flow reads the change feed of a table, by path, by
// the name of a table in the folder or of one that an earlier flow makes; never itself.
func TestStatements_TablesAsSources(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", `{"id":1,"name":"Ann","ts":1}`+"\n"+`{"id":2,"name":"Bob","ts":2}`+"\n")
	must(t, dir, "apply", "--into", "bronze", "--from", "a.jsonl", "--keys", "id", "--sequence-by", "ts", "--except-columns", "ts")
	write(t, dir, "f.sql", "create or refresh streaming table silver;\n"+
		"create flow s as auto cdc into silver from stream(delta.`./bronze`) keys (ID) apply as delete when _change_type = 'delete'\n"+
		"  sequence by _commit_version columns * except (_change_type, _commit_version, _commit_timestamp);\n"+
		"create or refresh streaming table gold;\n"+
		"create flow g as auto cdc into gold from stream(silver) keys (id) sequence by _commit_version stored as scd type 2;\n"+
		"create or refresh streaming table seen tblproperties (delta.enableChangeDataFeed = false);\n"+
		"create flow n as auto cdc into seen from stream(bronze) keys (id) columns id, _commit_version sequence by _commit_version;")
	must(t, dir, "apply", "-f", "f.sql")
	must(t, dir, "delete", "bronze", "--where", "id = 2")
	must(t, dir, "update", "bronze", "--set", "name = 'Anna'", "--where", "id = 1")
	must(t, dir, "apply", "-f", "f.sql")
	if got := must(t, dir, "cat", "silver"); got != `{"id":1,"name":"Anna"}`+"\n" {
		t.Error(got)
	}
	if got := must(t, dir, "cat", "gold", "--columns", "id,name", "--order-by", "id,name"); got != `{"id":1,"name":"Ann"}`+"\n"+`{"id":1,"name":"Anna"}`+"\n"+`{"id":2,"name":"Bob"}`+"\n" {
		t.Error(got)
	}
	if got := must(t, dir, "cat", "seen"); got != `{"id":1,"_commit_version":3}`+"\n" {
		t.Error(got)
	}
	write(t, dir, "wrong.sql", "create streaming table silver;\napply changes into silver from stream(delta.`bronze`) keys (id) sequence by name;")
	r := sluice(t, dir, "apply", "-f", "wrong.sql")
	refused(t, r, exitUsage, "AUTOCDC_CHANGELOG_REQUIRES_COMMIT_VERSION_SEQUENCING")
	write(t, dir, "self.sql", "create streaming table silver; apply changes into silver from stream(silver) keys (id) sequence by _commit_version;")
	refused(t, sluice(t, dir, "apply", "-f", "self.sql"), exitUsage, "AUTOCDC_INVALID_TARGET")
	refused(t, sluice(t, dir, "apply", "--into", "bronze", "--from", "./bronze", "--keys", "id"), exitUsage, "AUTOCDC_INVALID_TARGET")
	refused(t, sluice(t, dir, "apply", "--into", "./{table}", "--from", "bronze", "--keys", "id"), exitUsage, "AUTOCDC_INVALID_TARGET")
}

// TestStatements_SnapshotQuery: what a snapshot query cannot be is said as such.
func TestStatements_SnapshotQuery(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", `{"id":1,"ts":1}`+"\n")
	write(t, dir, "f.sql", "create streaming table v;\ncreate flow f as auto cdc into v from snapshot (select id, ts + 1 from src) keys (id);")
	r := sluice(t, dir, "apply", "-f", "f.sql", "--source", "src=a.jsonl")
	refused(t, r, exitUsage, "UNSUPPORTED_CLAUSE")
	if !strings.Contains(r.stderr, "f.sql:2:1") || !strings.Contains(r.stderr, "without WHERE") {
		t.Error(r.stderr)
	}
	write(t, dir, "g.sql", "create streaming table w;\ncreate flow f as auto cdc into w from snapshot (select * from src) keys (id);")
	write(t, dir, "a.jsonl", `{"id":1,"a":1}`+"\n"+`{"id":1,"b":1}`+"\n")
	r = sluice(t, dir, "apply", "-f", "g.sql", "--source", "src=a.jsonl")
	refused(t, r, exitRefused, "APPLY_CHANGES_FROM_SNAPSHOT_ERROR.DUPLICATE_KEY_VIOLATION")
	if !strings.Contains(r.stderr, "holds key id=1 twice: line 2 of ") {
		t.Error(r.stderr)
	}
}

// TestStatements_SeveralFlows: the counts of expectations are told, by table; what can
// be read once is not given to two flows.
func TestStatements_SeveralFlows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", `{"id":1,"name":null,"ts":1}`+"\n"+`{"id":2,"name":"Bob","ts":2}`+"\n")
	write(t, dir, "f.sql", `create streaming table v (constraint named expect (name is not null));
create flow f as auto cdc into v from stream(a) keys (id) sequence by ts;
create streaming table w (constraint named expect (name is not null) on violation drop row);
create flow g as auto cdc into w from stream(b) keys (id) sequence by ts;`)
	refused(t, sluiceIn(t, dir, `{"id":1,"name":"x","ts":1}`, "apply", "-f", "f.sql", "--source", "a=-", "--source", "b=-"), exitUsage, "INVALID_FLAG")
	out := must(t, dir, "apply", "-f", "f.sql", "--source", "a=a.jsonl", "--source", "b=a.jsonl")
	for _, want := range []string{`"v.named":{"passed":1,"failed":1,"dropped":0}`, `"w.named":{"passed":1,"failed":1,"dropped":1}`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}

// TestStatements_DryRunOfLongSource: columns that only the whole source tells are shown.
func TestStatements_DryRunOfLongSource(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", strings.Repeat(`{"id":1,"name":"Ann","ts":1}`+"\n", lookRecords+1))
	write(t, dir, "f.sql", "create streaming table v; create flow f as auto cdc into v from stream(a) keys (id) sequence by ts stored as scd type 2 columns * except (ts);")
	out := must(t, dir, "apply", "-f", "f.sql", "--source", "a=a.jsonl", "--dry-run")
	if !strings.Contains(out, `"schema":"id BIGINT, name STRING, __START_AT BIGINT, __END_AT BIGINT"`) {
		t.Error(out)
	}
}

// A table without change feed is a log of events: what is appended is read, and a version
// that changes rows ends the flow by name (auto-cdc 1.6), unless it is passed over.
func TestApply_AppendOnlyTable(t *testing.T) {
	dir := t.TempDir()
	add := func(line string) {
		t.Helper()
		put(t, dir, "rows.jsonl", line+"\n")
		must(t, dir, "append", "log", "--from", "rows.jsonl")
	}
	must(t, dir, "create", "log", "--schema", "id BIGINT, name STRING, op STRING, ts BIGINT")
	add(`{"id":1,"name":"Ann","op":"I","ts":5}`)
	add(`{"id":2,"name":"Bob","op":"I","ts":2}`)
	put(t, dir, "flow.sql", "CREATE STREAMING TABLE people; APPLY CHANGES INTO people FROM STREAM(log) KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY ts COLUMNS * EXCEPT (op, ts);")
	args := []string{"apply", "-f", "flow.sql", "--source", "log=log"}
	must(t, dir, args...)
	add(`{"id":1,"name":"late","op":"I","ts":4}`)
	add(`{"id":2,"name":null,"op":"D","ts":3}`)
	must(t, dir, args...)
	sameRows(t, "rows", must(t, dir, "cat", "people", "-o", "jsonl"), `{"id":1,"name":"Ann"}`+"\n")
	must(t, dir, "delete", "log", "--where", "id = 2")
	add(`{"id":3,"name":"Cy","op":"I","ts":1}`)
	refused(t, sluice(t, dir, args...), exitRefused, "AUTOCDC_SOURCE_NOT_APPEND_ONLY")
	must(t, dir, "apply", "--into", "other", "--from", "log", "--keys", "id", "--sequence-by", "ts", "--columns", "id,name", "--option", "from_version=1", "--option", "skip_change_commits=true")
	sameRows(t, "passed over", must(t, dir, "cat", "other", "--order-by", "id", "-o", "jsonl"), `{"id":1,"name":"Ann"}`+"\n"+`{"id":2,"name":null}`+"\n"+`{"id":3,"name":"Cy"}`+"\n")
}

// Chains of tables: the feed of a target with history feeds another one. The sequence of a
// feed is that of its versions, and rows of versions are known by key and start.
func TestApply_ChainOfHistory(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "e1.jsonl", `{"id":1,"name":"Ann","ts":5}`+"\n"+`{"id":1,"name":"Bob","ts":9}`+"\n")
	must(t, dir, "apply", "--into", "versions", "--from", "e1.jsonl", "--keys", "id", "--sequence-by", "ts", "--stored-as", "2", "--columns", "id,name")
	chain := func() {
		t.Helper()
		must(t, dir, "apply", "--into", "rows", "--from", "versions", "--keys", "id,__START_AT")
		must(t, dir, "apply", "--into", "newest", "--from", "versions", "--keys", "id", "--sequence-by", "_commit_version", "--columns", "id,name",
			"--apply-as-deletes", "_change_type = 'delete' OR __END_AT IS NOT NULL")
		must(t, dir, "apply", "--into", "again", "--from", "newest", "--keys", "id", "--sequence-by", "_commit_version", "--stored-as", "2")
		must(t, dir, "apply", "--into", "both", "--from", "newest", "--keys", "id", "--sequence-by", "STRUCT(_commit_version, id)", "--stored-as", "2")
		must(t, dir, "apply", "--into", "own", "--from", "newest", "--keys", "id", "--stored-as", "2")
		sameRows(t, "rows of the feed are those of the table", must(t, dir, "cat", "rows", "-o", "jsonl"), must(t, dir, "cat", "versions", "-o", "jsonl"))
	}
	chain()
	sameRows(t, "newest", must(t, dir, "cat", "newest", "-o", "jsonl"), `{"id":1,"name":"Bob"}`+"\n")
	put(t, dir, "e2.jsonl", `{"id":1,"name":"Cy","ts":12}`+"\n"+`{"id":1,"name":"late","ts":7}`+"\n"+`{"id":2,"name":"Dee","ts":1}`+"\n")
	must(t, dir, "apply", "--into", "versions", "--from", "e2.jsonl", "--keys", "id", "--sequence-by", "ts", "--stored-as", "2", "--columns", "id,name")
	chain()
	sameRows(t, "newest", must(t, dir, "cat", "newest", "-o", "jsonl"), `{"id":1,"name":"Cy"}`+"\n"+`{"id":2,"name":"Dee"}`+"\n")
	put(t, dir, "e3.jsonl", `{"id":1,"op":"D","ts":20}`+"\n")
	must(t, dir, "apply", "--into", "versions", "--from", "e3.jsonl", "--keys", "id", "--sequence-by", "ts", "--stored-as", "2", "--apply-as-deletes", "op = 'D'", "--columns", "id")
	chain()
	sameRows(t, "newest", must(t, dir, "cat", "newest", "-o", "jsonl"), `{"id":2,"name":"Dee"}`+"\n")
	// The framework columns have the type of the expression (auto-cdc 1.4 rule 4).
	for table, want := range map[string]string{"again": "BIGINT", "both": "STRUCT<_commit_version: BIGINT, id: BIGINT>", "own": "STRUCT<epoch: INT, commit_version: BIGINT>"} {
		if got := must(t, dir, "inspect", table); strings.Count(got, `"type":"`+want+`"`) < 2 {
			t.Errorf("%s: no periods of type %s in %s", table, want, got)
		}
		if n := strings.Count(must(t, dir, "cat", table, "--columns", "id,name", "-o", "jsonl"), "\n"); n != 3 {
			t.Errorf("%s: %d versions, want 3", table, n)
		}
	}
	refused(t, sluice(t, dir, "apply", "--into", "bad", "--from", "newest", "--keys", "id", "--sequence-by", "id"), exitUsage, "AUTOCDC_CHANGELOG_REQUIRES_COMMIT_VERSION_SEQUENCING")
}
