package postgres

import (
	"time"

	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// form is how the text of a value becomes a token for its column's node.
type form uint8

const (
	asText   form = iota // verbatim
	asNumber             // digits, or NaN and infinities
	asBool               // t or f
	asTime               // a date or timestamp, which may be of before Christ
	asArray              // {1,2,NULL}
	asHstore             // "a"=>"1", "b"=>NULL
)

// plan is how a column of one PostgreSQL type is read.
type plan struct {
	node *wire.Node
	form form
	elem *plan // of arrays
}

// typeDef is what the catalog says of a type that is not built in. JSON, in records
// of the catalog.
type typeDef struct {
	OID    uint32 `json:"oid"`
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// Kind is pg_type.typtype: b, c, d, e, m, p or r.
	Kind string `json:"kind"`
	// Elem is the element of an array, Base with Mod what a domain is made of.
	Elem uint32 `json:"elem,omitempty"`
	Base uint32 `json:"base,omitempty"`
	Mod  int32  `json:"mod,omitempty"`
}

// The types that are more than their text, by their fixed numbers in pg_type.
const (
	oidBool        = 16
	oidBytea       = 17
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidOID         = 26
	oidFloat4      = 700
	oidFloat8      = 701
	oidDate        = 1082
	oidTime        = 1083
	oidTimestamp   = 1114
	oidTimestamptz = 1184
	oidBit         = 1560
	oidNumeric     = 1700
)

// textOIDs are built-in types that are STRING: char, name, text, json, xml, cidr,
// macaddr8, money, macaddr, inet, bpchar, varchar, interval, timetz, varbit, uuid,
// jsonb.
func isText(oid uint32) bool {
	switch oid {
	case 18, 19, 25, 114, 142, 650, 774, 790, 829, 869, 1042, 1043, 1186, 1266, 1562, 2950, 3802:
		return true
	}
	return false
}

// elementOf is the element of a built-in array type; 0 for what is none or is not
// among the well-known ones (the catalog knows them all).
func elementOf(oid uint32) uint32 {
	switch oid {
	case 1000:
		return oidBool
	case 1001:
		return oidBytea
	case 1005:
		return oidInt2
	case 1007:
		return oidInt4
	case 1016:
		return oidInt8
	case 1021:
		return oidFloat4
	case 1022:
		return oidFloat8
	case 1028:
		return oidOID
	case 1115:
		return oidTimestamp
	case 1182:
		return oidDate
	case 1183:
		return oidTime
	case 1185:
		return oidTimestamptz
	case 1231:
		return oidNumeric
	case 1561:
		return oidBit
	case 143, 199, 651, 775, 791, 1002, 1003, 1009, 1014, 1015, 1040, 1041, 1187, 1270, 1563, 2951, 3807:
		return 25
	}
	return 0
}

// known tells whether a type needs no catalog.
func known(oid uint32) bool {
	switch oid {
	case oidBool, oidBytea, oidInt8, oidInt2, oidInt4, oidOID, oidFloat4, oidFloat8, oidDate, oidTime, oidTimestamp, oidTimestamptz, oidBit, oidNumeric:
		return true
	}
	return isText(oid) || elementOf(oid) != 0
}

// maxTypeDepth bounds domains of domains of arrays.
const maxTypeDepth = 16

// planOf is how values of a type are read; docs/postgres.md has the table. What is
// neither here nor in the catalog is STRING, as the server prints it.
func planOf(oid uint32, mod int32, defs map[uint32]typeDef, zone *time.Location, depth int) *plan {
	modes := wire.Modes{Lenient: true, Decimal: wire.DecimalText, Binary: wire.Hex, Zone: zone}
	of := func(t schema.Type, f form) *plan { return &plan{node: wire.NewNode(t, modes), form: f} }
	switch oid {
	case oidBool:
		return of(schema.Boolean, asBool)
	case oidBytea:
		return of(schema.Binary, asText)
	case oidInt2:
		return of(schema.Short, asNumber)
	case oidInt4:
		return of(schema.Integer, asNumber)
	case oidInt8, oidOID:
		return of(schema.Long, asNumber)
	case oidFloat4:
		return of(schema.Float, asNumber)
	case oidFloat8:
		return of(schema.Double, asNumber)
	case oidDate:
		return of(schema.Date, asTime)
	case oidTimestamp:
		return of(schema.TimestampNTZ, asTime)
	case oidTimestamptz:
		return of(schema.Timestamp, asTime)
	case oidTime:
		p := of(schema.String, asText)
		p.node.Form = wire.Clock
		return p
	case oidBit:
		if mod == 1 {
			return of(schema.Boolean, asNumber)
		}
	case oidNumeric:
		if t, ok := decimalOf(mod); ok {
			return of(t, asNumber)
		}
	}
	elem := elementOf(oid)
	def, found := defs[oid]
	if elem == 0 && found && depth < maxTypeDepth {
		switch {
		case def.Kind == "d" && def.Base != 0:
			return planOf(def.Base, def.Mod, defs, zone, depth+1)
		case def.Elem != 0:
			elem = def.Elem
		case def.Name == "hstore":
			return of(schema.String, asHstore)
		}
	}
	if elem == 0 {
		return of(schema.String, asText)
	}
	e := planOf(elem, mod, defs, zone, depth+1)
	if e.form == asArray { // an array of a domain over an array: no plain list
		return of(schema.String, asText)
	}
	p := of(&schema.Array{Elem: e.node.Type, ContainsNull: true}, asArray)
	p.node.Kids[0], p.elem = e.node, e
	return p
}

// decimalOf is the DECIMAL of a numeric's modifier; none for an unlimited one and for
// more than 38 digits. The scale has eleven bits with a sign (PostgreSQL 15).
func decimalOf(mod int32) (schema.Type, bool) {
	if mod < 4 {
		return nil, false
	}
	m := mod - 4
	precision, scale := int(m>>16&0xffff), int(m&0x7ff^1024)-1024
	if scale < 0 {
		precision, scale = precision-scale, 0
	}
	precision = max(precision, scale)
	if precision > 38 {
		return nil, false
	}
	return schema.Decimal{Precision: precision, Scale: scale}, true
}
