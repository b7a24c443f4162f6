package stores_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/files"
	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// Files.A and Files.D on real object stores: objects below a prefix are read in their
// order, each once, and one that was replaced is told by its ETag.
func TestSource_Files_A_Prefix(t *testing.T) {
	each(t, func(t *testing.T, s *stores.Server) {
		ctx := context.Background()
		root := s.Bucket(t) + "/landing"
		clouds := &open.Clouds{}
		openAt := func(location string) (storage.Store, error) {
			return open.Store(location, open.Options{Clouds: clouds})
		}
		st := openStore(t, root, open.Options{Clouds: clouds})
		put := func(key, text string) {
			t.Helper()
			if err := st.Put(ctx, key, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		pos := map[string]event.Position{}
		read := func(path string) ([]string, error) {
			t.Helper()
			src, err := files.New(files.Options{Paths: []string{path}, OpenStore: openAt, Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for r, err := range src.Records(ctx, maps.Clone(pos)) {
				if err != nil {
					return out, err
				}
				out = append(out, string(r.Value))
			}
			list, err := src.Positions()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				pos[p.Source] = p
			}
			return out, nil
		}
		want := func(path string, rows ...string) {
			t.Helper()
			if got, err := read(path); err != nil || !slices.Equal(got, rows) {
				t.Fatalf("%s: got %q, %v, want %q", path, got, err, rows)
			}
		}
		put("d=1/part-10.jsonl", "{\"id\":10}\n")
		put("d=1/part-9.jsonl", "{\"id\":9}")
		put("d=2/a b&+ü.jsonl", "{\"id\":3}\n")
		put("d=2/_SUCCESS", "x")
		want(root, `{"id":9}`, `{"id":10}`, `{"id":3}`)
		want(root)
		want(root + "/d=*/*.jsonl")
		put("d=3/x.jsonl", "{\"id\":4}\n")
		want(root+"/d=3/x.jsonl", `{"id":4}`)
		want(root)
		var big strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&big, "{\"id\":%d,\"text\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}\n", i)
		}
		put("d=4/big.jsonl", big.String())
		if got, err := read(root); err != nil || len(got) != 100_000 {
			t.Fatalf("%d rows, %v", len(got), err)
		}
		put("d=3/x.jsonl", "{\"id\":5}\n")
		if _, err := read(root); err == nil || !strings.Contains(err.Error(), "FILE_CHANGED") {
			t.Errorf("a replaced object: %v", err)
		}
	})
}
