package source

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// VersionOfTable, as a version, makes every version of a Delta table a snapshot.
const VersionOfTable = "_commit_version"

// Codes of snapshot versions (auto-cdc 1.6).
const (
	codeVersionQuery   = "INVALID_AUTO_CDC_FROM_SNAPSHOT_VERSION_QUERY"
	codeVersionChanged = "AUTO_CDC_FROM_SNAPSHOT_VERSION_SCHEMA_CHANGED"
	codeNoSnapshot     = "SNAPSHOT_NOT_FOUND"
)

// Snapshots are what OpenSnapshots makes.
type Snapshots = event.Snapshots

// SnapshotSpec says where snapshots are and what orders them.
type SnapshotSpec struct {
	// Spec is how rows are read; From holds one Delta table, or files, globs and
	// directories of plain rows.
	Spec
	// Version is one of
	//
	//	""                 one snapshot without version: all of From
	//	_commit_version    From is a Delta table: each of its versions, oldest first
	//	a path pattern     with {version} or {version:TYPE}, below the only directory
	//	                   of From: all files of one version are a snapshot, and a
	//	                   pattern that ends at a directory takes all files in it
	//	an expression      over the rows of From, the same for all of them
	Version string
	// Table opens From as a Delta table; nil: From is no table.
	Table func(context.Context) (*delta.Table, error)
}

// OpenSnapshots makes the snapshots of a flow (auto-cdc 2.8).
func OpenSnapshots(s SnapshotSpec) (Snapshots, error) {
	s.Format, s.NoOp = Rows, true
	switch {
	case s.Table != nil && s.Version == VersionOfTable:
		return &tableSnapshots{open: s.Table}, nil
	case s.Version == VersionOfTable:
		return nil, &Error{Code: "BAD_OPTION", Reason: "snapshot version " + VersionOfTable + " needs a Delta table as source"}
	case strings.Contains(s.Version, "{version"):
		if s.Table != nil || len(s.From) != 1 {
			return nil, &Error{Code: "BAD_OPTION", Reason: "a path pattern for snapshot versions needs one directory as source"}
		}
		return newPatternSnapshots(s)
	}
	out := &oneSnapshot{spec: s}
	if s.Version != "" {
		e, err := expr.Parse(s.Version)
		if err != nil {
			return nil, &Error{Code: "PARSE_SYNTAX_ERROR", Reason: "snapshot version: " + err.Error()}
		}
		out.version = e
	}
	return out, nil
}

