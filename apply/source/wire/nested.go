package wire

import "github.com/sluice-data/sluice/log/schema"

// nested tells whether values of n are containers.
func (n *Node) nested() bool {
	switch n.Type.(type) {
	case *schema.Struct, *schema.Array, *schema.Map:
		return true
	}
	return false
}

// check tells whether the plan reads the token.
func (n *Node) check(t Token, s *scratch) bool {
	if t.Kind == Null {
		return true
	}
	if !n.nested() {
		_, ok := n.convert(t, s)
		return ok
	}
	ok := true
	switch n.Type.(type) {
	case *schema.Struct:
		if t.Kind != Object {
			return false
		}
		seen := make([]bool, len(n.Kids))
		Members(t, func(k, v Token) bool {
			if i := n.kid(k); i >= 0 {
				ok = !seen[i] && n.Kids[i].check(v, s) // two members for one field: neither is it
				seen[i] = true
			}
			return ok
		})
	case *schema.Array:
		if t.Kind != Array {
			return false
		}
		Elements(t, func(v Token) bool { ok = n.Kids[0].check(v, s); return ok })
	case *schema.Map:
		ok = n.pairs(t, func(k, v Token) bool {
			return k.Kind != Null && n.Kids[0].check(k, s) && n.Kids[1].check(v, s)
		})
	}
	return ok
}

// kid is the field that a member is for: the one of its name, else the only one whose
// name differs in case (auto-cdc 1.2 rule 6); -1: none.
func (n *Node) kid(key Token) int {
	for i, name := range n.Names {
		if key.Is(name) {
			return i
		}
	}
	found := -1
	for i, name := range n.Names {
		if !key.folds(name) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// pairs walks a map written as an object or as an array of [key,value] or
// {"key","value"}; false if f or the form fails.
func (n *Node) pairs(t Token, f func(k, v Token) bool) bool {
	ok := true
	switch t.Kind {
	case Object:
		Members(t, func(k, v Token) bool { ok = f(k, v); return ok })
	case Array:
		Elements(t, func(e Token) bool {
			var k, v Token
			switch e.Kind {
			case Array:
				Elements(e, func(x Token) bool {
					if k.Kind == None {
						k = x
					} else {
						v = x
					}
					return true
				})
			case Object:
				Members(e, func(name, x Token) bool {
					if name.Is("key") {
						k = x
					} else if name.Is("value") {
						v = x
					}
					return true
				})
			}
			ok = k.Kind != None && v.Kind != None && f(k, v)
			return ok
		})
	default:
		return false
	}
	return ok
}
