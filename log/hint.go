package deltalog

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// hint is the content of _last_checkpoint that we use.
type hint struct {
	Version       int64  `json:"version"`
	Size          int64  `json:"size"`
	SizeInBytes   int64  `json:"sizeInBytes,omitempty"`
	NumOfAddFiles int64  `json:"numOfAddFiles"`
	Checksum      string `json:"checksum,omitempty"`
}

// readHint returns the hint's version, or -1. It never fails: the file only saves
// listing work.
func (l *Log) readHint(ctx context.Context) int64 {
	data, err := l.readText(ctx, LogDir+hintName, maxHint)
	if err != nil {
		return -1
	}
	h := hint{Version: -1}
	if json.Unmarshal(data, &h) != nil || h.Version < 0 {
		return -1
	}
	if h.Checksum != "" {
		if sum, err := jsonChecksum(data); err != nil || sum != h.Checksum {
			return -1
		}
	}
	return h.Version
}

// writeHint replaces _last_checkpoint.
func (l *Log) writeHint(ctx context.Context, h hint) error {
	h.Checksum = ""
	data, err := marshal(h)
	if err != nil {
		return fmt.Errorf("encode %s: %w", hintName, err)
	}
	if h.Checksum, err = jsonChecksum(data); err != nil {
		return fmt.Errorf("checksum %s: %w", hintName, err)
	}
	if data, err = marshal(h); err != nil {
		return fmt.Errorf("encode %s: %w", hintName, err)
	}
	if err := l.store.Put(ctx, LogDir+hintName, data); err != nil {
		return fmt.Errorf("write %s: %w", hintName, err)
	}
	return nil
}

// jsonChecksum is the MD5 of the canonical form of a JSON object without its
// top-level "checksum" ("JSON checksum" of the protocol, R-709).
func jsonChecksum(data []byte) (string, error) {
	c := canonicalForm{dec: json.NewDecoder(bytes.NewReader(data)), left: 1<<20 + 32*len(data)}
	c.dec.UseNumber()
	if err := c.read("", 0); err != nil {
		return "", err
	}
	lines := c.lines
	sort.Slice(lines, func(i, j int) bool { return lines[i].path < lines[j].path })
	parts := make([]string, len(lines))
	for i, l := range lines {
		parts[i] = l.path + "=" + l.value
	}
	sum := md5.Sum([]byte(strings.Join(parts, ",")))
	return hex.EncodeToString(sum[:]), nil
}

type canonicalLine struct{ path, value string }

// canonicalForm collects the lines. Every value has the whole path before it, so that
// one long key above many values would make gigabytes of a small file: left bounds them.
type canonicalForm struct {
	dec   *json.Decoder
	lines []canonicalLine
	left  int
}

func (c *canonicalForm) add(path, value string) {
	c.lines = append(c.lines, canonicalLine{path, value})
}

func (c *canonicalForm) read(path string, depth int) error {
	if depth > 200 {
		return fmt.Errorf("nested too deep")
	}
	if c.left -= len(path); c.left < 0 {
		return fmt.Errorf("keys too long for the values below them")
	}
	dec := c.dec
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	join := func(key string) string {
		if path == "" {
			return key
		}
		return path + "+" + key
	}
	switch tok := tok.(type) {
	case json.Delim:
		seen := map[string]bool{}
		for i := 0; dec.More(); i++ {
			at := join(strconv.Itoa(i))
			if tok == '{' {
				key, err := dec.Token()
				if err != nil {
					return err
				}
				name := key.(string)
				if seen[name] {
					return fmt.Errorf("key %q occurs twice", name)
				}
				seen[name] = true
				at = join(canonicalString(name))
				if depth == 0 && name == "checksum" {
					var skip json.RawMessage
					if err := dec.Decode(&skip); err != nil {
						return err
					}
					continue
				}
			}
			if err := c.read(at, depth+1); err != nil {
				return err
			}
		}
		_, err := dec.Token()
		return err
	case string:
		c.add(path, canonicalString(tok))
	case json.Number:
		c.add(path, tok.String())
	case bool:
		c.add(path, strconv.FormatBool(tok))
	case nil:
		c.add(path, "null")
	}
	return nil
}

func canonicalString(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	b.WriteByte('"')
	return b.String()
}
