package delta

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// DiffOptions name two versions; the zero value of the others is the default.
type DiffOptions struct {
	From, To int64
	// NoFeed compares files even where a change feed tells the difference.
	NoFeed bool
	// MaxRows bounds the changed rows that are remembered at once, at about 50 bytes
	// each; beyond it the changes are read several times. Default: 4 million.
	MaxRows int64
}

// Diff is the difference of two versions. Its rows may be read any number of times.
type Diff struct {
	// Schema has the columns of version To, then _change_type: "insert" for a row that
	// only To has, "delete" for one that only From has. A row that From has twice and To
	// once is one delete.
	Schema *schema.Struct
	// ByFeed tells that the change feed was read, not the files.
	ByFeed bool

	t      *Table
	as     *arrow.Schema
	passes uint64
	signed func(ctx context.Context) iter.Seq2[signedRows, error]
}

// signedRows are rows of one side: plus for those of To.
type signedRows struct {
	rows arrow.RecordBatch
	// plus is for all rows unless kinds says it for each.
	plus  bool
	kinds []bool
}

func (s signedRows) sign(row int) bool {
	if s.kinds != nil {
		return s.kinds[row]
	}
	return s.plus
}

// Diff compares the rows of two versions: from the change feed between them where the
// table has one, else from the files that they do not share. From may be the newer one.
func (t *Table) Diff(ctx context.Context, o DiffOptions) (*Diff, error) {
	from, err := t.log.At(ctx, o.From)
	if err != nil {
		return nil, err
	}
	to, err := t.log.At(ctx, o.To)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(from.PhysicalPartitionColumns(), to.PhysicalPartitionColumns()) {
		return nil, &deltalog.InvalidError{ErrorCode: "DELTA_SCHEMA_CHANGED", Reason: fmt.Sprintf("versions %d and %d are partitioned by different columns: their files cannot be read as one table", o.From, o.To)}
	}
	l, err := t.Layout(to)
	if err != nil {
		return nil, err
	}
	d := &Diff{t: t, Schema: &schema.Struct{Fields: append(slices.Clone(l.Schema.Fields), schema.Field{Name: cdf.ChangeTypeColumn, Type: schema.String})}}
	if l.Schema.Index(cdf.ChangeTypeColumn) >= 0 {
		return nil, &deltalog.InvalidError{ErrorCode: "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", Reason: "the table has a column " + cdf.ChangeTypeColumn + " of its own"}
	}
	if d.as, err = schema.ArrowSchema(d.Schema); err != nil {
		return nil, err
	}
	var rows int64
	if d.signed = d.byFeed(ctx, to, o); d.signed == nil {
		if rows, err = d.byFiles(ctx, l, from, to); err != nil {
			return nil, err
		}
	}
	limit := o.MaxRows
	if limit <= 0 {
		limit = 4 << 20
	}
	d.passes = uint64(rows/limit) + 1
	return d, nil
}

// byFeed is the change feed between the versions, nil where it does not reach over them.
func (d *Diff) byFeed(ctx context.Context, to *deltalog.Snapshot, o DiffOptions) func(context.Context) iter.Seq2[signedRows, error] {
	low, high := o.From+1, o.To
	if o.NoFeed || low > high || !to.WritesChangeFeed() {
		return nil
	}
	feed, err := cdf.OpenAt(ctx, to, cdf.Options{Range: cdf.Range{FromVersion: &low, ToVersion: &high}, Zone: d.t.opts.TimeZone})
	if err != nil {
		return nil
	}
	d.ByFeed = true
	width := len(d.Schema.Fields) - 1
	return func(ctx context.Context) iter.Seq2[signedRows, error] {
		return func(yield func(signedRows, error) bool) {
			for b, err := range feed.Rows(ctx) {
				if err != nil {
					yield(signedRows{}, err)
					return
				}
				kinds, ok := b.Column(width).(*array.String)
				if !ok {
					yield(signedRows{}, fmt.Errorf("read changes: column %s is %s", cdf.ChangeTypeColumn, b.Column(width).DataType()))
					return
				}
				s := signedRows{kinds: make([]bool, b.NumRows())}
				for i := range s.kinds {
					s.kinds[i] = kinds.Value(i) == "insert" || kinds.Value(i) == "update_postimage"
				}
				s.rows = array.NewRecordBatch(arrow.NewSchema(b.Schema().Fields()[:width], nil), b.Columns()[:width], b.NumRows())
				more := yield(s, nil)
				s.rows.Release()
				if !more {
					return
				}
			}
		}
	}
}

