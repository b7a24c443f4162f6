package stores_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// secrets are the parts of credentials that must not be seen anywhere.
func secrets(s *stores.Server) []string {
	out := []string{stores.Secret}
	if k := s.Env["AZURE_STORAGE_KEY"]; k != "" {
		out = append(out, k)
	}
	return out
}

// TestCommands: what commands say and leave on an object store is what they say and
// leave on a disk, and no secret is in it.
func TestCommands(t *testing.T) {
	x := stores.NewCommand(t)
	local := t.TempDir()
	want := script(x, local)
	each(t, func(t *testing.T, s *stores.Server) {
		x := x.For(t)
		bucket := s.Bucket(t)
		got := script(x, bucket+"/lake house")
		for i := range want {
			if !slices.Equal(got[i].lines, want[i].lines) {
				t.Errorf("sluice %s:\n on the store %s\n on the disk  %s", got[i].args, strings.Join(got[i].lines, "\n   "), strings.Join(want[i].lines, "\n   "))
			}
		}
		// Errors that come from deep within the clients.
		for _, args := range [][]string{
			{"cat", s.Scheme + "nosuchbucket0/t"}, {"cat", bucket + "/absent"}, {"cat", bucket + "/t", "--store-option", "endpoint=http://127.0.0.1:1"},
			{"append", bucket + "/lake house/people", "--from", stores.WriteFile(t, "bad.jsonl", `{"id":"x"}`)},
		} {
			if _, _, err := x.Try(args...); err == nil {
				t.Errorf("sluice %s: no error", args)
			}
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong"+stores.Secret)
		t.Setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")
		_, said, err := x.Try("cat", bucket+"/lake house/people")
		if s.Scheme != "gs://" && (err == nil || !strings.Contains(said, "PERMISSION_DENIED")) {
			t.Errorf("a wrong key: %v, %s", err, said)
		}
		for _, secret := range secrets(s) {
			if i := bytes.Index(x.Said(), []byte(secret)); i >= 0 {
				b := x.Said()
				t.Errorf("a secret was said: %s", b[max(0, i-200):i+len(secret)])
			}
		}
		s.Setenv(t)
		for o, err := range openStore(t, bucket, open.Options{}).List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			b, err := storage.ReadAll(t.Context(), openStore(t, bucket, open.Options{}), o.Key)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range secrets(s) {
				if bytes.Contains(b, []byte(secret)) {
					t.Errorf("%s holds a secret", o.Key)
				}
			}
		}
	})
}

type said struct {
	args  []string
	lines []string
}

// volatile is what differs between two runs of one command.
var volatile = regexp.MustCompile(`"(timestamp|_commit_timestamp|seconds|bytes|engine|engineInfo|txnId|duration|metrics|location|size)":("[^"]*"|\{[^}]*\}|[0-9.]+),?`)

// script runs commands below a location and gives what they printed.
func script(x *stores.Command, root string) []said {
	x.T.Helper()
	events := stores.WriteFile(x.T, "people.jsonl", `{"id":1,"name":"Ada","seq":1}`, `{"id":2,"name":"Bob","seq":2}`, `{"id":1,"name":"Ada L","seq":3}`)
	late := stores.WriteFile(x.T, "late.jsonl", `{"id":1,"name":"old","seq":2}`, `{"id":3,"name":"Cid","seq":9}`)
	more := stores.WriteFile(x.T, "more.jsonl", `{"id":10,"name":"Eve"}`, `{"id":11,"name":"50% a/b"}`)
	people, plain := root+"/people", root+"/plain"
	var out []said
	for _, args := range [][]string{
		{"apply", "--into", people, "--from", events, "--keys", "id", "--sequence-by", "seq"},
		{"apply", "--into", people, "--from", events, "--keys", "id", "--sequence-by", "seq"},
		{"apply", "--into", people, "--from", late, "--keys", "id", "--sequence-by", "seq", "--flow", "second"},
		{"cat", people}, {"changes", people, "--from-version", "0"},
		{"create", plain, "--schema", "id BIGINT, name STRING", "--partition-by", "name", "--property", "delta.enableChangeDataFeed=true"},
		{"append", plain, "--from", more},
		{"update", plain, "--set", "id = id + 1", "--where", "name = '50% a/b'"},
		{"delete", plain, "--where", "id = 10"},
		{"cat", plain}, {"changes", plain, "--from-version", "0"},
		{"checkpoint", plain}, {"optimize", plain},
		{"restore", plain, "--version", "1"}, {"cat", plain, "--version", "3"}, {"cat", plain, "--count"},
		{"clone", plain, root + "/copy"}, {"cat", root + "/copy"},
		{"diff", plain, "--from", "1", "--to", "3"},
		{"verify", people, "--against", people},
		{"vacuum", plain, "--retain", "0h", "--allow-short-retention"}, {"cat", plain},
		{"apply", "--into", root + "/fed", "--from", plain, "--keys", "id"}, {"cat", root + "/fed"},
	} {
		o := x.Run(args...)
		o = strings.NewReplacer(strings.TrimSuffix(openStore(x.T, root, open.Options{}).URL(), "/"), "ROOT", root, "ROOT").Replace(o)
		o = volatile.ReplaceAllString(o, "")
		out = append(out, said{args, stores.Sorted(o)})
	}
	return out
}

