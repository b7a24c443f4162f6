package sql

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/log/schema"
)

// feedPrefix stands before the input of the directive feed, as lines 1 and 2.
const feedPrefix = "CREATE OR REFRESH STREAMING TABLE t;\nCREATE FLOW f AS AUTO CDC INTO t FROM STREAM(src) KEYS (id)\n"

// TestErrors is the corpus of wrong statements. Directives: schema NAME [feed]
// sets what is known of a source, for the rest of the file; sql, yaml and feed
// read and analyse their input (feed: the clauses of a flow after KEYS).
func TestErrors(t *testing.T) {
	total := 0
	datadriven.Walk(t, "testdata/errors", func(t *testing.T, path string) {
		schemas := Schemas{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var s *Script
			var err error
			switch d.Cmd {
			case "schema":
				cols, err := schema.ParseDDL(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				schemas[d.CmdArgs[0].Key] = SourceSchema{Columns: cols, ChangeFeed: d.HasArg("feed")}
				return ""
			case "sql":
				s, err = Parse(d.Input)
			case "feed":
				s, err = Parse(feedPrefix + d.Input)
			case "yaml":
				s, err = ParseYAML(d.Input)
			default:
				d.Fatalf(t, "unknown directive %s", d.Cmd)
			}
			total++
			if err == nil {
				_, err = Analyze(s, schemas)
			}
			return errorText(t, err)
		})
	})
	if total < 150 {
		t.Errorf("the corpus has %d scripts, 150 are wanted", total)
	}
	t.Logf("%d wrong scripts", total)
}

func errorText(t *testing.T, err error) string {
	var list Errors
	if !errors.As(err, &list) {
		t.Fatalf("no problem was found (%v)", err)
	}
	var b strings.Builder
	for _, e := range list {
		if e.Line < 1 || e.Col < 1 {
			t.Errorf("no position: %v", e)
		}
		if e.Code == "" || e.Message == "" {
			t.Errorf("no code or message: %+v", e)
		}
		if e.Remedy == "" {
			t.Errorf("no remedy: %v", e)
		}
		fmt.Fprintf(&b, "%d:%d %s: %s", e.Line, e.Col, e.Code, e.Message)
		if e.Remedy != "" {
			b.WriteString("; " + e.Remedy)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
