package dynamolog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/dynamolog"
	"github.com/sluice-data/sluice/storage/faultstore"
	"github.com/sluice-data/sluice/storage/storagetest"
)

const root = "s3a://bucket/lake/t"

// table is a DynamoDB table in memory. fail is asked before each call is applied,
// lose after it.
type table struct {
	mu         sync.Mutex
	entries    map[string]dynamolog.Entry
	fail, lose func(op string) error
}

func newTable() *table { return &table{entries: map[string]dynamolog.Entry{}} }

func (t *table) call(op string, apply func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail != nil {
		if err := t.fail(op); err != nil {
			return err
		}
	}
	if err := apply(); err != nil {
		return err
	}
	if t.lose != nil {
		return t.lose(op)
	}
	return nil
}

func (t *table) Get(_ context.Context, path, name string) (out *dynamolog.Entry, err error) {
	err = t.call("get", func() error {
		if e, ok := t.entries[path+"|"+name]; ok {
			out = &e
		}
		return nil
	})
	return out, err
}

func (t *table) Latest(_ context.Context, path string) (out *dynamolog.Entry, err error) {
	err = t.call("latest", func() error {
		for _, e := range t.entries {
			if e.TablePath == path && (out == nil || e.FileName > out.FileName) {
				out = &e
			}
		}
		return nil
	})
	return out, err
}

func (t *table) Add(_ context.Context, e dynamolog.Entry) error {
	return t.call("add", func() error {
		if _, there := t.entries[e.TablePath+"|"+e.FileName]; there {
			return storage.ErrExists
		}
		t.entries[e.TablePath+"|"+e.FileName] = e
		return nil
	})
}

func (t *table) Replace(_ context.Context, e dynamolog.Entry) error {
	return t.call("replace", func() error {
		t.entries[e.TablePath+"|"+e.FileName] = e
		return nil
	})
}

func key(v int) string { return fmt.Sprintf("_delta_log/%020d.json", v) }

func now() time.Time { return time.Unix(1_700_000_000, 0) }

func wrap(inner storage.Store, t *table) storage.Store {
	return dynamolog.New(inner, root, t, dynamolog.Options{Clock: now})
}

