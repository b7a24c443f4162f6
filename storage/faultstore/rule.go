package faultstore

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// Op is the kind of an operation.
type Op string

// The operations of a store, its Readers and its Writers.
const (
	Head      Op = "head"
	Open      Op = "open"
	Read      Op = "read" // one ReadAt
	Create    Op = "create"
	Put       Op = "put"
	NewWriter Op = "newwriter"
	Write     Op = "write" // one Write
	Close     Op = "close" // of a Writer
	List      Op = "list"
	Delete    Op = "delete"
)

// Mutates says whether the operation can change what others see or use space.
func (o Op) Mutates() bool {
	switch o {
	case Create, Put, NewWriter, Write, Close, Delete:
		return true
	}
	return false
}

// Commits says whether the operation can make an object appear, change or go.
func (o Op) Commits() bool {
	switch o {
	case Create, Put, Close, Delete:
		return true
	}
	return false
}

// Call is one operation in the trace.
type Call struct {
	N       int // number among all operations
	Mutator int // number among the mutating ones; -1 if it is none
	Op      Op
	Key     string // the prefix for List
	Err     error  // what the caller got; nil while it runs
}

func (c Call) String() string {
	s := fmt.Sprintf("%d %s %s", c.N, c.Op, c.Key)
	if c.Err != nil {
		s += ": " + c.Err.Error()
	}
	return s
}

// Match chooses calls. It must not use the store.
type Match func(Call) bool

// Nth matches operation number n.
func Nth(n int) Match { return func(c Call) bool { return c.N == n } }

// NthMutation matches mutating operation number n.
func NthMutation(n int) Match { return func(c Call) bool { return c.Mutator == n } }

// On matches an operation on keys of a pattern. An empty op or pattern matches
// all. The pattern is that of path.Match, in which * stops at a slash; a
// trailing "/**" means everything below.
func On(op Op, pattern string) Match {
	return func(c Call) bool {
		return (op == "" || c.Op == op) && matchKey(pattern, c.Key)
	}
}

func matchKey(pattern, key string) bool {
	if pattern == "" {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "**"); ok {
		return strings.HasPrefix(key, dir)
	}
	ok, err := path.Match(pattern, key)
	return ok && err == nil
}

// After matches from the match number skip (from 0) of m on; it counts, so one
// value belongs to one rule.
func After(skip int, m Match) Match {
	seen := 0
	return func(c Call) bool {
		if !m(c) {
			return false
		}
		seen++
		return seen > skip
	}
}

// Mode says what happens to a matched operation.
type Mode int

const (
	// FailBefore: not applied; the caller gets Err.
	FailBefore Mode = iota
	// FailAfter: applied; the caller gets Err, which is made ErrAmbiguous. An
	// operation that fails by itself keeps its own error.
	FailAfter
	// CrashBefore: not applied; this and all later operations fail with ErrCrashed.
	CrashBefore
	// CrashAfter: applied, but the caller never hears of it; this and all later
	// operations fail with ErrCrashed.
	CrashAfter
	// Observe: applied as it is; only Hook runs.
	Observe
)

// Rule makes matched operations fail.
type Rule struct {
	Match Match
	Mode  Mode
	// Err is what the caller gets from FailBefore and FailAfter. Default:
	// ErrInjected, which is of no class.
	Err error
	// Times is how many operations it hits before it is spent; 0 means one,
	// negative means all.
	Times int
	// Hook runs before the operation, outside of any lock; it may use the store.
	// An error from it is what the caller gets, and the operation is not applied.
	Hook func(ctx context.Context, c Call) error
}
