package storage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
	"github.com/sluice-data/sluice/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.Main(func(dir string) (storage.Store, error) {
		return storage.NewLocal(dir, storage.LocalOptions{})
	})
	os.Exit(m.Run())
}

func local(t testing.TB, dir string) *storage.Local {
	t.Helper()
	s, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLocal_Contract(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "file://", New: func(t *testing.T) storage.Store {
		return local(t, filepath.Join(t.TempDir(), "not", "yet there"))
	}})
}

func TestLocal_ContractNoSync(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "file://", New: func(t *testing.T) storage.Store {
		s, err := storage.NewLocal(t.TempDir(), storage.LocalOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}

func TestMemory_Contract(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "mem://", New: func(*testing.T) storage.Store {
		return storage.NewMemory("t")
	}})
}

func TestMemory_ContractAfterCrash(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "mem://", New: func(*testing.T) storage.Store {
		return storage.NewMemory("t").Crash()
	}})
}

func TestSub_Contract(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "mem://", New: func(*testing.T) storage.Store {
		return storage.Sub(storage.NewMemory("t"), "a/b")
	}})
}

func TestWithRetry_Contract(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "mem://", New: func(*testing.T) storage.Store {
		return storage.WithRetry(storage.NewMemory("t"), storage.RetryOptions{})
	}})
}

func TestFaultstore_ContractWithoutFaults(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "mem://", New: func(*testing.T) storage.Store {
		return faultstore.New(storage.NewMemory("t"))
	}})
}

// TestWithRetry_ContractUnderFaults: a store whose every third read call is
// shed looks like a healthy one from above the retries.
func TestWithRetry_ContractUnderFaults(t *testing.T) {
	storagetest.Run(t, storagetest.Config{URLPrefix: "mem://", New: func(*testing.T) storage.Store {
		f := faultstore.New(storage.NewMemory("t"), faultstore.Rule{
			Match: func(c faultstore.Call) bool {
				return c.N%3 == 1 && (!c.Op.Mutates() || c.Op == faultstore.Delete || c.Op == faultstore.Create)
			},
			Err: storage.ErrTransient, Times: -1,
		})
		return storage.WithRetry(f, storage.RetryOptions{Attempts: 50, Sleep: noSleep})
	}})
}

func TestLocal_RaceProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("100 racing processes take some seconds: run without -short")
	}
	t.Run("W-122 one of 100 processes creates a file", func(t *testing.T) {
		dir := t.TempDir()
		storagetest.RaceProcesses(t, local(t, dir), dir, 100, 10)
		if left := tempFiles(t, dir); len(left) > 0 {
			t.Fatalf("temporary files left over: %v", left)
		}
	})
}
