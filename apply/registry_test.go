package apply

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

// registry is the values of the constants in errors.go.
func registry(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(Code\w+)\s*=\s*(snapshotError \+ )?"([^"]+)"$`).FindAllStringSubmatch(string(raw), -1) {
		code := m[3]
		if m[2] != "" {
			code = snapshotError + code
		}
		if other := out[code]; other != "" {
			t.Errorf("%s and %s are one code", other, m[1])
		}
		out[code] = m[1]
	}
	return out
}

// TestCodes_OneRegistry: every code of auto-cdc 1.6 has its constant in errors.go, and
// no other file of engine or statements spells one.
func TestCodes_OneRegistry(t *testing.T) {
	have := registry(t)
	for _, dir := range []string{".", "sql"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f == "errors.go" || strings.HasSuffix(f, "_test.go") {
				continue
			}
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`"([A-Z][A-Z0-9_.]+_[A-Z0-9_]+)"`).FindAllStringSubmatch(string(raw), -1) {
				if name := have[m[1]]; name != "" {
					t.Errorf("%s spells %s; use %s", f, m[1], name)
				}
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(testenv.SharedDir(t, "specs"), "auto-cdc.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), "\n### 1.6 ")
	section, _, _ = strings.Cut(section, "\n### 1.7 ")
	n := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([A-Z.][A-Z0-9_.]+)(\\*?)`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			code := m[1]
			if rest, short := strings.CutPrefix(code, "..ERROR."); short {
				code = snapshotError + rest
			}
			n++
			known := have[code] != ""
			for c := range have {
				known = known || m[2] == "*" && strings.HasPrefix(c, code)
			}
			if !known {
				t.Errorf("no constant for %s", code)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d codes were found in the table of 1.6", n)
	}
}
