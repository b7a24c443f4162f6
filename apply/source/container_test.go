package source_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/apply/source"
)

// packAvro is a block's bytes under a codec.
func packAvro(t *testing.T, codec string, body []byte) []byte {
	t.Helper()
	switch codec {
	case "deflate":
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, 6)
		if err == nil {
			_, err = w.Write(body)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	case "snappy":
		return binary.BigEndian.AppendUint32(snappy.Encode(nil, body), crc32.ChecksumIEEE(body))
	case "zstandard":
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(body, nil)
	}
	return body
}

// container is an Avro object container file with a block for each list of records.
func container(t *testing.T, schema, codec string, blocks ...[][]byte) []byte {
	t.Helper()
	const sync = "0123456789abcdef"
	out := avroLong([]byte("Obj\x01"), 2)
	out = avroText(avroText(out, "avro.schema"), schema)
	out = avroText(avroText(out, "avro.codec"), codec)
	out = append(avroLong(out, 0), sync...)
	for _, records := range blocks {
		packed := packAvro(t, codec, bytes.Join(records, nil))
		out = append(avroText(avroLong(out, int64(len(records))), string(packed)), sync...)
	}
	return out
}

// decodeFile decodes one file of that name.
func decodeFile(t *testing.T, spec source.Spec, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	spec.From, spec.Host = []string{path}, "host"
	var out strings.Builder
	printDecoded(t, &out, spec)
	return out.String()
}

// TestRows_F16_A_AvroEqualsJSON: the same rows in JSON and in Avro files of every codec.
func TestRows_F16_A_AvroEqualsJSON(t *testing.T) {
	spec := source.Spec{Keys: []string{"id"}}
	want := decodeText(t, source.Spec{Format: source.Rows, Keys: []string{"id"}}, "r.jsonl",
		`{"id":1,"v":"a","op":"I"}`, `{"id":2,"v":null,"op":"U"}`, `{"id":1,"v":"a","op":"D"}`)
	const schema = `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"v","type":["null","string"]},{"name":"op","type":{"type":"enum","name":"Op","symbols":["I","U","D"]}}]}`
	row := func(id int64, v string, op int64) []byte {
		out := avroLong(nil, id)
		if v == "" {
			out = avroLong(out, 0)
		} else {
			out = avroText(avroLong(out, 1), v)
		}
		return avroLong(out, op)
	}
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		file := container(t, schema, codec, [][]byte{row(1, "a", 0), row(2, "", 1)}, [][]byte{row(1, "a", 2)})
		for _, name := range []string{"r.avro", "r.dat"} {
			if got := decodeFile(t, spec, name, file); got != want {
				t.Errorf("%s, %s:\n%s\nJSON:\n%s", codec, name, got, want)
			}
		}
		for cut := range file {
			if got := decodeFile(t, source.Spec{Format: source.Rows, Keys: []string{"id"}}, "r.avro", file[:cut]); cut > 0 && cut < len(file)-1 && strings.Contains(got, "DELETE") {
				t.Fatalf("%s: cut at %d of %d:\n%s", codec, cut, len(file), got)
			}
			if codec != "null" && cut > 40 {
				break
			}
		}
	}
}

