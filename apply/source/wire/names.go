package wire

import (
	"strings"

	"github.com/sluice-data/sluice/apply/event"
)

const hexDigits = "0123456789abcdef"

// AppendString writes s as a JSON string.
func AppendString(buf []byte, s string) []byte {
	buf = append(buf, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c < 0x20:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			buf = append(buf, c)
		}
	}
	return append(buf, '"')
}

// SameTable compares a table name with a filter entry: "table", "schema.table",
// "database.table" or "database.schema.table".
func SameTable(t event.Table, want string) bool {
	if want == t.Name {
		return true
	}
	for _, parts := range [][]string{{t.Schema, t.Name}, {t.Database, t.Name}, {t.Database, t.Schema, t.Name}} {
		if parts[0] != "" && strings.Join(parts, ".") == want {
			return true
		}
	}
	return false
}

// KeysFor are the key columns that the user gave for a table: its own, else those of
// every table; nil for none.
func KeysFor(all []string, of func(event.Table) []string, t event.Table) []string {
	if of != nil {
		if own := of(t); own != nil {
			return own
		}
	}
	return all
}
