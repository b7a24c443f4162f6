package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Finding is one breach of a rule.
type Finding struct {
	File string // relative to the root, with slashes
	Line int    // 0: the whole file or package
	Rule string
	Msg  string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s (%s)", f.File, f.Msg, f.Rule)
	}
	return fmt.Sprintf("%s:%d: %s (%s)", f.File, f.Line, f.Msg, f.Rule)
}

// File is one file of the repository.
type File struct {
	Path string // relative to the root, with slashes
	Data []byte
	AST  *ast.File // of .go files
}

// Pkg is the directory of the file: "." at the root.
func (f *File) Pkg() string { return path.Dir(f.Path) }

// IsTest says whether only `go test` compiles the file.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Repo is what the rules look at.
type Repo struct {
	Fset  *token.FileSet
	Files []*File
}

// Load reads the tracked and the not yet added files of the repository at root,
// as git tells them, or without git all files outside hidden and build folders.
func Load(root string) (*Repo, error) {
	names, err := gitFiles(root)
	if err != nil {
		if names, err = walkFiles(root); err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
	}
	files := map[string][]byte{}
	for _, n := range names {
		p := filepath.Join(root, filepath.FromSlash(n))
		if fi, err := os.Lstat(p); err != nil || !fi.Mode().IsRegular() {
			continue // deleted but still tracked, or a link
		}
		if files[n], err = os.ReadFile(p); err != nil {
			return nil, err
		}
	}
	return Parse(files)
}

// Parse makes a Repo of files by relative path.
func Parse(files map[string][]byte) (*Repo, error) {
	r := &Repo{Fset: token.NewFileSet()}
	for name, data := range files {
		f := &File{Path: name, Data: data}
		if strings.HasSuffix(name, ".go") && !strings.Contains("/"+name, "/testdata/") {
			var err error
			if f.AST, err = parser.ParseFile(r.Fset, name, data, parser.ParseComments|parser.SkipObjectResolution); err != nil {
				return nil, fmt.Errorf("parse: %w", err)
			}
		}
		r.Files = append(r.Files, f)
	}
	slices.SortFunc(r.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return r, nil
}

func gitFiles(root string) ([]string, error) {
	cmd := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.TrimRight(out, "\x00")), "\x00"), nil
}

func walkFiles(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != root && (strings.HasPrefix(name, ".") && name != ".ci" || name == "build" || name == "bin" || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}

// goFiles yields the parsed files.
func (r *Repo) goFiles(yield func(*File) bool) {
	for _, f := range r.Files {
		if f.AST != nil && !yield(f) {
			return
		}
	}
}

// packages groups the Go files that are not tests by directory.
func (r *Repo) packages() map[string][]*File {
	out := map[string][]*File{}
	for f := range r.goFiles {
		if !f.IsTest() {
			out[f.Pkg()] = append(out[f.Pkg()], f)
		}
	}
	return out
}

func (r *Repo) at(f *File, pos token.Pos, rule, format string, args ...any) Finding {
	return Finding{File: f.Path, Line: r.Fset.Position(pos).Line, Rule: rule, Msg: fmt.Sprintf(format, args...)}
}
