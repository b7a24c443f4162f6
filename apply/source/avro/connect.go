package avro

import (
	"fmt"
	"strconv"

	"github.com/sluice-data/sluice/apply/source/wire"
)

// connectSchema prints the Kafka Connect schema, as its JSON converter embeds it,
// that the values printed by appendValue have.
func connectSchema(s *Schema) ([]byte, error) {
	return appendConnect(nil, s, "", false, 0)
}

func appendConnect(out []byte, s *Schema, field string, hasDefault bool, depth int) ([]byte, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("avro schema: a type that holds itself has no columns")
	}
	optional := false
	if s.Type == "union" {
		inner, ok := nullable(s)
		if !ok {
			return nil, fmt.Errorf("avro schema: field %q is a union of several types, which has no column type", field)
		}
		optional, s = true, inner
	}
	typ, name, params := connectType(s)
	out = append(out, `{"type":`...)
	out = wire.AppendString(out, typ)
	out = append(out, `,"optional":`...)
	out = strconv.AppendBool(out, optional)
	if name != "" {
		out = append(out, `,"name":`...)
		out = wire.AppendString(out, name)
	}
	if len(params) > 0 {
		out = append(out, `,"parameters":{`...)
		for i := 0; i < len(params); i += 2 {
			if i > 0 {
				out = append(out, ',')
			}
			out = wire.AppendString(out, params[i])
			out = append(out, ':')
			out = wire.AppendString(out, params[i+1])
		}
		out = append(out, '}')
	}
	if hasDefault && optional {
		out = append(out, `,"default":true`...)
	}
	if field != "" {
		out = append(out, `,"field":`...)
		out = wire.AppendString(out, field)
	}
	var err error
	switch typ {
	case "struct":
		out = append(out, `,"fields":[`...)
		for i, f := range s.Fields {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendConnect(out, f.Schema, f.Name, f.HasDefault, depth+1); err != nil {
				return nil, err
			}
		}
		out = append(out, ']')
	case "array":
		out = append(out, `,"items":`...)
		if out, err = appendConnect(out, s.Items, "", false, depth+1); err != nil {
			return nil, err
		}
	case "map":
		out = append(out, `,"keys":{"type":"string","optional":false},"values":`...)
		if out, err = appendConnect(out, s.Items, "", false, depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// nullable is the one type of a union that is not null.
func nullable(s *Schema) (*Schema, bool) {
	var inner *Schema
	for _, b := range s.Branches {
		if b.Type == "null" {
			continue
		}
		if inner != nil {
			return nil, false
		}
		inner = b
	}
	if inner == nil {
		inner = &Schema{Type: "string"}
	}
	return inner, true
}

// connectType is type, logical name and parameters of a schema that is no union.
func connectType(s *Schema) (typ, name string, params []string) {
	name = s.Connect
	for _, k := range []string{"length", "scale", "connect.decimal.precision", "allowed"} {
		if v, ok := s.Parameters[k]; ok {
			params = append(params, k, v)
		}
	}
	switch s.Type {
	case "int":
		typ = "int32"
		if s.ConnectType == "int8" || s.ConnectType == "int16" {
			typ = s.ConnectType
		}
	case "long":
		typ = "int64"
	case "float":
		typ = "float"
	case "double":
		typ = "double"
	case "bytes", "fixed":
		typ = "bytes"
		if s.Logical == "decimal" {
			name = "org.apache.kafka.connect.data.Decimal"
			params = []string{"scale", strconv.Itoa(s.Scale)}
			// 64 is what the converter writes where the source does not say.
			if s.Precision > 0 && s.Precision != 64 {
				params = append(params, "connect.decimal.precision", strconv.Itoa(s.Precision))
			}
		}
	case "enum", "string":
		typ = "string"
	case "record":
		typ = "struct"
	case "null":
		typ = "string"
	default:
		typ = s.Type // boolean, array, map
	}
	if name == "" {
		typ, name = plainLogical(s, typ)
	}
	return typ, name, params
}

// plainLogical maps the logical types of Avro itself, which other producers than
// Kafka Connect write. Instants become text (see appendValue).
func plainLogical(s *Schema, typ string) (string, string) {
	switch s.Logical {
	case "date":
		return typ, "io.debezium.time.Date"
	case "time-millis":
		return typ, "io.debezium.time.Time"
	case "time-micros":
		return typ, "io.debezium.time.MicroTime"
	case "timestamp-millis", "timestamp-micros", "timestamp-nanos":
		return "string", "io.debezium.time.ZonedTimestamp"
	case "local-timestamp-millis":
		return typ, "io.debezium.time.Timestamp"
	case "local-timestamp-micros":
		return typ, "io.debezium.time.MicroTimestamp"
	case "local-timestamp-nanos":
		return typ, "io.debezium.time.NanoTimestamp"
	}
	return typ, ""
}
