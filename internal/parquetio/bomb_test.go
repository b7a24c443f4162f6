package parquetio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// rawPage is one page as it stands in a file.
type rawPage struct {
	header format.PageHeader
	body   []byte
}

func dictionaryPage(n, size int, body []byte) rawPage {
	h := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: int32(size)}
	h.DictionaryPageHeader = thrift.New(format.DictionaryPageHeader{NumValues: int32(n), Encoding: format.Plain})
	return rawPage{h, body}
}

func dataPage(n, size int, enc format.Encoding, body []byte) rawPage {
	h := format.PageHeader{Type: format.DataPage, UncompressedPageSize: int32(size)}
	h.DataPageHeader = thrift.New(format.DataPageHeader{NumValues: int32(n), Encoding: enc, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})
	return rawPage{h, body}
}

// handMade is a file of one column, whose elements are those of s, with these pages.
func handMade(t *testing.T, s *schema.Struct, codec format.CompressionCodec, rows, values int64, pages ...rawPage) []byte {
	t.Helper()
	var shape bytes.Buffer
	w, err := NewWriter(&shape, s, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	proto := &thrift.CompactProtocol{}
	out := []byte("PAR1")
	for _, p := range pages {
		p.header.CompressedPageSize = int32(len(p.body))
		head, err := thrift.Marshal(proto, p.header)
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, head...), p.body...)
	}
	var path []string
	for _, e := range w.elems[1:] {
		path = append(path, e.Name)
	}
	leaf := w.elems[len(w.elems)-1]
	c := format.ColumnChunk{MetaData: format.ColumnMetaData{Type: leaf.Type.V, Encoding: []format.Encoding{format.RLEDictionary, format.RLE}, PathInSchema: path,
		Codec: codec, NumValues: values, TotalUncompressedSize: int64(len(out)), TotalCompressedSize: int64(len(out) - 4), DataPageOffset: 4}}
	foot, err := thrift.Marshal(proto, format.FileMetaData{Version: 1, Schema: w.elems, NumRows: rows,
		RowGroups: []format.RowGroup{{Columns: []format.ColumnChunk{c}, NumRows: rows, TotalByteSize: int64(len(out))}}})
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, foot...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(foot))), "PAR1"...)
}

// run is n equal levels or indexes of one byte.
func run(n int, v byte) []byte { return append(binary.AppendUvarint(nil, uint64(n)<<1), v) }

// sizedLevels are levels with the length that V1 pages put before them.
func sizedLevels(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// TestFile_ReadBombs: files of some kilobytes that stand for gigabytes end in an error
// or in batches of bounded size; nothing is taken for what they claim.
func TestFile_ReadBombs(t *testing.T) {
	const mib = 1 << 20
	text := one(schema.String)
	list := one(&schema.Array{Elem: schema.Integer, ContainsNull: true})
	long := append(binary.LittleEndian.AppendUint32(nil, mib), make([]byte, mib)...)
	zip := func(b []byte) []byte {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(b, nil)
	}
	all := func(n int) []byte { return sizedLevels(run(n, 1)) }
	// rows of one list: the first entry begins it, all others go on with it.
	entries := func(n int, first bool) []byte {
		rep := run(n, 1)
		if first {
			rep = append(run(1, 0), run(n-1, 1)...)
		}
		return append(sizedLevels(rep), sizedLevels(run(n, 2))...)
	}
	fronts := func(n int) []byte {
		prefixes, lens := make([]int32, n), make([]int32, n)
		for i := range prefixes {
			prefixes[i] = mib
		}
		prefixes[0], lens[0] = 0, mib
		var e delta.BinaryPackedEncoding
		a, err1 := e.EncodeInt32(nil, prefixes)
		b, err2 := e.EncodeInt32(nil, lens)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return append(append(append(all(n), a...), b...), make([]byte, mib)...)
	}
	index := append(all(mib), append([]byte{1}, run(mib, 0)...)...)
	bomb := append(all(1), append(binary.LittleEndian.AppendUint32(nil, 200*mib), make([]byte, 200*mib)...)...)
	wide := fronts(10_000)
	for _, tt := range []struct {
		name    string
		file    []byte
		want    *schema.Struct
		batches int // read without error; -1: an error comes
		most    uint64
	}{
		{"a million rows that are one long dictionary value", handMade(t, text, format.Zstd, mib, mib, dictionaryPage(1, len(long), zip(long)), dataPage(mib, len(index), format.RLEDictionary, zip(index))), text, 2, 1024 * mib},
		{"a page that unpacks to 17000 times its size", handMade(t, text, format.Zstd, 1, 1, dataPage(1, len(bomb), format.Plain, zip(bomb))), text, -1, 4 * mib},
		{"ten thousand values of a megabyte by front coding", handMade(t, text, format.Uncompressed, 10_000, 10_000, dataPage(10_000, len(wide), format.DeltaByteArray, wide)), text, -1, 64 * mib},
		{"one list over pages of run-length levels", handMade(t, list, format.Uncompressed, 1, 40*maxPageEntries,
			append([]rawPage{dataPage(maxPageEntries, len(entries(maxPageEntries, true)), format.Plain, entries(maxPageEntries, true))},
				repeat(dataPage(maxPageEntries, len(entries(maxPageEntries, false)), format.Plain, entries(maxPageEntries, false)), 39)...)...), list, -1, 1200 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if len(tt.file) > 2*mib {
				t.Fatalf("the file has %d bytes", len(tt.file))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f := openBytes(t, tt.file)
			n := 0
			var err error
			for _, e := range f.Read(context.Background(), tt.want, ReadOptions{}) {
				if err = e; err != nil {
					break
				}
				if n++; n == tt.batches {
					break
				}
			}
			runtime.ReadMemStats(&after)
			if tt.batches < 0 && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) || tt.batches > 0 && (err != nil || n != tt.batches) {
				t.Errorf("%d batches, %v", n, err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > tt.most {
				t.Errorf("%d MiB were allocated for a file of %d bytes", took/mib, len(tt.file))
			} else {
				t.Logf("%d bytes, %d MiB allocated, %v", len(tt.file), took/mib, err)
			}
		})
	}
}

func repeat(p rawPage, n int) []rawPage {
	out := make([]rawPage, n)
	for i := range out {
		out[i] = p
	}
	return out
}
