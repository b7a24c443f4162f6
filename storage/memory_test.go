package storage_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/storagetest"
)

func TestMemory_Crash(t *testing.T) {
	ctx := t.Context()
	m := storage.NewMemory("t")
	must(t, m.Create(ctx, "created", nil))
	must(t, m.Put(ctx, "put", nil))
	w, err := m.NewWriter(ctx, "closed")
	must(t, err)
	must(t, w.Close())
	open, err := m.NewWriter(ctx, "open")
	must(t, err)
	_, err = open.Write([]byte("lost"))
	must(t, err)

	after := m.Crash()
	must(t, open.Close())
	must(t, m.Delete(ctx, "put"))
	if got := storagetest.Keys(t, after, "", ""); !slices.Equal(got, []string{"closed", "created", "put"}) {
		t.Fatalf("after the crash: %q", got)
	}
	if got := storagetest.Keys(t, m, "", ""); !slices.Equal(got, []string{"closed", "created", "open"}) {
		t.Fatalf("the original: %q", got)
	}
}

func TestMemory_Clock(t *testing.T) {
	at := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	m := storage.NewMemoryWith("t", storage.MemoryOptions{Clock: func() time.Time { return at }})
	must(t, m.Create(t.Context(), "k", nil))
	o, err := m.Head(t.Context(), "k")
	must(t, err)
	if !o.ModTime.Equal(at) {
		t.Fatalf("modification time %v", o.ModTime)
	}
}