// differing is a file of one side only, or the rows of it that the deletion vectors of
// the two sides tell apart.
type differing struct {
	file *deltalog.Add
	rows *dv.Vector // nil: all live ones
	plus bool
}

// byFiles finds the files that the versions do not share, and estimates their rows.
func (d *Diff) byFiles(ctx context.Context, l *datafile.Layout, from, to *deltalog.Snapshot) (rows int64, err error) {
	before, err := from.FileList(ctx)
	if err != nil {
		return 0, err
	}
	after, err := to.FileList(ctx)
	if err != nil {
		return 0, err
	}
	old := map[string]*deltalog.Add{}
	for _, a := range before {
		p, err := a.Decoded()
		if err != nil {
			return 0, err
		}
		old[p] = a
	}
	var parts []differing
	for _, a := range after {
		p, err := a.Decoded()
		if err != nil {
			return 0, err
		}
		b, both := old[p]
		delete(old, p)
		switch {
		case !both:
			parts = append(parts, differing{file: a, plus: true})
		case a.DeletionVector.ID() != b.DeletionVector.ID():
			back, gone, err := d.vectors(ctx, b, a)
			if err != nil {
				return 0, err
			}
			if gone != nil {
				parts = append(parts, differing{file: a, rows: gone})
			}
			if back != nil {
				parts = append(parts, differing{file: a, rows: back, plus: true})
			}
		}
	}
	for _, a := range before {
		if p, err := a.Decoded(); err == nil && old[p] != nil {
			parts = append(parts, differing{file: a})
		}
	}
	for _, p := range parts {
		switch n := datafile.ParseStats(p.file.Stats).NumRecords; {
		case p.rows != nil:
			rows += p.rows.Cardinality()
		case n >= 0:
			rows += n
		default:
			rows += p.file.Size / 16 // a guess
		}
	}
	d.signed = func(ctx context.Context) iter.Seq2[signedRows, error] {
		return func(yield func(signedRows, error) bool) {
			for _, p := range parts {
				for b, err := range datafile.Read(ctx, d.t.store, l, p.file, datafile.ReadOptions{Among: p.rows, KeepDeleted: p.rows != nil}) {
					if !yield(signedRows{rows: b.RecordBatch, plus: p.plus}, err) || err != nil {
						return
					}
				}
			}
		}
	}
	return rows, nil
}

// vectors are the rows that came back and that went between two states of a file.
func (d *Diff) vectors(ctx context.Context, before, after *deltalog.Add) (back, gone *dv.Vector, err error) {
	a, err := datafile.LoadVector(ctx, d.t.store, before.DeletionVector)
	if err != nil {
		return nil, nil, err
	}
	b, err := datafile.LoadVector(ctx, d.t.store, after.DeletionVector)
	if err != nil {
		return nil, nil, err
	}
	minus := func(v, w *dv.Vector) *dv.Vector {
		if v == nil {
			return nil
		}
		if v = v.Minus(w); v.Cardinality() == 0 {
			return nil
		}
		return v
	}
	return minus(a, b), minus(b, a), nil
}

// rowHash tells rows apart by 128 bits.
type rowHash [2]uint64

