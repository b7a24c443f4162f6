package delta_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
)

// TestHostile_Paths: a log that names files above its table, in an add, a remove, a
// change file or a deletion vector, lets no operation read or delete them.
func TestHostile_Paths(t *testing.T) {
	const ddl = "id BIGINT, v STRING"
	zero := time.Duration(0)
	line := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	operations := map[string]func(tb *delta.Table) error{
		"scan":   scanError,
		"delete": func(tb *delta.Table) error { _, err := tb.Delete(ctx, "id > 0", delta.DMLOptions{}); return err },
		"update": func(tb *delta.Table) error { _, err := tb.Update(ctx, "v = 'x'", "", delta.DMLOptions{}); return err },
		"optimize": func(tb *delta.Table) error {
			_, err := tb.Optimize(ctx, delta.OptimizeOptions{Purge: true})
			return err
		},
		"changes": func(tb *delta.Table) error {
			from := int64(2)
			f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from}})
			if err != nil {
				return err
			}
			for _, err := range f.Rows(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"restore": func(tb *delta.Table) error {
			v := int64(1)
			_, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v})
			return err
		},
		"checkpoint": func(tb *delta.Table) error { _, err := tb.Checkpoint(ctx); return err },
		"vacuum": func(tb *delta.Table) error {
			_, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: &zero, AllowShortRetention: true})
			return err
		},
		"vacuum lite": func(tb *delta.Table) error {
			_, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: &zero, AllowShortRetention: true, Lite: true})
			return err
		},
		"clean up": func(tb *delta.Table) error {
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				return err
			}
			_, err = tb.Log().CleanUp(ctx, snap, deltalog.CleanUpOptions{})
			return err
		},
	}
	dv := &deltalog.DeletionVectorDescriptor{StorageType: "u", PathOrInlineDv: "../ab^-aqEH.-t@S}K{vb[*k^", SizeInBytes: 40, Cardinality: 1}
	one := int32(1)
	dv.Offset = &one
	secret := secretFile(t)
	for _, path := range []string{"../secret.parquet", "..%2Fsecret.parquet", "%2e%2e/secret.parquet", "a/../../secret.parquet", "./.././secret.parquet", "../" + strings.Repeat("a/../", 50) + "secret.parquet"} {
		for kind, commit := range map[string]string{
			"R-201 add":    line(map[string]any{"add": deltalog.Add{Path: path, PartitionValues: map[string]*string{}, Size: 1, DataChange: true}}),
			"R-202 remove": line(map[string]any{"remove": deltalog.Remove{Path: path, DataChange: true, DeletionTimestamp: 1}}),
			"W-903 cdc":    line(map[string]any{"cdc": deltalog.CDC{Path: path, PartitionValues: map[string]*string{}, Size: 1}}),
			"R-651 vector": line(map[string]any{"add": deltalog.Add{Path: "gone.parquet", PartitionValues: map[string]*string{}, Size: 1, DataChange: true, DeletionVector: dv}}),
		} {
			for name, do := range operations {
				t.Run(kind+" "+path[:min(len(path), 24)]+", "+name, func(t *testing.T) {
					dir := t.TempDir()
					root := filepath.Join(dir, "table")
					props := map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true", "delta.logRetentionDuration": "interval 0 seconds"}
					tb := testtable.New(t, testtable.Spec{DDL: ddl, Store: local(t, root), Properties: props, Rows: []string{`{"id":1,"v":"mine"}`}})
					for _, name := range []string{"secret.parquet", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"} {
						if err := os.WriteFile(filepath.Join(dir, name), secret, 0o644); err != nil {
							t.Fatal(err)
						}
					}
					if err := tb.Store().Create(ctx, deltalog.CommitKey(2), []byte(commit)); err != nil {
						t.Fatal(err)
					}
					before := outside(t, dir)
					fresh, err := delta.Open(ctx, local(t, root), delta.Options{})
					if err == nil {
						err = do(fresh)
					}
					for _, class := range []error{nil, delta.ErrCorrupt, delta.ErrUnsupported, delta.ErrNotFound} {
						if errors.Is(err, class) {
							err = nil
						}
					}
					if err != nil {
						t.Errorf("got %v", err)
					}
					if after := outside(t, dir); after != before {
						t.Errorf("outside of the table there is\n%s\nwas\n%s", after, before)
					}
					if fresh == nil {
						return
					}
					if s, err := fresh.Scan(ctx, delta.ScanOptions{}); err == nil {
						for b, err := range s.Batches(ctx) {
							if err == nil && strings.Contains(strings.Join(testtable.BatchLines(b), ""), "secret") {
								t.Error("the rows of another folder came into the table")
							}
						}
					}
				})
			}
		}
	}
}

// secretFile is a data file with the columns of the table.
func secretFile(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	testtable.New(t, testtable.Spec{DDL: "id BIGINT, v STRING", Store: local(t, dir), Rows: []string{`{"id":7,"v":"secret"}`}})
	files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// outside is what lies in dir but not in the table.
func outside(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	for _, l := range strings.Split(tree(t, dir), "\n") {
		if !strings.HasPrefix(l, filepath.Join(dir, "table")+"/") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}
