package files

import (
	"bytes"
	"compress/bzip2"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/avro"
)

// reader reads one file.
type reader struct {
	opt  *Options
	in   input
	file content
	stat stat // when it was opened

	src   io.Reader // decoded bytes
	whole bool      // compressed or columnar: only whole
	kind  string    // lines, csv, parquet
	undo  func()

	start int64 // where reading began
	// sum covers the bytes before off, in a file that may grow; of a whole file it
	// covers the stored bytes, through raw.
	sum   *xxhash.Digest
	off   int64 // behind the last byte taken
	lines int64 // lines before off
	done  bool
	// seen is the newest point before which everything has been yielded.
	seen struct {
		off, lines int64
		hash       uint64
	}

	buf        []byte
	head, tail int // unread: buf[head:tail]
	eof        bool

	rec       event.Record
	lastTopic string
	scratch   lineScratch
}

// check is the proof that a position carries, as text:
// xxh64:HASH;lines:N;size:N;mtime:NS;id:DEV-INODE.
type check struct {
	hash         string
	lines, size  int64
	mtime        int64
	id           string
	haveHash, ok bool
}

func parseCheck(s string) (c check) {
	for _, part := range strings.Split(s, ";") {
		k, v, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(v, 10, 64)
		switch k {
		case "xxh64":
			c.hash, c.haveHash = v, true
		case "lines":
			c.lines = n
		case "size":
			c.size = n
		case "mtime":
			c.mtime = n
		case "id":
			c.id, err = v, nil
		}
		if k != "xxh64" && err != nil {
			return check{}
		}
	}
	c.ok = c.haveHash
	return c
}

func (c check) String() string {
	return fmt.Sprintf("xxh64:%s;lines:%d;size:%d;mtime:%d;id:%s", c.hash, c.lines, c.size, c.mtime, c.id)
}

func hashText(d *xxhash.Digest) string { return fmt.Sprintf("%016x", d.Sum64()) }

// mark says that every record before off is yielded, or about to be.
func (r *reader) mark() {
	r.seen.off, r.seen.lines = r.off, r.lines
	if !r.whole {
		r.seen.hash = r.sum.Sum64()
	}
}

// open prepares the reading of an input from a position; nil: there is nothing
// to read.
func (s *Source) open(ctx context.Context, in input, pos event.Position, known bool) (*reader, error) {
	r := &reader{opt: &s.opt, in: in, sum: xxhash.New()}
	if in.stdin {
		br := &peeker{r: s.opt.Stdin}
		r.kind = s.opt.Format
		if r.kind == "" {
			r.kind = "lines"
		}
		return r, r.decode(br, "")
	}
	if err := r.openContent(ctx); err != nil {
		return nil, err
	}
	if r.stat.size == 0 && !known {
		r.close()
		return nil, nil
	}
	ready, err := r.begin(pos, known)
	if err != nil || !ready {
		r.close()
		return nil, err
	}
	return r, nil
}

// openContent opens the file or object.
func (r *reader) openContent(ctx context.Context) error {
	if r.in.store != nil {
		o, err := openObject(ctx, r.in)
		if err != nil {
			return notFound(r.in.path, err)
		}
		r.file, r.stat, r.whole = o, r.in.was, true
		return nil
	}
	f, err := os.Open(r.in.path)
	if err != nil {
		return notFound(r.in.path, err)
	}
	r.file = &localFile{f, r.in.path}
	i, err := f.Stat()
	if err != nil {
		f.Close()
		return notFound(r.in.path, err)
	}
	r.stat = statOf(i)
	return nil
}

// objectHash stands for the hash of an object's bytes, which its ETag makes needless.
const objectHash = "object"

