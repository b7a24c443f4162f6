package corpora

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

// Seed is a recorded message.
type Seed struct{ Key, Value []byte }

// Seeds are up to per messages of each corpus that a pattern below the corpora
// names, longer ones than 8 KiB left out. There are none where the corpora are absent.
func Seeds(f *testing.F, per int, pattern ...string) []Seed {
	f.Helper()
	var all []Seed
	for _, path := range testenv.SharedFiles(f, append([]string{"corpora"}, pattern...)...) {
		in := bufio.NewScanner(openPlain(f, path))
		in.Buffer(nil, 64<<20)
		for n := 0; n < per && in.Scan(); {
			if s, ok := seedOf(in.Bytes()); ok && len(s.Value)+len(s.Key) < 8<<10 {
				all = append(all, s)
				n++
			}
		}
		if err := in.Err(); err != nil {
			f.Fatal(err)
		}
	}
	return all
}

// seedOf takes key and value out of a line, which may be the value itself.
func seedOf(line []byte) (Seed, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(line, &m) != nil {
		return Seed{}, false
	}
	part := func(names ...string) []byte {
		for _, name := range names {
			raw, ok := m[name]
			if !ok || string(raw) == "null" {
				continue
			}
			var text string
			switch {
			case raw[0] != '"':
				return raw
			case json.Unmarshal(raw, &text) != nil:
				return nil
			case name == "key_b64" || name == "value_b64":
				b, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					return nil
				}
				return b
			}
			return []byte(text)
		}
		return nil
	}
	_, value := m["value"]
	_, framed := m["value_b64"]
	if value || framed {
		return Seed{part("key", "key_text", "key_b64"), part("value", "value_b64")}, true
	}
	return Seed{Value: append([]byte{}, line...)}, true
}
