package parquetio

import (
	"fmt"
	"strings"

	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

const (
	maxSchemaDepth = 100 // levels fit a byte
	fieldIDKey     = "delta.columnMapping.id"
)

const (
	required = int8(format.Required)
	optional = int8(format.Optional)
	repeated = int8(format.Repeated)
)

// node is a column or group of the file's schema.
type node struct {
	*schemaElement
	parent   *node
	children []*node
	leaf     int   // position among the leaves, -1 for a group
	maxDef   uint8 // definition level at which the node itself is present
	maxRep   uint8
}

func (n *node) isLeaf() bool { return n.leaf >= 0 }

func (n *node) path() []string {
	if n.parent == nil {
		return nil
	}
	return append(n.parent.path(), n.name)
}

// buildTree turns the flat depth-first list of the footer into a tree.
func buildTree(elems []schemaElement) (root *node, leaves []*node, err error) {
	pos := 0
	var build func(parent *node, depth int) (*node, error)
	build = func(parent *node, depth int) (*node, error) {
		if pos >= len(elems) {
			return nil, corruptf("schema ends inside a group")
		}
		if depth > maxSchemaDepth {
			return nil, corruptf("schema is nested deeper than %d", maxSchemaDepth)
		}
		e := &elems[pos]
		pos++
		n := &node{schemaElement: e, parent: parent, leaf: -1}
		if parent != nil {
			n.maxDef, n.maxRep = parent.maxDef, parent.maxRep
			switch e.repetition {
			case required:
			case optional:
				n.maxDef++
			case repeated:
				n.maxDef++
				n.maxRep++
			default:
				return nil, corruptf("column %s: repetition %d", e.name, e.repetition)
			}
		}
		if e.hasType && e.children == 0 && parent != nil {
			if e.typ < format.Boolean || e.typ > format.FixedLenByteArray {
				return nil, corruptf("column %s: physical type %d", e.name, e.typ)
			}
			if e.typ == format.FixedLenByteArray && (e.typeLength <= 0 || e.typeLength > 1<<20) {
				return nil, corruptf("column %s: fixed length %d", e.name, e.typeLength)
			}
			n.leaf = len(leaves)
			leaves = append(leaves, n)
			return n, nil
		}
		if e.children < 0 || int(e.children) > len(elems)-pos {
			return nil, corruptf("column %s: %d children", e.name, e.children)
		}
		for range e.children {
			c, err := build(n, depth+1)
			if err != nil {
				return nil, err
			}
			n.children = append(n.children, c)
		}
		return n, nil
	}
	if root, err = build(nil, 0); err != nil {
		return nil, nil, err
	}
	if pos != len(elems) {
		return nil, nil, corruptf("schema has %d elements outside the root", len(elems)-pos)
	}
	return root, leaves, nil
}

// String describes physical and logical type of a leaf, for errors.
func (n *node) String() string {
	if !n.isLeaf() {
		return "group"
	}
	s := n.typ.String()
	if n.typ == format.FixedLenByteArray {
		s = fmt.Sprintf("%s(%d)", s, n.typeLength)
	}
	l := n.logical
	unit := map[int8]string{unitMillis: "MILLIS", unitMicros: "MICROS", unitNanos: "NANOS"}[l.unit]
	switch l.kind {
	case logicalNone:
		return s
	case logicalDecimal:
		return fmt.Sprintf("%s DECIMAL(%d,%d)", s, l.precision, l.scale)
	case logicalInt:
		return fmt.Sprintf("%s INT(%d,%t)", s, l.bits, l.signed)
	case logicalTimestamp:
		return fmt.Sprintf("%s TIMESTAMP(%s,utc=%t)", s, unit, l.utc)
	case logicalTime:
		return fmt.Sprintf("%s TIME(%s)", s, unit)
	}
	return s + " " + logicalNames[l.kind]
}

var logicalNames = map[logicalKind]string{
	logicalString: "STRING", logicalMap: "MAP", logicalList: "LIST", logicalEnum: "ENUM", logicalDate: "DATE",
	logicalNull: "NULL", logicalJSON: "JSON", logicalBSON: "BSON", logicalUUID: "UUID", logicalFloat16: "FLOAT16",
	logicalVariant: "VARIANT", logicalInterval: "INTERVAL", logicalKeyValue: "MAP_KEY_VALUE", logicalUnknown: "an unknown logical type",
}

// listShape finds the element of a list by structure. The repeated node
// is rep; elem == rep when the repeated node itself is the element, as in the
// two-level forms ("Backward-compatibility rules" of the Parquet LogicalTypes).
// wantStruct (wanted element is a struct) and wantKnown decide where the rules
// only guess by name.
func (n *node) listShape(wantKnown, wantStruct bool) (rep, elem *node, ok bool) {
	if n.isLeaf() || len(n.children) != 1 || n.children[0].repetition != repeated {
		return nil, nil, false
	}
	rep = n.children[0]
	if rep.isLeaf() || len(rep.children) != 1 {
		return rep, rep, true
	}
	inner := rep.children[0]
	if inner.repetition == repeated {
		return rep, rep, true
	}
	byName := rep.name == "array" || rep.name == n.name+"_tuple"
	if wantKnown {
		switch {
		case !wantStruct:
			return rep, inner, true
		case inner.isLeaf():
			return rep, rep, true
		}
	}
	if byName {
		return rep, rep, true
	}
	return rep, inner, true
}

// mapShape finds key and value of a map by structure; value is nil when the
// file has keys only.
func (n *node) mapShape() (rep, key, value *node, ok bool) {
	if n.isLeaf() || len(n.children) != 1 {
		return nil, nil, nil, false
	}
	rep = n.children[0]
	if rep.repetition != repeated || rep.isLeaf() || len(rep.children) < 1 || len(rep.children) > 2 {
		return nil, nil, nil, false
	}
	key = rep.children[0]
	if len(rep.children) == 2 {
		value = rep.children[1]
	}
	return rep, key, value, true
}

// deltaType is the Delta type a file's node stands for; schema.Unknown when
// there is none.
func (n *node) deltaType() schema.Type {
	if n.repetition == repeated && n.parent != nil {
		return &schema.Array{Elem: n.bareType()}
	}
	return n.bareType()
}

func (n *node) bareType() schema.Type {
	if n.isLeaf() {
		return n.primitiveType()
	}
	switch n.logical.kind {
	case logicalList:
		if rep, elem, ok := n.listShape(false, false); ok {
			if elem == rep {
				return &schema.Array{Elem: elem.bareType()}
			}
			return &schema.Array{Elem: elem.deltaType(), ContainsNull: elem.repetition == optional}
		}
		return schema.Unknown{Raw: "LIST without elements"}
	case logicalMap, logicalKeyValue:
		if _, k, v, ok := n.mapShape(); ok && v != nil {
			return &schema.Map{Key: k.deltaType(), Value: v.deltaType(), ValueContainsNull: v.repetition == optional}
		}
		// Keys alone are no Delta type; a struct is not what plan reads from it.
		return schema.Unknown{Raw: "MAP without values"}
	}
	s := &schema.Struct{}
	for _, c := range n.children {
		f := schema.Field{Name: c.name, Type: c.deltaType(), Nullable: c.repetition == optional}
		if c.hasFieldID {
			f.Metadata = f.Metadata.With(fieldIDKey, c.fieldID)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

func (n *node) primitiveType() schema.Type {
	unknown := schema.Unknown{Raw: n.String()}
	switch l := n.logical; l.kind {
	case logicalNone:
		switch n.typ {
		case format.Boolean:
			return schema.Boolean
		case format.Int32:
			return schema.Integer
		case format.Int64:
			return schema.Long
		case format.Int96:
			return schema.Timestamp
		case format.Float:
			return schema.Float
		case format.Double:
			return schema.Double
		}
		return schema.Binary
	case logicalString, logicalEnum, logicalJSON:
		if n.typ == format.ByteArray {
			return schema.String
		}
	case logicalBSON:
		return schema.Binary
	case logicalDecimal:
		if l.precision >= 1 && l.precision <= 38 && l.scale >= 0 && l.scale <= l.precision {
			return schema.Decimal{Precision: int(l.precision), Scale: int(l.scale)}
		}
	case logicalDate:
		if n.typ == format.Int32 {
			return schema.Date
		}
	case logicalTimestamp:
		if n.typ == format.Int64 {
			if l.utc {
				return schema.Timestamp
			}
			return schema.TimestampNTZ
		}
	case logicalInt:
		return intType(n.typ, l)
	case logicalNull:
		return schema.Void
	}
	return unknown
}

func intType(phys format.Type, l logicalType) schema.Type {
	if l.signed {
		switch {
		case phys == format.Int32 && l.bits == 8:
			return schema.Byte
		case phys == format.Int32 && l.bits == 16:
			return schema.Short
		case phys == format.Int32:
			return schema.Integer
		}
		return schema.Long
	}
	switch {
	case phys == format.Int32 && l.bits == 8:
		return schema.Short
	case phys == format.Int32 && l.bits == 16:
		return schema.Integer
	case phys == format.Int32:
		return schema.Long
	}
	return schema.Decimal{Precision: 20}
}

// child finds the child of a group: by field id when byID, else by exact name,
// else by the only name that is equal ignoring case.
func (n *node) child(f schema.Field, byID bool) (*node, error) {
	if byID {
		if raw, ok := f.Metadata.Get(fieldIDKey); ok {
			for _, c := range n.children {
				if c.hasFieldID && fmt.Sprint(c.fieldID) == strings.TrimSpace(string(raw)) {
					return c, nil
				}
			}
			return nil, nil
		}
	}
	var found *node
	ambiguous := false
	for _, c := range n.children {
		if c.name == f.Name {
			return c, nil
		}
		if strings.EqualFold(c.name, f.Name) {
			ambiguous = ambiguous || found != nil
			found = c
		}
	}
	if ambiguous {
		return nil, fmt.Errorf("column %s: several columns of the file have this name ignoring case", f.Name)
	}
	return found, nil
}
