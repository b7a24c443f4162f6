package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// logFile is the path of a commit of people.
func logFile(dir string, version string) string {
	return filepath.Join(dir, "people", "_delta_log", strings.Repeat("0", 20-len(version))+version+".json")
}

func edit(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, change(data), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// addedFile is the data file that version 1 of a table added.
func addedFile(t *testing.T, dir, table string) string {
	t.Helper()
	for line := range strings.Lines(must(t, dir, "log", table, "--version", "1", "--actions")) {
		var a struct{ Add *struct{ Path string } }
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		if a.Add != nil {
			return filepath.Join(dir, table, a.Add.Path)
		}
	}
	t.Fatal("version 1 adds no file")
	return ""
}

// TestBadTable_Refusals damages a table in one way each and reads it: an error
// with a code, and not a byte changed.
func TestBadTable_Refusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		exit   int
		code   string
		reads  bool // only reading rows meets the damage, not opening
	}{
		{"R-101 not a table", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "people", "_delta_log")); err != nil {
				t.Fatal(err)
			}
		}, exitNotFound, "DELTA_TABLE_NOT_FOUND", false},
		{"R-103 a version is missing", func(t *testing.T, dir string) {
			if err := os.Remove(logFile(dir, "1")); err != nil {
				t.Fatal(err)
			}
		}, exitCorrupt, "DELTA_VERSIONS_NOT_CONTIGUOUS", false},
		{"R-110 a log file is cut short", func(t *testing.T, dir string) {
			edit(t, logFile(dir, "2"), func(b []byte) []byte { return b[:len(b)-20] })
		}, exitCorrupt, "", false},
		{"R-110 an action does not parse", func(t *testing.T, dir string) {
			edit(t, logFile(dir, "1"), func(b []byte) []byte { return append([]byte("{\"add\":7}\n"), b...) })
		}, exitCorrupt, "", false},
		{"R-301 an unknown feature", func(t *testing.T, dir string) {
			edit(t, logFile(dir, "0"), func(b []byte) []byte {
				lines := bytes.SplitAfter(b, []byte("\n"))
				for i, l := range lines {
					if bytes.HasPrefix(l, []byte(`{"protocol"`)) {
						lines[i] = []byte(`{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timeMachine"],"writerFeatures":["timeMachine"]}}` + "\n")
					}
				}
				return bytes.Join(lines, nil)
			})
		}, exitRefused, "DELTA_UNSUPPORTED_FEATURES_FOR_READ", false},
		{"a data file is missing", func(t *testing.T, dir string) {
			if err := os.Remove(addedFile(t, dir, "people")); err != nil {
				t.Fatal(err)
			}
		}, exitNotFound, "DATA_FILE_MISSING", true},
		{"a data file is shorter than its size", func(t *testing.T, dir string) {
			edit(t, addedFile(t, dir, "people"), func(b []byte) []byte { return b[:len(b)/2] })
		}, exitCorrupt, "DATA_FILE_TRUNCATED", true},
		{"a data file holds other bytes", func(t *testing.T, dir string) {
			edit(t, addedFile(t, dir, "people"), func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) })
		}, exitCorrupt, "DATA_FILE_CORRUPT", true},
		{"a data file of another schema", func(t *testing.T, dir string) {
			must(t, dir, "create", "other", "--schema", "id BIGINT, name INT, score DECIMAL(20,2), born DATE")
			mustIn(t, dir, "id,name\n1,5\n", "append", "other", "--from", "-", "--format", "csv")
			other, err := os.ReadFile(addedFile(t, dir, "other"))
			if err != nil {
				t.Fatal(err)
			}
			name := addedFile(t, dir, "people")
			if err := os.WriteFile(name, other, 0o644); err != nil {
				t.Fatal(err)
			}
			size := regexp.MustCompile(`"size":\d+`)
			edit(t, logFile(dir, "1"), func(b []byte) []byte { return size.ReplaceAll(b, fmt.Appendf(nil, `"size":%d`, len(other))) })
			// The checksum of the newest version would tell on the edited commit first.
			if err := os.Remove(strings.TrimSuffix(logFile(dir, "3"), ".json") + ".crc"); err != nil {
				t.Fatal(err)
			}
		}, exitCorrupt, "DATA_FILE_SCHEMA_MISMATCH", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := people(t)
			mustIn(t, dir, "id\n2\n", "append", "people", "--from", "-", "--format", "csv")
			mustIn(t, dir, "id\n3\n", "append", "people", "--from", "-", "--format", "csv")
			c.damage(t, dir)
			before := tree(t, dir)
			commands := [][]string{{"cat", "people"}, {"delete", "people", "--where", "name = 'Ada'"}}
			if !c.reads {
				commands = append(commands, []string{"inspect", "people"}, []string{"log", "people"}, []string{"changes", "people", "--from-version", "0"},
					[]string{"checkpoint", "people"}, []string{"update", "people", "--set", "id = 1"}, []string{"delete", "people"})
			}
			for _, args := range commands {
				r := sluice(t, dir, args...)
				if r.code != c.exit || !strings.HasPrefix(r.stderr, "sluice: ") || c.code != "" && !strings.HasPrefix(r.stderr, "sluice: "+c.code+": ") {
					t.Errorf("%v: exit %d, %s", args, r.code, r.stderr)
				}
			}
			if after := tree(t, dir); after != before {
				t.Errorf("the table changed:\n%s\n%s", before, after)
			}
		})
	}
}

