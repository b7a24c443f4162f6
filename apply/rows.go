package apply

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// hiddenColumns is the group of row versions of a batch, taken apart.
type hiddenColumns struct {
	group *array.Struct
	v     arrow.Array
	e     *array.Int32
	d     *array.Binary
	f     *array.List
	fn    *array.String
	fv    *array.Binary
}

// hiddenOf finds the group in a batch; nil if it has none.
func hiddenOf(batch arrow.RecordBatch) (*hiddenColumns, error) {
	at := batch.Schema().FieldIndices(hiddenGroup)
	if len(at) == 0 {
		return nil, nil
	}
	g, ok := batch.Column(at[0]).(*array.Struct)
	if !ok || g.NumField() != 4 {
		return nil, fmt.Errorf("read row versions: column %s is %s", hiddenGroup, batch.Column(at[0]).DataType())
	}
	h := &hiddenColumns{group: g, v: g.Field(0)}
	var ok1, ok2, ok3 bool
	h.e, ok1 = g.Field(1).(*array.Int32)
	h.d, ok2 = g.Field(2).(*array.Binary)
	h.f, ok3 = g.Field(3).(*array.List)
	if !ok1 || !ok2 || !ok3 {
		return nil, fmt.Errorf("read row versions: column %s is %s", hiddenGroup, g.DataType())
	}
	st, ok := h.f.ListValues().(*array.Struct)
	if !ok || st.NumField() != 2 {
		return nil, fmt.Errorf("read row versions: column %s is %s", hiddenGroup, g.DataType())
	}
	h.fn, ok1 = st.Field(0).(*array.String)
	h.fv, ok2 = st.Field(1).(*array.Binary)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("read row versions: column %s is %s", hiddenGroup, g.DataType())
	}
	return h, nil
}

// values are the hidden values of one row, as they lie in the file.
func (h *hiddenColumns) values(r int) entry {
	if h == nil || h.group.IsNull(r) || h.e.IsNull(r) {
		return entry{}
	}
	e := entry{Epoch: h.e.Value(r)}
	if h.v.IsValid(r) {
		e.V = keycode.AppendValue(nil, h.v, r)
	}
	if h.d.IsValid(r) {
		e.D = bytes.Clone(h.d.Value(r))
	}
	if h.f.IsValid(r) {
		from, to := h.f.ValueOffsets(r)
		for i := int(from); i < int(to); i++ {
			fe := fieldEntry{Name: h.fn.Value(i)}
			if h.fv.IsValid(i) {
				fe.V = bytes.Clone(h.fv.Value(i))
			}
			e.Fields = append(e.Fields, fe)
		}
	}
	return e
}

// registerOf is the register of a stored row: its hidden values joined with the
// version entries that name its physical version, and with the known floor.
func (s *shape) registerOf(st *state, hidden entry, key string, at ref) register {
	r := register{live: true, u: hidden.V, d: hidden.D, epoch: hidden.Epoch, at: at}
	vers := s.versions(st, hidden)
	for _, e := range st.overrides(key) {
		if !e.all && !bytes.Equal(e.Over, hidden.V) {
			continue
		}
		if bytes.Compare(e.V, r.u) > 0 {
			r.u, r.epoch = e.V, e.Epoch
		}
		if bytes.Compare(e.D, r.d) > 0 {
			r.d = e.D
		}
		for f, v := range s.versions(st, e) {
			if bytes.Compare(v, vers[f]) > 0 {
				vers[f] = v
			}
		}
	}
	if d := st.floor(key); bytes.Compare(d, r.d) > 0 {
		r.d = d
	}
	if len(r.u) == 0 && len(hidden.V) == 0 {
		r.u = nil
	}
	for _, v := range vers {
		if !bytes.Equal(v, r.u) || len(v) == 0 {
			r.parts = make([]part, len(vers))
			for f := range vers {
				r.parts[f] = part{vers[f], at}
			}
			break
		}
	}
	return r
}

// versions spells the field versions of hidden values out.
func (s *shape) versions(st *state, e entry) [][]byte {
	out := make([][]byte, len(s.fields))
	names := st.epochs[e.Epoch]
	for f := range s.fields {
		n := s.fields[f].name
		if inEpoch(names, n) {
			out[f] = e.V
		}
		for _, fe := range e.Fields {
			if concerns(fe.Name, n) {
				out[f] = fe.V
			}
		}
	}
	return out
}

// hiddenFor is the hidden form of a register. Only fields whose version is not
// what the epoch says are listed.
func (s *shape) hiddenFor(st *state, r *register) entry {
	e := entry{V: r.u, D: r.d, Epoch: r.epoch}
	if len(e.V) == 0 {
		e.V = nil
	}
	names := st.epochs[r.epoch]
	for f := range s.fields {
		n := s.fields[f].name
		var byEpoch []byte
		if inEpoch(names, n) {
			byEpoch = e.V
		}
		if v := r.version(f); !bytes.Equal(v, byEpoch) {
			fe := fieldEntry{Name: n}
			if len(v) > 0 {
				fe.V = v
			}
			e.Fields = append(e.Fields, fe)
		}
	}
	return e
}

