package storagetest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage"
)

// Keys lists the keys under prefix after startAfter and fails the test on an error.
func Keys(t testing.TB, s storage.Store, prefix, startAfter string) []string {
	t.Helper()
	var keys []string
	for o, err := range s.List(t.Context(), prefix, startAfter) {
		ok(t, err)
		keys = append(keys, o.Key)
	}
	return keys
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantClass(t testing.TB, what string, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("%s: got %v, want %v", what, err, class)
	}
}

func wantBytes(t testing.TB, s storage.Store, key, want string) {
	t.Helper()
	b, err := storage.ReadAll(t.Context(), s, key)
	ok(t, err)
	if string(b) != want {
		t.Fatalf("%s holds %d bytes, want %d: %.40q, want %.40q", key, len(b), len(want), b, want)
	}
}

func wantKeys(t testing.TB, s storage.Store, prefix, after string, want ...string) {
	t.Helper()
	if got := Keys(t, s, prefix, after); !slices.Equal(got, want) {
		t.Fatalf("list %q after %q:\n got  %q\n want %q", prefix, after, got, want)
	}
}

// filter is the meaning of List, on sorted keys.
func filter(keys []string, prefix, after string) []string {
	var out []string
	for _, k := range keys {
		if strings.HasPrefix(k, prefix) && k > after {
			out = append(out, k)
		}
	}
	return out
}

func keysOf(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
