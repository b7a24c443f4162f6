package delta

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/curve"
	"github.com/sluice-data/sluice/internal/datafile"
)

const (
	// sampleRows is how many rows decide ranks and ranges.
	sampleRows = 1 << 14
	// sampleBytes bounds a value of the sample; a prefix keeps the order.
	sampleBytes = 64
	// maxBuckets bounds the files that are open at once while rows are spread.
	maxBuckets = 256
	// emittedRows is the largest size in rows of the batches that leave the sort; small
	// files get an eighth of their rows at a time, so that they end where they should.
	emittedRows = 1 << 13
)

// sorter puts rows along the curve within bounded memory: a first pass over the key
// columns takes a sample, which gives the ranks of each column and cuts the curve into
// ranges of about equal size; a second pass spreads the rows over the ranges, in
// memory as far as it goes, else in temporary files; then each range is sorted and
// written. Ranges that turn out too large are sorted in pieces.
type sorter struct {
	z       *optimizer
	ranks   []*curve.Ranks
	cuts    []uint64 // first position of each range but the first
	buckets []bucket
	held    int64 // bytes of pieces in memory
	dir     string
	emitted int // rows a batch
}

// bucket is the rows of one range.
type bucket struct {
	pieces []arrow.RecordBatch
	bytes  int64 // of pieces
	spill  *spillFile
}

