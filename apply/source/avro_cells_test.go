package source_test

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/source"
)

// avroStream writes a Debezium stream of MySQL in Avro, record by record, and reads it.
type avroStream struct {
	lines  []string
	schema map[string]string
	frame  func(id int, body []byte) []byte
}

const (
	avroKeyID = 7  // {id}
	avroOldID = 11 // rows of id, name
	avroNewID = 12 // rows of id, name, qty
)

// newAvroStream frames by frame; name gives the id of a schema in the file of schemas.
func newAvroStream(frame func(id int, body []byte) []byte, name func(id int) string) *avroStream {
	envelope := func(extra string) string {
		return `{"type":"record","name":"Envelope","namespace":"n.s.t","fields":[` +
			`{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"],"default":null}` + extra + `]}],"default":null},` +
			`{"name":"after","type":["null","Value"],"default":null},` +
			`{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"table","type":"string"},{"name":"file","type":"string"},{"name":"pos","type":"long"},{"name":"row","type":"int"},{"name":"snapshot","type":["null","string"]}]}},` +
			`{"name":"op","type":"string"}]}`
	}
	return &avroStream{frame: frame, schema: map[string]string{
		name(avroKeyID): `{"type":"record","name":"Key","fields":[{"name":"id","type":"long"}]}`,
		name(avroOldID): envelope(""),
		// The union of a column with a default has the type first.
		name(avroNewID): envelope(`,{"name":"qty","type":[{"type":"int","connect.default":5},"null"],"default":5}`),
	}}
}

func avroLong(out []byte, v int64) []byte {
	return binary.AppendUvarint(out, uint64(v<<1)^uint64(v>>63))
}

func avroText(out []byte, s string) []byte { return append(avroLong(out, int64(len(s))), s...) }

// avroRow is one image; qty counts in the newer schema only, below 0 is null.
type avroRow struct {
	id   int64
	name string
	qty  int64
}

func (s *avroStream) image(out []byte, schema int, r *avroRow) []byte {
	if r == nil {
		return avroLong(out, 0)
	}
	out = avroLong(avroLong(out, 1), r.id)
	if r.name == "" {
		out = avroLong(out, 0)
	} else {
		out = avroText(avroLong(out, 1), r.name)
	}
	if schema == avroNewID {
		if r.qty < 0 {
			return avroLong(out, 1)
		}
		out = avroLong(avroLong(out, 0), r.qty)
	}
	return out
}

// add writes an event; its key is key.
func (s *avroStream) add(schema int, key int64, op string, before, after *avroRow, pos int64) {
	body := s.image(s.image(nil, schema, before), schema, after)
	for _, text := range []string{"mysql", "d", "t", "b.000001"} {
		body = avroText(body, text)
	}
	body = avroLong(avroLong(avroLong(body, pos), 0), 0)
	body = avroText(body, op)
	s.record(key, s.frame(schema, body))
}

// record writes a record with its key; a nil value is null.
func (s *avroStream) record(key int64, value []byte) {
	text := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return `"` + base64.StdEncoding.EncodeToString(b) + `"`
	}
	s.lines = append(s.lines, fmt.Sprintf(`{"topic":"n.s.t","partition":0,"offset":%d,"key":%s,"value":%s}`, len(s.lines), text(s.frame(avroKeyID, avroLong(nil, key))), text(value)))
}

func (s *avroStream) read(t *testing.T) string {
	t.Helper()
	tmp := t.TempDir()
	docs, err := json.Marshal(s.schema)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"e.jsonl": strings.Join(s.lines, "\n") + "\n", "s.json": string(docs)} {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	printDecoded(t, &out, source.Spec{Format: source.Debezium, From: []string{filepath.Join(tmp, "e.jsonl")}, Host: "h",
		Options: map[string]string{"schemas": filepath.Join(tmp, "s.json"), "avro.encoding": "base64"}})
	return out.String()
}

func confluent(id int, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), body...)
}

// uuid is a schema version whose digits are the id.
func uuid(id int) string { return fmt.Sprintf("%08d-0000-0000-0000-000000000000", id) }

func uuidBytes(id int) []byte {
	out := make([]byte, 16)
	copy(out, []byte{byte(id / 1e6 % 100), 0, 0, byte(id/10%10)<<4 | byte(id%10)})
	return out
}

// framings are the ways in which a schema's id stands before a body.
func framings(t *testing.T) map[string]*avroStream {
	plain := func(id int) string { return fmt.Sprint(id) }
	return map[string]*avroStream{
		"Confluent": newAvroStream(confluent, plain),
		"Apicurio, 8 bytes": newAvroStream(func(id int, body []byte) []byte {
			return append(binary.BigEndian.AppendUint64([]byte{0}, uint64(id)), body...)
		}, plain),
		"GUID": newAvroStream(func(id int, body []byte) []byte { return append(append([]byte{1}, uuidBytes(id)...), body...) }, uuid),
		"Glue": newAvroStream(func(id int, body []byte) []byte { return append(append([]byte{3, 0}, uuidBytes(id)...), body...) }, uuid),
		"Glue with zlib": newAvroStream(func(id int, body []byte) []byte {
			var packed bytes.Buffer
			z := zlib.NewWriter(&packed)
			if _, err := z.Write(body); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			return append(append([]byte{3, 5}, uuidBytes(id)...), packed.Bytes()...)
		}, uuid),
	}
}

