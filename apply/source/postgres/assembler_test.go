package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/corpora"
)

// piece writes messages of protocol 2.
type piece struct{ out [][]byte }

func (p *piece) add(parts ...any) {
	var b []byte
	for _, x := range parts {
		switch x := x.(type) {
		case byte:
			b = append(b, x)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, x)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, x)
		case string:
			b = append(b, x...)
		}
	}
	p.out = append(p.out, b)
}

func (p *piece) start(xid uint32)            { p.add(byte('S'), xid, byte(0)) }
func (p *piece) stop()                       { p.add(byte('E')) }
func (p *piece) row(sub uint32, text string) { p.add(byte('I'), sub, text) }
func (p *piece) abort(xid, sub uint32)       { p.add(byte('A'), xid, sub) }
func (p *piece) commit(xid uint32, lsn, end uint64) {
	p.add(byte('c'), xid, byte(0), lsn, end, uint64(0))
}
func (p *piece) whole(text string, lsn, end uint64) {
	p.add(byte('B'), lsn, uint64(0), uint32(9))
	p.add(byte('I'), text)
	p.add(byte('C'), byte(0), lsn, end, uint64(0))
}

// assembled runs messages through an assembler and prints what counts.
func assembled(t *testing.T, memory int, in [][]byte) (string, *Assembler) {
	t.Helper()
	a := &Assembler{Dir: t.TempDir(), memory: memory}
	var out []string
	var place framer
	for i, data := range in {
		err := a.Feed(int64(i), data, func(_ int64, m []byte) error {
			end, err := place.frame(m)
			if err != nil {
				return err
			}
			switch m[0] {
			case 'B', 'C':
				out = append(out, fmt.Sprintf("%c%d", m[0], end))
			default:
				out = append(out, fmt.Sprintf("%s@%d", m, end))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(out, " "), a
}

// TestAssembler_F11 interleaves the pieces of two streamed transactions with a whole one:
// order is that of the commits, what was rolled back is gone, descriptions stay.
func TestAssembler_F11(t *testing.T) {
	var p piece
	p.start(100)
	p.row(100, "a1")
	p.row(101, "gone")
	p.add(byte('R'), uint32(101), "shape")
	p.stop()
	p.whole("w", 500, 510)
	p.start(200)
	p.row(200, "b1")
	p.stop()
	p.start(300)
	p.row(300, "never")
	p.stop()
	p.abort(100, 101)
	p.start(100)
	p.row(102, "a2")
	p.stop()
	p.commit(200, 600, 620)
	p.abort(300, 300)
	p.commit(100, 700, 720)
	want := "B501 Iw@501 C510 B601 Ib1@601 C620 B701 Ia1@701 Rshape@701 Ia2@701 C720"
	for _, memory := range []int{0, 1, 40} { // all in memory, all in files, mixed
		got, a := assembled(t, memory, p.out)
		if got != want {
			t.Errorf("memory %d:\n got %s\nwant %s", memory, got, want)
		}
		if left, err := os.ReadDir(a.Dir); err != nil || len(left) > 0 || len(a.open) > 0 || a.held != 0 {
			t.Errorf("memory %d: left behind: %v %v, %d bytes held", memory, left, a.open, a.held)
		}
	}
}

// TestAssembler_Close removes what a connection that ended left open.
func TestAssembler_Close(t *testing.T) {
	var p piece
	p.start(100)
	p.row(100, "a1")
	_, a := assembled(t, 1, p.out)
	if left, _ := os.ReadDir(a.Dir); len(left) != 1 {
		t.Fatalf("%d files", len(left))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(a.Dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestReader_Damaged cuts and lengthens messages at every byte: an error, never a panic
// or a value from beyond the end.
func TestReader_Damaged(t *testing.T) {
	rel := &relation{oid: 7, schema: "s", name: "t", identity: 'f', columns: []column{{key: true, name: "id", oid: 23, mod: -1}, {name: "v", oid: 25, mod: -1}}}
	whole := appendRelation(nil, rel)
	got, err := (&reader{b: whole}).relationBody()
	if err != nil || !reflect.DeepEqual(got, rel) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range whole {
		if _, err := (&reader{b: whole[:n]}).relationBody(); err == nil {
			t.Errorf("cut at %d: no error", n)
		}
	}
	if _, err := (&reader{b: append(whole, 0)}).relationBody(); err == nil {
		t.Error("a byte too many: no error")
	}
}

func FuzzDecoder(f *testing.F) {
	rel := appendRelation([]byte{'R'}, &relation{oid: 7, schema: "s", name: "t", identity: 'd', columns: []column{{key: true, name: "id", oid: 23, mod: -1}, {name: "v", oid: 1007, mod: -1}}})
	f.Add(rel)
	f.Add([]byte("I\x00\x00\x00\x07N\x00\x02t\x00\x00\x00\x011t\x00\x00\x00\x03{1}"))
	f.Add([]byte("U\x00\x00\x00\x07K\x00\x02t\x00\x00\x00\x011nN\x00\x02t\x00\x00\x00\x012u"))
	f.Add([]byte("T\x00\x00\x00\x01\x00\x00\x00\x00\x07"))
	for _, s := range corpora.Seeds(f, 300, "producers", "pg-pgoutput-plain", "events.jsonl*") {
		var m struct{ Data string }
		if json.Unmarshal(s.Value, &m) != nil {
			continue
		}
		if b, err := hex.DecodeString(m.Data); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := NewDecoder(DecoderOptions{})
		begin := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte{'B', 0, 0, 0, 0, 0, 0, 0, 5}, 0), 1)
		for _, m := range [][]byte{rel, begin, data} {
			if err := d.Add(t.Context(), record(m)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		var a Assembler
		_ = a.Feed(1, data, func(int64, []byte) error { return nil }) // an error or not, but no panic
	})
}