// TestEngines_SameTables: sluice processes and delta-rs append to one table at the
// same time, on each store; every acknowledged row is there once, for both readers.
func TestEngines_SameTables(t *testing.T) {
	x := stores.NewCommand(t)
	servers := []*stores.Server{stores.S3(t), stores.GCS(t), stores.Azure(t)}
	for _, s := range servers {
		s.Setenv(t) // one process of delta-rs serves them all
	}
	rs := engines.DeltaRS(t)
	for _, s := range servers {
		t.Run("W-123 "+s.Scheme, func(t *testing.T) {
			table := s.Bucket(t) + "/shared"
			theirs := strings.Replace(table, "azblob://", "az://", 1) // as delta-rs spells it
			x := x.For(t)
			x.Run("create", table, "--schema", "id BIGINT, who STRING")
			const writers, appends = 3, 4
			var wg sync.WaitGroup
			defer wg.Wait() // also when delta-rs ends the test
			for w := range writers {
				wg.Go(func() {
					for n := range appends {
						file := stores.WriteFile(t, "rows.jsonl", fmt.Sprintf(`{"id":%d,"who":"sluice"}`, 100*w+n))
						if _, e, err := x.Try("append", table, "--from", file); err != nil {
							t.Errorf("append: %v\n%s", err, e)
						}
					}
				})
			}
			for n := range appends {
				if s.ReadOnly {
					x.Run("append", table, "--from", stores.WriteFile(t, "rows.jsonl", fmt.Sprintf(`{"id":%d,"who":"sluice"}`, 1000+n)))
					continue
				}
				rs.Append(t, theirs, fmt.Sprintf(`{"id":%d,"who":"delta-rs"}`, 1000+n))
			}
			wg.Wait()
			var ids []int
			for _, line := range stores.Sorted(x.Run("cat", table)) {
				var row struct{ ID int }
				if err := json.Unmarshal([]byte(line), &row); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, row.ID)
			}
			slices.Sort(ids)
			var want []int
			for w := range writers {
				for n := range appends {
					want = append(want, 100*w+n)
				}
			}
			for n := range appends {
				want = append(want, 1000+n)
			}
			if !slices.Equal(ids, want) {
				t.Fatalf("rows %v, want %v", ids, want)
			}
			if got := rs.Rows(t, theirs); len(got) != len(want) {
				t.Fatalf("delta-rs reads %d rows, want %d", len(got), len(want))
			}
			x.Run("optimize", table)
			if s.ReadOnly {
				return
			}
			rs.Update(t, theirs, map[string]string{"who": "'x'"}, "id >= 1000")
			if got := x.Run("cat", table, "--where", "who = 'x'", "--count"); !strings.Contains(got, fmt.Sprintf(`"count":%d`, appends)) {
				t.Fatalf("after an update by delta-rs: %s", got)
			}
		})
	}
}
