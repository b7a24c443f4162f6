package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/keycode"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/merge"
)

// walk looks at what others did to the target since the walk mark (apply-state 5).
// Row versions that a rewrite dropped are read back from the files it removed, as
// version entries of the new rows; what apply cannot be true on stops it.
func (t *target) walk(ctx context.Context) error {
	from := t.state.walk + 1
	if t.adopt || from > t.snap.Version {
		return nil
	}
	for c, err := range t.log.Commits(ctx, from, t.snap.Version) {
		if errors.Is(err, deltalog.ErrNotFound) || errors.Is(err, deltalog.ErrCorrupt) {
			return t.named(&Error{Code: CodeRowVersionsLost, Phase: PhaseState, Err: err,
				Message: fmt.Sprintf("commits since version %d, up to which apply knows the target, are gone; what other writers did cannot be known", from-1)})
		}
		if err != nil {
			return err
		}
		if _, ours := statePin(c); ours || len(c.Adds)+len(c.Removes) == 0 {
			continue
		}
		if err := t.walkCommit(ctx, c); err != nil {
			return t.named(err)
		}
	}
	t.state.walk = t.snap.Version
	return nil
}

// replacing are operations after which the rows are not those that the state knows.
var replacing = map[string]bool{"RESTORE": true, "CLONE": true, "CREATE OR REPLACE TABLE": true, "REPLACE TABLE": true,
	"CREATE OR REPLACE TABLE AS SELECT": true, "REPLACE TABLE AS SELECT": true}

func (t *target) walkCommit(ctx context.Context, c *deltalog.Commit) error {
	prior, err := t.log.At(ctx, c.Version-1)
	if err != nil {
		return fmt.Errorf("read version %d: %w", c.Version-1, err)
	}
	why, err := rewound(ctx, c, prior)
	if err != nil {
		return err
	}
	if why != "" {
		if t.run.flow.AcceptRows {
			t.run.warn(fmt.Sprintf("%s: version %d %s; its rows are taken as they are", t.title, c.Version, why))
			return nil
		}
		return stored(CodeTargetRewound, "version %d %s: the state belongs to other rows; rewind to the same version, refresh in full, or go on with --accept-rows", c.Version, why)
	}
	return t.readBack(ctx, c, prior)
}

// rewound says how a commit replaced the rows of the table; "" if it did not.
func rewound(ctx context.Context, c *deltalog.Commit, prior *deltalog.Snapshot) (string, error) {
	op := ""
	if c.Info != nil {
		op = c.Info.Operation
	}
	if replacing[strings.ToUpper(op)] {
		return "is a " + op, nil
	}
	if strings.EqualFold(op, "WRITE") && strings.EqualFold(parameter(c.Info, "mode"), "Overwrite") &&
		noPredicate(parameter(c.Info, "predicate")) && noPredicate(parameter(c.Info, "replaceWhere")) && !isDynamic(c.Info) && changesData(c) {
		return "overwrote the whole table", nil
	}
	if len(c.Adds) == 0 {
		return "", nil
	}
	dead, err := prior.Tombstones(ctx)
	if err != nil {
		return "", err
	}
	gone := map[string]bool{}
	for _, r := range dead {
		gone[r.Path] = true
	}
	for _, a := range c.Adds {
		if !gone[a.Path] {
			continue
		}
		_, live, err := prior.File(ctx, a.Path)
		if err != nil {
			return "", err
		}
		if !live {
			return fmt.Sprintf("added the removed file %s again", a.Path), nil
		}
	}
	return "", nil
}

func parameter(info *deltalog.CommitInfo, key string) string {
	raw, ok := info.OperationParameters[key]
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return strings.Trim(s, `"`)
}

func noPredicate(p string) bool { return p == "" || p == "[]" || p == "null" || p == "true" }

func isDynamic(info *deltalog.CommitInfo) bool {
	return strings.EqualFold(parameter(info, "isDynamicPartitionOverwrite"), "true")
}

func changesData(c *deltalog.Commit) bool {
	for _, r := range c.Removes {
		if r.DataChange {
			return true
		}
	}
	return false
}

// readBack finds rows that a commit wrote without their versions and gives them
// those of the rows they replaced, by key.
func (t *target) readBack(ctx context.Context, c *deltalog.Commit, prior *deltalog.Snapshot) error {
	removed := map[string]bool{}
	for _, r := range c.Removes {
		removed[r.Path] = true
	}
	var bare []*deltalog.Add
	for _, a := range c.Adds {
		if _, live, err := prior.File(ctx, a.Path); err != nil {
			return err
		} else if live {
			continue // a new deletion vector of the same file
		}
		if a.Tags[tagRows] == nil {
			bare = append(bare, a)
		}
	}
	if len(bare) == 0 || len(removed) == 0 {
		return nil
	}
	def, ok := t.anyFlow()
	if !ok {
		return nil // no flow has committed rows yet
	}
	columns := t.identityColumns(&def)
	var without []uint64 // hashes of the keys without their versions: most rewrites carry these along
	if err := t.eachBare(ctx, c, bare, columns, func(key []byte) error {
		without = append(without, keycode.Hash64(key))
		return nil
	}); err != nil || len(without) == 0 {
		return err
	}
	slices.Sort(without)
	if err := t.holdState(ctx); err != nil {
		return err
	}
	versions, err := t.versionsOf(ctx, prior, removed, columns, without)
	if err != nil || len(versions) == 0 {
		return err
	}
	now := t.state.processedAt(t.run.o.Clock())
	return t.eachBare(ctx, c, bare, columns, func(key []byte) error {
		e, ok := versions[string(key)]
		if !ok {
			return nil
		}
		e.Over = nil
		row := stateRow{Kind: kindVersion, Key: slices.Clone(key), Seq: e.V, Payload: mustJSON(e), At: now}
		if err := t.state.add(row); err != nil {
			return err
		}
		t.walked = append(t.walked, row)
		return nil
	})
}

