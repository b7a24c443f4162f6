package dv

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// ErrCorrupt marks a descriptor or bytes that contradict the format or each other.
var ErrCorrupt = errors.New("corrupt deletion vector")

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Storage types of a descriptor.
const (
	Relative = "u" // file in the table, named by a UUID
	Absolute = "p" // file named by an absolute URI
	Inline   = "i" // the bytes themselves
)

// Descriptor says where a deletion vector is: the fields of the log's
// deletionVector struct.
type Descriptor struct {
	StorageType    string
	PathOrInlineDv string
	Offset         *int32 // byte of the size field in the file; nil for inline
	SizeInBytes    int32  // magic and bitmap, without size field and checksum
	Cardinality    int64
}

// encodedUUID is the length of 16 bytes in Z85.
const encodedUUID = 20

// Path is where the vector's file is: a key relative to the table root, or an
// absolute URI as it stands in the log. Inline vectors have none.
func (d Descriptor) Path() (key string, absolute bool, err error) {
	switch d.StorageType {
	case Absolute:
		if d.PathOrInlineDv == "" {
			return "", false, corruptf("empty path")
		}
		return d.PathOrInlineDv, true, nil
	case Relative:
		n := len(d.PathOrInlineDv) - encodedUUID
		if n < 0 {
			return "", false, corruptf("path %q is shorter than a UUID", d.PathOrInlineDv)
		}
		raw, err := decodeZ85(d.PathOrInlineDv[n:])
		if err != nil {
			return "", false, fmt.Errorf("path %q: %w", d.PathOrInlineDv, err)
		}
		name := "deletion_vector_" + uuid.UUID(raw).String() + ".bin"
		prefix := d.PathOrInlineDv[:n]
		if prefix == "" {
			return name, false, nil
		}
		if p := strings.Trim(prefix, "/"); p != prefix || p == ".." || strings.HasPrefix(p, "../") || strings.Contains(p, "/../") || strings.HasSuffix(p, "/..") {
			return "", false, corruptf("path %q leaves the table", d.PathOrInlineDv)
		}
		return prefix + "/" + name, false, nil
	case Inline:
		return "", false, corruptf("an inline deletion vector has no path")
	}
	return "", false, corruptf("storage type %q", d.StorageType)
}

// Location is [Descriptor.Path] without the distinction, "" for an inline vector.
func (d Descriptor) Location() (string, error) {
	if d.StorageType == Inline {
		return "", nil
	}
	path, _, err := d.Path()
	return path, err
}

// UniqueID identifies the vector inside a table ("Derived Fields" of the
// descriptor schema); the log reconciles files by it.
func (d Descriptor) UniqueID() string {
	if d.Offset == nil {
		return d.StorageType + d.PathOrInlineDv
	}
	return fmt.Sprintf("%s%s@%d", d.StorageType, d.PathOrInlineDv, *d.Offset)
}

// EncodePath is the pathOrInlineDv of a relative descriptor for the file of that
// id under prefix ("" for the table root).
func EncodePath(prefix string, id uuid.UUID) string { return prefix + encodeZ85(id[:]) }

// IsEmpty reports whether the descriptor claims that no row is deleted.
func (d Descriptor) IsEmpty() bool { return d.Cardinality == 0 }

const z85Alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// decodeZ85 turns each five characters into four bytes, big-endian.
func decodeZ85(s string) ([]byte, error) {
	if len(s)%5 != 0 {
		return nil, corruptf("Z85 text of %d characters", len(s))
	}
	out := make([]byte, 0, len(s)/5*4)
	for i := 0; i < len(s); i += 5 {
		v := uint64(0)
		for _, c := range []byte(s[i : i+5]) {
			d := strings.IndexByte(z85Alphabet, c)
			if d < 0 {
				return nil, corruptf("character %q is not Z85", c)
			}
			v = v*85 + uint64(d)
		}
		if v > 1<<32-1 {
			return nil, corruptf("Z85 group %q is out of range", s[i:i+5])
		}
		out = append(out, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	return out, nil
}

// encodeZ85 pads b with zero bytes to a multiple of four.
func encodeZ85(b []byte) string {
	out := make([]byte, 0, (len(b)+3)/4*5)
	for i := 0; i < len(b); i += 4 {
		var g [4]byte
		copy(g[:], b[i:])
		v := uint32(g[0])<<24 | uint32(g[1])<<16 | uint32(g[2])<<8 | uint32(g[3])
		var c [5]byte
		for j := 4; j >= 0; j-- {
			c[j] = z85Alphabet[v%85]
			v /= 85
		}
		out = append(out, c[:]...)
	}
	return string(out)
}
