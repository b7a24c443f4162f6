package corpora

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Values of the database (as corpora print them) and of decoded columns meet in
// one canonical text per database type.

// Corpus is a corpus.json.
type Corpus struct {
	Name      string            `json:"name"`
	Schemas   bool              `json:"schemas"`
	Unwrapped bool              `json:"unwrapped"`
	Modes     map[string]string `json:"modes"`
	Tables    map[string]struct {
		Topic   string            `json:"topic"`
		Key     []string          `json:"key"`
		Columns map[string]string `json:"columns"`
	} `json:"tables"`
	Points []struct{ Point, Lines int } `json:"points"`
}

var typmod = regexp.MustCompile(`\(([^)]*)\)`)

// dbType splits "numeric(10,2)[]" into base "numeric", args and array.
func dbType(t string) (base string, args []string, isArray bool) {
	t, isArray = strings.CutSuffix(t, "[]")
	if m := typmod.FindStringSubmatch(t); m != nil && !strings.HasPrefix(t, "enum") && !strings.HasPrefix(t, "set") {
		args = strings.Split(m[1], ",")
	}
	base = strings.TrimSpace(typmod.ReplaceAllString(t, ""))
	return strings.Join(strings.Fields(base), " "), args, isArray
}

func kindOf(t string) string {
	base, args, _ := dbType(t)
	base = strings.TrimSuffix(strings.TrimSuffix(base, " zerofill"), " unsigned")
	switch base {
	case "smallint", "integer", "bigint", "oid", "int", "tinyint", "mediumint", "year":
		return "int"
	case "real", "float":
		return "f32"
	case "double precision", "double":
		return "f64"
	case "numeric", "decimal":
		return "num"
	case "money":
		return "money"
	case "boolean":
		return "bool"
	case "date":
		return "date"
	case "timestamp without time zone", "datetime":
		return "ntz"
	case "timestamp with time zone":
		return "ts"
	case "timestamp":
		return "ts" // MySQL
	case "time without time zone", "time":
		return "time"
	case "bytea", "binary", "varbinary", "blob":
		return "bytes"
	case "bit", "bit varying":
		if len(args) > 0 && args[0] == "1" && base == "bit" {
			return "bit1"
		}
		return "bits"
	case "interval", "point", "geometry", "ext.hstore", "time with time zone":
		return "skip"
	}
	return "text"
}

// hintOf is the type a user would give for the column of a schema-less event,
// with the option for its unit; nil where a bare value cannot be read as one.
func hintOf(t string, modes map[string]string) (schema.Type, string) {
	_, args, isArray := dbType(t)
	var typ schema.Type
	unit := ""
	switch kind := kindOf(t); kind {
	case "int":
		typ = schema.Long
		if strings.Contains(t, "bigint(20) unsigned") {
			typ = schema.Decimal{Precision: 20}
			if modes["bigint_unsigned"] == "long" {
				typ = schema.Long
			}
		}
	case "f32":
		typ = schema.Float
	case "f64":
		typ = schema.Double
	case "num":
		if len(args) < 2 || args[0] == "65" {
			return nil, ""
		}
		p, _ := strconv.Atoi(args[0])
		s, _ := strconv.Atoi(args[1])
		if s < 0 {
			return nil, ""
		}
		typ = schema.Decimal{Precision: p, Scale: s}
	case "bool":
		typ = schema.Boolean
	case "date":
		typ = schema.Date
	case "ntz":
		typ = schema.TimestampNTZ
		precision := 6
		if strings.HasPrefix(t, "datetime") {
			precision = 0
		}
		if len(args) > 0 {
			precision, _ = strconv.Atoi(args[0])
		}
		if modes["time"] == "adaptive" && precision <= 3 {
			unit = "millis"
		}
	case "ts":
		typ = schema.Timestamp
	case "bytes":
		typ = schema.Binary
	case "text":
		typ = schema.String
	default:
		return nil, ""
	}
	if isArray {
		if modes["decimal"] == "precise" && kindOf(t) == "num" {
			typ = schema.Decimal{Precision: 10, Scale: 2}
		}
		typ = &schema.Array{Elem: typ, ContainsNull: true}
	}
	return typ, unit
}

func micros(s string) string {
	s = strings.TrimSuffix(strings.TrimSuffix(s, "Z"), "+00")
	bc := strings.HasSuffix(s, " BC")
	s = strings.Replace(strings.TrimSuffix(s, " BC"), "T", " ", 1)
	d, c, _ := strings.Cut(s, " ")
	us := clockMicros(c)
	if us == nil {
		return "?" + s
	}
	return new(big.Int).Add(us, new(big.Int).Mul(days(d, bc), big.NewInt(86_400_000_000))).String()
}

func days(s string, bc bool) *big.Int {
	p := strings.Split(s, "-")
	if len(p) != 3 {
		return big.NewInt(1 << 50)
	}
	y, _ := strconv.Atoi(p[0])
	m, _ := strconv.Atoi(p[1])
	d, _ := strconv.Atoi(p[2])
	if bc {
		y = 1 - y
	}
	sec := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Unix()
	return big.NewInt(sec / 86400)
}

