package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// isObjectURL says whether an input is the URL of an object; a file URL is a path.
func isObjectURL(input string) bool {
	scheme, _, ok := strings.Cut(input, "://")
	return ok && len(scheme) > 1 && !strings.EqualFold(scheme, "file")
}

// fetch makes an input that is the URL of an object a local file, since Parquet and Arrow
// are read at any place; done removes it. Files and standard input stay as they are.
func (in *rowInput) fetch(ctx context.Context, a *app) (done func(), err error) {
	done = func() {}
	if path, ok := strings.CutPrefix(in.from, "file://"); ok {
		in.from = path
	}
	if !isObjectURL(in.from) {
		return done, nil
	}
	at := strings.LastIndexByte(in.from, '/')
	root, name := in.from[:at+1], in.from[at+1:]
	if name == "" || strings.HasSuffix(root, "://") {
		return done, usage("INVALID_ARGUMENTS", "--from %s: a bucket or folder, not an object", in.from)
	}
	store, err := a.open(root)
	if err != nil {
		return done, err
	}
	dir, err := os.MkdirTemp("", "sluice-input-")
	if err != nil {
		return done, fmt.Errorf("fetch %s: %w", in.from, err)
	}
	done = func() { os.RemoveAll(dir) }
	r, err := store.Open(ctx, name)
	if err != nil {
		return done, fmt.Errorf("open input: %w", err)
	}
	path := filepath.Join(dir, name)
	err = copyTo(path, io.NewSectionReader(r, 0, r.Size()))
	if err = errors.Join(err, r.Close()); err != nil {
		return done, fmt.Errorf("fetch %s: %w", in.from, err)
	}
	in.url, in.from = in.from, path
	return done, nil
}

// copyTo writes a file.
func copyTo(path string, r io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
