package wire

import (
	"strconv"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Single is the value of an object's only member, if it has that name.
func Single(t Token, name string) Token {
	n, out := 0, Token{}
	Members(t, func(k, v Token) bool {
		if n++; k.Is(name) {
			out = v
		}
		return true
	})
	if n != 1 {
		return Token{}
	}
	return out
}

// Extended turns a value of extended JSON, of any version and mode, into plain
// JSON, with the type where the plain form does not tell it.
func Extended(t Token) (Token, schema.Type) {
	if t.Kind != Object {
		return t, nil
	}
	for _, name := range []string{"$numberLong", "$numberInt", "$numberDouble"} {
		if v := Single(t, name); v.Kind == String {
			if tok, end, err := Value(v.Raw, 0); err == nil && tok.Kind == Number && End(v.Raw, end) == nil {
				return tok, nil
			}
			return v, nil // NaN, Infinity
		}
	}
	// Decimals are text: their scale differs from document to document. A hint makes
	// decimals of them.
	for _, name := range []string{"$oid", "$symbol", "$code", "$numberDecimal"} {
		if v := Single(t, name); v.Kind == String {
			return v, nil
		}
	}
	if v := Single(t, "$undefined"); v.Kind == True {
		return Token{Kind: Null, Raw: []byte("null")}, nil
	}
	if v := Single(t, "$date"); v.Kind != None {
		if v.Kind == Object {
			v = Single(v, "$numberLong")
		}
		if ms, ok := Int(v.Raw); ok && (v.Kind == Number || v.Kind == String) {
			return Token{Kind: Number, Raw: strconv.AppendInt(nil, ms*1000, 10)}, schema.Timestamp
		}
		return v, schema.Timestamp
	}
	return t, nil
}

// DateText is a date that [Extended] made a number of microseconds as text, for a
// column that holds other values already.
func DateText(t Token) Token {
	us, ok := Int(t.Raw)
	if t.Kind != Number || !ok {
		return t
	}
	return Token{Kind: String, Raw: time.UnixMicro(us).UTC().AppendFormat(nil, "2006-01-02T15:04:05.999999Z")}
}

// HoldsValues tells whether a column has an inferred type, so that values of
// another kind must fit into it.
func (t *Table) HoldsValues(name string) bool {
	i := t.Lookup([]byte(name), 0)
	if i < 0 {
		return t.HasPreset(name)
	}
	c := t.cols[i]
	return c.shape != nil && (c.node != nil || c.shape.Type() != nil)
}
