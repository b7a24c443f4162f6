package fsck

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// faulty are the golden tables that are wrong on purpose or of hand, and what is wrong
// with them.
var faulty = map[string][]string{
	"cdf/cdf-table-simple":                        {ChangeSum},
	"cdf/cdf-table-update-ops":                    {ChangeType},
	"features/parsed-stats":                       {Statistics},
	"features/compacted-log-files-table":          {deltalog.FsckCompaction},
	"features/crc-full":                           {deltalog.FsckChecksum},
	"features/parquet_row_group_skipping":         {deltalog.FsckCheckpointDiffers, deltalog.FsckHint},
	"features/with_checkpoint_no_last_checkpoint": {FileMissing},
}

// logOnly are archives without data files, or without commits.
var logOnly = []string{"features/300k-add-files-100-col-partitioned", "features/crc-malformed"}

// TestCheck_Golden checks real tables of Spark and others.
func TestCheck_Golden(t *testing.T) {
	for _, folder := range []string{"spark", "cdf", "features", "reads"} {
		dir := testenv.SharedDir(t, "golden", folder)
		archives, err := filepath.Glob(filepath.Join(dir, "*.tar.zst"))
		if err != nil || len(archives) == 0 {
			t.Fatalf("no archives in %s: %v", dir, err)
		}
		for _, a := range archives {
			name := strings.TrimSuffix(filepath.Base(a), ".tar.zst")
			t.Run(folder+"/"+name, func(t *testing.T) {
				if slices.Contains(logOnly, folder+"/"+name) {
					t.Skip("the archive has no data files or no commits")
				}
				found := map[string]bool{}
				root := testtable.Unpack(t, a)
				logs, err := filepath.Glob(filepath.Join(root, "*", "_delta_log"))
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range logs {
					s, err := storage.NewLocal(filepath.Dir(l), storage.LocalOptions{})
					if err != nil {
						t.Fatal(err)
					}
					r, err := Check(t.Context(), s, Options{})
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range r.Findings {
						if f.Severity == deltalog.SevereNote {
							continue
						}
						found[f.Code] = true
						if !slices.Contains(faulty[folder+"/"+name], f.Code) {
							t.Errorf("%s %s v%d %s", f.Code, f.File, f.Version, f.Detail)
						}
					}
				}
				for _, code := range faulty[folder+"/"+name] {
					if !found[code] {
						t.Errorf("%s is not found", code)
					}
				}
			})
		}
	}
}