// Rows yields the rows that differ, in no order.
func (d *Diff) Rows(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		h := &rowHasher{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
		for pass := range d.passes {
			net := map[rowHash]int64{}
			for s, err := range d.signed(ctx) {
				if err != nil {
					yield(nil, err)
					return
				}
				for r := range int(s.rows.NumRows()) {
					k := h.of(s.rows, r)
					if k[0]%d.passes != pass {
						continue
					}
					n := net[k] - 1
					if s.sign(r) {
						n += 2
					}
					if n == 0 {
						delete(net, k)
					} else {
						net[k] = n
					}
				}
			}
			if len(net) > 0 && !d.emit(ctx, h, net, yield) {
				return
			}
		}
	}
}

// emit reads the changes again and yields the rows whose count is not even; false when
// the consumer is done or an error was yielded.
func (d *Diff) emit(ctx context.Context, h *rowHasher, net map[rowHash]int64, yield func(arrow.RecordBatch, error) bool) bool {
	for s, err := range d.signed(ctx) {
		if err != nil {
			yield(nil, err)
			return false
		}
		var take []int64
		var plus []bool
		for r := range int(s.rows.NumRows()) {
			k := h.of(s.rows, r)
			n, up := net[k], s.sign(r)
			switch {
			case n > 0 && up:
				net[k] = n - 1
			case n < 0 && !up:
				net[k] = n + 1
			default:
				continue
			}
			take, plus = append(take, int64(r)), append(plus, up)
		}
		if len(take) == 0 {
			continue
		}
		b, err := d.batch(s.rows, take, plus)
		if err != nil {
			yield(nil, err)
			return false
		}
		more := yield(b, nil)
		b.Release()
		if !more {
			return false
		}
	}
	return true
}

func (d *Diff) batch(rows arrow.RecordBatch, take []int64, plus []bool) (arrow.RecordBatch, error) {
	part, err := datafile.Take(rows, take)
	if err != nil {
		return nil, err
	}
	defer part.Release()
	kb := array.NewStringBuilder(memory.DefaultAllocator)
	defer kb.Release()
	for _, up := range plus {
		if up {
			kb.Append("insert")
		} else {
			kb.Append("delete")
		}
	}
	kinds := kb.NewArray()
	defer kinds.Release()
	cols := slices.Clone(part.Columns())
	for i, c := range cols {
		cols[i] = datafile.Rename(c, d.as.Field(i).Type)
		defer cols[i].Release()
	}
	return array.NewRecordBatch(d.as, append(cols, kinds), part.NumRows()), nil
}

// rowHasher hashes rows by value.
type rowHasher struct {
	seeds [2]maphash.Seed
	buf   []byte
}

func (h *rowHasher) of(b arrow.RecordBatch, row int) rowHash {
	h.buf = h.buf[:0]
	for _, c := range b.Columns() {
		h.buf = appendRowValue(h.buf, c, row)
	}
	return rowHash{maphash.Bytes(h.seeds[0], h.buf), maphash.Bytes(h.seeds[1], h.buf)}
}

// appendRowValue appends bytes that are equal for equal values only, of any type; the
// entries of a map count in any order.
func appendRowValue(dst []byte, a arrow.Array, i int) []byte {
	if a.IsNull(i) {
		return append(dst, 0)
	}
	switch a := a.(type) {
	case *array.Null:
		return append(dst, 0)
	case *array.Struct:
		dst = append(dst, 1)
		for f := range a.NumField() {
			dst = appendRowValue(dst, a.Field(f), i)
		}
		return dst
	case *array.Map:
		from, to := a.ValueOffsets(i)
		entries := make([]string, 0, to-from)
		for e := from; e < to; e++ {
			entries = append(entries, string(appendRowValue(appendRowValue(nil, a.Keys(), int(e)), a.Items(), int(e))))
		}
		slices.Sort(entries)
		dst = binary.AppendUvarint(append(dst, 1), uint64(len(entries)))
		return append(dst, strings.Join(entries, "")...)
	case *array.List:
		from, to := a.ValueOffsets(i)
		dst = binary.AppendUvarint(append(dst, 1), uint64(to-from))
		for e := from; e < to; e++ {
			dst = appendRowValue(dst, a.ListValues(), int(e))
		}
		return dst
	}
	return keycode.AppendValue(append(dst, 1), a, i)
}
