package merge

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/internal/pipeline"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// Keys are the keys to look for.
type Keys struct {
	// Columns are logical names; a key's bytes are those of its columns one after
	// the other, in this order.
	Columns []string
	// Set maps the bytes of a key to the caller's index of it.
	Set map[string]int
	// Bounds, if set, is a condition over the key columns that is TRUE for every
	// key of the set; it prunes files. [RangeOf] makes one.
	Bounds *expr.Bound
}

// Options are the settings of [Find]; the zero value is the default.
type Options struct {
	// Hidden appends the columns of Layout.Carry to the batches.
	Hidden bool
	// Also, if set, sees every row of every file: the key columns, and the hidden
	// ones with Hidden. It answers the rows to return beside those of the set.
	// Files are not pruned then.
	Also func(batch arrow.RecordBatch) ([]int, error)
	// Workers bounds how many files are read at once; 0 is 4.
	Workers int
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = 4
	}
	return o
}

// Group is the matches in one file.
type Group struct {
	File *deltalog.Add
	// Rows are physical rows, ascending; Index the caller's index of each one's
	// key, -1 for rows that only Also chose; Keys its bytes.
	Rows  []int64
	Index []int
	Keys  [][]byte
	// Batch has one row for each of Rows: all logical columns, then the hidden ones.
	Batch arrow.RecordBatch

	arena []byte // of Keys
}

// Find looks the keys up in the given files and answers the groups in the order
// of the files; files without a match are left out.
func Find(ctx context.Context, store storage.Store, l *datafile.Layout, files []*deltalog.Add, keys Keys, o Options) ([]Group, error) {
	o = o.withDefaults()
	if len(keys.Set) == 0 && o.Also == nil {
		return nil, nil
	}
	var list []*deltalog.Add
	for _, f := range files {
		if o.Also == nil && keys.Bounds != nil && !l.MayMatch(keys.Bounds, f) {
			continue
		}
		list = append(list, f)
	}
	var out []Group
	p := newProbe(l.Schema, keys)
	for g, err := range pipeline.Map(ctx, o.Workers, slices.Values(list), func(ctx context.Context, f *deltalog.Add) (Group, error) {
		return findIn(ctx, store, l, f, p, keys, o)
	}) {
		if err != nil {
			return nil, err
		}
		if len(g.Rows) > 0 {
			out = append(out, g)
		}
	}
	return out, nil
}

func findIn(ctx context.Context, store storage.Store, l *datafile.Layout, f *deltalog.Add, p *probe, keys Keys, o Options) (Group, error) {
	g := Group{File: f}
	also := o.Also != nil
	pages := p.pages
	if also {
		pages = nil
	}
	for b, err := range datafile.Read(ctx, store, l, f, datafile.ReadOptions{Columns: keys.Columns, Hidden: o.Hidden && also, Keys: pages}) {
		if err != nil {
			return Group{}, err
		}
		if err := g.probe(b, p, keys, o); err != nil {
			return Group{}, fmt.Errorf("look keys up in %s: %w", f.Path, err)
		}
	}
	if len(g.Rows) == 0 {
		return g, nil
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	var rows int64
	for b, err := range datafile.Read(ctx, store, l, f, datafile.ReadOptions{Rows: g.Rows, Hidden: o.Hidden}) {
		if err != nil {
			return Group{}, err
		}
		b.RecordBatch.Retain()
		parts = append(parts, b.RecordBatch)
		rows += b.NumRows()
	}
	if rows != int64(len(g.Rows)) {
		return Group{}, fmt.Errorf("look keys up in %s: %d rows match, %d could be read", f.Path, len(g.Rows), rows)
	}
	var err error
	g.Batch, err = datafile.Concat(parts[0].Schema(), parts)
	return g, err
}

// probe adds the matches of one batch of key columns.
func (g *Group) probe(b datafile.Batch, p *probe, keys Keys, o Options) error {
	cols := make([]arrow.Array, len(keys.Columns))
	for i := range cols {
		cols[i] = b.Column(i)
	}
	add := func(row, index int, key []byte) {
		g.Rows = append(g.Rows, b.Rows[row])
		g.Index = append(g.Index, index)
		g.Keys = append(g.Keys, g.keep(key))
	}
	if o.Also == nil {
		p.match(cols, int(b.NumRows()), add)
		return nil
	}
	chosen, err := o.Also(b.RecordBatch)
	if err != nil {
		return err
	}
	slices.Sort(chosen)
	var buf []byte
	also := func(before int) {
		for len(chosen) > 0 && chosen[0] < before {
			buf = KeyOf(buf[:0], cols, chosen[0])
			add(chosen[0], -1, buf)
			chosen = chosen[1:]
		}
	}
	p.match(cols, int(b.NumRows()), func(row, index int, key []byte) {
		also(row)
		if len(chosen) > 0 && chosen[0] == row {
			chosen = chosen[1:]
		}
		add(row, index, key)
	})
	also(int(b.NumRows()))
	return nil
}

// keep copies a key into memory that the keys of a group share.
func (g *Group) keep(key []byte) []byte {
	if cap(g.arena)-len(g.arena) < len(key) {
		g.arena = make([]byte, 0, max(1<<14, len(key)))
	}
	from := len(g.arena)
	g.arena = append(g.arena, key...)
	return g.arena[from:len(g.arena):len(g.arena)]
}

// KeyOf appends the bytes of the key in the given columns at a row.
func KeyOf(dst []byte, cols []arrow.Array, row int) []byte {
	for _, a := range cols {
		dst = keycode.AppendValue(dst, a, row)
	}
	return dst
}

// EachKey streams the keys of all rows of a file: of an add, a remove or a change
// file. Batches hold the key columns, then the hidden ones with hidden.
func EachKey(ctx context.Context, store storage.Store, l *datafile.Layout, src datafile.Source, columns []string, o datafile.ReadOptions) iter.Seq2[[]byte, error] {
	o.Columns = columns
	return func(yield func([]byte, error) bool) {
		for b, err := range datafile.ReadFile(ctx, store, l, src, o) {
			if err != nil {
				yield(nil, err)
				return
			}
			cols := make([]arrow.Array, len(columns))
			for i := range cols {
				cols[i] = b.Column(i)
			}
			var buf []byte
			for r := range int(b.NumRows()) {
				buf = KeyOf(buf[:0], cols, r)
				if !yield(buf, nil) {
					return
				}
			}
		}
	}
}
