package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in README.md")

// varying is what differs from run to run: times, durations, sizes, unique names.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|\d+(?:\.\d+)? s\b|\d+(?:\.\d+)? [KM]iB|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|"(?:executionTimeMs|num\w*Bytes)""?:""?\d+`)

// TestReadme_TourIsReal runs the commands of README.md one after the other in an
// empty folder and compares what they print with what the page shows.
func TestReadme_TourIsReal(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("the tour is shell lines and there is no sh")
	}
	page := filepath.Join(testenv.RepoRoot(t), "README.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(command string) string {
		sh := exec.CommandContext(t.Context(), "sh", "-c", command)
		var out bytes.Buffer
		sh.Dir, sh.Stdout, sh.Stderr = dir, &out, &out
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
		if err := sh.Run(); err != nil && out.Len() == 0 {
			t.Errorf("%s: %v", command, err)
		}
		return out.String()
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```")
	current := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
		var b strings.Builder
		b.WriteString("```console\n")
		for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(block, "```console\n"), "```")) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				b.WriteString(line)
				b.WriteString(run(strings.TrimSuffix(command, "\n")))
			}
		}
		b.WriteString("```")
		return b.String()
	})
	if *rewrite {
		if err := os.WriteFile(page, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(varying.ReplaceAllString(current, "~"), "\n"), strings.Split(varying.ReplaceAllString(string(text), "~"), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("line %d of README.md is stale: go test ./cmd/sluice -run Readme -rewrite\nprinted %s\nshown   %s", i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("README.md is stale: go test ./cmd/sluice -run Readme -rewrite")
	}
}
