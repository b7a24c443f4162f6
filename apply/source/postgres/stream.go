package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// statusEvery is how often the server hears from us unasked; its own patience
	// (wal_sender_timeout) is a minute unless set otherwise.
	statusEvery = 2 * time.Second
	// pollEvery bounds the wait for one message, so that questions are asked in time.
	pollEvery = 100 * time.Millisecond
	// streamQueue is the number of messages that are read ahead.
	streamQueue = 1024
)

// message is one message of the stream, or a keep-alive: then data is nil and the
// server has sent everything before wal.
type message struct {
	lsn  int64
	wal  int64
	data []byte
	// reply: the server will hang up soon unless it hears from us.
	reply bool
}

// stream reads a slot in the background and answers the server, also while nobody takes
// messages. confirmed is what the server may forget, 0 while nothing is committed.
type stream struct {
	messages  chan message
	confirmed atomic.Int64
	ask       atomic.Bool // the server is to say how far it is
	cancel    context.CancelFunc
	err       error // once messages is closed
	done      chan struct{}
	assembler Assembler
	place     framer
}

// openStream starts to read the slot at a position.
func (s *Source) openStream(ctx context.Context, v *server, at int64) (*stream, error) {
	conn, err := s.replication(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"proto_version '1'"}
	if v.version >= 140000 {
		args = []string{"proto_version '2'", "streaming 'on'"}
	}
	args = append(args, "publication_names "+quote(`"`+string(bytes.ReplaceAll([]byte(s.opt.Publication), []byte(`"`), []byte(`""`)))+`"`))
	if err := pglogrepl.StartReplication(ctx, conn, s.opt.Slot, pglogrepl.LSN(at), pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: args}); err != nil {
		return nil, errors.Join(fmt.Errorf("start replication: %w", err), conn.Close(ctx))
	}
	// The stream outlives the reading that opened it; Close ends it.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	st := &stream{messages: make(chan message, streamQueue), cancel: cancel, done: make(chan struct{}), assembler: Assembler{Dir: s.opt.SpillDir}, place: framer{end: at}}
	st.confirmed.Store(s.committed)
	go func() {
		defer close(st.done)
		defer close(st.messages)
		st.err = st.pump(inner, conn)
		end, stop := context.WithTimeout(context.WithoutCancel(inner), time.Second)
		defer stop()
		if err := conn.Close(end); err != nil && st.err == nil {
			st.err = &lostError{err}
		}
	}()
	return st, nil
}

// pump moves messages from the connection into the queue until it fails or is stopped.
func (st *stream) pump(ctx context.Context, conn *pgconn.PgConn) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	status := func(reply bool) error {
		at := pglogrepl.LSN(st.confirmed.Load())
		return pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: at, WALFlushPosition: at, WALApplyPosition: at, ReplyRequested: reply})
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := status(false); err != nil {
				return &lostError{err}
			}
		default:
		}
		if st.ask.Swap(false) {
			if err := status(true); err != nil {
				return &lostError{err}
			}
		}
		wait, cancel := context.WithTimeout(ctx, pollEvery)
		raw, err := conn.ReceiveMessage(wait)
		cancel()
		if err != nil {
			if pgconn.Timeout(err) && ctx.Err() == nil {
				continue
			}
			return &lostError{err}
		}
		m, ok, err := parse(raw)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if m.reply {
			if err := status(false); err != nil {
				return &lostError{err}
			}
		}
		for sent := false; !sent; {
			select {
			case st.messages <- m:
				sent = true
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				if err := status(false); err != nil {
					return &lostError{err}
				}
			}
		}
	}
}

// parse takes a message of the replication protocol apart; ok is false for those that
// say nothing.
func parse(raw pgproto3.BackendMessage) (m message, ok bool, err error) {
	switch raw := raw.(type) {
	case *pgproto3.ErrorResponse:
		return m, false, fmt.Errorf("read slot: %w", pgconn.ErrorResponseToPgError(raw))
	case *pgproto3.CopyDone:
		return m, false, &lostError{errors.New("the server ended the stream")}
	case *pgproto3.CopyData:
		if len(raw.Data) == 0 {
			return m, false, nil
		}
		switch raw.Data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			k, err := pglogrepl.ParsePrimaryKeepaliveMessage(raw.Data[1:])
			if err != nil {
				return m, false, fmt.Errorf("read slot: %w", err)
			}
			return message{wal: int64(k.ServerWALEnd), reply: k.ReplyRequested}, true, nil
		case pglogrepl.XLogDataByteID:
			x, err := pglogrepl.ParseXLogData(raw.Data[1:])
			if err != nil {
				return m, false, fmt.Errorf("read slot: %w", err)
			}
			return message{lsn: int64(x.WALStart), data: bytes.Clone(x.WALData)}, true, nil
		}
	}
	return m, false, nil
}

// close ends the stream and waits for its goroutine.
func (st *stream) close() error {
	st.cancel()
	for range st.messages { // what nobody takes any more
	}
	<-st.done
	return st.assembler.Close()
}
