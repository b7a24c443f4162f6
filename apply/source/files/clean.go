package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
)

// The ways of Options.Clean.
const (
	CleanDelete  = "delete"
	CleanArchive = "archive"
)

// checkClean refuses what would lose files or read them again.
func (o *Options) checkClean() error {
	switch o.Clean {
	case "", CleanDelete:
		if o.Archive != "" {
			return errors.New("option archive: it needs clean_source=archive")
		}
		return nil
	case CleanArchive:
	default:
		return fmt.Errorf("option clean_source=%s: want delete or archive", o.Clean)
	}
	if o.Archive == "" {
		return errors.New("option clean_source=archive: name the folder with option archive=DIR")
	}
	to, err := filepath.Abs(o.Archive)
	if err != nil {
		return fmt.Errorf("option archive=%s: %w", o.Archive, err)
	}
	for _, p := range o.Paths {
		if isURL(p) {
			return fmt.Errorf("option clean_source=archive: %s is in an object store, whose objects are kept or deleted", p)
		}
		root, err := filepath.Abs(rootOf(strings.TrimPrefix(p, "file://")))
		if err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		if rel, err := filepath.Rel(root, to); err == nil && !slices.ContainsFunc(strings.Split(filepath.ToSlash(rel), "/"), skipped) {
			return fmt.Errorf("option archive=%s: it lies below %s, where it would be read again; name another folder, or one that begins with _", o.Archive, root)
		}
	}
	return nil
}

// rootOf is the folder above what an argument can match.
func rootOf(arg string) string {
	if i := strings.IndexAny(arg, "*?["); i >= 0 {
		return filepath.Dir(arg[:i] + "x")
	}
	if st, err := os.Stat(arg); err == nil && !st.IsDir() {
		return filepath.Dir(arg)
	}
	return arg
}

// Committed implements event.Cleaner: what was read to its end, as far as the positions
// say, and has rested, leaves the input.
func (s *Source) Committed(ctx context.Context, positions map[string]event.Position) error {
	if s.opt.Clean == "" {
		return nil
	}
	for _, in := range s.inputs {
		p, ok := positions[in.uri]
		if in.stdin || !ok || p.Gone || s.gone[in.uri] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		done, err := s.clean(ctx, in, p)
		if err != nil {
			return &Error{Code: "SOURCE_NOT_CLEANED", Path: in.path, Reason: "was read and committed, and cannot be taken away", Err: err}
		}
		if done {
			s.forget(in.uri)
		}
	}
	return nil
}

// clean takes one file away if it is whole, unchanged and old enough.
func (s *Source) clean(ctx context.Context, in input, p event.Position) (bool, error) {
	now, c := in.was, parseCheck(p.Check)
	if in.store == nil {
		st, err := os.Stat(in.path)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		now = statOf(st)
	}
	age := s.opt.StableAge
	if age == 0 {
		age = time.Minute
	}
	if !now.same(c) || !p.Done && p.Offset != now.size || s.opt.Now().Sub(now.mtime) < max(age, s.opt.CleanAfter) {
		return false, nil
	}
	switch {
	case in.store != nil:
		return true, in.store.Delete(ctx, in.key)
	case s.opt.Clean == CleanDelete:
		return true, os.Remove(in.path)
	}
	return true, s.archive(in)
}

// archive moves a file to the same place below the archive. A name that is taken by
// another file gets a number; a link that a crash left is finished.
func (s *Source) archive(in input) error {
	rel := filepath.Base(in.path)
	for _, arg := range s.opt.Paths {
		if r, err := filepath.Rel(rootOf(strings.TrimPrefix(arg, "file://")), in.path); err == nil && filepath.IsLocal(r) {
			rel = r
			break
		}
	}
	to := filepath.Join(s.opt.Archive, rel)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	from, err := os.Stat(in.path)
	if err != nil {
		return err
	}
	for n := 2; ; n++ {
		err := os.Link(in.path, to)
		if errors.Is(err, fs.ErrExist) {
			if have, err := os.Stat(to); err != nil || !os.SameFile(have, from) {
				to = filepath.Join(s.opt.Archive, fmt.Sprintf("%s.%d", rel, n))
				continue
			}
		} else if err != nil {
			return err
		}
		return os.Remove(in.path)
	}
}

// forget makes the position of a file that is gone leave the state with the next commit.
func (s *Source) forget(uri string) {
	if _, known := s.positions[uri]; !known {
		s.order = append(s.order, uri)
	}
	s.positions[uri] = event.Position{Source: uri, Gone: true}
	s.gone[uri] = true
}

// forgetGone finds the positions of files that are away already: a crash came between
// taking them away and the commit that forgets them.
func (s *Source) forgetGone(from map[string]event.Position) {
	if s.opt.Clean == "" {
		return
	}
	there := map[string]bool{}
	for _, in := range s.inputs {
		there[in.uri] = true
	}
	prefix := (&url.URL{Scheme: "file", Host: s.opt.Host, Path: "/"}).String()
	for uri := range from {
		if there[uri] || s.gone[uri] || !strings.HasPrefix(uri, prefix) {
			continue
		}
		u, err := url.Parse(uri)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(filepath.FromSlash(u.Path)); errors.Is(err, fs.ErrNotExist) && s.below(u.Path) {
			s.forget(uri)
		}
	}
}

// below tells whether a path is of a folder that is read and is there now: what cannot
// be seen since a disk is away is not forgotten.
func (s *Source) below(path string) bool {
	for _, arg := range s.opt.Paths {
		if isURL(arg) || arg == "-" {
			continue
		}
		root, err := filepath.Abs(rootOf(strings.TrimPrefix(arg, "file://")))
		if err == nil {
			root, err = filepath.EvalSymlinks(root)
		}
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, filepath.FromSlash(path)); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}
