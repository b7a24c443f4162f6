//go:build linux

package kill

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/storage"
)

// childEnv holds the arguments of a child: "when n table events"; events is a file of the
// corpus, or what runStored reads.
const childEnv = "SLUICE_TEST_APPLY"

// The moments at which a child signals itself.
const (
	undisturbed = "undisturbed"
	before      = "before"
	after       = "after"
	sleep       = "sleep" // SIGSTOP before the operation
)

func TestMain(m *testing.M) {
	if args := os.Getenv(childEnv); args != "" {
		if err := child(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(args string) error {
	var when, table, events string
	var n int64
	if _, err := fmt.Sscan(args, &when, &n, &table, &events); err != nil {
		return fmt.Errorf("read %q: %w", args, err)
	}
	local, err := storage.NewLocal(table, storage.LocalOptions{})
	if err != nil {
		return err
	}
	store := &signaller{Store: local, when: when, at: n}
	work := run
	if strings.Contains(events, ",") {
		work = runStored
	}
	r, err := work(store, events)
	if err != nil {
		return err
	}
	fmt.Printf("%d operations, %d batches, %d quarantined\n", store.count.Load(), r.Batches, r.Events.Poison)
	return nil
}

// run applies the events of a file in batches of batchRows.
func run(store storage.Store, events string) (apply.Result, error) {
	return runAs(store, events, "customers", batchRows)
}

// runAs is run as a flow of another name, in batches of its own size.
func runAs(store storage.Store, events, flow string, rows int) (r apply.Result, err error) {
	ctx := context.Background()
	in, err := source.Open(ctx, source.Spec{Format: source.Debezium, From: []string{events}, Host: "test"})
	if err != nil {
		return r, err
	}
	r, err = apply.Run(ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder,
		Target: apply.Targets{Store: store, Name: "customers"},
		Flow:   apply.Flow{Name: flow, BatchRows: rows, OnPoison: apply.PoisonQuarantine}}, apply.Options{})
	if cerr := in.Source.Close(); err == nil {
		err = cerr
	}
	return r, err
}

// signaller counts operations and signals its own process at one of them.
type signaller struct {
	storage.Store
	when  string
	at    int64
	count atomic.Int64
}

// do does one operation.
func (s *signaller) do(op func()) {
	n := s.count.Add(1) - 1
	if n == s.at && (s.when == before || s.when == sleep) {
		s.signal()
	}
	op()
	if n == s.at && s.when == after {
		s.signal()
	}
}

func (s *signaller) signal() {
	sig := syscall.SIGKILL
	if s.when == sleep {
		sig = syscall.SIGSTOP
	}
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if sig == syscall.SIGKILL {
		select {} // it is on its way
	}
}

func (s *signaller) Head(ctx context.Context, key string) (o storage.Object, err error) {
	s.do(func() { o, err = s.Store.Head(ctx, key) })
	return o, err
}

func (s *signaller) Open(ctx context.Context, key string) (r storage.Reader, err error) {
	s.do(func() { r, err = s.Store.Open(ctx, key) })
	return r, err
}

func (s *signaller) Create(ctx context.Context, key string, data []byte) (err error) {
	s.do(func() { err = s.Store.Create(ctx, key, data) })
	return err
}

func (s *signaller) Put(ctx context.Context, key string, data []byte) (err error) {
	s.do(func() { err = s.Store.Put(ctx, key, data) })
	return err
}

func (s *signaller) Delete(ctx context.Context, key string) (err error) {
	s.do(func() { err = s.Store.Delete(ctx, key) })
	return err
}

func (s *signaller) List(ctx context.Context, prefix, startAfter string) (l iter.Seq2[storage.Object, error]) {
	s.do(func() { l = s.Store.List(ctx, prefix, startAfter) })
	return l
}

func (s *signaller) NewWriter(ctx context.Context, key string) (w storage.Writer, err error) {
	s.do(func() { w, err = s.Store.NewWriter(ctx, key) })
	if err != nil {
		return nil, err
	}
	return &writer{Writer: w, s: s}, nil
}

// writer counts the operations on an unfinished object too.
type writer struct {
	storage.Writer
	s *signaller
}

func (w *writer) Write(p []byte) (n int, err error) {
	w.s.do(func() { n, err = w.Writer.Write(p) })
	return n, err
}

func (w *writer) Close() (err error) {
	w.s.do(func() { err = w.Writer.Close() })
	return err
}

// customers writes the events of one table of the bundled corpus to a file.
func customers(t *testing.T, all []byte) string {
	t.Helper()
	path := t.TempDir() + "/events.jsonl"
	var lines strings.Builder
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, `"topic":"shop.public.customers"`) {
			lines.WriteString(line)
		}
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
