package datafile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Untrue reads all live rows of a file and lists what its statistics say of them that
// is not so: a bound that excludes a value, a count of nulls (where the statistics are
// tight, R-603), each with the column's physical path. Statistics that are missing or
// wider than need be are fine. The rows are also held against NOT NULL; errors
// are those of reading.
func Untrue(ctx context.Context, store storage.Store, l *Layout, add *deltalog.Add) ([]string, error) {
	every := map[string]bool{}
	leaves := map[string]schema.Type{}
	leafPaths(l.file, "", func(path string, f schema.Field) {
		if f.Type != schema.Void {
			every[path], leaves[path] = true, boundType(f)
		}
	})
	actual := newCollector(l.file, every, math.MaxInt32, true)
	fields := make([]schema.Field, len(l.file.Fields))
	names := make([]string, len(l.file.Fields))
	for i, c := range l.columns {
		if c.file >= 0 {
			fields[c.file], names[c.file] = l.Schema.Fields[i], l.Schema.Fields[i].Name
		}
	}
	logical := &schema.Struct{Fields: fields}
	var out []string
	for b, err := range Read(ctx, store, l, add, ReadOptions{Columns: names}) {
		if err != nil {
			return nil, err
		}
		arrays := make([]arrow.Array, b.NumCols())
		for i := range arrays {
			arrays[i] = b.Column(i)
		}
		var broken *ConstraintError
		if err := CheckNotNull(logical, arrays); errors.As(err, &broken) && len(out) == 0 {
			out = append(out, "NOT NULL: "+err.Error())
		}
		actual.add(b.RecordBatch)
	}
	return append(out, ParseStats(add.Stats).untrue(ParseStats(actual.json()), leaves, nanLeaves(actual.roots, "", nil))...), nil
}

// untrue compares recorded statistics with those of the rows.
func (s *Stats) untrue(actual *Stats, leaves map[string]schema.Type, nan map[string]bool) (out []string) {
	paths := make([]string, 0, len(leaves))
	for p := range leaves {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		name, t := strings.ReplaceAll(p, "\x00", "."), leaves[p]
		if s.Tight && s.nulls[p] != nil && actual.nulls[p] != nil && string(s.nulls[p]) != string(actual.nulls[p]) {
			out = append(out, fmt.Sprintf("nullCount of %s is %s, the rows have %s", name, s.nulls[p], actual.nulls[p]))
		}
		if nan[p] {
			continue // engines differ in what a bound says beside NaN
		}
		if said, is, bad := outside(s.min[p], actual.min[p], t, false); bad {
			out = append(out, fmt.Sprintf("minValues of %s is %s, a row has %s", name, said, is))
		}
		if said, is, bad := outside(s.max[p], actual.max[p], t, true); bad {
			out = append(out, fmt.Sprintf("maxValues of %s is %s, a row has %s", name, said, is))
		}
	}
	return out
}

// outside tells whether a recorded bound, read as pruning reads it, excludes the value
// that is the bound in truth.
func outside(said, is json.RawMessage, t schema.Type, upper bool) (string, string, bool) {
	a, ok := parseBound(said, t, upper)
	if !ok {
		return "", "", false
	}
	// Reading widens what is rounded or cut to milliseconds; here that must not accuse.
	b, ok := parseBound(is, t, !upper)
	if !ok {
		return "", "", false
	}
	c := a.Compare(b)
	return string(said), string(is), upper && c < 0 || !upper && c > 0
}

func leafPaths(s *schema.Struct, path string, visit func(string, schema.Field)) {
	for _, f := range s.Fields {
		at := pathKey(path, f.Name)
		if sub, ok := f.Type.(*schema.Struct); ok {
			leafPaths(sub, at, visit)
		} else {
			visit(at, f)
		}
	}
}

func nanLeaves(nodes []*statNode, path string, out map[string]bool) map[string]bool {
	if out == nil {
		out = map[string]bool{}
	}
	for _, n := range nodes {
		at := pathKey(path, n.name)
		if n.leaf != nil && n.leaf.nan {
			out[at] = true
		}
		nanLeaves(n.children, at, out)
	}
	return out
}

// ChangeCounts reads a change file and counts its rows by _change_type.
func ChangeCounts(ctx context.Context, store storage.Store, l *Layout, src Source) (map[string]int64, error) {
	out := map[string]int64{}
	for b, err := range ReadFile(ctx, store, l, src, ReadOptions{Columns: []string{}, Change: true}) {
		if err != nil {
			return nil, err
		}
		kinds, ok := b.Column(int(b.NumCols()) - 1).(*array.String)
		if !ok {
			return nil, &FileError{CodeCorrupt, src.Path, ChangeTypeColumn + " is no string", nil}
		}
		for i := range kinds.Len() {
			if kinds.IsNull(i) {
				out[""]++
			} else {
				out[kinds.Value(i)]++
			}
		}
	}
	return out, nil
}
