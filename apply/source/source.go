package source

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/changes"
	"github.com/sluice-data/sluice/apply/source/debezium"
	"github.com/sluice-data/sluice/apply/source/files"
	"github.com/sluice-data/sluice/apply/source/kafka"
	"github.com/sluice-data/sluice/apply/source/rows"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Format is how records are decoded.
type Format string

// The formats. Auto asks [Detect].
const (
	Auto          Format = "auto"
	Debezium      Format = "debezium"
	DebeziumPlain Format = "debezium-unwrapped"
	Rows          Format = "rows"
	// DeltaFeed is the change feed of a Delta table that From names.
	DeltaFeed Format = "delta"
)

// Formats lists the names that ParseFormat takes: those above and those of
// package changes.
func Formats() []Format {
	out := []Format{Auto, Debezium, DebeziumPlain, Rows, DeltaFeed, Postgres}
	for _, name := range changes.Names() {
		out = append(out, Format(name))
	}
	return out
}

// ParseFormat reads a format's name; "" is Auto.
func ParseFormat(name string) (Format, error) {
	if name == "" {
		return Auto, nil
	}
	for _, f := range Formats() {
		if string(f) == name {
			return f, nil
		}
	}
	return "", &Error{Code: "UNKNOWN_FORMAT", Reason: fmt.Sprintf("%q is no format; there are %s", name, formatNames())}
}

func formatNames() string {
	var out []string
	for _, f := range Formats() {
		out = append(out, string(f))
	}
	return strings.Join(out, ", ")
}

