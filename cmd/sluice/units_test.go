package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
)

func TestSizeFlag_Set(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4096": 4096, "64KB": 64000, "64KiB": 65536, "128MB": 128e6, "1GiB": 1 << 30, "1.5 gb": 15e8, "2T": 2e12} {
		var f sizeFlag
		if err := f.Set(in); err != nil || int64(f) != want {
			t.Errorf("%s: got %d, %v, want %d", in, f, err, want)
		}
		var again sizeFlag
		if err := again.Set(f.String()); err != nil || again != f {
			t.Errorf("%s prints as %s", in, f.String())
		}
	}
	for _, in := range []string{"", "x", "-1", "1QB", "MB", "1e30", "NaN", "0x10"} {
		var f sizeFlag
		if err := f.Set(in); err == nil {
			t.Errorf("%q: got %d, want an error", in, f)
		}
	}
}

func TestDurationFlag_Set(t *testing.T) {
	for in, want := range map[string]time.Duration{"10s": 10 * time.Second, "168h": 168 * time.Hour, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour,
		"P7D": 168 * time.Hour, "PT1H30M": 90 * time.Minute, "P1W": 168 * time.Hour, "PT0.5S": 500 * time.Millisecond, "0s": 0} {
		var f durationFlag
		if err := f.Set(in); err != nil || time.Duration(f) != want {
			t.Errorf("%s: got %s, %v, want %s", in, time.Duration(f), err, want)
		}
	}
	for _, in := range []string{"", "7", "P", "PT", "-1s", "1y", "d", "99999999999d", "P1M"} {
		var f durationFlag
		if err := f.Set(in); err == nil {
			t.Errorf("%q: got %s, want an error", in, time.Duration(f))
		}
	}
}

func TestSplitNames_Quoting(t *testing.T) {
	for in, want := range map[string][]string{"a": {"a"}, " a , b ": {"a", "b"}, "`a,b`,c": {"a,b", "c"}, "`a``b` , `c`": {"a`b", "c"}} {
		if got, err := splitNames(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "a,", ",a", "`a", "`a`b", "``"} {
		if got, err := splitNames(in); err == nil {
			t.Errorf("%q: got %q, want an error", in, got)
		}
	}
}

func TestFailure_Print(t *testing.T) {
	err := fmt.Errorf("append rows: %w", &storage.Error{Op: "write", Root: "file:///t/", Key: "a\x1b[2Jb", Class: storage.ErrNoSpace})
	f := describeError(err)
	if f.exit != exitFailed || f.code != "NO_SPACE" {
		t.Errorf("got %d %s", f.exit, f.code)
	}
	var out bytes.Buffer
	f.print(&out, false)
	if got, want := out.String(), "sluice: NO_SPACE: append rows: write file:///t/a?[2Jb: no space left; free some space and run the command again\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	f.print(&out, true)
	if got := out.String(); !strings.HasPrefix(got, `{"error":{"code":"NO_SPACE","details":{"path":"file:///t/a\u001b[2Jb"},"message":"append rows`) {
		t.Errorf("got %s", got)
	}
	if f := describeError(errors.New("x")); f.exit != exitFailed || f.code != "INTERNAL" {
		t.Errorf("plain error: got %+v", f)
	}
}

func TestWantsJSONErrors_Args(t *testing.T) {
	for args, want := range map[string]bool{"cat t -o json": true, "cat t -ojsonl": true, "--output=json x": true, "--output jsonl": true, "cat t -o csv": false, "cat t": false, "cat -- -o json": false} {
		if got := wantsJSONErrors("", strings.Fields(args)); got != want {
			t.Errorf("%s: got %v", args, got)
		}
	}
}

func TestProgress_Lines(t *testing.T) {
	now := time.Unix(0, 0)
	p := &progress{verb: "applying", bytes: true, clock: func() time.Time { return now }, start: now}
	p.note.Store("")
	p.done.Store(3 << 20)
	if got, want := p.line(2*time.Second), "applying 3 MiB, 1.5 MiB/s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.total.Store(12 << 20)
	p.note.Store("version 4")
	if got, want := p.line(2*time.Second), "applying 25% 3 MiB of 12 MiB, 1.5 MiB/s, 6s left, version 4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.bar = true
	if got, want := p.line(2*time.Second), "applying [######..................] 25% 3 MiB of 12 MiB, 1.5 MiB/s, 6s left, version 4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var out bytes.Buffer
	p.out, now = &out, now.Add(500*time.Millisecond)
	p.draw()
	if out.Len() > 0 {
		t.Errorf("drawn in the first second: %q", out.String())
	}
}
