package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/storage"
)

// stream prints a stream of changes batch by batch and remembers how far it came.
func (fl *changesFlags) stream(ctx context.Context, a *app, table string, o cdf.Options) error {
	mark, err := openMark(fl.checkpoint)
	if err != nil {
		return err
	}
	if p := mark.position; p != nil && o.FromVersion != nil && *o.FromVersion > p.Version {
		return usage("INVALID_FLAG", "--from-version %d: %s stands at version %d already; leave the flag out, or name another file to begin anew", *o.FromVersion, fl.checkpoint, p.Version)
	}
	so := cdf.StreamOptions{
		Position: mark.position, FromVersion: o.FromVersion, FromTime: o.FromTime, FromLatest: fl.from == "latest",
		OutOfRange: fl.follow, MaxFiles: fl.maxFiles, MaxBytes: int64(fl.maxBytes),
		Columns: o.Columns, Where: o.Where, Zone: o.Zone, OnMissing: o.OnMissing,
	}
	if fl.ignoreMissing {
		so.OnLost = func(from, to int64) {
			a.warn("versions %d to %d are left out: the log no longer holds them", from, to)
		}
	}
	t, err := a.openTable(ctx, table)
	if err != nil {
		return err
	}
	s, err := t.Stream(ctx, so)
	if err != nil {
		return fmt.Errorf("read changes of %s: %w", table, err)
	}
	err = fl.print(ctx, a, t, s, mark)
	var changed *cdf.SchemaChangedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &changed) && fl.checkpoint != "":
		return &cliError{code: changed.Code(), exit: exitRefused, message: fmt.Sprintf("read changes of %s: version %d: the schema of the table changed: %s", table, changed.Version, changed.Reason),
			hint: "run the same command again: it goes on there with the new schema", err: err}
	case errors.As(err, &changed):
		return &cliError{code: changed.Code(), exit: exitRefused, message: fmt.Sprintf("read changes of %s: version %d: the schema of the table changed: %s", table, changed.Version, changed.Reason),
			hint: fmt.Sprintf("run the command with --from-version %d to go on with the new schema", changed.Version), err: err}
	case ctx.Err() != nil && fl.checkpoint != "":
		return &committedError{text: "the rows before " + s.Position().String() + " were printed; the same command goes on there", err: ctx.Err()}
	case ctx.Err() != nil:
		return &committedError{text: "the rows before " + s.Position().String() + " were printed", err: ctx.Err()}
	}
	return fmt.Errorf("read changes of %s: %w", table, err)
}

// print writes batches until there are no more, or until ctx ends, which it does
// between two batches.
func (fl *changesFlags) print(ctx context.Context, a *app, t *delta.Table, s *cdf.Stream, mark *mark) (err error) {
	f := a.form()
	if a.outTerminal && (f == rowio.Parquet || f == rowio.Arrow) {
		return usage("BINARY_TO_TERMINAL", "--output %s: the bytes are not for a terminal: send them to a file or a pipe", f)
	}
	w, err := rowio.NewWriter(a.stdout, f, s.Schema(), rowio.WriteOptions{Width: a.width()})
	if err != nil {
		return err
	}
	whole := f == rowio.JSON || f == rowio.Parquet // no part of it stands alone
	var wait func(context.Context) error
	if fl.follow {
		wait = t.Wait(time.Duration(fl.poll))
	}
	var end *cdf.Position
	failed := func(err error) error {
		if whole {
			w.Flush()
			return err
		}
		return errors.Join(err, w.Close())
	}
	for b, err := range s.Batches(ctx, wait) {
		if err != nil {
			var changed *cdf.SchemaChangedError
			if errors.As(err, &changed) && whole { // what came before it is complete
				break
			}
			return failed(err)
		}
		// A batch that was begun is finished: its end is the safe point.
		for rows, err := range b.Rows(context.WithoutCancel(ctx)) {
			if err == nil {
				err = w.Write(rows)
			}
			if err != nil {
				w.Flush()
				return err
			}
		}
		end = &b.End
		if whole {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if err := mark.store(ctx, a.stdout, *end); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return failed(err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if whole && end != nil {
		return mark.store(ctx, a.stdout, *end)
	}
	return nil
}

// mark is the file of --checkpoint.
type mark struct {
	files    storage.Store // nil without a file
	key      string
	position *cdf.Position
}

// openMark reads the position; a file that is not there is none.
func openMark(path string) (*mark, error) {
	if path == "" {
		return &mark{}, nil
	}
	fail := func(err error) error { return fmt.Errorf("read --checkpoint %s: %w", path, err) }
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fail(err)
	}
	store, err := storage.NewLocal(filepath.Dir(abs), storage.LocalOptions{})
	if err != nil {
		return nil, fail(err)
	}
	m := &mark{files: store, key: filepath.Base(abs)}
	f, err := os.Open(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fail(err)
	}
	defer f.Close()
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fail(err)
	}
	p, err := cdf.ParsePosition(data)
	if err != nil {
		return nil, &cliError{code: cdf.CodePosition, exit: exitCorrupt, message: fail(err).Error(), hint: "delete the file to start anew", err: err}
	}
	m.position = &p
	return m, nil
}

// store remembers that the rows before p were printed. They are made durable first
// where standard output is a file.
func (m *mark) store(ctx context.Context, out io.Writer, p cdf.Position) error {
	if m.files == nil || m.position != nil && *m.position == p {
		return nil
	}
	if f, ok := out.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			if err := f.Sync(); err != nil {
				return err
			}
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := m.files.Put(context.WithoutCancel(ctx), m.key, append(text, '\n')); err != nil {
		return fmt.Errorf("write --checkpoint: %w", err)
	}
	m.position = &p
	return nil
}
