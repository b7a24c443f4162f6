package postgres

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// spoolMemory is how much of all open streamed transactions is kept in memory.
const spoolMemory = 64 << 20

// Assembler makes whole transactions of protocol version 1 out of messages of any
// version: the pieces of streamed transactions (version 2) are held until they commit,
// in memory and past a bound in files, and come then as if they had never been cut.
// It is used from one goroutine.
type Assembler struct {
	// Dir is where files go; "" is the system's folder for temporary files.
	Dir    string
	memory int // 0: spoolMemory
	held   int
	open   map[uint32]*spool // by transaction id
	in     *spool            // of the piece that is being read
}

// spool holds the messages of one streamed transaction. Each is its subtransaction,
// WAL position, length and bytes.
type spool struct {
	mem     []byte
	file    *os.File
	aborted map[uint32]bool
}

const spoolHead = 4 + 8 + 4

// Feed takes a message in and hands out, through emit, what is now known to count. The
// bytes that emit gets are valid until it returns.
func (a *Assembler) Feed(lsn int64, data []byte, emit func(lsn int64, data []byte) error) error {
	if len(data) == 0 {
		return errShort
	}
	m := &reader{b: data[1:]}
	switch data[0] {
	case 'S':
		xid := m.u32()
		m.u8()
		if a.open == nil {
			a.open = map[uint32]*spool{}
		}
		if a.in = a.open[xid]; a.in == nil {
			a.in = &spool{aborted: map[uint32]bool{}}
			a.open[xid] = a.in
		}
		return m.end()
	case 'E':
		a.in = nil
		return m.end()
	case 'A':
		xid, sub := m.u32(), m.u32()
		if m.bad {
			return errShort
		}
		s := a.open[xid]
		if s == nil {
			return nil
		}
		if xid != sub {
			s.aborted[sub] = true
			return nil
		}
		return a.drop(xid, s)
	case 'c':
		xid := m.u32()
		m.u8()
		commit, end, at := m.u64(), m.u64(), m.u64()
		if err := m.end(); err != nil {
			return err
		}
		return a.commit(xid, commit, end, at, emit)
	}
	if a.in == nil {
		return emit(lsn, data)
	}
	sub := m.u32()
	if m.bad {
		return errShort
	}
	return a.hold(sub, lsn, data[0], m.b)
}

// hold puts a message away without its transaction id.
func (a *Assembler) hold(sub uint32, lsn int64, kind byte, body []byte) error {
	s := a.in
	before := len(s.mem)
	s.mem = binary.BigEndian.AppendUint32(s.mem, sub)
	s.mem = binary.BigEndian.AppendUint64(s.mem, uint64(lsn))
	s.mem = binary.BigEndian.AppendUint32(s.mem, uint32(1+len(body)))
	s.mem = append(append(s.mem, kind), body...)
	a.held += len(s.mem) - before
	limit := a.memory
	if limit == 0 {
		limit = spoolMemory
	}
	if a.held <= limit {
		return nil
	}
	for _, s := range a.open {
		if err := s.spill(a.Dir); err != nil {
			return err
		}
	}
	a.held = 0
	return nil
}

func (s *spool) spill(dir string) error {
	if len(s.mem) == 0 {
		return nil
	}
	if s.file == nil {
		f, err := os.CreateTemp(dir, "sluice-transaction-*")
		if err != nil {
			return fmt.Errorf("hold a streamed transaction: %w", err)
		}
		s.file = f
	}
	if _, err := s.file.Write(s.mem); err != nil {
		return fmt.Errorf("hold a streamed transaction: %w", err)
	}
	s.mem = s.mem[:0]
	return nil
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.file.Close(), os.Remove(s.file.Name()))
	s.file = nil
	if err != nil {
		return fmt.Errorf("remove a streamed transaction: %w", err)
	}
	return nil
}

func (a *Assembler) drop(xid uint32, s *spool) error {
	delete(a.open, xid)
	a.held -= min(a.held, len(s.mem))
	return s.close()
}

// commit hands a transaction out. A relation that was described by a subtransaction
// that was rolled back still stands: the server does not describe it again.
func (a *Assembler) commit(xid uint32, commit, end, at uint64, emit func(int64, []byte) error) error {
	s := a.open[xid]
	if s == nil {
		s = &spool{}
	}
	begin := binary.BigEndian.AppendUint64([]byte{'B'}, commit)
	begin = binary.BigEndian.AppendUint64(begin, at)
	begin = binary.BigEndian.AppendUint32(begin, xid)
	err := emit(int64(commit), begin)
	if err == nil {
		err = s.each(func(sub uint32, lsn int64, data []byte) error {
			if s.aborted[sub] && data[0] != 'R' && data[0] != 'Y' {
				return nil
			}
			return emit(lsn, data)
		})
	}
	if err == nil {
		done := binary.BigEndian.AppendUint64([]byte{'C', 0}, commit)
		done = binary.BigEndian.AppendUint64(done, end)
		done = binary.BigEndian.AppendUint64(done, at)
		err = emit(int64(end), done)
	}
	return errors.Join(err, a.drop(xid, s))
}

// each reads the messages back in order.
func (s *spool) each(f func(sub uint32, lsn int64, data []byte) error) error {
	var from io.Reader = &reader{b: s.mem}
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read a streamed transaction: %w", err)
		}
		from = io.MultiReader(bufio.NewReaderSize(s.file, 1<<16), from)
	}
	var head [spoolHead]byte
	var data []byte
	for {
		if _, err := io.ReadFull(from, head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a streamed transaction: %w", err)
		}
		n := int(binary.BigEndian.Uint32(head[12:]))
		if cap(data) < n {
			data = make([]byte, n)
		}
		data = data[:n]
		if _, err := io.ReadFull(from, data); err != nil {
			return fmt.Errorf("read a streamed transaction: %w", err)
		}
		if err := f(binary.BigEndian.Uint32(head[:]), int64(binary.BigEndian.Uint64(head[4:])), data); err != nil {
			return err
		}
	}
}

// Read implements io.Reader over what is left.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// Close removes what is held.
func (a *Assembler) Close() error {
	var errs []error
	for xid, s := range a.open {
		errs = append(errs, a.drop(xid, s))
	}
	return errors.Join(errs...)
}

// framer gives records their positions: those of an open transaction lie just behind
// where its commit record begins, which is past the end of the commit before and at or
// before the end of its own.
type framer struct {
	end    int64 // the newest position between transactions
	open   bool
	record int64 // End of the records of the open transaction
}

// frame looks at a plain message and returns its record's End.
func (f *framer) frame(data []byte) (int64, error) {
	m := &reader{b: data[1:]}
	switch data[0] {
	case 'B':
		f.record, f.open = int64(m.u64())+1, true
	case 'C':
		m.take(9)
		f.end, f.open = int64(m.u64()), false
	}
	if m.bad {
		return 0, errShort
	}
	if f.open {
		return f.record, nil
	}
	return f.end, nil
}
