package delta_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// opsConfig is what a table of TestTable_Operations is like.
type opsConfig struct {
	vectors, feed, parts, v2, tracking, ict bool
	mapping                                 string // none, name, id
	interval                                int    // of checkpoints
	fileSize                                int64
}

func drawConfig(r *rand.Rand) opsConfig {
	yes := func() bool { return r.IntN(2) == 0 }
	return opsConfig{vectors: yes(), feed: r.IntN(4) > 0, parts: yes(), v2: r.IntN(3) == 0, tracking: r.IntN(3) == 0,
		mapping: []string{"none", "name", "id"}[r.IntN(3)], interval: []int{1, 3, 100}[r.IntN(3)], fileSize: []int64{0, 500}[r.IntN(2)], ict: yes()}
}

func (c opsConfig) spec() testtable.Spec {
	props := map[string]string{"delta.checkpointInterval": fmt.Sprint(c.interval)}
	set := func(on bool, k, v string) {
		if on {
			props[k] = v
		}
	}
	set(c.feed, "delta.enableChangeDataFeed", "true")
	set(c.vectors, "delta.enableDeletionVectors", "true")
	set(c.mapping != "none", "delta.columnMapping.mode", c.mapping)
	set(c.ict, "delta.enableInCommitTimestamps", "true")
	s := testtable.Spec{DDL: "id BIGINT, k INT, p INT", Properties: props, Store: storage.NewMemory("t"), Options: delta.Options{FileSize: c.fileSize}}
	if c.parts {
		s.Partition = []string{"p"}
	}
	return s
}

// tableOp is one operation; its numbers mean what its kind makes of them, so that a
// list without some of its operations is still a list.
type tableOp struct {
	kind    string
	n, a, b int
	flag    bool
	first   int // ids of new rows begin here
}

func (o tableOp) String() string {
	return fmt.Sprintf("%s(n %d, a %d, b %d, %v, ids from %d)", o.kind, o.n, o.a, o.b, o.flag, o.first)
}

// opKinds are the operations with their weights.
var opKinds = map[string]int{"append": 5, "overwrite": 1, "replace": 2, "dynamic": 1, "delete": 4, "update": 4, "optimize": 2, "purge": 1,
	"zorder": 1, "checkpoint": 1, "vacuum": 1, "reopen": 1, "vectors": 1, "evolve": 1, "restore": 2, "merge": 4, "clean": 1, "rename": 1, "drop": 1}

func drawOps(r *rand.Rand, n int) []tableOp {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(opKinds)) {
		for range opKinds[k] {
			kinds = append(kinds, k)
		}
	}
	out := make([]tableOp, n)
	for i := range out {
		out[i] = tableOp{kind: kinds[r.IntN(len(kinds))], n: r.IntN(12), a: r.IntN(12), b: r.IntN(4), flag: r.IntN(2) == 0, first: i * 100}
	}
	return out
}

// opsRow is a row of the model by the first names of its columns; nil is null.
type opsRow map[string]*int

func at2(n int) *int { return &n }

// opsModel is a table beside a plain list of rows.
type opsModel struct {
	t     *testing.T
	cfg   opsConfig
	spec  testtable.Spec
	tb    *delta.Table
	rows  []opsRow
	names map[string]string // first name -> name now, of live columns
	// past is each version, feeds its change rows.
	past  map[int64]opsVersion
	feeds map[int64][]string
	// floor is the oldest version whose files are all there; feedFloor that from which
	// on the feed can be read in one range.
	floor, feedFloor int64
}

type opsVersion struct {
	rows  []opsRow
	names map[string]string
}

func (m *opsModel) line(r opsRow) string {
	var cols []string
	for first, now := range m.names {
		cols = append(cols, fmt.Sprintf("%q:%s", now, num(r[first])))
	}
	sort.Strings(cols)
	return "{" + strings.Join(cols, ",") + "}"
}

func (m *opsModel) text(rows []opsRow) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = m.line(r)
	}
	sort.Strings(out)
	return out
}

// fresh are the new rows of an operation.
func (m *opsModel) fresh(o tableOp, p *int) []opsRow {
	r := rand.New(rand.NewPCG(uint64(o.first), uint64(o.a*100+o.b)))
	out := make([]opsRow, o.n)
	for i := range out {
		row := opsRow{"id": at2(o.first + i)}
		if r.IntN(5) > 0 {
			row["k"] = at2(r.IntN(12))
		}
		if row["p"] = p; p == nil && r.IntN(6) > 0 {
			row["p"] = at2(r.IntN(4))
		}
		for first := range m.names {
			if strings.HasPrefix(first, "x") {
				row[first] = at2(r.IntN(5))
			}
		}
		out[i] = row
	}
	return out
}

