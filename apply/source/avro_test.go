package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
)

// TestDecoder_F2_A_Corpus reads a stream that Debezium wrote in Avro through a
// registry and compares with the database.
func TestDecoder_F2_A_Corpus(t *testing.T) {
	dir := testenv.SharedDir(t, "corpora", "producers", "pg-shop-avro")
	c := corpora.Load(t, dir)
	c.Modes["decimal"], c.Schemas = "precise", true
	raw, err := os.ReadFile(filepath.Join(dir, "schemas.json"))
	if err != nil {
		t.Fatal(err)
	}
	var docs map[string]json.RawMessage
	if err := json.Unmarshal(raw, &docs); err != nil {
		t.Fatal(err)
	}
	asked := map[string]int{}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := filepath.Base(r.URL.Path)
		asked[id]++
		if asked[id] == 1 && id == "2" {
			w.WriteHeader(http.StatusServiceUnavailable) // once; it is asked again
			return
		}
		if docs[id] == nil || !strings.HasPrefix(r.URL.Path, "/schemas/ids/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(docs[id])
	}))
	defer registry.Close()
	for _, table := range []string{"customers", "products", "orders", "order_lines"} {
		t.Run(table, func(t *testing.T) {
			spec := source.Spec{From: []string{corpora.EventsFile(t, dir)}, Tables: []string{table},
				Options: map[string]string{"schemas": filepath.Join(dir, "schemas.json"), "avro.encoding": "base64"}}
			if table == "orders" {
				spec.Options = map[string]string{"registry": registry.URL, "avro.encoding": "base64"}
			}
			batches, all := decodeAll(t, spec, 0)
			for _, p := range all.Poison {
				t.Errorf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
			}
			var list []corpora.Change
			for _, b := range batches {
				list = append(list, corpora.Changes(b)...)
			}
			want := corpora.ExpectedRows(t, c, dir, table)
			check := func(what string, list []corpora.Change) {
				t.Helper()
				got := corpora.CanonRows(c, table, corpora.Fold(list)[table].Images())
				for _, rows := range []corpora.Table{got, want} {
					for _, row := range rows {
						delete(row, "channel") // ADD COLUMN with a default sends no rows (README)
					}
				}
				corpora.SameRows(t, what, got, want)
			}
			check("in stream order", list)
			rng := rand.New(rand.NewSource(1))
			for range 3 {
				rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				check("shuffled", list)
			}
			var cut []corpora.Change
			parts, _ := decodeAll(t, spec, 7)
			for _, b := range parts {
				cut = append(cut, corpora.Changes(b)...)
			}
			check("cut every 7 records", cut)
		})
	}
	for id, n := range asked {
		if n > 6 { // one for each of the times that the source is opened
			t.Errorf("schema %s was asked for %d times", id, n)
		}
	}
}

// TestDecoder_F2_A_Foreign reads the Avro samples of other projects.
func TestDecoder_F2_A_Foreign(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "foreign", "debezium-avro")
	for sample, schemas := range map[string]map[string]string{"flink-products": {"81": "schema-81.avsc"}, "risingwave-customers": {"6": "schema-6.avsc"}} {
		t.Run(sample, func(t *testing.T) {
			dir := filepath.Join(base, sample)
			docs := map[string]json.RawMessage{}
			for id, file := range schemas {
				raw, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				docs[id] = raw
			}
			all, err := json.Marshal(docs)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			tmp := t.TempDir()
			var lines strings.Builder
			for i, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
				var v struct {
					Value *string `json:"value_b64"`
				}
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					t.Fatal(err)
				}
				value, err := json.Marshal(v.Value)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&lines, `{"topic":"t","partition":0,"offset":%d,"key":null,"value":%s}`+"\n", i, value)
			}
			for name, text := range map[string]string{"events.jsonl": lines.String(), "schemas.json": string(all)} {
				if err := os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			spec := source.Spec{From: []string{filepath.Join(tmp, "events.jsonl")}, Keys: []string{"id"},
				Options: map[string]string{"schemas": filepath.Join(tmp, "schemas.json"), "avro.encoding": "base64"}}
			batches, out := decodeAll(t, spec, 0)
			for _, p := range out.Poison {
				t.Errorf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
			}
			var got []string
			var list []corpora.Change
			for _, b := range batches {
				list = append(list, corpora.Changes(b)...)
			}
			for _, f := range corpora.Fold(list) {
				for _, row := range f.Images() {
					got = append(got, fmt.Sprint(row))
				}
			}
			var want []string
			for _, row := range corpora.ReadRows(t, filepath.Join(dir, "expected.jsonl")) {
				want = append(want, fmt.Sprint(row))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestDecoder_F2_G_UnknownSchema: an id that the registry does not know stops the
// flow and is no poison.
func TestDecoder_F2_G_UnknownSchema(t *testing.T) {
	tmp := t.TempDir()
	for name, text := range map[string]string{"e.jsonl": `{"topic":"t","partition":0,"offset":0,"key":null,"value":"AAAAACoC"}` + "\n", "s.json": `{"1":"\"long\""}`} {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := source.Open(context.Background(), source.Spec{From: []string{filepath.Join(tmp, "e.jsonl")},
		Options: map[string]string{"schemas": filepath.Join(tmp, "s.json"), "avro.encoding": "base64"}})
	if err == nil || !strings.Contains(err.Error(), "SCHEMA_UNKNOWN") {
		t.Errorf("unknown schema: %v", err)
	}
}
