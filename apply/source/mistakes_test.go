package source_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
)

// decodeText decodes lines and gives what a datadriven cell would print.
func decodeText(t *testing.T, spec source.Spec, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec.From, spec.Host = []string{path}, "h"
	var out strings.Builder
	printDecoded(t, &out, spec)
	return out.String()
}

const shop = `"source":{"connector":"postgresql","db":"d","schema":"s","table":"t","name":"n","snapshot":"false",`

func envelope(op, before, after, position string) string {
	return `{"before":` + before + `,"after":` + after + `,` + shop + position + `},"op":"` + op + `"}`
}

// TestMistakes goes through the ten most dangerous decoding mistakes
// (cdc-formats 24), as far as these formats can make them.
func TestMistakes(t *testing.T) {
	bare := source.Spec{Format: source.Debezium, Keys: []string{"id"}}
	check := func(name string, got string, must []string, mustNot ...string) {
		t.Run(name, func(t *testing.T) {
			for _, m := range must {
				if !strings.Contains(got, m) {
					t.Errorf("no %q in\n%s", m, got)
				}
			}
			for _, m := range mustNot {
				if strings.Contains(got, m) {
					t.Errorf("%q in\n%s", m, got)
				}
			}
		})
	}
	at := func(first, lsn string) string {
		return `"lsn":` + lsn + `,"sequence":"[\"` + first + `\",\"` + lsn + `\"]"`
	}

	check("1 a placeholder is no NULL and no text", decodeText(t, bare, "e.jsonl",
		envelope("u", "null", `{"id":1,"a":"__debezium_unavailable_value","b":null}`, at("5", "10"))),
		[]string{"a=UNAVAILABLE", "b=NULL"}, "__debezium")
	check("2 clocks do not order", decodeText(t, bare, "e.jsonl",
		envelope("u", "null", `{"id":1,"v":1}`, at("5", "10")+`,"ts_ms":9`), envelope("u", "null", `{"id":1,"v":2}`, at("9", "12")+`,"ts_ms":1`)),
		[]string{"(0 5 1 10) id=1 v=1", "(0 9 1 12) id=1 v=2"})
	check("3 positions are numbers of all digits", decodeText(t, bare, "e.jsonl",
		envelope("u", "null", `{"id":1}`, at("9007199254740993", "9007199254740995"))),
		[]string{"(0 9007199254740993 1 9007199254740995)"})
	check("4 a tombstone is the delete where there is no other", decodeText(t, source.Spec{Format: source.DebeziumPlain}, "e.jsonl",
		`{"topic":"t","partition":0,"offset":1,"key":{"id":1},"value":{"id":1,"__op":"c"}}`, `{"topic":"t","partition":0,"offset":2,"key":{"id":1},"value":null}`),
		[]string{"INSERT (0 1) id=1", "DELETE (0 2) id=1"})
	check("5 a changed key leaves no old row", decodeText(t, source.Spec{Format: source.Debezium, Keys: []string{"id"}}, "e.jsonl",
		strings.Replace(envelope("u", `{"id":1,"v":2}`, `{"id":9,"v":2}`, `"file":"b.1","pos":4,"row":0`), "postgresql", "mysql", 1)),
		[]string{"DELETE (0 1 4 1 0) id=1", "UPSERT (0 1 4 1 0) id=9"})
	check("6 a bare value alone decides no type", decodeText(t, bare, "e.jsonl",
		envelope("c", "null", `{"id":1,"d":"MDk=","n":19860,"t":1715934615123456}`, at("5", "10"))),
		[]string{`d="MDk="`, "n=19860", "t=1715934615123456"})
	check("8 fillers of a before image are no values", decodeText(t, bare, "e.jsonl",
		envelope("d", `{"id":7,"v":"","n":0}`, "null", at("5", "10"))),
		[]string{"DELETE (0 5 1 10) id=7\n"})
	check("9 nothing is swallowed", decodeText(t, bare, "e.jsonl",
		envelope("z", "null", `{"id":1}`, at("5", "10")), envelope("c", "null", `{"ID":1}`, at("5", "10")), `{"op":"c"`, "\xff"),
		[]string{"P2 UNKNOWN_OP", "P5 KEY_ABSENT", "P1 INVALID_JSON", "P1 INVALID_UTF8"}, "batch")
	check("9 names that differ in case are two", decodeText(t, bare, "e.jsonl",
		envelope("c", "null", `{"id":1,"ID":7}`, at("5", "10"))),
		[]string{"id=1 ID=7"}, "poison")
	check("9 what comes twice is no event", decodeText(t, source.Spec{Format: "maxwell", Keys: []string{"id"}}, "e.jsonl",
		`{"database":"d","table":"t","type":"insert","type":"delete","ts":1,"data":{"id":1}}`),
		[]string{"P1 DUPLICATE_KEY"}, "batch")
	check("10 another epoch", decodeText(t, source.Spec{Format: source.Debezium, Keys: []string{"id"}, Options: map[string]string{"epoch": "1"}}, "e.jsonl",
		envelope("c", "null", `{"id":1}`, at("1", "2"))),
		[]string{"(1 1 1 2)"})
}

