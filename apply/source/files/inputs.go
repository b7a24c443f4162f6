package files

import (
	"context"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
)

// input is one file to read.
type input struct {
	path  string
	uri   string
	stdin bool
	// store and key are those of an object, was what it was when it was listed.
	store storage.Store
	key   string
	was   stat
}

// find expands the paths: arguments in their order, what a directory or glob
// holds in natural order, each file once.
func (s *Source) find(ctx context.Context, from map[string]event.Position) ([]input, error) {
	var out []input
	seen := map[string]bool{}
	add := func(path string) error {
		uri, err := s.identity(path)
		if err != nil {
			return notFound(path, err)
		}
		if !seen[uri] {
			seen[uri] = true
			out = append(out, input{path: path, uri: uri})
		}
		return nil
	}
	for _, arg := range s.opt.Paths {
		before := len(out)
		if arg == "-" {
			out = append(out, input{path: "standard input", uri: "-", stdin: true})
			continue
		}
		if isURL(arg) {
			err := s.findObjects(ctx, arg, from, func(in input) {
				if !seen[in.uri] {
					seen[in.uri] = true
					out = append(out, in)
				}
			})
			if err != nil {
				return nil, err
			}
			continue
		}
		arg = strings.TrimPrefix(arg, "file://")
		paths, err := expand(arg)
		if err != nil {
			if uri, e := s.identity(filepath.Dir(arg)); e == nil {
				if p, ok := from[uri+"/"+url.PathEscape(filepath.Base(arg))]; ok && !p.Done {
					return nil, &Error{Code: "INPUT_GONE", Path: arg, Reason: "was read in part and is gone", Err: fs.ErrNotExist}
				}
			}
			return nil, err
		}
		for _, p := range paths {
			if err := add(p); err != nil {
				return nil, err
			}
		}
		// Files that were read may have been moved away; a pattern that never matched is wrong.
		if len(paths) == 0 && len(out) == before && isGlob(arg) && len(from) == 0 && !s.opt.Wait {
			return nil, &Error{Code: "NOT_FOUND", Path: arg, Reason: "the pattern matches no file", Err: fs.ErrNotExist}
		}
	}
	return out, nil
}

// identity is the URI of a file: host, absolute path, links resolved.
func (s *Source) identity(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", err
	}
	u := url.URL{Scheme: "file", Host: s.opt.Host, Path: filepath.ToSlash(abs)}
	return u.String(), nil
}

func expand(arg string) ([]string, error) {
	st, err := os.Stat(arg)
	switch {
	case err == nil && st.IsDir():
		return walk(arg)
	case err == nil:
		return []string{arg}, nil
	case !isGlob(arg):
		return nil, notFound(arg, err)
	}
	matches, err := filepath.Glob(arg)
	if err != nil {
		return nil, &Error{Code: "NOT_FOUND", Path: arg, Reason: "bad pattern", Err: err}
	}
	var out []string
	for _, m := range matches {
		st, err := os.Stat(m)
		if err != nil || skipped(filepath.Base(m)) {
			continue
		}
		if st.IsDir() {
			below, err := walk(m)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		} else {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, naturalCompare)
	return out, nil
}

func isGlob(arg string) bool { return strings.ContainsAny(arg, "*?[") && !exists(arg) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// walk lists the data files below a directory; hidden, unfinished and empty
// ones are left out (cdc-formats 20).
func walk(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && skipped(e.Name()) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return nil
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
			return nil //nolint:nilerr // a dangling link or a file that went away is no input
		}
		out = append(out, path)
		return nil
	})
	if err != nil {
		return nil, notFound(dir, err)
	}
	slices.SortFunc(out, naturalCompare)
	return out, nil
}

// skipped names no data: _SUCCESS, hidden files, unfinished copies.
func skipped(name string) bool {
	if strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".") {
		return true
	}
	for _, suffix := range []string{".tmp", ".crdownload", ".inprogress", "._COPYING_", ".part"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// naturalCompare orders names as text, runs of digits by their number: part-10
// follows part-9.
func naturalCompare(a, b string) int {
	full := strings.Compare(a, b)
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	for a != "" && b != "" {
		if !digit(a[0]) || !digit(b[0]) {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		run := func(s string) (string, string) {
			i := 0
			for i < len(s) && digit(s[i]) {
				i++
			}
			return strings.TrimLeft(s[:i], "0"), s[i:]
		}
		var x, y string
		x, a = run(a)
		y, b = run(b)
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return full
}