func TestBadRows_Refusals(t *testing.T) {
	dir := people(t)
	// A Parquet file with other columns.
	must(t, dir, "create", "other", "--schema", "id STRING, extra INT")
	mustIn(t, dir, "id,extra\nx,1\n", "append", "other", "--from", "-", "--format", "csv")
	if err := os.WriteFile(filepath.Join(dir, "other.parquet"), []byte(must(t, dir, "cat", "other", "-o", "parquet")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "junk.parquet"), []byte("PAR1 junk PAR1"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	for _, c := range []struct {
		name, stdin string
		args        []string
		exit        int
		code        string
	}{
		{"wrong type", "{\"id\":1}\n{\"id\":\"two\"}\n", []string{"--from", "-", "--format", "jsonl"}, exitRefused, "TYPE_MISMATCH"},
		{"unknown column", "{\"id\":1,\"nmae\":\"x\"}\n", []string{"--from", "-", "--format", "jsonl"}, exitRefused, "UNKNOWN_COLUMN"},
		{"null in NOT NULL", "id,name\n,x\n", []string{"--from", "-", "--format", "csv"}, exitRefused, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"},
		{"no JSON", "{\"id\":1}\nhello\n", []string{"--from", "-", "--format", "jsonl"}, exitRefused, "INVALID_JSON"},
		{"bad CSV", "id,name\n1\n", []string{"--from", "-", "--format", "csv"}, exitRefused, "INVALID_CSV"},
		{"decimal overflow", "{\"id\":1,\"score\":1234567890123456789012}\n", []string{"--from", "-", "--format", "jsonl"}, exitRefused, "TYPE_MISMATCH"},
		{"other Parquet columns", "", []string{"--from", "other.parquet"}, exitRefused, "UNKNOWN_COLUMN"},
		{"no Parquet", "", []string{"--from", "junk.parquet"}, exitRefused, "INVALID_PARQUET"},
		{"no Arrow", "junk", []string{"--from", "-", "--format", "arrow"}, exitRefused, "INVALID_ARROW"},
		{"missing file", "", []string{"--from", "none.csv"}, exitNotFound, "FILE_NOT_FOUND"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, op := range []string{"append", "overwrite"} {
				refused(t, sluiceIn(t, dir, c.stdin, append([]string{op, "people"}, c.args...)...), c.exit, c.code)
			}
		})
	}
	for _, c := range []struct {
		args []string
		exit int
		code string
	}{
		{[]string{"cat", "people", "--where", "nope = 1"}, exitUsage, "UNRESOLVED_COLUMN"},
		{[]string{"cat", "people", "--where", "id ="}, exitUsage, "PARSE_SYNTAX_ERROR"},
		{[]string{"cat", "people", "--where", "id + 1"}, exitUsage, "DATATYPE_MISMATCH"},
		{[]string{"cat", "people", "--columns", "nope"}, exitUsage, "UNRESOLVED_COLUMN"},
		{[]string{"cat", "people", "--order-by", "nope"}, exitUsage, "UNRESOLVED_COLUMN"},
		{[]string{"cat", "people", "--version", "9"}, exitNotFound, "DELTA_VERSION_NOT_FOUND"},
		{[]string{"cat", "people", "--where", "id / 0 = 1"}, exitRefused, "DIVIDE_BY_ZERO"},
		{[]string{"delete", "people", "--where", "rand() > 0"}, exitUsage, ""},
		{[]string{"update", "people", "--set", "nope = 1"}, exitUsage, "UNRESOLVED_COLUMN"},
		{[]string{"update", "people", "--set", "id = NULL"}, exitRefused, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"},
		{[]string{"changes", "people"}, exitUsage, "DELTA_NO_START_FOR_CDC_READ"},
		{[]string{"changes", "people", "--from-version", "5"}, exitNotFound, "DELTA_CDC_START_VERSION_AFTER_LATEST"},
		{[]string{"changes", "other", "--from-version", "0"}, exitRefused, "DELTA_MISSING_CHANGE_DATA"},
		{[]string{"create", "people", "--schema", "id INT"}, exitRefused, "DELTA_TABLE_ALREADY_EXISTS"},
		{[]string{"create", "new", "--schema", "id INT, ID INT"}, exitRefused, ""},
		{[]string{"create", "new", "--schema", "id INT", "--partition-by", "nope"}, exitRefused, ""},
		{[]string{"create", "new", "--schema", "id INT", "--property", "delta.enableChangeDataFeed=maybe"}, exitRefused, ""},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := sluice(t, dir, c.args...)
			if c.code == "" {
				if r.code != c.exit || !strings.HasPrefix(r.stderr, "sluice: ") || strings.HasPrefix(r.stderr, "sluice: INTERNAL") {
					t.Errorf("exit %d, %s", r.code, r.stderr)
				}
				return
			}
			refused(t, r, c.exit, c.code)
		})
	}
	if after := tree(t, dir); after != before {
		t.Errorf("refusals changed something:\n%s\n%s", before, after)
	}
}

// TestBadCheckpoint_Hint: a hint that disagrees with what is there only costs a
// listing; a checkpoint whose bytes are damaged is an error with a code.
func TestBadCheckpoint_Hint(t *testing.T) {
	dir := people(t)
	must(t, dir, "checkpoint", "people")
	mustIn(t, dir, "id\n2\n", "append", "people", "--from", "-", "--format", "csv")
	hint := filepath.Join(dir, "people", "_delta_log", "_last_checkpoint")
	for _, text := range []string{`{"version":7,"size":9}`, `{"version":1,"size":9,"parts":3}`, "junk", ""} {
		if err := os.WriteFile(hint, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := must(t, dir, "cat", "people", "--count"); got != "{\"count\":2}\n" {
			t.Errorf("R-105 hint %q: %s", text, got)
		}
	}
	checkpoint := filepath.Join(dir, "people", "_delta_log", strings.Repeat("0", 19)+"1.checkpoint.parquet")
	edit(t, checkpoint, func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) })
	if err := os.Remove(logFile(dir, "0")); err != nil { // no way around the checkpoint
		t.Fatal(err)
	}
	before := tree(t, dir)
	r := sluice(t, dir, "cat", "people")
	if r.code != exitCorrupt || !strings.HasPrefix(r.stderr, "sluice: ") || strings.HasPrefix(r.stderr, "sluice: INTERNAL") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
	if after := tree(t, dir); after != before {
		t.Errorf("the table changed:\n%s\n%s", before, after)
	}
}

// TestDML_EmptyWhere: a condition that is given and empty is most likely a shell
// variable without a value.
func TestDML_EmptyWhere(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "create", "t", "--schema", "id INT")
	mustIn(t, dir, "{\"id\":1}\n", "append", "t", "--from", "-", "--format", "jsonl")
	for _, args := range [][]string{{"delete", "t"}, {"update", "t", "--set", "id = 2"}, {"overwrite", "t", "--from", "-", "--format", "jsonl"}} {
		if r := sluice(t, dir, append(args, "--where", " ")...); r.code != exitUsage || !strings.Contains(r.stderr, "INVALID_FLAG") {
			t.Errorf("%v: exit %d, %s", args, r.code, r.stderr)
		}
	}
	if got := must(t, dir, "cat", "t"); got != "{\"id\":1}\n" {
		t.Errorf("got %s", got)
	}
}
