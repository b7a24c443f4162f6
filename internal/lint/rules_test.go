package lint

import (
	"slices"
	"strings"
	"testing"
)

const goodDoc = "// Package %s does.\n//\n// Invariants:\n//\n//  1. It does.\n//\n// Entry points: none. It imports nothing.\npackage %s\n"

func doc(name string) string { return strings.ReplaceAll(goodDoc, "%s", name) }

// TestCheck_EachRule: a small tree that breaks one rule gives that finding, and
// a tree that breaks none gives none.
func TestCheck_EachRule(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // substrings, one per finding
	}{
		{"Clean", map[string]string{
			"storage/doc.go": doc("storage"), "storage/a.go": "package storage\nimport \"time\"\nvar clock = time.Now\n",
			"delta/doc.go": doc("delta"), "delta/a.go": "package delta\nimport \"" + module + "/storage\"\nvar _ storage.Store\n",
			"delta/a_test.go": "package delta\nimport (\"fmt\";\"pgregory.net/rapid\"; \"" + module + "/storage/faultstore\")\nfunc f() { fmt.Println(); panic(1) }\n",
			"cmd/x/main.go":   "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n", "cmd/x/doc.go": "// Command x.\npackage main\n",
		}, nil},
		{"ImportUpwards", map[string]string{"cdf/doc.go": doc("cdf"), "cdf/a.go": "package cdf\nimport _ \"" + module + "/delta\"\n"},
			[]string{"cdf/a.go:2: cdf (tier 50) may not import delta (tier 60)"}},
		{"ImportSideways", map[string]string{"internal/dv/doc.go": doc("dv"), "internal/dv/a.go": "package dv\nimport _ \"" + module + "/internal/expr\"\n"},
			[]string{"may not import internal/expr"}},
		{"ImportOfTestPackage", map[string]string{"delta/doc.go": doc("delta"), "delta/a.go": "package delta\nimport _ \"" + module + "/storage/faultstore\"\n"},
			[]string{"storage/faultstore is for tests only"}},
		{"UnknownPackage", map[string]string{"internal/new/doc.go": doc("new"), "delta/doc.go": doc("delta"), "delta/a.go": "package delta\nimport _ \"" + module + "/internal/new\"\n"},
			[]string{"internal/new is not in the import table", "internal/new: the package is not in the import table"}},
		{"ParquetElsewhere", map[string]string{"log/doc.go": doc("deltalog"), "log/a.go": "package deltalog\nimport _ \"github.com/parquet-go/parquet-go\"\n"},
			[]string{"only internal/parquetio may import"}},
		{"TestLibraryInLibrary", map[string]string{"log/doc.go": doc("deltalog"), "log/a.go": "package deltalog\nimport _ \"pgregory.net/rapid\"\n"},
			[]string{"pgregory.net/rapid is for tests only"}},
		{"ExampleUsesInternal", map[string]string{"examples/a/doc.go": "// Command a.\npackage main\n", "examples/a/main.go": "package main\nimport _ \"" + module + "/internal/expr\"\n"},
			[]string{"which users cannot"}},
		{"NoDoc", map[string]string{"cdf/a.go": "package cdf\n"}, []string{"cdf: no doc.go"}},
		{"PoorDoc", map[string]string{"cdf/doc.go": "// Package cdf does.\npackage cdf\n"}, []string{"numbered \"Invariants:\", \"Entry points:\", what it may or must not import"}},
		{"TooLong", map[string]string{"cdf/doc.go": doc("cdf"), "cdf/a.go": "package cdf\n" + strings.Repeat("\n", 901), "cdf/a_test.go": "package cdf\n" + strings.Repeat("\n", 901)},
			[]string{"cdf/a.go: 902 lines"}},
		{"Calls", map[string]string{"cdf/doc.go": doc("cdf"), "cdf/a.go": "package cdf\nimport (\"fmt\";\"log\";\"log/slog\";\"os\";clock \"time\")\n" +
			"func init() {}\nfunc f() {\n_ = clock.Now()\n_ = os.Getenv(\"X\")\nfmt.Println()\nfmt.Fprintln(os.Stderr)\nlog.Print()\nslog.Info(\"\")\npanic(1)\n}\n"},
			[]string{":3: init function", ":5: clock.Now", ":6: os.Getenv", ":7: fmt.Println", ":8: os.Stderr", ":9: log.Print", ":10: slog.Info", ":11: panic"}},
		{"Aliases", map[string]string{"cdf/doc.go": doc("cdf"), "cdf/a.go": "package cdf\nimport x \"io\"\n", "cdf/b.go": "package cdf\nimport \"io\"\n", "cdf/c.go": "package cdf\nimport . \"os\"\n",
			"log/doc.go": doc("deltalog"), "cdf/d.go": "package cdf\nimport \"" + module + "/log\"\n", "cdf/e.go": "package cdf\nimport deltalog \"" + module + "/log\"\n"},
			[]string{"io has several names: io in cdf/b.go, x in cdf/a.go", "dot import"}},
		{"MachinePath", map[string]string{"docs/a.md": "see\n/ho" + "me/me/x\n`/wo" + "rk/tmp` but https://x.org/home/y and $HOME/work/x and a/root/b\n"},
			[]string{"docs/a.md:2: a path of one machine", "docs/a.md:3: a path of one machine"}},
		{"Unfinished", map[string]string{"cdf/doc.go": doc("cdf"), "cdf/a.go": "package cdf\n// TO" + "DO later\n"}, []string{"cdf/a.go:2: TO" + "DO"}},
		{"DocLinks", map[string]string{"cdf/doc.go": "// Package cdf has [T], [T.M], [T.F], [*T], [io.Reader] and [storage.Store.Head], but not [U], [T.X], [storage.Nix].\n" + strings.TrimPrefix(doc("cdf"), "// Package cdf does.\n"),
			"cdf/a.go": "package cdf\ntype T struct{ F int }\nfunc (t *T) M() {}\n", "storage/doc.go": doc("storage"), "storage/a.go": "package storage\ntype Store interface { Head() }\n"},
			[]string{"[U] names", "[T.X] names", "[storage.Nix] names"}},
		{"Names", map[string]string{"cdf/doc.go": doc("util")}, []string{"package name \"util\""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string][]byte{}
			for n, s := range c.files {
				files[n] = []byte(s)
			}
			r, err := Parse(files)
			if err != nil {
				t.Fatal(err)
			}
			got := check(r, nil)
			if len(got) != len(c.want) {
				t.Fatalf("got %d findings %v, want %d", len(got), got, len(c.want))
			}
			for i, w := range c.want {
				if !slices.ContainsFunc(got, func(f Finding) bool { return strings.Contains(f.String(), w) }) {
					t.Errorf("finding %d: none of %v says %q", i, got, w)
				}
			}
		})
	}
}

func TestCheck_Exceptions(t *testing.T) {
	r, err := Parse(map[string][]byte{"cdf/doc.go": []byte(doc("cdf")), "cdf/a.go": []byte("package cdf\nfunc init() {}\n")})
	if err != nil {
		t.Fatal(err)
	}
	if got := check(r, []exception{{"cdf/a.go", "calls", "because"}}); len(got) != 0 {
		t.Errorf("excepted, yet %v", got)
	}
	got := check(r, []exception{{"cdf/a.go", "calls", ""}, {"cdf/b.go", "calls", "because"}})
	if len(got) != 2 || !strings.Contains(got[0].Msg, "no reason") || !strings.Contains(got[1].Msg, "no longer needed") {
		t.Errorf("got %v", got)
	}
}
