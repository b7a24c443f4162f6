package sql

import "strings"

// SnapshotQuery is a snapshot query that can be run: SELECT * or columns FROM a table,
// with or without WHERE.
type SnapshotQuery struct {
	Table string
	// Columns are the selected ones; nil: all.
	Columns []string
	// Where is the condition of its rows; "": all rows.
	Where string
}

// ReadSnapshotQuery takes the query of FROM SNAPSHOT apart; ok is false for a query of
// another form (expressions, aliases, joins, grouping), which no snapshot flow runs.
func ReadSnapshotQuery(query string) (q SnapshotQuery, ok bool) {
	toks, _, err := lex(query)
	if err != nil || len(toks) < 5 || !toks[0].is("SELECT") {
		return q, false
	}
	i := 1
	if toks[i].is("*") {
		i++
	} else {
		for {
			if toks[i].kind != tokWord && toks[i].kind != tokQuoted {
				return q, false
			}
			q.Columns = append(q.Columns, encodeIdent(toks[i].text))
			if i++; !toks[i].is(",") {
				break
			}
			i++
		}
	}
	if !toks[i].is("FROM") {
		return q, false
	}
	rest := toks[i+1:]
	if q.Table, ok = tableName(rest); !ok {
		return q, false
	}
	for j, t := range rest {
		switch {
		case t.is("WHERE"):
			q.Where = strings.TrimSpace(query[t.end:])
			return q, q.Where != ""
		case j > 2*len(NameParts(q.Table))+2:
			return q, false
		}
	}
	return q, true
}

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