func (m *opsModel) ddl() string {
	var cols []string
	for first, now := range m.names {
		typ := "INT"
		if first == "id" {
			typ = "BIGINT"
		}
		cols = append(cols, now+" "+typ)
	}
	sort.Strings(cols)
	return strings.Join(cols, ", ")
}

func (m *opsModel) batch(rows []opsRow) string { return strings.Join(m.text(rows), "") }

// where is a condition as text and as its meaning.
func (m *opsModel) where(o tableOp) (string, func(opsRow) bool) {
	k, p, a, b := m.names["k"], m.names["p"], o.a, o.b
	has := func(v *int, f func(int) bool) bool { return v != nil && f(*v) }
	switch (o.n + o.a + o.b) % 8 {
	case 0:
		return fmt.Sprintf("%s < %d", k, a), func(r opsRow) bool { return has(r["k"], func(v int) bool { return v < a }) }
	case 1:
		return fmt.Sprintf("%s = %d OR %s IS NULL", k, a, k), func(r opsRow) bool { return r["k"] == nil || *r["k"] == a }
	case 2:
		return fmt.Sprintf("%s = %d", p, b), func(r opsRow) bool { return has(r["p"], func(v int) bool { return v == b }) }
	case 3:
		return p + " IS NULL", func(r opsRow) bool { return r["p"] == nil }
	case 4:
		return fmt.Sprintf("%s >= %d AND %s > %d", p, b, k, a), func(r opsRow) bool {
			return has(r["p"], func(v int) bool { return v >= b }) && has(r["k"], func(v int) bool { return v > a })
		}
	case 5:
		return fmt.Sprintf("id %% 7 = %d", b), func(r opsRow) bool { return *r["id"]%7 == b }
	case 6:
		return fmt.Sprintf("NOT (%s >= %d) OR id %% 50 = %d", k, a, b), func(r opsRow) bool {
			return has(r["k"], func(v int) bool { return v < a }) || *r["id"]%50 == b
		}
	}
	if o.flag {
		return "", func(opsRow) bool { return true }
	}
	return fmt.Sprintf("%s IN (0, %d) AND id %% 3 = 0", p, b), func(r opsRow) bool {
		return has(r["p"], func(v int) bool { return v == 0 || v == b }) && *r["id"]%3 == 0
	}
}

func (m *opsModel) keep(test func(opsRow) bool) []opsRow {
	var out []opsRow
	for _, r := range m.rows {
		if test(r) {
			out = append(out, r)
		}
	}
	return out
}

// errSkip: the operation makes no sense here and was not tried.
var errSkip = errors.New("skipped")

