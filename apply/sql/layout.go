package sql

import (
	"slices"
	"sort"
)

// layout is what the formatter must know of a text beside its meaning: where the
// items (clauses, elements) of statements start, and the comments.
type layout struct {
	tokens     []token
	comments   []comment
	items      []item
	statements []span
	queries    []span // byte ranges that are printed as they stand
	text       string

	attached bool
	lead     map[place][]string
	trail    map[place]string
	rest     []string // comments after the last statement
}

// item is a piece of a statement that gets its own line; it starts at a token.
// Items are in the order of their tokens.
type item struct {
	place
	token int
}

type place struct {
	statement int
	key       string
}

// endKey is where a comment behind the semicolon of a statement stays.
const endKey = ";"

type span struct{ from, to int }

// begin, item and finish record a statement in the order of its tokens.
func (l *layout) begin(token int) {
	l.statements = append(l.statements, span{token, token})
	l.item("", token)
}

func (l *layout) item(key string, token int) {
	l.items = append(l.items, item{place{len(l.statements) - 1, key}, token})
}

func (l *layout) finish(token int) { l.statements[len(l.statements)-1].to = token }

func (l *layout) verbatim(from, to int) { l.queries = append(l.queries, span{from, to}) }

// of gives the comments before and behind an item.
func (l *layout) of(statement int, key string) ([]string, string) {
	return l.lead[place{statement, key}], l.trail[place{statement, key}]
}

// source is the text of a statement that is only passed through.
func (l *layout) source(statement int) string {
	s := l.statements[statement]
	return l.text[l.tokens[s.from].off:l.tokens[s.to-1].end]
}

// attach decides for every comment which item it stays with. One at the end of a
// line belongs to what ends there, every other to what follows; inside an item it
// goes before the item.
func (l *layout) attach() {
	if l.attached {
		return
	}
	l.attached = true
	l.lead, l.trail = map[place][]string{}, map[place]string{}
	for _, c := range l.comments {
		if slices.ContainsFunc(l.queries, func(q span) bool { return c.off >= q.from && c.off < q.to }) {
			continue
		}
		next := sort.Search(len(l.tokens), func(k int) bool { return l.tokens[k].off >= c.off }) // the first token after it
		endOfLine := next > 0 && l.tokens[next-1].endLine == c.line && (next >= len(l.tokens) || l.tokens[next].kind == tokEOF || l.tokens[next].pos.Line > c.toLine)
		if endOfLine && c.line == c.toLine {
			pl, ok := l.itemAt(next - 1)
			if ok && l.tokens[next-1].is(";") {
				pl.key = endKey
			}
			if ok && l.trail[pl] == "" && l.last(next-1) {
				l.trail[pl] = c.text
				continue
			}
		}
		if pl, ok := l.itemAt(next); ok {
			l.lead[pl] = append(l.lead[pl], c.text)
		} else {
			l.rest = append(l.rest, c.text)
		}
	}
}

// itemAt is the item that token t is in, or the next one. A semicolon and a
// closing parenthesis are in the item before.
func (l *layout) itemAt(t int) (place, bool) {
	if t >= len(l.tokens) || l.tokens[t].kind == tokEOF {
		return place{}, false
	}
	if len(l.items) == 0 {
		return place{}, false
	}
	after := sort.Search(len(l.items), func(i int) bool { return l.items[i].token > t })
	return l.items[max(after-1, 0)].place, true
}

// last tells whether token t ends an item: what follows is another item, or the
// comma, parenthesis or semicolon that closes it.
func (l *layout) last(t int) bool {
	for k := t + 1; k < len(l.tokens); k++ {
		if l.tokens[k].kind == tokEOF {
			return true
		}
		if i := sort.Search(len(l.items), func(i int) bool { return l.items[i].token >= k }); i < len(l.items) && l.items[i].token == k {
			return true
		}
		if !l.tokens[k].is(";") {
			return false
		}
	}
	return true
}
