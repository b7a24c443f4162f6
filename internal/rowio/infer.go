package rowio

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/log/schema"
)

// Open is [ReadPath] for input that brings its own columns. Parquet and Arrow files say
// what they are. Columns of text forms have the type of the column of that name in
// o.Schema, which may be nil, else one that holds all of their values: BOOLEAN, BIGINT,
// DOUBLE, STRING, and structs and lists of them; a column of nulls is a STRING. Text is
// held in memory.
func Open(ctx context.Context, path string, form Form, stdin io.Reader, o ReadOptions) (*schema.Struct, iter.Seq2[arrow.RecordBatch, error], error) {
	if o.File == "" {
		if o.File = path; path == "-" {
			o.File = "standard input"
		}
	}
	if form == "" {
		var ok bool
		if form, ok = InputForm(path); !ok {
			return nil, nil, &Error{ErrorCode: CodeUnknownForm, File: path, Reason: "the name does not tell the form: expected .jsonl, .csv, .parquet or .arrow"}
		}
	}
	data, err := load(path, form, stdin)
	if err != nil {
		return nil, nil, err
	}
	var s *schema.Struct
	switch form {
	case Parquet:
		pf, err := openParquet(bytes.NewReader(data))
		if err != nil {
			return nil, nil, parquetError(err, o.File)
		}
		s = nullable(pf.Schema())
	case Arrow:
		s, err = arrowSchema(data)
	case CSV:
		s, err = csvSchema(data, o.Schema)
	default:
		s, err = jsonSchema(data, o.Schema)
	}
	var e *Error
	if errors.As(err, &e) {
		e.File = o.File
	}
	if err != nil {
		return nil, nil, err
	}
	o.Schema = s
	return s, Read(ctx, bytes.NewReader(data), form, o), nil
}

