package kafka

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// scram logs in with both mechanisms, whose passwords the broker keeps hashed.
func scram(t *testing.T, b *broker) {
	adm := makeTopics(t, b, 1, "hashed")
	cl := client(t, b)
	if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: "hashed", Value: []byte(`{"id":1,"ts":1}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	const user, password = "hashed-user", "also-not-a-secret"
	for name, mechanism := range map[string]kadm.ScramMechanism{"SCRAM-SHA-256": kadm.ScramSha256, "SCRAM-SHA-512": kadm.ScramSha512} {
		r, err := adm.AlterUserSCRAMs(context.Background(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: mechanism, Iterations: 8192, Password: password}})
		if err == nil {
			err = r.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		flow := []string{"apply", "--into", "t", "--from", "kafka://" + b.secure + "/hashed", "--format", "rows", "--keys", "id", "--sequence-by", "ts",
			"--option", "tls_ca=" + b.ca, "--option", "sasl_mechanism=" + name}
		until(t, name+" knows the user", func() bool { // the controller's word takes a moment
			return sluice(t, dir, []string{"KAFKA_SASL_USERNAME=" + user, "KAFKA_SASL_PASSWORD=" + password}, flow...).code == 0
		})
		if got := sluice(t, dir, nil, "cat", "t").must(t).stdout; got != "{\"id\":1,\"ts\":1}\n" {
			t.Errorf("%s: %s", name, got)
		}
		r2 := sluice(t, dir, []string{"KAFKA_SASL_USERNAME=" + user, "KAFKA_SASL_PASSWORD=wrong-" + password}, flow...)
		if r2.code == 0 || strings.Contains(r2.stderr, password) {
			t.Errorf("%s, a wrong password: exit %d, %s", name, r2.code, r2.stderr)
		}
	}
}

// compacted reads a topic whose cleaner took records away: the newest of each key are
// there, and gaps in the offsets are no loss.
func compacted(t *testing.T, b *broker) {
	adm := kadm.NewClient(client(t, b))
	text := func(s string) *string { return &s }
	created, err := adm.CreateTopics(context.Background(), 1, 1, map[string]*string{"cleanup.policy": text("compact"), "segment.ms": text("100"),
		"min.cleanable.dirty.ratio": text("0.001"), "max.compaction.lag.ms": text("100"), "delete.retention.ms": text("100")}, "compacted")
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	cl := client(t, b)
	n := 0
	put := func(key int) {
		t.Helper()
		n++
		r := &kgo.Record{Topic: "compacted", Key: fmt.Appendf(nil, `{"id":%d}`, key), Value: fmt.Appendf(nil, `{"id":%d,"ts":%d}`, key, n)}
		if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		put(1)
		put(2)
	}
	until(t, "the cleaner came", func() bool {
		put(3) // an open segment is never cleaned
		time.Sleep(150 * time.Millisecond)
		return there(t, b, "compacted") < n-10
	})
	dir := t.TempDir()
	flow := []string{"apply", "--into", "t", "--from", "kafka://" + b.plain + "/compacted", "--format", "rows", "--keys", "id", "--sequence-by", "ts"}
	sluice(t, dir, nil, flow...).must(t)
	want := fmt.Sprintf("{\"id\":1,\"ts\":39}\n{\"id\":2,\"ts\":40}\n{\"id\":3,\"ts\":%d}\n", n)
	if got := sluice(t, dir, nil, "cat", "t", "--order-by", "id").must(t).stdout; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	put(1)
	sluice(t, dir, nil, flow...).must(t)
	if got := sluice(t, dir, nil, "cat", "t", "--where", "id = 1").must(t).stdout; got != fmt.Sprintf("{\"id\":1,\"ts\":%d}\n", n) {
		t.Errorf("behind the gaps: %s", got)
	}
}

// there is how many records a topic holds.
func there(t *testing.T, b *broker, topic string) int {
	t.Helper()
	cl := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	n := 0
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		f := cl.PollFetches(ctx)
		cancel()
		if f.NumRecords() == 0 {
			return n
		}
		n += f.NumRecords()
	}
}

// twoProcesses follow one topic into one table at once; one is killed, partitions are
// added and another takes over. No row comes twice and none is missing.
func twoProcesses(t *testing.T, b *broker) {
	adm := makeTopics(t, b, 3, "shared")
	cl := client(t, b)
	n := 0
	put := func(count int) {
		t.Helper()
		for range count {
			n++
			r := &kgo.Record{Topic: "shared", Key: fmt.Appendf(nil, `{"id":%d}`, n), Value: fmt.Appendf(nil, `{"id":%d,"ts":%d}`, n, n)}
			if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	flow := []string{"apply", "--into", "t", "--from", "kafka://" + b.plain + "/shared", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--follow", "--batch-interval", "50ms", "--batch-rows", "20"}
	start := func() *exec.Cmd {
		cmd, _, stderr := command(dir, nil, flow...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(stderr.String())
			}
		})
		return cmd
	}
	rows := func() string { return sluice(t, dir, nil, "cat", "t", "--count").stdout }
	put(60)
	first, second := start(), start()
	until(t, "the first rows", func() bool { return rows() == "{\"count\":60}\n" })
	put(60)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r, err := adm.UpdatePartitions(context.Background(), 6, "shared")
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	third := start()
	put(60)
	until(t, "all rows", func() bool { return rows() == "{\"count\":180}\n" })
	for _, p := range []*exec.Cmd{second, third} {
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	feed := sluice(t, dir, nil, "changes", "t", "--from-version", "0").must(t).stdout
	if inserts, lines := strings.Count(feed, `"_change_type":"insert"`), strings.Count(feed, "\n"); inserts != 180 || lines != 180 {
		t.Errorf("%d inserts in %d changes", inserts, lines)
	}
}
