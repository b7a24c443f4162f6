package apply

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/cespare/xxhash/v2"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/storage"
)

// Codes of replays.
const (
	// CodeUnknownRecord: a record to be replayed is not in the quarantine.
	CodeUnknownRecord = "QUARANTINE_RECORD_UNKNOWN"
	// CodeOtherTable: a repaired record names another table than the one it was
	// quarantined for.
	CodeOtherTable = "REPLAY_OTHER_TABLE"
	// CodeInvalidRepair: a repaired record is not in the form that one is shown in.
	CodeInvalidRepair = "INVALID_REPAIR"
)

// Quarantined is one record that was set aside (cdc-formats 0.4).
type Quarantined struct {
	// ID is that of the record's place and bytes; the same for ever.
	ID   string
	Flow string
	// Table is the source table as text, "source" where it is not known.
	Table  string
	Class  event.Class
	Code   string
	Reason string
	Delete bool // it would have deleted a row
	At     time.Time
	// Record is as it stood in the source: position, key, value, headers, Raw. A
	// record without Value and Key (a line that could not be split, a columnar row)
	// has Raw alone; its repair gives a value.
	Record event.Record
}

// recordID is the identity of a quarantined record: where it stood and its bytes.
func recordID(r *event.Record) string {
	h := xxhash.New()
	for _, s := range []string{r.Source, r.Topic} {
		h.WriteString(s)
		h.Write([]byte{0})
	}
	var b []byte
	for _, n := range []int64{int64(r.Partition), r.Transport, r.End, r.Line} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	h.Write(b)
	for _, p := range [][]byte{r.Key, r.Value, r.Raw} {
		h.Write(p)
		h.Write([]byte{0})
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Quarantine is an opened table of records that were set aside.
type Quarantine struct {
	table *delta.Table
	o     Options
}

// OpenQuarantine opens the quarantine in store, which is rooted at its directory
// (<target>/_apply/quarantine/, or <root>/_quarantine/ of several targets for records
// whose table is not known). Where nothing was ever set aside it fails with
// [delta.ErrNotFound].
func OpenQuarantine(ctx context.Context, store storage.Store, o Options) (*Quarantine, error) {
	o = o.withDefaults()
	t, err := delta.Open(ctx, store, delta.Options{Clock: o.Clock, NewID: o.NewID, Logger: o.Logger, EngineInfo: o.EngineInfo})
	if err != nil {
		return nil, fmt.Errorf("open quarantine: %w", err)
	}
	return &Quarantine{table: t, o: o}, nil
}

// Records yields what waits in the quarantine, each record once, in no order. They
// are the caller's.
func (q *Quarantine) Records(ctx context.Context) iter.Seq2[Quarantined, error] {
	return func(yield func(Quarantined, error) bool) {
		scan, err := q.table.Scan(ctx, delta.ScanOptions{})
		if err != nil {
			yield(Quarantined{}, fmt.Errorf("read quarantine: %w", err))
			return
		}
		if got, want := scan.Schema().Names(), quarantineSchema().Names(); !slices.Equal(got, want) {
			yield(Quarantined{}, stored(CodeInvalidTarget, "this is no quarantine: its columns are %s, not %s", strings.Join(got, ", "), strings.Join(want, ", ")))
			return
		}
		seen := map[string]bool{}
		for b, err := range scan.Batches(ctx) {
			if err != nil {
				yield(Quarantined{}, fmt.Errorf("read quarantine: %w", err))
				return
			}
			text := func(c, r int) string {
				if a := b.Column(c).(*array.String); a.IsValid(r) {
					return strings.Clone(a.Value(r))
				}
				return ""
			}
			long := func(c, r int) int64 { return b.Column(c).(*array.Int64).Value(r) }
			raw := func(c, r int) []byte {
				if a := b.Column(c).(*array.Binary); a.IsValid(r) {
					return append([]byte{}, a.Value(r)...)
				}
				return nil
			}
			for r := range int(b.NumRows()) {
				x := Quarantined{ID: text(0, r), Flow: text(1, r), Table: text(8, r), Class: event.Class(text(9, r)), Code: text(10, r), Reason: text(11, r),
					Delete: b.Column(12).(*array.Boolean).Value(r), At: time.UnixMicro(int64(b.Column(17).(*array.Timestamp).Value(r))).UTC(),
					Record: event.Record{Source: text(2, r), Topic: text(3, r), Partition: b.Column(4).(*array.Int32).Value(r), Transport: long(5, r),
						End: long(6, r), Line: long(7, r), Key: raw(13, r), Value: raw(14, r), Raw: raw(16, r)}}
				if seen[x.ID] {
					continue
				}
				seen[x.ID] = true
				if h := text(15, r); h != "" {
					if err := json.Unmarshal([]byte(h), &x.Record.Headers); err != nil {
						yield(Quarantined{}, fmt.Errorf("read quarantine: headers of record %s: %w", x.ID, err))
						return
					}
				}
				if !yield(x, nil) {
					return
				}
			}
		}
	}
}

// ReplayResult is what a replay did.
type ReplayResult struct {
	// Replayed records were applied (or had nothing to say any more) and left the
	// quarantine; Still are those that cannot be applied yet and stay.
	Replayed int64         `json:"replayed"`
	Still    []StillPoison `json:"still,omitempty"`
	// Runs are the results of the flows whose records these were.
	Runs []Result `json:"runs"`
}

// StillPoison is a record that a replay could not apply.
type StillPoison struct {
	ID     string      `json:"id"`
	Class  event.Class `json:"class"`
	Code   string      `json:"code"`
	Reason string      `json:"reason"`
}

// Replay applies records of the quarantine as if they had come then: each goes
// through the flow that set it aside, with the place in the source that orders it,
// so what is newer stays. spec is that flow (decoder, target, settings) without
// Source and name. Records that were applied leave the quarantine after the target's
// commit. A crash between the two is harmless: an event that comes again changes
// nothing. One that still cannot be decoded stays, and the others go on; an error
// leaves all that its flow brought in the quarantine.
func (q *Quarantine) Replay(ctx context.Context, records []Quarantined, spec Spec) (ReplayResult, error) {
	var out ReplayResult
	if spec.Source != nil || spec.Snapshots != nil || spec.NewDecoder == nil {
		return out, analysis("INVALID_OPTION", "a replay brings its own source and needs a decoder")
	}
	if err := q.known(ctx, records); err != nil {
		return out, err
	}
	var flows []string
	of := map[string][]Quarantined{}
	for _, r := range records {
		if of[r.Flow] == nil {
			flows = append(flows, r.Flow)
		}
		of[r.Flow] = append(of[r.Flow], r)
	}
	for _, name := range flows {
		list := of[name]
		s := &sieve{records: list, still: map[int64]event.Poison{}}
		one := spec
		one.Source, one.Flow.Name, one.Flow.Once = s, name, false
		one.Flow.OnPoison = PoisonFail // what still names no row stays where it is
		one.NewDecoder = func() event.Decoder { return s.over(spec.NewDecoder()) }
		r, err := Run(ctx, one, q.o)
		out.Runs = append(out.Runs, r)
		if err != nil {
			return out, err
		}
		var done []string
		for i, x := range list {
			if p, ok := s.still[int64(i)]; ok {
				out.Still = append(out.Still, StillPoison{ID: x.ID, Class: p.Class, Code: p.Code, Reason: p.Reason})
				continue
			}
			done = append(done, x.ID)
		}
		if !spec.Flow.DryRun {
			if err := q.remove(ctx, done); err != nil {
				return out, err
			}
		}
		out.Replayed += int64(len(done))
	}
	return out, nil
}

// known checks that every record is in the quarantine, before anything is written.
func (q *Quarantine) known(ctx context.Context, records []Quarantined) error {
	there := map[string]bool{}
	for x, err := range q.Records(ctx) {
		if err != nil {
			return err
		}
		there[x.ID] = true
	}
	for _, r := range records {
		if !there[r.ID] {
			return running(CodeUnknownRecord, "record %q is not in the quarantine; it may have been replayed already", r.ID)
		}
	}
	return nil
}

// removeAtOnce bounds the condition of one commit.
const removeAtOnce = 1000

func (q *Quarantine) remove(ctx context.Context, ids []string) error {
	for part := range slices.Chunk(ids, removeAtOnce) {
		if _, err := q.table.Delete(ctx, "id IN ('"+strings.Join(part, "', '")+"')", delta.DMLOptions{}); err != nil {
			return fmt.Errorf("take replayed records out of the quarantine: %w", err)
		}
	}
	return nil
}

// replaySource is what records of a replay name as their source: no flow has a
// position of it, so nothing counts as read before.
const replaySource = "sluice-quarantine"

// sieve is the source of a replay, and keeps what its decoder cannot decode back.
type sieve struct {
	event.Decoder
	records []Quarantined
	still   map[int64]event.Poison // by index in records
	tables  map[string]bool
}

// Records implements event.Source. A record's End is its number, so that poison
// tells which one it was.
func (s *sieve) Records(ctx context.Context, _ map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		for i, x := range s.records {
			if err := ctx.Err(); err != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			r := x.Record
			r.Source, r.End = replaySource, int64(i)+1
			if r.Value == nil && r.Key == nil {
				s.still[int64(i)] = event.Poison{Class: x.Class, Code: x.Code, Reason: "the record has neither value nor key to decode; repair it by giving it a value"}
				continue
			}
			if !yield(&r, nil) {
				return
			}
		}
	}
}

// Positions implements event.Source: a replay has none.
func (s *sieve) Positions() ([]event.Position, error) { return nil, nil }

// Close implements event.Source.
func (s *sieve) Close() error { return nil }

// over puts the sieve behind a decoder.
func (s *sieve) over(d event.Decoder) event.Decoder {
	s.tables = map[string]bool{}
	for _, x := range s.records {
		s.tables[x.Table] = true
	}
	s.Decoder = d
	return s
}

// Flush implements event.Decoder.
func (s *sieve) Flush() (*event.Decoded, error) {
	d, err := s.Decoder.Flush()
	if err != nil {
		return nil, err
	}
	for _, p := range d.Poison {
		s.still[p.Record.End-1] = p
	}
	d.Poison = nil
	unknown := s.tables[tableText(event.Table{})]
	for _, b := range d.Batches {
		if name := tableText(b.Table); !unknown && !s.tables[name] {
			return nil, running(CodeOtherTable, "a repaired record is one of table %s, and none of that table is replayed; nothing was applied", name)
		}
	}
	return d, nil
}

// quarantinedJSON is the form of a record as one line of JSON. Bytes that are text
// stand as they are, others in base64 under the names with _base64.
type quarantinedJSON struct {
	ID          string       `json:"id"`
	Flow        string       `json:"flow"`
	Table       string       `json:"table"`
	Class       event.Class  `json:"class"`
	Code        string       `json:"code"`
	Reason      string       `json:"reason"`
	Delete      bool         `json:"delete"`
	At          time.Time    `json:"quarantined_at"`
	Source      string       `json:"source"`
	Topic       string       `json:"topic,omitempty"`
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	Line        int64        `json:"line"`
	Key         *string      `json:"key,omitempty"`
	KeyBase64   []byte       `json:"key_base64,omitempty"`
	Value       *string      `json:"value"`
	ValueBase64 []byte       `json:"value_base64,omitempty"`
	Raw         *string      `json:"raw,omitempty"`
	RawBase64   []byte       `json:"raw_base64,omitempty"`
	Headers     []headerJSON `json:"headers,omitempty"`
}

type headerJSON struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (x Quarantined) MarshalJSON() ([]byte, error) {
	r := x.Record
	j := quarantinedJSON{ID: x.ID, Flow: x.Flow, Table: x.Table, Class: x.Class, Code: x.Code, Reason: x.Reason, Delete: x.Delete, At: x.At,
		Source: r.Source, Topic: r.Topic, Partition: r.Partition, Offset: r.Transport, Line: r.Line}
	j.Key, j.KeyBase64 = bytesJSON(r.Key)
	j.Value, j.ValueBase64 = bytesJSON(r.Value)
	if !bytes.Equal(r.Raw, r.Value) {
		j.Raw, j.RawBase64 = bytesJSON(r.Raw)
	}
	for _, h := range r.Headers {
		e := headerJSON{Key: h.Key}
		e.Value, e.ValueBase64 = bytesJSON(h.Value)
		j.Headers = append(j.Headers, e)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a line that people edit
	if err := enc.Encode(j); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func bytesJSON(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !json.Valid(quoted(b)) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// quoted is b as a JSON text if its bytes survive that, else nothing valid.
func quoted(b []byte) []byte {
	q, err := json.Marshal(string(b))
	var back string
	if err != nil || json.Unmarshal(q, &back) != nil || back != string(b) {
		return nil
	}
	return q
}

// Repair takes the members of a line of JSON over that say what the record holds:
// key, value and headers, as text, as JSON, as null, or in base64 under key_base64
// and value_base64. What the line does not name stays.
func (x *Quarantined) Repair(line []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(line, &m); err != nil {
		return running(CodeInvalidRepair, "a repaired record must be a JSON object: %v", err)
	}
	for _, f := range []struct {
		name string
		into *[]byte
	}{{"key", &x.Record.Key}, {"value", &x.Record.Value}} {
		plain, isPlain := m[f.name]
		if coded, ok := m[f.name+"_base64"]; ok && string(coded) != "null" {
			var b []byte
			if err := json.Unmarshal(coded, &b); err != nil {
				return running(CodeInvalidRepair, "record %s: %s_base64: %v", x.ID, f.name, err)
			}
			*f.into = b
			continue
		}
		if isPlain {
			b, err := repaired(plain)
			if err != nil {
				return running(CodeInvalidRepair, "record %s: %s: %v", x.ID, f.name, err)
			}
			*f.into = b
		}
	}
	if h, ok := m["headers"]; ok {
		var list []headerJSON
		if err := json.Unmarshal(h, &list); err != nil {
			return running(CodeInvalidRepair, "record %s: headers: %v", x.ID, err)
		}
		x.Record.Headers = nil
		for _, e := range list {
			v := e.ValueBase64
			if e.Value != nil {
				v = []byte(*e.Value)
			}
			x.Record.Headers = append(x.Record.Headers, event.Header{Key: e.Key, Value: v})
		}
	}
	x.Record.Fault = ""
	return nil
}

// repaired is the bytes that a member stands for: of a text its characters, of
// other JSON itself.
func repaired(raw json.RawMessage) ([]byte, error) {
	switch {
	case string(raw) == "null":
		return nil, nil
	case len(raw) > 0 && raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return []byte(s), err
	case len(raw) == 0:
		return nil, errors.New("it is empty")
	}
	return bytes.Clone(raw), nil
}
