package rowio

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/sluice-data/sluice/log/schema"
)

// SchemaOf is the schema that a Parquet or Arrow file tells of itself, without ids;
// nil for text forms and for what cannot be read twice (standard input, compressed
// files).
func SchemaOf(path string, form Form) (*schema.Struct, error) {
	if form == "" {
		form, _ = InputForm(path)
	}
	if path == "-" || compressed(path) || form != Parquet && form != Arrow {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	defer f.Close()
	if form == Parquet {
		p, err := openParquet(f)
		if err != nil {
			return nil, parquetError(err, path)
		}
		return schema.Nullable(p.Schema()), nil
	}
	s, err := guard(func() (*arrow.Schema, error) {
		head := make([]byte, len(arrowMagic))
		if _, err := io.ReadFull(f, head); err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		if bytes.Equal(head, arrowMagic) {
			r, err := ipc.NewFileReader(f)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return r.Schema(), nil
		}
		r, err := ipc.NewReader(f)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		return r.Schema(), nil
	})
	if err != nil {
		return nil, &Error{ErrorCode: CodeInvalidArrow, File: path, Reason: err.Error()}
	}
	out, err := schema.FromArrow(s)
	if err != nil {
		return nil, &Error{ErrorCode: CodeTypeMismatch, File: path, Reason: err.Error()}
	}
	return schema.Nullable(out), nil
}

func compressed(path string) bool {
	return strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst")
}
