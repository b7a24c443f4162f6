package deltafeed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// DecoderOptions of a decoder.
type DecoderOptions struct {
	// Keys are the key columns.
	Keys []string
	// Table is the name of the source table.
	Table event.Table
	// Epoch is the first element of every sequence; raise it when the source table
	// was made anew.
	Epoch int32
	// Appends: rows are what was appended. They have no column of the feed, and any
	// column may order them.
	Appends bool
}

// SeqType is the sequence of a change: (epoch, commit version).
func SeqType() *schema.Struct {
	return &schema.Struct{Fields: []schema.Field{{Name: "epoch", Type: schema.Integer}, {Name: "commit_version", Type: schema.Long}}}
}

// Decoder turns rows of a change feed into changes; it implements event.Decoder.
type Decoder struct {
	opt      DecoderOptions
	done     []*event.Batch
	rows     int
	bytes    int64
	poison   []event.Poison
	controls map[event.ControlKind]int64

	// parts are the rows of the open batch of the stream.
	parts []part
	// before are preimages that wait for their postimage: key -> where.
	before map[string]place
	after  map[string]bool
}

// part is a record's rows with what becomes of each: 0 means nothing.
type part struct {
	rec  *event.Record
	rows arrow.RecordBatch
	ops  []event.Op
}

type place struct{ part, row int }

// NewDecoder makes a decoder.
func NewDecoder(o DecoderOptions) *Decoder {
	return &Decoder{opt: o, controls: map[event.ControlKind]int64{}, before: map[string]place{}, after: map[string]bool{}}
}

// Pending implements event.Decoder.
func (d *Decoder) Pending() (int, int64) { return d.rows, d.bytes }

// Add implements event.Decoder.
func (d *Decoder) Add(_ context.Context, r *event.Record) error {
	if r.Columns == nil {
		d.poison = append(d.poison, event.Poison{Class: event.PoisonEnvelope, Code: "NOT_A_FEED", Reason: "the record is no row of a change feed", Record: r.Copy(), Table: d.opt.Table})
		return nil
	}
	if r.Columns.NumRows() == 0 {
		return d.close()
	}
	types := r.Columns.Schema().FieldIndices(cdf.ChangeTypeColumn)
	versions := r.Columns.Schema().FieldIndices(cdf.CommitVersionColumn)
	if len(types) != 1 || len(versions) != 1 {
		return fmt.Errorf("read change feed: the rows lack %s or %s", cdf.ChangeTypeColumn, cdf.CommitVersionColumn)
	}
	c := *r
	p := part{rec: &c, rows: r.Columns, ops: make([]event.Op, r.Columns.NumRows())}
	p.rows.Retain()
	kind := r.Columns.Column(types[0])
	version, ok := r.Columns.Column(versions[0]).(*array.Int64)
	if !ok {
		return fmt.Errorf("read change feed: %s is %s", cdf.CommitVersionColumn, r.Columns.Column(versions[0]).DataType())
	}
	var keys []arrow.Array
	for _, k := range d.opt.Keys {
		i := slices.IndexFunc(r.Columns.Schema().Fields(), func(f arrow.Field) bool { return strings.EqualFold(f.Name, k) })
		if i < 0 {
			return &Error{Code: "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA", Reason: fmt.Sprintf("key column %q is not in the source table", k)}
		}
		keys = append(keys, r.Columns.Column(i))
	}
	for i := range p.ops {
		if err := d.row(&p, i, kind.ValueStr(i), version.Value(i), keys); err != nil {
			return err
		}
	}
	d.parts = append(d.parts, p)
	d.rows += len(p.ops)
	d.bytes += r.Size
	return nil
}

// row decides what becomes of a row. A preimage is held back until it is known
// whether a postimage of its key is in the same version.
func (d *Decoder) row(p *part, i int, kind string, version int64, keys []arrow.Array) error {
	key := fmt.Appendf(nil, "%d/", version)
	for _, k := range keys {
		key = keycode.AppendValue(key, k, i)
	}
	switch cdf.ChangeType(kind) {
	case cdf.Insert:
		p.ops[i] = event.Insert
	case cdf.Delete:
		p.ops[i] = event.Delete
	case cdf.UpdatePost:
		p.ops[i] = event.Update
		if _, ok := d.before[string(key)]; ok {
			delete(d.before, string(key))
		} else {
			d.after[string(key)] = true
		}
	case cdf.UpdatePre:
		if d.after[string(key)] {
			delete(d.after, string(key))
		} else {
			d.before[string(key)] = place{len(d.parts), i}
		}
	default:
		return fmt.Errorf("read change feed: unknown %s %q in version %d", cdf.ChangeTypeColumn, kind, version)
	}
	return nil
}