// Spec says what to read and how.
type Spec struct {
	Format Format // "" is Auto
	// Known is the format that the flow keeps, which Auto then stands for: what the first
	// records look like only contradicts it (FORMAT_CHANGED), unless the user named it
	// (Named). "": none.
	Known Format
	Named bool
	// From are files, globs, directories and "-", also as URLs of object stores; or
	// kafka://brokers/topics; or postgres://user@host/database; or, with OpenTable, a
	// Delta table.
	From []string
	// Keys are the user's key columns; nil: those that the format carries.
	Keys []string
	// KeysOf, if set, gives a table key columns of its own, nil where it has none.
	KeysOf func(event.Table) []string
	// Schema types what the records do not (`--schema`); nil: inferred.
	Schema *schema.Struct
	// Evolves: the flow has a mode of schema evolution, so that plain rows bring fields
	// that Schema does not name, and rescue values that fit no type.
	Evolves bool
	// Tables, if not empty, keeps only these source tables.
	Tables []string
	// NoOp: conditions of the flow say what is a delete, so plain rows have no
	// operation column.
	NoOp bool
	// Truncates: a condition of the flow may make an event a truncate, so rows
	// without a key are not poison; the engine refuses those that are none.
	Truncates bool
	// Types are those of columns that JSON and CSV do not tell: of a table that is
	// declared but not there yet. The engine hints those of an existing target.
	Types *schema.Struct
	// Options are format and source options (`--option key=value`): those of
	// package debezium and rows, and max_record_bytes, lines, file_format,
	// delimiter, header, overwrite, stable_age.
	Options map[string]string

	// OpenTable opens the newest version of the Delta table at a path of From; nil
	// where there is none. Without it tables are no sources.
	OpenTable func(ctx context.Context, path string) (*deltalog.Snapshot, error)

	// Once: a server is copied and not followed. Follow: readings follow each other, so
	// one of a server that has much may end early, and a pattern may match no file yet.
	Once, Follow bool

	// OpenStore opens the object store below a URL of From; nil: URLs are refused.
	OpenStore func(location string) (storage.Store, error)

	// TimeZone is the zone of timestamp texts that carry none; nil is UTC.
	TimeZone *time.Location
	Stdin    io.Reader
	// Getenv reads the environment, for user and password of Kafka and registries;
	// nil: it is empty.
	Getenv func(string) string
	// Warn, if set, hears of records that are passed over because an option says so.
	Warn func(format string, args ...any)
	// look: the source is only looked at, so that a feed needs no keys.
	look bool
	// Host names this machine in the identity of files; "": its host name.
	Host string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Error is a source that cannot be opened.
type Error struct{ Code, Reason string }

func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// Opened is a source with what was found out about it.
type Opened struct {
	Source     event.Source
	NewDecoder func() event.Decoder
	Format     Format
	// Explain says why that format, where it was detected.
	Explain string
	// Doubts are reasons why detection may be wrong; Open tells them to Spec.Warn.
	Doubts []string
	// OnPoisonFail: poison stops the flow by default (plain rows); other formats
	// quarantine it.
	OnPoisonFail bool
	// Empty: the format was to be detected and there is not a record yet. Its decoder
	// refuses records (FORMAT_UNCLEAR).
	Empty bool
	// OpColumn is the column of plain rows that holds the operation, where it is
	// known before reading; it is no data column.
	OpColumn string
}

// Open makes the source and its decoders. Without a format the first records
// decide; standard input is buffered for that.
func Open(ctx context.Context, s Spec) (*Opened, error) {
	if out, err := s.openPostgres(); out != nil || err != nil {
		return out, err
	}
	if out, err := s.openFeed(ctx); out != nil || err != nil {
		return out, err
	}
	src, sampler, rest, err := s.records()
	if err != nil {
		return nil, err
	}
	return s.opened(ctx, src, sampler, rest)
}

// OpenRecords is [Open] for records that are at hand instead of in a source, as those
// of a quarantine are: it gives their decoders, and no Source. Where the format is not
// named the records decide. A record without topic whose value is the line of a topic's
// record (a repaired line of a file) is taken for that.
func OpenRecords(ctx context.Context, s Spec, records []*event.Record) (*Opened, error) {
	s.From = []string{"-"}
	s.Stdin = strings.NewReader("")
	fo, rest, err := s.fileOptions()
	if err != nil {
		return nil, err
	}
	sampler := func(context.Context, int) ([]*event.Record, error) {
		var out []*event.Record
		for _, r := range records {
			c := *r
			asTopicRecord(&c, fo.Lines)
			out = append(out, &c)
		}
		return out, nil
	}
	out, err := s.opened(ctx, nil, sampler, rest)
	if err != nil {
		return nil, err
	}
	open := out.NewDecoder
	out.NewDecoder = func() event.Decoder { return &lineDecoder{Decoder: open(), lines: fo.Lines} }
	return out, nil
}

// lineDecoder splits lines that the source would have split.
type lineDecoder struct {
	event.Decoder
	lines string
}

// Add implements event.Decoder.
func (d *lineDecoder) Add(ctx context.Context, r *event.Record) error {
	c := *r
	asTopicRecord(&c, d.lines)
	return d.Decoder.Add(ctx, &c)
}

func asTopicRecord(r *event.Record, lines string) {
	if r.Topic == "" && r.Value != nil && lines != "event" {
		files.ParseLine(r.Value, r)
	}
}

// opened finds the format and makes the decoders of a source.
func (s *Spec) opened(ctx context.Context, src event.Source, sampler func(context.Context, int) ([]*event.Record, error), rest map[string]string) (*Opened, error) {
	out := &Opened{Source: src, Format: s.Format}
	translator, err := s.translator(rest)
	if err != nil {
		return nil, err
	}
	var sample []*event.Record
	auto := s.Format == "" || s.Format == Auto
	if _, stdin := src.(*replay); auto || !stdin && s.Format == Rows {
		if sample, err = sampler(ctx, SampleSize); err != nil {
			return nil, err
		}
		if sample, err = translated(ctx, translator, sample); err != nil {
			return nil, err
		}
	}
	if auto && s.Known != "" {
		if err := s.contradicts(sample); err != nil {
			return nil, err
		}
		out.Format, auto = s.Known, false
	}
	if auto && len(sample) == 0 {
		out.Format, out.Empty, out.NewDecoder = Auto, true, func() event.Decoder { return &undecided{} }
		return out, nil
	}
	if auto {
		if out.Format, out.Explain, err = Detect(sample); err != nil {
			return nil, err
		}
		if out.Format == Rows {
			out.Doubts = doubts(sample)
		}
		for _, w := range out.Doubts {
			if s.Warn != nil && !s.look {
				s.Warn("%s", w)
			}
		}
	}
	if out.Format == Rows && !s.NoOp && rest["op_column"] == "" {
		if name := opColumn(sample); name != "" {
			rest["op_column"] = name
		}
	}
	out.OnPoisonFail = out.Format == Rows
	if name := rest["op_column"]; out.Format == Rows && name != "none" {
		out.OpColumn = name
	}
	known := ""
	if out.Format == Rows {
		records := func(yield func(*event.Record, error) bool) {
			for _, r := range sample {
				if !yield(r, nil) {
					return
				}
			}
		}
		if f, ok := src.(*files.Source); ok && translator == nil {
			records = f.Peek(ctx)
		}
		if known, err = s.lookAhead(ctx, records, rest); err != nil {
			return nil, err
		}
	}
	if out.NewDecoder, err = s.decoder(out.Format, rest, known); err != nil {
		return nil, &Error{Code: "BAD_OPTION", Reason: err.Error()}
	}
	if translator != nil {
		if err := out.behind(translator); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// contradicts refuses records that are clearly of another format than the flow keeps.
// What is not clear is for its decoder to judge, record by record.
func (s *Spec) contradicts(sample []*event.Record) error {
	if s.Named {
		return nil
	}
	got, why, err := Detect(sample)
	if err != nil || got == s.Known {
		return nil
	}
	return &Error{Code: "FORMAT_CHANGED", Reason: fmt.Sprintf("the flow reads %s since it began, and %s; name the format that counts from now on with --format, or give the other stream a flow of its own",
		s.Known, why)}
}

// records opens the source of records, with how to look at its first ones, and
// the options that are left.
func (s *Spec) records() (event.Source, func(context.Context, int) ([]*event.Record, error), map[string]string, error) {
	if len(s.From) > 0 && kafka.IsURL(s.From[0]) {
		if len(s.From) > 1 {
			return nil, nil, nil, &Error{Code: "BAD_OPTION", Reason: "topics are the only source of their flow: name several in one URL, kafka://host:port/a,b"}
		}
		rest := maps.Clone(s.Options)
		if rest == nil {
			rest = map[string]string{}
		}
		env := s.environment()
		o, err := kafka.ParseURL(s.From[0], rest, env)
		if err != nil {
			return nil, nil, nil, err
		}
		src := kafka.New(o)
		src.Warn = s.Warn
		return src, src.Sample, rest, nil
	}
	fo, rest, err := s.fileOptions()
	fo.Dialect = s.dialect()
	if err != nil {
		return nil, nil, nil, err
	}
	src, err := files.New(fo)
	if err != nil {
		return nil, nil, nil, &Error{Code: "BAD_OPTION", Reason: err.Error()}
	}
	if src.HasStdin() {
		buffered := &replay{Source: src}
		return buffered, buffered.sample, rest, nil
	}
	return src, src.Sample, rest, nil
}

func (s *Spec) environment() func(string) string {
	if s.Getenv != nil {
		return s.Getenv
	}
	return func(string) string { return "" }
}

// How many of the first records, of how many bytes, plain rows are looked at for their
// columns and types. Files with columns of their own tell them by the first record.
const (
	aheadRecords = 10_000
	aheadBytes   = 16 << 20
)

// lookAhead decodes the first plain rows for the columns that they have, as the state
// of their decoder, and refuses key columns that no record has.
func (s *Spec) lookAhead(ctx context.Context, records iter.Seq2[*event.Record, error], settings map[string]string) (string, error) {
	d, err := rows.New(rows.Options{Schema: s.Schema, Tables: s.Tables, NoOp: s.NoOp, NullKeys: true, Zone: s.TimeZone, Settings: settings, Types: s.Types})
	if err != nil {
		return "", &Error{Code: "BAD_OPTION", Reason: err.Error()}
	}
	keyed, n := false, 0
	for r, err := range records {
		if err != nil {
			return "", err
		}
		keyed = keyed || len(r.Key) > 0
		if err := d.Add(ctx, r); err != nil {
			return "", err
		}
		n++
		if _, bytes := d.Pending(); n == aheadRecords || bytes > aheadBytes || r.Columns != nil {
			break
		}
	}
	decoded, err := d.Flush()
	if err != nil {
		return "", err
	}
	all := &schema.Struct{}
	for _, b := range decoded.Batches {
		for _, f := range b.Columns.Fields {
			if all.Index(f.Name) < 0 {
				all.Fields = append(all.Fields, f)
			}
		}
	}
	for _, k := range s.Keys {
		if len(all.Fields) > 0 && all.Index(k) < 0 && !keyed {
			return "", &Error{Code: "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA", Reason: fmt.Sprintf("key column %q is in none of the records looked at; they have %s",
				k, strings.Join(all.Names(), ", "))}
		}
	}
	return d.State(), nil
}

// decoder checks the options by making one decoder, and gives a maker of more.
func (s *Spec) decoder(f Format, settings map[string]string, known string) (func() event.Decoder, error) {
	var open func() (event.Decoder, error)
	switch f {
	case Debezium, DebeziumPlain:
		o := debezium.Options{Flat: f == DebeziumPlain, Keys: s.Keys, KeysOf: s.KeysOf, Schema: s.Schema, Tables: s.Tables, Zone: s.TimeZone, Settings: settings}
		open = func() (event.Decoder, error) { return debezium.New(o) }
	case Rows:
		o := rows.Options{Keys: s.Keys, KeysOf: s.KeysOf, Schema: s.Schema, Tables: s.Tables, NoOp: s.NoOp, NullKeys: s.Truncates, Types: s.Types, Evolves: s.Evolves, Known: known, Zone: s.TimeZone, Settings: settings}
		open = func() (event.Decoder, error) { return rows.New(o) }
	default:
		if _, err := ParseFormat(string(f)); err != nil {
			return nil, err
		}
		o := changes.Options{Format: string(f), Keys: s.Keys, KeysOf: s.KeysOf, Schema: s.Schema, Tables: s.Tables, Zone: s.TimeZone, Settings: settings}
		open = func() (event.Decoder, error) { return changes.New(o) }
	}
	if _, err := open(); err != nil {
		return nil, err
	}
	return func() event.Decoder {
		d, err := open()
		if err != nil {
			return nil // cannot be: the same options passed above
		}
		return d
	}, nil
}

// dialect is how CSV files of a change format are written: those of the format that
// is asked for, or those that are named as a format names its files. A header that
// is asked for is read.
func (s *Spec) dialect() func(path string) files.Dialect {
	_, header := s.Options["header"]
	return func(path string) files.Dialect {
		of := string(s.Format)
		if s.Format == Auto || s.Format == "" {
			if of = string(s.Known); of == "" {
				of = changes.FileFormat(path)
			}
		}
		switch of {
		case "dms":
			return files.Dialect{NoHeader: !header, Null: "NULL"}
		case "ticdc":
			return files.Dialect{NoHeader: !header, Null: `\N`}
		}
		return files.Dialect{}
	}
}

// fileOptions takes the options of the file source out of Options.
func (s *Spec) fileOptions() (files.Options, map[string]string, error) {
	o := files.Options{Paths: s.From, OpenStore: s.OpenStore, Stdin: s.Stdin, Host: s.Host, Now: s.Now, Wait: s.Follow}
	rest := maps.Clone(s.Options)
	if rest == nil {
		rest = map[string]string{}
	}
	bad := func(name, value, want string) error {
		return &Error{Code: "BAD_OPTION", Reason: fmt.Sprintf("option %s=%s: want %s", name, value, want)}
	}
	for name, value := range s.Options {
		switch name {
		case "max_record_bytes":
			n, err := strconv.Atoi(value)
			if err != nil || n <= 0 {
				return o, nil, bad(name, value, "a number of bytes")
			}
			o.MaxRecordBytes = n
		case "lines":
			o.Lines = value
		case "file_format":
			o.Format = value
		case "delimiter":
			if value == `\t` {
				value = "\t"
			}
			if len(value) != 1 || value == "\"" || value == "\n" || value == "\r" {
				return o, nil, bad(name, value, "one byte")
			}
			o.Delimiter = value[0]
		case "header":
			if value != "true" && value != "false" {
				return o, nil, bad(name, value, "true or false")
			}
			o.NoHeader = value == "false"
		case "null":
			o.Null = value
		case "overwrite":
			if value != "true" && value != "false" {
				return o, nil, bad(name, value, "true or false")
			}
			o.Overwrite = value == "true"
		case "stable_age":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return o, nil, bad(name, value, "a duration such as 10s")
			}
			o.StableAge = d
		case "clean_source":
			o.Clean = value
		case "archive":
			o.Archive = value
		case "clean_after":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return o, nil, bad(name, value, "a duration such as 168h")
			}
			o.CleanAfter = d
		default:
			continue
		}
		delete(rest, name)
	}
	return o, rest, nil
}

// undecided is the decoder of an empty input without a format.
type undecided struct{ state string }

// Add implements event.Decoder.
func (u *undecided) Add(context.Context, *event.Record) error {
	return &Error{Code: "FORMAT_UNCLEAR", Reason: "the input was empty when it was looked at; name the format with --format"}
}

// Pending implements event.Decoder.
func (u *undecided) Pending() (int, int64) { return 0, 0 }

// Flush implements event.Decoder.
func (u *undecided) Flush() (*event.Decoded, error) {
	return &event.Decoded{Controls: map[event.ControlKind]int64{}}, nil
}

// State implements event.Decoder.
func (u *undecided) State() string { return u.state }

// Restore implements event.Decoder.
func (u *undecided) Restore(state string) error {
	u.state = state
	return nil
}
