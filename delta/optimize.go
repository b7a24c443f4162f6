package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/pipeline"
)

// OptimizeOptions are settings of [Table.Optimize]; the zero value compacts small
// files, and on a clustered table clusters what is not clustered yet.
type OptimizeOptions struct {
	// Where limits the work to partitions; it may name partition columns only.
	Where string
	// TargetSize is the size in bytes that files are packed to. Default:
	// Options.FileSize, else the table's delta.targetFileSize, else 128 MiB.
	TargetSize int64
	// MinSize is the size in bytes from which a file is left alone. Default: three
	// quarters of TargetSize.
	MinSize int64
	// MaxDeleted is the share of deleted rows above which a file is rewritten whatever
	// its size. Default: 0.05.
	MaxDeleted float64
	// ZOrder lists columns by which all rows of the chosen partitions are put in
	// Z-order; "a.b" is a field of a struct.
	ZOrder []string
	// Purge rewrites only files that have a deletion vector, each for itself.
	Purge bool
	// Full clusters also files that were clustered by other columns.
	Full bool
	// MaxMemory bounds the rows in bytes that Z-order and clustering hold in memory;
	// beyond it they go to files in TempDir. Defaults: 256 MiB, the system's directory.
	MaxMemory    int64
	TempDir      string
	UserMetadata string
	// stale, with Purge, chooses the files instead of their deletion vectors.
	stale func(*deltalog.Add) bool
}

// OptimizeResult is what became of an Optimize.
type OptimizeResult struct {
	Result
	// Partitions, VectorsRemoved count what was rewritten.
	Partitions     int
	VectorsRemoved int64
	// Skipped counts input files that another writer removed or changed meanwhile;
	// they are left for the next run.
	Skipped int
}

// Optimize rewrites files without changing a row: small ones are packed together,
// deleted rows are dropped, rows are put in an order that lets readers skip files.
// It is one commit with dataChange=false, or none when there is nothing to gain.
// Files that others removed or changed in the meantime are left out (C-42).
func (t *Table) Optimize(ctx context.Context, o OptimizeOptions) (OptimizeResult, error) {
	for n := 1; ; n++ {
		out, err := t.optimize(ctx, o)
		out.Attempts = n
		if err == nil || !retryable(err) || n >= t.opts.Attempts {
			return out, err
		}
		if err := t.pause(ctx, n); err != nil {
			return out, err
		}
	}
}

// optimizer is one attempt on one version.
type optimizer struct {
	t       *Table
	o       OptimizeOptions
	snap    *deltalog.Snapshot
	l       *datafile.Layout
	to      *datafile.Layout // of the new files, if not l
	where   *expr.Bound
	cluster *clustering // nil unless rows are put in an order
	started time.Time
}

// rewritten are files that took the place of others; not committed yet.
type rewritten struct {
	from []*deltalog.Add
	adds []*deltalog.Add
	keys []string
	rows int64
}

func (t *Table) optimize(ctx context.Context, o OptimizeOptions) (OptimizeResult, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return OptimizeResult{}, err
	}
	z := &optimizer{t: t, o: o, snap: snap, started: t.opts.Clock()}
	if err := z.plan(); err != nil {
		return OptimizeResult{}, err
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		return OptimizeResult{}, err
	}
	files, err = z.chosen(files)
	if err != nil {
		return OptimizeResult{}, err
	}
	var done []*rewritten
	if z.cluster != nil {
		done, err = z.order(ctx, files)
	} else {
		done, err = z.pack(ctx, files)
	}
	if err != nil {
		return OptimizeResult{}, errors.Join(err, z.discard(ctx, done))
	}
	if len(done) == 0 {
		return OptimizeResult{Result: nothing(snap)}, nil
	}
	return z.commit(ctx, done)
}

// plan refuses what cannot be done before a file is written.
func (z *optimizer) plan() error {
	if err := z.t.mayChange(z.snap, false); err != nil {
		return err
	}
	if err := checkApplyFormat(z.snap, "optimize"); err != nil {
		return err
	}
	var err error
	if z.l, err = z.t.Layout(z.snap); err != nil {
		return err
	}
	if z.where, err = z.t.condition(z.snap.Schema, z.o.Where, z.t.opts.Clock()); err != nil {
		return err
	}
	if z.where != nil && !z.where.ReferencesOnly(z.l.Partition) {
		return &deltalog.InvalidError{ErrorCode: "DELTA_NON_PARTITION_COLUMN_SPECIFIED",
			Reason: fmt.Sprintf("condition %s: only partition columns can be named (%s)", z.where, strings.Join(z.l.Partition, ", "))}
	}
	if z.o.TargetSize <= 0 {
		if z.o.TargetSize = z.t.opts.FileSize; z.o.TargetSize <= 0 {
			z.o.TargetSize = z.l.TargetFileSize
		}
	}
	if z.o.MinSize <= 0 {
		z.o.MinSize = z.o.TargetSize - z.o.TargetSize/4
	}
	if z.o.MaxDeleted <= 0 {
		z.o.MaxDeleted = 0.05
	}
	if z.o.MaxMemory <= 0 {
		z.o.MaxMemory = 256 << 20
	}
	return z.planOrder()
}

