package apply

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/spill"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// outcomes are what the lots of a batch decided, in a temporary file. Each lot adds one
// sorted run of each kind; they are merged when they are written, so that rows and
// facts come in the order in which one decision would have them.
type outcomes struct {
	file    *spill.File
	schema  *arrow.Schema         // of rows, as they are staged
	edits   map[string]*fileEdits // by path
	inserts [][]spill.Segment     // by rank
	facts   [][]spill.Segment     // by key
	void    map[string]bool       // facts that are not needed any more
	fold    *fold                 // what was counted
	// decision has the numbers of changed rows and the new truncate, and no rows.
	decision *decision
	open     []*afterRows
}

// fileEdits are the rows of one file that go or change.
type fileEdits struct {
	file            *deltalog.Add
	deletes, update []int64
	after           [][]spill.Segment // by number of the row in the file
}

// runRows are the rows of a piece of a run: what each run has in memory while runs are
// merged.
const runRows = 1024

func newOutcomes(a *attempt) (*outcomes, error) {
	full := &schema.Struct{Fields: append(append([]schema.Field(nil), a.shape.schema.Fields...), a.shape.hidden().Fields...)}
	sch, err := schema.ArrowSchema(full)
	if err != nil {
		return nil, err
	}
	f, err := spill.Create(a.t.run.budget.spill())
	if err != nil {
		return nil, err
	}
	return &outcomes{file: f, schema: sch, edits: map[string]*fileEdits{}, void: map[string]bool{},
		fold: &fold{judged: map[string]ExpectationCount{}}, decision: &decision{}}, nil
}

// close ends the file; the receiver may be nil.
func (o *outcomes) close() error {
	if o == nil || o.file == nil {
		return nil
	}
	f := o.file
	o.file = nil
	return f.Close()
}

// keep adds what the attempt has decided of a lot.
func (o *outcomes) keep(a *attempt) error {
	d, st := a.decision, a.t.state
	o.fold.sum(a.fold)
	o.decision.rows.add(d.rows)
	if d.truncate != nil {
		o.decision.truncate = d.truncate
	}
	for g := range d.files {
		fc, grp := &d.files[g], &a.groups[g]
		if len(fc.deletes)+len(fc.updates) == 0 {
			continue
		}
		e := o.edits[grp.File.Path]
		if e == nil {
			e = &fileEdits{file: grp.File}
			o.edits[grp.File.Path] = e
		}
		for _, r := range fc.deletes {
			e.deletes = append(e.deletes, grp.Rows[r])
		}
		rows := make([]int64, len(fc.updates))
		for i, r := range fc.updates {
			rows[i] = grp.Rows[r]
		}
		e.update = append(e.update, rows...)
		run, err := o.rows(a, rows, fc.after)
		if err != nil {
			return err
		}
		e.after = append(e.after, run)
	}
	run, err := o.rows(a, d.ranks, d.inserts)
	if err != nil {
		return err
	}
	o.inserts = append(o.inserts, run)
	st.voids(d.folded, d.hidden, o.void)
	return o.addFacts(d.facts)
}

// rows writes rows with the numbers that order them.
func (o *outcomes) rows(a *attempt, numbers []int64, regs []*register) (run []spill.Segment, err error) {
	fields := append([]arrow.Field{{Name: "number", Type: arrow.PrimitiveTypes.Int64}}, o.schema.Fields()...)
	sch := arrow.NewSchema(fields, nil)
	for from := 0; from < len(regs); from += runRows {
		to := min(from+runRows, len(regs))
		b, err := a.shape.build(a.t.state, o.schema, regs[from:to])
		if err != nil {
			return nil, err
		}
		nb := array.NewInt64Builder(memory.DefaultAllocator)
		nb.AppendValues(numbers[from:to], nil)
		numbered := array.NewRecordBatch(sch, append([]arrow.Array{nb.NewArray()}, b.Columns()...), b.NumRows())
		at, err := o.file.Append(numbered)
		numbered.Release()
		if err != nil {
			return nil, err
		}
		run = append(run, at)
	}
	return run, nil
}

func (o *outcomes) addFacts(facts []stateRow) error {
	if len(facts) == 0 {
		return nil
	}
	rb, err := newStateBuilder()
	if err != nil {
		return err
	}
	defer rb.release()
	var run []spill.Segment
	for some := range slices.Chunk(sortedFacts(facts), runRows) {
		for _, f := range some {
			rb.add(f)
		}
		b := rb.take()
		at, err := o.file.Append(b)
		b.Release()
		if err != nil {
			return err
		}
		run = append(run, at)
	}
	o.facts = append(o.facts, run)
	return nil
}

