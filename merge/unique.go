package merge

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/internal/pipeline"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// Duplicate is a key that stands on two live rows.
type Duplicate struct {
	Key   []byte
	Files [2]string // paths of the log; the same one twice where both rows are in it
}

// hashesAtOnce bounds the memory of [FirstDuplicate]: 8 bytes each.
const hashesAtOnce = 4 << 20

// FirstDuplicate looks for a key on two live rows of the files; nil: there is none.
//
// Most tables tell by their order: the keys of a file that strictly ascend are
// different, and so are those of files whose keys do not overlap. For these nothing is
// kept. What is left is compared by hash, so many hashes at a time, and only keys with
// equal hashes by their bytes.
func FirstDuplicate(ctx context.Context, store storage.Store, l *datafile.Layout, files []*deltalog.Add, columns []string, o Options) (*Duplicate, error) {
	return firstDuplicate(ctx, store, l, files, columns, o.withDefaults().Workers, hashesAtOnce)
}

func firstDuplicate(ctx context.Context, store storage.Store, l *datafile.Layout, files []*deltalog.Add, columns []string, workers, atOnce int) (*Duplicate, error) {
	var spans []keySpan
	for s, err := range pipeline.Map(ctx, workers, slices.Values(files), func(ctx context.Context, f *deltalog.Add) (keySpan, error) {
		return spanOf(ctx, store, l, f, columns)
	}) {
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
	suspects, rows := overlapping(spans)
	if len(suspects) == 0 {
		return nil, nil
	}
	twice := map[uint64]bool{}
	parts := uint64(rows/int64(atOnce)) + 1
	for part := range parts {
		var all []uint64
		for hashes, err := range pipeline.Map(ctx, workers, slices.Values(suspects), func(ctx context.Context, f *deltalog.Add) ([]uint64, error) {
			var out []uint64
			for key, err := range EachKey(ctx, store, l, datafile.SourceOf(f), columns, datafile.ReadOptions{}) {
				if err != nil {
					return nil, err
				}
				if h := keycode.Hash64(key); h%parts == part {
					out = append(out, h)
				}
			}
			return out, nil
		}) {
			if err != nil {
				return nil, err
			}
			all = append(all, hashes...)
		}
		slices.Sort(all)
		for i := 1; i < len(all); i++ {
			if all[i] == all[i-1] {
				twice[all[i]] = true
			}
		}
	}
	if len(twice) == 0 {
		return nil, nil
	}
	seen := map[string]string{}
	for _, f := range suspects {
		for key, err := range EachKey(ctx, store, l, datafile.SourceOf(f), columns, datafile.ReadOptions{}) {
			if err != nil {
				return nil, err
			}
			if !twice[keycode.Hash64(key)] {
				continue
			}
			if other, dup := seen[string(key)]; dup {
				return &Duplicate{Key: bytes.Clone(key), Files: [2]string{other, f.Path}}, nil
			}
			seen[string(key)] = f.Path
		}
	}
	return nil, nil
}

// keySpan is what the order of a file's keys says.
type keySpan struct {
	file      *deltalog.Add
	rows      int64
	low, high []byte // of all keys; nil without rows
	ascending bool   // strictly
}

// overlapping are the files that may share a key with another one, or hold one twice,
// in their order, and their rows.
func overlapping(spans []keySpan) (files []*deltalog.Add, rows int64) {
	order := make([]int, 0, len(spans))
	for i := range spans {
		if spans[i].rows > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return bytes.Compare(spans[a].low, spans[b].low) })
	suspect := make([]bool, len(spans))
	top := -1 // of those before, the one that reaches highest
	for _, i := range order {
		suspect[i] = suspect[i] || !spans[i].ascending
		if top >= 0 && bytes.Compare(spans[i].low, spans[top].high) <= 0 {
			suspect[i], suspect[top] = true, true
		}
		if top < 0 || bytes.Compare(spans[i].high, spans[top].high) > 0 {
			top = i
		}
	}
	for i, s := range suspect {
		if s {
			files, rows = append(files, spans[i].file), rows+spans[i].rows
		}
	}
	return files, rows
}

func spanOf(ctx context.Context, store storage.Store, l *datafile.Layout, f *deltalog.Add, columns []string) (keySpan, error) {
	s := keySpan{file: f, ascending: true}
	var last []byte
	for b, err := range datafile.Read(ctx, store, l, f, datafile.ReadOptions{Columns: columns}) {
		if err != nil {
			return s, err
		}
		cols := make([]arrow.Array, len(columns))
		for i := range cols {
			cols[i] = b.Column(i)
		}
		last = s.add(cols, int(b.NumRows()), last)
	}
	if len(columns) == 0 {
		return s, fmt.Errorf("look for keys on two rows: no key columns")
	}
	return s, nil
}

// add takes the keys of a batch of n rows; last is the one before them, and the answer
// the last of them.
func (s *keySpan) add(cols []arrow.Array, n int, last []byte) []byte {
	if n == 0 {
		return last
	}
	s.rows += int64(n)
	if a, ok := cols[0].(*array.Int64); ok && len(cols) == 1 && a.NullN() == 0 {
		// Only the ends and the extremes need their bytes.
		v := a.Int64Values()
		low, high := 0, 0
		for i := 1; i < len(v); i++ {
			if v[i] <= v[i-1] {
				s.ascending = false
			}
			if v[i] < v[low] {
				low = i
			}
			if v[i] > v[high] {
				high = i
			}
		}
		s.widen(KeyOf(nil, cols, low))
		s.widen(KeyOf(nil, cols, high))
		s.ascending = s.ascending && (last == nil || bytes.Compare(last, KeyOf(nil, cols, 0)) < 0)
		return KeyOf(last[:0], cols, n-1)
	}
	var key []byte
	for r := range n {
		key = KeyOf(key[:0], cols, r)
		if last != nil && bytes.Compare(last, key) >= 0 {
			s.ascending = false
		}
		s.widen(key)
		last, key = key, last
	}
	return last
}

func (s *keySpan) widen(key []byte) {
	if s.low == nil || bytes.Compare(key, s.low) < 0 {
		s.low = bytes.Clone(key)
	}
	if s.high == nil || bytes.Compare(key, s.high) > 0 {
		s.high = append(s.high[:0], key...)
	}
}
