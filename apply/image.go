package apply

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// imageHead describes a departed image beside its values.
type imageHead struct {
	To    []byte       `json:"to"`   // the new key
	Live  bool         `json:"live"` // false: nothing was known of the old row
	U     []byte       `json:"u,omitempty"`
	D     []byte       `json:"d,omitempty"`
	Epoch int32        `json:"e"`
	Parts []fieldEntry `json:"f"` // version of every field that has one
}

const imageMeta = "sluice.image"

// encodeImage writes the image of a key change: an Arrow stream with one row of
// the fields that have a value, named physically, and the head as metadata.
func (s *shape) encodeImage(d *departure) ([]byte, error) {
	head := imageHead{To: []byte(d.to), Live: d.image.live, U: d.image.u, D: d.image.d, Epoch: d.image.epoch}
	var fields []arrow.Field
	var cols []arrow.Array
	for f, p := range d.image.parts {
		if p.ver != nil {
			head.Parts = append(head.Parts, fieldEntry{s.fields[f].name, p.ver})
		}
		if p.at.o == nil {
			continue
		}
		dt := s.fields[f].typ
		a, err := gather(dt, 1, func(int) cell { return cell{p.at.o.fields[f], p.at.row} })
		if err == nil && s.fields[f].inner != nil {
			dt = arrow.BinaryTypes.Binary
			a, err = packed(a, s.fields[f].inner)
		}
		if err != nil {
			return nil, fmt.Errorf("keep image of a changed key: %w", err)
		}
		fields = append(fields, arrow.Field{Name: s.fields[f].name, Type: dt, Nullable: true})
		cols = append(cols, a)
	}
	text, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("keep image of a changed key: %w", err)
	}
	md := arrow.NewMetadata([]string{imageMeta}, []string{string(text)})
	sch := arrow.NewSchema(fields, &md)
	rec := array.NewRecordBatch(sch, cols, 1)
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(sch))
	if err := w.Write(rec); err != nil {
		return nil, fmt.Errorf("keep image of a changed key: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("keep image of a changed key: %w", err)
	}
	return buf.Bytes(), nil
}

// decodeImage reads what encodeImage wrote; fields that the table no longer has
// are left out.
func (s *shape) decodeImage(payload []byte) (register, string, error) {
	fail := func(err error) (register, string, error) {
		return register{}, "", &Error{Code: CodeStateMismatch, Phase: PhaseState, Message: "read image of a changed key from the state", Err: err}
	}
	r, err := ipc.NewReader(bytes.NewReader(payload))
	if err != nil {
		return fail(err)
	}
	defer r.Release()
	text, _ := r.Schema().Metadata().GetValue(imageMeta)
	var head imageHead
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return fail(err)
	}
	if !r.Next() {
		return fail(fmt.Errorf("no row: %w", r.Err()))
	}
	rec := r.RecordBatch()
	rec.Retain()
	o := &origin{fields: make([]arrow.Array, len(s.fields)), epoch: head.Epoch}
	reg := register{live: head.Live, u: head.U, d: head.D, epoch: head.Epoch, at: ref{o, 0}, parts: make([]part, len(s.fields))}
	for f := range s.fields {
		name := s.fields[f].name
		for _, p := range head.Parts {
			if p.Name == name {
				reg.parts[f].ver = p.V
			}
		}
		if i := rec.Schema().FieldIndices(name); len(i) == 1 {
			a := rec.Column(i[0])
			if bytes, ok := a.(*array.Binary); ok && s.fields[f].inner != nil {
				o.fields[f], err = unpacked(bytes, s.fields[f])
			} else {
				o.fields[f], err = widened(a, s.fields[f].typ)
			}
			if err != nil {
				return fail(err)
			}
			reg.parts[f].at = ref{o, 0}
		}
	}
	return reg, string(head.To), nil
}

// packed are values with structs in them as the state keeps them, by name.
func packed(a arrow.Array, names *innerNames) (arrow.Array, error) {
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
	defer b.Release()
	for r := range a.Len() {
		value, err := appendCellBytes(nil, a, r, names)
		if err != nil {
			return nil, err
		}
		b.Append(value)
	}
	return b.NewArray(), nil
}

func unpacked(a *array.Binary, f field) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, f.typ)
	defer b.Release()
	for r := range a.Len() {
		if _, err := readCell(b, a.Value(r), f.inner); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// widened is an array as its column's type is now.
func widened(a arrow.Array, dt arrow.DataType) (arrow.Array, error) {
	if arrow.TypeEqual(a.DataType(), dt) {
		return a, nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	defer b.Release()
	for r := range a.Len() {
		cell, err := appendCellBytes(nil, a, r, nil)
		if err != nil {
			return nil, err
		}
		if _, err := readCell(b, cell, nil); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// storedImage aligns rows of the target with the shape: batch holds logical
// columns of the table, by name; columns that joined the shape are missing.
func (s *shape) storedImage(batch arrow.RecordBatch) (*origin, error) {
	o := &origin{fields: make([]arrow.Array, len(s.fields)), keys: make([]arrow.Array, len(s.keys))}
	column := func(i int) arrow.Array {
		at := batch.Schema().FieldIndices(s.schema.Fields[i].Name)
		if len(at) == 0 {
			return nil
		}
		return batch.Column(at[0])
	}
	for i, own := range s.ofColumn {
		if len(own) == 0 {
			continue
		}
		a := column(i)
		for _, f := range own {
			if a == nil {
				continue
			}
			var err error
			if o.fields[f], err = s.fields[f].leaf(a); err != nil {
				return nil, err
			}
		}
	}
	for k, i := range s.keys {
		if o.keys[k] = column(i); o.keys[k] == nil {
			return nil, fmt.Errorf("read rows of the target: key column %s is missing", schema.QuoteName(s.schema.Fields[i].Name))
		}
	}
	return o, nil
}
