package apply

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
)

// A small state is held whole. Of a larger one only the facts of the keys that a batch
// asks for are held, so that memory grows with the batch and not with the state:
//
//	fetch   the facts of some keys: of each file the keys, then the matched rows
//	merged  all facts key by key, for compaction and collection
//
// Both rest on files of facts being sorted by key (tag stateSorted), with their first
// and last key beside them. A state with files of another kind is held whole.
const (
	wholeState  = 2 << 20 // bytes of files up to which a state is held whole
	stateSorted = "facts by key"
	tagKeys     = "sluice.keys"
	tagOldest   = "sluice.oldest" // processed-at of the oldest fact
	maxTagKey   = 64
	stateRows   = 16 << 10 // rows of a batch while files are merged
)

// size is the bytes of the facts.
func (f *stateFiles) size() int64 {
	n := int64(0)
	if f != nil {
		for _, a := range f.facts {
			n += a.Size
		}
	}
	return n
}

func (f *stateFiles) sorted() bool {
	return !slices.ContainsFunc(f.facts, func(a *deltalog.Add) bool { return a.Tags[tagState] == nil || *a.Tags[tagState] != stateSorted })
}

// holdsWhole tells whether the facts of files are held whole.
func (t *stateTable) holdsWhole(f *stateFiles) bool {
	return f.size() <= t.budget || !f.sorted()
}

// errEnough ends a loop over rows early.
var errEnough = errors.New("enough")

// factID tells a fact from all others.
func factID(r *stateRow) string {
	return fmt.Sprintf("%s\x00%d\x00%s%d\x00%s%s", r.Kind, len(r.Key), r.Key, len(r.Seq), r.Seq, r.Payload)
}

func (e entry) row(key string) stateRow {
	return stateRow{Kind: kindVersion, Key: []byte(key), Seq: e.V, Payload: mustJSON(e), At: e.at}
}

func (h hiddenFact) row(key string) stateRow {
	return stateRow{Kind: h.kind, Key: []byte(key), Seq: h.seq, Payload: h.payload, At: h.at}
}

// forget lets go of keyed facts that are not held whole.
func (s *state) forget() {
	if !s.whole {
		s.forgetAll()
	}
}

func (s *state) forgetAll() {
	c := newState()
	s.deletes, s.entries, s.departed, s.hidden, s.missing, s.loaded = c.deletes, c.entries, c.departed, c.hidden, c.missing, c.loaded
}

// fetch completes the facts of some keys, those of their rows included.
func (t *stateTable) fetch(ctx context.Context, s *state, files *stateFiles, keys iter.Seq[string]) error {
	if s.whole {
		return nil
	}
	want := map[string]bool{}
	var order []string
	for k := range keys {
		if !s.loaded[k] && !want[k] {
			want[k] = true
			order = append(order, k)
		}
	}
	if order == nil || files == nil {
		return nil
	}
	slices.Sort(order)
	for _, a := range files.facts {
		if !mayHold(a, order) {
			continue
		}
		var rows []int64
		for b, err := range datafile.Read(ctx, t.store, t.layout, a, datafile.ReadOptions{Columns: []string{"kind", "key"}}) {
			if err != nil {
				return fmt.Errorf("read apply state: %w", err)
			}
			kind, ok1 := b.Column(0).(*array.String)
			key, ok2 := b.Column(1).(*array.Binary)
			if !ok1 || !ok2 {
				return fmt.Errorf("read apply state: unexpected column types %s", b.Schema())
			}
			for r := range int(b.NumRows()) {
				k := key.Value(r)
				if want[string(k)] || kind.Value(r) == kindVersion && rowOfAny(order, k) {
					rows = append(rows, b.Rows[r])
				}
			}
		}
		if rows == nil {
			continue
		}
		for b, err := range datafile.Read(ctx, t.store, t.layout, a, datafile.ReadOptions{Rows: rows}) {
			if err == nil {
				err = eachRowOf(b.RecordBatch, s.addLive)
			}
			if err != nil {
				return fmt.Errorf("read apply state: %w", err)
			}
		}
	}
	for _, k := range order {
		s.loaded[k] = true
	}
	return nil
}

