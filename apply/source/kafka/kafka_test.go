package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/kafka"
)

// cluster is a broker in memory with a client.
type cluster struct {
	t    *testing.T
	addr []string
	cl   *kgo.Client
	adm  *kadm.Client
}

func newCluster(t *testing.T, parts int32, topics ...string) *cluster {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(parts, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c := &cluster{t: t, addr: k.ListenAddrs()}
	if c.cl, err = kgo.NewClient(kgo.SeedBrokers(c.addr...), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.cl.Close)
	c.adm = kadm.NewClient(c.cl)
	return c
}

func (c *cluster) put(topic string, part int32, values ...string) {
	c.t.Helper()
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: part, Key: []byte("k"), Value: []byte(v)}
		if v == "NULL" {
			r.Value = nil
		}
		if err := c.cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) options(topics ...string) kafka.Options {
	return kafka.Options{Brokers: c.addr, Topics: topics, Idle: 5 * time.Second}
}

// read takes what is there; the positions come back for the next call.
func read(t *testing.T, o kafka.Options, from map[string]event.Position) ([]string, map[string]event.Position, error) {
	t.Helper()
	s := kafka.New(o)
	var out []string
	for r, err := range s.Records(context.Background(), from) {
		if err != nil {
			return out, from, err
		}
		v := string(r.Value)
		if r.Value == nil {
			v = "NULL"
		}
		out = append(out, fmt.Sprintf("%s/%d@%d=%s", r.Topic, r.Partition, r.Transport, v))
	}
	list, err := s.Positions()
	if err != nil {
		t.Fatal(err)
	}
	pos := map[string]event.Position{}
	for _, p := range list {
		pos[p.Source] = p
	}
	slices.Sort(out)
	return out, pos, nil
}

func must(t *testing.T, o kafka.Options, from map[string]event.Position, want ...string) map[string]event.Position {
	t.Helper()
	got, pos, err := read(t, o, from)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	return pos
}

func code(err error) string {
	var e *kafka.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func TestSource_Kafka_A_EachRecordOnce(t *testing.T) {
	c := newCluster(t, 2, "a")
	c.put("a", 0, "1", "2")
	c.put("a", 1, "3")
	pos := must(t, c.options("a"), nil, "a/0@0=1", "a/0@1=2", "a/1@0=3")
	pos = must(t, c.options("a"), pos)
	c.put("a", 0, "4")
	pos = must(t, c.options("a"), pos, "a/0@2=4")
	must(t, c.options("a"), pos)
}

// TestSource_Kafka_A_CutAnywhere: whoever stops between two records goes on from
// the positions of that moment.
func TestSource_Kafka_A_CutAnywhere(t *testing.T) {
	c := newCluster(t, 3, "a")
	var want []string
	for i := range 30 {
		c.put("a", int32(i%3), fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	for _, every := range []int{1, 4, 7} {
		var got []string
		from := map[string]event.Position{}
		for len(got) < len(want) {
			s := kafka.New(c.options("a"))
			n := 0
			for r, err := range s.Records(context.Background(), from) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(r.Value))
				if n++; n == every {
					break
				}
			}
			if n == 0 {
				break
			}
			list, err := s.Positions()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				from[p.Source] = p
			}
		}
		slices.SortFunc(got, func(a, b string) int { return len(a)*1000 - len(b)*1000 + strings.Compare(a, b) })
		if !slices.Equal(got, want) {
			t.Errorf("every %d: %v", every, got)
		}
	}
}

func TestSource_Kafka_B_NullAndEmpty(t *testing.T) {
	c := newCluster(t, 1, "a")
	c.put("a", 0, "NULL", "")
	must(t, c.options("a"), nil, "a/0@0=NULL", "a/0@1=")
}

func TestSource_Kafka_C_PartitionsGrow(t *testing.T) {
	c := newCluster(t, 1, "a")
	c.put("a", 0, "1")
	o := c.options("a")
	o.Start = "latest"
	pos := must(t, o, nil)
	if _, err := c.adm.CreatePartitions(context.Background(), 1, "a"); err != nil {
		t.Fatal(err)
	}
	c.cl.ForceMetadataRefresh()
	time.Sleep(300 * time.Millisecond)
	c.put("a", 1, "new")
	must(t, o, pos, "a/1@0=new")
}

