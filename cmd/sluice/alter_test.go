package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAlter_Verbs(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "t", "--schema", "id BIGINT, name STRING, s STRUCT<a: INT>")
	mustIn(t, dir, "{\"id\":1,\"name\":\"Ada\",\"s\":{\"a\":1}}\n", "append", "t", "--from", "-", "--format", "jsonl")
	for i, args := range [][]string{
		{"add-column", "born DATE COMMENT 'day', note STRING", "--after", "id"},
		{"add-column", "b INT", "--parent", "s", "--first"},
		{"set", "delta.columnMapping.mode=name", "delta.appendOnly=false", "--upgrade"},
		{"rename-column", "name", "full name"},
		{"drop-column", "note", "nope", "--if-exists"},
		{"change-column", "id", "--not-null", "--comment", "key"},
		{"unset", "delta.appendOnly"},
		{"add-constraint", "positive", "id > 0"},
		{"set", "delta.enableTypeWidening=true", "--upgrade"},
		{"change-column", "s.a", "--type", "BIGINT"},
		{"change-column", "born", "--default", "DATE'2024-01-01'"},
		{"set-description", "people"},
		{"drop-constraint", "POSITIVE"},
		{"change-column", "born", "--drop-default", "--first"},
		{"add-feature", "v2Checkpoint", "--upgrade"},
	} {
		var r writeResult
		out := must(t, dir, append([]string{"alter", "t"}, args...)...)
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Version != int64(i)+2 || !r.Committed || r.Operation != "alter" {
			t.Errorf("%v: %s (%v)", args, out, err)
		}
	}
	if got := must(t, dir, "cat", "t"); got != `{"born":null,"id":1,"full name":"Ada","s":{"b":null,"a":1}}`+"\n" {
		t.Errorf("cat: %s", got)
	}
	if got := must(t, dir, "alter", "t", "drop-constraint", "positive", "--if-exists"); !strings.Contains(got, `"committed":false`) {
		t.Errorf("nothing to do: %s", got)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"rename-column", "id"}, exitUsage, "INVALID_ARGUMENTS"},
		{[]string{"paint", "it"}, exitUsage, "INVALID_ARGUMENTS: alter: \"paint\" is no verb"},
		{[]string{"drop-column", "id", "--not-null"}, exitUsage, "INVALID_FLAG"},
		{[]string{"set", "novalue"}, exitUsage, "INVALID_ARGUMENTS"},
		{[]string{"change-column", "id", "--not-null", "--nullable"}, exitUsage, "INVALID_FLAG"},
		{[]string{"cluster-by"}, exitUsage, "INVALID_ARGUMENTS"},
		{[]string{"set", "delta.enableDeletionVectors=true"}, exitRefused, "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"},
		{[]string{"change-column", "id", "--type", "INT"}, exitRefused, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"},
		{[]string{"add-column", "born INT"}, exitRefused, "DELTA_COLUMN_ALREADY_EXISTS"},
		{[]string{"drop-column", "nope"}, exitRefused, "DELTA_COLUMN_NOT_FOUND"},
	} {
		r := sluiceIn(t, dir, "", append([]string{"alter", "t"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: exit %d %s", c.args, r.code, r.stderr)
		}
	}
}

func TestAppend_MergeSchema(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "t", "--schema", "id INT, s STRUCT<a: INT>")
	rows := `{"id":1,"s":{"a":1,"b":"x"},"z":[1,2]}` + "\n"
	if r := sluiceIn(t, dir, rows, "append", "t", "--from", "-", "--format", "jsonl"); r.code != exitRefused {
		t.Errorf("exit %d %s", r.code, r.stderr)
	}
	mustIn(t, dir, rows, "append", "t", "--from", "-", "--format", "jsonl", "--merge-schema", "--schema", "s STRUCT<b: STRING>, z ARRAY<INT>")
	if got := must(t, dir, "cat", "t"); got != `{"id":1,"s":{"a":1,"b":"x"},"z":[1,2]}`+"\n" {
		t.Errorf("cat: %s", got)
	}
	for _, ext := range []string{"parquet", "arrow"} {
		if err := os.WriteFile(filepath.Join(dir, "rows."+ext), []byte(must(t, dir, "cat", "t", "-o", ext)), 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, dir, "create", ext, "--schema", "id INT NOT NULL, q STRING")
		if r := sluiceIn(t, dir, "", "append", ext, "--from", "rows."+ext); r.code != exitRefused {
			t.Errorf("exit %d %s", r.code, r.stderr)
		}
		must(t, dir, "append", ext, "--from", "rows."+ext, "--merge-schema")
		if got := must(t, dir, "cat", ext); got != `{"id":1,"q":null,"s":{"a":1,"b":"x"},"z":[1,2]}`+"\n" {
			t.Errorf("%s: %s", ext, got)
		}
		must(t, dir, "overwrite", ext, "--from", "rows."+ext, "--overwrite-schema", "--partition-by", "id")
		if got := must(t, dir, "cat", ext); got != `{"id":1,"s":{"a":1,"b":"x"},"z":[1,2]}`+"\n" {
			t.Errorf("%s: %s", ext, got)
		}
	}
	must(t, dir, "create", "w", "--schema", "id INT, f FLOAT", "--property", "delta.enableTypeWidening=true")
	mustIn(t, dir, `{"id":5000000000,"f":0.1}`+"\n", "append", "w", "--from", "-", "--format", "jsonl", "--merge-schema", "--schema", "id BIGINT, f DOUBLE")
	if got := must(t, dir, "cat", "w"); got != `{"id":5000000000,"f":0.1}`+"\n" {
		t.Errorf("cat: %s", got)
	}
	for _, args := range [][]string{{"append", "w", "--schema", "x INT"}, {"overwrite", "w", "--overwrite-schema"}, {"overwrite", "w", "--partition-by", "id"}} {
		if r := sluiceIn(t, dir, "", append(args, "--from", "-", "--format", "jsonl")...); r.code == exitOK {
			t.Errorf("%v: exit %d %s", args, r.code, r.stderr)
		}
	}
}

func TestCheck_Output(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "t", "--schema", "id BIGINT", "--property", "delta.appendOnly=true")
	var r struct {
		Readable   bool `json:"readable"`
		Operations []struct {
			Operation string `json:"operation"`
			Possible  bool   `json:"possible"`
			Code      string `json:"code"`
		} `json:"operations"`
	}
	if err := json.Unmarshal([]byte(must(t, dir, "check", "t", "-o", "json")), &r); err != nil || !r.Readable {
		t.Errorf("%+v %v", r, err)
	}
	for _, op := range r.Operations {
		if op.Operation == "delete" && op.Code != "DELTA_CANNOT_MODIFY_APPEND_ONLY" {
			t.Errorf("%+v", op)
		}
	}
	if got := must(t, dir, "check", "t", "-o", "table"); !strings.Contains(got, "readable    yes") || !strings.Contains(got, "  append                       yes\n") {
		t.Errorf("got %s", got)
	}
	if r := sluiceIn(t, dir, "", "check", "nothing"); r.code != exitNotFound {
		t.Errorf("exit %d %s", r.code, r.stderr)
	}
}
