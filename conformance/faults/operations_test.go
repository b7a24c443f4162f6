package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/fsck"
	"github.com/sluice-data/sluice/internal/rowio"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

// operation is one way to write, with the table that it meets. Done twice it is as done
// once, as a user does it who does not know how the first time ended.
type operation struct {
	name    string
	prepare func(b *bench) error
	run     func(b *bench) error
	// dir is the table, "" for "t".
	dir string
	// noFeed: the table has no feed from its first version on.
	noFeed bool
	// damaged: the table is not clean before the operation.
	damaged bool
	// late: it fails also where only what follows its commit failed.
	late bool
	// outside: the table's files are not all below its root.
	outside bool
}

func (op operation) table() string {
	if op.dir == "" {
		return "t"
	}
	return op.dir
}

const ddl = "id BIGINT, k BIGINT, p BIGINT"

// operations are all of them.
func operations() []operation {
	var out []operation
	out = append(out, writes()...)
	out = append(out, upkeep()...)
	out = append(out, whole()...)
	return append(out, flows()...)
}

// named are some of them.
func named(names ...string) []operation {
	var out []operation
	for _, name := range names {
		n := len(out)
		for _, op := range operations() {
			if op.name == name {
				out = append(out, op)
			}
		}
		if len(out) != n+1 {
			panic("no operation " + name)
		}
	}
	return out
}

