package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-data/sluice/apply/event"
)

// Source yields a snapshot of tables and then the changes of a slot; it implements
// event.Source and is used from one goroutine.
type Source struct {
	opt Options
	// Warn, if set, hears of tables that are left out, lost connections and retained WAL.
	Warn func(format string, args ...any)
	// Progress, if set, hears how far the snapshot is: rows that were read, and about
	// how many there are.
	Progress func(table string, rows, estimate int64)

	conn   *pgx.Conn // for queries
	stream *stream
	server *server
	pos    map[string]event.Position
	// committed is the position in the stream that this reading began with, which every
	// target has; 0 if there is none.
	committed int64
	yielded   int64           // End of the newest record of the stream that was yielded
	anew      map[string]bool // tables that this process has copied
	warned    map[string]bool
	types     map[uint32]bool // told to the decoder
	// relations are the R messages of the open stream, which says each only once, by
	// their tables; replayed says that this reading's decoder has them.
	relations map[uint32][]byte
	replayed  bool
	retained  atomic.Int64
}

// New makes a source; nothing is dialled before records are asked for.
func New(o Options) *Source {
	return &Source{opt: o, pos: map[string]event.Position{}, warned: map[string]bool{}, types: map[uint32]bool{}, relations: map[uint32][]byte{}, anew: map[string]bool{}}
}

// NewDecoder makes a decoder for what the source yields.
func (s *Source) NewDecoder(o DecoderOptions) *Decoder {
	o.Epoch, o.Want, o.Database = s.opt.Epoch, s.opt.wanted, s.opt.Conn.Database
	return NewDecoder(o)
}

// RetainedWAL is how many bytes of WAL the slot held back when it was last looked at.
// It may be called from any goroutine.
func (s *Source) RetainedWAL() int64 { return s.retained.Load() }

// lostError is a connection that was lost or could not be made: it is tried again.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// lost tells whether trying again may help.
func lost(err error) bool {
	var l *lostError
	var pg *pgconn.PgError
	var dial *pgconn.ConnectError
	var op net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &pg):
		// Shutting down, starting up, connections gone or all taken, slot in use still.
		return pg.Code[:2] == "08" || pg.Code[:3] == "57P" || pg.Code == "53300" || pg.Code == "55006"
	case errors.As(err, &l), errors.As(err, &dial), errors.As(err, &op):
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) ||
		strings.Contains(err.Error(), "conn closed")
}

// errStop ends a reading that the engine no longer wants.
var errStop = errors.New("stop")

// Records implements event.Source. A connection that is lost is tried again, from the
// newest position between two transactions: what is then read twice has the sequences
// that it had.
func (s *Source) Records(ctx context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		began := s.opt.Now()
		// A server that never answered is an error at once, unless it is to be followed.
		met := s.server != nil || s.opt.Round > 0
		s.begin(from)
		from = s.merged(from)
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
			progress := s.progress()
			err := s.round(ctx, from, began, yield)
			if err == nil || errors.Is(err, errStop) {
				if err != nil {
					s.hangUp()
				}
				return
			}
			s.hangUp()
			met = met || s.server != nil
			if s.progress() != progress {
				began, wait = s.opt.Now(), 100*time.Millisecond
			}
			var pg *pgconn.PgError
			if !lost(err) || !met && !errors.As(err, &pg) || s.opt.Now().Sub(began) > s.opt.Patience {
				yield(nil, s.named(err))
				return
			}
			s.warn("the connection to %s was lost (%v); trying again", s.place(), err)
			select {
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			case <-time.After(wait):
			}
			from = s.merged(from)
		}
	}
}

// begin takes the committed positions. What was read further counts for nothing, but for
// tables without rows, which leave no trace anywhere. The decoder is a new one.
func (s *Source) begin(from map[string]event.Position) {
	maps.DeleteFunc(s.pos, func(_ string, p event.Position) bool { return !p.Done || p.Offset > 0 })
	s.committed = 0
	for id, p := range from {
		if strings.HasPrefix(id, "postgres:") {
			s.pos[id] = p
			if strings.HasSuffix(id, "/stream") {
				s.committed = p.Offset
			}
		}
	}
	clear(s.types)
	s.replayed = false
}

