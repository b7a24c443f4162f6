package changes

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// mysqlForms are what a format leaves open of MySQL's types.
type mysqlForms struct {
	binary wire.BinaryMode
	// labels: enum and set values are indexes and masks.
	labels bool
	zone   *time.Location
	// jsonSet: SET columns are arrays of labels.
	jsonSet bool
}

// node is the plan of a column of a MySQL type as SHOW COLUMNS prints it, e.g.
// "bigint(20) unsigned" (cdc-formats 2.2 and F5); nil for a type that is not known.
func (f mysqlForms) node(typ string) *wire.Node {
	base, args, attributes := mysqlParts(typ)
	unsigned := slices.Contains(attributes, "unsigned")
	plain := func(t schema.Type) *wire.Node {
		return wire.NewNode(t, wire.Modes{Lenient: true, Decimal: wire.DecimalText, Binary: f.binary, Zone: f.zone})
	}
	wider := func(signed, other schema.Type) *wire.Node {
		if unsigned {
			return plain(other)
		}
		return plain(signed)
	}
	switch base {
	case "bool", "boolean":
		return plain(schema.Boolean)
	case "tinyint":
		return plain(schema.Short)
	case "smallint":
		return wider(schema.Short, schema.Integer)
	case "mediumint":
		return plain(schema.Integer)
	case "int", "integer":
		return wider(schema.Integer, schema.Long)
	case "bigint":
		return wider(schema.Long, schema.Decimal{Precision: 20})
	case "year":
		return plain(schema.Integer)
	case "float":
		return plain(schema.Float)
	case "double", "real", "double precision":
		return plain(schema.Double)
	case "decimal", "numeric", "dec", "fixed":
		return plain(mysqlDecimal(args))
	case "bit":
		n, err := strconv.Atoi(args)
		if err != nil {
			n = 1
		}
		if n == 1 {
			return plain(schema.Boolean)
		}
		return &wire.Node{Type: schema.String, Form: wire.BitsNumber, Scale: n}
	case "date":
		return plain(schema.Date)
	case "datetime":
		return plain(schema.TimestampNTZ)
	case "timestamp":
		return plain(schema.Timestamp)
	case "time":
		return &wire.Node{Type: schema.String, Form: wire.Clock}
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring", "polygon",
		"multipoint", "multilinestring", "multipolygon", "geometrycollection":
		return plain(schema.Binary)
	case "enum":
		if f.labels {
			return &wire.Node{Type: schema.String, Form: wire.EnumIndex, Labels: mysqlLabels(args)}
		}
	case "set":
		if f.labels {
			return &wire.Node{Type: schema.String, Form: wire.SetMask, Labels: mysqlLabels(args)}
		}
		if f.jsonSet {
			return nil
		}
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "nchar", "nvarchar", "inet4", "inet6", "uuid":
	default:
		return nil
	}
	return plain(schema.String)
}

// mysqlParts splits "int(10) unsigned zerofill" into name, arguments and attributes.
func mysqlParts(typ string) (base, args string, attributes []string) {
	head, rest, found := strings.Cut(typ, "(")
	if found {
		i := strings.LastIndexByte(rest, ')')
		if i < 0 {
			return "", "", nil
		}
		args, rest = rest[:i], rest[i+1:]
	}
	words := strings.Fields(strings.ToLower(head))
	n := len(words)
	for n > 0 && (words[n-1] == "unsigned" || words[n-1] == "zerofill" || words[n-1] == "signed") {
		n--
	}
	return strings.Join(words[:n], " "), args, append(words[n:], strings.Fields(strings.ToLower(rest))...)
}

// mysqlDecimal is DECIMAL(p,s), or STRING for more digits than Delta has.
func mysqlDecimal(args string) schema.Type {
	p, s, _ := strings.Cut(args, ",")
	precision, err := strconv.Atoi(strings.TrimSpace(p))
	if err != nil {
		precision = 10
	}
	scale, _ := strconv.Atoi(strings.TrimSpace(s))
	if precision > 38 {
		return schema.String
	}
	return schema.Decimal{Precision: precision, Scale: scale}
}

// mysqlLabels splits the labels 'a','it”s' of an enum or set.
func mysqlLabels(args string) []string {
	var out []string
	for i := 0; i < len(args); {
		if args[i] != '\'' {
			i++
			continue
		}
		var b strings.Builder
		for i++; i < len(args); i++ {
			if args[i] == '\'' {
				if i+1 < len(args) && args[i+1] == '\'' {
					i++
				} else {
					break
				}
			}
			b.WriteByte(args[i])
		}
		out = append(out, b.String())
		i++
	}
	return out
}
