package files_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/files"
)

// TestSource_Clean: only what is committed, whole, unchanged and old enough goes, and
// its position goes after it.
func TestSource_Clean(t *testing.T) {
	for _, way := range []string{files.CleanDelete, files.CleanArchive} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			in, archive := filepath.Join(dir, "in"), filepath.Join(dir, "done")
			now := time.Now().Add(time.Hour)
			put := func(name, text string) string {
				p := filepath.Join(in, name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return p
			}
			first, second, young := put("d/1.jsonl", "{\"id\":1}\n"), put("d/2.jsonl", "{\"id\":2}\n"), put("d/3.jsonl", "{\"id\":3}\n")
			if err := os.Chtimes(young, now, now); err != nil {
				t.Fatal(err)
			}
			o := files.Options{Paths: []string{in}, Clean: way, Now: func() time.Time { return now }}
			if way == files.CleanArchive {
				o.Archive = archive
			}
			s, err := files.New(o)
			if err != nil {
				t.Fatal(err)
			}
			read := func(s *files.Source, from map[string]event.Position) map[string]event.Position {
				t.Helper()
				for _, err := range s.Records(context.Background(), from) {
					if err != nil {
						t.Fatal(err)
					}
				}
				list, err := s.Positions()
				if err != nil {
					t.Fatal(err)
				}
				out := map[string]event.Position{}
				for _, p := range list {
					out[p.Source] = p
				}
				return out
			}
			left := func() []string {
				var out []string
				for _, p := range []string{first, second, young} {
					if _, err := os.Stat(p); err == nil {
						out = append(out, filepath.Base(p))
					}
				}
				return out
			}
			pos := read(s, nil)
			committed := func(positions map[string]event.Position) {
				t.Helper()
				if err := s.Committed(context.Background(), positions); err != nil {
					t.Fatal(err)
				}
			}
			committed(nil)
			if got := left(); len(got) != 3 {
				t.Fatalf("without a commit only %q are left", got)
			}
			put("d/2.jsonl", "{\"id\":2}\n{\"id\":4}\n") // grew since it was read
			committed(pos)
			if got := left(); !slices.Equal(got, []string{"2.jsonl", "3.jsonl"}) {
				t.Fatalf("left %q", got)
			}
			gone := 0
			for _, p := range read(s, pos) {
				if p.Gone {
					gone++
				}
			}
			if gone != 1 {
				t.Errorf("%d positions are to be forgotten", gone)
			}
			if way == files.CleanArchive {
				if text, err := os.ReadFile(filepath.Join(archive, "d", "1.jsonl")); err != nil || string(text) != "{\"id\":1}\n" {
					t.Errorf("archive: %s, %v", text, err)
				}
				put("d/1.jsonl", "{\"id\":9}\n") // another file of the name
				committed(read(s, nil))
				committed(read(s, nil))
				if text, err := os.ReadFile(filepath.Join(archive, "d", "1.jsonl.2")); err != nil || string(text) != "{\"id\":9}\n" {
					t.Errorf("second of the name: %s, %v", text, err)
				}
			}
			// A crash came between: the next process finds the position of a file that is away.
			again, err := files.New(o)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, p := range read(again, pos) {
				found = found || p.Gone
			}
			if !found {
				t.Error("the position of a file that is away stays for ever")
			}
		})
	}
}

func TestSource_CleanRefusals(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []files.Options{
		{Clean: "burn"}, {Archive: "x"}, {Clean: files.CleanArchive}, {Clean: files.CleanArchive, Archive: filepath.Join(dir, "sub")},
		{Clean: files.CleanArchive, Archive: "x", Paths: []string{"s3://b/p"}},
	} {
		if o.Paths == nil {
			o.Paths = []string{dir}
		}
		if _, err := files.New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := files.New(files.Options{Paths: []string{dir}, Clean: files.CleanArchive, Archive: filepath.Join(dir, "_done")}); err != nil {
		t.Error(err)
	}
}
