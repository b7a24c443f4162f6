package coverage

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Item is one id of the specifications.
type Item struct{ ID, Source, About string }

// ReadItems reads the list of ids: id, source and subject a line, separated by tabs.
func ReadItems(path string) ([]Item, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Item
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, "\t")
		if len(parts) != 3 {
			return nil, fmt.Errorf("read %s: %q is not three fields", path, line)
		}
		out = append(out, Item{parts[0], parts[1], parts[2]})
	}
	return out, nil
}

var (
	extension = regexp.MustCompile(`^\.[a-z0-9]{1,6}$`)
	inText    = regexp.MustCompile(`\b(?:[RWC]-\d{2,3}|[EB]\d{2}|F\d{1,2}\.[A-G])\b`)
	// Go identifiers and file names have no dash: TestApply_E07, TestReplay_R221.
	inName = regexp.MustCompile(`(?:^|[_/-])([RWC])_?(\d{2,3})(?:$|[^0-9])|(?:^|[_/-])([EB]\d{2})(?:$|[^0-9])|(?:^|[_/-])(F\d{1,2})[._]([A-G])(?:$|[^A-Za-z])`)
)

func idsInName(name string) []string {
	out := inText.FindAllString(name, -1)
	for _, m := range inName.FindAllStringSubmatch(name, -1) {
		switch {
		case m[1] != "":
			out = append(out, m[1]+"-"+m[2])
		case m[3] != "":
			out = append(out, m[3])
		default:
			out = append(out, m[4]+"."+m[5])
		}
	}
	return out
}

// Scan answers, for each id, the tests under root that carry it, sorted, as
// "dir: TestName" or "dir/testdata/file".
func Scan(root string) (map[string][]string, error) {
	found := map[string][]string{}
	add := func(test string, ids []string) {
		for _, id := range ids {
			if !slices.Contains(found[id], test) {
				found[id] = append(found[id], test)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); name != "." && (name[0] == '.' || rel == "internal/coverage" || rel == "build" || rel == "bin") && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		switch {
		case strings.HasSuffix(rel, "_test.go"):
			return scanGo(path, rel, add)
		case strings.Contains(rel, "testdata/"):
			return scanData(path, rel, add)
		}
		return nil
	})
	for _, tests := range found {
		slices.Sort(tests)
	}
	return found, err
}

func scanGo(path, rel string, add func(string, []string)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := rel[:strings.LastIndexByte("/"+rel, '/')]
	dir = strings.TrimSuffix(dir, "/")
	for _, decl := range file.Decls {
		test := dir + ": cases of " + rel[strings.LastIndexByte(rel, '/')+1:]
		if f, ok := decl.(*ast.FuncDecl); ok {
			test = dir + ": " + f.Name.Name
			if strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz") {
				add(test, idsInName(f.Name.Name))
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					add(test, inText.FindAllString(text, -1))
				}
			}
			return true
		})
	}
	return nil
}

// scanData reads ids out of a file's name and of its comment lines.
func scanData(path, rel string, add func(string, []string)) error {
	name := rel[strings.LastIndex(rel, "testdata/")+len("testdata/"):]
	// An id with a dot is not an extension: F1.A_key_change.
	if ext := filepath.Ext(name); extension.MatchString(ext) {
		name = strings.TrimSuffix(name, ext)
	}
	add(rel, idsInName(name))
	st, err := os.Stat(path)
	if err != nil || st.Size() > 1<<20 {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "#") {
			add(rel, inText.FindAllString(line, -1))
		}
	}
	return nil
}

// Report prints docs/coverage.md.
func Report(items []Item, found map[string][]string) string {
	var b strings.Builder
	var missing []Item
	for _, it := range items {
		if len(found[it.ID]) == 0 {
			missing = append(missing, it)
		}
	}
	b.WriteString("# Coverage of the specifications\n\n")
	b.WriteString("Which test proves which item. Generated from the names of the tests by\n" +
		"`go test ./internal/coverage -rewrite`; the same test without the flag fails when this page is stale.\n\n")
	fmt.Fprintf(&b, "%d of %d items have a test that carries their id; the others are listed at the end.\n", len(items)-len(missing), len(items))
	source := ""
	for _, it := range items {
		tests := found[it.ID]
		if len(tests) == 0 {
			continue
		}
		if it.Source != source {
			source = it.Source
			fmt.Fprintf(&b, "\n## %s\n\n| Item | About | Tests |\n|---|---|---|\n", strings.ToUpper(source[:1])+source[1:])
		}
		const most = 4
		more := ""
		if len(tests) > most {
			more = fmt.Sprintf(", and %d more", len(tests)-most)
			tests = tests[:most]
		}
		fmt.Fprintf(&b, "| %s | %s | `%s`%s |\n", it.ID, strings.ReplaceAll(it.About, "|", "\\|"), strings.Join(tests, "`, `"), more)
	}
	if len(missing) > 0 {
		b.WriteString("\n## No test carries these ids\n\n")
		source = ""
		for _, it := range missing {
			if it.Source != source {
				if source != "" {
					b.WriteString("\n")
				}
				source = it.Source
				fmt.Fprintf(&b, "- %s: %s", source, it.ID)
				continue
			}
			b.WriteString(", " + it.ID)
		}
		b.WriteString("\n")
	}
	return b.String()
}