// do runs one operation on the table and on the model. changed says whether rows
// changed; a version without changes may come where quiet is true.
func (m *opsModel) do(o tableOp) (changed, quiet bool, err error) {
	tb := m.tb
	switch o.kind {
	case "append":
		rows := m.fresh(o, nil)
		_, err = tb.Append(ctx, testtable.Rows(m.t, m.ddl(), m.batch(rows)), delta.WriteOptions{})
		m.rows, changed = append(slices.Clone(m.rows), rows...), len(rows) > 0
	case "overwrite":
		rows := m.fresh(o, nil)
		_, err = tb.Overwrite(ctx, testtable.Rows(m.t, m.ddl(), m.batch(rows)), delta.OverwriteOptions{})
		changed, m.rows = len(rows)+len(m.rows) > 0, rows
	case "replace":
		p, b := m.names["p"], o.b
		text, test := fmt.Sprintf("%s = %d", p, b), func(r opsRow) bool { return r["p"] != nil && *r["p"] == b }
		if o.flag {
			text += fmt.Sprintf(" AND id >= %d", o.first/2)
			inner := test
			test = func(r opsRow) bool { return inner(r) && *r["id"] >= o.first/2 }
		}
		rows := m.fresh(o, &b)
		_, err = tb.Overwrite(ctx, testtable.Rows(m.t, m.ddl(), m.batch(rows)), delta.OverwriteOptions{Where: text})
		kept := m.keep(func(r opsRow) bool { return !test(r) })
		changed, m.rows = len(kept) < len(m.rows) || len(rows) > 0, append(kept, rows...)
	case "dynamic":
		if rows := m.fresh(o, nil); m.cfg.parts && len(rows) > 0 {
			_, err = tb.Overwrite(ctx, testtable.Rows(m.t, m.ddl(), m.batch(rows)), delta.OverwriteOptions{Dynamic: true})
			hit := map[string]bool{}
			for _, r := range rows {
				hit[num(r["p"])] = true
			}
			m.rows, changed = append(m.keep(func(r opsRow) bool { return !hit[num(r["p"])] }), rows...), true
			break
		}
		return false, false, errSkip
	case "delete":
		text, test := m.where(o)
		_, err = tb.Delete(ctx, text, delta.DMLOptions{})
		kept := m.keep(func(r opsRow) bool { return !test(r) })
		changed, m.rows = len(kept) < len(m.rows), kept
	case "update":
		text, test := m.where(o)
		k, p := m.names["k"], m.names["p"]
		set, apply := fmt.Sprintf("%s = %s + 1", k, k), func(r opsRow) {
			if r["k"] != nil {
				r["k"] = at2(*r["k"] + 1)
			}
		}
		if o.flag {
			set, apply = fmt.Sprintf("%s = %s %% 4, %s = NULL", p, k, k), func(r opsRow) {
				r["p"] = nil
				if r["k"] != nil {
					r["p"] = at2(*r["k"] % 4)
				}
				r["k"] = nil
			}
		}
		_, err = tb.Update(ctx, set, text, delta.DMLOptions{})
		next := make([]opsRow, len(m.rows))
		for i, r := range m.rows {
			if next[i] = r; test(r) {
				next[i], changed = maps.Clone(r), true
				apply(next[i])
			}
		}
		m.rows = next
	case "optimize", "purge", "zorder":
		oo := delta.OptimizeOptions{Purge: o.kind == "purge"}
		if o.kind == "zorder" {
			oo.ZOrder = []string{"id", m.names["k"]}
		}
		_, err = tb.Optimize(ctx, oo)
		quiet = true
	case "checkpoint":
		_, err = tb.Checkpoint(ctx)
	case "vacuum":
		none := time.Duration(0)
		_, err = tb.Vacuum(ctx, delta.VacuumOptions{Retain: &none, AllowShortRetention: true, Lite: o.flag})
		quiet = true
	case "reopen":
		m.tb, err = delta.Open(ctx, tb.Store(), m.spec.Options)
	case "vectors":
		if !m.cfg.vectors {
			return false, false, errSkip
		}
		_, err = tb.SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": fmt.Sprint(o.flag)}, delta.PropertyOptions{})
		quiet = true
	default:
		return m.alter(o)
	}
	return changed, quiet, err
}

func (m *opsModel) lines(o delta.ScanOptions) ([]string, error) {
	s, err := m.tb.Scan(ctx, o)
	if err != nil {
		return nil, err
	}
	var out []string
	for b, err := range s.Batches(ctx) {
		if err != nil {
			return nil, err
		}
		out = append(out, testtable.BatchLines(b)...)
	}
	sort.Strings(out)
	return out, nil
}

// step does one operation and holds everything that can be seen against the model.
func (m *opsModel) step(o tableOp) error {
	before, err := m.tb.Snapshot(ctx)
	if err != nil {
		return err
	}
	was := m.past[before.Version]
	changed, quiet, err := m.do(o)
	if errors.Is(err, errSkip) {
		return nil
	}
	if err != nil {
		return err
	}
	after, err := m.tb.Snapshot(ctx)
	if err != nil {
		return err
	}
	if grown := after.Version - before.Version; !quiet && (grown == 1) != changed || grown < 0 || grown > 1 && !quiet {
		return fmt.Errorf("W-907: %d new versions, rows changed: %v", grown, changed)
	}
	want := m.text(m.rows)
	got, err := m.lines(delta.ScanOptions{})
	if err != nil {
		return err
	}
	if d := testtable.Diff(got, want); d != "" {
		return fmt.Errorf("rows: %s", d)
	}
	text, test := m.where(o)
	s, err := m.tb.Scan(ctx, delta.ScanOptions{Where: text})
	if err != nil {
		return err
	}
	if n, err := s.Count(ctx); err != nil || int(n) != len(m.keep(test)) {
		return fmt.Errorf("count where %s: %d %v, want %d", text, n, err, len(m.keep(test)))
	}
	for v := before.Version + 1; v <= after.Version; v++ {
		if m.past[v] = (opsVersion{m.rows, m.names}); v < after.Version {
			m.past[v] = was // of several versions only the last one changes rows
		}
	}
	if o.kind == "vacuum" {
		m.floor = after.Version
		m.feedFloor = max(m.feedFloor, after.Version+1)
	}
	if !m.cfg.feed {
		return nil
	}
	for v := before.Version + 1; v <= after.Version; v++ {
		if err := m.addUp(v); err != nil {
			return fmt.Errorf("feed of version %d: %w", v, err)
		}
	}
	return nil
}

