package apply

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/spill"
)

// An event batch goes to a temporary file as one record batch, so that its rows can be
// taken apart and joined like any others:
//
//	rank      number of the event in the batch
//	op        event.Op
//	offset    Batch.Offsets
//	line, rescued, seq                 where the batch has them
//	columns, old keys, new keys        of the batch
//	unauthored, unavailable            one boolean column for each bitmap that is set
//
// packing says which are there; batches of one packing can be joined.
type packing struct {
	head    *event.Batch // everything but rows
	rows    *arrow.Schema
	other   *arrow.Schema // of old and new keys
	seq     arrow.DataType
	lines   bool
	rescued bool
	old, by bool
	unauth  []int // columns with a bitmap
	unavail []int
	schema  *arrow.Schema // of the packed batch
}

// packingOf describes a batch; describing ones of a kind twice gives equal names.
func packingOf(b *event.Batch) (p *packing, name string) {
	head := *b
	head.Rows, head.Ops, head.Unauthored, head.Unavailable, head.Seq = nil, nil, nil, nil, nil
	head.Offsets, head.Lines, head.OldKeys, head.NewKeys, head.Rescued, head.RawSize = nil, nil, nil, nil, nil, 0
	p = &packing{head: &head, rows: b.Rows.Schema(), lines: b.Lines != nil, rescued: b.Rescued != nil, old: b.OldKeys != nil, by: b.NewKeys != nil}
	fields := []arrow.Field{{Name: "rank", Type: arrow.PrimitiveTypes.Int64}, {Name: "op", Type: arrow.PrimitiveTypes.Uint8},
		{Name: "offset", Type: arrow.PrimitiveTypes.Int64}}
	if p.lines {
		fields = append(fields, arrow.Field{Name: "line", Type: arrow.PrimitiveTypes.Int64})
	}
	if p.rescued {
		fields = append(fields, arrow.Field{Name: "rescued", Type: arrow.BinaryTypes.String})
	}
	if b.Seq != nil {
		p.seq = b.Seq.DataType()
		fields = append(fields, arrow.Field{Name: "seq", Type: p.seq, Nullable: true})
	}
	fields = append(fields, p.rows.Fields()...)
	for _, keys := range []arrow.RecordBatch{b.OldKeys, b.NewKeys} {
		if keys != nil {
			p.other = keys.Schema()
			fields = append(fields, p.other.Fields()...)
		}
	}
	for i, bits := range b.Unauthored {
		if bits != nil {
			p.unauth = append(p.unauth, i)
			fields = append(fields, arrow.Field{Name: "unauthored", Type: arrow.FixedWidthTypes.Boolean})
		}
	}
	for i, bits := range b.Unavailable {
		if bits != nil {
			p.unavail = append(p.unavail, i)
			fields = append(fields, arrow.Field{Name: "unavailable", Type: arrow.FixedWidthTypes.Boolean})
		}
	}
	p.schema = arrow.NewSchema(fields, nil)
	head.Unauthored, head.Unavailable = nil, nil
	return p, strings.Join([]string{describe(b.Columns, b.Keys, b.SeqType), b.Table.Database, b.Table.Schema, b.Table.Name, b.Source, b.Topic,
		fmt.Sprint(b.Keys == nil, b.SeqOnly, p.lines, p.rescued, p.old, p.by, p.unauth, p.unavail, b.Unauthored == nil, b.Unavailable == nil), p.schema.String()}, "\x00")
}

// pack is the batch in one piece; its first event has the given rank.
func (p *packing) pack(b *event.Batch, rank int64) arrow.RecordBatch {
	n := int(b.Rows.NumRows())
	var cols []arrow.Array
	int64s := func(at func(r int) int64) {
		nb := array.NewInt64Builder(memory.DefaultAllocator)
		defer nb.Release()
		nb.Reserve(n)
		for r := range n {
			nb.UnsafeAppend(at(r))
		}
		cols = append(cols, nb.NewArray())
	}
	bits := func(set event.Bits) {
		bb := array.NewBooleanBuilder(memory.DefaultAllocator)
		defer bb.Release()
		bb.Reserve(n)
		for r := range n {
			bb.UnsafeAppend(set.Get(r))
		}
		cols = append(cols, bb.NewArray())
	}
	int64s(func(r int) int64 { return rank + int64(r) })
	ob := array.NewUint8Builder(memory.DefaultAllocator)
	defer ob.Release()
	for _, op := range b.Ops {
		ob.Append(uint8(op))
	}
	cols = append(cols, ob.NewArray())
	int64s(func(r int) int64 { return b.Offsets[r] })
	if p.lines {
		int64s(func(r int) int64 { return b.Lines[r] })
	}
	if p.rescued {
		sb := array.NewStringBuilder(memory.DefaultAllocator)
		defer sb.Release()
		sb.AppendValues(b.Rescued, nil)
		cols = append(cols, sb.NewArray())
	}
	if p.seq != nil {
		cols = append(cols, b.Seq)
	}
	cols = append(cols, b.Rows.Columns()...)
	for _, keys := range []arrow.RecordBatch{b.OldKeys, b.NewKeys} {
		if keys != nil {
			cols = append(cols, keys.Columns()...)
		}
	}
	for _, i := range p.unauth {
		bits(b.Unauthored[i])
	}
	for _, i := range p.unavail {
		bits(b.Unavailable[i])
	}
	return array.NewRecordBatch(p.schema, cols, int64(n))
}

