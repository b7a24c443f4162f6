package debezium

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/corpora"
)

// add decodes one record and checks that it became exactly one thing: a row (two
// for a split key change), a control event or one poison record.
func add(t *testing.T, d *Decoder, r *event.Record) *event.Decoded {
	t.Helper()
	if err := d.Add(context.Background(), r); err != nil {
		if _, ok := err.(*ConfigError); !ok {
			t.Fatalf("fatal error for one record: %v", err)
		}
	}
	out, err := d.Flush()
	if err != nil {
		t.Fatalf("flush: %v", err)
	}
	return out
}

func count(d *event.Decoded) (rows, controls, poison int) {
	for _, b := range d.Batches {
		rows += len(b.Ops)
	}
	for _, n := range d.Controls {
		controls += int(n)
	}
	return rows, controls, len(d.Poison)
}

var seeds = []string{
	`{"before":null,"after":{"id":1,"v":"x","n":1.5,"a":[1,null],"o":{"k":1}},"source":{"connector":"postgresql","db":"d","schema":"s","table":"t","name":"n","snapshot":"false","lsn":5,"sequence":"[null,\"5\"]"},"op":"c"}`,
	`{"before":{"id":1},"after":{"id":2},"source":{"connector":"mysql","db":"d","table":"t","file":"b.000001","pos":4,"row":0},"op":"u"}`,
	`{"before":{"id":0,"code":"x"},"after":null,"source":{"connector":"postgresql","table":"t","lsn":5},"op":"d"}`,
	`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int32","field":"id"},{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"optional":true,"field":"d"}],"optional":true,"field":"after"}]},"payload":{"after":{"id":1,"d":"MDk="},"source":{"connector":"postgresql","table":"t","lsn":5},"op":"r"}}`,
	`{"after":"{\"_id\":{\"$oid\":\"65\"},\"n\":1}","source":{"connector":"mongodb","collection":"c","ts_ms":5,"ord":1},"op":"c"}`,
	`{"id":1,"v":"x","__op":"c","__deleted":"false","__lsn":5}`,
	`{"status":"BEGIN","id":"9:1","event_count":null}`, `{"ts_ms":1}`, `null`, `{"op":"t","source":{"connector":"sqlserver","table":"t","commit_lsn":"0000003a:000011f0:0004"}}`,
}

// FuzzDecoder: no bytes panic, and every record is accounted for exactly once.
func FuzzDecoder(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), []byte(`{"id":1}`), false)
		f.Add([]byte(s), []byte(nil), true)
	}
	for _, folder := range []string{"debezium/*", "foreign/debezium-json/*", "foreign/debezium-mongodb/*", "foreign/debezium-flat/*", "foreign/kafka-connect-json/*"} {
		for _, s := range corpora.Seeds(f, 20, append(strings.Split(folder, "/"), "events.jsonl*")...) {
			f.Add(s.Value, s.Key, strings.Contains(folder, "flat"))
		}
	}
	f.Fuzz(func(t *testing.T, value, key []byte, flat bool) {
		d, err := New(Options{Flat: flat})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time the table is known
			rows, controls, poison := count(add(t, d, &event.Record{Source: "s", Topic: "a.b.t", Key: key, Value: value, Raw: value}))
			if n := rows + controls + poison; n != 1 && !(rows == 2 && controls+poison == 0) {
				t.Fatalf("%d rows, %d controls, %d poison", rows, controls, poison)
			}
		}
		fresh, _ := New(Options{Flat: flat})
		if err := fresh.Restore(d.State()); err != nil {
			t.Fatalf("state %q: %v", d.State(), err)
		}
	})
}