// feed reads change rows as text without the commit time.
func (m *opsModel) feed(r cdf.Range) ([]string, error) {
	f, err := m.tb.Changes(ctx, cdf.Options{Range: r})
	if err != nil {
		return nil, err
	}
	var out []string
	for b, err := range f.Rows(ctx) {
		if err != nil {
			return nil, err
		}
		out = append(out, testtable.BatchLines(sliceColumns(b, int(b.NumCols())-1))...)
	}
	sort.Strings(out)
	return out, nil
}

// sum applies change rows to rows; both are canonical text.
func sum(rows, changes []string) ([]string, error) {
	net := map[string]int{}
	for _, l := range rows {
		net[l]++
	}
	for _, l := range changes {
		// The columns of the feed sort first: {"_change_type":"..","_commit_version":n,..
		kind, rest, ok := strings.Cut(strings.TrimPrefix(l, `{"_change_type":"`), `","_commit_version":`)
		_, row, ok2 := strings.Cut(rest, ",")
		if !ok || !ok2 {
			return nil, fmt.Errorf("no change row: %s", l)
		}
		switch kind {
		case "insert", "update_postimage":
			net["{"+row]++
		case "delete", "update_preimage":
			net["{"+row]--
		default:
			return nil, fmt.Errorf("change type %q", kind)
		}
	}
	var out []string
	for l, n := range net {
		if n < 0 {
			return nil, fmt.Errorf("%s is taken away %d times too often", l, -n)
		}
		for range n {
			out = append(out, l)
		}
	}
	sort.Strings(out)
	return out, nil
}

// addUp reads the feed of one version: the rows before it and the changes are the
// rows after it, all with the columns of that version.
func (m *opsModel) addUp(v int64) error {
	changes, err := m.feed(cdf.Range{FromVersion: &v, ToVersion: &v})
	if err != nil {
		return err
	}
	m.feeds[v] = changes
	now := &opsModel{names: m.past[v].names}
	got, err := sum(now.text(m.past[v-1].rows), changes)
	if err != nil {
		return err
	}
	if d := testtable.Diff(got, now.text(m.past[v].rows)); d != "" {
		return fmt.Errorf("adds up to %s", d)
	}
	return nil
}

// widen gives change rows the columns that came later, as nulls.
func (m *opsModel) widen(lines []string) ([]string, error) {
	out := make([]string, len(lines))
	for i, l := range lines {
		row := map[string]any{}
		d := json.NewDecoder(strings.NewReader(l))
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			return nil, err
		}
		for _, now := range m.names {
			if _, ok := row[now]; !ok {
				row[now] = nil
			}
		}
		out[i] = testtable.CanonicalJSON(row)
	}
	sort.Strings(out)
	return out, nil
}

// finish looks at older versions, at the whole feed, and at a stream that is cut and
// resumed.
func (m *opsModel) finish(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 99))
	snap, err := m.tb.Snapshot(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		v := m.floor + r.Int64N(snap.Version-m.floor+1)
		got, err := m.lines(delta.ScanOptions{Version: &v})
		if err != nil {
			return err
		}
		past := &opsModel{names: m.past[v].names}
		if d := testtable.Diff(got, past.text(m.past[v].rows)); d != "" {
			return fmt.Errorf("version %d: %s", v, d)
		}
	}
	if !m.cfg.feed || m.feedFloor > snap.Version {
		return nil
	}
	from := m.feedFloor
	var want []string
	for v := from; v <= snap.Version; v++ {
		want = append(want, m.feeds[v]...)
	}
	if want, err = m.widen(want); err != nil {
		return err
	}
	got, err := m.feed(cdf.Range{FromVersion: &from})
	if err != nil {
		return fmt.Errorf("feed from %d: %w", from, err)
	}
	if d := testtable.Diff(got, want); d != "" {
		return fmt.Errorf("feed from %d: %s", from, d)
	}
	so := cdf.StreamOptions{FromVersion: &from, MaxFiles: 1 + r.IntN(5)}
	var streamed []string
	for {
		s, err := m.tb.Stream(ctx, so)
		if err != nil {
			return err
		}
		b, err := s.Next(ctx)
		var changed *cdf.SchemaChangedError
		if errors.As(err, &changed) {
			so.Position = &changed.At
			continue
		}
		if err != nil {
			return fmt.Errorf("stream from %d: %w", from, err)
		}
		if b == nil {
			break
		}
		for rows, err := range b.Rows(ctx) {
			if err != nil {
				return err
			}
			streamed = append(streamed, testtable.BatchLines(sliceColumns(rows, int(rows.NumCols())-1))...)
		}
		so.Position = &b.End
	}
	if streamed, err = m.widen(streamed); err != nil {
		return err
	}
	if d := testtable.Diff(streamed, want); d != "" {
		return fmt.Errorf("stream from %d: %s", from, d)
	}
	return nil
}

