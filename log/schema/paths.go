package schema

import (
	"fmt"
	"strings"
)

// NullPartition is the directory name that stands for a null partition value.
const NullPartition = "__HIVE_DEFAULT_PARTITION__"

// MaxPathComponent is the longest directory name in bytes that file systems take.
const MaxPathComponent = 255

// PartitionDir is the directory "col=value/..." of partition values in the Hive
// form (W-552), columns in the given order; a nil value is null. It is not yet a
// URI: [EncodePath] follows. ok is false when a component is too long for a file
// system; the caller then takes any other directory (W-554), which is legal since
// no reader derives values from it.
func PartitionDir(columns []string, values []*string) (dir string, ok bool) {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteByte('/')
		}
		start := b.Len()
		b.WriteString(EscapePartition(c))
		b.WriteByte('=')
		if v := values[i]; v == nil || *v == "" {
			b.WriteString(NullPartition)
		} else {
			b.WriteString(EscapePartition(*v))
		}
		if b.Len()-start > MaxPathComponent {
			return "", false
		}
	}
	return b.String(), true
}

const upperHex = "0123456789ABCDEF"

// EscapePartition writes one side of "col=value" with Hive's escapes (W-552).
func EscapePartition(s string) string {
	return escape(s, func(c byte) bool {
		return c < 0x20 || c == 0x7f || strings.IndexByte("\"#%'*/:=?\\{[]^", c) >= 0
	})
}

func escape(s string, must func(byte) bool) string {
	n := 0
	for i := 0; i < len(s); i++ {
		if must(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := 0; i < len(s); i++ {
		if c := s[i]; must(c) {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// EncodePath makes a relative file path the URI text of add.path (W-553):
// everything but unreserved characters and "/", "=", "+", ",", "@", "$", "&", ";",
// "!", "*", "'", "(", ")" becomes %XX, non-ASCII included.
func EncodePath(path string) string {
	return escape(path, func(c byte) bool {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			return false
		}
		return strings.IndexByte("-._~/=+,@$&;!*'()", c) < 0
	})
}

// DecodePath undoes the URI encoding of a path in the log, once: %25 is a
// literal percent, "+" stays a plus. A percent sign that starts no escape is an error.
func DecodePath(uri string) (string, error) {
	if strings.IndexByte(uri, '%') < 0 {
		return uri, nil
	}
	b := make([]byte, 0, len(uri))
	for i := 0; i < len(uri); i++ {
		if uri[i] != '%' {
			b = append(b, uri[i])
			continue
		}
		if i+2 >= len(uri) {
			return "", fmt.Errorf("path %q: incomplete escape at byte %d", uri, i)
		}
		hi, lo := unhex(uri[i+1]), unhex(uri[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("path %q: bad escape at byte %d", uri, i)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
