package source_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// sample is a sample.json of corpora/foreign.
type sample struct {
	Envelope string        `json:"envelope"`
	Events   []string      `json:"events"`
	Tables   []sampleTable `json:"tables"`
	Options  struct {
		Reject         []int64           `json:"reject"`
		PartialUpdates bool              `json:"partial_updates"`
		Schemas        map[string]string `json:"schemas"`
		CSV            struct {
			Columns []string `json:"columns"`
			Files   []struct {
				Columns []string `json:"columns"`
			} `json:"files"`
		} `json:"csv"`
	} `json:"options"`
}

type sampleTable struct {
	Name            string            `json:"name"`
	Match           map[string]string `json:"match"`
	Key             []string          `json:"key"`
	Columns         map[string]string `json:"columns"`
	Expected        string            `json:"expected"`
	CaseInsensitive bool              `json:"case_insensitive"`
	ReplaceByOld    bool              `json:"replace_by_old"`
	Computed        map[string]string `json:"computed"`
	Checkpoints     []struct {
		After    int               `json:"after_events"`
		Expected string            `json:"expected"`
		Columns  map[string]string `json:"columns"`
	} `json:"checkpoints"`
}

// partialRows are what the updates of unknown rows leave in the sample of Fivetran's
// SDK. Its tester wants them ignored; cdc-formats 0.2, which wins, stores what is known.
var partialRows = map[string][]map[string]any{
	"transaction": {{"id": 1, "amount_double": 400.555, "flag": false}, {"id": 999, "amount_double": 999.99, "flag": false}},
	"campaign": {{"_fivetran_id": "abc-123-xyz", "name": "Campaign A Updated", "is_active": false},
		{"_fivetran_id": "missing-update-id", "name": "Non-existent Campaign", "is_active": false}},
}

// samples are the folders of corpora/foreign and the formats that read them.
var samples = map[string]source.Format{
	"maxwell": "maxwell", "canal": "canal", "flink-changelog-json": "flink", "ogg": "goldengate", "dms-json": "dms",
	"wal2json": "wal2json", "mongodb-changestream": "mongodb", "dynamodb-streams": "dynamodb", "qlik": "qlik",
	"sqlserver-cdc": "sqlserver-cdc", "airbyte": "airbyte", "singer": "singer",
	"debezium-json": source.Debezium, "debezium-mongodb": source.Debezium, "debezium-avro": source.Debezium,
	"dms-csv": "dms", "ticdc-csv": "ticdc", "aliyun-json": "aliyun", "fivetran": "fivetran",
	"debezium-flat": source.DebeziumPlain, "kafka-connect-json": source.DebeziumPlain,
}

// TestDecoder_Foreign reads the samples that other projects test their decoders
// with, each to its right table, its checkpoints and the lines to be rejected.
func TestDecoder_Foreign(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "foreign")
	dirs, _ := filepath.Glob(filepath.Join(base, "*", "*", "sample.json"))
	if len(dirs) != 69 {
		t.Errorf("%d samples, want 69", len(dirs))
	}
	for _, p := range dirs {
		dir := filepath.Dir(p)
		folder := filepath.Base(filepath.Dir(dir))
		format := samples[folder]
		t.Run(folder+"/"+filepath.Base(dir), func(t *testing.T) {
			if format == "" {
				t.Fatal("no format reads this folder")
			}
			runSample(t, dir, format)
		})
	}
}

