package files

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
)

// isURL tells a location of a store from a path.
func isURL(arg string) bool {
	scheme, _, ok := strings.Cut(arg, "://")
	return ok && len(scheme) > 1 && !strings.EqualFold(scheme, "file")
}

// findObjects lists the objects that a URL names: one object, all below a prefix, or
// those that match a pattern. Objects that were read whole and have not changed are
// left out while they are listed, so that a long history takes no memory.
func (s *Source) findObjects(ctx context.Context, arg string, from map[string]event.Position, add func(input)) error {
	if s.opt.OpenStore == nil {
		return &Error{Code: "NOT_FOUND", Path: arg, Reason: "object stores are not read here"}
	}
	root, rest := arg, ""
	if i := strings.IndexAny(arg, "*?["); i >= 0 {
		root, rest = arg[:strings.LastIndexByte(arg[:i], '/')+1], arg[strings.LastIndexByte(arg[:i], '/')+1:]
	}
	if strings.HasSuffix(root, "://") {
		return &Error{Code: "NOT_FOUND", Path: arg, Reason: "a pattern cannot stand for the bucket"}
	}
	if _, err := path.Match(rest, ""); err != nil {
		return &Error{Code: "NOT_FOUND", Path: arg, Reason: "bad pattern", Err: err}
	}
	if rest == "" && !strings.HasSuffix(root, "/") {
		if found, err := s.oneObject(ctx, root, from, add); found || err != nil {
			return err
		}
	}
	store, err := s.opt.OpenStore(root)
	if err != nil {
		return err
	}
	var list []input
	some := false
	for o, err := range store.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list %s: %w", root, err)
		}
		if !matches(rest, o.Key) || o.Size == 0 || slices.ContainsFunc(strings.Split(o.Key, "/"), skipped) {
			continue
		}
		some = true
		if in := objectInput(store, o); s.opt.Clean != "" || !s.readWhole(in, from) {
			list = append(list, in)
		}
	}
	// A pattern may match nothing yet, as one of paths may.
	if !some && (rest == "" || len(from) == 0 && !s.opt.Wait) {
		return &Error{Code: "NOT_FOUND", Path: arg, Reason: "there is no object and nothing below it", Err: storage.ErrNotFound}
	}
	slices.SortFunc(list, func(a, b input) int { return naturalCompare(a.key, b.key) })
	for _, in := range list {
		add(in)
	}
	return nil
}

// oneObject takes a URL that is the name of an object.
func (s *Source) oneObject(ctx context.Context, location string, from map[string]event.Position, add func(input)) (bool, error) {
	at := strings.LastIndexByte(location, '/')
	if at < 0 || strings.HasSuffix(location[:at+1], "://") {
		return false, nil // a bucket
	}
	store, err := s.opt.OpenStore(location[:at+1])
	if err != nil {
		return false, err
	}
	o, err := store.Head(ctx, location[at+1:])
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrInvalidKey) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if in := objectInput(store, o); !s.readWhole(in, from) {
		add(in)
	}
	return true, nil
}

func objectInput(store storage.Store, o storage.Object) input {
	uri := store.URL() + o.Key
	return input{path: uri, uri: uri, store: store, key: o.Key, was: objectStat(o)}
}

// readWhole tells whether an object was read to its end and is the same.
func (s *Source) readWhole(in input, from map[string]event.Position) bool {
	pos, known := s.positions[in.uri]
	if !known {
		pos, known = from[in.uri]
	}
	return known && pos.Done && in.was.same(parseCheck(pos.Check))
}

// same tells whether a position was taken of this very content.
func (st stat) same(c check) bool {
	return c.ok && c.size == st.size && c.id == st.id && (c.mtime == st.mtime.UnixNano() || c.hash == objectHash && st.id != "")
}

// matches compares a key with a pattern of as many elements; a key below what the
// pattern matches counts too, as with directories. "" matches all.
func matches(pattern, key string) bool {
	if pattern == "" {
		return true
	}
	n := strings.Count(pattern, "/") + 1
	parts := strings.Split(key, "/")
	if len(parts) < n {
		return false
	}
	ok, err := path.Match(pattern, strings.Join(parts[:n], "/"))
	return err == nil && ok
}