// begin finds out what the file is and moves to the position.
func (r *reader) begin(pos event.Position, known bool) (bool, error) {
	c := parseCheck(pos.Check)
	same := known && r.stat.same(c)
	if known && pos.Done && same {
		return false, nil
	}
	if known && pos.Done {
		if c.hash != objectHash {
			sum := xxhash.New()
			if _, err := io.Copy(sum, r.file); err != nil {
				return false, notFound(r.in.path, err)
			}
			if c.ok && hashText(sum) == c.hash {
				return false, nil
			}
		}
		if !r.opt.Overwrite {
			return false, r.changed("it was read whole and has other content now; option overwrite=true reads it again")
		}
		known, pos = false, event.Position{}
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			return false, notFound(r.in.path, err)
		}
	}
	if known && pos.Offset > 0 {
		r.kind = kindOf(r.in.path, nil, r.opt)
		if same && pos.Offset >= r.stat.size {
			return false, nil
		}
		if err := r.resume(pos, c); err != nil {
			if !r.opt.Overwrite {
				return false, err
			}
			if _, err := r.file.Seek(0, io.SeekStart); err != nil {
				return false, notFound(r.in.path, err)
			}
			r.sum.Reset()
			r.off, r.start, r.lines = 0, 0, 0
			r.mark()
			return true, r.decode(&peeker{r: stream(r.file)}, r.in.path)
		}
		if r.kind == "parquet" || r.kind == "avro" {
			return false, r.changed("a Parquet or Avro file cannot be read on from the middle")
		}
		r.src = r.file
		return true, nil
	}
	return true, r.decode(&peeker{r: stream(r.file)}, r.in.path)
}

// resume checks the hash of all bytes before the position and stops there.
func (r *reader) resume(pos event.Position, c check) error {
	if !c.ok {
		return r.changed("its position carries no proof that can be checked")
	}
	if r.stat.size < pos.Offset {
		return r.changed(fmt.Sprintf("%d bytes were read and %d are left", pos.Offset, r.stat.size))
	}
	n, err := io.CopyN(r.sum, r.file, pos.Offset)
	if err != nil {
		return r.changed(fmt.Sprintf("%d of %d bytes read before are there", n, pos.Offset))
	}
	if hashText(r.sum) != c.hash {
		return r.changed(fmt.Sprintf("the first %d bytes are no longer what was read", pos.Offset))
	}
	r.off, r.start, r.lines = pos.Offset, pos.Offset, c.lines
	r.mark()
	return nil
}

func (r *reader) changed(reason string) error {
	return &Error{Code: "FILE_CHANGED", Path: r.in.path, Reason: reason}
}

// peeker looks at the first bytes of a stream.
type peeker struct {
	r    io.Reader
	head []byte
	done bool
}

func (p *peeker) peek() []byte {
	if !p.done {
		p.done = true
		p.head = make([]byte, 16)
		n, _ := io.ReadFull(p.r, p.head)
		p.head = p.head[:n]
	}
	return p.head
}

func (p *peeker) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.r.Read(b)
}

// decode sets up decompression by name and first bytes.
func (r *reader) decode(p *peeker, path string) error {
	head := p.peek()
	var in io.Reader = p
	name, codec := stripCodec(path)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		codec = "gz"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		codec = "zst"
	case bytes.HasPrefix(head, []byte("\xff\x06\x00\x00sNaPpY")):
		codec = "snappy"
	case codec == "bz2" && !bytes.HasPrefix(head, []byte("BZh")), codec == "gz", codec == "zst", codec == "snappy":
		return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "its first bytes are not what its name says"}
	}
	if codec != "" && !r.in.stdin {
		r.whole = true
	}
	var err error
	switch codec {
	case "gz":
		in, err = gzip.NewReader(in)
	case "zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(in, zstd.WithDecoderMaxMemory(1<<30)); err == nil {
			in, r.undo = z, z.Close
		}
	case "bz2":
		in = bzip2.NewReader(in)
	case "snappy":
		in = snappy.NewReader(in)
	}
	if err != nil {
		return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "cannot be decompressed", Err: err}
	}
	if codec != "" {
		p = &peeker{r: in}
		head, in = p.peek(), p
	}
	r.src = in
	if r.kind == "" {
		r.kind = kindOf(name, head, r.opt)
	}
	if r.kind == "parquet" || r.kind == "avro" {
		r.whole = true
	}
	return nil
}

func stripCodec(path string) (name, codec string) {
	for _, c := range []string{"gz", "zst", "bz2", "snappy"} {
		if hasSuffixFold(path, "."+c) {
			return path[:len(path)-len(c)-1], c
		}
	}
	return path, ""
}

// kindOf tells how a file is read, by option, name, first bytes.
func kindOf(name string, head []byte, o *Options) string {
	switch {
	case o.Format != "":
		return o.Format
	case hasSuffixFold(name, ".parquet"), bytes.HasPrefix(head, []byte("PAR1")):
		return "parquet"
	case hasSuffixFold(name, ".avro"), bytes.HasPrefix(head, []byte(avro.Magic)):
		return "avro"
	case hasSuffixFold(name, ".csv"), hasSuffixFold(name, ".tsv"):
		return "csv"
	}
	return "lines"
}

