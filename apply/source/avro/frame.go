package avro

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
)

// Ref names a schema in a registry.
type Ref struct {
	// Kind is what the id counts: "id" (Confluent's API), "guid", "globalId",
	// "contentId", "glue" (a schema version of AWS Glue).
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
	case len(b) >= 18 && b[0] == 3 && (b[1] == 0 || b[1] == 5):
		// AWS Glue: version, compression (5 is zlib), UUID of the schema's version.
		ref := Ref{"glue", guid(hex.EncodeToString(b[2:18]))}
		if b[1] == 0 {
			return ref, b[18:], nil
		}
		body, err := inflate(b[18:])
		return ref, body, err
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

// maxInflated bounds what one compressed body may become.
const maxInflated = 64 << 20

// inflate unpacks zlib.
func inflate(b []byte) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("compressed body: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, maxInflated+1))
	if err == nil {
		err = z.Close()
	}
	if err == nil && len(out) > maxInflated {
		err = fmt.Errorf("more than %d bytes", maxInflated)
	}
	if err != nil {
		return nil, fmt.Errorf("compressed body: %w", err)
	}
	return out, nil
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
