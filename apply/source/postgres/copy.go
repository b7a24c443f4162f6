package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

const (
	// copyBlock is the size of a snapshot record.
	copyBlock = 256 << 10
	// copyRange is the number of rows that one COPY reads; the next one goes on behind
	// the last key.
	copyRange = 250_000
)

// block is a piece of a table's snapshot: whole rows, and the key of the last one.
type block struct {
	table *TableInfo
	text  []byte
	rows  int64
	last  []string // nil where the table cannot be read on from a key
	done  bool     // the table is complete
}

// task is a table that is to be copied, from behind a key if there is one.
type task struct {
	table *TableInfo
	after []string
	clear bool // the target is emptied before
}

// copyTables reads tables as of an exported snapshot, several at once, and calls take
// with their blocks from one goroutine. opened is called once every reader holds the
// snapshot: then its exporter may go.
func (s *Source) copyTables(ctx context.Context, snapshot string, tasks []task, opened func() error, take func(*block) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := min(s.opt.Workers, len(tasks))
	conns := make([]*pgx.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			_ = c.Close(context.WithoutCancel(ctx)) // it has only read
		}
	}()
	for range n {
		conn, err := s.connect(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := conn.Exec(ctx, "begin isolation level repeatable read read only"); err != nil {
			return fmt.Errorf("begin snapshot: %w", err)
		}
		if _, err := conn.Exec(ctx, "set transaction snapshot "+quote(snapshot)); err != nil {
			return fmt.Errorf("begin snapshot: %w", err)
		}
	}
	if err := opened(); err != nil {
		return err
	}
	blocks := make(chan *block, n)
	queue := make(chan task, len(tasks))
	for _, t := range tasks {
		queue <- t
	}
	close(queue)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i, conn := range conns {
		wg.Go(func() {
			for t := range queue {
				if errs[i] = copyTable(ctx, conn, t, func(b *block) error {
					select {
					case blocks <- b:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}); errs[i] != nil {
					cancel()
					return
				}
			}
		})
	}
	go func() { wg.Wait(); close(blocks) }()
	var taken error
	for b := range blocks {
		if taken == nil {
			if taken = take(b); taken != nil {
				cancel()
			}
		}
	}
	if taken != nil {
		return taken
	}
	for _, err := range errs { // the first cause, not the cancellations that followed it
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

// copyTable reads one table by ranges of its key.
func copyTable(ctx context.Context, conn *pgx.Conn, t task, send func(*block) error) error {
	after := t.after
	for {
		w := &blockWriter{table: t.table, send: send}
		tag, err := conn.PgConn().CopyTo(ctx, w, t.table.copySQL(after))
		if w.err != nil {
			err = w.err
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", t.table, err)
		}
		end := t.table.keyless() || tag.RowsAffected() < copyRange
		if err := w.flush(end); err != nil {
			return err
		}
		if end {
			return nil
		}
		after = w.last
	}
}

// copySQL reads a range of the table that begins behind a key.
func (t *TableInfo) copySQL(after []string) string {
	var cols, keys, where []string
	for _, c := range t.columns {
		cols = append(cols, pgx.Identifier{c.name}.Sanitize())
	}
	var values []string
	for i, k := range t.Keys {
		keys = append(keys, pgx.Identifier{k}.Sanitize())
		if after == nil {
			continue
		}
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.name == k })
		values = append(values, quote(after[i])+"::"+t.types[at])
	}
	sql := "copy (select " + strings.Join(cols, ", ") + " from "
	if !t.partitioned {
		sql += "only "
	}
	sql += t.sql()
	if t.filter != "" {
		where = append(where, "("+t.filter+")")
	}
	if len(values) > 0 {
		where = append(where, "("+strings.Join(keys, ", ")+") > ("+strings.Join(values, ", ")+")")
	}
	if len(where) > 0 {
		sql += " where " + strings.Join(where, " and ")
	}
	if !t.keyless() {
		sql += fmt.Sprintf(" order by %s limit %d", strings.Join(keys, ", "), copyRange)
	}
	return sql + ") to stdout"
}

// blockWriter gathers the rows of a COPY, which come one a call, into blocks.
type blockWriter struct {
	table *TableInfo
	send  func(*block) error
	buf   []byte
	rows  int64
	row   []byte // the newest one
	last  []string
	err   error
}

// Write implements io.Writer.
func (w *blockWriter) Write(p []byte) (int, error) {
	if len(w.buf)+len(p) > copyBlock && len(w.buf) > 0 {
		if w.err = w.flush(false); w.err != nil {
			return 0, w.err
		}
	}
	if len(p) == 0 || p[len(p)-1] != '\n' {
		w.err = errors.New("the server cut a row")
		return 0, w.err
	}
	w.buf = append(w.buf, p...)
	w.row = append(w.row[:0], p[bytes.LastIndexByte(p[:len(p)-1], '\n')+1:]...)
	w.rows += int64(bytes.Count(p, []byte{'\n'}))
	return len(p), nil
}

func (w *blockWriter) flush(done bool) error {
	if w.rows == 0 && !done {
		return nil
	}
	if w.rows > 0 && !w.table.keyless() {
		var d Decoder
		cells, ok := d.copyRow(bytes.TrimSuffix(w.row, []byte{'\n'}), nil)
		if !ok || len(cells) != len(w.table.columns) {
			return fmt.Errorf("copy %s: a row has %d columns, not %d", w.table, len(cells), len(w.table.columns))
		}
		w.last = nil
		for _, k := range w.table.Keys {
			at := slices.IndexFunc(w.table.columns, func(c column) bool { return c.name == k })
			w.last = append(w.last, string(cells[at].text))
		}
	}
	b := &block{table: w.table, text: w.buf, rows: w.rows, last: w.last, done: done}
	w.buf, w.rows = nil, 0
	return w.send(b)
}

// copyKey is the key of a snapshot's records: its position and the table's shape.
func copyKey(t *TableInfo, at int64) []byte {
	return appendRelation(binary.BigEndian.AppendUint64(nil, uint64(at)), t.relation())
}

// lastKey is a key as a position keeps it.
func lastKey(last []string) string {
	if last == nil {
		return ""
	}
	text, err := json.Marshal(last)
	if err != nil {
		return "" // cannot be: they are texts
	}
	return string(text)
}