// read yields the records that are there now; false: the consumer has enough.
func (r *reader) read(ctx context.Context, yield func(*event.Record) bool) (bool, error) {
	var more bool
	var err error
	switch r.kind {
	case "csv":
		more, err = r.readCSV(ctx, yield)
	case "parquet":
		more, err = r.readParquet(ctx, yield)
	case "avro":
		more, err = r.readAvro(ctx, yield)
	default:
		more, err = r.readLines(ctx, yield)
	}
	if err != nil || !more || r.in.stdin {
		return more, err
	}
	return true, r.finish(ctx)
}

// finish checks that the file is the one that was opened, and closes a whole one.
func (r *reader) finish(ctx context.Context) error {
	now, why := r.file.stat(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case why != "":
		return r.changed(why)
	case now.size < r.stat.size || !r.whole && now.size < r.off:
		return r.changed("it became shorter while it was read")
	case r.in.store != nil && r.stat.changed(now), r.in.store == nil && r.whole && (now.size != r.stat.size || !now.mtime.Equal(r.stat.mtime)):
		return r.changed("it changed while it was read")
	}
	if r.in.store != nil {
		r.seen.off, r.seen.lines, r.done = r.off, r.lines, true
		return nil
	}
	if r.whole {
		// The hash of a whole file is over what is stored; it is read once more
		// since decompressors leave bytes and Parquet is not read in order.
		r.sum.Reset()
		if _, err := io.Copy(r.sum, io.NewSectionReader(r.file, 0, now.size)); err != nil {
			return notFound(r.in.path, err)
		}
		r.seen.off, r.seen.lines, r.seen.hash = r.off, r.lines, r.sum.Sum64()
		r.done = true
	}
	return nil
}

// position is how far the reader has come; false: it has none (standard input,
// a whole file not yet read to its end).
func (r *reader) position() (event.Position, bool) {
	if r.in.stdin || r.whole && !r.done {
		return event.Position{}, false
	}
	c := check{hash: fmt.Sprintf("%016x", r.seen.hash), lines: r.seen.lines, size: r.stat.size, mtime: r.stat.mtime.UnixNano(), id: r.stat.id}
	if r.in.store != nil {
		c.hash = objectHash
	}
	return event.Position{Source: r.in.uri, Offset: r.seen.off, Check: c.String(), Done: r.done}, true
}

func (r *reader) close() {
	if r.undo != nil {
		r.undo()
	}
	if r.file != nil {
		r.file.Close()
	}
}

// stable tells whether the file has not changed for the age; a younger one is
// looked at again once after wait.
func (r *reader) stable(ctx context.Context, age, wait time.Duration) bool {
	if r.in.stdin || r.whole {
		return true
	}
	st, err := os.Stat(r.in.path)
	if err != nil {
		return false
	}
	if r.opt.Now().Sub(st.ModTime()) >= age {
		return true
	}
	if wait == 0 {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
	}
	again, err := os.Stat(r.in.path)
	return err == nil && again.Size() == st.Size() && again.ModTime().Equal(st.ModTime())
}

// fill reads more bytes behind tail, growing the buffer where a record needs it.
func (r *reader) fill() error {
	if r.eof {
		return nil
	}
	if r.head > 0 {
		copy(r.buf, r.buf[r.head:r.tail])
		r.tail -= r.head
		r.head = 0
	}
	if r.tail == len(r.buf) {
		grown := make([]byte, max(1<<18, 2*len(r.buf)))
		copy(grown, r.buf[:r.tail])
		r.buf = grown
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.tail:])
		r.tail += n
		switch {
		case err == io.EOF:
			r.eof = true
			return nil
		case err != nil:
			return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: fmt.Sprintf("cannot be read on behind byte %d", r.off), Err: err}
		case n > 0:
			return nil
		}
	}
	return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "gives no bytes", Err: io.ErrNoProgress}
}

// take moves past n unread bytes, which then count as read.
func (r *reader) take(n int) []byte {
	b := r.buf[r.head : r.head+n]
	r.head += n
	r.off += int64(n)
	if !r.whole && !r.in.stdin {
		r.sum.Write(b)
	}
	return b
}