// empty is a batch of the kind without rows.
func (p *packing) empty() *event.Batch {
	b := *p.head
	cols := make([]arrow.Array, p.rows.NumFields())
	for i := range cols {
		cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, p.rows.Field(i).Type, 0)
	}
	b.Rows = array.NewRecordBatch(p.rows, cols, 0)
	if p.rescued {
		b.Rescued = []string{}
	}
	return &b
}

// unpack is the reverse of pack.
func (p *packing) unpack(r arrow.RecordBatch) (*event.Batch, []int64, error) {
	b, n, at := *p.head, int(r.NumRows()), 0
	next := func() arrow.Array { at++; return r.Column(at - 1) }
	bad := func() (*event.Batch, []int64, error) {
		return nil, nil, fmt.Errorf("read spilled events: column %d is %s", at-1, r.Column(at-1).DataType())
	}
	int64s := func() ([]int64, bool) {
		a, ok := next().(*array.Int64)
		if !ok {
			return nil, false
		}
		return a.Int64Values(), true
	}
	bits := func() (event.Bits, bool) {
		a, ok := next().(*array.Boolean)
		if !ok {
			return nil, false
		}
		out := make(event.Bits, (n+63)/64)
		for i := range n {
			if a.Value(i) {
				out[i>>6] |= 1 << (i & 63)
			}
		}
		return out, true
	}
	ranks, ok := int64s()
	if !ok {
		return bad()
	}
	ops, ok := next().(*array.Uint8)
	if !ok {
		return bad()
	}
	b.Ops = make([]event.Op, n)
	for i := range b.Ops {
		b.Ops[i] = event.Op(ops.Value(i))
	}
	if b.Offsets, ok = int64s(); !ok {
		return bad()
	}
	if p.lines {
		if b.Lines, ok = int64s(); !ok {
			return bad()
		}
	}
	if p.rescued {
		a, ok := next().(*array.String)
		if !ok {
			return bad()
		}
		b.Rescued = make([]string, n)
		for i := range b.Rescued {
			b.Rescued[i] = a.Value(i)
		}
	}
	if p.seq != nil {
		b.Seq = next()
	}
	record := func(s *arrow.Schema) arrow.RecordBatch {
		cols := make([]arrow.Array, s.NumFields())
		for i := range cols {
			cols[i] = next()
		}
		return array.NewRecordBatch(s, cols, int64(n))
	}
	b.Rows = record(p.rows)
	if p.old {
		b.OldKeys = record(p.other)
	}
	if p.by {
		b.NewKeys = record(p.other)
	}
	if len(p.unauth) > 0 {
		b.Unauthored = make([]event.Bits, len(b.Columns.Fields))
	}
	for _, i := range p.unauth {
		if b.Unauthored[i], ok = bits(); !ok {
			return bad()
		}
	}
	if len(p.unavail) > 0 {
		b.Unavailable = make([]event.Bits, len(b.Columns.Fields))
	}
	for _, i := range p.unavail {
		if b.Unavailable[i], ok = bits(); !ok {
			return bad()
		}
	}
	return &b, ranks, nil
}

// spool holds the events of a batch that is too large for memory, in the order they
// came.
type spool struct {
	file     *spill.File
	packings map[string]*packing
	pieces   []spooled
	rows     int
}

// spooled is one event batch of a spool.
type spooled struct {
	p       *packing
	at      spill.Segment
	raw     int64 // Batch.RawSize
	rescued bool  // some event has fields that could not be converted
}

func newSpool(o spill.Options) (*spool, error) {
	f, err := spill.Create(o)
	if err != nil {
		return nil, err
	}
	return &spool{file: f, packings: map[string]*packing{}}, nil
}

func (s *spool) add(b *event.Batch) error {
	p, name := packingOf(b)
	if have := s.packings[name]; have != nil {
		p = have
	} else {
		s.packings[name] = p
	}
	r := p.pack(b, int64(s.rows))
	defer r.Release()
	at, err := s.file.Append(r)
	if err != nil {
		return fmt.Errorf("set events aside: %w", err)
	}
	x := spooled{p: p, at: at, raw: b.RawSize}
	for _, text := range b.Rescued {
		x.rescued = x.rescued || text != ""
	}
	s.pieces, s.rows = append(s.pieces, x), s.rows+int(b.Rows.NumRows())
	return nil
}

func (s *spool) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}