// sortRows rewrites the live rows of files of one partition in the order of the curve.
func (z *optimizer) sortRows(ctx context.Context, files []*deltalog.Add) (_ []datafile.WrittenFile, err error) {
	s := &sorter{z: z}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.sample(ctx, files); err != nil {
		return nil, err
	}
	w, err := z.writer(z.o.TargetSize)
	if err != nil {
		return nil, err
	}
	err = s.spread(ctx, files)
	for i := 0; err == nil && i < len(s.buckets); i++ {
		err = s.drain(ctx, &s.buckets[i], w)
	}
	if err != nil {
		return nil, errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	return w.Close(ctx)
}

// sample draws rows evenly (reservoir) and plans ranks and ranges.
func (s *sorter) sample(ctx context.Context, files []*deltalog.Add) error {
	c := s.z.cluster
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // any rows will do
	var rows [][][]byte                 // by row, then column
	var tops []string
	for _, p := range c.paths {
		if !slices.Contains(tops, p[0]) {
			tops = append(tops, p[0])
		}
	}
	seen, size := 0, int64(0)
	for _, a := range files {
		size += a.Size
		for b, err := range datafile.Read(ctx, s.z.t.store, s.z.l, a, datafile.ReadOptions{Columns: tops}) {
			if err != nil {
				return err
			}
			cols, err := c.columns(b.RecordBatch)
			if err != nil {
				return err
			}
			for r := range int(b.NumRows()) {
				at := seen
				seen++
				if at >= sampleRows {
					if at = dice.IntN(seen); at >= sampleRows {
						continue
					}
				} else {
					rows = append(rows, nil)
				}
				rows[at] = c.values(cols, r)
			}
		}
	}
	s.emitted = int(min(max(s.z.o.TargetSize/8*int64(seen)/max(size, 1), 16), emittedRows))
	s.ranks = make([]*curve.Ranks, len(c.names))
	for d := range s.ranks {
		column := make([][]byte, len(rows))
		for i, r := range rows {
			column[i] = r[d]
		}
		s.ranks[d] = curve.NewRanks(column, c.bits)
	}
	// Rows in memory take a multiple of their files; a range is to fit half of the bound.
	const growth = 6
	n := int(min(size*growth/max(s.z.o.MaxMemory/2, 1)+1, maxBuckets))
	at := make([]uint64, len(rows))
	for i, r := range rows {
		at[i] = s.position(r)
	}
	slices.Sort(at)
	for i := 1; i < n && len(at) > 0; i++ {
		if cut := at[i*len(at)/n]; cut > 0 && (len(s.cuts) == 0 || cut > s.cuts[len(s.cuts)-1]) {
			s.cuts = append(s.cuts, cut)
		}
	}
	s.buckets = make([]bucket, len(s.cuts)+1)
	return nil
}

// values are the key values of a row as bytes that sort.
func (c *clustering) values(cols []arrow.Array, row int) [][]byte {
	out := make([][]byte, len(cols))
	for d, e := range c.encoders {
		v := e.Append(nil, cols[d:d+1], row)
		out[d] = bytes.Clone(v[:min(len(v), sampleBytes)])
	}
	return out
}

// position is the place of a row on the curve.
func (s *sorter) position(values [][]byte) uint64 {
	ranks := make([]uint32, len(values))
	for d, v := range values {
		ranks[d] = s.ranks[d].Of(v)
	}
	if s.z.cluster.curve == hilbertCurve {
		return curve.Hilbert(ranks, s.z.cluster.bits)
	}
	return curve.Interleave(ranks, s.z.cluster.bits)
}

func (s *sorter) positions(b arrow.RecordBatch) ([]uint64, error) {
	cols, err := s.z.cluster.columns(b)
	if err != nil {
		return nil, err
	}
	out := make([]uint64, b.NumRows())
	for r := range out {
		out[r] = s.position(s.z.cluster.values(cols, r))
	}
	return out, nil
}

// spread reads all rows and puts each into its range.
func (s *sorter) spread(ctx context.Context, files []*deltalog.Add) error {
	for _, a := range files {
		for b, err := range datafile.Read(ctx, s.z.t.store, s.z.l, a, s.z.readOptions()) {
			if err != nil {
				return err
			}
			if err := s.place(b.RecordBatch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sorter) place(b arrow.RecordBatch) error {
	rows := make([][]int64, len(s.buckets))
	if len(s.buckets) == 1 {
		rows[0] = make([]int64, b.NumRows())
		for r := range rows[0] {
			rows[0][r] = int64(r)
		}
	} else {
		at, err := s.positions(b)
		if err != nil {
			return err
		}
		for r, p := range at {
			i := sort.Search(len(s.cuts), func(i int) bool { return s.cuts[i] > p })
			rows[i] = append(rows[i], int64(r))
		}
	}
	size := datafile.MemoryOf(b)
	for i, take := range rows {
		if len(take) == 0 {
			continue
		}
		piece, err := datafile.Take(b, take)
		if err != nil {
			return err
		}
		n := size * int64(len(take)) / b.NumRows()
		s.buckets[i].pieces = append(s.buckets[i].pieces, piece)
		s.buckets[i].bytes += n
		s.held += n
	}
	// Whole pieces of a batch keep all of it in memory until the last is gone, so the
	// largest ranges go first and all go in the end.
	for s.held > s.z.o.MaxMemory {
		largest := 0
		for i := range s.buckets {
			if s.buckets[i].bytes > s.buckets[largest].bytes {
				largest = i
			}
		}
		if err := s.spill(&s.buckets[largest]); err != nil {
			return err
		}
	}
	return nil
}

// spill moves the pieces of a range to its file.
func (s *sorter) spill(b *bucket) error {
	if b.spill == nil {
		if s.dir == "" {
			dir, err := os.MkdirTemp(s.z.o.TempDir, "sluice-sort-*")
			if err != nil {
				return fmt.Errorf("spill rows: %w", err)
			}
			s.dir = dir
		}
		f, err := newSpillFile(s.dir, b.pieces[0].Schema())
		if err != nil {
			return fmt.Errorf("spill rows: %w", err)
		}
		b.spill = f
	}
	joined, err := datafile.Concat(b.pieces[0].Schema(), b.pieces)
	if err != nil {
		return err
	}
	if err := b.spill.w.Write(joined); err != nil {
		return fmt.Errorf("spill rows: %w", err)
	}
	s.held -= b.bytes
	b.pieces, b.bytes = nil, 0
	return nil
}

// drain sorts the rows of a range and writes them.
func (s *sorter) drain(ctx context.Context, b *bucket, w *datafile.Writer) error {
	var pieces []arrow.RecordBatch
	var size int64
	flush := func() error {
		err := s.emit(ctx, pieces, w)
		pieces, size = nil, 0
		return err
	}
	take := func(p arrow.RecordBatch, n int64) error {
		if size > 0 && size+n > s.z.o.MaxMemory {
			if err := flush(); err != nil {
				return err
			}
		}
		pieces, size = append(pieces, p), size+n
		return nil
	}
	if b.spill != nil {
		for p, err := range b.spill.read {
			if err == nil {
				err = take(p, datafile.MemoryOf(p))
			}
			if err != nil {
				return err
			}
		}
	}
	for _, p := range b.pieces {
		if err := take(p, b.bytes/int64(len(b.pieces))); err != nil {
			return err
		}
	}
	err := flush()
	s.held -= b.bytes
	*b = bucket{}
	return err
}

// emit writes the rows of pieces in the order of the curve; rows of one position keep
// the order they came in.
func (s *sorter) emit(ctx context.Context, pieces []arrow.RecordBatch, w *datafile.Writer) error {
	if len(pieces) == 0 {
		return nil
	}
	all, err := datafile.Concat(pieces[0].Schema(), pieces)
	if err != nil {
		return err
	}
	at, err := s.positions(all)
	if err != nil {
		return err
	}
	rows := make([]int64, len(at))
	for r := range rows {
		rows[r] = int64(r)
	}
	slices.SortStableFunc(rows, func(a, b int64) int {
		switch {
		case at[a] < at[b]:
			return -1
		case at[a] > at[b]:
			return 1
		}
		return 0
	})
	for chunk := range slices.Chunk(rows, s.emitted) {
		b, err := datafile.Take(all, chunk)
		if err != nil {
			return err
		}
		err = w.Write(ctx, b)
		b.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sorter) close() error {
	var errs []error
	for i := range s.buckets {
		if f := s.buckets[i].spill; f != nil {
			errs = append(errs, f.f.Close())
		}
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// spillFile is a temporary file of record batches.
type spillFile struct {
	f   *os.File
	buf *bufio.Writer
	w   *ipc.Writer
}

func newSpillFile(dir string, as *arrow.Schema) (*spillFile, error) {
	f, err := os.CreateTemp(dir, "range-*.arrow")
	if err != nil {
		return nil, err
	}
	s := &spillFile{f: f, buf: bufio.NewWriterSize(f, 1<<16)}
	s.w = ipc.NewWriter(s.buf, ipc.WithSchema(as), ipc.WithLZ4())
	return s, nil
}

// read yields the batches in the order they were written.
func (s *spillFile) read(yield func(arrow.RecordBatch, error) bool) {
	err := errors.Join(s.w.Close(), s.buf.Flush())
	if err == nil {
		_, err = s.f.Seek(0, io.SeekStart)
	}
	if err != nil {
		yield(nil, fmt.Errorf("read spilled rows: %w", err))
		return
	}
	r, err := ipc.NewReader(bufio.NewReaderSize(s.f, 1<<16))
	if err != nil {
		yield(nil, fmt.Errorf("read spilled rows: %w", err))
		return
	}
	defer r.Release()
	for r.Next() {
		b := r.RecordBatch()
		b.Retain()
		if !yield(b, nil) {
			return
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		yield(nil, fmt.Errorf("read spilled rows: %w", err))
	}
}