// sameHidden tells whether a batch changed nothing hidden of a live row.
func (f *fold) sameHidden(a, b *register) bool {
	if !bytes.Equal(a.u, b.u) || !bytes.Equal(a.d, b.d) {
		return false
	}
	if a.parts == nil && b.parts == nil {
		return true
	}
	for n := range f.fields {
		if !bytes.Equal(a.version(n), b.version(n)) {
			return false
		}
	}
	return true
}

// sameRow tells whether two live registers show equal rows (auto-cdc 2.10).
func (f *fold) sameRow(a, b *register) bool {
	for n := range f.fields {
		x, y := a.fieldAt(n), b.fieldAt(n)
		if x == y {
			continue
		}
		if f.compare(x, y, n) != 0 {
			return false
		}
	}
	return true
}

// build makes rows of the target, hidden group included, from registers.
func (s *shape) build(st *state, sch *arrow.Schema, regs []*register) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, 0, len(s.schema.Fields)+1)
	for i := range s.schema.Fields {
		a, err := s.buildColumn(i, regs)
		if err != nil {
			return nil, fmt.Errorf("build rows: column %s: %w", s.schema.Fields[i].Name, err)
		}
		cols = append(cols, a)
	}
	group, err := s.buildHidden(st, regs)
	if err != nil {
		return nil, err
	}
	return array.NewRecordBatch(sch, append(cols, group), int64(len(regs))), nil
}

// buildColumn is a key or data column of rows.
func (s *shape) buildColumn(i int, regs []*register) (arrow.Array, error) {
	if k := slices.Index(s.keys, i); k >= 0 {
		return gather(s.arrow[i], len(regs), func(r int) cell { return cell{regs[r].at.o.keys[k], regs[r].at.row} })
	}
	if f := slices.Index(s.frame, i); f >= 0 {
		return s.buildFrame(i, f, regs)
	}
	return s.column(i, len(regs), func(f, r int) cell {
		at := regs[r].fieldAt(f)
		if at.o == nil || at.o.fields[f] == nil {
			return cell{}
		}
		return cell{at.o.fields[f], at.row}
	})
}

// closedRows tells the rows that no event in order changes: those with an end, of
// either period. They lie in files of their own (apply-state 7.3).
func (s *shape) closedRows(b arrow.RecordBatch) []bool {
	out := make([]bool, b.NumRows())
	for f := 1; f < len(s.frame); f += 2 {
		at := b.Schema().FieldIndices(s.schema.Fields[s.frame[f]].Name)
		if len(at) != 1 {
			continue
		}
		end := b.Column(at[0])
		for r := range out {
			out[r] = out[r] || end.IsValid(r)
		}
	}
	return out
}

// buildFrame is framework column f of rows.
func (s *shape) buildFrame(i, f int, regs []*register) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, s.arrow[i])
	defer b.Release()
	code := s.code
	if f >= 2 {
		code = s.system
	}
	for _, r := range regs {
		at := [4][]byte{r.span.start, r.span.end, r.span.sysStart, r.span.sysEnd}[f]
		if at == nil {
			b.AppendNull()
		} else if _, err := code.Decode(at, []array.Builder{b}); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

func (s *shape) buildHidden(st *state, regs []*register) (arrow.Array, error) {
	hs, err := hiddenArrow(s)
	if err != nil {
		return nil, err
	}
	b := array.NewStructBuilder(memory.DefaultAllocator, hs)
	defer b.Release()
	e, d, f := b.FieldBuilder(1).(*array.Int32Builder), b.FieldBuilder(2).(*array.BinaryBuilder), b.FieldBuilder(3).(*array.ListBuilder)
	fb := f.ValueBuilder().(*array.StructBuilder)
	fn, fv := fb.FieldBuilder(0).(*array.StringBuilder), fb.FieldBuilder(1).(*array.BinaryBuilder)
	for _, r := range regs {
		h := s.hiddenFor(st, r)
		b.Append(true)
		if h.V == nil {
			b.FieldBuilder(0).AppendNull()
		} else if _, err := s.code.Decode(h.V, []array.Builder{b.FieldBuilder(0)}); err != nil {
			return nil, fmt.Errorf("build rows: sequence: %w", err)
		}
		e.Append(h.Epoch)
		if h.D == nil {
			d.AppendNull()
		} else {
			d.Append(h.D)
		}
		if len(h.Fields) == 0 {
			f.AppendNull()
			continue
		}
		f.Append(true)
		for _, x := range h.Fields {
			fb.Append(true)
			fn.Append(x.Name)
			if x.V == nil {
				fv.AppendNull()
			} else {
				fv.Append(x.V)
			}
		}
	}
	return b.NewArray(), nil
}

func hiddenArrow(s *shape) (*arrow.StructType, error) {
	t, err := schema.ArrowType(s.hidden().Fields[0].Type)
	if err != nil {
		return nil, err
	}
	return t.(*arrow.StructType), nil
}