// TestRows_F16_G_AvroTypes: logical types, and what is no Avro file.
func TestRows_F16_G_AvroTypes(t *testing.T) {
	const schema = `{"type":"record","name":"R","fields":[{"name":"id","type":"int"},` +
		`{"name":"d","type":{"type":"int","logicalType":"date"}},{"name":"tm","type":{"type":"long","logicalType":"time-micros"}},` +
		`{"name":"ts","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"us","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"lt","type":{"type":"long","logicalType":"local-timestamp-micros"}},` +
		`{"name":"dec","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}},{"name":"u","type":{"type":"string","logicalType":"uuid"}},` +
		`{"name":"b","type":"bytes"},{"name":"f","type":"float"},{"name":"l","type":{"type":"array","items":["null","int"]}},{"name":"m","type":{"type":"map","values":"long"}},` +
		`{"name":"s","type":{"type":"record","name":"S","fields":[{"name":"x","type":["null","int"],"default":null}]}}]}`
	record := func(id int64, dec string) []byte {
		out := avroLong(avroLong(avroLong(nil, id), 19860), 78_000_000_001)
		out = avroLong(avroLong(avroLong(out, -1), 1715934615123456), 1715934615123456)
		out = avroText(avroText(avroText(out, dec), "0ac793f5-0000-4000-a000-000000000000"), "\x00\xff")
		out = binary.LittleEndian.AppendUint32(out, 0x7fc00000)
		out = avroLong(avroLong(avroLong(avroLong(avroLong(out, 2), 1), 7), 0), 0)
		out = avroLong(avroLong(avroText(avroLong(out, 1), "k"), 9), 0)
		return avroLong(out, 0)
	}
	spec := source.Spec{Format: source.Rows, Keys: []string{"id"}}
	wantDecoded(t, decodeFile(t, spec, "r.avro", container(t, schema, "null", [][]byte{record(1, "\x30\x39"), record(2, "\x7f\xff\xff"), record(3, "\xff")})), `
batch  keys=[id]
  id INT
  d DATE
  tm STRING
  ts TIMESTAMP
  us TIMESTAMP
  lt TIMESTAMP_NTZ
  dec DECIMAL(4,2)
  u STRING
  b BINARY
  f FLOAT
  l ARRAY<INT>
  m MAP<STRING, BIGINT>
  s STRUCT<x: INT>
UPSERT id=3 d=day 19860 tm="21:40:00.000001" ts=-1000us UTC us=1715934615123456us UTC lt=1715934615123456us dec=dec -0.01 u="0ac793f5-0000-4000-a000-000000000000" b=x'00ff' f=float NaN l=[7, NULL] m={k: 9} s={x: NULL}
poison line 1: P1 FIELD_TYPE: field dec: cannot read 123.45 as DECIMAL(4,2)
poison line 2: P1 FIELD_TYPE: field dec: cannot read 83886.07 as DECIMAL(4,2)
`)
	for name, c := range map[string]struct{ file, want string }{
		"another marker":       {strings.Replace(string(container(t, `{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}`, "null", [][]byte{{2}})), "0123456789abcdef", "0123456789abcdeX", 1), "marker"},
		"bytes left over":      {string(container(t, `{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}`, "null", [][]byte{{2, 4}})), "left over"},
		"an unknown codec":     {string(container(t, `{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}`, "xz", [][]byte{{2}})), "codec"},
		"no records":           {string(container(t, `"int"`, "null", [][]byte{{2}})), "no columns"},
		"a union of two types": {string(container(t, `{"type":"record","name":"R","fields":[{"name":"id","type":["int","string"]}]}`, "null", [][]byte{{0, 2}})), "field id"},
	} {
		if got := decodeFile(t, spec, "r.avro", []byte(c.file)); !strings.Contains(got, "FILE_UNREADABLE") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestDecoder_F2_A_ContainerFile: envelopes in a container file are those of a topic.
func TestDecoder_F2_A_ContainerFile(t *testing.T) {
	var records [][]byte
	s := newAvroStream(func(id int, body []byte) []byte {
		if id != avroKeyID {
			records = append(records, body)
		}
		return body
	}, func(id int) string { return map[int]string{avroKeyID: "key", avroOldID: "old", avroNewID: "new"}[id] })
	s.add(avroNewID, 1, "c", nil, &avroRow{id: 1, name: "a", qty: 3}, 4)
	s.add(avroNewID, 1, "u", &avroRow{id: 1, name: "a", qty: 3}, &avroRow{id: 1, name: "", qty: -1}, 8)
	s.add(avroNewID, 1, "d", &avroRow{id: 1, name: "", qty: -1}, nil, 12)
	wantDecoded(t, decodeFile(t, source.Spec{Keys: []string{"id"}}, "e.avro", container(t, s.schema["new"], "deflate", records)), `
batch d.t keys=[id] seq=[epoch file pos phase row]
  id BIGINT
  name STRING
  qty INT
INSERT (0 1 4 1 0) id=1 name="a" qty=3
UPDATE (0 1 8 1 0) id=1 name=NULL qty=NULL
DELETE (0 1 12 1 0) id=1
warning: table t: column qty has a default in the source: under replace.null.with.default (the converter's default) an explicit NULL arrives as that default
`)
}

// TestDecoder_F6_G_Parquet: DMS files in Parquet keep their types; a full load has no Op.
func TestDecoder_F6_G_Parquet(t *testing.T) {
	read := func(name, ddl, rows string) string {
		data, err := os.ReadFile(parquetFile(t, ddl, rows))
		if err != nil {
			t.Fatal(err)
		}
		return decodeFile(t, source.Spec{Keys: []string{"id"}}, name, data)
	}
	wantDecoded(t, read("ops/parcels/LOAD00000001.parquet", "id INT, fee DECIMAL(10,2), at TIMESTAMP, d DATE, b BINARY, ok BOOLEAN", `[{"id":1,"fee":"12.50","at":"2024-05-17T08:30:15.123456Z","d":"2024-05-17","b":"AP8=","ok":true}]`), `
batch ops.parcels keys=[id] seq=[epoch phase time file row]
  id INT
  fee DECIMAL(10,2)
  at TIMESTAMP
  d DATE
  b BINARY
  ok BOOLEAN
UPSERT (0 0 0 1 0) id=1 fee=dec 12.50 at=1715934615123456us UTC d=day 19860 b=x'00ff' ok=true
`)
	got := read("ops/parcels/20240517-083015123.parquet", "Op STRING, id INT, n DOUBLE", `[{"Op":"U","id":1,"n":0.1},{"Op":"D","id":2,"n":null},{"Op":null,"id":3,"n":1e300}]`)
	for _, want := range []string{"UPDATE (0 1 0 202405170830151230 0) id=1 n=double 0.1\n", "DELETE (0 1 0 202405170830151230 1) id=2\n", "UPSERT (0 1 0 202405170830151230 2) id=3 n=double 1e+300\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestDecoder_F10_A_Parquet: a change table of SQL Server dumped to Parquet; LSNs are
// bytes there and compared as such.
func TestDecoder_F10_A_Parquet(t *testing.T) {
	path := parquetFile(t, "`__$start_lsn` BINARY, `__$seqval` BINARY, `__$operation` INT, `__$update_mask` BINARY, id INT, status STRING",
		`[{"__$start_lsn":"AAAAOgAAEfAABA==","__$seqval":"AAAAOgAAEfAAAg==","__$operation":2,"__$update_mask":"Aw==","id":1,"status":"NEW"},
		{"__$start_lsn":"AAAAOgAAEfAABQ==","__$seqval":"AAAAOgAAEfAAAw==","__$operation":1,"__$update_mask":"Aw==","id":1,"status":"NEW"}]`)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := decodeFile(t, source.Spec{Keys: []string{"id"}}, "cdc.parquet", data)
	for _, want := range []string{`INSERT (0 "0000003A000011F00004" 0 "0000003A000011F00002" 2) id=1 status="NEW"`, `DELETE (0 "0000003A000011F00005" 0 "0000003A000011F00003" 1) id=1`, "  id INT\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