// mayHold tells by the tagged range whether a file may hold facts of sorted keys.
func mayHold(a *deltalog.Add, keys []string) bool {
	tag := a.Tags[tagKeys]
	if tag == nil {
		return true
	}
	from, to, ok := strings.Cut(*tag, " ")
	first, err1 := hex.DecodeString(from)
	last, err2 := hex.DecodeString(to)
	if !ok || err1 != nil || err2 != nil {
		return true
	}
	// A version entry of a row begins with its key.
	at, found := slices.BinarySearch(keys, string(first))
	return found || at < len(keys) && keys[at] <= string(last) || at > 0 && strings.HasPrefix(string(first), keys[at-1])
}

// rowOfAny tells whether an identity of a row begins with one of the sorted keys; no
// key is the beginning of another.
func rowOfAny(keys []string, id []byte) bool {
	at, found := slices.BinarySearch(keys, string(id))
	return found || at > 0 && bytes.HasPrefix(id, []byte(keys[at-1]))
}

// addLive joins a row of a file, unless it is void.
func (s *state) addLive(r stateRow) error {
	if len(s.void) > 0 && s.void[factID(&r)] {
		return nil
	}
	return s.add(r)
}

// holds tells whether a file has facts of a kind.
func (t *stateTable) holds(ctx context.Context, a *deltalog.Add, kind string) (bool, error) {
	for b, err := range datafile.Read(ctx, t.store, t.layout, a, datafile.ReadOptions{Columns: []string{"kind"}}) {
		if err != nil {
			return false, fmt.Errorf("read apply state: %w", err)
		}
		kinds, ok := b.Column(0).(*array.String)
		if !ok {
			return false, fmt.Errorf("read apply state: unexpected column types %s", b.Schema())
		}
		for r := range kinds.Len() {
			if kinds.Value(r) == kind {
				return true, nil
			}
		}
	}
	return false, nil
}

// hold completes all facts.
func (t *stateTable) hold(ctx context.Context, s *state, files *stateFiles) error {
	if s.whole {
		return nil
	}
	s.forget()
	for _, a := range files.facts {
		if err := t.eachRow(ctx, a, s.addLive); err != nil {
			return err
		}
	}
	s.whole = true
	return nil
}

// fetch completes what the pinned state knows of some keys.
func (t *target) fetch(ctx context.Context, keys iter.Seq[string]) error {
	return t.named(t.states.fetch(ctx, t.state, t.files, keys))
}

// holdState completes the pinned state; what compares all rows of the target needs it.
func (t *target) holdState(ctx context.Context) error {
	return t.named(t.states.hold(ctx, t.state, t.files))
}

// rows streams the rows of a state file.
func (t *stateTable) rows(ctx context.Context, a *deltalog.Add) iter.Seq2[stateRow, error] {
	return func(yield func(stateRow, error) bool) {
		for b, err := range datafile.Read(ctx, t.store, t.layout, a, datafile.ReadOptions{BatchRows: stateRows}) {
			stopped := false
			if err == nil {
				err = eachRowOf(b.RecordBatch, func(r stateRow) error {
					if !yield(r, nil) {
						stopped = true
						return errEnough
					}
					return nil
				})
			}
			if stopped {
				return
			}
			if err != nil {
				yield(stateRow{}, fmt.Errorf("read apply state: %w", err))
				return
			}
		}
	}
}

