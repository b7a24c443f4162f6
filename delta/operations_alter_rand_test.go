package delta_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/merge"
)

// alter is for operations that change what the table is.
func (m *opsModel) alter(o tableOp) (changed, quiet bool, err error) {
	switch o.kind {
	case "evolve": // an append with one more column
		if len(m.names) > 5 || o.n == 0 {
			return false, false, errSkip
		}
		first := fmt.Sprintf("x%d", o.first/100)
		if m.names[first] != "" {
			return false, false, errSkip
		}
		m.names = maps.Clone(m.names)
		m.names[first] = first
		rows := m.fresh(o, nil)
		_, err = m.tb.Append(ctx, testtable.Rows(m.t, m.ddl(), m.batch(rows)), delta.WriteOptions{MergeSchema: true})
		m.rows = append(slices.Clone(m.rows), rows...)
		return true, false, err
	case "restore":
		snap, err := m.tb.Snapshot(ctx)
		if err != nil {
			return false, false, err
		}
		v := m.floor + int64(o.n*7+o.a)%(snap.Version-m.floor+1)
		was := m.past[v]
		differ := !maps.Equal(was.names, m.names)
		_, err = m.tb.Restore(ctx, delta.RestoreOptions{Version: &v})
		if differ && m.cfg.feed && m.cfg.mapping != "none" && codeOf(err) == "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION" {
			return false, false, errSkip // W-506
		}
		if differ {
			m.feedFloor = snap.Version + 1 // columns went away
		}
		m.rows, m.names = was.rows, was.names
		return true, true, err
	case "rename", "drop":
		return m.reshape(o)
	case "merge":
		return m.merge(o)
	case "clean":
		if _, err := m.tb.Checkpoint(ctx); err != nil {
			return false, false, err
		}
		snap, err := m.tb.Snapshot(ctx)
		if err != nil {
			return false, false, err
		}
		_, err = m.tb.Log().CleanUp(ctx, snap, deltalog.CleanUpOptions{})
		return false, false, err
	}
	return false, false, fmt.Errorf("no operation %s", o.kind)
}

// reshape renames a column, or drops one that came later; the feed cannot be read
// across either.
func (m *opsModel) reshape(o tableOp) (changed, quiet bool, err error) {
	var late []string
	for _, first := range slices.Sorted(maps.Keys(m.names)) {
		if strings.HasPrefix(first, "x") {
			late = append(late, first)
		}
	}
	if m.cfg.mapping == "none" || o.kind == "drop" && len(late) == 0 {
		return false, false, errSkip
	}
	snap, err := m.tb.Snapshot(ctx)
	if err != nil {
		return false, false, err
	}
	names := maps.Clone(m.names)
	if o.kind == "rename" {
		now := fmt.Sprintf("k%d", o.first)
		_, err = m.tb.Alter(ctx, delta.RenameColumn{Column: m.names["k"], To: now}, delta.AlterOptions{})
		names["k"] = now
	} else {
		gone := late[o.a%len(late)]
		_, err = m.tb.Alter(ctx, delta.DropColumns{Columns: []string{m.names[gone]}}, delta.AlterOptions{})
		delete(names, gone)
	}
	m.names, m.feedFloor = names, snap.Version+1
	return true, false, err
}

// merge brings new rows and a third of the old ones; some matched rows go, some that
// the source lacks go too.
func (m *opsModel) merge(o tableOp) (changed, quiet bool, err error) {
	source := m.fresh(o, nil)
	for _, r := range m.rows {
		if *r["id"]%3 == o.b && len(source) < 2*o.n {
			v := maps.Clone(r)
			v["k"], v["p"] = at2(*r["id"]%13), r["k"]
			if *r["id"]%5 == 0 {
				v["k"] = nil
			}
			source = append(source, v)
		}
	}
	const ddl = "id BIGINT, k INT, p INT"
	plain := &opsModel{names: map[string]string{"id": "id", "k": "k", "p": "p"}}
	k, p := m.names["k"], m.names["p"]
	text := fmt.Sprintf("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.k < %d THEN DELETE WHEN MATCHED THEN UPDATE SET t.%s = s.k, t.%s = s.p "+
		"WHEN NOT MATCHED AND s.k <> 5 THEN INSERT (id, %s, %s) VALUES (s.id, s.k, s.p)", o.a, k, p, k, p)
	if o.flag {
		text += fmt.Sprintf(" WHEN NOT MATCHED BY SOURCE AND t.id %% 5 = %d THEN DELETE", o.b)
	}
	st, err := merge.Parse(text)
	if err != nil {
		return false, false, err
	}
	_, err = merge.Into(ctx, m.tb, merge.Source{Schema: testtable.Struct(m.t, ddl), Rows: testtable.Rows(m.t, ddl, plain.batch(source))}, st, merge.IntoOptions{})
	byID := map[int]opsRow{}
	for _, r := range source {
		byID[*r["id"]] = r
	}
	var next []opsRow
	for _, r := range m.rows {
		from, ok := byID[*r["id"]]
		delete(byID, *r["id"])
		switch {
		case ok && from["k"] != nil && *from["k"] < o.a, !ok && o.flag && *r["id"]%5 == o.b:
			changed = true
			continue
		case ok:
			r = maps.Clone(r)
			r["k"], r["p"], changed = from["k"], from["p"], true
		}
		next = append(next, r)
	}
	for _, r := range source {
		if byID[*r["id"]] != nil && r["k"] != nil && *r["k"] != 5 {
			next = append(next, opsRow{"id": r["id"], "k": r["k"], "p": r["p"]})
			changed = true
		}
	}
	m.rows = next
	return changed, false, err
}
