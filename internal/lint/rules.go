package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Check applies every rule and sorts what it found.
func Check(r *Repo) []Finding { return check(r, exceptions) }

func check(r *Repo, except []exception) []Finding {
	var all []Finding
	for _, rule := range []func(*Repo) []Finding{
		checkImports, checkDocs, checkLength, checkCalls, checkAliases, checkPaths, checkWords, checkNames, checkDocNames,
	} {
		all = append(all, rule(r)...)
	}
	used := make([]bool, len(except))
	all = slices.DeleteFunc(all, func(f Finding) bool {
		i := slices.IndexFunc(except, func(e exception) bool { return e.file == f.File && e.rule == f.Rule })
		if i >= 0 {
			used[i] = true
		}
		return i >= 0
	})
	for i, e := range except {
		if !used[i] {
			all = append(all, Finding{File: e.file, Rule: e.rule, Msg: "the exception is no longer needed: remove it from the table"})
		}
		if e.reason == "" {
			all = append(all, Finding{File: e.file, Rule: e.rule, Msg: "the exception has no reason"})
		}
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Msg, b.Msg))
	})
	return all
}

func importPath(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		return s.Path.Value
	}
	return p
}

// ours gives the package relative to the module.
func ours(imp string) (string, bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

// checkImports holds the import table.
func checkImports(r *Repo) []Finding {
	var out []Finding
	for pkg, files := range r.packages() {
		from, known := layerOf(pkg)
		if !known {
			out = append(out, Finding{File: pkg, Rule: "imports", Msg: "the package is not in the import table (internal/lint/table.go)"})
			continue
		}
		for _, f := range files {
			for _, s := range f.AST.Imports {
				imp := importPath(s)
				rel, isOurs := ours(imp)
				if !isOurs {
					if msg := foreign(pkg, from, imp); msg != "" {
						out = append(out, r.at(f, s.Pos(), "imports", "%s", msg))
					}
					continue
				}
				to, known := layerOf(rel)
				switch {
				case !known:
					out = append(out, r.at(f, s.Pos(), "imports", "%s is not in the import table (internal/lint/table.go)", rel))
				case to.test && !from.test:
					out = append(out, r.at(f, s.Pos(), "imports", "%s is for tests only", rel))
				case strings.HasPrefix(pkg, "examples/") && strings.Contains("/"+rel+"/", "/internal/"):
					out = append(out, r.at(f, s.Pos(), "imports", "an example of the SDK imports %s, which users cannot", rel))
				case to.tier >= from.tier:
					out = append(out, r.at(f, s.Pos(), "imports", "%s (tier %d) may not import %s (tier %d)", pkg, from.tier, rel, to.tier))
				}
			}
		}
	}
	return out
}

// foreign says what is wrong with an import from outside the module.
func foreign(pkg string, from layer, imp string) string {
	if imp == "C" {
		return "no cgo"
	}
	for _, o := range outside {
		if !strings.HasPrefix(imp, o.prefix) || from.test {
			continue
		}
		allowed := slices.ContainsFunc(o.pkgs, func(p string) bool { ok, err := path.Match(p, pkg); return ok && err == nil })
		if allowed {
			continue
		}
		if len(o.pkgs) == 0 {
			return imp + " is for tests only"
		}
		return fmt.Sprintf("only %s may import %s", strings.Join(o.pkgs, ", "), imp)
	}
	return ""
}

var numbered = regexp.MustCompile(`(?m)^\s*1\. `)

// checkDocs wants a doc.go with purpose, invariants, entry points and imports.
func checkDocs(r *Repo) []Finding {
	var out []Finding
	for pkg, files := range r.packages() {
		if pkg == "." {
			continue
		}
		i := slices.IndexFunc(files, func(f *File) bool { return path.Base(f.Path) == "doc.go" })
		if i < 0 {
			out = append(out, Finding{File: pkg, Rule: "doc", Msg: "no doc.go"})
			continue
		}
		f := files[i]
		if f.AST.Doc == nil {
			out = append(out, Finding{File: f.Path, Rule: "doc", Msg: "no package comment"})
			continue
		}
		text := f.AST.Doc.Text()
		var lacks []string
		if !strings.HasPrefix(text, "Package "+f.AST.Name.Name+" ") && f.AST.Name.Name != "main" {
			lacks = append(lacks, "\"Package "+f.AST.Name.Name+" ...\"")
		}
		if f.AST.Name.Name != "main" {
			if !strings.Contains(text, "Invariants:") || !numbered.MatchString(text) {
				lacks = append(lacks, "numbered \"Invariants:\"")
			}
			if !strings.Contains(text, "Entry point") {
				lacks = append(lacks, "\"Entry points:\"")
			}
			if !strings.Contains(text, "import") {
				lacks = append(lacks, "what it may or must not import")
			}
		}
		if len(lacks) > 0 {
			out = append(out, Finding{File: f.Path, Rule: "doc", Msg: "the package comment lacks " + strings.Join(lacks, ", ")})
		}
		for _, other := range files {
			if other != f && other.AST.Doc != nil {
				out = append(out, Finding{File: other.Path, Rule: "doc", Msg: "a second package comment; it belongs in doc.go"})
			}
		}
	}
	return out
}

const maxLines = 900

func checkLength(r *Repo) []Finding {
	var out []Finding
	for f := range r.goFiles {
		if n := bytes.Count(f.Data, []byte("\n")); n > maxLines && !f.IsTest() {
			out = append(out, Finding{File: f.Path, Rule: "length", Msg: fmt.Sprintf("%d lines, more than %d: split it by idea", n, maxLines)})
		}
	}
	return out
}

// forbidden names calls and values of the standard library that libraries do
// not use, and why. A trailing * matches the rest of the name.
var forbidden = []struct {
	pkg, name, why string
	callOnly       bool // naming it without a call is fine (an option default)
}{
	{"time", "Now", "take a Clock option", true},
	{"time", "Since", "take a Clock option", true},
	{"time", "Until", "take a Clock option", true},
	{"os", "Getenv", "the environment is read in cmd and storage/open", false},
	{"os", "LookupEnv", "the environment is read in cmd and storage/open", false},
	{"os", "Environ", "the environment is read in cmd and storage/open", false},
	{"os", "ExpandEnv", "the environment is read in cmd and storage/open", false},
	{"os", "Exit", "return an error", false},
	{"os", "Stdin", "take an io.Reader", false},
	{"os", "Stdout", "take an io.Writer", false},
	{"os", "Stderr", "take an io.Writer", false},
	{"fmt", "Print", "take an io.Writer", false},
	{"fmt", "Printf", "take an io.Writer", false},
	{"fmt", "Println", "take an io.Writer", false},
	{"fmt", "Scan*", "take an io.Reader", false},
	{"log", "*", "take a *slog.Logger option", false},
	{"log/slog", "Debug*", "take a *slog.Logger option", false},
	{"log/slog", "Info*", "take a *slog.Logger option", false},
	{"log/slog", "Warn*", "take a *slog.Logger option", false},
	{"log/slog", "Error*", "take a *slog.Logger option", false},
	{"log/slog", "Default", "take a *slog.Logger option", false},
	{"log/slog", "SetDefault", "take a *slog.Logger option", false},
}

// program says whether the package is a program or drives one, where the world
// outside may be touched.
func program(pkg string) bool {
	return strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "examples/") ||
		pkg == "conformance" || strings.HasPrefix(pkg, "conformance/")
}

