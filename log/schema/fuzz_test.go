package schema

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/scalar"
)

// FuzzParsePartitionValue: a text is a value of the type or refused; a value that is
// written again reads as itself.
func FuzzParsePartitionValue(f *testing.F) {
	for _, s := range []string{"1", "-00", "1e5", "NaN", "-Infinity", "true", "2024-06-15", "-0001-1-1", "2024-06-15T19:30:45.123456+02:00", "2024-06-15 19:30:45", "1.50", "\\u0001\\u00ff", "é"} {
		f.Add(s)
	}
	types := []Type{String, Long, Byte, Float, Double, Boolean, Date, Timestamp, TimestampNTZ, Binary, Decimal{Precision: 10, Scale: 2}, Decimal{Precision: 38, Scale: 38}}
	f.Fuzz(func(t *testing.T, text string) {
		for _, typ := range types {
			v, err := ParsePartitionValue(typ, &text, time.UTC)
			if err != nil {
				var bad *PartitionValueError
				if !errors.As(err, &bad) {
					t.Fatalf("%s of %q: %v", typ, text, err)
				}
				continue
			}
			arr, err := scalar.MakeArrayFromScalar(v, 1, memory.DefaultAllocator)
			if err != nil {
				t.Fatalf("%s of %q: %v", typ, text, err)
			}
			again, null, err := FormatPartitionValue(arr, 0)
			if err != nil {
				continue // such as a binary value that is no text
			}
			var raw *string
			if !null {
				raw = &again
			}
			w, err := ParsePartitionValue(typ, raw, time.UTC)
			if err != nil {
				t.Fatalf("%s of %q is written %q: %v", typ, text, again, err)
			}
			other, err := scalar.MakeArrayFromScalar(w, 1, memory.DefaultAllocator)
			if err != nil || !array.ApproxEqual(arr, other, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
				t.Fatalf("%s of %q is written %q and read %s, was %s", typ, text, again, w, v)
			}
		}
	})
}

// FuzzDecodePath: what is decoded and encoded again decodes to the same.
func FuzzDecodePath(f *testing.F) {
	for _, s := range []string{"a%20b", "p=US%252FEast/x", "%", "%zz", "a+b", "é", "../x", "file:///a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		p, err := DecodePath(uri)
		if err != nil {
			return
		}
		if again, err := DecodePath(EncodePath(p)); err != nil || again != p {
			t.Fatalf("%q is %q, encoded %q, then %q %v", uri, p, EncodePath(p), again, err)
		}
	})
}

// FuzzParsePath: a path prints to a text that means the same.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"a.b", "`a.b`.c", "a``", "`a``b`", ".", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path, err := ParsePath(text)
		if err != nil {
			return
		}
		if again, err := ParsePath(PathText(path)); err != nil || !slices.Equal(again, path) {
			t.Fatalf("%q is %q, printed %q, then %q %v", text, path, PathText(path), again, err)
		}
	})
}
