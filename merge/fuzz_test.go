package merge_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/merge"
)

// FuzzParse: no text panics, and what is read prints to a text that means the same.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/parse")
	if err != nil {
		f.Fatal(err)
	}
	for _, part := range strings.Split(string(data), "\n\n") {
		_, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n----")
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := merge.Parse(text)
		if err != nil {
			return
		}
		canonical := s.String()
		again, err := merge.Parse(canonical)
		if err != nil {
			t.Fatalf("%q printed as %q: %v", text, canonical, err)
		}
		if again.String() != canonical {
			t.Fatalf("%q printed as %q, then as %q", text, canonical, again.String())
		}
	})
}