func clockMicros(c string) *big.Int {
	if c == "" {
		return big.NewInt(0)
	}
	neg := strings.HasPrefix(c, "-")
	p := strings.Split(strings.TrimPrefix(c, "-"), ":")
	if len(p) < 2 {
		return nil
	}
	h, _ := strconv.ParseInt(p[0], 10, 64)
	m, _ := strconv.ParseInt(p[1], 10, 64)
	us := (h*60 + m) * 60_000_000
	if len(p) > 2 {
		sec, frac, _ := strings.Cut(p[2], ".")
		n, _ := strconv.ParseInt(sec, 10, 64)
		f, _ := strconv.ParseInt((frac + "000000")[:6], 10, 64)
		us += n*1_000_000 + f
	}
	if neg {
		us = -us
	}
	return big.NewInt(us)
}

func rat(s string) string {
	if r, ok := new(big.Rat).SetString(s); ok {
		return r.RatString()
	}
	return s
}

// canonDB is the canonical text of a value in expected/*.jsonl.
func canonDB(t string, v any) string {
	if v == nil {
		return "NULL"
	}
	if list, ok := v.([]any); ok {
		var out []string
		elem := strings.TrimSuffix(t, "[]")
		for _, e := range list {
			out = append(out, canonDB(elem, e))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	s := fmt.Sprint(v)
	if _, ok := v.(string); ok && unlike(t, s) {
		return "NULL"
	}
	switch kindOf(t) {
	case "int", "num":
		return rat(s)
	case "money":
		return rat(strings.NewReplacer("$", "", ",", "").Replace(s))
	case "f32":
		f, err := strconv.ParseFloat(s, 32)
		if err != nil {
			return s
		}
		return strconv.FormatFloat(f, 'g', -1, 32)
	case "f64":
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return s
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	case "date":
		if strings.Contains(s, "infinity") {
			return s
		}
		return days(strings.TrimSuffix(s, " BC"), strings.HasSuffix(s, " BC")).String()
	case "ntz", "ts":
		return micros(s)
	case "time":
		return clockMicros(s).String()
	case "bytes":
		return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(s, `\x`), "0x"))
	case "bits":
		return strings.TrimLeft(s, "0")
	case "bit1":
		return s
	}
	return s
}

// unlike tells whether the database's value has no form in the Delta type and so
// is rescued: infinite dates, NaN decimals.
func unlike(t, s string) bool {
	_, args, _ := dbType(t)
	switch kindOf(t) {
	case "date", "ntz", "ts":
		return strings.Contains(s, "infinity")
	case "num":
		return len(args) > 0 && strings.Trim(s, "-0123456789.") != ""
	}
	return false
}

// canonOut is the canonical text of a decoded value.
func canonOut(t string, modes map[string]string, v any) string {
	if v == nil {
		return "NULL"
	}
	_, args, _ := dbType(t)
	kind := kindOf(t)
	switch v := v.(type) {
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, canonOut(strings.TrimSuffix(t, "[]"), modes, e))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case Dec:
		return rat(string(v))
	case Day:
		return strconv.Itoa(int(v))
	case TS:
		return strconv.FormatInt(int64(v), 10)
	case NTZ:
		return strconv.FormatInt(int64(v), 10)
	case []byte:
		return hex.EncodeToString(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		if kind == "num" || kind == "money" {
			return rat(strconv.FormatFloat(v, 'f', -1, 64))
		}
		if kind == "f32" {
			return strconv.FormatFloat(v, 'g', -1, 32)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		if kind == "bit1" || kind == "int" {
			return map[bool]string{true: "1", false: "0"}[v]
		}
		return strconv.FormatBool(v)
	case int64:
		switch kind {
		case "time":
			if modes["time"] == "adaptive" && strings.HasPrefix(t, "time(") && (args[0] == "3" || args[0] == "0") && !strings.HasSuffix(t, ")") || modes["time"] == "connect" {
				return strconv.FormatInt(v*1000, 10)
			}
		}
		return strconv.FormatInt(v, 10)
	case string:
		switch kind {
		case "int", "num", "money":
			if word, ok := map[string]string{"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}[v]; ok {
				return word
			}
			return rat(v)
		case "time":
			return clockMicros(strings.TrimSuffix(v, "Z")).String()
		case "bits":
			if len(v) > 0 && strings.Trim(v, "01") != "" { // bare: base64 of little-endian bytes
				b, _ := base64.StdEncoding.DecodeString(v)
				out := ""
				for i := len(b) - 1; i >= 0; i-- {
					out += fmt.Sprintf("%08b", b[i])
				}
				return strings.TrimLeft(out, "0")
			}
			return strings.TrimLeft(v, "0")
		case "bytes":
			if b, err := base64.StdEncoding.DecodeString(v); err == nil {
				return hex.EncodeToString(b)
			}
		}
		return v
	}
	js, _ := json.Marshal(v)
	return string(js)
}
