package sql

import "strings"

// SnapshotTable is the name behind the snapshot query SELECT * FROM name; ok is false
// for any other query.
func SnapshotTable(query string) (name string, ok bool) {
	toks, _, err := lex(query)
	if err != nil {
		return "", false
	}
	for _, t := range toks {
		if t.is("WHERE") {
			return "", false
		}
	}
	return wholeTable(query)
}

// SnapshotSource is the name behind SELECT * FROM name, also with a WHERE behind it,
// which no snapshot flow runs.
func SnapshotSource(query string) (name string, ok bool) { return wholeTable(query) }

// VersionExpr is the expression of the version query SELECT expression, which has no
// FROM: over the rows of the snapshot, _commit_version for the versions of a Delta
// table, or a text with {version} that paths must match.
func VersionExpr(query string) (text string, ok bool) {
	toks, _, err := lex(query)
	if err != nil || len(toks) < 3 || !toks[0].is("SELECT") {
		return "", false
	}
	for _, t := range toks {
		if t.is("FROM") || t.is("WHERE") {
			return "", false
		}
	}
	text = strings.TrimSpace(strings.TrimSpace(query)[len("SELECT"):])
	if n := len(text); n >= 2 && strings.Contains(text, "{version") && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		text = text[1 : n-1]
	}
	return text, text != ""
}
