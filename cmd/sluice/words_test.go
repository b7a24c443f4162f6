package main

import (
	"strings"
	"testing"
)

// Errors that a user meets name what is wrong in words of the table or the command line.
func TestErrors_Words(t *testing.T) {
	const protocol = `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}` + "\n"
	dir := t.TempDir()
	must(t, dir, "create", "people", "--schema", "id BIGINT, name STRING")
	must(t, dir, "create", "var", "--schema", "id BIGINT, v VARIANT")
	must(t, dir, "create", "part", "--schema", "id BIGINT, p STRING", "--partition-by", "p")
	must(t, dir, "create", "fed", "--schema", "id BIGINT", "--property", "delta.enableChangeDataFeed=true")
	put(t, dir, "rows.jsonl", `{"id":1}`+"\n")
	must(t, dir, "append", "fed", "--from", "rows.jsonl")
	must(t, dir, "changes", "fed", "--from-version", "0", "--checkpoint", "mark")
	put(t, dir, "big.jsonl", `{"id":1,"v":1e400}`+"\n")
	put(t, dir, "more.jsonl", `{"id":1,"extra":1}`+"\n")
	put(t, dir, "nul.jsonl", `{"id":1,"p":"a\u0000b"}`+"\n")
	put(t, dir, "bad/_delta_log/00000000000000000000.json", protocol+`{"add":{"path":"x","size":"many","partitionValues":{},"modificationTime":1,"dataChange":true}}`+"\n")
	for _, c := range []struct {
		name string
		exit int
		code string
		want string // in the message
		args []string
	}{
		{"a limit that is no number", exitUsage, "INVALID_FLAG", `"x"`, []string{"cat", "people", "--limit", "x"}},
		{"a limit of none", exitUsage, "INVALID_FLAG", "at least 1", []string{"log", "people", "--limit", "0"}},
		{"a size of none", exitUsage, "INVALID_FLAG", "at least 1", []string{"optimize", "people", "--target-size", "0"}},
		{"a column twice", exitUsage, "INVALID_FLAG", "twice", []string{"cat", "people", "--columns", "id,ID"}},
		{"a column of changes twice", exitUsage, "INVALID_FLAG", "twice", []string{"changes", "people", "--from-version", "0", "--columns", "id,id"}},
		{"a file is no table", exitNotFound, "DELTA_TABLE_NOT_FOUND", "open rows.jsonl: it is a file, and a table is a folder", []string{"cat", "rows.jsonl"}},
		{"a condition that is no condition", exitUsage, "DATATYPE_MISMATCH", "at line 1, column 1", []string{"delete", "people", "--where", "name"}},
		{"a column that is not assigned from", exitUsage, "UNRESOLVED_COLUMN", "set name: bind expression: column nope does not exist (columns: id, name) at line 1, column 8", []string{"update", "people", "--set", "name = nope", "--where", "id = 1"}},
		{"a column of a merge by flags", exitUsage, "DELTA_MERGE_UNRESOLVED_EXPRESSION", "column source.q does not exist (the table has id, name; the source has id) at line 1, column 24",
			[]string{"merge", "people", "--from", "rows.jsonl", "--on", "target.id = source.id", "--when-not-matched-insert", "id = source.id, name = source.q"}},
		{"a target of a merge by flags", exitUsage, "DELTA_MERGE_UNRESOLVED_EXPRESSION", "no column nope to assign to (it has id, name) at line 1, column 13",
			[]string{"merge", "people", "--from", "rows.jsonl", "--on", "target.id = source.id", "--when-matched-update", "name = 'x', nope = 1"}},
		{"a number beyond VARIANT", exitRefused, "TYPE_MISMATCH", "beyond the range of DOUBLE", []string{"append", "var", "--from", "big.jsonl"}},
		{"a new column of rows without types", exitRefused, "UNKNOWN_COLUMN", "--schema", []string{"append", "people", "--from", "more.jsonl", "--merge-schema"}},
		{"an action of another type", exitCorrupt, "DELTA_LOG_FILE_MALFORMED", "add.size is a JSON string where a whole number belongs", []string{"cat", "bad"}},
		{"W-551 a partition value with NUL", exitRefused, "DELTA_INVALID_PARTITION_VALUE", "NUL", []string{"append", "part", "--from", "nul.jsonl"}},
		{"W-551 a partition value with NUL through apply", exitRefused, "DELTA_INVALID_PARTITION_VALUE", "NUL", []string{"apply", "--into", "new", "--from", "nul.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "id", "--partition-by", "p"}},
		{"a start after the position", exitUsage, "INVALID_FLAG", "--from-version 9", []string{"changes", "fed", "--from-version", "9", "--checkpoint", "mark"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sluice(t, dir, c.args...)
			refused(t, r, c.exit, c.code)
			if !strings.Contains(r.stderr, c.want) {
				t.Errorf("want %q in %s", c.want, r.stderr)
			}
			for _, foreign := range []string{"strconv", "Go struct", "wireAdd", "json:", "unmarshal"} {
				if strings.Contains(r.stderr, foreign) {
					t.Errorf("%q in %s", foreign, r.stderr)
				}
			}
		})
	}
	t.Run("the same command goes on from its position", func(t *testing.T) {
		dir := t.TempDir()
		must(t, dir, "create", "fed", "--schema", "id BIGINT", "--property", "delta.enableChangeDataFeed=true")
		put(t, dir, "rows.jsonl", `{"id":1}`+"\n")
		for range 2 {
			must(t, dir, "append", "fed", "--from", "rows.jsonl")
			if out := must(t, dir, "changes", "fed", "--from-version", "1", "--checkpoint", "mark"); strings.Count(out, "\n") != 1 {
				t.Errorf("printed %s", out)
			}
		}
	})
	t.Run("W-405 the length of a column by its type", func(t *testing.T) {
		dir := t.TempDir()
		must(t, dir, "create", "t", "--schema", "id BIGINT, v VARCHAR(2)")
		put(t, dir, "rows.jsonl", `{"id":1,"v":"abcde"}`+"\n")
		refused(t, sluice(t, dir, "append", "t", "--from", "rows.jsonl"), exitRefused, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT")
		refused(t, sluice(t, dir, "alter", "t", "change-column", "v", "--type", "VARCHAR(1)"), exitRefused, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP")
		must(t, dir, "alter", "t", "change-column", "v", "--type", "VARCHAR(4)")
		refused(t, sluice(t, dir, "append", "t", "--from", "rows.jsonl"), exitRefused, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT")
		must(t, dir, "alter", "t", "change-column", "v", "--type", "STRING")
		must(t, dir, "append", "t", "--from", "rows.jsonl")
	})
}
