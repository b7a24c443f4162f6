package postgres

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-data/sluice/apply/event"
)

const (
	// idleStep is how far the server's WAL runs ahead before a position without changes
	// is worth a commit: one segment.
	idleStep = 16 << 20
	// askEvery is how often the server is asked whether that was all.
	askEvery = 200 * time.Millisecond
)

// follow reads the stream from a position to where the server's WAL ends now. After a
// lost connection that position is what was read, so the server is told what every
// target has committed, and no more (invariant 6).
func (s *Source) follow(ctx context.Context, start event.Position, began time.Time, yield func(*event.Record, error) bool) error {
	if s.stream != nil && start.Offset < s.yielded {
		// Something that was read did not arrive everywhere: read it again.
		if err := s.stream.close(); err != nil {
			return err
		}
		s.stream = nil
	}
	if s.stream == nil {
		var err error
		if s.stream, err = s.openStream(ctx, s.server, start.Offset); err != nil {
			return err
		}
		s.yielded, s.replayed = 0, true
		clear(s.relations)
		s.pos[start.Source] = start
	}
	if s.committed > s.stream.confirmed.Load() {
		s.stream.confirmed.Store(s.committed)
	}
	var target int64
	if err := s.conn.QueryRow(ctx, `select ((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end) - '0/0'::pg_lsn)::bigint`).Scan(&target); err != nil {
		return fmt.Errorf("look at server: %w", err)
	}
	if err := s.read(ctx, start.Source, target, began, yield); err != nil {
		return err
	}
	return s.watch(ctx)
}

// read yields the messages up to target.
func (s *Source) read(ctx context.Context, id string, target int64, began time.Time, yield func(*event.Record, error) bool) error {
	st := s.stream
	st.ask.Store(true)
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	emit := func(lsn int64, data []byte) error { return s.emit(ctx, id, lsn, data, yield) }
	for {
		var m message
		var open bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			st.ask.Store(true)
			continue
		case m, open = <-st.messages:
		}
		if !open {
			return fmt.Errorf("read slot: %w", st.err)
		}
		if m.data == nil {
			if st.place.open || m.wal < target {
				continue
			}
			if p := s.pos[id]; m.wal-p.Offset >= idleStep {
				p.Offset = m.wal
				s.pos[id] = p
			}
			return nil
		}
		if err := st.assembler.Feed(m.lsn, m.data, emit); err != nil {
			return err
		}
		if !st.place.open && (st.place.end >= target || s.opt.Round > 0 && s.opt.Now().Sub(began) > s.opt.Round) && s.pos[id].Offset == st.place.end {
			return nil
		}
	}
}

// emit yields one message of protocol 1, with what the decoder must know before it.
func (s *Source) emit(ctx context.Context, id string, lsn int64, data []byte, yield func(*event.Record, error) bool) error {
	st := s.stream
	if !s.replayed {
		s.replayed = true
		for _, oid := range slices.Sorted(maps.Keys(s.relations)) {
			if err := s.relation(ctx, id, s.relations[oid], yield); err != nil {
				return err
			}
		}
	}
	end, err := st.place.frame(data)
	if err != nil {
		return err
	}
	if data[0] == 'R' {
		return s.relation(ctx, id, bytes.Clone(data), yield)
	}
	if !st.place.open && end > s.pos[id].Offset {
		p := s.pos[id]
		p.Offset = end
		s.pos[id] = p
	}
	s.yielded = max(s.yielded, end)
	if !yield(&event.Record{Source: id, Value: data, Raw: data, Size: int64(len(data)), Transport: lsn, End: end, Line: lsn}, nil) {
		return errStop
	}
	return nil
}

// relation yields an R message, with what the decoder must know before it.
func (s *Source) relation(ctx context.Context, id string, data []byte, yield func(*event.Record, error) bool) error {
	m := &reader{b: data[1:]}
	rel, err := m.relationBody()
	if err != nil {
		return err
	}
	s.relations[rel.oid] = data
	if err := s.describe(ctx, rel, yield); err != nil {
		return err
	}
	if !yield(&event.Record{Source: id, Value: data, Raw: data, Size: int64(len(data)), End: s.pos[id].Offset}, nil) {
		return errStop
	}
	return nil
}

// describe looks up what an R message does not say: unknown types, and the primary key
// where the identity is not one.
func (s *Source) describe(ctx context.Context, rel *relation, yield func(*event.Record, error) bool) error {
	var oids []uint32
	for _, c := range rel.columns {
		oids = append(oids, c.oid)
	}
	var keys map[string][]string
	if rel.identity == 'f' || rel.identity == 'n' {
		t := &TableInfo{Schema: rel.schema, Name: rel.name, oid: rel.oid, Identity: string(rel.identity)}
		if err := t.describe(ctx, s.conn); err != nil {
			return err
		}
		if len(t.Keys) > 0 {
			keys = map[string][]string{t.String(): t.Keys}
		}
	}
	return s.tell(ctx, s.prefix(s.server.system), oids, keys, yield)
}

// watch looks at what the slot holds back.
func (s *Source) watch(ctx context.Context) error {
	sl, err := s.slotOf(ctx, s.conn)
	if err != nil {
		return err
	}
	s.retained.Store(sl.retained)
	if sl.retained > s.opt.WarnRetained || sl.walStatus == "unreserved" {
		s.warn("slot %s holds back more than %d MiB of WAL on the server (wal_status %s): is the flow far behind, or another transaction open for long?", s.opt.Slot, s.opt.WarnRetained>>20, sl.walStatus)
	}
	return nil
}