func checkCalls(r *Repo) []Finding {
	var out []Finding
	for f := range r.goFiles {
		if f.IsTest() {
			continue
		}
		l, _ := layerOf(f.Pkg())
		free := program(f.Pkg()) || l.test
		names := importNames(f)
		called := map[ast.Expr]bool{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				called[n.Fun] = true
				id, ok := n.Fun.(*ast.Ident)
				if ok && id.Name == "panic" && f.Pkg() != "internal/invariants" && !l.test {
					out = append(out, r.at(f, n.Pos(), "calls", "panic: return an error, or use invariants.Assert"))
				}
				if ok && (id.Name == "print" || id.Name == "println") {
					out = append(out, r.at(f, n.Pos(), "calls", "%s: take an io.Writer", id.Name))
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					out = append(out, r.at(f, n.Pos(), "calls", "init function: construct explicitly"))
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok || free {
					return true
				}
				for _, b := range forbidden {
					if names[x.Name] != b.pkg || b.callOnly && !called[n] || f.Pkg() == "storage/open" && b.pkg == "os" {
						continue
					}
					if p, star := strings.CutSuffix(b.name, "*"); n.Sel.Name == b.name || star && strings.HasPrefix(n.Sel.Name, p) {
						out = append(out, r.at(f, n.Pos(), "calls", "%s.%s: %s", x.Name, n.Sel.Name, b.why))
					}
				}
			}
			return true
		})
	}
	return out
}

