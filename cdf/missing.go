package cdf

import (
	"context"
	"errors"
	"fmt"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/storage"
)

// MissingError: a file that a version of the feed needs is gone, most likely by
// VACUUM, which keeps change files only as long as
// delta.deletedFileRetentionDuration.
type MissingError struct {
	Version int64
	// Path is the data or change file as the log names it.
	Path string
	// OldestReadable is the first version of the range from which on every file is
	// still there; -1 when there is none or it was not looked for.
	OldestReadable int64
	Cause          error
}

func (e *MissingError) Error() string {
	s := fmt.Sprintf("read change feed: version %d: %v", e.Version, e.Cause)
	if e.OldestReadable >= 0 {
		s += fmt.Sprintf("; the feed can still be read from version %d on", e.OldestReadable)
	}
	return s
}

// Code is the stable error code.
func (e *MissingError) Code() string { return datafile.CodeMissing }

// Is answers ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == deltalog.ErrNotFound }

func (e *MissingError) Unwrap() error { return e.Cause }

// maxLooks bounds the files looked up for MissingError.OldestReadable.
const maxLooks = 5000

// readable completes a *MissingError with the first version that can still be read.
func (f *Feed) readable(ctx context.Context, err error) error {
	var m *MissingError
	if !errors.As(err, &m) {
		return err
	}
	m.OldestReadable = oldestReadable(ctx, f.log, m.Version, f.To)
	return err
}

// oldestReadable goes back from version to while every file of the feed is there. It
// answers -1 if the newest version lacks one, or when it had to give up.
func oldestReadable(ctx context.Context, log *deltalog.Log, missing, to int64) int64 {
	oldest, looks := int64(-1), 0
	for v := to; v > missing; v-- {
		c, err := log.ReadCommit(ctx, v)
		if err != nil {
			return oldest
		}
		for _, p := range filesOf(c) {
			if looks++; looks > maxLooks {
				return oldest
			}
			if there(ctx, log.Store(), p) != nil {
				return oldest
			}
		}
		oldest = v
	}
	return oldest
}

// there looks whether a file can be opened.
func there(ctx context.Context, store storage.Store, path string) error {
	r, err := datafile.Open(ctx, store, path)
	if err != nil {
		return err
	}
	return r.Close()
}

// filesOf are the files that the feed of a commit reads, deletion vectors included,
// as URI texts.
func filesOf(c *deltalog.Commit) []string {
	var out []string
	add := func(path string, d *deltalog.DeletionVectorDescriptor) {
		out = append(out, path)
		if d == nil {
			return
		}
		desc := dv.Descriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv, Offset: d.Offset}
		if p, err := desc.Location(); err == nil && p != "" {
			out = append(out, p)
		}
	}
	if len(c.CDC) > 0 {
		for _, a := range c.CDC {
			add(a.Path, nil)
		}
		return out
	}
	for _, a := range c.Adds {
		if a.DataChange {
			add(a.Path, a.DeletionVector)
		}
	}
	for _, r := range c.Removes {
		if r.DataChange {
			add(r.Path, r.DeletionVector)
		}
	}
	return out
}
