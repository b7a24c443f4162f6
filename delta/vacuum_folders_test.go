package delta_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

// folders are the folders below dir.
func folders(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != dir {
			rel, _ := filepath.Rel(dir, p)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTable_VacuumFolders: on a local disk the folders that a vacuum empties go, and
// those that have been empty for long; the table's own, hidden ones and other tables'
// stay, and the table is written on.
func TestTable_VacuumFolders(t *testing.T) {
	for _, lite := range []bool{false, true} {
		t.Run(fmt.Sprintf("W-882 lite %v", lite), func(t *testing.T) {
			dir := t.TempDir()
			store, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Store: store, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
				Options: delta.Options{Clock: func() time.Time { return time.Now().Add(time.Hour) }},
				Rows:    []string{testtable.Numbers(0, 4, `,"k":%,"p":1`), testtable.Numbers(4, 8, `,"k":%,"p":2`)}})
			if _, err := tb.Update(ctx, "k = 0", "id = 1", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Delete(ctx, "p = 1", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			other := testtable.New(t, testtable.Spec{DDL: modelDDL, Store: storage.Sub(store, "below")})
			for _, d := range []string{"old/empty", "young", ".hidden/empty", "_delta_log/_sidecars", "below/p=1"} {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			was := time.Now().Add(-time.Hour)
			for _, d := range []string{"old/empty", "old", ".hidden/empty", "_delta_log/_sidecars", "below/p=1"} {
				if err := os.Chtimes(filepath.Join(dir, d), was, was); err != nil {
					t.Fatal(err)
				}
			}
			retain := time.Hour + 30*time.Minute // the clock is an hour ahead of the files
			if r := vacuumed(t, tb, delta.VacuumOptions{Retain: &retain, AllowShortRetention: true, Lite: lite}); r.Deleted != 0 {
				t.Fatalf("deleted %v", keysOf(r.Files))
			}
			want := []string{".hidden", ".hidden/empty", "_change_data", "_change_data/p=1", "_delta_log", "_delta_log/_sidecars", "below", "below/_delta_log", "below/p=1", "old", "old/empty", "p=1", "p=2", "young"}
			if !lite {
				want = slices.DeleteFunc(want, func(d string) bool { return d == "old" || d == "old/empty" })
			}
			if got := folders(t, dir); !slices.Equal(got, want) {
				t.Errorf("nothing emptied: folders %v, want %v", got, want)
			}
			r := vacuumed(t, tb, delta.VacuumOptions{Retain: zero(), AllowShortRetention: true, Lite: lite})
			if r.Deleted == 0 {
				t.Fatal("nothing deleted")
			}
			want = slices.DeleteFunc(want, func(d string) bool {
				return d == "p=1" || d == "_change_data" || d == "_change_data/p=1" || d == "young" && !lite
			})
			if got := folders(t, dir); !slices.Equal(got, want) {
				t.Errorf("folders %v, want %v", got, want)
			}
			if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":1,"p":1}`), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{Where: "p = 1", Columns: []string{"id"}}, `{"id":1}`)
			if _, err := other.Snapshot(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
