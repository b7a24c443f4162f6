package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// followed is an apply --follow under test.
type followed struct {
	t              *testing.T
	cmd            *exec.Cmd
	addr           string
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

func (f *followed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stderr.Write(p)
}

func (f *followed) errors() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stderr.String()
}

func startFollow(t *testing.T, dir string, args ...string) *followed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{t: t, addr: l.Addr().String(), ended: make(chan struct{})}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f.cmd = exec.Command(binary, append(append([]string{"apply"}, args...), "--follow", "--batch-interval", "100ms", "--listen", f.addr)...)
	f.cmd.Dir, f.cmd.Stdout, f.cmd.Stderr = dir, &f.stdout, f
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = f.cmd.Wait(); close(f.ended) }()
	t.Cleanup(func() { _ = f.cmd.Process.Kill(); <-f.ended })
	return f
}

func (f *followed) get(path string) (int, string) {
	resp, err := http.Get("http://" + f.addr + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

func (f *followed) ready() bool { code, _ := f.get("/ready"); return code == http.StatusOK }

func (f *followed) stop() {
	f.t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	select {
	case <-f.ended:
	case <-time.After(time.Minute):
		f.t.Fatal("SIGTERM does not end it")
	}
	if code := f.cmd.ProcessState.ExitCode(); code != exitInterrupted {
		f.t.Errorf("exit %d: %s", code, f.errors())
	}
}

// TestApply_FollowWithParkedTable: the other tables go on, the parked one is tried again
// and gets everything that came in between.
func TestApply_FollowWithParkedTable(t *testing.T) {
	dir := t.TempDir()
	n := 0
	put := func(topic, value string) {
		t.Helper()
		n++
		file, err := os.OpenFile(filepath.Join(dir, "in.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		fmt.Fprintf(file, `{"topic":%q,"partition":0,"offset":%d,"key":null,"value":%s}`+"\n", topic, n, value)
	}
	put("a", `{"id":1,"ts":1}`)
	put("b", `{"id":1,"ts":1}`)
	args := []string{"--into", "lake/{table}", "--from", "in.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "ts", "--schema-evolution", "failOnNewColumns"}
	must(t, dir, append([]string{"apply"}, args...)...)
	put("a", `{"id":2,"ts":2,"x":"new"}`)
	f := startFollow(t, dir, args...)
	wait(t, "parked", func() bool { _, m := f.get("/metrics"); return strings.Contains(m, "sluice_apply_parked_targets 1") })
	for i := 2; i < 5; i++ {
		put("a", fmt.Sprintf(`{"id":%d,"ts":%d}`, i+1, i+1))
		put("b", fmt.Sprintf(`{"id":%d,"ts":%d}`, i, i))
		want := fmt.Sprintf("{\"count\":%d}\n", i)
		wait(t, "the other table", func() bool { return must(t, dir, "cat", "lake/b", "--count") == want })
	}
	if got := must(t, dir, "cat", "lake/a", "--count"); got != "{\"count\":1}\n" {
		t.Errorf("the parked table has %s", got)
	}
	must(t, dir, "alter", "lake/a", "add-column", "x STRING")
	wait(t, "the table to catch up", func() bool { return must(t, dir, "cat", "lake/a", "--count") == "{\"count\":5}\n" })
	wait(t, "no parked table", func() bool { _, m := f.get("/metrics"); return strings.Contains(m, "sluice_apply_parked_targets 0") })
	f.stop()
	if got := must(t, dir, "cat", "lake/a", "--order-by", "id", "--limit", "2"); got != `{"id":1,"ts":1,"x":null}`+"\n"+`{"id":2,"ts":2,"x":"new"}`+"\n" {
		t.Errorf("got %s", got)
	}
	if n := strings.Count(f.errors(), "lake/a: stopped"); n != 1 {
		t.Errorf("the stop is told %d times: %s", n, f.errors())
	}
}

// TestApply_FollowBrokerOutage: /ready turns, the lag is absent, and after the outage
// everything is there once.
func TestApply_FollowBrokerOutage(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "people"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var down atomic.Bool
	k.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		if down.Load() {
			return nil, errors.New("down"), true
		}
		return nil, nil, false
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	put := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			r := &kgo.Record{Topic: "people", Key: fmt.Appendf(nil, `{"id":%d}`, i), Value: fmt.Appendf(nil, `{"id":%d,"ts":%d}`, i, i)}
			if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 10)
	dir := t.TempDir()
	f := startFollow(t, dir, "--into", "t", "--from", "kafka://"+k.ListenAddrs()[0]+"/people", "--format", "rows", "--keys", "id", "--sequence-by", "ts")
	count := func(n int) func() bool {
		return func() bool {
			r := sluice(t, dir, "cat", "t", "--count")
			return r.code == 0 && r.stdout == fmt.Sprintf("{\"count\":%d}\n", n)
		}
	}
	wait(t, "the first rows", count(10))
	wait(t, "ready", f.ready)
	if _, m := f.get("/metrics"); !strings.Contains(m, "sluice_apply_source_lag_records 0") {
		t.Errorf("no lag in %s", m)
	}
	down.Store(true)
	wait(t, "not ready", func() bool { return !f.ready() })
	if _, m := f.get("/metrics"); strings.Contains(m, "sluice_apply_source_lag_records") {
		t.Errorf("a lag that nobody knows: %s", m)
	}
	down.Store(false)
	put(10, 20)
	wait(t, "the rows behind the outage", count(20))
	wait(t, "ready again", f.ready)
	f.stop()
	if !strings.Contains(f.errors(), "trying again in 1s") {
		t.Errorf("nothing was said: %s", f.errors())
	}
}