func wantDecoded(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestDecoder_F2_C_KeyChange: the key has a schema of its own; an update that moves
// the key is split, with every framing.
func TestDecoder_F2_C_KeyChange(t *testing.T) {
	for name, s := range framings(t) {
		t.Run(name, func(t *testing.T) {
			s.add(avroOldID, 1, "c", nil, &avroRow{id: 1, name: "a"}, 4)
			s.add(avroOldID, 2, "u", &avroRow{id: 1, name: "a"}, &avroRow{id: 2, name: "a"}, 8)
			wantDecoded(t, s.read(t), `
batch d.t keys=[id] seq=[epoch file pos phase row]
  id BIGINT
  name STRING
INSERT (0 1 4 1 0) id=1 name="a"
DELETE (0 1 8 1 0) id=1 newkey=2
UPSERT (0 1 8 1 0) id=2 name="a" oldkey=1
`)
		})
	}
}

// TestDecoder_F2_D_Schemas: records of two schemas by turns, an older one after a
// newer one too, are each read with their own; a column that the older one lacks is
// absent, and a default fills nothing.
func TestDecoder_F2_D_Schemas(t *testing.T) {
	s := newAvroStream(confluent, func(id int) string { return fmt.Sprint(id) })
	s.add(avroOldID, 1, "c", nil, &avroRow{id: 1, name: "a"}, 4)
	s.add(avroNewID, 1, "u", nil, &avroRow{id: 1, name: "b", qty: 3}, 8)
	s.add(avroOldID, 1, "u", nil, &avroRow{id: 1, name: "c"}, 12)
	s.add(avroNewID, 1, "u", nil, &avroRow{id: 1, name: "", qty: -1}, 16)
	s.add(avroNewID, 1, "u", nil, &avroRow{id: 1, name: "", qty: -1}, 16) // sent again
	got := s.read(t)
	for _, want := range []string{`(0 1 4 1 0) id=1 name="a"` + "\n", `(0 1 8 1 0) id=1 name="b" qty=3` + "\n", `(0 1 12 1 0) id=1 name="c"`, `(0 1 16 1 0) id=1 name=NULL qty=NULL` + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, `name="c" qty=NULL`) || strings.Contains(got, "qty=5") {
		t.Errorf("a column that is not in the schema has a value:\n%s", got)
	}
	if strings.Count(got, "(0 1 16 1 0)") != 2 {
		t.Errorf("the re-sent event has another sequence:\n%s", got)
	}
}

// TestDecoder_F2_E_Control: a tombstone has no framing; a truncate has no images.
func TestDecoder_F2_E_Control(t *testing.T) {
	s := newAvroStream(confluent, func(id int) string { return fmt.Sprint(id) })
	s.add(avroOldID, 1, "c", nil, &avroRow{id: 1, name: "a"}, 4)
	s.add(avroOldID, 1, "d", &avroRow{id: 1, name: "a"}, nil, 8)
	s.record(1, nil)
	s.add(avroOldID, 1, "t", nil, nil, 12)
	s.add(avroOldID, 1, "z", nil, nil, 16)
	s.record(1, []byte{})
	s.record(1, []byte("{}"))
	wantDecoded(t, s.read(t), `
batch d.t keys=[id] seq=[epoch file pos phase row]
  id BIGINT
  name STRING
INSERT (0 1 4 1 0) id=1 name="a"
DELETE (0 1 8 1 0) id=1
TRUNCATE (0 1 12 1 0)
poison line 6: P1 BAD_FRAMING: value: no framing of a registry: it begins with 
poison line 7: P1 BAD_FRAMING: value: no framing of a registry: it begins with 7b 7d
poison line 5: P2 UNKNOWN_OP: op "z"
control TOMBSTONE 1
`)
}

// TestOpen_F2_G_GlueNeedsSchemas: AWS Glue's API is not spoken; that is said before
// anything is read.
func TestOpen_F2_G_GlueNeedsSchemas(t *testing.T) {
	s := framings(t)["Glue"]
	s.add(avroOldID, 1, "c", nil, &avroRow{id: 1, name: "a"}, 4)
	path := filepath.Join(t.TempDir(), "e.jsonl")
	if err := os.WriteFile(path, []byte(s.lines[0]+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := source.Open(t.Context(), source.Spec{From: []string{path}, Options: map[string]string{"registry": "http://127.0.0.1:1", "avro.encoding": "base64"}})
	if err == nil || !strings.Contains(err.Error(), "schemas=FILE") {
		t.Errorf("Glue with a registry: %v", err)
	}
}
