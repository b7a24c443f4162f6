package fsck

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// TestRepair_Faults ends a repair of several damaged files at each of its deletions, in
// each way: the table is read as before, and the next repair
// finishes.
func TestRepair_Faults(t *testing.T) {
	for _, props := range []map[string]string{nil, {"delta.checkpointPolicy": "v2"}} {
		d := busy(t, props)
		want := testtable.Read(t, d.d, delta.ScanOptions{})
		broken := 0
		for _, key := range testtable.Files(t, d.m) {
			derived := strings.HasSuffix(key, ".crc") || strings.Contains(key, ".checkpoint.") || strings.Contains(key, ".compacted.")
			if derived && !strings.Contains(key, "_sidecars") {
				d.put(key, []byte("garbage"))
				broken++
			}
		}
		d.put(deltalog.LogDir+"_last_checkpoint", []byte(`{"version":5,"size":3}`))
		if broken < 4 {
			t.Fatalf("%d files were damaged", broken)
		}
		// Only deletions change anything: these are the operations to end at.
		o := Options{Table: delta.Options{Clock: testtable.Clock()}}
		dry := faultstore.New(d.m.Crash())
		_, err := Repair(t.Context(), dry, o)
		must(t, err)
		var deletions []int
		for n, call := range dry.Trace() {
			if call.Op == faultstore.Delete {
				deletions = append(deletions, n)
			}
		}
		if len(deletions) < broken {
			t.Fatalf("%d deletions, %d files are damaged", len(deletions), broken)
		}
		for _, mode := range []faultstore.Mode{faultstore.FailBefore, faultstore.FailAfter, faultstore.CrashBefore, faultstore.CrashAfter} {
			t.Run(fmt.Sprintf("%v mode %d", props, mode), func(t *testing.T) {
				for i, n := range deletions {
					if testing.Short() && i%3 != int(mode)%3 {
						continue
					}
					inner := d.m.Crash()
					fs := faultstore.New(inner)
					fs.Add(faultstore.Rule{Match: faultstore.Nth(n), Mode: mode})
					if _, err := Repair(t.Context(), fs, o); err == nil {
						t.Errorf("deletion %d: the fault is not told", i)
					}
					tb, err := delta.Open(t.Context(), inner, delta.Options{})
					must(t, err)
					if diff := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), want); diff != "" {
						t.Fatalf("deletion %d: other rows:\n%s", i, diff)
					}
					r, err := Repair(t.Context(), inner, o)
					must(t, err)
					for _, f := range r.Findings {
						if f.Repair != "" {
							t.Errorf("deletion %d: a finding with a repair is left: %+v", i, f)
						}
					}
				}
			})
		}
	}
}
