package stores_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
	"github.com/sluice-data/sluice/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.Main(func(location string) (storage.Store, error) { return open.Store(location, open.Options{}) })
	os.Exit(m.Run())
}

// each runs a test on every server.
func each(t *testing.T, test func(t *testing.T, s *stores.Server)) {
	for _, c := range []struct {
		name  string
		start func(testing.TB) *stores.Server
	}{{"S3", stores.S3}, {"GCS", stores.GCS}, {"Azure", stores.Azure}} {
		t.Run(c.name, func(t *testing.T) {
			s := c.start(t)
			s.Setenv(t)
			test(t, s)
		})
	}
}

func openStore(t testing.TB, location string, o open.Options) storage.Store {
	t.Helper()
	s, err := open.Store(location, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_Contract(t *testing.T) {
	each(t, func(t *testing.T, s *stores.Server) {
		bucket, clouds := s.Bucket(t), &open.Clouds{}
		var n atomic.Int64
		storagetest.Run(t, storagetest.Config{URLPrefix: s.Scheme, Lists: 40, New: func(t *testing.T) storage.Store {
			return openStore(t, fmt.Sprintf("%s/lake/t%d", bucket, n.Add(1)), open.Options{Clouds: clouds})
		}})
	})
}

func TestStore_RaceProcesses(t *testing.T) {
	each(t, func(t *testing.T, s *stores.Server) {
		n, rounds := 16, 3
		if s.Scheme == "s3://" {
			n = 100
		}
		t.Run(fmt.Sprintf("W-123 one of %d processes creates an object", n), func(t *testing.T) {
			location := s.Bucket(t) + "/t"
			storagetest.RaceProcesses(t, openStore(t, location, open.Options{}), location, n, rounds)
		})
	})
}