// stateFacts are the facts of all lots and more, sorted by key.
func (o *outcomes) stateFacts(more []stateRow) iter.Seq2[stateRow, error] {
	return func(yield func(stateRow, error) bool) {
		h := &factHeap{}
		for i, run := range o.facts {
			h.add(&factRun{number: i, more: func() ([]stateRow, error) {
				if len(run) == 0 {
					return nil, nil
				}
				b, err := o.file.Read(run[0])
				if err != nil {
					return nil, err
				}
				defer b.Release()
				run = run[1:]
				var rows []stateRow
				err = eachRowOf(b, func(r stateRow) error { rows = append(rows, r); return nil })
				return rows, err
			}})
		}
		h.add(&factRun{number: len(o.facts), rows: sortedFacts(more)})
		for h.err == nil && len(h.runs) > 0 {
			r := h.runs[0]
			if !yield(r.rows[0], nil) {
				return
			}
			r.rows = r.rows[1:]
			h.fill(r)
			if len(r.rows) == 0 {
				heap.Pop(h)
			} else {
				heap.Fix(h, 0)
			}
		}
		if h.err != nil {
			yield(stateRow{}, h.err)
		}
	}
}

// factRun is a sorted run of facts, a piece of it in memory.
type factRun struct {
	number int
	rows   []stateRow
	more   func() ([]stateRow, error) // nil: that is all
}

type factHeap struct {
	runs []*factRun
	err  error
}

func (h *factHeap) Len() int      { return len(h.runs) }
func (h *factHeap) Swap(i, j int) { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }
func (h *factHeap) Push(x any)    { h.runs = append(h.runs, x.(*factRun)) }
func (h *factHeap) Pop() any {
	last := h.runs[len(h.runs)-1]
	h.runs = h.runs[:len(h.runs)-1]
	return last
}

func (h *factHeap) Less(i, j int) bool {
	a, b := h.runs[i], h.runs[j]
	if c := bytes.Compare(a.rows[0].Key, b.rows[0].Key); c != 0 {
		return c < 0
	}
	return a.number < b.number
}

func (h *factHeap) fill(r *factRun) {
	if len(r.rows) == 0 && r.more != nil && h.err == nil {
		r.rows, h.err = r.more()
	}
}

func (h *factHeap) add(r *factRun) {
	if h.fill(r); len(r.rows) > 0 {
		heap.Push(h, r)
	}
}

// stage are the edits of all lots. After the rows were staged, done ends the readers.
func (o *outcomes) stage(files []*deltalog.Add) (e delta.Edits, done func()) {
	for _, f := range files {
		x := o.edits[f.Path]
		if x == nil {
			continue
		}
		slices.Sort(x.deletes)
		slices.Sort(x.update)
		fe := delta.FileEdit{File: x.file, Delete: x.deletes, Update: x.update}
		if len(x.update) > 0 {
			r := &afterRows{o: o, runs: x.after}
			o.open = append(o.open, r)
			fe.Rewrite = func(before arrow.RecordBatch) (arrow.RecordBatch, error) { return r.take(before.NumRows()) }
		}
		e.Files = append(e.Files, fe)
	}
	if o.decision.rows.Inserted > 0 {
		e.Inserts = func(yield func(arrow.RecordBatch, error) bool) {
			for b, err := range o.file.Merge(o.inserts, 0) {
				if err == nil {
					b = o.plain(b)
				}
				if !yield(b, err) {
					return
				}
			}
		}
	}
	return e, func() {
		for _, r := range o.open {
			r.close()
		}
		o.open = nil
	}
}

// plain is a batch without its numbers.
func (o *outcomes) plain(b arrow.RecordBatch) arrow.RecordBatch {
	return array.NewRecordBatch(o.schema, b.Columns()[1:], b.NumRows())
}

// afterRows hands out the new rows of a file in the order of its rows.
type afterRows struct {
	o    *outcomes
	runs [][]spill.Segment
	next func() (arrow.RecordBatch, error, bool)
	stop func()
	left arrow.RecordBatch
}

func (r *afterRows) take(n int64) (arrow.RecordBatch, error) {
	if r.next == nil {
		r.next, r.stop = iter.Pull2(r.o.file.Merge(r.runs, 0))
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	for n > 0 {
		if r.left == nil {
			b, err, ok := r.next()
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, errors.New("rewrite rows: a temporary file has fewer rows than were put into it")
			}
			r.left = r.o.plain(b)
		}
		k := min(n, r.left.NumRows())
		parts = append(parts, r.left.NewSlice(0, k))
		rest := r.left.NewSlice(k, r.left.NumRows())
		r.left.Release()
		if r.left = rest; rest.NumRows() == 0 {
			rest.Release()
			r.left = nil
		}
		n -= k
	}
	b, err := datafile.Concat(r.o.schema, parts)
	if err != nil {
		return nil, fmt.Errorf("rewrite rows: %w", err)
	}
	return b, nil
}

func (r *afterRows) close() {
	if r.stop != nil {
		r.stop()
	}
	if r.left != nil {
		r.left.Release()
		r.left = nil
	}
}

func (r *Rows) add(o Rows) {
	r.Inserted += o.Inserted
	r.Updated += o.Updated
	r.Deleted += o.Deleted
}