// named gives errors of the server a code.
func (s *Source) named(err error) error {
	var e *Error
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &e):
		return err
	case errors.As(err, &pg):
		switch pg.Code {
		case "55006":
			return &Error{"SLOT_BUSY", fmt.Sprintf("slot %s is in use by another reader: every flow needs a slot of its own (slot=NAME): %s", s.opt.Slot, pg.Message)}
		case "53400":
			return &Error{"SETUP_NEEDED", "every replication slot is taken: ALTER SYSTEM SET max_replication_slots = 20; -- then restart: " + pg.Message}
		case "42501":
			return &Error{"SETUP_NEEDED", fmt.Sprintf("role %s lacks a right: %s", s.opt.Conn.User, pg.Message)}
		case "55000", "58P01":
			if strings.Contains(pg.Message, "slot") {
				return &Error{"SLOT_LOST", fmt.Sprintf("slot %s can no longer be read: %s; %s", s.opt.Slot, pg.Message, wayOut)}
			}
		case "42704":
			if strings.Contains(pg.Message, "publication") {
				return &Error{"SOURCE_CHANGED", fmt.Sprintf("publication %s is not there at the slot's position: %s; %s", s.opt.Publication, pg.Message, wayOut)}
			}
		}
	case lost(err):
		return &Error{"SERVER_UNREACHABLE", err.Error()}
	}
	return fmt.Errorf("read %s: %w", s.place(), err)
}

// wayOut is what helps when the stream has a gap.
const wayOut = "what happened meanwhile is not in the stream: drop the slot, run `sluice apply` with a full refresh or `sluice reset` of the flow, and the tables are copied anew"

// merged are the positions that a reading may go on from after a lost connection.
func (s *Source) merged(from map[string]event.Position) map[string]event.Position {
	out := maps.Clone(from)
	if out == nil {
		out = map[string]event.Position{}
	}
	maps.Copy(out, s.pos)
	return out
}

// progress changes with every position.
func (s *Source) progress() int64 {
	n := s.yielded
	for _, p := range s.pos {
		n += p.Offset
	}
	return n
}

// prefix begins the names of this slot's positions.
func (s *Source) prefix(system string) string {
	return "postgres:" + system + "/" + url.PathEscape(s.opt.Conn.Database) + "/" + s.opt.Slot + "/"
}

// round reads what is there now.
func (s *Source) round(ctx context.Context, from map[string]event.Position, began time.Time, yield func(*event.Record, error) bool) error {
	if s.conn == nil {
		conn, err := s.connect(ctx)
		if err != nil {
			return err
		}
		s.conn = conn
	}
	var sl *slot
	var err error
	if s.stream == nil {
		if s.server, sl, err = s.look(ctx, s.conn); err != nil {
			return err
		}
	} else if sl, err = s.slotOf(ctx, s.conn); err != nil {
		return err
	}
	m, err := s.check(ctx, s.conn, s.server, sl)
	if err != nil {
		return err
	}
	if s.server.system == "" && len(m) == 0 {
		if err := s.identify(ctx, s.server); err != nil {
			return err
		}
	}
	base := s.prefix(s.server.system)
	if len(m) == 0 {
		if err := s.checkKnown(base, from, sl); err != nil {
			return err
		}
	}
	tables, err := s.publication(ctx, s.conn, s.server, m, true)
	if err != nil {
		return err
	}
	start, ok := from[base+"stream"]
	if !ok {
		start = event.Position{Source: base + "stream", Offset: sl.confirmed, Check: fmt.Sprintf("timeline=%d", s.server.timeline)}
	}
	s.pos[start.Source] = start
	if err := s.copyMissing(ctx, base, tables, sl, yield); err != nil {
		return err
	}
	if s.opt.SnapshotOnly {
		return nil
	}
	if start.Offset == 0 {
		start = s.pos[base+"stream"]
	}
	if limits := s.overtaken(base, tables); limits != nil {
		if err := s.send(base, Catalog{Overtaken: limits}, yield); err != nil {
			return err
		}
	}
	return s.follow(ctx, start, began, yield)
}

