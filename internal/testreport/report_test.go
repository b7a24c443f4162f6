package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun_Counts(t *testing.T) {
	for _, c := range []struct {
		name, in string
		says     []string
		fails    bool
	}{
		{"LeavesCount", `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"run","Package":"p","Test":"TestA/y"}
{"Action":"output","Package":"p","Test":"TestA/y","Output":"    a_test.go:3: no disk\n"}
{"Action":"skip","Package":"p","Test":"TestA/y"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`, []string{"1 passed, 0 failed, 1 skipped\n", "1  no disk (p TestA/y)"}, false},
		{"Nothing", "", []string{"0 passed, 0 failed, 0 skipped"}, true},
		{"BrokenOff", `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
`, []string{"0 passed, 1 failed, 0 skipped"}, true},
		{"OtherVoices", "go: downloading x\n" + `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`, []string{"go: downloading x", "1 passed, 0 failed, 0 skipped"}, false},
		{"TwoPasses", strings.Repeat(`{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`, 2), []string{"2 passed, 0 failed, 0 skipped"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := run(strings.NewReader(c.in), &out)
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is not in:\n%s", s, out.String())
				}
			}
		})
	}
}

// TestRun_RealGo: what the go command really says about a module in which a
// test passes, one fails in a subtest, one panics and a package does not build.
func TestRun_RealGo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module m\n\ngo 1.26\n",
		"good/a_test.go":  "package good\nimport \"testing\"\nfunc TestA(t *testing.T) {}\n",
		"bad/a_test.go":   "package bad\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Error(\"it broke\") }) }\n",
		"panic/a_test.go": "package panic\nimport \"testing\"\nfunc TestA(t *testing.T) { var m map[int]int; m[1] = 1 }\n",
		"build/a_test.go": "package build\nvar x int = \"no number\"\n",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	in, _ := cmd.Output() // it fails, as it should
	var out strings.Builder
	if err := run(strings.NewReader(string(in)), &out); err == nil {
		t.Error("the run is called good")
	}
	for _, s := range []string{"1 passed, 3 failed, 0 skipped", "it broke", "assignment to entry in nil map", "no number", "ok   m/good", "FAIL m/build"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%q is not in:\n%s", s, out.String())
		}
	}
}