// rowsOf streams all rows of files; a record that cannot be read refuses the snapshot.
func rowsOf(ctx context.Context, s Spec) iter.Seq2[*event.Batch, error] {
	return func(yield func(*event.Batch, error) bool) {
		opened, err := Open(ctx, s)
		if err != nil {
			yield(nil, err)
			return
		}
		err = eachBatch(ctx, opened, yield)
		if err = errors.Join(err, opened.Source.Close()); err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

var errStopped = errors.New("stopped")

func eachBatch(ctx context.Context, in *Opened, yield func(*event.Batch, error) bool) error {
	d := in.NewDecoder()
	var held []*event.Batch
	json := in.Format == Rows
	flush := func() error {
		out, err := d.Flush()
		if err != nil {
			return err
		}
		for _, p := range out.Poison {
			return &Error{Code: p.Code, Reason: fmt.Sprintf("a snapshot cannot leave rows out: %s: line %d of %s", p.Reason, p.Record.Line, p.Record.Source)}
		}
		held = append(held, out.Batches...)
		return nil
	}
	for rec, err := range in.Source.Records(ctx, nil) {
		if err != nil {
			return err
		}
		json = json && rec.Columns == nil
		if err := d.Add(ctx, rec); err != nil {
			return err
		}
		if rows, _ := d.Pending(); rows >= 64<<10 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if json {
		if err := wholeRows(held); err != nil {
			return err
		}
	}
	for _, b := range held {
		if !yield(b, nil) {
			return errStopped
		}
	}
	return nil
}

// wholeRows gives every batch of JSON records all columns of the snapshot: it is
// whole, so what its records have together is its schema, and a field that one of
// them lacks is null (auto-cdc 2.3). The column that no record has stays absent.
func wholeRows(batches []*event.Batch) error {
	all := &schema.Struct{}
	for _, b := range batches {
		for _, f := range b.Columns.Fields {
			if at := all.Index(f.Name); at < 0 {
				all.Fields = append(all.Fields, f)
			} else if all.Fields[at].Type == schema.Type(schema.Void) {
				all.Fields[at].Type = f.Type
			}
		}
	}
	for _, b := range batches {
		b.Unauthored = nil
		if len(b.Columns.Fields) == len(all.Fields) {
			continue
		}
		cols := &schema.Struct{Fields: slices.Clone(b.Columns.Fields)}
		arrays := slices.Clone(b.Rows.Columns())
		for _, f := range all.Fields {
			if cols.Index(f.Name) >= 0 {
				continue
			}
			at, err := schema.ArrowType(f.Type)
			if err != nil {
				return err
			}
			cols.Fields = append(cols.Fields, f)
			arrays = append(arrays, array.MakeArrayOfNull(memory.DefaultAllocator, at, int(b.Rows.NumRows())))
		}
		as, err := schema.ArrowSchema(cols)
		if err != nil {
			return err
		}
		b.Rows, b.Columns, b.Unavailable = array.NewRecordBatch(as, arrays, b.Rows.NumRows()), cols, nil
	}
	return nil
}

// tableRows streams a version of a Delta table.
func tableRows(ctx context.Context, t *delta.Table, o delta.ScanOptions, name string) iter.Seq2[*event.Batch, error] {
	return func(yield func(*event.Batch, error) bool) {
		scan, err := t.Scan(ctx, o)
		if err != nil {
			yield(nil, err)
			return
		}
		any := false
		for b, err := range scan.Batches(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			any = true
			b.Retain()
			if !yield(&event.Batch{Source: name, Columns: scan.Schema(), Rows: b}, nil) {
				return
			}
		}
		if any {
			return
		}
		// A table without rows still tells its columns.
		as, err := schema.ArrowSchema(scan.Schema())
		if err != nil {
			yield(nil, err)
			return
		}
		none := array.NewRecordBuilder(memory.DefaultAllocator, as)
		defer none.Release()
		yield(&event.Batch{Source: name, Columns: scan.Schema(), Rows: none.NewRecordBatch()}, nil)
	}
}

// oneSnapshot is all of a source, once.
type oneSnapshot struct {
	spec    SnapshotSpec
	version *expr.Expr // nil: none
	done    bool
}

func (o *oneSnapshot) Close() error { return nil }

// Held implements event.Snapshots: there is one, whose version the engine checks.
func (o *oneSnapshot) Held(context.Context, *event.SnapshotVersion) ([]*event.Snapshot, error) {
	return nil, nil
}

// Next implements event.Snapshots. A snapshot whose version is the last committed
// one is not new.
func (o *oneSnapshot) Next(ctx context.Context, last *event.SnapshotVersion) (*event.Snapshot, error) {
	if o.done {
		return nil, nil
	}
	o.done = true
	s := &event.Snapshot{Name: strings.Join(o.spec.From, ", "), Rows: rowsOf(ctx, o.spec.Spec)}
	if o.spec.Table != nil {
		t, err := o.spec.Table(ctx)
		if err != nil {
			return nil, err
		}
		s.Rows = tableRows(ctx, t, delta.ScanOptions{}, s.Name)
	}
	if o.version == nil {
		return s, nil
	}
	// The version is a value of the rows: they are held to find it.
	var held []*event.Batch
	for b, err := range s.Rows {
		if err != nil {
			return nil, err
		}
		held = append(held, b)
		bound, err := o.version.BindWith(b.Columns, expr.Options{Zone: o.spec.TimeZone})
		if err != nil {
			return nil, &Error{Code: codeVersionQuery, Reason: fmt.Sprintf("snapshot version %s: %v", o.spec.Version, err)}
		}
		v, err := bound.Eval(b.Rows)
		if err != nil {
			return nil, &Error{Code: codeVersionQuery, Reason: fmt.Sprintf("snapshot version %s: %v", o.spec.Version, err)}
		}
		for r := range v.Len() {
			if s.Version == nil {
				s.Version = &event.SnapshotVersion{Column: o.spec.Version, Type: bound.Type(), Value: array.NewSlice(v, int64(r), int64(r)+1)}
			} else if bound.Type() != s.Version.Type && bound.Type().String() != s.Version.Type.String() || !keycode.Equal(v, r, s.Version.Value, 0) && !(v.IsNull(r) && s.Version.Value.IsNull(0)) {
				return nil, &Error{Code: codeVersionQuery, Reason: fmt.Sprintf("snapshot version %s differs between rows of %s (%s and %s)", o.spec.Version, s.Name, s.Version.Value.ValueStr(0), v.ValueStr(r))}
			}
		}
	}
	if s.Version == nil {
		return nil, &Error{Code: codeVersionQuery, Reason: fmt.Sprintf("%s has no row that could tell the version %s; name the version in the path", s.Name, o.spec.Version)}
	}
	if last != nil && last.Type.String() == s.Version.Type.String() && s.Version.Value.IsValid(0) && keycode.Equal(last.Value, 0, s.Version.Value, 0) {
		return nil, nil
	}
	s.Rows = func(yield func(*event.Batch, error) bool) {
		for _, b := range held {
			if !yield(b, nil) {
				return
			}
		}
	}
	return s, nil
}

// tableSnapshots are the versions of a Delta table that changed rows.
type tableSnapshots struct {
	open  func(context.Context) (*delta.Table, error)
	table *delta.Table
}

func (t *tableSnapshots) Close() error { return nil }

// Held implements event.Snapshots: versions of a table come in their order.
func (t *tableSnapshots) Held(context.Context, *event.SnapshotVersion) ([]*event.Snapshot, error) {
	return nil, nil
}

// Next implements event.Snapshots.
func (t *tableSnapshots) Next(ctx context.Context, last *event.SnapshotVersion) (*event.Snapshot, error) {
	if t.table == nil {
		var err error
		if t.table, err = t.open(ctx); err != nil {
			return nil, err
		}
	}
	newest, err := t.table.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var version int64
	if last == nil {
		if version, err = oldest(ctx, newest); err != nil {
			return nil, err
		}
		return t.at(ctx, version), nil
	}
	l, ok := last.Value.(*array.Int64)
	if !ok || last.Column != VersionOfTable {
		return nil, &Error{Code: codeVersionChanged, Reason: "the last snapshot had version " + last.Column + " " + last.Type.String() + ", not one of a Delta table"}
	}
	from := l.Value(0) + 1
	if from > newest.Version {
		return nil, nil
	}
	for c, err := range t.table.Log().Commits(ctx, from, newest.Version) {
		if errors.Is(err, deltalog.ErrNotFound) {
			return t.at(ctx, newest.Version), nil // older ones are cleaned up; the newest has what they led to
		}
		if err != nil {
			return nil, err
		}
		if c.Metadata != nil || slices.ContainsFunc(c.Adds, func(a *deltalog.Add) bool { return a.DataChange }) ||
			slices.ContainsFunc(c.Removes, func(r *deltalog.Remove) bool { return r.DataChange }) {
			return t.at(ctx, c.Version), nil
		}
	}
	return nil, nil
}

func (t *tableSnapshots) at(ctx context.Context, version int64) *event.Snapshot {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.Append(version)
	name := fmt.Sprintf("version %d", version)
	return &event.Snapshot{Name: name, Version: &event.SnapshotVersion{Column: VersionOfTable, Type: schema.Long, Value: b.NewArray()},
		Rows: tableRows(ctx, t.table, delta.ScanOptions{Version: &version}, name)}
}

// oldest is the first version that can still be read.
func oldest(ctx context.Context, newest *deltalog.Snapshot) (int64, error) {
	history, err := newest.History(ctx, 0)
	if err != nil {
		return 0, err
	}
	for _, h := range slices.Backward(history) {
		_, err := newest.Log().At(ctx, h.Version)
		if err == nil {
			return h.Version, nil
		}
		if !errors.Is(err, deltalog.ErrNotFound) {
			return 0, err
		}
	}
	return newest.Version, nil
}

// patternSnapshots are versions that paths tell.
type patternSnapshots struct {
	spec    SnapshotSpec
	root    string
	pattern *regexp.Regexp
	typ     string // "" is inferred
}

var placeholder = regexp.MustCompile(`\{version(?::([A-Za-z_0-9(), ]+))?\}`)

func newPatternSnapshots(s SnapshotSpec) (*patternSnapshots, error) {
	p := &patternSnapshots{spec: s, root: strings.TrimPrefix(s.From[0], "file://")}
	m := placeholder.FindAllStringSubmatchIndex(s.Version, -1)
	if len(m) != 1 {
		return nil, &Error{Code: "BAD_OPTION", Reason: "snapshot version " + s.Version + ": want one {version} or {version:TYPE}"}
	}
	if m[0][2] >= 0 {
		p.typ = strings.TrimSpace(s.Version[m[0][2]:m[0][3]])
		if _, err := schema.ParseDDL("v " + p.typ); err != nil {
			return nil, &Error{Code: "BAD_OPTION", Reason: fmt.Sprintf("snapshot version %s: %v", s.Version, err)}
		}
	}
	quote := func(text string) string { return strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, `[^/]*`) }
	before, after := strings.TrimPrefix(s.Version[:m[0][0]], "/"), strings.TrimSuffix(s.Version[m[0][1]:], "/")
	re := "^" + quote(before) + `([^/]+?)` + quote(after) + "(?:/.*)?$"
	var err error
	if p.pattern, err = regexp.Compile(re); err != nil {
		return nil, &Error{Code: "BAD_OPTION", Reason: fmt.Sprintf("snapshot version %s: %v", s.Version, err)}
	}
	return p, nil
}

func (p *patternSnapshots) Close() error { return nil }

// versioned are the files of one version.
type versioned struct {
	text  string
	value arrow.Array
	files []string
}

// Next implements event.Snapshots.
func (p *patternSnapshots) Next(ctx context.Context, last *event.SnapshotVersion) (*event.Snapshot, error) {
	list, t, err := p.list(ctx, last)
	if err != nil {
		return nil, err
	}
	for _, v := range list {
		if last != nil && keycode.Compare(v.value, 0, last.Value, 0) <= 0 {
			continue
		}
		return p.snapshot(ctx, v, t), nil
	}
	return nil, nil
}

// Held implements event.Snapshots.
func (p *patternSnapshots) Held(ctx context.Context, last *event.SnapshotVersion) ([]*event.Snapshot, error) {
	list, t, err := p.list(ctx, last)
	if err != nil {
		return nil, err
	}
	out := make([]*event.Snapshot, len(list))
	for i, v := range list {
		out[i] = p.snapshot(ctx, v, t)
	}
	return out, nil
}

func (p *patternSnapshots) snapshot(ctx context.Context, v *versioned, t schema.Type) *event.Snapshot {
	spec := p.spec.Spec
	spec.From = v.files
	return &event.Snapshot{Name: filepath.Join(p.root, v.text), Version: &event.SnapshotVersion{Column: "version", Type: t, Value: v.value}, Rows: rowsOf(ctx, spec)}
}

// list groups the files below the root by version, in ascending order.
func (p *patternSnapshots) list(ctx context.Context, last *event.SnapshotVersion) ([]*versioned, schema.Type, error) {
	by := map[string]*versioned{}
	var list []*versioned
	err := p.walk(ctx, func(rel, path string) {
		m := p.pattern.FindStringSubmatch(rel)
		if m == nil {
			return
		}
		if by[m[1]] == nil {
			by[m[1]] = &versioned{text: m[1]}
			list = append(list, by[m[1]])
		}
		by[m[1]].files = append(by[m[1]].files, path)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, &Error{Code: codeNoSnapshot, Reason: "directory " + p.root + " does not exist"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) == 0 {
		if last == nil {
			return nil, nil, &Error{Code: codeNoSnapshot, Reason: "no file below " + p.root + " matches " + p.spec.Version}
		}
		return nil, nil, nil
	}
	t, err := p.typed(list, last)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list, func(a, b *versioned) int { return keycode.Compare(a.value, 0, b.value, 0) })
	for i := 1; i < len(list); i++ {
		if keycode.Equal(list[i].value, 0, list[i-1].value, 0) {
			return nil, nil, &Error{Code: codeVersionQuery, Reason: fmt.Sprintf("%s and %s are one version", list[i-1].text, list[i].text)}
		}
	}
	return list, t, nil
}

// typed gives every version its value: in the type that the pattern or the last
// version has, else in the first of BIGINT, DATE, TIMESTAMP and STRING that holds all.
func (p *patternSnapshots) typed(list []*versioned, last *event.SnapshotVersion) (schema.Type, error) {
	types := []string{"BIGINT", "DATE", "TIMESTAMP", "STRING"}
	switch {
	case p.typ != "":
		types = []string{p.typ}
	case last != nil:
		types = []string{last.Type.String()}
	}
	var first error
	for _, name := range types {
		t, err := p.as(list, name)
		if err == nil {
			return t, nil
		}
		if first == nil {
			first = err
		}
	}
	if last != nil && p.typ == "" {
		return nil, &Error{Code: codeVersionChanged, Reason: first.Error()}
	}
	return nil, &Error{Code: codeVersionQuery, Reason: first.Error()}
}

func (p *patternSnapshots) as(list []*versioned, typ string) (schema.Type, error) {
	var t schema.Type
	empty := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
	for _, v := range list {
		e, err := expr.Parse(fmt.Sprintf("CAST('%s' AS %s)", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v.text), typ))
		if err != nil {
			return nil, fmt.Errorf("version %q: %w", v.text, err)
		}
		b, err := e.BindWith(&schema.Struct{}, expr.Options{Zone: p.spec.TimeZone})
		if err != nil {
			return nil, fmt.Errorf("version %q: %w", v.text, err)
		}
		if v.value, err = b.Eval(empty); err != nil || v.value.IsNull(0) {
			return nil, fmt.Errorf("version %q is no %s", v.text, typ)
		}
		t = b.Type()
	}
	return t, nil
}
