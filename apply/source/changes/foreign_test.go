package changes_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	"github.com/sluice-data/sluice/apply/source/changes"
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
		Reject         []int64 `json:"reject"`
		PartialUpdates bool    `json:"partial_updates"`
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
	Checkpoints     []struct {
		After    int               `json:"after_events"`
		Expected string            `json:"expected"`
		Columns  map[string]string `json:"columns"`
	} `json:"checkpoints"`
}

// samples are the folders of corpora/foreign and the formats that read them.
var samples = map[string]string{
	"maxwell": "maxwell", "canal": "canal", "flink-changelog-json": "flink", "ogg": "goldengate", "dms-json": "dms",
	"wal2json": "wal2json", "mongodb-changestream": "mongodb", "dynamodb-streams": "dynamodb", "qlik": "qlik",
	"sqlserver-cdc": "sqlserver-cdc", "airbyte": "airbyte", "singer": "singer",
}

func TestDecoder_Foreign(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "foreign")
	dirs, _ := filepath.Glob(filepath.Join(base, "*", "*", "sample.json"))
	for _, p := range dirs {
		dir := filepath.Dir(p)
		folder := filepath.Base(filepath.Dir(dir))
		format := samples[folder]
		if format == "" {
			continue
		}
		t.Run(folder+"/"+filepath.Base(dir), func(t *testing.T) { runSample(t, dir, format) })
	}
}

func runSample(t *testing.T, dir, format string) {
	raw, err := os.ReadFile(filepath.Join(dir, "sample.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s sample
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	records := sampleRecords(t, dir, &s)
	for i := range s.Tables {
		table := &s.Tables[i]
		t.Run(table.Name, func(t *testing.T) {
			if table.ReplaceByOld {
				t.Skip("a table without key, whose updates replace the row that old names")
			}
			for _, c := range table.Checkpoints {
				checkSample(t, dir, &s, table, format, records[:c.After], c.Expected, c.Columns)
			}
			checkSample(t, dir, &s, table, format, records, table.Expected, table.Columns)
		})
	}
	t.Run("detected", func(t *testing.T) {
		got, why, err := source.Detect(records)
		if len(s.Options.Reject)*20 > len(records) && format == "airbyte" {
			// Lines that are no JSON are more than 5 % of the sample: the user is asked.
			if err == nil {
				t.Errorf("detected %q in spite of %d bad lines", got, len(s.Options.Reject))
			}
			return
		}
		if err != nil || string(got) != format {
			t.Errorf("detected %q (%s), %v; want %s", got, why, err, format)
		}
	})
}

func sampleRecords(t *testing.T, dir string, s *sample) []*event.Record {
	t.Helper()
	var out []*event.Record
	for _, name := range s.Events {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range bytes.Split(bytes.TrimRight(raw, "\n"), []byte("\n")) {
			n := int64(len(out))
			r := &event.Record{Source: name, Line: n + 1, Transport: n, End: n + 1, Value: line, Raw: line}
			if s.Envelope == "kv" {
				var kv struct {
					Key, Value json.RawMessage
					KeyText    *string `json:"key_text"`
				}
				if err := json.Unmarshal(line, &kv); err != nil {
					t.Fatal(err)
				}
				r.Key, r.Value = kv.Key, kv.Value
				if string(kv.Value) == "null" {
					r.Value = nil
				}
			}
			out = append(out, r)
		}
	}
	return out
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
	for _, part := range []string{"table", "table-name", "stream", "coll", "tableName"} {
		if name := match[part]; name != "" {
			return name[strings.LastIndexByte(name, '.')+1:]
		}
	}
	return ""
}

func checkSample(t *testing.T, dir string, s *sample, table *sampleTable, format string, records []*event.Record, expected string, columns map[string]string) {
	t.Helper()
	settings := map[string]string{}
	if !s.Options.PartialUpdates {
		settings["missing_fields"] = "null"
	}
	if table.CaseInsensitive {
		settings["column_case"] = "lower"
	}
	o := changes.Options{Format: format, Keys: table.Key, Schema: hints(t, table), Settings: settings}
	if len(table.Key) == 0 {
		o.Keys = nil
	}
	if name := tableOf(table.Match); name != "" && len(s.Tables) > 1 {
		o.Tables = []string{name}
	}
	want := map[string]map[string]string{}
	for _, row := range corpora.ReadRows(t, filepath.Join(dir, expected)) {
		canon := map[string]string{}
		for c, typ := range columns {
			canon[c] = canonExpected(typ, row[c])
		}
		want[keyText(table.Key, canon, len(want))] = canon
	}
	for _, every := range []int{0, 1, 3} {
		list, rejected := decode(t, o, records, every)
		if len(records) > 0 && expected == table.Expected && !slices.Equal(rejected, s.Options.Reject) {
			t.Errorf("rejected lines %v, want %v", rejected, s.Options.Reject)
		}
		name := tableOf(table.Match)
		var mine []corpora.Change
		for _, c := range list {
			if len(table.Match) == 0 || c.Table == name || c.Table == "" || (format == "sqlserver-cdc") {
				c.Table = table.Name
				mine = append(mine, c)
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
		corpora.SameRows(t, fmt.Sprintf("%d records, flushed every %d", len(records), every), got, want)
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

// decode reads the records; every n records the decoder is replaced by a fresh
// one with its state.
func decode(t *testing.T, o changes.Options, records []*event.Record, every int) ([]corpora.Change, []int64) {
	t.Helper()
	d, err := changes.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var list []corpora.Change
	var rejected []int64
	flush := func() {
		out, err := d.Flush()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range out.Batches {
			list = append(list, corpora.Changes(b)...)
		}
		for _, p := range out.Poison {
			rejected = append(rejected, p.Record.Line)
			t.Logf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
		}
	}
	for i, r := range records {
		if err := d.Add(context.Background(), r); err != nil {
			t.Fatalf("line %d: %v", r.Line, err)
		}
		if every > 0 && (i+1)%every == 0 {
			flush()
			state := d.State()
			if d, err = changes.New(o); err != nil {
				t.Fatal(err)
			}
			if err := d.Restore(state); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush()
	return list, rejected
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
			return clockText(x)
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