func want(t *testing.T, s storage.Store, k, text string) {
	t.Helper()
	if b, err := storage.ReadAll(t.Context(), s, k); err != nil || string(b) != text {
		t.Fatalf("%s: %q, %v; want %q", k, b, err, text)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStore_Commit: W-126, the entry that a commit leaves.
func TestStore_Commit(t *testing.T) {
	t.Run("W-126 entries are Spark's", func(t *testing.T) {
		m, d := storage.NewMemory("t"), newTable()
		s := wrap(m, d)
		ok(t, s.Create(t.Context(), key(0), []byte("zero")))
		ok(t, s.Create(t.Context(), "_apply/state/"+key(0), []byte("state")))
		e := d.entries[root+"|00000000000000000000.json"]
		if !e.Complete || e.Expires != now().Unix()+86400 || !strings.HasPrefix(e.TempPath, ".tmp/00000000000000000000.json.") {
			t.Fatalf("entry %+v", e)
		}
		if _, there := d.entries[root+"/_apply/state|00000000000000000000.json"]; !there {
			t.Fatalf("entries %v", d.entries)
		}
		if err := s.Create(t.Context(), key(0), nil); !errors.Is(err, storage.ErrExists) {
			t.Fatalf("a second commit: %v", err)
		}
		if err := s.Create(t.Context(), key(2), nil); err == nil || errors.Is(err, storage.ErrExists) {
			t.Fatalf("a commit after a hole: %v", err)
		}
		ok(t, s.Create(t.Context(), "_delta_log/00000000000000000000.crc", nil))
		if got := storagetest.Keys(t, m, "", ""); len(got) != 3 || len(d.entries) != 2 {
			t.Fatalf("objects %v, entries %v", got, d.entries)
		}
	})
	t.Run("W-126 a table that was deleted left entries behind", func(t *testing.T) {
		d := newTable()
		ok(t, wrap(storage.NewMemory("old"), d).Create(t.Context(), key(0), []byte("old")))
		err := wrap(storage.NewMemory("new"), d).Create(t.Context(), key(0), []byte("new"))
		if err == nil || errors.Is(err, storage.ErrExists) || !strings.Contains(err.Error(), "older table") {
			t.Fatal(err)
		}
	})
}

// TestStore_WritersPastTheTable: one writer was not told of the DynamoDB table and
// commits by a conditional write between our entry and our copy.
func TestStore_WritersPastTheTable(t *testing.T) {
	t.Run("W-126 their commit stands and ours is refused", func(t *testing.T) {
		m, d := storage.NewMemory("t"), newTable()
		s := wrap(m, d)
		ok(t, s.Create(t.Context(), key(0), []byte("zero")))
		d.lose = func(op string) error {
			if op == "add" {
				ok(t, m.Create(t.Context(), key(1), []byte("theirs")))
			}
			return nil
		}
		if err := s.Create(t.Context(), key(1), []byte("ours")); !errors.Is(err, storage.ErrExists) {
			t.Fatal(err)
		}
		d.lose = nil
		want(t, m, key(1), "theirs")
		ok(t, s.Create(t.Context(), key(2), []byte("ours")))
	})
}

// TestStore_CrashAfterEachStep is W-126's own list: a writer dies after each step of
// a commit, and a second writer, or a reader, ends what must be ended.
func TestStore_CrashAfterEachStep(t *testing.T) {
	died := errors.New("died")
	for _, c := range []struct {
		name      string
		inner     func(faultstore.Call) bool // store call that fails from then on
		table     string                     // call to the table that fails from then on
		lost      string                     // call that is applied, and then everything fails
		committed bool
	}{
		{"before the temporary file", func(c faultstore.Call) bool { return c.Op.Mutates() }, "", "", false},
		{"before the entry", nil, "add", "", false},
		{"after the entry, its answer lost", nil, "", "add", true},
		{"after the entry", func(c faultstore.Call) bool { return c.Op == faultstore.Create && c.Key == key(1) }, "replace", "", true},
		{"after the copy", nil, "replace", "", true},
		{"after all", nil, "", "replace", true},
	} {
		for _, next := range []string{"a reader lists", "a reader opens", "a writer commits the same version", "a writer commits the next version"} {
			t.Run("W-126 "+c.name+"/"+next, func(t *testing.T) {
				m, d := storage.NewMemory("t"), newTable()
				ok(t, wrap(m, d).Create(t.Context(), key(0), []byte("zero")))
				dead := false
				rule := faultstore.Rule{Match: func(call faultstore.Call) bool {
					dead = dead || c.inner != nil && c.inner(call)
					return dead
				}, Err: died, Times: -1}
				d.fail = func(op string) error {
					if dead = dead || op == c.table; dead {
						return died
					}
					return nil
				}
				d.lose = func(op string) error {
					if dead = dead || op == c.lost; dead {
						return died
					}
					return nil
				}
				err := wrap(faultstore.New(m, rule), d).Create(t.Context(), key(1), []byte("one"))
				if !dead {
					t.Fatal("nothing failed")
				}
				if !c.committed && err == nil {
					t.Fatal("it was acknowledged without an entry")
				}
				if err != nil && errors.Is(err, storage.ErrExists) {
					t.Fatalf("it says that a rival won: %v", err)
				}

				d.fail, d.lose = nil, nil
				s := wrap(m, d)
				switch next {
				case "a reader lists":
					keys := storagetest.Keys(t, s, "_delta_log/", key(0))
					if there := len(keys) > 0 && keys[0] == key(1); there != c.committed {
						t.Fatalf("listed %v", keys)
					}
				case "a reader opens":
					if _, err := storage.ReadAll(t.Context(), s, key(1)); (err == nil) != c.committed {
						t.Fatal(err)
					}
				case "a writer commits the same version":
					err := s.Create(t.Context(), key(1), []byte("other"))
					if c.committed != errors.Is(err, storage.ErrExists) || !c.committed && err != nil {
						t.Fatal(err)
					}
				case "a writer commits the next version":
					if !c.committed {
						return
					}
					ok(t, s.Create(t.Context(), key(2), []byte("two")))
					want(t, s, key(2), "two")
				}
				if c.committed {
					want(t, m, key(1), "one")
					if e := d.entries[root+"|00000000000000000001.json"]; !e.Complete || e.Expires == 0 {
						// Who found the file there had nothing to end.
						if next != "a reader opens" && !(next == "a writer commits the same version" && c.table == "replace") {
							t.Fatalf("entry %+v", e)
						}
					}
				}
			})
		}
	}
}

func TestStore_ReadersWithoutRights(t *testing.T) {
	t.Run("W-126 who may not write sees the version before", func(t *testing.T) {
		m, d := storage.NewMemory("t"), newTable()
		ok(t, wrap(m, d).Create(t.Context(), key(0), []byte("zero")))
		ok(t, d.Add(t.Context(), dynamolog.Entry{TablePath: root, FileName: "00000000000000000001.json", TempPath: ".tmp/x"}))
		ok(t, m.Put(t.Context(), "_delta_log/.tmp/x", []byte("one")))
		reader := faultstore.New(m, faultstore.Rule{Match: func(c faultstore.Call) bool { return c.Op.Mutates() }, Err: storage.ErrPermission, Times: -1})
		for _, k := range storagetest.Keys(t, wrap(reader, d), "_delta_log/", "") {
			if k == key(1) {
				t.Fatal("it is visible")
			}
		}
	})
}

// TestStore_Race: writers of one version, while readers repair; the entry decides.
func TestStore_Race(t *testing.T) {
	t.Run("W-126 one of many writers wins", func(t *testing.T) {
		m, d := storage.NewMemory("t"), newTable()
		s := wrap(m, d)
		for v := range 20 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			winner := ""
			for w := range 8 {
				wg.Go(func() {
					me := fmt.Sprint("writer ", w)
					err := s.Create(t.Context(), key(v), []byte(me))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && winner != "":
						t.Errorf("%s and %s both won", winner, me)
					case err == nil:
						winner = me
					case !errors.Is(err, storage.ErrExists):
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				for _, err := range s.List(t.Context(), "_delta_log/", "") {
					if err != nil {
						t.Error(err)
					}
				}
			})
			wg.Wait()
			want(t, m, key(v), winner)
		}
		for _, k := range storagetest.Keys(t, m, "_delta_log/.tmp/", "") {
			t.Errorf("left behind: %s", k)
		}
	})
}