func TestRows_F16_A_ParquetEqualsJSON(t *testing.T) {
	js := decodeText(t, source.Spec{Format: source.Rows, Keys: []string{"id"}}, "r.jsonl",
		`{"id":1,"v":"a","op":"I"}`, `{"id":2,"v":null,"op":"U"}`, `{"id":1,"v":"a","op":"D"}`)
	path := parquetFile(t, "id BIGINT, v STRING, op STRING", `[{"id":1,"v":"a","op":"I"},{"id":2,"v":null,"op":"U"},{"id":1,"v":"a","op":"D"}]`)
	var out strings.Builder
	printDecoded(t, &out, source.Spec{Format: source.Rows, Keys: []string{"id"}, From: []string{path}})
	if js != out.String() {
		t.Fatalf("JSON:\n%s\nParquet:\n%s", js, out.String())
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		line string
		want source.Format
		code string
	}{
		{envelope("c", "null", "{}", `"lsn":1`), source.Debezium, ""},
		{`{"schema":{},"payload":` + envelope("c", "null", "{}", `"lsn":1`) + `}`, source.Debezium, ""},
		{`{"id":1,"__deleted":"false"}`, source.DebeziumPlain, ""},
		{`{"id":1,"op":"I"}`, source.Rows, ""},
		{`{"database":"d","table":"t","type":"insert","ts":1,"data":{}}`, "maxwell", ""},
		{`{"isDdl":false,"mysqlType":{},"type":"INSERT","data":[]}`, "canal", ""},
		{`{"operationType":"insert","ns":{}}`, "mongodb", ""},
		{`{"_change_type":"insert","_commit_version":1}`, "", "UNSUPPORTED_FORMAT"},
		{`{"change":[{"kind":"insert"}]}`, "wal2json", ""},
		{`{"data":{},"op":"+I"}`, "flink", ""},
		{`not json`, "", "FORMAT_UNCLEAR"},
		{`{"status":"BEGIN","id":"1:2","event_count":null}`, "", "FORMAT_UNCLEAR"},
	} {
		f, _, err := source.Detect([]*event.Record{{Value: []byte(c.line)}})
		code := ""
		if e, ok := err.(*source.Error); ok {
			code = e.Code
		}
		if f != c.want || code != c.code {
			t.Errorf("%s: %s %v, want %s %s", c.line, f, err, c.want, c.code)
		}
	}
	mixed := []*event.Record{}
	for i := range 100 {
		line := `{"id":1,"__deleted":"false"}`
		if i%10 == 0 {
			line = `{"id":1}`
		}
		mixed = append(mixed, &event.Record{Value: []byte(line)})
	}
	if _, _, err := source.Detect(mixed); err == nil {
		t.Error("90 % of one format are enough")
	}
	if f, _, err := source.Detect(append(mixed[1:10], mixed[11:20]...)); err != nil || f != source.DebeziumPlain {
		t.Errorf("one format: %s %v", f, err)
	}
}

// TestOpen_StdinDetected: standard input is detected without losing a record.
func TestOpen_StdinDetected(t *testing.T) {
	var lines []string
	for i := range 250 {
		lines = append(lines, envelope("c", "null", `{"id":`+strings.Repeat("1", i%9+1)+`}`, `"lsn":1`))
	}
	all, err := run(source.Spec{From: []string{"-"}, Stdin: strings.NewReader(strings.Join(lines, "\n")), Keys: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all.Batches[0].Ops); n != 250 {
		t.Fatalf("%d rows of 250", n)
	}
}

// TestDecoder_SnapshotTruncate: a killed first snapshot leaves rows without a
// delete event; with snapshot=truncate the second one's beginning takes them away.
func TestDecoder_SnapshotTruncate(t *testing.T) {
	dir := testenv.SharedDir(t, "corpora", "debezium", "pg-restart-snapshot")
	c := corpora.Load(t, dir)
	s, opts := corpora.Hints(c, "wallet")
	opts["snapshot"] = "truncate"
	batches, _ := decodeAll(t, source.Spec{Format: source.Debezium, From: []string{corpora.EventsFile(t, dir)}, Tables: []string{"wallet"}, Schema: s, Options: opts}, 0)
	var list []corpora.Change
	for _, b := range batches {
		list = append(list, corpora.Changes(b)...)
	}
	c.Name = "as the database" // no exceptions
	corpora.SameRows(t, "wallet", corpora.CanonRows(c, "wallet", corpora.Fold(list)["wallet"].Images()), corpora.ExpectedRows(t, c, dir, "wallet"))
}

// writeLines writes lines to a file and names it.
func writeLines(t *testing.T, lines []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "e.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