// checkKnown compares stored positions with the server and slot that are there.
func (s *Source) checkKnown(base string, from map[string]event.Position, sl *slot) error {
	switch {
	case sl.exists && sl.plugin != "pgoutput":
		return fail("SLOT_FOREIGN", "slot %s belongs to plugin %s; name another one with slot=NAME", s.opt.Slot, sl.plugin)
	case sl.exists && sl.database != s.opt.Conn.Database:
		return fail("SLOT_FOREIGN", "slot %s belongs to database %s; name another one with slot=NAME", s.opt.Slot, sl.database)
	case sl.exists && sl.walStatus == "lost":
		return fail("SLOT_LOST", "the server has removed WAL that slot %s needed (max_slot_wal_keep_size); %s", s.opt.Slot, wayOut)
	}
	for id, p := range from {
		if !strings.HasPrefix(id, "postgres:") {
			continue
		}
		if !strings.HasPrefix(id, base) {
			return fail("SOURCE_CHANGED", "the flow has read %s, and this is %s: another server, database or slot, whose positions mean something else; go back to it, or start a new flow", strings.TrimSuffix(id, "stream"), base)
		}
		if !sl.exists {
			return fail("SLOT_LOST", "slot %s is gone; %s", s.opt.Slot, wayOut)
		}
		if id != base+"stream" {
			continue
		}
		if tl, ok := strings.CutPrefix(p.Check, "timeline="); ok && tl != strconv.Itoa(s.server.timeline) && s.opt.Timeline != s.server.timeline {
			return fail("SOURCE_CHANGED", "the server is on timeline %d, and the flow has read timeline %s: it was restored or promoted, and may lack changes that were read; if it lacks none, go on with option timeline=%d; else %s", s.server.timeline, tl, s.server.timeline, wayOut)
		}
		switch {
		case p.Offset > s.server.wal && s.stream == nil:
			return fail("SOURCE_CHANGED", "the flow has read up to %s, and the server's WAL ends at %s: it is a restored copy; %s", lsnText(p.Offset), lsnText(s.server.wal), wayOut)
		case sl.exists && sl.confirmed > p.Offset:
			return fail("INPUT_GONE", "slot %s stands at %s, and the flow has read up to %s: something else moved or re-created the slot; %s", s.opt.Slot, lsnText(sl.confirmed), lsnText(p.Offset), wayOut)
		}
	}
	return nil
}

func lsnText(n int64) string { return fmt.Sprintf("%X/%X", uint64(n)>>32, uint32(n)) }

// copyMissing copies the tables that have no complete snapshot, and makes the slot if
// there is none.
func (s *Source) copyMissing(ctx context.Context, base string, tables []*row, sl *slot, yield func(*event.Record, error) bool) error {
	var tasks []task
	for _, t := range tables {
		done, after := s.copied(base, t)
		anew := s.opt.wantedAnew(t.Schema, t.Name) && !s.anew[t.String()]
		if anew {
			after = nil
		}
		if !done || anew {
			tasks = append(tasks, task{&t.TableInfo, after, anew && (done || s.began(base, t))})
		}
	}
	if sl.exists && len(tasks) == 0 {
		return nil
	}
	exporter, snapshot, at, err := s.snapshotOf(ctx, !sl.exists)
	if err != nil {
		return err
	}
	closed := false
	release := func() error {
		if closed {
			return nil
		}
		closed = true
		if err := exporter.Close(context.WithoutCancel(ctx)); err != nil {
			return &lostError{err}
		}
		return nil
	}
	if !sl.exists {
		id := base + "stream"
		s.pos[id] = event.Position{Source: id, Offset: at, Check: fmt.Sprintf("timeline=%d", s.server.timeline)}
	}
	if len(tasks) == 0 {
		return release()
	}
	var oids []uint32
	for _, t := range tables {
		for _, c := range t.columns {
			oids = append(oids, c.oid)
		}
	}
	if err := s.tell(ctx, base, oids, nil, yield); err != nil {
		return errors.Join(err, release())
	}
	rows := map[*TableInfo]int64{}
	marks := map[*TableInfo]string{}
	for _, t := range tasks {
		if t.after != nil {
			marks[t.table] = resumed
		}
		if !t.clear {
			continue
		}
		id := copyID(base, t.table, at)
		rows[t.table] = 1
		s.pos[id] = event.Position{Source: id, Offset: 1}
		if !yield(&event.Record{Source: id, Topic: TopicClear, Key: copyKey(t.table, at), End: 1, Line: 1}, nil) {
			return errors.Join(errStop, release())
		}
	}
	err = s.copyTables(ctx, snapshot, tasks, release, func(b *block) error {
		id := copyID(base, b.table, at)
		rows[b.table] += b.rows
		p := event.Position{Source: id, Offset: rows[b.table], Check: marks[b.table] + lastKey(b.last)}
		s.pos[id] = p
		if s.Progress != nil {
			s.Progress(b.table.String(), rows[b.table], b.table.Rows)
		}
		if b.rows > 0 {
			r := &event.Record{Source: id, Topic: TopicCopy, Key: copyKey(b.table, at), Value: b.text, Raw: b.text, Size: int64(len(b.text)), End: p.Offset, Line: p.Offset}
			if !yield(r, nil) {
				return errStop
			}
		}
		if b.done {
			p.Done = true
			s.pos[id] = p
			s.anew[b.table.String()] = true
		}
		return nil
	})
	return errors.Join(err, release())
}

