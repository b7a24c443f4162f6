package coverage_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/coverage"
	"github.com/sluice-data/sluice/internal/testenv"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/coverage.md")

func TestReport_IsCurrent(t *testing.T) {
	root := testenv.RepoRoot(t)
	items, err := coverage.ReadItems("testdata/ids")
	if err != nil {
		t.Fatal(err)
	}
	found, err := coverage.Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	want := coverage.Report(items, found)
	page := filepath.Join(root, "docs", "coverage.md")
	if *rewrite {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		have := strings.Split(string(got), "\n")
		for line := range strings.Lines(want) {
			if !slices.Contains(have, strings.TrimSuffix(line, "\n")) {
				t.Logf("missing: %s", line)
			}
		}
		t.Errorf("docs/coverage.md is stale: run go test ./internal/coverage -rewrite")
	}
}

func TestReadItems_MatchSpecifications(t *testing.T) {
	dir := testenv.SharedDir(t, "specs")
	items, err := coverage.ReadItems("testdata/ids")
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for source, name := range map[string]string{"delta protocol": "delta-protocol.md", "AUTO CDC": "auto-cdc.md", "change formats": "cdc-formats.md", "field reports": "field-reports.md"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text[source] = string(b)
	}
	seen := map[string]bool{}
	for _, it := range items {
		id, _, _ := strings.Cut(it.ID, ".") // F1.C is row F1, column C of a matrix
		if !strings.Contains(text[it.Source], id) {
			t.Errorf("%s: not in the specification of %s", it.ID, it.Source)
		}
		if seen[it.ID] {
			t.Errorf("%s: listed twice", it.ID)
		}
		seen[it.ID] = true
	}
}

func TestScan_FindsNames(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a/x_test.go", "package a\nvar cases = []struct{ n string }{{\"W-203 keeps paths\"}}\n// R-999 in a comment does not count\nfunc TestReplay_R221(t *T) { t.Run(\"C-24: remove\", nil); t.Run(`F16.B null`, nil) }\n")
	write("a/testdata/scd1/E07", "# E09 and more\napply E10\n")
	write("a/testdata/matrix/F3.C_key_change", "decode\n")
	write("a/testdata/scd1/E08.txt", "")
	write("a/x.go", "package a\nconst s = \"R-104\"\n")
	found, err := coverage.Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"W-203": "a: cases of x_test.go", "R-221": "a: TestReplay_R221", "C-24": "a: TestReplay_R221",
		"F16.B": "a: TestReplay_R221", "F3.C": "a/testdata/matrix/F3.C_key_change", "E08": "a/testdata/scd1/E08.txt", "E07": "a/testdata/scd1/E07", "E09": "a/testdata/scd1/E07"} {
		if !slices.Equal(found[id], []string{want}) {
			t.Errorf("%s: got %v, want %s", id, found[id], want)
		}
	}
	for _, id := range []string{"R-999", "E10", "R-104"} {
		if len(found[id]) > 0 {
			t.Errorf("%s: got %v, want none", id, found[id])
		}
	}
}

// pages are the documents whose names must exist.
var pages = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}

func TestUnknownNames_OfThePages(t *testing.T) {
	root := testenv.RepoRoot(t)
	for _, page := range pages {
		unknown, err := coverage.UnknownNames(root, page)
		if err != nil {
			t.Error(err)
		}
		for _, name := range unknown {
			t.Errorf("%s names %s, which is not in the repository", page, name)
		}
	}
}

func TestUnknownNames_FindsThem(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/b/x.go": "package b\ntype T struct{ F int }\nfunc (t *T) M() {}\nfunc New() {}\nconst C = 1\n",
		"PAGE.md": "`b.New()` `b.T.M` `b.T.F` `b.C` `a/b/x.go` `a/*/x.go` `other.Thing` `no/path` `plain`\n" +
			"```\n`b.Hidden`\n```\n`b.Gone` `b.T.N` `a/y.go`\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := coverage.UnknownNames(root, "PAGE.md")
	if want := []string{"a/y.go", "b.Gone", "b.T.N"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
