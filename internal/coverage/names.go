package coverage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// names are the declared identifiers of a repository: "pkg.Name", "pkg.Type.Method"
// by package clause and by directory.
type names struct {
	packages map[string]bool
	declared map[string]bool
}

func declaredNames(root string) (*names, error) {
	n := &names{packages: map[string]bool{}, declared: map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (name[0] == '.' || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		n.add(file, file.Name.Name)
		n.add(file, filepath.Base(filepath.Dir(path)))
		return nil
	})
	return n, err
}

func (n *names) add(file *ast.File, pkg string) {
	n.packages[pkg] = true
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			n.declared[pkg+"."+name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					n.declared[pkg+"."+s.Name.Name] = true
					n.members(pkg+"."+s.Name.Name, s.Type)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						n.declared[pkg+"."+id.Name] = true
					}
				}
			}
		}
	}
}

func (n *names) members(prefix string, t ast.Expr) {
	var fields *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			n.declared[prefix+"."+id.Name] = true
		}
	}
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

var (
	code       = regexp.MustCompile("`([^`\n]+)`")
	fence      = regexp.MustCompile("(?ms)^```.*?^```")
	identifier = regexp.MustCompile(`^([a-z][a-z0-9]*)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)$`)
	treePath   = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.*-]+)+/?$`)
)

// UnknownNames lists what a page puts in backticks and the repository does not
// have: identifiers of its packages (delta.Open, storage.Store.Create) and paths
// whose first element exists at the root. Fenced blocks are left out.
func UnknownNames(root, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		return nil, err
	}
	known, err := declaredNames(root)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range code.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
		word := strings.TrimSuffix(string(m[1]), "()")
		switch {
		case identifier.MatchString(word):
			pkg := identifier.FindStringSubmatch(word)[1]
			property := pkg == "delta" && word[len("delta.")] >= 'a' // delta.appendOnly
			if known.packages[pkg] && !property && !known.declared[word] && !exists(root, word) {
				out = append(out, word)
			}
		case treePath.MatchString(word):
			top, _, _ := strings.Cut(word, "/")
			if exists(root, top) && !exists(root, word) {
				out = append(out, word)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func exists(root, path string) bool {
	matches, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(path)))
	return err == nil && len(matches) > 0
}