// runOps runs a list on a new table; the error says after which operation.
func runOps(t *testing.T, cfg opsConfig, ops []tableOp, seed uint64) (err error) {
	spec := cfg.spec()
	m := &opsModel{t: t, cfg: cfg, spec: spec, tb: testtable.New(t, spec), names: map[string]string{"id": "id", "k": "k", "p": "p"},
		past: map[int64]opsVersion{}, feeds: map[int64][]string{}}
	m.past[0], m.past[1] = opsVersion{names: m.names}, opsVersion{names: m.names}
	m.spec.Options = m.tb.Options()
	if err := m.addFirst(); err != nil {
		return err
	}
	for i, o := range ops {
		if err := m.step(o); err != nil {
			return fmt.Errorf("operation %d, %s: %w", i, o, err)
		}
	}
	if err := m.finish(seed); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return nil
}

// addFirst makes version 1 with the features that a create does not give.
func (m *opsModel) addFirst() error {
	snap, err := m.tb.Snapshot(ctx)
	if err != nil {
		return err
	}
	protocol, metadata := snap.Protocol, *snap.Metadata
	metadata.Configuration = maps.Clone(metadata.Configuration)
	var features []deltalog.Feature
	if m.cfg.v2 {
		features = append(features, deltalog.V2Checkpoint)
		metadata.Configuration["delta.checkpointPolicy"] = "v2"
	}
	if m.cfg.tracking {
		features = append(features, deltalog.RowTracking)
		metadata.Configuration["delta.enableRowTracking"] = "true"
		metadata.Configuration["delta.rowTracking.materializedRowIdColumnName"] = "_row-id-col-x"
		metadata.Configuration["delta.rowTracking.materializedRowCommitVersionColumnName"] = "_row-commit-version-col-x"
	}
	if protocol, err = protocol.With(features...); err != nil {
		return err
	}
	tx := m.tb.Log().Begin(snap)
	if len(features) > 0 {
		tx.SetProtocol(protocol)
	}
	metadata.Configuration["list"] = "of operations"
	tx.SetMetadata(&metadata)
	if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "SET TBLPROPERTIES"}); err != nil {
		return err
	}
	if !m.cfg.feed {
		return nil
	}
	return errors.Join(m.addUp(0), m.addUp(1))
}

// shrink drops operations while the list still fails.
func shrink(t *testing.T, cfg opsConfig, ops []tableOp, seed uint64, err error) ([]tableOp, error) {
	for tries := 0; tries < 300; {
		shorter := false
		for size := len(ops) / 2; size > 0; size /= 2 {
			for i := 0; i+size <= len(ops) && tries < 300; {
				tries++
				less := slices.Concat(ops[:i], ops[i+size:])
				if e := runOps(t, cfg, less, seed); e != nil {
					ops, err, shorter = less, e, true
				} else {
					i += size
				}
			}
		}
		if !shorter {
			break
		}
	}
	return ops, err
}

// TestTable_Operations runs random lists of operations in many configurations against
// a plain list of rows: rows, counts, versions, older versions, feed and stream. Every
// value of SLUICE_SEED has other lists.
func TestTable_Operations(t *testing.T) {
	lists, length := 40, 12
	if os.Getenv("SLUICE_LONG") != "" {
		lists, length = 500, 20
	}
	base := uint64(0)
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("SLUICE_SEED: %v", err)
		}
		base = n << 16
	}
	for i := range uint64(lists) {
		seed := base + i
		r := rand.New(rand.NewPCG(seed, 11))
		cfg := drawConfig(r)
		ops := drawOps(r, length)
		t.Run(fmt.Sprintf("R-912 seed %d %+v", seed, cfg), func(t *testing.T) {
			if err := runOps(t, cfg, ops, seed); err != nil {
				ops, err = shrink(t, cfg, ops, seed, err)
				t.Errorf("%v\nfails with this list, which cannot be shortened:", err)
				for _, o := range ops {
					t.Logf("%s", o)
				}
			}
		})
	}
}