// close ends a batch of the stream: preimages without postimage are deletes.
func (d *Decoder) close() error {
	for _, at := range d.before {
		d.parts[at.part].ops[at.row] = event.Delete
	}
	clear(d.before)
	clear(d.after)
	for _, p := range d.parts {
		b, err := d.batch(p)
		p.rows.Release()
		if err != nil {
			return err
		}
		if b != nil {
			d.done = append(d.done, b)
		}
	}
	d.parts = nil
	return nil
}

// batch makes the changes of a part; nil if it has none.
func (d *Decoder) batch(p part) (*event.Batch, error) {
	var rows []int64
	var ops []event.Op
	for i, op := range p.ops {
		if op != 0 {
			rows, ops = append(rows, int64(i)), append(ops, op)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	taken := p.rows
	if len(rows) < len(p.ops) {
		var err error
		if taken, err = datafile.Take(p.rows, rows); err != nil {
			return nil, fmt.Errorf("read change feed: %w", err)
		}
	}
	b := &event.Batch{Table: d.opt.Table, Source: p.rec.Source, Columns: &schema.Struct{}, Keys: d.opt.Keys, Ops: ops,
		Offsets: make([]int64, len(ops)), Lines: make([]int64, len(ops)), RawSize: p.rec.Size, SeqType: SeqType(), SeqOnly: !d.opt.Appends}
	all, err := schema.FromArrow(taken.Schema())
	if err != nil {
		return nil, fmt.Errorf("read change feed: %w", err)
	}
	var cols []arrow.Array
	for i, f := range all.Fields {
		if d.opt.Appends && slices.Contains([]string{cdf.ChangeTypeColumn, cdf.CommitVersionColumn, cdf.CommitTimestampColumn}, f.Name) {
			continue
		}
		f.Nullable, f.Metadata = true, nil
		b.Columns.Fields, cols = append(b.Columns.Fields, f), append(cols, taken.Column(i))
	}
	as, err := schema.ArrowSchema(b.Columns)
	if err != nil {
		return nil, fmt.Errorf("read change feed: %w", err)
	}
	b.Rows = array.NewRecordBatch(as, cols, int64(len(ops)))
	b.Unauthored, b.Unavailable = make([]event.Bits, len(cols)), make([]event.Bits, len(cols))
	for i := range ops {
		b.Offsets[i], b.Lines[i] = p.rec.End, p.rec.Line
	}
	version := taken.Column(taken.Schema().FieldIndices(cdf.CommitVersionColumn)[0])
	if b.Seq, err = d.sequence(version); err != nil {
		return nil, err
	}
	return b, nil
}

// sequence is the struct of epoch and version.
func (d *Decoder) sequence(version arrow.Array) (arrow.Array, error) {
	at, err := schema.ArrowType(SeqType())
	if err != nil {
		return nil, fmt.Errorf("read change feed: %w", err)
	}
	n := version.Len()
	eb := array.NewInt32Builder(memory.DefaultAllocator)
	for range n {
		eb.Append(d.opt.Epoch)
	}
	epoch := eb.NewArray()
	data := array.NewData(at, n, []*memory.Buffer{nil}, []arrow.ArrayData{epoch.Data(), version.Data()}, 0, 0)
	return array.NewStructData(data), nil
}

// Flush implements event.Decoder. What of a batch of the stream was read before
// its end stays for the next Flush.
func (d *Decoder) Flush() (*event.Decoded, error) {
	out := &event.Decoded{Batches: d.done, Poison: d.poison, Controls: d.controls}
	d.done, d.poison, d.controls = nil, nil, map[event.ControlKind]int64{}
	d.rows, d.bytes = 0, 0
	for _, p := range d.parts {
		d.rows, d.bytes = d.rows+len(p.ops), d.bytes+p.rec.Size
	}
	return out, nil
}

// State implements event.Decoder: positions lie between batches of the stream,
// where nothing waits.
func (d *Decoder) State() string { return "" }

// Restore implements event.Decoder.
func (d *Decoder) Restore(string) error { return nil }
