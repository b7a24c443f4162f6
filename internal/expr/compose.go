package expr

import (
	"errors"
	"strings"
)

// Rename is the expression with every name of a column replaced by what f answers
// for it. The error lists every name that f refuses with a *[BindError].
func (e *Expr) Rename(f func(path []string, pos Pos) ([]string, error)) (*Expr, error) {
	r := &renamer{f: f}
	root := r.node(e.root)
	if len(r.problems) > 0 {
		return nil, &BindError{Problems: r.problems}
	}
	if r.err != nil {
		return nil, r.err
	}
	return &Expr{root}, nil
}

type renamer struct {
	f        func(path []string, pos Pos) ([]string, error)
	problems []Problem
	err      error
}

func (r *renamer) node(n *node) *node {
	out := *n
	if n.kind == nName {
		path, err := r.f(n.path, n.pos)
		var b *BindError
		switch {
		case err == nil:
			out.path = path
		case len(n.path) == 1 && bareClock(strings.ToLower(n.path[0])):
			// No column: the binder says what it is.
		case errors.As(err, &b):
			r.problems = append(r.problems, b.Problems...)
		case r.err == nil:
			r.err = err
		}
	}
	if len(n.args) > 0 {
		out.args = make([]*node, len(n.args))
		for i, a := range n.args {
			out.args[i] = r.node(a)
		}
	}
	return &out
}

// Names are the columns and fields that the expression names, each once, in text
// order.
func (e *Expr) Names() [][]string {
	var out [][]string
	seen := map[string]bool{}
	e.root.walk(func(n *node) {
		if key := strings.Join(n.path, "\x00"); n.kind == nName && !seen[key] {
			seen[key] = true
			out = append(out, append([]string(nil), n.path...))
		}
	})
	return out
}

// Equality takes `left = right` or `left <=> right` (nullSafe) apart.
func (e *Expr) Equality() (left, right *Expr, nullSafe, ok bool) {
	n := e.root
	if n.kind != nBinary || n.name != "=" && n.name != "<=>" {
		return nil, nil, false, false
	}
	return &Expr{n.args[0]}, &Expr{n.args[1]}, n.name == "<=>", true
}

// Pos is where the expression begins in its text.
func (e *Expr) Pos() Pos { return e.root.pos }

// Cursor reads a statement around expressions, word by word. After the first error
// it stands still; every method returns quickly and what it returns means nothing.
type Cursor struct{ p *parser }

// NewCursor splits the text into words; the error is a *[SyntaxError].
func NewCursor(text string) (*Cursor, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	return &Cursor{p}, nil
}

// Pos is the place of the next word.
func (c *Cursor) Pos() Pos { return c.p.cur().pos }

// Err is the first error, nil without one.
func (c *Cursor) Err() error { return c.p.err }

// Fail makes msg the error, unless there is one.
func (c *Cursor) Fail(pos Pos, msg string) { c.p.fail(pos, msg) }

// Is reports whether the given words come next: keywords in capital letters or symbols.
func (c *Cursor) Is(words ...string) bool {
	for i, w := range words {
		if c.p.err != nil || !c.p.peek(i).is(w) {
			return false
		}
	}
	return true
}

// Accept reads the words if they come next, all or none.
func (c *Cursor) Accept(words ...string) bool {
	if !c.Is(words...) {
		return false
	}
	for range words {
		c.p.take()
	}
	return true
}

// Expect reads the words or fails.
func (c *Cursor) Expect(words ...string) {
	for _, w := range words {
		c.p.expect(w)
	}
}

// AtName reports whether a name comes next, quoted or not.
func (c *Cursor) AtName() bool {
	k := c.p.cur().kind
	return c.p.err == nil && (k == tokName || k == tokQuoted)
}

// Path reads a name of one or more parts, separated by dots.
func (c *Cursor) Path() []string { return c.p.namePath() }

// Expr reads one expression; it ends where the text stops being one.
func (c *Cursor) Expr() *Expr { return &Expr{c.p.expression(0)} }

// End fails unless the text ends here.
func (c *Cursor) End() { c.p.expectEnd() }
