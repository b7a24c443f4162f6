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