// eachBare calls f with the keys of rows of the files that lack the hidden group; a key
// is valid during the call.
func (t *target) eachBare(ctx context.Context, c *deltalog.Commit, files []*deltalog.Add, columns []string, f func(key []byte) error) error {
	var key []byte
	for _, a := range files {
		for b, err := range datafile.Read(ctx, t.store, t.layout, a, datafile.ReadOptions{Columns: columns, Hidden: true}) {
			if err != nil {
				return t.lost(c, err)
			}
			h, err := hiddenOf(b.RecordBatch)
			if err != nil {
				return err
			}
			cols := columnsOf(b.RecordBatch, len(columns))
			for r := range int(b.NumRows()) {
				if h != nil && h.group.IsValid(r) && h.e.IsValid(r) {
					continue // the writer carried the group along
				}
				key = merge.KeyOf(key[:0], cols, r)
				if err := f(key); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// versionsOf are the effective hidden values of the rows of files that a commit
// removed, by key: of rows that have any and whose keys have one of the hashes, which
// ascend. Memory grows with these, not with the files.
func (t *target) versionsOf(ctx context.Context, prior *deltalog.Snapshot, removed map[string]bool, columns []string, hashes []uint64) (map[string]entry, error) {
	s, err := t.storedShape(columns)
	if err != nil {
		return nil, err
	}
	out := map[string]entry{}
	var buf []byte
	for path := range removed {
		add, live, err := prior.File(ctx, path)
		if err != nil {
			return nil, err
		}
		if !live {
			continue
		}
		for b, err := range datafile.Read(ctx, t.store, t.layout, add, datafile.ReadOptions{Columns: columns, Hidden: true}) {
			if err != nil {
				return nil, t.lost(nil, err)
			}
			h, err := hiddenOf(b.RecordBatch)
			if err != nil {
				return nil, err
			}
			cols := columnsOf(b.RecordBatch, len(columns))
			for r := range int(b.NumRows()) {
				buf = merge.KeyOf(buf[:0], cols, r)
				if _, wanted := slices.BinarySearch(hashes, keycode.Hash64(buf)); !wanted {
					continue
				}
				key := string(buf)
				reg := s.registerOf(t.state, h.values(r), key, ref{})
				if e := s.hiddenFor(t.state, &reg); e.V != nil || e.D != nil || len(e.Fields) > 0 {
					out[key] = e
				}
			}
		}
	}
	return out, nil
}

func (t *target) lost(c *deltalog.Commit, err error) error {
	var fe *datafile.FileError
	if !errors.As(err, &fe) {
		return err
	}
	return &Error{Code: CodeRowVersionsLost, Phase: PhaseState, Err: err,
		Message: "another writer rewrote files without their row versions, and the files it removed are gone"}
}

// anyFlow is the definition of some flow of the target; all agree on keys and
// sequence.
func (t *target) anyFlow() (flowDef, bool) {
	for _, d := range t.state.flows {
		if !d.unread() {
			return d, true
		}
	}
	return flowDef{}, false
}

// identityColumns are the columns by which rows of the target are told apart.
func (t *target) identityColumns(d *flowDef) []string {
	out := t.keyColumns(d)
	for i, n := range frameNames(d.StoredAs) {
		if i%2 == 0 {
			out = append(out, n)
		}
	}
	return out
}

// storedShape is the shape of the target as it stands.
func (t *target) storedShape(keys []string) (*shape, error) {
	s := &shape{schema: t.snap.Schema, split: t.splitColumns(nil)}
	if def, ok := t.anyFlow(); ok {
		for _, n := range frameNames(def.StoredAs) {
			if i := s.schema.Index(n); i >= 0 {
				s.frame = append(s.frame, i)
			}
		}
	}
	for _, k := range keys {
		i := t.snap.Schema.Index(k)
		if i < 0 {
			return nil, stored(CodeKeySchemaDrift, "key column %q is gone from the target", k)
		}
		s.keys = append(s.keys, i)
	}
	st, err := carriedSequence(t.layout.Carry)
	if err != nil {
		return nil, err
	}
	s.seqType = st
	if len(s.frame) == 4 {
		s.systemType = s.schema.Fields[s.frame[2]].Type
	}
	return s, s.finish()
}

func columnsOf(b arrow.RecordBatch, n int) []arrow.Array {
	out := make([]arrow.Array, n)
	for i := range out {
		out[i] = b.Column(i)
	}
	return out
}
