//go:build linux

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/conformance/faultproxy"
	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// server is an object store by the name that docs/reliability.md has for it.
type server struct {
	*stores.Server
	name string
}

// TestOperations_OnServers is what needs object stores and other engines: there is one
// process of each engine, so all servers are there before it.
func TestOperations_OnServers(t *testing.T) {
	servers := []server{{stores.S3(t), "S3"}, {stores.GCS(t), "GCS"}, {stores.Azure(t), "Azure"}}
	for _, s := range servers {
		s.Setenv(t)
	}
	rs := engines.DeltaRS(t)
	t.Run("damaged network", func(t *testing.T) { overDamagedNetwork(t, servers, rs) })
	t.Run("killed", func(t *testing.T) { killedOn(t, "S3", servers[0].Bucket(t), 3, rs) })
	t.Run("killed beside readers", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short run: Spark is not started")
		}
		killedOn(t, "local disk", "file://"+t.TempDir(), 1, rs, engines.Spark(t))
	})
	t.Run("soak", func(t *testing.T) { soak(t, servers[0], rs) })
}

// readBy holds what other engines read of a table against the number of its rows.
func readBy(t *testing.T, location string, rows int, readers ...*engines.Engine) {
	t.Helper()
	location = strings.TrimPrefix(strings.Replace(location, "azblob://", "az://", 1), "file://")
	for _, e := range readers {
		if got := e.Rows(t, location); len(got) != rows {
			t.Errorf("%s reads %d rows of %s, want %d", e.Name(), len(got), location, rows)
		}
	}
}

// overNetwork are the operations that run over a damaged network.
func overNetwork() []operation {
	return named("apply, type 1", "append", "append without a transaction id", "merge", "merge with deletion vectors", "delete", "optimize", "vacuum", "checkpoint")
}

func openStore(t testing.TB, location string, settings map[string]string) storage.Store {
	t.Helper()
	s, err := open.Store(location, open.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	return storage.WithRetry(s, storage.RetryOptions{}) // as the command has it
}

// overDamagedNetwork: between an operation and its object store connections break, answers
// get lost, come twice or in part, and errors are answered after the request was applied
// (invariant 2).
func overDamagedNetwork(t *testing.T, servers []server, rs *engines.Engine) {
	rounds := 2
	if long() {
		rounds = 25
	}
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			target := strings.TrimSuffix(strings.TrimPrefix(s.Endpoint, "http://"), "/devstoreaccount1")
			bucket := s.Bucket(t)
			for i, op := range overNetwork() {
				t.Run("law 8 "+op.name, func(t *testing.T) {
					want, total := reference{}, 0
					for round := range rounds {
						location := fmt.Sprintf("%s/%d-%d", bucket, i, round)
						direct := newBench(openStore(t, location, nil), t.TempDir())
						if err := op.prepare(direct); err != nil {
							t.Fatalf("prepare: %v", err)
						}
						if round == 0 {
							calm := newBench(storage.NewMemory("m"), t.TempDir())
							if err := op.prepare(calm); err != nil {
								t.Fatal(err)
							}
							want = *refer(t, op, calm)
						}
						proxy := faultproxy.Start(t, target, faultproxy.Options{Seed: *seed*1000 + int64(100*i+round)})
						damaged := direct.on(openStore(t, location, map[string]string{
							"endpoint": strings.Replace(s.Endpoint, "http://"+target, proxy.URL, 1), "anonymous": fmt.Sprint(s.name == "GCS")}))
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
						damaged.ctx = ctx
						err := op.run(damaged)
						cancel()
						met := proxy.Met()
						if err := op.survived(direct, &want, err, false); err != nil {
							t.Fatalf("seed %d round %d, faults %v: %v", *seed, round, met, err)
						}
						for kind, n := range met {
							total += n
							survived(s.name+": "+string(kind), op.name, n)
						}
						t.Logf("round %d: faults %v, answer %v", round, met, err)
					}
					readBy(t, fmt.Sprintf("%s/%d-0/%s", bucket, i, op.table()), len(want.last()), rs)
					if total == 0 {
						t.Error("no request met a fault")
					}
				})
			}
		})
	}
}
