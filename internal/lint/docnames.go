package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// names of what a package declares: "Store", "Store.Head" for methods, fields
// and interface methods.
type declared map[string]bool

// checkDocNames: what package comments link to exists, [Open] or [schema.Type].
// (The pages in Markdown are checked by internal/coverage.)
func checkDocNames(r *Repo) []Finding {
	byDir := map[string]declared{}    // by directory
	byName := map[string][]declared{} // by package clause; several may share it
	for dir, files := range r.packages() {
		d := declared{}
		for _, f := range files {
			d.add(f.AST)
		}
		byDir[dir] = d
		byName[files[0].AST.Name.Name] = append(byName[files[0].AST.Name.Name], d)
	}
	known := func(name string) bool { // pkg.Ident of one of ours, or of nobody we know
		pkg, ident, _ := strings.Cut(name, ".")
		if len(byName[pkg]) == 0 {
			return true
		}
		for _, d := range byName[pkg] {
			if d[ident] {
				return true
			}
		}
		return false
	}
	var out []Finding
	for dir, files := range r.packages() {
		for _, f := range files {
			if f.AST.Doc == nil {
				continue
			}
			for _, m := range docLink.FindAllStringSubmatch(f.AST.Doc.Text(), -1) {
				name := m[1]
				if byDir[dir][name] || strings.Contains(name, ".") && !byDir[dir][strings.SplitN(name, ".", 2)[0]] && known(name) {
					continue
				}
				out = append(out, Finding{File: f.Path, Rule: "docnames", Msg: fmt.Sprintf("[%s] names nothing in the package", name)})
			}
		}
	}
	return out
}

var docLink = regexp.MustCompile(`\[\*?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\]`)

// add collects the declarations of one file.
func (d declared) add(f *ast.File) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				d[decl.Name.Name] = true
				continue
			}
			t := decl.Recv.List[0].Type
			for {
				switch x := t.(type) {
				case *ast.StarExpr:
					t = x.X
					continue
				case *ast.IndexExpr:
					t = x.X
					continue
				case *ast.IndexListExpr:
					t = x.X
					continue
				case *ast.Ident:
					d[x.Name+"."+decl.Name.Name] = true
				}
				break
			}
		case *ast.GenDecl:
			if decl.Tok == token.IMPORT {
				continue
			}
			for _, s := range decl.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						d[n.Name] = true
					}
				case *ast.TypeSpec:
					d[s.Name.Name] = true
					d.members(s.Name.Name, s.Type)
				}
			}
		}
	}
}

func (d declared) members(typ string, e ast.Expr) {
	var fields *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			d[typ+"."+n.Name] = true
		}
	}
}