func TestSource_Kafka_D_AbortedAndGaps(t *testing.T) {
	c := newCluster(t, 1, "a")
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.addr...), kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	ctx := context.Background()
	send := func(commit kgo.TransactionEndTry, values ...string) {
		t.Helper()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if err := tx.ProduceSync(ctx, &kgo.Record{Topic: "a", Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.EndTransaction(ctx, commit); err != nil {
			t.Fatal(err)
		}
	}
	send(kgo.TryCommit, "1")
	send(kgo.TryAbort, "lost")
	send(kgo.TryCommit, "2")
	pos := must(t, c.options("a"), nil, "a/0@0=1", "a/0@4=2")
	for _, p := range pos {
		if p.Offset != 6 {
			t.Errorf("position %d, want 6: behind the last commit marker", p.Offset)
		}
	}
	must(t, c.options("a"), pos)
}

func TestSource_Kafka_D_TopicMadeAnew(t *testing.T) {
	c := newCluster(t, 1, "a")
	c.put("a", 0, "1")
	pos := must(t, c.options("a"), nil, "a/0@0=1")
	ctx := context.Background()
	if _, err := c.adm.DeleteTopics(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.adm.CreateTopics(ctx, 1, 1, nil, "a"); err != nil {
		t.Fatal(err)
	}
	_, _, err := read(t, c.options("a"), pos)
	if code(err) != "SOURCE_CHANGED" {
		t.Errorf("a topic made anew: %v", err)
	}
	o := c.options("a")
	o.AllowLoss = true
	s := kafka.New(o)
	warned := ""
	s.Warn = func(format string, args ...any) { warned += fmt.Sprintf(format, args...) }
	for _, err := range s.Records(ctx, pos) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(warned, "epoch") {
		t.Errorf("warned %q", warned)
	}
}

func TestSource_Kafka_E_StartingOffsets(t *testing.T) {
	c := newCluster(t, 1, "a")
	c.put("a", 0, "1")
	time.Sleep(20 * time.Millisecond)
	at := time.Now()
	time.Sleep(20 * time.Millisecond)
	c.put("a", 0, "2")
	o := c.options("a")
	o.Start, o.StartAt = "time", at
	must(t, o, nil, "a/0@1=2")
	o.Start = "latest"
	pos := must(t, o, nil)
	c.put("a", 0, "3")
	must(t, o, pos, "a/0@2=3")
}

func TestSource_Kafka_G_OffsetsGone(t *testing.T) {
	c := newCluster(t, 1, "a")
	c.put("a", 0, "1", "2", "3")
	o := c.options("a")
	_, pos, err := read(t, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, p := range pos {
		p.Offset = 0
		pos[k] = p
	}
	ctx := context.Background()
	if _, err := c.adm.DeleteRecords(ctx, kadm.Offsets{"a": {0: kadm.Offset{Topic: "a", Partition: 0, At: 2}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(t, o, pos); code(err) != "INPUT_GONE" {
		t.Errorf("offsets that are gone: %v", err)
	}
	o.AllowLoss = true
	must(t, o, pos, "a/0@2=3")
	for k, p := range pos {
		p.Offset = 99
		pos[k] = p
	}
	o.AllowLoss = false
	if _, _, err := read(t, o, pos); code(err) != "SOURCE_CHANGED" {
		t.Errorf("a position behind the end: %v", err)
	}
	if _, _, err := read(t, c.options("none"), nil); code(err) != "TOPIC_NOT_FOUND" {
		t.Errorf("no such topic: %v", err)
	}
}

func TestSource_Kafka_Pattern(t *testing.T) {
	c := newCluster(t, 1, "shop.orders", "shop.lines", "other")
	c.put("shop.orders", 0, "1")
	c.put("shop.lines", 0, "2")
	c.put("other", 0, "3")
	o := c.options()
	o.Pattern = regexp.MustCompile(`^(?:shop\..*)$`)
	pos := must(t, o, nil, "shop.lines/0@0=2", "shop.orders/0@0=1")
	if _, err := c.adm.CreateTopics(context.Background(), 1, 1, nil, "shop.new"); err != nil {
		t.Fatal(err)
	}
	c.put("shop.new", 0, "4")
	must(t, o, pos, "shop.new/0@0=4")
}

func TestParseURL(t *testing.T) {
	env := func(k string) string {
		return map[string]string{"KAFKA_SASL_USERNAME": "u", "KAFKA_SASL_PASSWORD": "p"}[k]
	}
	settings := map[string]string{"start": "latest", "fail_on_data_loss": "false", "sasl_mechanism": "SCRAM-SHA-512", "tls": "true", "epoch": "1"}
	o, err := kafka.ParseURL("kafka://b1:9092,b2:9092/x,y", settings, env)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Brokers) != 2 || len(o.Topics) != 2 || o.Start != "latest" || !o.AllowLoss || len(o.Client) != 2 || len(settings) != 1 {
		t.Errorf("%+v, left %v", o, settings)
	}
	for location, option := range map[string]string{"kafka://b": "", "kafka:///t": "", "kafka://u:secret@b/t": "", "kafka://b/t": "start=soon", "kafka://b:1/t": "sasl_mechanism=GSSAPI", "kafka://b:2/t": "tls_ca=/none"} {
		set := map[string]string{}
		if k, v, ok := strings.Cut(option, "="); ok {
			set[k] = v
		}
		_, err := kafka.ParseURL(location, set, env)
		if code(err) != "BAD_OPTION" {
			t.Errorf("%s %s: %v", location, option, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password shows: %v", err)
		}
	}
}

// TestSource_Lag: what waits is known from the first look on, also in the middle of
// reading, and not while nobody answers.
func TestSource_Lag(t *testing.T) {
	c := newCluster(t, 2, "a")
	c.put("a", 0, "1", "2", "3")
	c.put("a", 1, "4")
	s := kafka.New(c.options("a"))
	if n, ok := s.Lag(); ok {
		t.Errorf("a lag of %d before the first look", n)
	}
	first := true
	for _, err := range s.Records(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := s.Lag(); first && (!ok || n != 4) {
			t.Errorf("lag %d, %v at the first record", n, ok)
		}
		first = false
	}
	if n, ok := s.Lag(); !ok || n != 0 {
		t.Errorf("lag %d, %v at the end", n, ok)
	}
	list, err := s.Positions()
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]event.Position{}
	for _, p := range list {
		from[p.Source] = p
	}
	gone := kafka.New(kafka.Options{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"a"}})
	for _, err := range gone.Records(context.Background(), from) {
		if err == nil || !kafka.Outage(err) {
			t.Errorf("got %v", err)
		}
	}
	if n, ok := gone.Lag(); ok {
		t.Errorf("a lag of %d of brokers that are away", n)
	}
	if err := (&kafka.Error{Code: "SOURCE_CHANGED"}); kafka.Outage(err) {
		t.Error("a topic that was made anew is no outage")
	}
}
