package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-data/sluice/internal/demodata"
)

// TestApply_Kafka puts the bundled corpus into topics piece by piece and applies
// them into a table each; the broker is one in memory that speaks the protocol.
func TestApply_Kafka(t *testing.T) {
	events, err := demodata.Events()
	if err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	var topics []string
	for line := range strings.Lines(string(events)) {
		var r struct {
			Topic      string
			Key, Value json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if string(r.Value) == "null" {
			r.Value = nil
		}
		if string(r.Key) == "null" {
			r.Key = nil
		}
		if !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
		records = append(records, &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value})
	}
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topics...))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	dir := t.TempDir()
	from := "kafka://" + k.ListenAddrs()[0] + "/" + strings.Join(topics, ",")
	third := len(records) / 3
	for _, part := range [][]*kgo.Record{records[:third], records[third : 2*third], records[2*third:], nil} {
		if err := cl.ProduceSync(context.Background(), part...).FirstErr(); len(part) > 0 && err != nil {
			t.Fatal(err)
		}
		must(t, dir, "apply", "--into", "lake/{table}", "--from", from)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "lake", "*", "_delta_log"))
	if err != nil || len(tables) < 2 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, p := range tables {
		name := filepath.Base(filepath.Dir(p))
		want, err := demodata.Expected(name)
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, name, must(t, dir, "cat", "lake/"+name), string(want))
	}
	if text := must(t, dir, "detect", from, "-o", "table"); !strings.Contains(text, "format    debezium") {
		t.Error(text)
	}
}

func TestApply_KafkaUnreachable(t *testing.T) {
	dir := t.TempDir()
	r := sluice(t, dir, "apply", "--into", "t", "--from", "kafka://127.0.0.1:1/topic")
	if r.code != exitFailed || !strings.Contains(r.stderr, "KAFKA_UNREACHABLE") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}

// A topic is a source of statements too: plain rows ordered by a column, and changes that
// carry their own order; a second run goes on where the first one ended.
func TestApply_KafkaInStatements(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "people", "changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	send := func(topic, key, value string) {
		t.Helper()
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	change := func(id, name, lsn string) string {
		return `{"op":"c","before":null,"after":{"id":` + id + `,"name":"` + name + `"},"source":{"connector":"postgresql","schema":"public","table":"a","db":"d","lsn":` + lsn + `}}`
	}
	dir := t.TempDir()
	broker := "kafka://" + k.ListenAddrs()[0]
	put(t, dir, "flows.sql", "CREATE SOURCE cdc FROM '"+broker+"/changes';\n"+
		"CREATE STREAMING TABLE people; APPLY CHANGES INTO people FROM STREAM(rows) KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY ts COLUMNS * EXCEPT (op, ts);\n"+
		"CREATE STREAMING TABLE changed; CREATE FLOW c AS AUTO CDC INTO changed FROM STREAM cdc KEYS (id) STORED AS SCD TYPE 2;\n")
	args := []string{"apply", "-f", "flows.sql", "--source", "rows=" + broker + "/people"}
	send("people", "1", `{"id":1,"name":"Ann","op":"I","ts":5}`)
	send("people", "2", `{"id":2,"name":"Bob","op":"I","ts":2}`)
	send("changes", `{"id":1}`, change("1", "Ann", "1"))
	must(t, dir, args...)
	send("people", "1", `{"id":1,"name":"late","op":"I","ts":4}`)
	send("people", "2", `{"id":2,"op":"D","ts":3}`)
	send("changes", `{"id":1}`, change("1", "Anna", "2"))
	must(t, dir, args...)
	sameRows(t, "people", must(t, dir, "cat", "people", "-o", "jsonl"), `{"id":1,"name":"Ann"}`+"\n")
	sameRows(t, "changed", must(t, dir, "cat", "changed", "--columns", "id,name", "-o", "jsonl"), `{"id":1,"name":"Ann"}`+"\n"+`{"id":1,"name":"Anna"}`+"\n")
	if got := must(t, dir, args...); !strings.Contains(got, `"read":0`) {
		t.Errorf("read again: %s", got)
	}
}
