package lint_test

import (
	"testing"

	"github.com/sluice-data/sluice/internal/lint"
	"github.com/sluice-data/sluice/internal/testenv"
)

func TestRepository(t *testing.T) {
	r, err := lint.Load(testenv.RepoRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range lint.Check(r) {
		t.Errorf("%s", f)
	}
}