// importNames maps the local names of a file's imports to their paths.
func importNames(f *File) map[string]string {
	out := map[string]string{}
	for _, s := range f.AST.Imports {
		p := importPath(s)
		name := defaultName(p)
		if s.Name != nil {
			name = s.Name.Name
		}
		out[name] = p
	}
	return out
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// defaultName guesses the package name of an import path: its last element
// that is no major version.
func defaultName(imp string) string {
	els := strings.Split(imp, "/")
	last := els[len(els)-1]
	if majorVersion.MatchString(last) && len(els) > 1 {
		last = els[len(els)-2]
	}
	return strings.TrimSuffix(strings.TrimPrefix(last, "go-"), "-go")
}

// checkAliases wants one name per import in the whole repository.
func checkAliases(r *Repo) []Finding {
	clause := map[string]string{} // our packages by their package clause
	for pkg, files := range r.packages() {
		clause[module+"/"+pkg] = files[0].AST.Name.Name
	}
	type use struct {
		f   *File
		pos token.Pos
	}
	uses := map[string]map[string]use{}
	var out []Finding
	for f := range r.goFiles {
		for _, s := range f.AST.Imports {
			p := importPath(s)
			name := cmp.Or(clause[p], defaultName(p))
			if s.Name != nil {
				name = s.Name.Name
			}
			if name == "_" {
				continue
			}
			if name == "." {
				out = append(out, r.at(f, s.Pos(), "alias", "dot import"))
				continue
			}
			if uses[p] == nil {
				uses[p] = map[string]use{}
			}
			if _, seen := uses[p][name]; !seen {
				uses[p][name] = use{f, s.Pos()}
			}
		}
	}
	for p, names := range uses {
		if len(names) < 2 {
			continue
		}
		var list []string
		for n, u := range names {
			list = append(list, fmt.Sprintf("%s in %s", n, u.f.Path))
		}
		slices.Sort(list)
		first := names[strings.SplitN(list[0], " ", 2)[0]]
		out = append(out, r.at(first.f, first.pos, "alias", "%s has several names: %s", p, strings.Join(list, ", ")))
	}
	return out
}

// machinePath matches absolute paths of somebody's machine. It is put together
// from parts so that this file does not match itself.
var machinePath = regexp.MustCompile(`(^|[^\w.:/*-])/(` + strings.Join(machineRoots, "|") + `)/[\w.]`)

var machineRoots = []string{"work", "root", "home", "Users"}

func checkPaths(r *Repo) []Finding {
	var out []Finding
	for _, f := range r.Files {
		if bytes.IndexByte(f.Data, 0) >= 0 {
			continue // not text
		}
		if !slices.ContainsFunc(machineRoots, func(d string) bool { return bytes.Contains(f.Data, []byte("/"+d+"/")) }) {
			continue // a quick look before the slow one
		}
		for i, line := range bytes.Split(f.Data, []byte("\n")) {
			if m := machinePath.Find(line); m != nil {
				out = append(out, Finding{File: f.Path, Line: i + 1, Rule: "paths", Msg: fmt.Sprintf("a path of one machine: %.40s", m)})
			}
		}
	}
	return out
}

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`)

// checkWords: what is unfinished is an issue, not a comment.
func checkWords(r *Repo) []Finding {
	var out []Finding
	for f := range r.goFiles {
		for _, g := range f.AST.Comments {
			for _, c := range g.List {
				if m := unfinished.FindString(c.Text); m != "" {
					out = append(out, r.at(f, c.Pos(), "words", "%s in a comment", m))
				}
			}
		}
	}
	return out
}

// taken are names that would say nothing, or hide a package of the standard
// library where both are needed.
var taken = []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "types",
	"bufio", "bytes", "context", "errors", "flag", "fmt", "hash", "io", "log", "math", "net", "os", "path", "runtime", "sort",
	"strings", "sync", "testing", "time", "unicode", "json", "csv", "http", "rand", "atomic", "slices", "maps"}

func checkNames(r *Repo) []Finding {
	var out []Finding
	for pkg, files := range r.packages() {
		if n := files[0].AST.Name.Name; slices.Contains(taken, n) {
			out = append(out, Finding{File: pkg, Rule: "names", Msg: fmt.Sprintf("package name %q says nothing or shadows the standard library", n)})
		}
		for _, f := range files[1:] {
			if f.AST.Name.Name != files[0].AST.Name.Name {
				out = append(out, Finding{File: f.Path, Rule: "names", Msg: "another package name than its neighbours"})
			}
		}
	}
	return out
}