func runSample(t *testing.T, dir string, format source.Format) {
	raw, err := os.ReadFile(filepath.Join(dir, "sample.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s sample
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Tables {
		table := &s.Tables[i]
		t.Run(table.Name, func(t *testing.T) {
			if table.ReplaceByOld {
				t.Skip("a table without key, whose updates replace the row that old names")
			}
			for _, c := range table.Checkpoints {
				checkSample(t, dir, &s, table, format, c.After, c.Expected, c.Columns)
			}
			checkSample(t, dir, &s, table, format, -1, table.Expected, table.Columns)
		})
	}
	t.Run("detected", func(t *testing.T) {
		spec := sampleSpec(t, dir, &s, &s.Tables[0], source.Auto, -1)
		o, err := source.Open(t.Context(), spec)
		if o != nil {
			o.Source.Close()
		}
		if len(s.Options.Reject) == 2 && format == "airbyte" {
			// Lines that are no JSON are more than 5 % of the sample: the user is asked.
			if err == nil {
				t.Errorf("detected %q in spite of %d bad lines", o.Format, len(s.Options.Reject))
			}
			return
		}
		want := format
		if name := filepath.Base(dir); name == "risingwave-upsert-students" || name == "debezium-embedded-simple" {
			want = source.Rows // no metadata: rows of an upsert topic
		}
		if err != nil || o.Format != want {
			t.Errorf("detected %v, %v; want %s", o, err, want)
		}
	})
}

// sampleSpec writes the first n events (-1: all) to files and says how to read them.
func sampleSpec(t *testing.T, dir string, s *sample, table *sampleTable, format source.Format, n int) source.Spec {
	t.Helper()
	tmp := t.TempDir()
	spec := source.Spec{Format: format, Keys: table.Key, Options: map[string]string{}, Host: "h"}
	if s.Envelope == "csv" {
		spec.From = []string{csvFiles(t, dir, tmp, s, n)}
		return spec
	}
	var out bytes.Buffer
	count := 0
	for _, name := range s.Events {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(raw) {
			if count == n {
				break
			}
			line = bytes.TrimRight(line, "\n")
			if s.Envelope != "value" {
				line = topicRecord(t, line, count)
			}
			out.Write(append(line, '\n'))
			count++
		}
	}
	path := filepath.Join(tmp, "events.jsonl")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	spec.From = []string{path}
	if s.Envelope == "value" {
		spec.Options["lines"] = "event"
	}
	if len(s.Options.Schemas) > 0 {
		docs := map[string]json.RawMessage{}
		for id, name := range s.Options.Schemas {
			raw, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			docs[id] = raw
		}
		all, err := json.Marshal(docs)
		if err != nil {
			t.Fatal(err)
		}
		spec.Options["schemas"], spec.Options["avro.encoding"] = filepath.Join(tmp, "schemas.json"), "base64"
		if err := os.WriteFile(spec.Options["schemas"], all, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return spec
}

// csvFiles writes the first n rows under the names that the producers give files,
// and returns the directory.
func csvFiles(t *testing.T, dir, tmp string, s *sample, n int) string {
	t.Helper()
	names := map[string]string{"01-LOAD.csv": "ops/customer/LOAD00000001.csv", "02-cdc-20190101.csv": "ops/customer/20190101-000000000.csv",
		"03-cdc-20190102.csv": "ops/customer/2019/01/02/20190102-0000000001.csv", "events.csv": "test/t/450253245302439940/CDC000001.csv"}
	count := 0
	for _, name := range s.Events {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		for i, line := range strings.SplitAfter(string(raw), "\n") {
			header := name == "01-LOAD.csv" && i == 0
			if line == "" || count == n && !header {
				break
			}
			out = append(out, line...)
			if !header {
				count++
			}
		}
		path := filepath.Join(tmp, "csv", names[name])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(tmp, "csv")
}

// topicRecord is an event with its key as a line that the file source reads as a
// record of a topic.
func topicRecord(t *testing.T, line []byte, offset int) []byte {
	t.Helper()
	var kv struct {
		Key, Value   json.RawMessage
		ValueB64Text json.RawMessage `json:"value_b64"`
		KeyB64Text   json.RawMessage `json:"key_b64"`
	}
	if err := json.Unmarshal(line, &kv); err != nil {
		t.Fatal(err)
	}
	or := func(list ...json.RawMessage) json.RawMessage {
		for _, r := range list {
			if r != nil {
				return r
			}
		}
		return json.RawMessage("null")
	}
	return fmt.Appendf(nil, `{"topic":"t","partition":0,"offset":%d,"key":%s,"value":%s}`, offset, or(kv.Key, kv.KeyB64Text), or(kv.Value, kv.ValueB64Text))
}

func hints(t *testing.T, table *sampleTable) *schema.Struct {
	t.Helper()
	out := &schema.Struct{}
	for name, typ := range table.Columns {
		switch typ {
		case "json", "time":
			typ = "string"
		case "timestamp_ntz":
			typ = "timestamp_ntz"
		case "long":
			typ = "bigint"
		case "short":
			typ = "smallint"
		}
		parsed, err := schema.ParseType(strings.ToUpper(typ))
		if err != nil {
			t.Fatal(err)
		}
		out.Fields = append(out.Fields, schema.Field{Name: name, Type: parsed, Nullable: true})
	}
	return out
}

// tableOf is the source table that a match selects; "" is all.
func tableOf(match map[string]string) string {
	for _, part := range []string{"table", "__table", "collection", "table-name", "stream", "coll", "tableName"} {
		if name := match[part]; name != "" {
			return name[strings.LastIndexByte(name, '.')+1:]
		}
	}
	return ""
}

func checkSample(t *testing.T, dir string, s *sample, table *sampleTable, format source.Format, n int, expected string, columns map[string]string) {
	t.Helper()
	spec := sampleSpec(t, dir, s, table, format, n)
	spec.Schema = hints(t, table)
	if s.Envelope == "csv" {
		// Files without header: the columns in their order.
		order := s.Options.CSV.Columns
		for _, f := range s.Options.CSV.Files {
			order = f.Columns
		}
		at := func(f schema.Field) int { return slices.Index(order, f.Name) }
		slices.SortFunc(spec.Schema.Fields, func(a, b schema.Field) int { return at(a) - at(b) })
	}
	debezium := format == source.Debezium || format == source.DebeziumPlain
	if !s.Options.PartialUpdates && !debezium {
		spec.Options["missing_fields"] = "null"
	}
	if debezium && len(s.Options.Schemas) == 0 {
		spec.Options["decimal"] = "string"
	}
	switch filepath.Base(dir) {
	case "flinkcdc-mysql-alltypes-numeric":
		spec.Options["source"], spec.Options["time.datetime3_c"] = "none", "millis" // its envelopes have neither source nor schema
	case "paimon-computed-column", "paimon-mysql-schemaevolution", "paimon-tombstone-between", "seatunnel-mysql-types-schema", "docs-customers-update-delete":
		spec.Options["sequence"] = "transport" // its positions are 0, "", or made up
	}
	if table.CaseInsensitive {
		spec.Options["column_case"] = "lower"
	}
	if len(table.Key) == 0 {
		spec.Keys = nil
	}
	if len(table.Computed) > 0 {
		// A computed column is the flow's (COLUMNS), not the decoder's.
		spec.Keys = slices.DeleteFunc(slices.Clone(table.Key), func(k string) bool { return table.Computed[k] != "" })
		table.Key, columns = spec.Keys, maps.Clone(columns)
		for c := range table.Computed {
			delete(columns, c)
		}
	}
	name := tableOf(table.Match)
	if name != "" && len(s.Tables) > 1 {
		spec.Tables = []string{name}
	}
	want := map[string]map[string]string{}
	expectedRows := corpora.ReadRows(t, filepath.Join(dir, expected))
	if format == "fivetran" {
		expectedRows = partialRows[table.Name]
	}
	for _, row := range expectedRows {
		canon := map[string]string{}
		for c, typ := range columns {
			canon[c] = canonExpected(typ, row[c])
		}
		want[keyText(table.Key, canon, len(want))] = canon
	}
	for _, every := range []int{0, 1, 3} {
		batches, all := decodeAll(t, spec, every)
		var rejected []int64
		for _, p := range all.Poison {
			rejected = append(rejected, p.Record.Line)
			t.Logf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
		}
		if n < 0 && !slices.Equal(rejected, s.Options.Reject) {
			t.Errorf("rejected lines %v, want %v", rejected, s.Options.Reject)
		}
		var mine []corpora.Change
		for _, b := range batches {
			for _, c := range corpora.Changes(b) {
				if len(table.Match) == 0 || c.Table == name || c.Table == "" || format == "sqlserver-cdc" {
					c.Table = table.Name
					mine = append(mine, c)
				}
			}
		}
		got := map[string]map[string]string{}
		add := func(row map[string]any) {
			canon := map[string]string{}
			for c, typ := range columns {
				canon[c] = canonDecoded(typ, row[c])
			}
			got[keyText(table.Key, canon, len(got))] = canon
		}
		if len(table.Key) == 0 {
			for _, c := range mine {
				if c.Op != event.Delete && c.Op != event.Truncate {
					add(c.Vals)
				}
			}
		} else {
			for _, row := range corpora.Fold(mine)[table.Name].Images() {
				add(row)
			}
		}
		corpora.SameRows(t, fmt.Sprintf("%d records, flushed every %d", n, every), got, want)
	}
}

func keyText(keys []string, row map[string]string, n int) string {
	if len(keys) == 0 {
		return strconv.Itoa(n)
	}
	var parts []string
	for _, k := range keys {
		parts = append(parts, row[k])
	}
	return strings.Join(parts, "|")
}

func canonExpected(typ string, v any) string {
	if v == nil {
		return "null"
	}
	text := fmt.Sprint(v)
	switch base, _, _ := strings.Cut(typ, "("); base {
	case "float":
		f, _ := strconv.ParseFloat(text, 32)
		return fmt.Sprint(float32(f))
	case "double":
		f, _ := strconv.ParseFloat(text, 64)
		return fmt.Sprint(f)
	case "decimal":
		return ratText(text)
	case "timestamp", "timestamp_ntz":
		return strconv.FormatInt(isoMicros(text), 10)
	case "json":
		return compact(v)
	case "time":
		return clockText(text)
	}
	return text
}

func canonDecoded(typ string, v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case float64:
		if typ == "float" { // a double in the message
			return fmt.Sprint(float32(x))
		}
	case []byte:
		return base64.StdEncoding.EncodeToString(x)
	case corpora.TS:
		return strconv.FormatInt(int64(x), 10)
	case corpora.NTZ:
		return strconv.FormatInt(int64(x), 10)
	case corpora.Day:
		return time.Unix(int64(x)*86400, 0).UTC().Format("2006-01-02")
	case corpora.Dec:
		return ratText(string(x))
	case string:
		switch base, _, _ := strings.Cut(typ, "("); base {
		case "json":
			d := json.NewDecoder(strings.NewReader(x))
			d.UseNumber()
			var inner any
			if d.Decode(&inner) == nil {
				return compact(inner)
			}
		case "decimal":
			return ratText(x)
		case "time":
			if us, err := strconv.ParseInt(x, 10, 64); err == nil { // a bare count stays as it came
				x = time.UnixMicro(us).UTC().Format("15:04:05.999999")
			}
			return clockText(x)
		case "binary": // bits are text of 0 and 1 here
			out := make([]byte, len(x)/8)
			for i := range out {
				u, err := strconv.ParseUint(x[8*i:8*i+8], 2, 8)
				if err != nil {
					return x
				}
				out[i] = byte(u)
			}
			return base64.StdEncoding.EncodeToString(out)
		}
		return x
	}
	if typ == "json" {
		return compact(v)
	}
	return fmt.Sprint(v)
}

func ratText(s string) string {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return s
	}
	return r.RatString()
}

func clockText(s string) string {
	if strings.Contains(s, ".") {
		return strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func isoMicros(s string) int64 {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999", "2006-01-02 15:04:05.999999"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UnixMicro()
		}
	}
	return -1
}

func compact(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
