package changes

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
)

// openMessage frames events as TiCDC's open protocol does.
func openMessage(keys, values []string) (key, value []byte) {
	key = binary.BigEndian.AppendUint64(nil, 1)
	for i, k := range keys {
		key = append(binary.BigEndian.AppendUint64(key, uint64(len(k))), k...)
		value = append(binary.BigEndian.AppendUint64(value, uint64(len(values[i]))), values[i]...)
	}
	return key, value
}

// printed is what a decoder made of its records.
func printed(t *testing.T, d *Decoder) string {
	t.Helper()
	out, err := d.Flush()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, batch := range out.Batches {
		fmt.Fprintf(&b, "%s.%s %v %s\n", batch.Table.Database, batch.Table.Name, batch.Keys, batch.Columns)
		js, err := batch.Rows.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%v %s\n", batch.Ops, js)
	}
	for _, p := range out.Poison {
		fmt.Fprintf(&b, "poison %s %s %v\n", p.Class, p.Code, p.Delete)
	}
	for _, k := range []event.ControlKind{event.ControlSchema, event.ControlHeartbeat} {
		if n := out.Controls[k]; n > 0 {
			fmt.Fprintf(&b, "%s %d\n", k, n)
		}
	}
	return b.String()
}

func add(t *testing.T, d *Decoder, n int64, key, value []byte) {
	t.Helper()
	if err := d.Add(context.Background(), &event.Record{Source: "s", Transport: n, End: n + 1, Line: n + 1, Key: key, Value: value, Raw: value}); err != nil {
		t.Fatal(err)
	}
}

// TestTiCDC_F5_A_Open: several events in the frames of one message, types by code and flags.
func TestTiCDC_F5_A_Open(t *testing.T) {
	key, value := openMessage([]string{
		`{"ts":10,"scm":"logi","tbl":"parcels","t":1}`,
		`{"ts":11,"scm":"logi","tbl":"parcels","t":1}`,
		`{"ts":12,"scm":"logi","tbl":"parcels","t":1}`,
	}, []string{
		`{"u":{"id":{"t":8,"h":true,"f":139,"v":18446744073709551615},"txt":{"t":252,"f":64,"v":"aGnDvA=="},"bin":{"t":252,"f":65,"v":"AP8="},"vb":{"t":15,"f":65,"v":"\\x89PNG\\n"},"fee":{"t":246,"f":64,"v":"2.50"},"at":{"t":12,"f":64,"v":"2024-05-17 08:30:15"},"e":{"t":247,"f":64,"v":2},"ok":{"t":1,"f":64,"v":null}}}`,
		`{"u":{"id":{"t":8,"h":true,"f":139,"v":2},"fee":{"t":246,"f":64,"v":"3.00"}},"p":{"id":{"t":8,"h":true,"f":139,"v":18446744073709551615},"fee":{"t":246,"f":64,"v":"2.50"}}}`,
		`{"d":{"id":{"t":8,"h":true,"f":139,"v":2},"fee":{"t":246,"f":64,"v":"3.00"}}}`,
	})
	for _, encoded := range []bool{false, true} {
		settings := map[string]string{}
		k, v := key, value
		if encoded {
			settings["encoding"] = "base64"
			k, v = []byte(base64.StdEncoding.EncodeToString(key)), []byte(base64.StdEncoding.EncodeToString(value))
		}
		d, err := New(Options{Format: "ticdc", Settings: settings})
		if err != nil {
			t.Fatal(err)
		}
		add(t, d, 0, k, v)
		got := printed(t, d)
		want := `logi.parcels [id] STRUCT<id: DECIMAL(20,0), txt: STRING, bin: BINARY, vb: BINARY, fee: STRING, at: TIMESTAMP_NTZ, e: STRING, ok: SMALLINT>
` + fmt.Sprint([]event.Op{event.Upsert, event.Delete, event.Upsert, event.Delete}) + ` [{"at":"2024-05-17T08:30:15","bin":"AP8=","e":"2","fee":"2.50","id":"18446744073709551615","ok":null,"txt":"hiü","vb":"iVBORwo="}
,{"at":null,"bin":null,"e":null,"fee":null,"id":"18446744073709551615","ok":null,"txt":null,"vb":null}
,{"at":null,"bin":null,"e":null,"fee":"3.00","id":"2","ok":null,"txt":null,"vb":null}
,{"at":null,"bin":null,"e":null,"fee":null,"id":"2","ok":null,"txt":null,"vb":null}
]
`
		if got != want {
			t.Errorf("encoded %v:\n%s\nwant\n%s", encoded, got, want)
		}
	}
}

// TestTiCDC_F5_E_Open: DDL and resolved events carry no row.
func TestTiCDC_F5_E_Open(t *testing.T) {
	d, err := New(Options{Format: "ticdc"})
	if err != nil {
		t.Fatal(err)
	}
	key, value := openMessage([]string{`{"ts":10,"scm":"logi","tbl":"parcels","t":2}`, `{"ts":11,"t":3}`}, []string{`{"q":"alter table x","t":5}`, ``})
	add(t, d, 0, key, value)
	key, _ = openMessage([]string{`{"ts":11,"t":3}`}, []string{``})
	add(t, d, 1, key, nil)
	if got := printed(t, d); got != "SCHEMA 1\nHEARTBEAT 2\n" {
		t.Errorf("got %s", got)
	}
}

