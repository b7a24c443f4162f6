package open_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

func TestStore_LocalForms(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := "file://" + dir + "/a%20b/t/"
	for _, location := range []string{dir + "/a b/t", dir + "/a b/t/", "file://" + dir + "/a%20b/t", "file://localhost" + dir + "/a%20b/t/", "FILE://" + dir + "/a%20b/./t"} {
		s, err := open.Store(location, open.Options{})
		if err != nil {
			t.Errorf("%s: %v", location, err)
			continue
		}
		if s.URL() != want {
			t.Errorf("%s: URL %s, want %s", location, s.URL(), want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("opening wrote %v, %v", left, err)
	}
}

func TestStore_Memory(t *testing.T) {
	m := storage.NewMemory("x")
	o := open.Options{Memory: func(name string) (storage.Store, error) {
		if name != "x" {
			t.Errorf("name %q", name)
		}
		return m, nil
	}}
	if s, err := open.Store("mem://x/", o); err != nil || s != storage.Store(m) {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestStore_Refusals(t *testing.T) {
	for location, want := range map[string]string{
		"s3://": open.CodeInvalid, "s3:///p": open.CodeInvalid, "s3://b:9/p": open.CodeInvalid, "gs://b/%2": open.CodeInvalid, "s3://b/a/../p": open.CodeInvalid,
		"s3://key:secret@b/p": open.CodeInvalid, "s3://k@b/p": open.CodeInvalid, "s3://b/p?region=x": open.CodeInvalid, "azblob://c/p": open.CodeSetting,
		"hdfs://n/p": open.CodeUnsupported, "mem://x": open.CodeUnsupported, "": open.CodeInvalid,
		"file://host/p": open.CodeInvalid, "file:///a%2": open.CodeInvalid, "a\x00b": open.CodeInvalid, "file:///a%00": open.CodeInvalid,
	} {
		_, err := open.Store(location, open.Options{})
		var e *open.Error
		if !errors.As(err, &e) || !errors.Is(err, open.ErrLocation) || e.Code() != want {
			t.Errorf("%q: got %v, want %s", location, err, want)
		}
	}
	_, err := open.Store("s3://key:secret@b/p?token=secret", open.Options{})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the message carries a secret: %v", err)
	}
}

func TestJoin_AndBase(t *testing.T) {
	for _, c := range []struct{ location, dir, joined, base string }{
		{"/data", "shop/a b", "/data/shop/a b", "a b"},
		{"file:///data/", "shop/a b", "file:///data/shop/a%20b", "a b"},
		{"s3://b", "t", "s3://b/t", "t"},
		{"C://x", "t", filepath.Join("C://x", "t"), "t"},
	} {
		got := open.Join(c.location, c.dir)
		if got != c.joined || open.Base(got) != c.base {
			t.Errorf("%s + %s: got %s, base %s", c.location, c.dir, got, open.Base(got))
		}
	}
	if wd, err := os.Getwd(); err != nil || open.Base(".") != filepath.Base(wd) {
		t.Errorf("base of . is %s, %v", open.Base("."), err)
	}
}
