package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

// foreignFormats are the folders of samples whose lines are the events themselves,
// by the format that reads them.
var foreignFormats = map[string]string{
	"maxwell": "maxwell", "canal": "canal", "flink-changelog-json": "flink", "ogg": "goldengate", "dms-json": "dms",
	"wal2json": "wal2json", "mongodb-changestream": "mongodb", "dynamodb-streams": "dynamodb", "airbyte": "airbyte", "singer": "singer", "aliyun-json": "aliyun",
}

// foreignSample is what this test takes of a sample.json.
type foreignSample struct {
	Envelope string
	Events   []string
	Tables   []struct {
		Name         string
		Key          []string
		Match        map[string]string
		Columns      map[string]string
		Expected     string
		Computed     map[string]string
		ReplaceByOld bool `json:"replace_by_old"`
		Insensitive  bool `json:"case_insensitive"`
	}
	Options struct {
		Reject         []int64
		PartialUpdates bool `json:"partial_updates"`
	}
}

// TestApply_ForeignInCuts: the command makes the same rows of other projects' events
// however its batches are cut, as many as they should be, and sets aside the lines that
// are to be rejected and no others. What the rows hold is checked in apply/source.
func TestApply_ForeignInCuts(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "foreign")
	rng := rand.New(rand.NewSource(1))
	ran := 0
	for folder, format := range foreignFormats {
		samples, err := filepath.Glob(filepath.Join(base, folder, "*", "sample.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range samples {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var s foreignSample
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			table := s.Tables[0]
			if merged := format == "canal" && table.Match["table"] == ""; merged {
				continue // events of several source tables make one: no flow of the command does that
			}
			if s.Envelope != "value" || len(s.Tables) != 1 || table.ReplaceByOld || len(table.Computed) > 0 || len(table.Key) == 0 {
				continue // read by the test of the decoders
			}
			ran++
			t.Run(folder+"/"+filepath.Base(filepath.Dir(path)), func(t *testing.T) {
				dir := t.TempDir()
				args := []string{"apply", "--into", "out", "--format", format, "--keys", strings.Join(table.Key, ","), "--schema", foreignDDL(table.Columns), "--on-poison", "quarantine", "--option", "lines=event"}
				for _, name := range s.Events {
					args = append(args, "--from", filepath.Join(filepath.Dir(path), name))
				}
				if !s.Options.PartialUpdates {
					args = append(args, "--option", "missing_fields=null")
				}
				if name := table.Match["table"]; name != "" {
					args = append(args, "--table", name[strings.LastIndexByte(name, '.')+1:])
				}
				if table.Insensitive {
					args = append(args, "--option", "column_case=lower")
				}
				want := strings.Count(readFile(t, filepath.Join(filepath.Dir(path), table.Expected)), "\n")
				whole := ""
				for i, n := range []int{1000, 1, 1 + rng.Intn(6)} {
					run := filepath.Join(dir, fmt.Sprint(i))
					if err := os.Mkdir(run, 0o755); err != nil {
						t.Fatal(err)
					}
					must(t, run, append(slices.Clone(args), "--batch-rows", fmt.Sprint(n))...)
					lines := strings.Split(must(t, run, "cat", "out"), "\n")
					slices.Sort(lines)
					rows := strings.Join(lines, "\n")
					if i == 0 {
						whole = rows
					}
					if got := len(lines) - 1; rows != whole || got != want {
						t.Errorf("batches of %d: %d rows, want %d\n%s\nwhole:\n%s", n, got, want, rows, whole)
					}
					var bad []int64
					if len(s.Options.Reject) > 0 {
						for line := range strings.Lines(must(t, run, "quarantine", "show", "out")) {
							var q struct{ Line int64 }
							if err := json.Unmarshal([]byte(line), &q); err != nil {
								t.Fatal(err)
							}
							bad = append(bad, q.Line)
						}
						slices.Sort(bad)
					}
					if !slices.Equal(bad, s.Options.Reject) {
						t.Errorf("batches of %d: lines %v set aside, want %v", n, bad, s.Options.Reject)
					}
				}
			})
		}
	}
	if ran < 10 {
		t.Errorf("%d samples", ran)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// foreignDDL is the columns of a sample as --schema takes them.
func foreignDDL(columns map[string]string) string {
	var parts []string
	for name, typ := range columns {
		switch typ {
		case "json", "time":
			typ = "string"
		case "long":
			typ = "bigint"
		case "short":
			typ = "smallint"
		}
		parts = append(parts, "`"+name+"` "+typ)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
