package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-data/sluice/internal/demodata"
)

// program is the command as users run it.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sluice-kafka-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "sluice")
		build := exec.Command("go", "build", "-o", program, "github.com/sluice-data/sluice/cmd/sluice")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build the command:", err)
			return 1
		}
		return m.Run()
	}())
}

// One broker for all, since its start is most of the time.
func TestKafka(t *testing.T) {
	b := startBroker(t)
	t.Run("Kafka.A exactly once over kills", func(t *testing.T) { exactlyOnce(t, b) })
	t.Run("Kafka.D what a broker does", func(t *testing.T) { brokerTricks(t, b) })
	t.Run("SCRAM", func(t *testing.T) { scram(t, b) })
	t.Run("Kafka.D a compacted topic", func(t *testing.T) { compacted(t, b) })
	t.Run("Kafka.A two processes", func(t *testing.T) { twoProcesses(t, b) })
	t.Run("F2.A Avro with a registry", func(t *testing.T) { registryAvro(t, b) })
}

// corpus is the bundled events as records of topics.
func corpus(t *testing.T) (records []*kgo.Record, topics []string) {
	t.Helper()
	events, err := demodata.Events()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(events)) {
		var r struct {
			Topic      string
			Key, Value json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		null := func(b []byte) []byte {
			if string(b) == "null" {
				return nil
			}
			return b
		}
		if !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
		records = append(records, &kgo.Record{Topic: r.Topic, Key: null(r.Key), Value: null(r.Value), Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte{0, 255}}, {Key: "empty"}}})
	}
	return records, topics
}

