package postgres

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// recorded reads the corpus of raw messages.
func recorded(t *testing.T, dir string) []*event.Record {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []*event.Record
	var place framer
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var line struct{ Data, LSN string }
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		data, err := hex.DecodeString(line.Data)
		if err != nil {
			t.Fatal(err)
		}
		at, err := pglogrepl.ParseLSN(line.LSN)
		if err != nil {
			t.Fatal(err)
		}
		end, err := place.frame(data)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &event.Record{Source: "s", Value: data, Transport: int64(at), End: end, Line: int64(len(out) + 1)})
	}
	return out
}

// decode runs records through a decoder that is flushed every n records; 0: once.
func decode(t *testing.T, o DecoderOptions, records []*event.Record, n int) ([]*event.Batch, *event.Decoded) {
	t.Helper()
	d := NewDecoder(o)
	all := &event.Decoded{Controls: map[event.ControlKind]int64{}}
	flush := func() {
		got, err := d.Flush()
		if err != nil {
			t.Fatal(err)
		}
		all.Batches = append(all.Batches, got.Batches...)
		all.Poison = append(all.Poison, got.Poison...)
		all.Warnings = append(all.Warnings, got.Warnings...)
		for k, v := range got.Controls {
			all.Controls[k] += v
		}
	}
	for i, r := range records {
		if err := d.Add(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		if n > 0 && i%n == n-1 {
			flush()
		}
	}
	flush()
	return all.Batches, all
}

const itemOID = 0x43cb

// initial is the snapshot of item as a record of COPY's text.
func initial(t *testing.T, dir string, at int64) *event.Record {
	rel := &relation{oid: itemOID, schema: "public", name: "item", identity: 'd', columns: []column{
		{key: true, name: "id", oid: oidInt4, mod: -1}, {name: "v", oid: 25, mod: -1}, {name: "n", oid: oidNumeric, mod: 10<<16 + 2 + 4}, {name: "big", oid: 25, mod: -1}}}
	var text bytes.Buffer
	for _, row := range corpora.ReadRows(t, filepath.Join(dir, "expected", "initial", "item.jsonl")) {
		for i, col := range []string{"id", "v", "n", "big"} {
			if i > 0 {
				text.WriteByte('\t')
			}
			if row[col] == nil {
				text.WriteString(`\N`)
			} else {
				fmt.Fprint(&text, row[col])
			}
		}
		text.WriteByte('\n')
	}
	return &event.Record{Source: "snapshot", Topic: TopicCopy, Key: appendRelation(binary.BigEndian.AppendUint64(nil, uint64(at)), rel), Value: text.Bytes(), End: 1}
}

// TestDecoder_F11 decodes recorded pgoutput and compares with what the database held.
func TestDecoder_F11(t *testing.T) {
	dir := testenv.SharedDir(t, "corpora", "producers", "pg-pgoutput-plain")
	c := corpora.Load(t, dir)
	for name, columns := range map[string]map[string]string{
		"item":  {"id": "integer", "v": "text", "n": "numeric(10,2)", "big": "text", "extra": "integer", "late": "text"},
		"fullt": {"id": "integer", "v": "text", "a": "integer[]"},
	} {
		table := c.Tables[name]
		table.Columns = columns
		c.Tables[name] = table
	}
	catalog := &event.Record{Source: "s", Topic: TopicCatalog, Value: []byte(`{"keys":{"public.fullt":["id"]}}`)}
	stream := recorded(t, dir)
	records := append([]*event.Record{initial(t, dir, stream[0].Transport), catalog}, stream...)
	check := func(what string, list []corpora.Change) {
		t.Helper()
		for _, name := range []string{"item", "fullt"} {
			rows := corpora.Fold(list)[name].Images()
			for _, row := range rows {
				// The database fills an added column with its default and sends no rows.
				for col, value := range map[string]any{"extra": int64(5), "late": "l"} {
					if _, authored := row[col]; !authored && name == "item" {
						row[col] = value
					}
				}
			}
			corpora.SameRows(t, what+": "+name, corpora.CanonRows(c, name, rows), corpora.ExpectedRows(t, c, dir, name))
		}
	}
	var list []corpora.Change
	for _, n := range []int{0, 1, 7, 100} {
		list = nil
		batches, all := decode(t, DecoderOptions{}, records, n)
		for _, p := range all.Poison {
			t.Errorf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
		}
		for _, b := range batches {
			list = append(list, corpora.Changes(b)...)
		}
		check(fmt.Sprintf("cut every %d records", n), list)
	}
	rng := rand.New(rand.NewSource(1))
	for range 5 {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		check("shuffled", list)
	}
	var twice []corpora.Change
	check("read twice", append(append(twice, list...), list...))
}

// TestDecoder_F11Sequence: no two changes of one key have one sequence, and the
// position is that of the commit, as a begin states it.
func TestDecoder_F11Sequence(t *testing.T) {
	dir := testenv.SharedDir(t, "corpora", "producers", "pg-pgoutput-plain")
	batches, _ := decode(t, DecoderOptions{Epoch: 3}, recorded(t, dir), 0)
	seen, rows := map[string]bool{}, 0
	for _, b := range batches {
		if !schema.Equal(b.SeqType, wire.SeqPostgres.Type()) {
			t.Fatal(b.SeqType)
		}
		for _, ch := range corpora.Changes(b) {
			id := fmt.Sprint(ch.Table, ch.Key, ch.Seq)
			if ch.Op != event.Truncate && seen[id] {
				t.Errorf("twice: %s", id)
			}
			seen[id] = true
			if fmt.Sprint(ch.Seq[0], ch.Seq[2]) != "3 1" || ch.Seq[1].(int64) < ch.Seq[3].(int64) {
				t.Errorf("sequence %v", ch.Seq)
			}
			rows++
		}
	}
	if rows < 500 {
		t.Errorf("%d rows", rows)
	}
}

// TestDecoder_F11Overtaken: a row that moved before a broken copy was taken up again may
// have left its long value behind; that is said, not stored as null.
func TestDecoder_F11Overtaken(t *testing.T) {
	rel := &relation{oid: 7, schema: "s", name: "t", identity: 'd', columns: []column{{key: true, name: "id", oid: oidInt4, mod: -1}, {name: "v", oid: 25, mod: -1}}}
	begin := func(commit uint64) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{'B'}, commit), 0), 1)
	}
	moves := []byte("U\x00\x00\x00\x07K\x00\x02t\x00\x00\x00\x011nN\x00\x02t\x00\x00\x00\x012u")
	for _, c := range []struct {
		commit uint64
		code   string
	}{{99, "COPY_OVERTAKEN"}, {100, ""}} {
		d := NewDecoder(DecoderOptions{})
		var err error
		for _, r := range []*event.Record{{Topic: TopicCatalog, Value: []byte(`{"overtaken":{"s.t":100}}`)}, record(appendRelation([]byte{'R'}, rel)), record(begin(c.commit)), record(moves)} {
			if err = d.Add(t.Context(), r); err != nil {
				break
			}
		}
		var e *Error
		if got := errors.As(err, &e); got != (c.code != "") || got && e.Code != c.code {
			t.Errorf("commit %d: %v", c.commit, err)
		}
	}
}
