package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// RepoRoot is the directory that holds go.mod, above the test's working directory.
func RepoRoot(tb testing.TB) string {
	tb.Helper()
	wd, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatalf("no go.mod above %s", wd)
		}
	}
}

// SharedDir is the folder of golden tables and recorded events, joined with
// elem. It is SLUICE_SHARED, else a folder "shared" beside the repository or
// beside a folder above it (a worktree may lie deeper). Absent: skip.
func SharedDir(tb testing.TB, elem ...string) string {
	tb.Helper()
	base := sharedBase(tb)
	if base == "" {
		tb.Skip("shared test material not found: set SLUICE_SHARED or put it in ../shared beside the repository")
	}
	path := filepath.Join(append([]string{base}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("shared test material not found: %v", err)
	}
	return path
}

// SharedFiles are the files of the shared folder that match a pattern, for seeds
// of fuzzers, which do without where there are none.
func SharedFiles(tb testing.TB, pattern ...string) []string {
	tb.Helper()
	base := sharedBase(tb)
	if base == "" {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(append([]string{base}, pattern...)...))
	if err != nil {
		tb.Fatal(err)
	}
	return paths
}

// sharedBase is the folder of shared material, "" if there is none.
func sharedBase(tb testing.TB) string {
	tb.Helper()
	if base := os.Getenv("SLUICE_SHARED"); base != "" {
		return base
	}
	for dir := filepath.Dir(RepoRoot(tb)); ; dir = filepath.Dir(dir) {
		d := filepath.Join(dir, "shared")
		if isDir(filepath.Join(d, "golden")) || isDir(filepath.Join(d, "corpora")) {
			return d
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
