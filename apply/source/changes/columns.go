package changes

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// fileReader is a format whose rows in files are laid out differently from its
// messages.
type fileReader interface {
	// readRow reads one row of a file. Columns without names are called _c0, _c1 ...
	readRow(d *Decoder, r *event.Record, row []wire.Field) error
}

// addColumns reads the rows of a CSV, Parquet or Avro file as if each were a
// message with the columns as its members; typed columns keep their types.
func (d *Decoder) addColumns(r *event.Record) error {
	rows := r.Columns
	plan, err := columnTypes(rows)
	if err != nil {
		return err
	}
	size := r.Size
	if size == 0 {
		size = int64(len(r.Raw))
	}
	one := *r
	one.Columns, one.Key, one.Headers = nil, nil, nil
	one.Size = size / max(rows.NumRows(), 1)
	fields := make([]wire.Field, rows.NumCols())
	for i := range int(rows.NumRows()) {
		d.changes, d.fields, d.isDelete, d.lastID = d.changes[:0], d.fields[:0], false, event.Table{}
		one.Transport, one.Line = r.Transport+int64(i), r.Line+int64(i)
		for c := range fields {
			fields[c] = wire.Field{Key: wire.Token{Kind: wire.String, Raw: plan.names[c]}, Val: tokenAt(rows.Column(c), i, plan.hex[c])}
		}
		if f, ok := d.format.(fileReader); ok {
			err = f.readRow(d, &one, fields)
		} else {
			d.key = d.key[:0]
			err = d.format.read(d, &one, fields)
		}
		for k := range d.changes {
			if err != nil {
				break
			}
			c := &d.changes[k]
			if c.node == nil && plan.typed != nil {
				c.node, c.typed = plan.node, plan.typed
			}
			err = d.put(&one, c)
		}
		var p *wire.PoisonError
		if errors.As(err, &p) {
			bad := one
			bad.Raw = joined(fields)
			bad.Value = bad.Raw
			d.quarantine(&bad, p)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// columnPlan is what the columns of a file say of their types.
type columnPlan struct {
	names [][]byte
	hex   []bool
	types map[string]schema.Type
	typed []byte // nil where all is text
}

func columnTypes(rows arrow.RecordBatch) (*columnPlan, error) {
	p := &columnPlan{types: map[string]schema.Type{}}
	s, err := schema.FromArrow(rows.Schema())
	if err != nil {
		return nil, err
	}
	text := true
	var print []byte
	for _, f := range s.Fields {
		p.names = append(p.names, []byte(f.Name))
		// Log sequence numbers of SQL Server are compared as hex.
		p.hex = append(p.hex, strings.HasPrefix(f.Name, "__$"))
		p.types[f.Name] = f.Type
		text = text && f.Type == schema.String
		print = append(append(append(append(print, f.Name...), ':'), f.Type.String()...), ';')
	}
	if !text {
		p.typed = print
	}
	return p, nil
}

func (p *columnPlan) node(name string) *wire.Node {
	if t := p.types[name]; t != nil {
		return wire.NewNode(t, wire.Modes{Decimal: wire.DecimalText, Lenient: true})
	}
	return nil
}

// textToken is a string token of any text.
func textToken(s string) wire.Token {
	if strings.ContainsAny(s, "\"\\") || strings.IndexFunc(s, func(r rune) bool { return r < 0x20 }) >= 0 {
		return quoted(s)
	}
	return wire.Token{Kind: wire.String, Raw: []byte(s)}
}

// tokenAt is the value of row i as JSON would have it.
func tokenAt(col arrow.Array, i int, asHex bool) wire.Token {
	if col.IsNull(i) {
		return wire.Token{Kind: wire.Null, Raw: []byte("null")}
	}
	num := func(v int64) wire.Token { return wire.Token{Kind: wire.Number, Raw: strconv.AppendInt(nil, v, 10)} }
	float := func(f float64, bits int) wire.Token {
		switch {
		case math.IsNaN(f):
			return textToken("NaN")
		case math.IsInf(f, 1):
			return textToken("Infinity")
		case math.IsInf(f, -1):
			return textToken("-Infinity")
		}
		return wire.Token{Kind: wire.Number, Raw: strconv.AppendFloat(nil, f, 'g', -1, bits)}
	}
	switch col := col.(type) {
	case *array.String:
		return textToken(col.Value(i))
	case *array.Int64:
		return num(col.Value(i))
	case *array.Int32:
		return num(int64(col.Value(i)))
	case *array.Int16:
		return num(int64(col.Value(i)))
	case *array.Int8:
		return num(int64(col.Value(i)))
	case *array.Float64:
		return float(col.Value(i), 64)
	case *array.Float32:
		return float(float64(col.Value(i)), 32)
	case *array.Boolean:
		if col.Value(i) {
			return wire.Token{Kind: wire.True, Raw: []byte("true")}
		}
		return wire.Token{Kind: wire.False, Raw: []byte("false")}
	case *array.Binary:
		if asHex {
			return textToken("0x" + strings.ToUpper(hex.EncodeToString(col.Value(i))))
		}
		return textToken(base64.StdEncoding.EncodeToString(col.Value(i)))
	case *array.Date32:
		return textToken(time.Unix(int64(col.Value(i))*86400, 0).UTC().Format(time.DateOnly))
	case *array.Timestamp:
		layout := "2006-01-02T15:04:05.999999"
		if typ, ok := col.DataType().(*arrow.TimestampType); ok && typ.TimeZone != "" {
			layout += "Z"
		}
		return textToken(time.UnixMicro(int64(col.Value(i))).UTC().Format(layout))
	case *array.Decimal128:
		return wire.Token{Kind: wire.Number, Raw: []byte(col.ValueStr(i))}
	}
	js, err := json.Marshal(col.GetOneForMarshal(i))
	if err != nil {
		return textToken(col.ValueStr(i))
	}
	tok, _, err := wire.Value(bytes.TrimSpace(js), 0)
	if err != nil {
		return textToken(col.ValueStr(i))
	}
	return tok
}
