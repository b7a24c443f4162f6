package stores_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/storage/open"
)

// TestInputs: the rows of append, overwrite and merge, and the snapshots of apply, are read
// from object stores as they are from files, and a message names the URL.
func TestInputs(t *testing.T) {
	x := stores.NewCommand(t)
	each(t, func(t *testing.T, s *stores.Server) {
		x := x.For(t)
		bucket := s.Bucket(t)
		in := openStore(t, bucket+"/in put", open.Options{})
		put := func(key, text string) {
			t.Helper()
			if err := in.Put(t.Context(), key, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		put("new.jsonl", `{"id":1,"name":"Ada"}`+"\n"+`{"id":2,"name":"Bob"}`)
		put("more.csv", "id,name\n2,Bo\n3,Cid\n")
		put("bad.jsonl", `{"id":"x"}`)
		put("dumps/v 1/a.jsonl", `{"id":1,"name":"Ada"}`+"\n"+`{"id":2,"name":"Bob"}`)
		put("dumps/v 2/a.jsonl", `{"id":2,"name":"Bo"}`)
		put("dumps/v 2/b.jsonl", `{"id":3,"name":"Cid"}`)
		put("dumps/v 2/_hidden.jsonl", `{"id":4,"name":"hidden"}`)

		table, from := bucket+"/t", bucket+"/in put/"
		x.Run("create", table, "--schema", "id BIGINT, name STRING")
		x.Run("append", table, "--from", from+"new.jsonl")
		x.Run("merge", table, "--from", from+"more.csv", "--on", "target.id = source.id", "--when-matched-update", "*", "--when-not-matched-insert", "*")
		want := []string{`{"id":1,"name":"Ada"}`, `{"id":2,"name":"Bo"}`, `{"id":3,"name":"Cid"}`}
		if got := stores.Sorted(x.Run("cat", table)); !slices.Equal(got, want) {
			t.Errorf("after append and merge: %q", got)
		}
		// Parquet is read at any place, and tells its columns.
		local := filepath.Join(t.TempDir(), "t")
		x.Run("create", local, "--schema", "id BIGINT, name STRING, note STRING")
		x.Run("append", local, "--from", stores.WriteFile(t, "rows.jsonl", `{"id":9,"name":"Eve","note":"x"}`))
		files, err := filepath.Glob(filepath.Join(local, "*.parquet"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		put("rows.parquet", string(b))
		x.Run("overwrite", table, "--from", from+"rows.parquet", "--overwrite-schema")
		if got := strings.TrimSpace(x.Run("cat", table)); got != `{"id":9,"name":"Eve","note":"x"}` {
			t.Errorf("after overwrite: %s", got)
		}

		dumps := bucket + "/dumped"
		x.Run("apply", "--into", dumps, "--from", from+"dumps", "--snapshot", "--snapshot-version", "{version}/*.jsonl", "--keys", "id")
		if got := stores.Sorted(x.Run("cat", dumps)); !slices.Equal(got, []string{`{"id":2,"name":"Bo"}`, `{"id":3,"name":"Cid"}`}) {
			t.Errorf("after two snapshots: %q", got)
		}
		// A table of a store is a snapshot, too.
		x.Run("apply", "--into", bucket+"/copied", "--from", dumps, "--snapshot", "--keys", "id")
		if got := stores.Sorted(x.Run("cat", bucket+"/copied")); len(got) != 2 {
			t.Errorf("from a table: %q", got)
		}

		for _, c := range []struct{ from, code string }{{from + "bad.jsonl", "TYPE_MISMATCH"}, {from + "absent.jsonl", "NOT_FOUND"}, {from, "INVALID_ARGUMENTS"}} {
			_, said, err := x.Try("append", dumps, "--from", c.from, "--format", "jsonl")
			if err == nil || !strings.Contains(said, c.code) || strings.Contains(said, os.TempDir()+"/sluice-input") {
				t.Errorf("append --from %s: %v: %s", c.from, err, said)
			}
		}
	})
}
