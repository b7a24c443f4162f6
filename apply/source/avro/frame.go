package avro

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
)

// Ref names a schema in a registry.
type Ref struct {
	// Kind is what the id counts: "id" (Confluent's API), "guid", "globalId",
	// "contentId".
	Kind, ID string
}

func (r Ref) String() string { return r.Kind + " " + r.ID }

// unframe finds the schema of a key or value and its body (cdc-formats 1, F2).
// side is key or value.
func unframe(b []byte, headers []event.Header, side, idKind string) (Ref, []byte, error) {
	if ref, ok, err := headerRef(headers, side); ok || err != nil {
		return ref, b, err
	}
	switch {
	case len(b) >= 17 && b[0] == 1:
		g := hex.EncodeToString(b[1:17])
		return Ref{"guid", guid(g)}, b[17:], nil
	case len(b) < 5 || b[0] != 0:
		return Ref{}, nil, fmt.Errorf("no framing of a registry: it begins with % x", b[:min(len(b), 6)])
	}
	if id := binary.BigEndian.Uint32(b[1:5]); id != 0 {
		if id > 1<<31-1 {
			return Ref{}, nil, fmt.Errorf("schema id %d is negative", int32(id))
		}
		return Ref{idKind, strconv.FormatUint(uint64(id), 10)}, b[5:], nil
	}
	if len(b) < 9 {
		return Ref{}, nil, fmt.Errorf("schema id 0")
	}
	id := binary.BigEndian.Uint32(b[5:9])
	if id == 0 || id > 1<<31-1 {
		return Ref{}, nil, fmt.Errorf("schema id %d", id)
	}
	return Ref{"globalId", strconv.FormatUint(uint64(id), 10)}, b[9:], nil
}

func guid(h string) string {
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// headerRef finds the schema that headers name; the body is then bare.
func headerRef(headers []event.Header, side string) (Ref, bool, error) {
	for _, h := range headers {
		kind := ""
		switch h.Key {
		case "__" + side + "_schema_id":
			v := h.Value
			switch {
			case len(v) == 17 && v[0] == 1:
				return Ref{"guid", guid(hex.EncodeToString(v[1:]))}, true, nil
			case len(v) == 5 && v[0] == 0:
				return Ref{"id", strconv.FormatUint(uint64(binary.BigEndian.Uint32(v[1:])), 10)}, true, nil
			}
			return Ref{}, true, fmt.Errorf("header %s: % x is no schema id", h.Key, v)
		case "apicurio." + side + ".globalId":
			kind = "globalId"
		case "apicurio." + side + ".contentId":
			kind = "contentId"
		default:
			continue
		}
		if len(h.Value) != 8 {
			return Ref{}, true, fmt.Errorf("header %s has %d bytes, want 8", h.Key, len(h.Value))
		}
		return Ref{kind, strconv.FormatUint(binary.BigEndian.Uint64(h.Value), 10)}, true, nil
	}
	return Ref{}, false, nil
}
