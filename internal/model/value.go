package model

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strings"
)

// Value is nil, bool, int64, float64, string, []byte or []Value (a struct or a
// composite key).
type Value any

// Compare is the total order of auto-cdc 2.1: null lowest, NaN equal to itself
// and above everything, -0.0 equal to 0.0, structs field by field. Values of
// two types are a bug of the test and panic.
func Compare(a, b Value) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	switch a := a.(type) {
	case bool:
		if a == b.(bool) {
			return 0
		} else if a {
			return 1
		}
		return -1
	case int64:
		return cmp.Compare(a, b.(int64))
	case float64:
		b := b.(float64)
		switch {
		case math.IsNaN(a) && math.IsNaN(b):
			return 0
		case math.IsNaN(a):
			return 1
		case math.IsNaN(b):
			return -1
		}
		return cmp.Compare(a+0, b+0)
	case string:
		return strings.Compare(a, b.(string))
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case []Value:
		b := b.([]Value)
		for i := range min(len(a), len(b)) {
			if c := Compare(a[i], b[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(a), len(b))
	}
	panic(fmt.Sprintf("model: value of type %T", a))
}

// Text prints a value; equal values print alike.
func Text(v Value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case float64:
		if v == 0 {
			v = 0
		}
		return fmt.Sprint(v)
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	case []Value:
		s := make([]string, len(v))
		for i := range v {
			s[i] = Text(v[i])
		}
		return "{" + strings.Join(s, ",") + "}"
	}
	return fmt.Sprint(v)
}