// table makes a table with three appends, of several files and partitions.
func table(props map[string]string, after ...func(*bench, *delta.Table) error) func(*bench) error {
	return func(b *bench) error {
		s, err := schema.ParseDDL(ddl)
		if err != nil {
			return err
		}
		all := map[string]string{"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "3"}
		for k, v := range props {
			all[k] = v
		}
		t, err := delta.Create(b.ctx, b.store("t"), delta.CreateOptions{Schema: s, PartitionBy: []string{"p"}, Properties: all}, b.options())
		if err != nil {
			return err
		}
		for _, rows := range []string{`{"id":1,"k":1,"p":1}` + "\n" + `{"id":2,"k":2,"p":1}` + "\n" + `{"id":3,"k":3,"p":2}`,
			`{"id":4,"k":4,"p":1}` + "\n" + `{"id":5,"k":5,"p":2}`, `{"id":6,"k":6,"p":2}` + "\n" + `{"id":7,"k":7,"p":1}`} {
			if err := appendRows(b, t, rows, delta.WriteOptions{}); err != nil {
				return err
			}
		}
		for _, f := range after {
			if err := f(b, t); err != nil {
				return err
			}
		}
		return nil
	}
}

func rowsOf(b *bench, text string) (merge.Source, error) {
	s, err := schema.ParseDDL(ddl)
	return merge.Source{Schema: s, Rows: rowio.Read(b.ctx, strings.NewReader(text), rowio.JSONL, rowio.ReadOptions{Schema: s})}, err
}

func appendRows(b *bench, t *delta.Table, text string, o delta.WriteOptions) error {
	rows, err := rowsOf(b, text)
	if err != nil {
		return err
	}
	_, err = t.Append(b.ctx, rows.Rows, o)
	return err
}

var vectors = map[string]string{"delta.enableDeletionVectors": "true"}

const changed = `{"id":2,"k":20,"p":1}` + "\n" + `{"id":6,"k":60,"p":3}` + "\n" + `{"id":9,"k":9,"p":3}`

// writes are those that change rows.
func writes() []operation {
	deleted := with("t", func(b *bench, t *delta.Table) (delta.Result, error) {
		return t.Delete(b.ctx, "id IN (2, 6)", delta.DMLOptions{})
	})
	updated := with("t", func(b *bench, t *delta.Table) (delta.Result, error) {
		return t.Update(b.ctx, "k = 0, p = 7", "id >= 5", delta.DMLOptions{})
	})
	merged := with("t", func(b *bench, t *delta.Table) (merge.Result, error) {
		rows, err := rowsOf(b, changed)
		if err != nil {
			return merge.Result{}, err
		}
		s, err := merge.Parse("MERGE INTO target USING source ON target.id = source.id WHEN MATCHED AND target.id = 6 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND source.id = 9 THEN INSERT *")
		if err != nil {
			return merge.Result{}, err
		}
		return merge.Into(b.ctx, t, rows, s, merge.IntoOptions{})
	})
	return []operation{
		{name: "append", prepare: table(nil), run: with("t", func(b *bench, t *delta.Table) (struct{}, error) {
			return struct{}{}, appendRows(b, t, changed, delta.WriteOptions{Txn: &delta.Txn{AppID: "a", Version: 1}})
		})},
		{name: "append without a transaction id", prepare: table(nil), run: with("t", func(b *bench, t *delta.Table) (struct{}, error) {
			// Whoever does it again looks first whether the rows are there.
			rows, _, err := b.rows("t", nil)
			if err != nil || slices.ContainsFunc(rows, func(row string) bool { return strings.Contains(row, `"id":9,`) }) {
				return struct{}{}, err
			}
			return struct{}{}, appendRows(b, t, changed, delta.WriteOptions{})
		})},
		{name: "overwrite", prepare: table(nil), run: with("t", func(b *bench, t *delta.Table) (delta.Result, error) {
			rows, err := rowsOf(b, changed)
			if err != nil {
				return delta.Result{}, err
			}
			return t.Overwrite(b.ctx, rows.Rows, delta.OverwriteOptions{})
		})},
		{name: "delete", prepare: table(nil), run: deleted},
		{name: "delete with deletion vectors", prepare: table(vectors), run: deleted},
		{name: "update", prepare: table(nil), run: updated},
		{name: "update with deletion vectors", prepare: table(vectors), run: updated},
		{name: "merge", prepare: table(nil), run: merged},
		{name: "merge with deletion vectors", prepare: table(vectors), run: merged},
		{name: "alter", prepare: table(nil), run: with("t", func(b *bench, t *delta.Table) (delta.Result, error) {
			s, err := t.Schema(b.ctx)
			if err != nil {
				return delta.Result{}, err
			}
			if slices.Contains(s.Names(), "note") {
				return delta.Result{}, nil
			}
			added, err := schema.ParseDDL("note STRING")
			if err != nil {
				return delta.Result{}, err
			}
			return t.Alter(b.ctx, delta.AddColumns{Columns: []delta.NewColumn{{Field: added.Fields[0]}}}, delta.AlterOptions{})
		})},
	}
}

// upkeep are those that leave the rows as they are, or bring older ones back.
func upkeep() []operation {
	some := func(b *bench, t *delta.Table) error {
		if _, err := t.Delete(b.ctx, "id = 4", delta.DMLOptions{}); err != nil {
			return err
		}
		_, err := t.Update(b.ctx, "k = 50", "id = 5", delta.DMLOptions{})
		return err
	}
	none := time.Duration(0)
	one := int64(1)
	vacuum := func(lite bool) func(b *bench) error {
		return with("t", func(b *bench, t *delta.Table) (delta.VacuumResult, error) {
			return t.Vacuum(b.ctx, delta.VacuumOptions{Retain: &none, AllowShortRetention: true, Lite: lite, Workers: b.workers})
		})
	}
	orphan := func(b *bench, _ *delta.Table) error { return b.store("t").Put(b.ctx, "orphan.parquet", []byte("x")) }
	return []operation{
		{name: "optimize", prepare: table(vectors, some), run: with("t", func(b *bench, t *delta.Table) (delta.OptimizeResult, error) {
			return t.Optimize(b.ctx, delta.OptimizeOptions{})
		})},
		{name: "optimize with Z-order", prepare: table(vectors, some), run: with("t", func(b *bench, t *delta.Table) (delta.OptimizeResult, error) {
			return t.Optimize(b.ctx, delta.OptimizeOptions{ZOrder: []string{"k"}})
		})},
		// Change files of older versions go, too.
		{name: "vacuum", noFeed: true, prepare: table(vectors, some, orphan), run: vacuum(false)},
		{name: "vacuum of the log's files", noFeed: true, prepare: table(vectors, some), run: vacuum(true)},
		{name: "restore", prepare: table(vectors, some), run: with("t", func(b *bench, t *delta.Table) (delta.RestoreResult, error) {
			return t.Restore(b.ctx, delta.RestoreOptions{Version: &one})
		})},
		{name: "checkpoint", prepare: table(map[string]string{"delta.checkpointInterval": "100"}), run: with("t", func(b *bench, t *delta.Table) (int64, error) { return t.Checkpoint(b.ctx) })},
		{name: "log clean-up", noFeed: true, prepare: old(40*24*time.Hour, nil), run: with("t", func(b *bench, t *delta.Table) (deltalog.CleanUpResult, error) {
			return t.CleanLog(b.ctx, deltalog.CleanUpOptions{})
		})},
		{name: "drop feature", noFeed: true, late: true, prepare: old(3*24*time.Hour, vectors), run: with("t", func(b *bench, t *delta.Table) (delta.Result, error) {
			snap, err := t.Snapshot(b.ctx)
			if err != nil || !snap.Supports(deltalog.DeletionVectors) {
				return delta.Result{}, err
			}
			return t.DropFeature(b.ctx, deltalog.DeletionVectors, deltalog.DropFeatureOptions{TruncateHistory: true})
		})},
		{name: "fsck --repair", damaged: true, prepare: table(nil, func(b *bench, t *delta.Table) error {
			if err := b.store("t").Put(b.ctx, "_delta_log/_last_checkpoint", []byte("{")); err != nil {
				return err
			}
			return b.store("t").Put(b.ctx, deltalog.ChecksumKey(2), []byte("{"))
		}), run: func(b *bench) error {
			_, err := fsck.Repair(b.ctx, b.store("t"), fsck.Options{Table: b.options()})
			return err
		}},
	}
}

// old makes a table whose versions are of the past, with checkpoints, then a young one.
func old(age time.Duration, props map[string]string) func(*bench) error {
	all := map[string]string{"delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "2", "delta.enableExpiredLogCleanup": "false"}
	for k, v := range props {
		all[k] = v
	}
	return func(b *bench) error {
		young := b.now
		defer func() { b.now = young }()
		b.now = func() time.Time { return young().Add(-age) }
		if err := table(all)(b); err != nil {
			return err
		}
		t, err := b.open("t")
		if err != nil {
			return err
		}
		if props != nil {
			// The feature is switched off and used by no version that is young.
			if _, err := t.SetProperties(b.ctx, map[string]string{"delta.enableDeletionVectors": "false"}, delta.PropertyOptions{}); err != nil {
				return err
			}
		}
		for range 2 {
			if err := appendRows(b, t, `{"id":8,"k":8,"p":2}`, delta.WriteOptions{}); err != nil {
				return err
			}
		}
		b.now = young
		if t, err = b.open("t"); err != nil {
			return err
		}
		return appendRows(b, t, `{"id":10,"k":10,"p":2}`, delta.WriteOptions{})
	}
}

// whole are those that make a table.
func whole() []operation {
	return []operation{
		{name: "create", prepare: func(*bench) error { return nil }, run: func(b *bench) error {
			s, err := schema.ParseDDL(ddl)
			if err != nil {
				return err
			}
			_, err = delta.Create(b.ctx, b.store("t"), delta.CreateOptions{Schema: s, IfNotExists: true, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}}, b.options())
			return err
		}},
		{name: "clone", dir: "c", noFeed: true, prepare: table(vectors, func(b *bench, t *delta.Table) error {
			_, err := t.Delete(b.ctx, "id = 4", delta.DMLOptions{})
			return err
		}), run: func(b *bench) error {
			from, err := b.open("t")
			if err != nil {
				return err
			}
			if there, err := delta.Exists(b.ctx, b.store("c")); err != nil || there {
				return err
			}
			_, _, err = delta.Clone(b.ctx, from, b.store("c"), delta.CloneOptions{Workers: b.workers}, b.options())
			var left *delta.FolderError
			if !errors.As(err, &left) {
				return err
			}
			// A clone that died left files and no table, and another refuses to lie among them:
			// its user takes them away.
			for o, err := range b.store("c").List(b.ctx, "", "") {
				if err == nil {
					err = b.store("c").Delete(b.ctx, o.Key)
				}
				if err != nil {
					return err
				}
			}
			_, _, err = delta.Clone(b.ctx, from, b.store("c"), delta.CloneOptions{Workers: b.workers}, b.options())
			return err
		}},
		{name: "convert", noFeed: true, prepare: func(b *bench) error {
			if err := table(nil)(b); err != nil {
				return err
			}
			for o, err := range b.store("t").List(b.ctx, "_delta_log/", "") {
				if err != nil {
					return err
				}
				if err := b.store("t").Delete(b.ctx, o.Key); err != nil {
					return err
				}
			}
			return nil
		}, run: func(b *bench) error {
			if there, err := delta.Exists(b.ctx, b.store("t")); err != nil || there {
				return err
			}
			_, _, err := delta.Convert(b.ctx, b.store("t"), delta.ConvertOptions{Workers: b.workers}, b.options())
			return err
		}},
	}
}

// events are those of a flow, in three batches; those of a bitemporal one have sys as well.
var events = []string{
	`{"id":1,"name":"Ann","op":"I","at":1,"sys":1}`, `{"id":2,"name":"Bob","op":"I","at":2,"sys":1}`, `{"id":1,"name":"Ann L","op":"U","at":5,"sys":2}`,
	`{"id":3,"name":"Cid","op":"I","at":3,"sys":2}`, `{"id":1,"name":"late","op":"U","at":4,"sys":3}`, `{"id":2,"name":"Bob","op":"D","at":7,"sys":4}`,
	`{"id":4,"name":"Di","op":"I","at":8,"sys":5}`, `{"id":2,"name":"Bo","op":"U","at":6,"sys":6}`,
}

// poisoned has an event that cannot be applied.
const poisoned = `{"id":5,"name":"Ed","op":"?","at":9,"sys":7}`

// flows are those of the AUTO CDC engine.
func flows() []operation {
	first := strings.Join(events[:3], "\n") + "\n"
	all := strings.Join(events, "\n") + "\n"
	flow := func(name string, f apply.Flow) operation {
		return operation{name: name, prepare: func(b *bench) error { return b.run(first, f) }, run: func(b *bench) error { return b.run(all, f) }}
	}
	one := int64(1)
	operator := func(b *bench) apply.Operator { return apply.Operator{Store: b.store("t"), Name: "t"} }
	return []operation{
		flow("apply, type 1", apply.Flow{}),
		flow("apply, type 2", apply.Flow{StoredAsSCDType: "2"}),
		flow("apply, bitemporal", apply.Flow{StoredAsSCDType: "bitemporal", SystemSequenceBy: "sys"}),
		{name: "apply of snapshots", prepare: func(b *bench) error { return b.snapshots(1) }, run: func(b *bench) error { return b.snapshots(3) }},
		{name: "rewind", prepare: func(b *bench) error { return b.run(all, apply.Flow{}) }, run: func(b *bench) error {
			_, err := apply.Rewind(b.ctx, operator(b), &one, nil, apply.Options{Clock: b.now})
			return err
		}},
		{name: "quarantine replay", late: true, prepare: func(b *bench) error { return b.run(all+poisoned+"\n", apply.Flow{}) }, run: replay},
	}
}

// snapshots applies the first n full dumps.
func (b *bench) snapshots(n int) error {
	dir := filepath.Join(b.files, "snapshots")
	for v, text := range []string{`{"id":1,"name":"Ann"}` + "\n" + `{"id":2,"name":"Bob"}`, `{"id":1,"name":"Ann L"}` + "\n" + `{"id":3,"name":"Cid"}`, `{"id":3,"name":"Cid"}` + "\n" + `{"id":4,"name":"Di"}`}[:n] {
		name := filepath.Join(dir, fmt.Sprint(v+1), "part.jsonl")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	in, err := source.OpenSnapshots(source.SnapshotSpec{Version: "{version:INT}/part.jsonl", Spec: source.Spec{From: []string{dir}, Keys: []string{"id"}, Host: "test"}})
	if err != nil {
		return err
	}
	_, err = apply.Run(b.ctx, apply.Spec{Snapshots: in, Target: apply.Targets{Store: b.store("t"), Name: "t"}, Flow: apply.Flow{Name: "f", Keys: []string{"id"}}}, apply.Options{Clock: b.now})
	return errors.Join(err, in.Close())
}

// replay puts what the quarantine holds right and back.
func replay(b *bench) error {
	q, err := apply.OpenQuarantine(b.ctx, b.store("t/_apply/quarantine"), apply.Options{Clock: b.now})
	if err != nil {
		return err
	}
	var list []apply.Quarantined
	for x, err := range q.Records(b.ctx) {
		if err != nil {
			return err
		}
		if err := x.Repair([]byte(`{"value":` + fmt.Sprintf("%q", strings.Replace(poisoned, "?", "I", 1)) + `}`)); err != nil {
			return err
		}
		list = append(list, x)
	}
	if len(list) == 0 {
		return nil
	}
	in, err := opened(b.ctx, b.files)
	if err != nil {
		return err
	}
	r, err := q.Replay(b.ctx, list, apply.Spec{NewDecoder: in, Target: apply.Targets{Store: b.store("t"), Name: "t"},
		Flow: apply.Flow{Keys: []string{"id"}, SequenceBy: "at", ExceptColumnList: []string{"at"}, OnPoison: apply.PoisonQuarantine}})
	if err == nil && len(r.Still) > 0 {
		err = fmt.Errorf("still poison: %+v", r.Still)
	}
	return err
}

// opened is the decoder of events.
func opened(ctx context.Context, dir string) (func() event.Decoder, error) {
	file := filepath.Join(dir, "events.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(events, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	in, err := source.Open(ctx, source.Spec{Format: source.Rows, From: []string{file}, Keys: []string{"id"}, Host: "test"})
	if err != nil {
		return nil, err
	}
	return in.NewDecoder, in.Source.Close()
}