// checkApplyFormat refuses to rewrite files whose hidden row versions are of a newer
// format than this version knows (apply-state 4.3).
func checkApplyFormat(snap *deltalog.Snapshot, verb string) error {
	const key = "sluice.apply.format"
	if v, ok := snap.Metadata.Configuration[key]; ok && v != "1" {
		return &deltalog.UnsupportedError{ErrorCode: "APPLY_FORMAT_UNSUPPORTED", Op: deltalog.OpWrite, Features: []string{key + "=" + v},
			MinReaderVersion: snap.Protocol.MinReaderVersion, MinWriterVersion: snap.Protocol.MinWriterVersion,
			Reason: "a newer version of sluice wrote the row versions of this table; use that one to " + verb + " it"}
	}
	return nil
}

// chosen are the files in the partitions asked for.
func (z *optimizer) chosen(files []*deltalog.Add) ([]*deltalog.Add, error) {
	if z.where == nil {
		return files, nil
	}
	var out []*deltalog.Add
	for _, a := range files {
		ok, err := z.l.PartitionMatch(z.where, a)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, a)
		}
	}
	return out, nil
}

// partitions groups files by their partition values, groups in order of appearance.
func (z *optimizer) partitions(files []*deltalog.Add) [][]*deltalog.Add {
	at := map[string]int{}
	var out [][]*deltalog.Add
	for _, a := range files {
		key := partitionText(a.PartitionValues)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

func partitionText(values map[string]*string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(values)) {
		b.WriteString(k)
		if v := values[k]; v != nil {
			b.WriteString("\x01" + *v)
		}
		b.WriteByte(0)
	}
	return b.String()
}

// deletedShare is the part of a file's rows that its deletion vector names; 1 when
// the number of rows is not known.
func deletedShare(a *deltalog.Add) float64 {
	if a.DeletionVector == nil || a.DeletionVector.Cardinality == 0 {
		return 0
	}
	n := datafile.ParseStats(a.Stats).NumRecords
	if n <= 0 {
		return 1
	}
	return float64(a.DeletionVector.Cardinality) / float64(n)
}

// liveSize estimates the size of a file without its deleted rows.
func liveSize(a *deltalog.Add) int64 { return int64(float64(a.Size) * (1 - min(deletedShare(a), 1))) }

// bins are the groups of files to be made one each. Next-fit over files by size, as
// Spark does it.
func (z *optimizer) bins(files []*deltalog.Add) [][]*deltalog.Add {
	var out [][]*deltalog.Add
	for _, part := range z.partitions(files) {
		part = slices.DeleteFunc(part, func(a *deltalog.Add) bool {
			if z.o.Purge {
				return z.o.stale == nil && a.DeletionVector == nil || z.o.stale != nil && !z.o.stale(a)
			}
			return liveSize(a) >= z.o.MinSize && deletedShare(a) <= z.o.MaxDeleted
		})
		if z.o.Purge {
			for _, a := range part {
				out = append(out, []*deltalog.Add{a})
			}
			continue
		}
		slices.SortStableFunc(part, func(a, b *deltalog.Add) int { return int(min(max(a.Size-b.Size, -1), 1)) })
		var bin []*deltalog.Add
		var size int64
		end := func() {
			if len(bin) > 1 || len(bin) == 1 && deletedShare(bin[0]) > z.o.MaxDeleted {
				out = append(out, bin)
			}
			bin, size = nil, 0
		}
		for _, a := range part {
			if n := liveSize(a); len(bin) > 0 && size+n > z.o.TargetSize {
				end()
			}
			bin, size = append(bin, a), size+liveSize(a)
		}
		end()
	}
	return out
}

// pack makes one file of each bin. What comes out may be so much smaller than what
// went in that it can be packed further; that is done until nothing is left to gain,
// so that a second run finds nothing.
func (z *optimizer) pack(ctx context.Context, files []*deltalog.Add) ([]*rewritten, error) {
	var done []*rewritten
	made := map[*deltalog.Add]*rewritten{} // by the one file of each
	for round := 0; ; round++ {
		bins := z.bins(files)
		if len(bins) == 0 || round == 8 {
			return done, nil
		}
		batch := make([]*rewritten, len(bins))
		err := pipeline.ForEach(ctx, z.t.opts.Workers, numbers(len(bins)), func(inner context.Context, i int) (err error) {
			batch[i], err = z.rewrite(ctx, inner, bins[i])
			return err
		})
		if err != nil {
			return append(done, batch...), err
		}
		gone := map[*deltalog.Add]bool{}
		for _, r := range batch {
			var from []*deltalog.Add
			for _, a := range r.from {
				gone[a] = true
				if m := made[a]; m != nil {
					from = append(from, m.from...)
					delete(made, a)
					done = slices.DeleteFunc(done, func(x *rewritten) bool { return x == m })
					if err := z.discard(ctx, []*rewritten{m}); err != nil {
						return append(done, batch...), err
					}
				} else {
					from = append(from, a)
				}
			}
			r.from = from
			done = append(done, r)
			for _, a := range r.adds {
				made[a] = r
			}
		}
		if z.o.Purge {
			return done, nil
		}
		files = slices.DeleteFunc(slices.Clone(files), func(a *deltalog.Add) bool { return gone[a] })
		for _, r := range batch {
			files = append(files, r.adds...)
		}
	}
}

// rewrite copies the live rows of files of one partition into one file.
func (z *optimizer) rewrite(ctx, inner context.Context, from []*deltalog.Add) (_ *rewritten, err error) {
	w, err := z.writer(math.MaxInt64)
	if err != nil {
		return nil, err
	}
	for _, a := range from {
		for b, err := range datafile.Read(ctx, z.t.store, z.l, a, z.readOptions()) {
			if err == nil {
				err = errors.Join(inner.Err(), w.Write(ctx, b.RecordBatch))
			}
			if err != nil {
				return nil, errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
			}
		}
	}
	files, err := w.Close(ctx)
	if err != nil {
		return nil, err
	}
	return z.rewritten(from, files), nil
}

func (z *optimizer) writer(roll int64) (*datafile.Writer, error) {
	l := z.l
	if z.to != nil {
		l = z.to
	}
	return datafile.NewWriter(z.t.store, l, datafile.WriterOptions{
		Roll: roll, Hidden: l.Carry != nil, RowIDs: true, Copied: true, NewID: z.t.opts.NewID, Clock: z.t.opts.Clock,
	})
}

// readOptions are those of files that are copied whole.
func (z *optimizer) readOptions() datafile.ReadOptions {
	return datafile.ReadOptions{Hidden: true, RowIDs: true}
}

func (z *optimizer) rewritten(from []*deltalog.Add, files []datafile.WrittenFile) *rewritten {
	r := &rewritten{from: from}
	tags := commonTags(from)
	for _, f := range files {
		a := f.Add(false)
		a.Tags = maps.Clone(tags)
		if len(from) == 1 {
			// The rows are the same in the same order.
			a.ClusteringProvider = from[0].ClusteringProvider
			a.Tags = maps.Clone(from[0].Tags)
		}
		r.adds = append(r.adds, a)
		r.keys = append(r.keys, f.Key)
		r.rows += f.Rows
	}
	return r
}

// commonTags are the tags that all files agree on, but those of a clustering, which
// is lost when files are joined.
func commonTags(files []*deltalog.Add) map[string]*string {
	var out map[string]*string
	for k, v := range files[0].Tags {
		if strings.HasPrefix(k, "ZCUBE_") || k == tagCluster {
			continue
		}
		same := true
		for _, a := range files[1:] {
			w, ok := a.Tags[k]
			same = same && ok && (v == nil) == (w == nil) && (v == nil || *v == *w)
		}
		if same {
			if out == nil {
				out = map[string]*string{}
			}
			out[k] = v
		}
	}
	return out
}

// discard deletes files that no commit names.
func (z *optimizer) discard(ctx context.Context, done []*rewritten) error {
	s := &Staged{store: z.t.store}
	for _, r := range done {
		if r != nil {
			s.keys = append(s.keys, r.keys...)
			r.keys = nil
		}
	}
	return s.Discard(ctx)
}

// numbers are 0 to n-1.
func numbers(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}
