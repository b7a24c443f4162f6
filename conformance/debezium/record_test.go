package debezium

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/demodata"
)

// TestCorpus_Fold folds the bundled events with nothing but maps.
func TestCorpus_Fold(t *testing.T) {
	events, err := demodata.Events()
	if err != nil {
		t.Fatal(err)
	}
	got := fold(t, events)
	for _, table := range demodata.Tables() {
		expected, err := demodata.Expected(table)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, table, got[table], expected)
	}
}

// TestCorpus_RecordAgain makes a new recording and compares its tables.
func TestCorpus_RecordAgain(t *testing.T) {
	if os.Getenv("SLUICE_RECORD") != "1" {
		t.Skip("needs PostgreSQL, Java and Maven, and half a minute: set SLUICE_RECORD=1")
	}
	dir := t.TempDir()
	out, err := exec.Command("./record.sh", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("record.sh: %v\n%s", err, out)
	}
	events, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	got := fold(t, events)
	for _, table := range demodata.Tables() {
		expected, err := demodata.Expected(table)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, table, got[table], expected)
	}
}

func compare(t *testing.T, table string, got map[string]map[string]any, expected []byte) {
	t.Helper()
	n := 0
	for _, line := range bytes.Split(bytes.TrimSpace(expected), []byte("\n")) {
		want := decode[map[string]any](t, line)
		key := keyOf(table, want)
		if !reflect.DeepEqual(got[key], want) {
			t.Errorf("%s %s:\n got %v\nwant %v", table, key, got[key], want)
		}
		n++
	}
	if n != len(got) {
		t.Errorf("%s: %d rows folded, database held %d", table, len(got), n)
	}
}

type field struct {
	Field, Type, Name string
	Parameters        map[string]string
	Fields            []field
}

// fold keeps the newest image of each key per table.
func fold(t *testing.T, events []byte) map[string]map[string]map[string]any {
	tables := map[string]map[string]map[string]any{}
	for _, line := range bytes.Split(bytes.TrimSpace(events), []byte("\n")) {
		rec := decode[struct {
			Value *struct {
				Schema  field
				Payload struct {
					Op            string
					Source        struct{ Table string }
					Before, After map[string]any
				}
			}
		}](t, line)
		if rec.Value == nil {
			continue // a tombstone repeats the delete before it
		}
		p := rec.Value.Payload
		rows := tables[p.Source.Table]
		if rows == nil {
			rows = map[string]map[string]any{}
			tables[p.Source.Table] = rows
		}
		if p.Op == "d" {
			delete(rows, keyOf(p.Source.Table, p.Before))
			continue
		}
		key := keyOf(p.Source.Table, p.After)
		for _, f := range columns(rec.Value.Schema) {
			v := p.After[f.Field]
			if v == "__debezium_unavailable_value" {
				p.After[f.Field] = rows[key][f.Field]
				continue
			}
			p.After[f.Field] = value(t, f, v)
		}
		rows[key] = p.After
	}
	return tables
}

func columns(envelope field) []field {
	for _, f := range envelope.Fields {
		if f.Field == "after" {
			return f.Fields
		}
	}
	return nil
}

// value turns what the wire carries into what the database prints.
func value(t *testing.T, f field, v any) any {
	if v == nil {
		return nil
	}
	switch f.Name {
	case "org.apache.kafka.connect.data.Decimal":
		raw, err := base64.StdEncoding.DecodeString(v.(string))
		if err != nil {
			t.Fatal(err)
		}
		n := new(big.Int).SetBytes(raw)
		if len(raw) > 0 && raw[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(raw))))
		}
		var scale int
		fmt.Sscan(f.Parameters["scale"], &scale)
		digits := fmt.Sprintf("%0*s", scale+1, n)
		return json.Number(digits[:len(digits)-scale] + "." + digits[len(digits)-scale:])
	case "io.debezium.time.Date":
		days, err := v.(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return time.Unix(days*86400, 0).UTC().Format("2006-01-02")
	}
	return v
}

func keyOf(table string, row map[string]any) string {
	var parts []string
	for _, k := range demodata.Keys(table) {
		parts = append(parts, fmt.Sprint(row[k]))
	}
	return strings.Join(parts, "/")
}

func decode[T any](t *testing.T, line []byte) T {
	var v T
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