// began tells whether something of the table was copied before.
func (s *Source) began(base string, t *row) bool {
	_, at := s.newest(base, &t.TableInfo)
	return at >= 0
}

// copyID names the snapshot of a table as of a position: another try is another source,
// as its rows are others.
func copyID(base string, t *TableInfo, at int64) string {
	return base + "copy/" + url.PathEscape(t.Schema) + "." + url.PathEscape(t.Name) + "@" + strconv.FormatInt(at, 10)
}

// resumed marks the position of a copy that was read on from another one.
const resumed = "+"

// newest is the table's last copy, and its position in the WAL; -1 if there is none.
func (s *Source) newest(base string, t *TableInfo) (p event.Position, at int64) {
	at = -1
	prefix := strings.TrimSuffix(copyID(base, t, 0), "0")
	for id, have := range s.pos {
		text, ok := strings.CutPrefix(id, prefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > at {
			p, at = have, n
		}
	}
	return p, at
}

// copied tells whether a table's snapshot is complete, and else behind which key it
// goes on.
func (s *Source) copied(base string, t *row) (done bool, after []string) {
	p, at := s.newest(base, &t.TableInfo)
	if at < 0 || p.Done {
		return at >= 0, nil
	}
	var key []string
	if json.Unmarshal([]byte(strings.TrimPrefix(p.Check, resumed)), &key) != nil || len(key) != len(t.Keys) {
		return false, nil
	}
	return false, key
}

// overtaken tells the decoder up to which commit a row that moves may come from where
// its table was not copied yet: the last copy was read on from an older one.
func (s *Source) overtaken(base string, tables []*row) map[string]int64 {
	var out map[string]int64
	for _, t := range tables {
		if p, at := s.newest(base, &t.TableInfo); at > s.pos[base+"stream"].Offset && strings.HasPrefix(p.Check, resumed) {
			if out == nil {
				out = map[string]int64{}
			}
			out[t.String()] = at
		}
	}
	return out
}

// tell yields a catalog record of the types that the decoder does not know yet, and of
// keys.
func (s *Source) tell(ctx context.Context, base string, oids []uint32, keys map[string][]string, yield func(*event.Record, error) bool) error {
	oids = slices.DeleteFunc(oids, func(o uint32) bool { return s.types[o] && keys == nil || known(o) })
	if len(oids) == 0 && len(keys) == 0 {
		return nil
	}
	defs, err := typesOf(ctx, s.conn, oids)
	if err != nil {
		return err
	}
	for _, o := range oids {
		s.types[o] = true
	}
	return s.send(base, Catalog{Types: defs, Keys: keys}, yield)
}

// send yields a catalog record.
func (s *Source) send(base string, c Catalog, yield func(*event.Record, error) bool) error {
	value, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("describe types: %w", err)
	}
	p := s.pos[base+"stream"]
	if !yield(&event.Record{Source: p.Source, Topic: TopicCatalog, Value: value, End: p.Offset}, nil) {
		return errStop
	}
	return nil
}

// Positions implements event.Source.
func (s *Source) Positions() ([]event.Position, error) {
	out := make([]event.Position, 0, len(s.pos))
	for _, k := range slices.Sorted(maps.Keys(s.pos)) {
		if s.pos[k].Offset > 0 || s.pos[k].Done {
			out = append(out, s.pos[k])
		}
	}
	return out, nil
}

// hangUp closes the connections; the next reading opens them anew.
func (s *Source) hangUp() {
	if s.stream != nil {
		_ = s.stream.close() // its error is that of the reading
		s.stream = nil
	}
	if s.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = s.conn.Close(ctx) // nothing hangs on it
		cancel()
		s.conn = nil
	}
}

// Close implements event.Source.
func (s *Source) Close() error { s.hangUp(); return nil }

// warn says something once.
func (s *Source) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.Warn != nil && !s.warned[text] {
		s.warned[text] = true
		s.Warn("%s", text)
	}
}
