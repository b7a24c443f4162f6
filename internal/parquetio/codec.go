package parquetio

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

const (
	// maxPageSize bounds what one page may take in memory.
	maxPageSize = 1 << 30
	// A page above bombSize that unpacks to more than bombRatio times its bytes is
	// taken for a bomb: writers cut pages at about a megabyte, and only single values
	// that are larger make larger ones.
	bombSize  = 128 << 20
	bombRatio = 256
)

// decompress returns the size bytes that src stands for, in buf if it is large
// enough. For CompressionCodec Uncompressed it returns src itself. Memory grows
// with the output that really comes, never with what size claims.
func (d *decompressor) decompress(codec format.CompressionCodec, buf, src []byte, size int) ([]byte, error) {
	if size < 0 || size > maxPageSize {
		return nil, corruptf("page of %d bytes", size)
	}
	if size > bombSize && size/bombRatio > len(src) {
		return nil, unsupportedf("page of %d bytes that unpacks to %d", len(src), size)
	}
	var out []byte
	var err error
	switch codec {
	case format.Uncompressed:
		out = src
	case format.Snappy:
		n, lerr := snappy.DecodedLen(src)
		if lerr != nil || n != size || size > 64*len(src)+64 {
			return nil, corruptf("snappy page: header says %d bytes, page says %d", n, size)
		}
		out, err = snappy.Decode(sized(buf, size), src)
	case format.Zstd:
		if d.zstd == nil {
			d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderLowmem(true))
			if err != nil {
				return nil, err
			}
		}
		if err = d.zstd.Reset(bytes.NewReader(src)); err == nil {
			out, err = readSized(d.zstd, buf, len(src), size)
		}
	case format.Gzip:
		in := bytes.NewReader(src)
		if d.gzip == nil {
			d.gzip, err = gzip.NewReader(in)
		} else {
			err = d.gzip.Reset(in)
		}
		if err != nil {
			d.gzip = nil
			break
		}
		out, err = readSized(d.gzip, buf, len(src), size)
	case format.Brotli:
		out, err = readSized(brotli.NewReader(bytes.NewReader(src)), buf, len(src), size)
	case format.Lz4Raw:
		out, err = lz4Block(buf, src, size)
	case format.Lz4:
		if out, err = lz4Hadoop(buf, src, size); err != nil {
			out, err = lz4Block(buf, src, size)
		}
	default:
		return nil, unsupportedf("codec %s", codec)
	}
	if err != nil {
		return nil, corruptf("%s page: %v", codec, err)
	}
	if len(out) != size {
		return nil, corruptf("page has %d bytes, header says %d", len(out), size)
	}
	return out, nil
}

// decompressor keeps the state of stream codecs between the pages of a reader.
// Neither starts a goroutine (zstd with concurrency 1).
type decompressor struct {
	zstd *zstd.Decoder
	gzip *gzip.Reader
}

func sized(buf []byte, n int) []byte {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]byte, n)
}

// readSized reads size bytes of r and checks that r ends there.
func readSized(r io.Reader, buf []byte, compressed, size int) ([]byte, error) {
	out := sized(buf, min(size, max(cap(buf), 64<<10+32*compressed)))
	n := 0
	for {
		m, err := io.ReadFull(r, out[n:])
		n += m
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return out[:n], nil
		case err != nil:
			return nil, err
		case n == size:
			var one [1]byte
			if m, err := r.Read(one[:]); m > 0 || err != nil && err != io.EOF {
				return nil, corruptf("page goes on after %d bytes", size)
			}
			return out, nil
		}
		grown := make([]byte, min(size, 2*len(out)))
		copy(grown, out)
		out = grown
	}
}

func lz4Block(buf, src []byte, size int) ([]byte, error) {
	if size > 256*len(src)+64 {
		return nil, corruptf("%d bytes cannot become %d", len(src), size)
	}
	if size == 0 {
		return nil, nil
	}
	out := sized(buf, size)
	n, err := lz4.UncompressBlock(src, out)
	return out[:max(n, 0)], err
}

// lz4Hadoop reads the framing of Hadoop's codec: blocks of big-endian
// uncompressed size, compressed size, data.
func lz4Hadoop(buf, src []byte, size int) ([]byte, error) {
	out := buf[:0]
	for len(src) > 0 {
		if len(src) < 8 {
			return nil, corruptf("lz4 frame ends early")
		}
		u, c := binary.BigEndian.Uint32(src), binary.BigEndian.Uint32(src[4:])
		src = src[8:]
		if uint64(c) > uint64(len(src)) || uint64(u) > uint64(size-len(out)) {
			return nil, corruptf("lz4 frame of %d bytes", c)
		}
		block, err := lz4Block(nil, src[:c], int(u))
		if err != nil {
			return nil, err
		}
		out = append(out, block...)
		src = src[c:]
	}
	return out, nil
}