// TestDecoder_ByteFlips: no flipped byte of a record panics or gives a row of
// another key than the record then says.
func TestDecoder_ByteFlips(t *testing.T) {
	for _, s := range seeds {
		for i := range len(s) {
			for _, b := range []byte{0, '"', '{', '}', '0', 'x', 0xff, s[i] ^ 1} {
				flipped := []byte(s[:i] + string([]byte{b}) + s[i+1:])
				for _, flat := range []bool{false, true} {
					d, _ := New(Options{Flat: flat})
					out := add(t, d, &event.Record{Source: "s", Topic: "a.b.t", Key: []byte(`{"id":1}`), Value: flipped, Raw: flipped})
					rows, controls, poison := count(out)
					if n := rows + controls + poison; n != 1 && rows != 2 {
						t.Fatalf("%q: %d rows, %d controls, %d poison", flipped, rows, controls, poison)
					}
					for _, p := range out.Poison {
						if p.Code == "" || p.Class == "" || strings.ContainsAny(p.Code, " :") {
							t.Fatalf("%q: poison without code: %+v", flipped, p)
						}
					}
				}
			}
		}
	}
}

// TestDecoder_TruncateFirst: a later run that begins with a truncate knows the
// table's key from the state of the run before.
func TestDecoder_TruncateFirst(t *testing.T) {
	for _, value := range []string{
		`{"after":{"id":1,"v":"x"},"source":{"connector":"postgresql","table":"t","lsn":5},"op":"c"}`,
		`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int32","field":"id"}],"field":"after"}]},"payload":{"after":{"id":1},"source":{"connector":"postgresql","table":"t","lsn":5},"op":"r"}}`,
	} {
		d, _ := New(Options{})
		out := add(t, d, &event.Record{Key: []byte(`{"id":1}`), Value: []byte(value)})
		want := out.Batches[0].Columns.Fields[0]
		fresh, _ := New(Options{})
		if err := fresh.Restore(d.State()); err != nil {
			t.Fatal(err)
		}
		out = add(t, fresh, &event.Record{Value: []byte(`{"source":{"connector":"postgresql","table":"t","lsn":9},"op":"t"}`)})
		b := out.Batches[0]
		if len(b.Keys) != 1 || b.Keys[0] != "id" || len(b.Columns.Fields) != 1 || b.Columns.Fields[0].Type != want.Type || b.Ops[0] != event.Truncate {
			t.Fatalf("keys %v, columns %s, want %v", b.Keys, b.Columns, want)
		}
		out = add(t, fresh, &event.Record{Key: []byte(`{"id":2}`), Value: []byte(value)})
		if len(out.Batches) != 1 || len(out.Poison) != 0 || out.Batches[0].Columns.Fields[0].Type != want.Type {
			t.Fatalf("rows after it: %+v", out)
		}
	}
}

// TestDecoder_F1_B_DocumentsAcrossRuns: a document of a later run that lacks a field
// says that it is null, though that run has not seen the field; a column of dates stays one.
func TestDecoder_F1_B_DocumentsAcrossRuns(t *testing.T) {
	doc := func(ts, body string) *event.Record {
		return &event.Record{Value: []byte(`{"after":"{\"_id\":1` + body + `}","source":{"connector":"mongodb","db":"d","collection":"c","ts_ms":` + ts + `},"op":"u"}`)}
	}
	d, _ := New(Options{})
	add(t, d, doc("5", `,\"note\":\"n\",\"at\":{\"$date\":1715934615123}`))
	fresh, _ := New(Options{})
	if err := fresh.Restore(d.State()); err != nil {
		t.Fatal(err)
	}
	b := add(t, fresh, doc("6", `,\"x\":2`)).Batches[0]
	for name, typ := range map[string]string{"note": "STRING", "at": "TIMESTAMP", "x": "BIGINT"} {
		i := b.Columns.Index(name)
		if i < 0 || b.Columns.Fields[i].Type.String() != typ || b.Unauthored[i].Get(0) || b.Rows.Column(i).IsNull(0) != (name != "x") {
			t.Errorf("column %s of %s", name, b.Columns)
		}
	}
}
