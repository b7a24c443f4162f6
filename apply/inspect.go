package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// StateReport is what a target's state holds.
type StateReport struct {
	Version int64 `json:"state_version"`
	// Rows and Bytes are those of the state rows; FileBytes of the files.
	Rows      int64       `json:"rows"`
	Bytes     int64       `json:"bytes"`
	Files     int         `json:"files"`
	FileBytes int64       `json:"file_bytes"`
	Kinds     []StateKind `json:"kinds"`
	Flows     []StateFlow `json:"flows"`
	// Walked is the target version up to which other writers have been looked at.
	Walked int64 `json:"walked_version"`
	// LastCollection is when state was last collected, nil: never.
	LastCollection *time.Time `json:"last_collection,omitempty"`
}

// StateKind is the share of one kind of rows.
type StateKind struct {
	Kind   string     `json:"kind"`
	Rows   int64      `json:"rows"`
	Bytes  int64      `json:"bytes"`
	Oldest *time.Time `json:"oldest,omitempty"`
}

// StateFlow is a flow that the state knows.
type StateFlow struct {
	Name      string          `json:"flow"`
	Keys      []string        `json:"keys"`
	Sequence  string          `json:"sequence_type"`
	StoredAs  string          `json:"stored_as"`
	Once      bool            `json:"once_done,omitempty"`
	Format    string          `json:"format,omitempty"`
	Snapshot  string          `json:"snapshot_version,omitempty"`
	Positions []StatePosition `json:"positions"`
}

// StatePosition is how far a flow has read a source.
type StatePosition struct {
	Source string `json:"source"`
	Offset int64  `json:"offset"`
	Done   bool   `json:"done,omitempty"`
}

// Inspect reads what the newest version of a target names as its state. It changes
// nothing, and walks over no other writer's commits.
func Inspect(ctx context.Context, m Operator, o Options) (*StateReport, error) {
	t, err := m.target(o)
	if err != nil {
		return nil, err
	}
	t.quiet = true
	if err := t.again(ctx); err != nil {
		return nil, err
	}
	r := &StateReport{Version: t.state.version, Walked: t.state.walk, Kinds: []StateKind{}, Flows: []StateFlow{}}
	if at := t.state.target.Collected; at != 0 {
		when := time.UnixMicro(at).UTC()
		r.LastCollection = &when
	}
	kinds := map[string]*StateKind{}
	count := func(row stateRow) error {
		k := kinds[row.Kind]
		if k == nil {
			k = &StateKind{Kind: row.Kind}
			kinds[row.Kind] = k
		}
		k.Rows++
		k.Bytes += int64(len(row.Key) + len(row.Seq) + len(row.Payload) + len(row.Flow) + len(row.Kind) + 8)
		if at := time.UnixMicro(row.At).UTC(); k.Oldest == nil || at.Before(*k.Oldest) {
			k.Oldest = &at
		}
		return nil
	}
	if t.files != nil {
		for _, f := range append(slices.Clone(t.files.facts), t.files.control) {
			r.Files++
			r.FileBytes += f.Size
			if err := t.states.eachRow(ctx, f, count); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := *kinds[name]
		r.Kinds = append(r.Kinds, k)
		r.Rows += k.Rows
		r.Bytes += k.Bytes
	}
	for _, name := range slices.Sorted(maps.Keys(t.state.flows)) {
		d := t.state.flows[name]
		f := StateFlow{Name: name, Sequence: d.Sequence, StoredAs: d.StoredAs, Once: t.state.once[name], Format: d.Format, Positions: []StatePosition{}}
		for _, k := range d.Keys {
			f.Keys = append(f.Keys, k.Name)
		}
		for src, p := range t.state.positionsOf(name) {
			if src != "" {
				f.Positions = append(f.Positions, StatePosition{src, p.Offset, p.Done})
			}
		}
		slices.SortFunc(f.Positions, func(a, b StatePosition) int { return cmp.Compare(a.Source, b.Source) })
		if s := t.state.snapshot; s != nil && s.Flow == name {
			if v, err := t.lastSnapshot(); err == nil {
				f.Snapshot = v.Value.ValueStr(0)
			}
		}
		r.Flows = append(r.Flows, f)
	}
	return r, nil
}

// Text is the report for a reader, one fact a line.
func (r *StateReport) Text() []string {
	out := []string{fmt.Sprintf("version %d, %d rows, %d bytes in %d files", r.Version, r.Rows, r.FileBytes, r.Files)}
	for _, k := range r.Kinds {
		out = append(out, fmt.Sprintf("%s: %d rows, %d bytes", k.Kind, k.Rows, k.Bytes))
	}
	for _, f := range r.Flows {
		text := fmt.Sprintf("flow %s: keys %s, sequence %s, SCD type %s", f.Name, strings.Join(f.Keys, ", "), f.Sequence, f.StoredAs)
		if f.StoredAs == "" {
			text = "flow " + f.Name + ": positions only, no rows yet"
		}
		if f.Format != "" {
			text += ", format " + f.Format
		}
		if f.Snapshot != "" {
			text += ", snapshot " + f.Snapshot
		}
		if f.Once {
			text += ", done once"
		}
		out = append(out, text)
		for _, p := range f.Positions {
			at := fmt.Sprintf("at %d", p.Offset)
			if p.Done {
				at = "read whole"
			}
			out = append(out, fmt.Sprintf("  %s %s", p.Source, at))
		}
	}
	return out
}
