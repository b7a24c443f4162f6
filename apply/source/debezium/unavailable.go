package debezium

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/sluice-data/sluice/apply/source/wire"
)

// placeholders are the forms of "unchanged, not sent" (debezium-observed,
// Unavailable TOAST values).
type placeholders struct {
	text  []byte
	texts [][]byte // raw insides of strings
	elems [][]byte // raw insides of the only element of a string array
	codes [][]byte // elements of a number array
	hs    []byte   // an hstore's JSON text, as the raw inside of a string
	maxN  int      // longest raw form of an array or object
}

func newPlaceholders(text string) *placeholders {
	quoted := wire.AppendString(nil, text)
	raw := quoted[1 : len(quoted)-1]
	std := base64.StdEncoding.EncodeToString([]byte(text))
	url := base64.URLEncoding.EncodeToString([]byte(text))
	hx := hex.EncodeToString([]byte(text))
	sum := md5.Sum([]byte(text)) // a name-based UUID (version 3) without namespace
	sum[6], sum[8] = sum[6]&0x0f|0x30, sum[8]&0x3f|0x80
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:])
	p := &placeholders{
		text:  raw,
		texts: [][]byte{raw, []byte(std), []byte(url), []byte(hx), []byte(`\\x` + hx), []byte("0x" + hx)},
		elems: [][]byte{raw, []byte(std), []byte(url), []byte(hx), []byte(uuid)},
	}
	object := append(append(append([]byte{'{'}, quoted...), ':'), append(quoted, '}')...)
	hs := wire.AppendString(nil, string(object))
	p.hs = hs[1 : len(hs)-1]
	for _, c := range []byte(text) {
		p.codes = append(p.codes, strconv.AppendInt(nil, int64(c), 10))
	}
	p.maxN = 4*len(p.hs) + 8*len(text) + 64
	return p
}

func in(raw []byte, forms [][]byte) bool {
	for _, f := range forms {
		if bytes.Equal(raw, f) {
			return true
		}
	}
	return false
}

// is tells whether the value stands for one that was not sent.
func (p *placeholders) is(t wire.Token) bool {
	switch t.Kind {
	case wire.String:
		if len(t.Raw) < len(p.text) {
			return false
		}
		return in(t.Raw, p.texts) || bytes.Equal(t.Raw, p.hs)
	case wire.Array:
		return len(t.Raw) > len(p.text) && len(t.Raw) < p.maxN && p.isArray(t)
	case wire.Object:
		return len(t.Raw) > 2*len(p.text) && len(t.Raw) < p.maxN && p.isObject(t)
	}
	return false
}

func (p *placeholders) isArray(t wire.Token) bool {
	n, strings, numbers := 0, true, true
	wire.Elements(t, func(e wire.Token) bool {
		strings = strings && n == 0 && e.Kind == wire.String && in(e.Raw, p.elems)
		numbers = numbers && n < len(p.codes) && e.Kind == wire.Number && bytes.Equal(e.Raw, p.codes[n])
		n++
		return strings || numbers
	})
	return n > 0 && (strings || numbers && n == len(p.codes))
}

func (p *placeholders) isObject(t wire.Token) bool {
	n, ok := 0, true
	wire.Members(t, func(k, v wire.Token) bool {
		ok = ok && n == 0 && bytes.Equal(k.Raw, p.text) && v.Kind == wire.String && bytes.Equal(v.Raw, p.text)
		n++
		return ok
	})
	return ok && n == 1
}
