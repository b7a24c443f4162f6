package blobstore_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/blobstore"
)

// TestWriter_TriesAgain: a stream whose end is throttled, fails or gets no answer is ended
// again, since its bytes are still held; whoever was refused for his own object has won.
func TestWriter_TriesAgain(t *testing.T) {
	lost := blobstore.NoAnswer(errors.New("connection reset"))
	for _, c := range []struct {
		name          string
		before, after error // of the first two ends
		rival         bool  // somebody else's object comes in between
		want          error
	}{
		{"throttled", status(503, "SlowDown"), nil, false, nil},
		{"too many requests, though it was applied", nil, status(429, "TooManyRequests"), false, nil},
		{"slow down, though it was applied", nil, status(503, "SlowDown"), false, nil},
		{"failed", status(500, "InternalError"), nil, false, nil},
		{"failed, though it was applied", nil, status(500, "InternalError"), false, nil},
		{"no answer", lost, nil, false, nil},
		{"throttled, then a rival", status(503, "SlowDown"), nil, true, storage.ErrExists},
		{"forbidden", status(403, "AccessDenied"), nil, false, storage.ErrPermission},
	} {
		for way, size := range map[string]int{"one request": 50, "parts": 250} {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				f := newFake()
				s := blobstore.New(f, "t", blobstore.Options{PartSize: 100, Retry: retry()})
				ok(t, s.Create(t.Context(), "warm", nil))
				ends := 0
				deciding := func(call, key string) bool { return key == "t/k" && (call == "put" || call == "complete") }
				f.before = func(call, key string) error {
					if !deciding(call, key) {
						return nil
					}
					if ends++; ends > 2 || c.before == nil {
						return nil
					}
					if ends == 2 && c.rival {
						f.objects["t/k"] = object{data: []byte("rival"), id: "other"}
						return nil
					}
					return c.before
				}
				f.after = func(call, key string) error {
					if deciding(call, key) && ends <= 2 {
						return c.after
					}
					return nil
				}
				w, err := s.NewWriter(t.Context(), "k")
				ok(t, err)
				data := bytes.Repeat([]byte("x"), size)
				_, err = w.Write(data)
				ok(t, err)
				if err = w.Close(); c.want != nil {
					is(t, err, c.want)
					return
				}
				ok(t, err)
				if got := f.objects["t/k"].data; !bytes.Equal(got, data) {
					t.Errorf("the object has %d bytes", len(got))
				}
			})
		}
	}
	// One that never passes ends with its class, after the attempts that are set.
	f := newFake()
	s := blobstore.New(f, "t", blobstore.Options{Retry: retry()})
	ok(t, s.Create(t.Context(), "warm", nil))
	f.reset()
	f.before = func(call, _ string) error {
		if call == "put" {
			return status(503, "SlowDown")
		}
		return nil
	}
	w, err := s.NewWriter(t.Context(), "k")
	ok(t, err)
	is(t, w.Close(), storage.ErrTransient)
	if n := f.count("put t/k"); n != 5 {
		t.Errorf("it was tried %d times", n)
	}
}