// TestTiCDC_F5_G_Open: frames cut short at every byte, and events without table,
// time, row or values, are poison of one message and leave no row.
func TestTiCDC_F5_G_Open(t *testing.T) {
	key, value := openMessage([]string{`{"ts":10,"scm":"logi","tbl":"parcels","t":1}`}, []string{`{"u":{"id":{"t":8,"h":true,"f":11,"v":1}}}`})
	read := func(key, value []byte) string {
		d, err := New(Options{Format: "ticdc"})
		if err != nil {
			t.Fatal(err)
		}
		add(t, d, 0, key, value)
		return printed(t, d)
	}
	if got := read(key, value); !strings.HasPrefix(got, "logi.parcels") {
		t.Fatal(got)
	}
	for cut := 9; cut < len(key); cut++ {
		if got := read(key[:cut], value); got != "poison P1 BAD_FRAME false\n" {
			t.Fatalf("key cut at %d: %s", cut, got)
		}
	}
	for cut := 1; cut < len(value); cut++ {
		if got := read(key, value[:cut]); got != "poison P1 BAD_FRAME false\n" {
			t.Fatalf("value cut at %d: %s", cut, got)
		}
	}
	for _, c := range []struct{ key, value, want string }{
		{`{"ts":1,"tbl":"","t":1}`, `{}`, "P2 MISSING_TABLE"},
		{`{"tbl":"x","t":1}`, `{}`, "P4 MISSING_POSITION"},
		{`{"ts":1,"tbl":"x","t":1}`, `{}`, "P2 AFTER_MISSING"},
		{`{"ts":1,"tbl":"x","t":9}`, `{}`, "P2 UNKNOWN_OP"},
		{`{"ts":1,"tbl":"x","t":1,"ohk":true}`, `{"u":{"id":{"t":8,"h":true,"f":11,"v":1}}}`, "P2 KEY_ONLY"},
		{`{"ts":1,"tbl":"x","t":1}`, `{"u":{"id":{"t":8,"h":true,"f":11,"v":null}}}`, "P5 KEY_NULL"},
		{`{"ts":1,"tbl":"x","t":1}`, `{"u":{"id":{"t":252,"f":2,"v":"?"}}}`, "P3 FIELD_TYPE"},
	} {
		key, value := openMessage([]string{c.key}, []string{c.value})
		if got := read(key, value); !strings.HasPrefix(got, "poison "+c.want) {
			t.Errorf("%s %s: %s", c.key, c.value, got)
		}
	}
}

// TestTiCDC_F5_E_Waits: rows before their schema wait, over a restart, and are read with it.
func TestTiCDC_F5_E_Waits(t *testing.T) {
	fresh := func(state string) *Decoder {
		d, err := New(Options{Format: "ticdc"})
		if err == nil {
			err = d.Restore(state)
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := fresh("")
	add(t, d, 0, nil, []byte(`{"version":1,"database":"logi","table":"parcels","type":"INSERT","commitTs":5,"data":{"id":"1"}}`))
	add(t, d, 1, nil, []byte(`{"version":1,"database":"logi","table":"other","type":"INSERT","commitTs":6,"data":{"id":"1"}}`))
	add(t, d, 2, nil, []byte(`{"version":1,"database":"logi","table":"parcels","type":"INSERT","commitTs":7,"data":{"id":null}}`))
	if got := printed(t, d); got != "" {
		t.Errorf("before the schema: %s", got)
	}
	d = fresh(d.State())
	add(t, d, 3, nil, []byte(`{"version":1,"type":"BOOTSTRAP","commitTs":0,"tableSchema":{"schema":"logi","table":"parcels","columns":[{"name":"id","dataType":{"mysqlType":"bigint"}}],"indexes":[{"primary":true,"columns":["id"]}]}}`))
	if got := printed(t, d); !strings.HasPrefix(got, "logi.parcels [id] ") || !strings.Contains(got, `[{"id":1}`) || !strings.Contains(got, "poison P5 KEY_NULL") {
		t.Errorf("after it: %s", got)
	}
	if s := d.State(); strings.Count(s, `"v":`) != 1 {
		t.Errorf("the row of the other table no longer waits: %s", s)
	}
	big := strings.Repeat("x", 1<<20)
	var err error
	for i := range int64(6) {
		value := []byte(`{"version":1,"database":"logi","table":"big","type":"INSERT","commitTs":7,"data":{"id":"` + big + `"}}`)
		if err = d.Add(context.Background(), &event.Record{Source: "s", Transport: i, Value: value, Raw: value}); err != nil {
			break
		}
	}
	if c, ok := err.(*ConfigError); !ok || c.Code != "SCHEMA_NOT_SEEN" {
		t.Errorf("without end: %v", err)
	}
}
