package dv

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// Descriptor says where a vector is, as an add or remove action has it.
type Descriptor struct {
	// StorageType is "u" (file named by a UUID), "p" (path) or "i" (inline).
	StorageType    string
	PathOrInlineDv string
	Offset         *int32
	SizeInBytes    int32
	Cardinality    int64
}

// Location is the path of the file that holds the vector: for storage type u
// relative to the table root, for p as it stands; "" for an inline one.
func (d Descriptor) Location() (string, error) {
	switch d.StorageType {
	case "i":
		return "", nil
	case "p":
		return d.PathOrInlineDv, nil
	case "u":
		n := len(d.PathOrInlineDv) - 20
		if n < 0 {
			return "", corruptf("path %q is shorter than a UUID", d.PathOrInlineDv)
		}
		raw, err := decodeZ85(d.PathOrInlineDv[n:])
		if err != nil {
			return "", err
		}
		id, err := uuid.FromBytes(raw)
		if err != nil {
			return "", corruptf("path %q: %v", d.PathOrInlineDv, err)
		}
		name := fmt.Sprintf("deletion_vector_%s.bin", id)
		if prefix := d.PathOrInlineDv[:n]; prefix != "" {
			return prefix + "/" + name, nil
		}
		return name, nil
	}
	return "", corruptf("storage type %q", d.StorageType)
}

// inline decodes an inline vector; nil when it is stored in a file.
func (d Descriptor) inline() ([]byte, error) {
	if d.StorageType != "i" {
		return nil, nil
	}
	data, err := decodeZ85(d.PathOrInlineDv)
	if err != nil {
		return nil, err
	}
	if d.SizeInBytes < 0 || int(d.SizeInBytes) > len(data) {
		return nil, corruptf("%d inline bytes, its descriptor says %d", len(data), d.SizeInBytes)
	}
	return data[:d.SizeInBytes], nil
}

const z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// decodeZ85 reads ZeroMQ's base 85: five characters for four bytes.
func decodeZ85(s string) ([]byte, error) {
	if len(s)%5 != 0 {
		return nil, corruptf("%d characters are not Z85", len(s))
	}
	out := make([]byte, 0, len(s)/5*4)
	for i := 0; i < len(s); i += 5 {
		var v uint64
		for _, c := range []byte(s[i : i+5]) {
			n := strings.IndexByte(z85, c)
			if n < 0 {
				return nil, corruptf("character %q is not Z85", c)
			}
			v = v*85 + uint64(n)
		}
		if v > 1<<32-1 {
			return nil, corruptf("%q is not Z85", s[i:i+5])
		}
		out = binary.BigEndian.AppendUint32(out, uint32(v))
	}
	return out, nil
}
