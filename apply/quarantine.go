package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// judgePoison refuses the batch or puts its poison aside, each record once.
func (a *attempt) judgePoison(ctx context.Context) error {
	if a.hi < a.in.rows() {
		return nil // with the last part of a halved batch
	}
	a.poison = nil
	for _, p := range slices.Concat(a.in.poison, a.in.aside) {
		if !a.t.consumed(p.Record.Source, p.Record.End) {
			a.poison = append(a.poison, p)
		}
	}
	if len(a.poison) == 0 {
		return nil
	}
	if a.t.run.flow.OnPoison != PoisonQuarantine {
		return poisonError(a.poison[0])
	}
	if a.in.quarantined || a.t.run.flow.DryRun {
		return nil
	}
	store := storage.Sub(a.t.store, "_apply/quarantine")
	if q := a.t.run.flow.Quarantine; q != nil {
		var err error
		if store, err = q(a.t.name()); err != nil {
			return err
		}
	}
	if _, err := quarantine(ctx, store, a.t.run, a.t.flow, a.t.state.target.Generation, a.poison); err != nil {
		return err
	}
	a.in.quarantined = true
	return nil
}

func poisonError(p event.Poison) *Error {
	code := CodePoison
	if p.Code == "KEY_NULL" || p.Code == "KEY_ABSENT" {
		code = CodeNullKey // the name that auto-cdc 1.6 has for it
	}
	e := running(code, "record at line %d of %s cannot be applied: %s (%s): %s; set it aside with --on-poison quarantine",
		p.Record.Line, p.Record.Source, p.Code, p.Class, p.Reason)
	return e
}

// rootQuarantine is the directory below the root of several targets for records
// whose table is not known (cdc-formats 25).
const rootQuarantine = "_quarantine"

// rootPoison handles poison of a stream of several tables of which the table is not
// known; it counts once, however often the stream is read.
func (r *run) rootPoison(ctx context.Context, p event.Poison) error {
	if r.flow.OnPoison != PoisonQuarantine {
		return poisonError(p)
	}
	if r.flow.DryRun {
		return nil
	}
	store := storage.Sub(r.spec.Target.Root, rootQuarantine)
	if q := r.flow.Quarantine; q != nil {
		var err error
		if store, err = q(rootQuarantine); err != nil {
			return err
		}
	}
	n, err := quarantine(ctx, store, r, r.name, 0, []event.Poison{p})
	if n > 0 {
		x := Events{Read: 1, Poison: 1}
		if p.Delete {
			x.PoisonDeletes = 1
		}
		r.unplaced.add(x)
	}
	return err
}

func quarantineSchema() *schema.Struct {
	f := func(name string, t schema.Type) schema.Field {
		return schema.Field{Name: name, Type: t, Nullable: true}
	}
	return &schema.Struct{Fields: []schema.Field{
		f("id", schema.String), f("flow", schema.String), f("source", schema.String), f("topic", schema.String), f("kafka_partition", schema.Integer),
		f("transport", schema.Long), f("position", schema.Long), f("line", schema.Long), f("source_table", schema.String),
		f("class", schema.String), f("code", schema.String), f("reason", schema.String), f("is_delete", schema.Boolean),
		f("key", schema.Binary), f("value", schema.Binary), f("headers", schema.String), f("raw", schema.Binary),
		f("quarantined_at", schema.Timestamp),
	}}
}

// quarantine appends records to the quarantine table and answers how many it did
// not have. Each source's progress is noted by a txn in the same commit, so a batch
// that is read again adds nothing; after a full refresh (generation) it does.
func quarantine(ctx context.Context, store storage.Store, r *run, flow string, generation int, list []event.Poison) (int, error) {
	t, err := delta.Create(ctx, store, delta.CreateOptions{Schema: quarantineSchema(), IfNotExists: true,
		Description: "records that could not be applied"}, delta.Options{Clock: r.o.Clock, NewID: r.o.NewID, Logger: r.o.Logger, EngineInfo: r.o.EngineInfo})
	if err != nil {
		return 0, fmt.Errorf("open quarantine: %w", err)
	}
	for range maxTries {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return 0, fmt.Errorf("read quarantine: %w", err)
		}
		var fresh []event.Poison
		marks := map[string]int64{}
		for _, p := range list {
			app := "sluice-quarantine/" + flow + "/" + p.Record.Source
			if generation > 0 {
				app += fmt.Sprintf("#%d", generation)
			}
			if p.Record.Source != "" {
				if done, ok := snap.TxnVersion(app); ok && p.Record.End <= done {
					continue
				}
				marks[app] = max(marks[app], p.Record.End)
			}
			fresh = append(fresh, p)
		}
		if len(fresh) == 0 {
			return 0, nil
		}
		layout, err := t.Layout(snap)
		if err != nil {
			return 0, err
		}
		batch, err := quarantineBatch(fresh, flow, r.o.Clock().UnixMicro())
		if err != nil {
			return 0, err
		}
		w, err := datafile.NewWriter(store, layout, datafile.WriterOptions{NewID: r.o.NewID, Clock: r.o.Clock})
		if err != nil {
			return 0, err
		}
		if err := w.Write(ctx, batch); err != nil {
			return 0, errors.Join(fmt.Errorf("write quarantine: %w", err), w.Abort(ctx))
		}
		written, err := w.Close(ctx)
		if err != nil {
			return 0, fmt.Errorf("write quarantine: %w", err)
		}
		tx := t.Log().Begin(snap)
		for _, f := range written {
			tx.Add(f.Add(true))
		}
		for app, v := range marks {
			tx.SetTxn(app, v)
		}
		_, err = tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE", Parameters: map[string]string{"mode": "Append", "partitionBy": "[]"}})
		if errors.Is(err, deltalog.ErrConflict) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("commit quarantine: %w", err)
		}
		return len(fresh), nil
	}
	return 0, running(CodeConflict, "the quarantine could not be committed")
}

func quarantineBatch(list []event.Poison, flow string, now int64) (arrow.RecordBatch, error) {
	sch, err := schema.ArrowSchema(quarantineSchema())
	if err != nil {
		return nil, err
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
	defer rb.Release()
	text := func(i int, v string) { rb.Field(i).(*array.StringBuilder).Append(v) }
	long := func(i int, v int64) { rb.Field(i).(*array.Int64Builder).Append(v) }
	raw := func(i int, v []byte) {
		if v == nil {
			rb.Field(i).AppendNull()
		} else {
			rb.Field(i).(*array.BinaryBuilder).Append(v)
		}
	}
	for _, p := range list {
		text(0, recordID(&p.Record))
		text(1, flow)
		text(2, p.Record.Source)
		text(3, p.Record.Topic)
		rb.Field(4).(*array.Int32Builder).Append(p.Record.Partition)
		long(5, p.Record.Transport)
		long(6, p.Record.End)
		long(7, p.Record.Line)
		text(8, tableText(p.Table))
		text(9, string(p.Class))
		text(10, p.Code)
		text(11, p.Reason)
		rb.Field(12).(*array.BooleanBuilder).Append(p.Delete)
		raw(13, p.Record.Key)
		raw(14, p.Record.Value)
		if len(p.Record.Headers) == 0 {
			rb.Field(15).AppendNull()
		} else {
			h, err := json.Marshal(p.Record.Headers)
			if err != nil {
				return nil, fmt.Errorf("write quarantine: %w", err)
			}
			text(15, string(h))
		}
		raw(16, p.Record.Raw)
		rb.Field(17).(*array.TimestampBuilder).Append(arrow.Timestamp(now))
	}
	return rb.NewRecordBatch(), nil
}