func client(t *testing.T, b *broker, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(o, kgo.SeedBrokers(b.plain))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func makeTopics(t *testing.T, b *broker, partitions int32, topics ...string) *kadm.Client {
	t.Helper()
	adm := kadm.NewClient(client(t, b))
	r, err := adm.CreateTopics(context.Background(), partitions, 1, nil, topics...)
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return adm
}

// inTransaction writes records that are committed, or aborted.
func inTransaction(t *testing.T, cl *kgo.Client, end kgo.TransactionEndTry, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(ctx, end); err != nil {
		t.Fatal(err)
	}
}

// versions is how many commits the tables below dir have.
func versions(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	files, err := filepath.Glob(filepath.Join(dir, "*", "_delta_log", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	n += len(files)
	return n
}

// sorted are the lines of a text in order.
func sorted(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

// canonical is JSON lines with their members in order.
func canonical(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return sorted(strings.Join(out, "\n"))
}

// Committed and aborted transactions, tombstones, headers, topics by a pattern; sluice
// dies by SIGKILL between commits and the broker in the middle of it all. In the end
// the rows are those of the database.
func exactlyOnce(t *testing.T, b *broker) {
	records, topics := corpus(t)
	makeTopics(t, b, 3, topics...)
	makeTopics(t, b, 1, "other.noise")
	producer := client(t, b, kgo.TransactionalID("writer"), kgo.TransactionTimeout(30*time.Second))
	if err := client(t, b).ProduceSync(context.Background(), &kgo.Record{Topic: "other.noise", Value: []byte("no event")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"apply", "--into", "lake/{table}", "--from", "kafka://" + b.plain, "--option", `topics_pattern=` + strings.Split(topics[0], ".")[0] + `\..*`, "--format", "debezium", "--batch-rows", "20"}
	const rounds = 3
	size := (len(records) + rounds - 1) / rounds
	for round, part := range slices.Collect(slices.Chunk(records, size)) {
		for chunk := range slices.Chunk(part, 25) {
			bogus := &kgo.Record{Topic: chunk[0].Topic, Key: chunk[0].Key, Value: []byte("from a transaction that was aborted")}
			inTransaction(t, producer, kgo.TryAbort, bogus)
			inTransaction(t, producer, kgo.TryCommit, chunk...)
		}
		before := versions(t, filepath.Join(dir, "lake"))
		follow, _, stderr := command(dir, nil, append(args, "--follow", "--batch-interval", "20ms")...)
		if err := follow.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = follow.Wait(); close(ended) }()
		deadline := time.Now().Add(patience)
		for versions(t, filepath.Join(dir, "lake")) < before+3 {
			select {
			case <-ended:
				t.Fatalf("round %d: it ended: %s", round, stderr)
			case <-time.After(5 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				_ = follow.Process.Kill()
				t.Fatalf("round %d: nothing is committed", round)
			}
		}
		if round == 1 {
			b.kill()
			b.begin(t)
		}
		_ = follow.Process.Kill()
		<-ended
	}
	r := sluice(t, dir, nil, args...).must(t)
	if strings.Contains(r.stderr, "could not be applied") {
		t.Errorf("something of an aborted transaction was read: %s", r.stderr)
	}
	for _, table := range demodata.Tables() {
		want, err := demodata.Expected(table)
		if err != nil {
			t.Fatal(err)
		}
		got := sluice(t, dir, nil, "cat", "lake/"+table, "-o", "jsonl").must(t).stdout
		if g, w := canonical(t, got), canonical(t, string(want)); !slices.Equal(g, w) {
			t.Errorf("%s: %d rows, want %d\n%s", table, len(g), len(w), firstDifference(g, w))
		}
	}
	if r := sluice(t, dir, nil, args...).must(t); !strings.Contains(r.stdout, `"batches":0`) {
		t.Errorf("a run over what was read: %s", r.stdout)
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return "got  " + got[i] + "\nwant " + want[i]
		}
	}
	return ""
}

// The other things that a real broker does: TLS with SASL, partitions that are added,
// topics that are made anew, offsets that retention took.
func brokerTricks(t *testing.T, b *broker) {
	adm := makeTopics(t, b, 1, "rows", "again", "short")
	cl := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	put := func(t *testing.T, topic string, partition int32, values ...string) {
		t.Helper()
		for _, v := range values {
			if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	flow := func(into, address, topic string, more ...string) []string {
		return append([]string{"apply", "--into", into, "--from", "kafka://" + address + "/" + topic, "--format", "rows", "--keys", "id", "--sequence-by", "ts"}, more...)
	}
	count := func(t *testing.T, dir, table, want string) {
		t.Helper()
		if got := sluice(t, dir, nil, "cat", table, "--count", "-o", "csv").must(t).stdout; got != "count\n"+want+"\n" {
			t.Errorf("%s: %q, want %s rows", table, got, want)
		}
	}
	t.Run("TLS and SASL", func(t *testing.T) {
		put(t, "rows", 0, `{"id":1,"ts":1}`, `{"id":2,"ts":2}`)
		dir := t.TempDir()
		secure := flow("t", b.secure, "rows", "--option", "tls_ca="+b.ca, "--option", "sasl_mechanism=PLAIN")
		env := []string{"KAFKA_SASL_USERNAME=" + saslUser, "KAFKA_SASL_PASSWORD=" + saslPassword}
		sluice(t, dir, env, secure...).must(t)
		count(t, dir, "t", "2")
		r := sluice(t, dir, []string{env[0], "KAFKA_SASL_PASSWORD=wrong-" + saslPassword}, secure...)
		if r.code == 0 || strings.Contains(r.stderr, saslPassword) {
			t.Errorf("a wrong password: exit %d, %s", r.code, r.stderr)
		}
		if r := sluice(t, dir, env, flow("u", b.secure, "rows", "--option", "tls=true", "--option", "sasl_mechanism=PLAIN")...); r.code == 0 {
			t.Error("a certificate of no known authority was taken")
		}
	})
	t.Run("a partition more", func(t *testing.T) {
		dir := t.TempDir()
		sluice(t, dir, nil, flow("t", b.plain, "rows")...).must(t)
		r, err := adm.UpdatePartitions(context.Background(), 2, "rows")
		if err == nil {
			err = r.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the new partition takes records", func() bool {
			fresh, err := kgo.NewClient(kgo.SeedBrokers(b.plain), kgo.RecordPartitioner(kgo.ManualPartitioner())) // one that was there has the old list
			if err != nil {
				t.Fatal(err)
			}
			defer fresh.Close()
			return fresh.ProduceSync(context.Background(), &kgo.Record{Topic: "rows", Partition: 1, Value: []byte(`{"id":3,"ts":3}`)}).FirstErr() == nil
		})
		sluice(t, dir, nil, flow("t", b.plain, "rows")...).must(t)
		count(t, dir, "t", "3")
	})
	t.Run("made anew", func(t *testing.T) {
		dir := t.TempDir()
		put(t, "again", 0, `{"id":1,"ts":1}`)
		sluice(t, dir, nil, flow("t", b.plain, "again")...).must(t)
		if _, err := adm.DeleteTopics(context.Background(), "again"); err != nil {
			t.Fatal(err)
		}
		until(t, "the topic is there again", func() bool {
			r, err := adm.CreateTopics(context.Background(), 1, 1, nil, "again")
			return err == nil && r.Error() == nil
		})
		until(t, "it takes records", func() bool {
			fresh := client(t, b)
			return fresh.ProduceSync(context.Background(), &kgo.Record{Topic: "again", Value: []byte(`{"id":2,"ts":2}`)}).FirstErr() == nil
		})
		if r := sluice(t, dir, nil, flow("t", b.plain, "again")...); r.code == 0 || !strings.Contains(r.stderr, "SOURCE_CHANGED") {
			t.Errorf("exit %d: %s", r.code, r.stderr)
		}
		sluice(t, dir, nil, flow("t", b.plain, "again", "--option", "fail_on_data_loss=false")...).must(t)
		count(t, dir, "t", "2")
	})
	t.Run("offsets that are gone", func(t *testing.T) {
		dir := t.TempDir()
		put(t, "short", 0, `{"id":1,"ts":1}`)
		sluice(t, dir, nil, flow("t", b.plain, "short")...).must(t)
		put(t, "short", 0, `{"id":2,"ts":2}`, `{"id":3,"ts":3}`)
		if _, err := adm.DeleteRecords(context.Background(), kadm.Offsets{"short": {0: {Topic: "short", Partition: 0, At: 2}}}); err != nil {
			t.Fatal(err)
		}
		if r := sluice(t, dir, nil, flow("t", b.plain, "short")...); r.code == 0 || !strings.Contains(r.stderr, "INPUT_GONE") {
			t.Errorf("exit %d: %s", r.code, r.stderr)
		}
		sluice(t, dir, nil, flow("t", b.plain, "short", "--option", "fail_on_data_loss=false")...).must(t)
		count(t, dir, "t", "2")
	})
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// Avro writes the few types that the envelope below has.
type avroBytes []byte

func (b avroBytes) long(n int64) avroBytes { return binary.AppendVarint(b, n) }
func (b avroBytes) text(s string) avroBytes {
	return append(b.long(int64(len(s))), s...)
}

const envelope = `{"type":"record","name":"Envelope","namespace":"s.public.people","fields":[
{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"],"default":null}%[1]s]}],"default":null},
{"name":"after","type":["null","Value"],"default":null},
{"name":"source","type":{"type":"record","name":"Source","namespace":"io.debezium.connector.postgresql","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"schema","type":"string"},{"name":"table","type":"string"},{"name":"lsn","type":["null","long"],"default":null}]}},
{"name":"op","type":"string"}],"connect.name":"s.public.people.Envelope"}`

// Debezium's envelope in Avro with schemas of a real registry, which change in the
// middle of the topic.
func registryAvro(t *testing.T, b *broker) {
	url := startRegistry(t)
	makeTopics(t, b, 1, "s.public.people")
	keyID := register(t, url, "s.public.people-key", `{"type":"record","name":"Key","namespace":"s.public.people","fields":[{"name":"id","type":"long"}]}`)
	first := register(t, url, "s.public.people-value", fmt.Sprintf(envelope, ""))
	second := register(t, url, "s.public.people-value", fmt.Sprintf(envelope, `,{"name":"age","type":["null","int"],"default":null}`))
	framed := func(id int32) avroBytes { return binary.BigEndian.AppendUint32([]byte{0}, uint32(id)) }
	cl := client(t, b)
	lsn := int64(100)
	event := func(schema int32, op string, id int64, name string, age *int64) *kgo.Record {
		lsn += 10
		row := avroBytes{}.long(id).long(1).text(name)
		if schema == second {
			if age == nil {
				row = row.long(0)
			} else {
				row = row.long(1).long(*age)
			}
		}
		v := framed(schema)
		if op == "d" {
			v = append(v.long(1), row...).long(0)
		} else {
			v = append(v.long(0).long(1), row...)
		}
		v = v.text("postgresql").text("d").text("public").text("people").long(1).long(lsn).text(op)
		return &kgo.Record{Topic: "s.public.people", Key: framed(keyID).long(id), Value: v}
	}
	age := int64(42)
	put := func(records ...*kgo.Record) {
		t.Helper()
		if err := cl.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	args := []string{"apply", "--into", "people", "--from", "kafka://" + b.plain + "/s.public.people", "--option", "registry=" + url}
	put(event(first, "c", 1, "Ann", nil), event(first, "c", 2, "Bob", nil), event(first, "c", 3, "Cy", nil))
	r := sluice(t, dir, nil, args...).must(t)
	if !strings.Contains(r.stdout, `"inserted":3`) {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	gone := event(second, "d", 2, "Bob", nil)
	put(event(second, "u", 1, "Anna", &age), event(first, "u", 3, "Cyd", nil), gone, &kgo.Record{Topic: gone.Topic, Key: gone.Key})
	sluice(t, dir, nil, args...).must(t)
	if got := sluice(t, dir, nil, "cat", "people", "--order-by", "id", "-o", "csv").must(t).stdout; got != "id,name,age\n1,Anna,42\n3,Cyd,\n" {
		t.Errorf("got %q", got)
	}
}

// register puts a schema into the registry and answers its id.
func register(t *testing.T, url, subject, schema string) int32 {
	t.Helper()
	body, err := json.Marshal(map[string]string{"schema": schema})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(url+"/subjects/"+subject+"/versions", "application/vnd.schemaregistry.v1+json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", r.Status, answer, err)
	}
	var got struct{ ID int32 }
	if err := json.Unmarshal(answer, &got); err != nil || got.ID == 0 {
		t.Fatalf("%s: %v", answer, err)
	}
	return got.ID
}