// merged calls f with the live facts of each key of sorted files, in the order of the
// keys. The state that it hands over is valid until f returns: the control rows of s
// and the facts of that one key.
func (t *stateTable) merged(ctx context.Context, s *state, files []*deltalog.Add, f func(one *state) error) error {
	type head struct {
		row  stateRow
		next func() (stateRow, error, bool)
	}
	var heads []*head
	advance := func(h *head) (bool, error) {
		row, err, ok := h.next()
		h.row = row
		return ok, err
	}
	for _, a := range files {
		next, stop := iter.Pull2(t.rows(ctx, a))
		defer stop()
		h := &head{next: next}
		ok, err := advance(h)
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, h)
		}
	}
	one := *s
	one.forgetAll()
	one.whole = true
	for len(heads) > 0 {
		first := slices.MinFunc(heads, func(a, b *head) int { return bytes.Compare(a.row.Key, b.row.Key) })
		key := first.row.Key
		clear(one.deletes)
		clear(one.entries)
		clear(one.departed)
		clear(one.hidden)
		clear(one.missing)
		for i := 0; i < len(heads); {
			h := heads[i]
			ok := true
			for ok && bytes.Equal(h.row.Key, key) {
				if err := one.addLive(h.row); err != nil {
					return err
				}
				var err error
				if ok, err = advance(h); err != nil {
					return err
				}
			}
			if ok {
				i++
			} else {
				heads = slices.Delete(heads, i, i+1)
			}
		}
		if err := f(&one); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// compacted are the facts of sorted files that a compaction keeps, sorted by key.
func (t *stateTable) compacted(ctx context.Context, s *state, files []*deltalog.Add, change func(one *state)) iter.Seq2[stateRow, error] {
	return func(yield func(stateRow, error) bool) {
		err := t.merged(ctx, s, files, func(one *state) error {
			if change != nil {
				change(one)
			}
			for _, r := range one.keyed() {
				if !yield(r, nil) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(stateRow{}, err)
		}
	}
}

// smallest picks files to compact: the smaller ones, as long as one more is not larger
// than those before it together.
func smallest(files []*deltalog.Add) (pick, rest []*deltalog.Add) {
	order := slices.SortedFunc(slices.Values(files), func(a, b *deltalog.Add) int { return cmp.Compare(a.Size, b.Size) })
	n, sum := 0, int64(0)
	for n < len(order) && (n < 2 || order[n].Size <= sum) {
		sum += order[n].Size
		n++
	}
	return order[:n], order[n:]
}

// youngerThan tells whether files hold no fact from before a time (microseconds).
func youngerThan(files []*deltalog.Add, before int64) bool {
	return !slices.ContainsFunc(files, func(a *deltalog.Add) bool {
		tag := a.Tags[tagOldest]
		if tag == nil {
			return true
		}
		oldest, err := strconv.ParseInt(*tag, 10, 64)
		return err != nil || oldest < before
	})
}

// byKey streams facts sorted by key.
func byKey(rows []stateRow) iter.Seq2[stateRow, error] {
	rows = sortedFacts(rows)
	return func(yield func(stateRow, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// sortedFacts are facts in the order of their keys.
func sortedFacts(rows []stateRow) []stateRow {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b stateRow) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

// factTags are the tags of a file of sorted facts.
type factTags struct {
	first, last []byte
	oldest      int64
}

func (f *factTags) Add(b arrow.RecordBatch) {
	key, ok1 := b.Column(2).(*array.Binary)
	at, ok2 := b.Column(5).(*array.Timestamp)
	if !ok1 || !ok2 {
		return
	}
	for r := range key.Len() {
		k := key.Value(r)
		if x := int64(at.Value(r)); f.first == nil || x < f.oldest {
			f.oldest = x
		}
		if f.first == nil || bytes.Compare(k, f.first) < 0 {
			f.first = append([]byte{}, k...)
		}
		if f.last == nil || bytes.Compare(k, f.last) > 0 {
			f.last = append([]byte{}, k...)
		}
	}
}

func (f *factTags) Tags() map[string]string {
	out := map[string]string{tagState: stateSorted, tagOldest: strconv.FormatInt(f.oldest, 10)}
	if len(f.first) > 0 && len(f.first) <= maxTagKey && len(f.last) <= maxTagKey {
		out[tagKeys] = hex.EncodeToString(f.first) + " " + hex.EncodeToString(f.last)
	}
	return out
}
