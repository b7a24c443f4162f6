package datafile

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// Stats are the statistics of one data file as the log has them. Any part may be
// missing; text that is not JSON is the same as none.
type Stats struct {
	// NumRecords counts physical rows, deleted ones included; -1 when unknown.
	NumRecords int64
	// Tight is false when the bounds may be wider than the live rows.
	Tight bool

	min, max, nulls map[string]json.RawMessage // dotted by NUL, leaves only
}

// ParseStats reads add.stats. It never fails.
func ParseStats(text string) *Stats {
	s := &Stats{NumRecords: -1, Tight: true}
	var raw struct {
		NumRecords  *int64                     `json:"numRecords"`
		TightBounds *bool                      `json:"tightBounds"`
		Min         map[string]json.RawMessage `json:"minValues"`
		Max         map[string]json.RawMessage `json:"maxValues"`
		Nulls       map[string]json.RawMessage `json:"nullCount"`
	}
	if text == "" || json.Unmarshal([]byte(text), &raw) != nil {
		return s
	}
	if raw.NumRecords != nil && *raw.NumRecords >= 0 {
		s.NumRecords = *raw.NumRecords
	}
	if raw.TightBounds != nil {
		s.Tight = *raw.TightBounds
	}
	f := flattener{left: 64<<10 + 16*len(text)}
	s.min, s.max, s.nulls = f.flat(raw.Min), f.flat(raw.Max), f.flat(raw.Nulls)
	if f.left < 0 {
		s.min, s.max, s.nulls = nil, nil, nil
	}
	return s
}

// flattener writes the whole path before each leaf. left bounds the bytes of these paths:
// one long name above many leaves would make gigabytes of a small text.
type flattener struct{ left int }

func (f *flattener) flat(m map[string]json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(m))
	f.into(out, "", m, 0)
	return out
}

func (f *flattener) into(out map[string]json.RawMessage, path string, m map[string]json.RawMessage, depth int) {
	for k, v := range m {
		if f.left -= len(path) + len(k); f.left < 0 {
			return
		}
		at := pathKey(path, k)
		if len(v) > 0 && v[0] == '{' && depth < schema.MaxDepth {
			var sub map[string]json.RawMessage
			if json.Unmarshal(v, &sub) == nil {
				f.into(out, at, sub, depth+1)
			}
			continue
		}
		if string(v) != "null" {
			out[at] = v
		}
	}
}

// parseBound reads one minimum or maximum; a value that does not fit the type is
// absent, one that was rounded by its writer is widened to the safe side.
func parseBound(raw json.RawMessage, t schema.Type, upper bool) (expr.Value, bool) {
	none := expr.Value{}
	if len(raw) == 0 {
		return none, false
	}
	text := string(raw)
	quoted := raw[0] == '"'
	if quoted && json.Unmarshal(raw, &text) != nil {
		return none, false
	}
	switch t := t.(type) {
	case schema.Decimal:
		return decimalBound(text, t, upper)
	case schema.Primitive:
		switch t {
		case schema.Long, schema.Integer, schema.Short, schema.Byte:
			n, err := strconv.ParseInt(text, 10, 64)
			return expr.IntValue(n), err == nil
		case schema.Float, schema.Double:
			f, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(f) {
				return none, false
			}
			if t == schema.Float {
				// The shortest text of a FLOAT is another number when it is read as a DOUBLE.
				narrow, err := strconv.ParseFloat(text, 32)
				switch {
				case err != nil:
					return none, false
				case upper:
					f = max(f, narrow)
				default:
					f = min(f, narrow)
				}
			}
			return expr.FloatValue(f), true
		case schema.String:
			return expr.BytesValue(text), quoted
		case schema.Date:
			at, err := time.Parse("2006-01-02", text)
			return expr.IntValue(floorDiv(at.Unix(), 86400)), quoted && err == nil
		case schema.Timestamp, schema.TimestampNTZ:
			us, ok := timestampBound(text, upper)
			return expr.IntValue(us), quoted && ok
		}
	}
	return none, false
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// timestampBound reads a timestamp of statistics in microseconds. Writers floor to
// milliseconds, so a maximum is up to 999 microseconds higher.
func timestampBound(text string, upper bool) (int64, bool) {
	for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02"} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		us := at.UnixMicro()
		if upper {
			if us > math.MaxInt64-999 {
				return math.MaxInt64, true
			}
			us += 999
		}
		return us, true
	}
	return 0, false
}

// decimalBound reads the literal digits; digits beyond the scale mean a rounded
// bound, which is widened by one unit of the last place.
func decimalBound(text string, t schema.Decimal, upper bool) (expr.Value, bool) {
	if len(text) > 100 || strings.ContainsAny(text, "/xXpP_") {
		return expr.Value{}, false
	}
	if _, e, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		if n, err := strconv.Atoi(e); err != nil || n > 50 || n < -50 {
			return expr.Value{}, false
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return expr.Value{}, false
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil)))
	v := new(big.Int).Quo(r.Num(), r.Denom())
	// Rounded is what does not fit the scale, or a float64 that ran out of digits.
	rounded := !r.IsInt() || t.Precision > 15 && digitsOf(text) >= 15
	if rounded {
		step := int64(1)
		if !upper {
			step = -1
		}
		width := big.NewInt(step)
		if n := len(new(big.Int).Abs(v).String()); t.Precision > 15 && n > 15 {
			// A float64 keeps 15 to 17 significant digits: one unit of the 15th.
			width.Mul(width, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n-15)), nil))
		}
		v.Add(v, width)
	}
	if v.BitLen() > 126 {
		return expr.Value{}, false
	}
	return expr.DecimalValue(decimal128.FromBigInt(v), int32(t.Scale)), true
}

func digitsOf(text string) int {
	n := 0
	for _, c := range text {
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}
