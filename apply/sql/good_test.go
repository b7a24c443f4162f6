package sql

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/log/schema"
)

// TestScripts shows for right statements the canonical form and the plan; the
// canonical form is a fixed point and means the same. Directives: schema as in
// TestErrors; sql and yaml (whose canonical form is that of the same SQL).
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/good", func(t *testing.T, path string) {
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
			case "yaml":
				s, err = ParseYAML(d.Input)
			}
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			text := s.String()
			checkCanonical(t, text, s, schemas)
			plan, err := Analyze(s, schemas)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			var b strings.Builder
			b.WriteString(text)
			for _, r := range plan.Report() {
				b.WriteString("--\n" + r.String())
			}
			for _, w := range plan.Warnings {
				b.WriteString("warning: " + w + "\n")
			}
			return b.String()
		})
	})
}

// failer is what tests, fuzzers and properties have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// checkCanonical holds a canonical text to what it was printed from.
func checkCanonical(t failer, text string, s *Script, schemas Schemas) {
	t.Helper()
	again, err := Format(text)
	if err != nil {
		t.Fatalf("canonical text is wrong: %v\n%s", err, text)
	}
	if again != text {
		t.Fatalf("formatting is not idempotent:\n%s\nagain:\n%s", text, again)
	}
	back, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := meaning(s), meaning(back); a != b {
		t.Fatalf("the canonical text means something else:\n%s\n%s\nfrom\n%s", a, b, text)
	}
	p, perr := Analyze(s, schemas)
	q, qerr := Analyze(back, schemas)
	if (perr == nil) != (qerr == nil) || codes(perr) != codes(qerr) {
		t.Fatalf("analysis differs: %v against %v of\n%s", perr, qerr, text)
	}
	if perr != nil {
		return
	}
	a, aerr := json.Marshal(p.Report())
	b, berr := json.Marshal(q.Report())
	if aerr != nil || berr != nil || string(a) != string(b) {
		t.Fatalf("plans differ:\n%s\n%s", a, b)
	}
}

func codes(err error) string {
	var list Errors
	if err == nil || !errors.As(err, &list) {
		return ""
	}
	n := map[string]int{}
	for _, e := range list {
		n[e.Code]++
	}
	return fmt.Sprint(n)
}

// meaning is what a script says without places and spelling.
func meaning(s *Script) string {
	var b strings.Builder
	for _, x := range s.Sources {
		c := *x
		cols := ""
		if c.Schema != nil {
			cols = ddl(c.Schema)
		}
		fmt.Fprintf(&b, "source %q %q %q %q %q %v\n", c.Name, c.From, c.Format, c.Table, cols, c.Options)
	}
	for _, x := range s.Tables {
		c := *x
		cols := ""
		if c.Schema != nil {
			cols = ddl(c.Schema)
		}
		fmt.Fprintf(&b, "table %q %v %v %v %q %q %v %q %q %v %v %q\n", c.Name, c.OrRefresh, c.IfNotExists, c.Private, cols, c.Comment,
			c.TableProperties, c.PartitionCols, c.ClusterBy, c.ClusterByAuto, c.query, c.Expectations)
	}
	for _, x := range s.Flows {
		c := *x
		c.at, c.raw, c.bare = nil, nil, false
		if c.Name == "" {
			c.Name = c.Target
		}
		for _, e := range []*string{&c.SequenceBy, &c.SystemSequenceBy, &c.ApplyAsDeletes, &c.ApplyAsTruncates} {
			*e = canonicalExpr(*e)
		}
		fmt.Fprintf(&b, "flow %+v %q\n", c, [][]string{c.Keys, c.ColumnList, c.ExceptColumnList})
	}
	for _, v := range s.views {
		fmt.Fprintf(&b, "view %s %s\n", v.kind, v.name)
	}
	return b.String()
}
