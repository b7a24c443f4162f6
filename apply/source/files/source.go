package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
)

// Options of a source; only Paths is needed.
type Options struct {
	// Paths are files, globs, directories (read with all below them), "-", and the same
	// as URLs of object stores.
	Paths []string
	// OpenStore opens the store below a URL; nil: URLs are refused.
	OpenStore func(location string) (storage.Store, error)
	// Stdin is what "-" reads.
	Stdin io.Reader
	// Host names this machine in file identities; "": os.Hostname.
	Host string
	// MaxRecordBytes bounds a line; a longer one is poison. 0: 64 MiB.
	MaxRecordBytes int
	// Lines says what a text line is: "event", "record" (of a topic), or "auto"
	// ("", tell by its members).
	Lines string
	// Format forces how files are read: "lines", "csv", "parquet", "avro"; "": by name
	// and first bytes.
	Format string
	// Delimiter of CSV; 0: a tab in .tsv files, else a comma.
	Delimiter byte
	// NoHeader: the first CSV record is data; columns are named _c0, _c1 ...
	NoHeader bool
	// Null is an unquoted CSV field that is null, beside the empty one.
	Null string
	// Dialect, if set, says how the CSV file of a path is written beyond the options.
	Dialect func(path string) Dialect
	// Overwrite reads a file that changed since it was read again from its start;
	// else that is FILE_CHANGED.
	Overwrite bool
	// Wait: a pattern may match no file yet; else that is NOT_FOUND, unless files of it were read before.
	Wait bool
	// StableAge is how long a file must be unchanged before an unfinished last
	// line counts. 0: a minute; the last CSV record: a second.
	StableAge time.Duration
	// Clean is what happens to files that were read to their end, once that is committed
	// and they have rested for StableAge and CleanAfter: "" (they are kept), CleanDelete,
	// or CleanArchive (moved below Archive). Their positions are forgotten.
	Clean      string
	CleanAfter time.Duration
	Archive    string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Dialect is how a producer writes CSV.
type Dialect struct {
	NoHeader bool
	Null     string
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Paths) == 0 {
		return o, errors.New("read files: no path given")
	}
	for _, p := range o.Paths {
		if p == "-" && o.Stdin == nil {
			return o, errors.New("read files: no standard input given")
		}
	}
	if o.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("name this host: %w", err)
		}
		o.Host = host
	}
	if o.MaxRecordBytes <= 0 {
		o.MaxRecordBytes = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch o.Lines {
	case "", "auto", "event", "record":
	default:
		return o, fmt.Errorf("option lines=%s: want auto, event or record", o.Lines)
	}
	switch o.Format {
	case "", "lines", "csv", "parquet", "avro":
	default:
		return o, fmt.Errorf("option file_format=%s: want lines, csv, parquet or avro", o.Format)
	}
	return o, o.checkClean()
}

// Error is a file that cannot be read on. Code is stable: FILE_CHANGED,
// INPUT_GONE, NOT_FOUND, FILE_UNREADABLE.
type Error struct {
	Code, Path, Reason string
	Err                error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %s: %v", e.Code, e.Path, e.Reason, e.Err)
	}
	return fmt.Sprintf("%s: %s: %s", e.Code, e.Path, e.Reason)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Source reads files; it implements event.Source.
type Source struct {
	opt       Options
	positions map[string]event.Position
	order     []string
	cur       *reader // the file being read
	stdinDone bool
	inputs    []input         // of the last reading
	gone      map[string]bool // what was taken away
}

// New makes a source; files are looked for when Records runs.
func New(o Options) (*Source, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Source{opt: o, positions: map[string]event.Position{}, gone: map[string]bool{}}, nil
}

// Records implements event.Source.
func (s *Source) Records(ctx context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		inputs, err := s.find(ctx, from)
		if err != nil {
			yield(nil, err)
			return
		}
		s.inputs = inputs
		s.forgetGone(from)
		for _, in := range inputs {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			pos, known := s.positions[in.uri]
			if known && pos.Gone {
				pos, known = event.Position{}, false // another file took its name
			} else if !known {
				pos, known = from[in.uri]
			}
			more, err := s.file(ctx, in, pos, known, yield)
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

// file reads one input on from its position; false: the consumer has enough.
func (s *Source) file(ctx context.Context, in input, pos event.Position, known bool, yield func(*event.Record, error) bool) (bool, error) {
	if in.stdin && s.stdinDone {
		return true, nil
	}
	r, err := s.open(ctx, in, pos, known)
	if err != nil || r == nil {
		return true, err
	}
	s.cur = r
	defer func() {
		s.keep(r)
		s.cur = nil
		r.close()
	}()
	more, err := r.read(ctx, func(rec *event.Record) bool { return yield(rec, nil) })
	if err != nil {
		return false, err
	}
	if more && in.stdin {
		s.stdinDone = true
	}
	return more, nil
}

// keep notes how far r has come.
func (s *Source) keep(r *reader) {
	p, ok := r.position()
	if !ok {
		return
	}
	delete(s.gone, p.Source)
	if _, seen := s.positions[p.Source]; !seen {
		s.order = append(s.order, p.Source)
	}
	s.positions[p.Source] = p
}

// Positions implements event.Source.
func (s *Source) Positions() ([]event.Position, error) {
	if s.cur != nil {
		s.keep(s.cur)
	}
	out := make([]event.Position, 0, len(s.order))
	for _, uri := range s.order {
		out = append(out, s.positions[uri])
	}
	return out, nil
}

// Close implements event.Source.
func (s *Source) Close() error { return nil }

// Sample reads up to n records from the start of the input without moving any
// position; records are copies. Standard input cannot be sampled.
func (s *Source) Sample(ctx context.Context, n int) ([]*event.Record, error) {
	var out []*event.Record
	for rec, err := range s.Peek(ctx) {
		if err != nil {
			return out, err
		}
		out = append(out, Clone(rec))
		if len(out) >= n {
			break
		}
	}
	return out, nil
}

// Peek reads the input from its start without moving any position. Standard input
// cannot be read so.
func (s *Source) Peek(ctx context.Context) iter.Seq2[*event.Record, error] {
	t := &Source{opt: s.opt, positions: map[string]event.Position{}, gone: map[string]bool{}}
	t.opt.Wait = true // Records knows what was read before, and answers for it
	return t.Records(ctx, nil)
}

// Clone copies a record so that it outlives the next one.
func Clone(r *event.Record) *event.Record {
	c := *r
	cp := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		return append([]byte{}, b...)
	}
	c.Key, c.Value, c.Raw = cp(r.Key), cp(r.Value), cp(r.Raw)
	c.Headers = make([]event.Header, len(r.Headers))
	for i, h := range r.Headers {
		c.Headers[i] = event.Header{Key: h.Key, Value: cp(h.Value)}
	}
	if c.Columns != nil {
		c.Columns.Retain()
	}
	return &c
}

// HasStdin tells whether an argument is "-".
func (s *Source) HasStdin() bool {
	for _, p := range s.opt.Paths {
		if p == "-" {
			return true
		}
	}
	return false
}

func notFound(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Code: "NOT_FOUND", Path: path, Reason: "no such file", Err: fs.ErrNotExist}
	}
	return &Error{Code: "FILE_UNREADABLE", Path: path, Reason: "cannot be read", Err: err}
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
