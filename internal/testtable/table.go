package testtable

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/storage"
)

// Spec describes a table to build; the zero value of everything but DDL is a plain
// empty table in memory.
type Spec struct {
	DDL        string
	Partition  []string
	Properties map[string]string
	// Store is where it lies; nil is a fresh memory store.
	Store storage.Store
	// Options of the table; without a clock it gets one that starts at 2024-01-01 and
	// moves a second a call.
	Options delta.Options
	// Rows are JSON objects, one append each.
	Rows []string
}

// New builds the table.
func New(tb testing.TB, s Spec) *delta.Table {
	tb.Helper()
	ctx := context.Background()
	if s.Store == nil {
		s.Store = storage.NewMemory("t")
	}
	if s.Options.Clock == nil {
		s.Options.Clock = Clock()
	}
	t, err := delta.Create(ctx, s.Store, delta.CreateOptions{
		Schema: Struct(tb, s.DDL), PartitionBy: s.Partition, Properties: s.Properties,
	}, s.Options)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range s.Rows {
		if _, err := t.Append(ctx, Rows(tb, s.DDL, r), delta.WriteOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	return t
}

// Clock is a clock that starts at 2024-01-01 UTC and moves a second a call.
func Clock() func() time.Time {
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	ch := make(chan time.Time, 1)
	ch <- at
	return func() time.Time {
		t := <-ch
		t = t.Add(time.Second)
		ch <- t
		return t
	}
}

// Read is the sorted canonical rows of the table.
func Read(tb testing.TB, t *delta.Table, o delta.ScanOptions) []string {
	tb.Helper()
	s, err := t.Scan(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return Lines(tb, s.Batches(context.Background()))
}

// Files lists the keys in the store, for tests that nothing is left behind.
func Files(tb testing.TB, s storage.Store) []string {
	tb.Helper()
	var out []string
	for o, err := range s.List(context.Background(), "", "") {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, o.Key)
	}
	return out
}

// Numbers is JSON objects {"id": n, ...} for n in [from, to); more is appended to
// each object with every % replaced by n.
func Numbers(from, to int, more string) string {
	out := ""
	for n := from; n < to; n++ {
		out += fmt.Sprintf(`{"id":%d%s}`+"\n", n, expand(more, n))
	}
	return out
}

func expand(s string, n int) string {
	out := ""
	for _, r := range s {
		if r == '%' {
			out += fmt.Sprint(n)
		} else {
			out += string(r)
		}
	}
	return out
}
