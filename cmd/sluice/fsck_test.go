package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFsck(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "e.jsonl", `{"id":1,"name":"Ann","ts":1}`+"\n"+`{"id":2,"name":"Bob","ts":2}`+"\n")
	must(t, dir, "apply", "--into", "t", "--from", "e.jsonl", "--keys", "id", "--sequence-by", "ts")
	must(t, dir, "checkpoint", "t")
	if out := must(t, dir, "fsck", "t", "-o", "json"); !strings.Contains(out, `"apply_state":true`) || !strings.Contains(out, `"findings":[]`) {
		t.Errorf("a whole table: %s", out)
	}
	checkpoint, err := filepath.Glob(filepath.Join(dir, "t", "_delta_log", "*.checkpoint.parquet"))
	if err != nil || len(checkpoint) != 1 {
		t.Fatal(checkpoint, err)
	}
	put(t, dir, strings.TrimPrefix(checkpoint[0], dir+"/"), "no checkpoint")
	if out := sluice(t, dir, "fsck", "t", "-o", "table").stderr; !strings.Contains(out, "warning  FSCK_CHECKPOINT_UNREADABLE _delta_log/") || !strings.Contains(out, "--repair") {
		t.Errorf("damaged checkpoint: %s", out)
	}
	if out := sluice(t, dir, "fsck", "t", "--repair", "-o", "table").stderr; !strings.Contains(out, "repaired FSCK_CHECKPOINT_UNREADABLE") || !strings.Contains(out, "nothing found") {
		t.Errorf("repair: %s", out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "t", "*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	r := sluice(t, dir, "fsck", "t", "-o", "json")
	if r.code != exitCorrupt || !strings.Contains(r.stderr, "FSCK_ERRORS") || !strings.Contains(r.stdout, "FSCK_FILE_MISSING") {
		t.Errorf("missing file: exit %d %s %s", r.code, r.stdout, r.stderr)
	}
	refused(t, sluice(t, dir, "fsck", "nothing"), exitNotFound, "DELTA_TABLE_NOT_FOUND")
}