// load reads and decompresses the whole input.
func load(path string, form Form, stdin io.Reader) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open input: %w", err)
		}
		defer f.Close()
		r = f
	}
	switch {
	case strings.HasSuffix(path, ".gz"):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, &Error{ErrorCode: unreadable(form), File: path, Reason: err.Error()}
		}
		r = &unpacked{z, form}
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewReader(r)
		if err != nil {
			return nil, &Error{ErrorCode: unreadable(form), File: path, Reason: err.Error()}
		}
		defer z.Close()
		r = &unpacked{z, form}
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func arrowSchema(data []byte) (*schema.Struct, error) {
	bad := func(err error) error { return &Error{ErrorCode: CodeInvalidArrow, Reason: err.Error()} }
	from, err := guard(func() (*arrow.Schema, error) {
		if bytes.HasPrefix(data, arrowMagic) {
			f, err := ipc.NewFileReader(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return f.Schema(), nil
		}
		s, err := ipc.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		defer s.Release()
		return s.Schema(), nil
	})
	if err != nil {
		return nil, bad(err)
	}
	s, err := schema.FromArrow(from)
	if err != nil {
		return nil, bad(err)
	}
	return nullable(s), nil
}

// widen is a type for the values of both; ok is false if there is none but text.
func widen(a, b schema.Type) (schema.Type, bool) {
	switch {
	case a == schema.Void, a == b:
		return b, true
	case b == schema.Void:
		return a, true
	case a == schema.Long && b == schema.Double, a == schema.Double && b == schema.Long:
		return schema.Double, true
	}
	switch x := a.(type) {
	case *schema.Array:
		if y, ok := b.(*schema.Array); ok {
			elem, ok := widen(x.Elem, y.Elem)
			return &schema.Array{Elem: elem, ContainsNull: true}, ok
		}
	case *schema.Struct:
		if y, ok := b.(*schema.Struct); ok {
			out := &schema.Struct{Fields: append([]schema.Field(nil), x.Fields...)}
			return out, merged(out, y) == ""
		}
	}
	return nil, false
}

// merged puts the fields of b into a; the answer is the first field of two kinds.
func merged(a, b *schema.Struct) string {
	for _, f := range b.Fields {
		i := a.Index(f.Name)
		if i < 0 {
			a.Fields = append(a.Fields, f)
			continue
		}
		t, ok := widen(a.Fields[i].Type, f.Type)
		if !ok {
			return f.Name
		}
		a.Fields[i].Type = t
	}
	return ""
}

// settled replaces what stayed unknown by STRING.
func settled(t schema.Type) schema.Type {
	switch t := t.(type) {
	case *schema.Array:
		return &schema.Array{Elem: settled(t.Elem), ContainsNull: true}
	case *schema.Struct:
		out := &schema.Struct{}
		for _, f := range t.Fields {
			f.Type = settled(f.Type)
			out.Fields = append(out.Fields, f)
		}
		return out
	}
	if t == schema.Void {
		return schema.String
	}
	return t
}

// jsonSchema looks at every line.
func jsonSchema(data []byte, known *schema.Struct) (*schema.Struct, error) {
	out := &schema.Struct{}
	r := bufio.NewReaderSize(bytes.NewReader(data), 64<<10)
	var long []byte
	for n := int64(1); ; n++ {
		line, err := readLine(r, &long)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		bad := func(column, reason string) error {
			return &Error{ErrorCode: CodeInvalidJSON, Line: n, Column: column, Reason: reason}
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		t, err := jsonType(dec, known, 0)
		if err != nil {
			return nil, bad("", err.Error())
		}
		row, ok := t.(*schema.Struct)
		if !ok {
			return nil, bad("", "a row is a JSON object")
		}
		if name := merged(out, row); name != "" {
			return nil, bad(name, "values of different kinds in one column; say its type with a schema")
		}
	}
	return settled(out).(*schema.Struct), nil
}

// jsonType is the type of the next value. Fields that known has keep its types, and
// have their values read past.
func jsonType(dec *json.Decoder, known *schema.Struct, depth int) (schema.Type, error) {
	const deepest = 64
	if depth > deepest {
		return nil, errors.New("nested too deeply")
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := tok.(type) {
	case nil:
		return schema.Void, nil
	case bool:
		return schema.Boolean, nil
	case string:
		return schema.String, nil
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return schema.Long, nil
		}
		if !strings.ContainsAny(v.String(), ".eE") {
			return nil, fmt.Errorf("%s needs more than 64 bits; say its type with a schema", v)
		}
		return schema.Double, nil
	case json.Delim:
		if v == '[' {
			elem := schema.Type(schema.Void)
			for dec.More() {
				t, err := jsonType(dec, nil, depth+1)
				if err != nil {
					return nil, err
				}
				var ok bool
				if elem, ok = widen(elem, t); !ok {
					return nil, errors.New("values of different kinds in one list")
				}
			}
			_, err := dec.Token()
			return &schema.Array{Elem: elem, ContainsNull: true}, err
		}
		out := &schema.Struct{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			f := schema.Field{Name: name, Nullable: true}
			var inner *schema.Struct
			if known != nil {
				if i := known.Index(name); i >= 0 {
					f.Type = known.Fields[i].Type
					inner, _ = f.Type.(*schema.Struct)
				}
			}
			if f.Type != nil && inner == nil {
				var skip json.RawMessage
				if err := dec.Decode(&skip); err != nil {
					return nil, err
				}
			} else {
				t, err := jsonType(dec, inner, depth+1)
				if err != nil {
					return nil, err
				}
				have, isStruct := t.(*schema.Struct)
				switch {
				case inner == nil:
					f.Type = t
				case isStruct:
					f.Type = have
				}
			}
			if out.Index(name) >= 0 {
				return nil, fmt.Errorf("key %q twice (names are compared ignoring case)", name)
			}
			out.Fields = append(out.Fields, f)
		}
		_, err := dec.Token()
		return out, err
	}
	return nil, fmt.Errorf("unexpected %v", tok)
}

// csvSchema looks at every cell.
func csvSchema(data []byte, known *schema.Struct) (*schema.Struct, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	head, err := r.Read()
	if err == io.EOF {
		return nil, &Error{ErrorCode: CodeInvalidCSV, Line: 1, Reason: "no header"}
	}
	bad := func(err error) error {
		line, _ := r.FieldPos(0)
		return &Error{ErrorCode: CodeInvalidCSV, Line: int64(line), Reason: err.Error()}
	}
	if err != nil {
		return nil, &Error{ErrorCode: CodeInvalidCSV, Line: 1, Reason: err.Error()}
	}
	out := &schema.Struct{}
	fixed := make([]bool, len(head))
	for i, name := range head {
		f := schema.Field{Name: name, Type: schema.Void, Nullable: true}
		if known != nil && known.Index(name) >= 0 {
			f.Type, fixed[i] = known.Fields[known.Index(name)].Type, true
		}
		out.Fields = append(out.Fields, f)
	}
	for {
		row, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, bad(err)
		}
		for i, cell := range row {
			if i >= len(fixed) || fixed[i] || cell == "" {
				continue
			}
			t, ok := widen(out.Fields[i].Type, cellType(cell))
			if !ok {
				t = schema.String
			}
			out.Fields[i].Type = t
		}
	}
	return settled(out).(*schema.Struct), nil
}

func cellType(cell string) schema.Type {
	if _, err := strconv.ParseInt(cell, 10, 64); err == nil {
		return schema.Long
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil && strings.ContainsAny(cell, "0123456789") && !strings.ContainsAny(cell, "xXpP_") {
		return schema.Double
	}
	if cell == "true" || cell == "false" {
		return schema.Boolean
	}
	return schema.String
}
