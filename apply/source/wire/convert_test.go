package wire

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// exact is the decimal that text stands for at a precision and scale, by rationals.
func exact(text string, precision, scale int) (*big.Int, bool) {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, false
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
	if !r.IsInt() {
		return nil, false
	}
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
	return r.Num(), new(big.Int).Abs(r.Num()).Cmp(limit) < 0
}

func TestDecimalText_Rand(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?[0-9]{1,30}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "text")
		p := rapid.IntRange(1, 38).Draw(t, "p")
		s := rapid.IntRange(0, p).Draw(t, "s")
		want, ok := exact(text, p, s)
		got, gotOK := decimalText([]byte(text), p, s)
		// More than 38 digits in between are refused even where trailing zeros would save them.
		if gotOK && !ok || gotOK && got.BigInt().Cmp(want) != 0 {
			t.Fatalf("%s as (%d,%d): got %s %v, want %s %v", text, p, s, got.BigInt(), gotOK, want, ok)
		}
		if ok && !gotOK {
			t.Fatalf("%s as (%d,%d) is refused, want %s", text, p, s, want)
		}
	})
}

// twos is the shortest big-endian two's complement, as Java's BigInteger prints it.
func twos(v *big.Int) []byte {
	n := v.BitLen()/8 + 1
	if v.Sign() >= 0 {
		return v.FillBytes(make([]byte, n))
	}
	if new(big.Int).Neg(v).BitLen()%8 == 0 && new(big.Int).Add(new(big.Int).Neg(v), big.NewInt(-1)).BitLen() < new(big.Int).Neg(v).BitLen() {
		n--
	}
	n = max(n, 1)
	m := new(big.Int).Lsh(big.NewInt(1), uint(8*n))
	return new(big.Int).Add(m, v).FillBytes(make([]byte, n))
}

func TestDecimalBytes_Rand(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		v, _ := new(big.Int).SetString(rapid.StringMatching(`-?[1-9][0-9]{0,45}`).Draw(t, "v"), 10)
		from := rapid.IntRange(-5, 40).Draw(t, "from")
		p := rapid.IntRange(1, 38).Draw(t, "p")
		s := rapid.IntRange(0, p).Draw(t, "s")
		text := appendUnscaled(nil, twos(v), from)
		r, ok := new(big.Rat).SetString(string(text))
		pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(from, -from))), nil)
		want := new(big.Rat).SetInt(v)
		if from >= 0 {
			want.Quo(want, new(big.Rat).SetInt(pow))
		} else {
			want.Mul(want, new(big.Rat).SetInt(pow))
		}
		if !ok || r.Cmp(want) != 0 {
			t.Fatalf("%s at scale %d prints as %s", v, from, text)
		}
		exp, fitsIt := exact(string(text), p, s)
		got, gotOK := decimalBytes(twos(v), from, p, s)
		if gotOK != fitsIt && (gotOK || v.BitLen() < 120) || gotOK && got.BigInt().Cmp(exp) != 0 {
			t.Fatalf("%s at scale %d as (%d,%d): got %s %v, want %s %v", v, from, p, s, got.BigInt(), gotOK, exp, fitsIt)
		}
	})
	for in, want := range map[string]string{"MDk=": "12345", "z8c=": "-12345", "AIA=": "128", "gA==": "-128", "/w==": "-1", "AA==": "0"} {
		b, _ := base64.StdEncoding.DecodeString(in)
		if got, ok := unscaled(b); !ok || got.BigInt().String() != want {
			t.Errorf("%s is %s, want %s", in, got.BigInt(), want)
		}
	}
	if fitsPrecision(decimal128.New(-1<<63, 0), 38) {
		t.Error("the smallest 128-bit number fits 38 digits")
	}
}

func TestTimes_Rand(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		us := rapid.Int64Range(-62_135_596_800_000_000, 253_402_300_799_999_999).Draw(t, "us") // years 1 to 9999
		at := time.UnixMicro(us).UTC()
		off := rapid.IntRange(-18*60, 18*60).Draw(t, "offset")
		in := at.In(time.FixedZone("", off*60))
		if in.Year() < 1 || in.Year() > 9999 {
			t.Skip("the zone moves the text out of the years 1 to 9999, which the form cannot write")
		}
		text := in.Format("2006-01-02T15:04:05.000000Z07:00")
		if got, ok := timestampText([]byte(text), true, nil); !ok || got != us {
			t.Fatalf("%s: %d %v, want %d", text, got, ok, us)
		}
		plain := at.Format("2006-01-02 15:04:05.000000")
		if got, ok := timestampText([]byte(plain), false, nil); !ok || got != us {
			t.Fatalf("%s: %d %v, want %d", plain, got, ok, us)
		}
		day := at.Format("2006-01-02")
		if got, ok := dateText([]byte(day + "Z")); !ok || int64(got) != floorDiv(at.Unix(), 86400) {
			t.Fatalf("%s: day %d %v", day, got, ok)
		}
		clock := us % (20 * dayMicros)
		back, _, ok := parseClock(appendClock(nil, max(clock, -clock)), 999)
		if !ok || back != max(clock, -clock) {
			t.Fatalf("clock %d: %s", clock, appendClock(nil, clock))
		}
	})
	for _, bad := range []string{
		"", "2024", "2024-13-01", "2023-02-29", "2024-00-10", "24-01-01", "2024-01-01T25:00:00Z", "2024-01-01T10:60:00Z", "2024-01-01T10:00:00.Z", "2024-01-01T10:00:00.1234567890Z",
		"2024-01-01T10:00:00+99:00", "2024-01-01x", "infinity", "-infinity", "2024-01-01T24:00:01Z", "99999999999-01-01", "+294247-01-10T04:00:25.2Z", "-290308-12-21T19:59:27.6Z",
	} {
		if got, ok := timestampText([]byte(bad), true, nil); ok {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
	for text, want := range map[string]int64{
		"2024-02-29T24:00:00Z": 1709251200_000000, "1969-12-31T23:59:59.9999999Z": -1, "+12024-01-01T00:00:00Z": 317273587200_000000, "0000-01-01T00:00:00Z": -62167219200_000000,
		"-0044-03-15T00:00:00Z": -63549360000_000000,
	} {
		if got, ok := timestampText([]byte(text), true, nil); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", text, got, ok, want)
		}
	}
}

func TestTimestampText_Zone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("the machine has no time zone database: %v", err)
	}
	for text, want := range map[string]string{
		"2024-07-01 12:00:00.5": "2024-07-01T10:00:00.5Z", "2024-01-01T12:00:00": "2024-01-01T11:00:00Z", "2024-01-01T12:00:00Z": "2024-01-01T12:00:00Z", "2024-01-01T12:00:00+05:30": "2024-01-01T06:30:00Z",
	} {
		at, _ := time.Parse(time.RFC3339Nano, want)
		if got, ok := timestampText([]byte(text), true, berlin); !ok || got != at.UnixMicro() {
			t.Errorf("%s: %d %v, want %s", text, got, ok, want)
		}
	}
	if got, ok := timestampText([]byte("2024-01-01T12:00:00"), false, berlin); !ok || got != 1704110400_000000 {
		t.Errorf("a zone shifts a timestamp without one: %d", got)
	}
}

func TestMicros_FloorsAndRefusesInfinities(t *testing.T) {
	for _, c := range []struct {
		v    int64
		unit Unit
		want int64
		ok   bool
	}{
		{-1, Nanos, -1, true}, {-1001, Nanos, -2, true}, {1999, Nanos, 1, true}, {-1, Millis, -1000, true},
		{posInfinity, Micros, 0, false}, {negInfinity, Micros, 0, false}, {posInfinity / 1000, Millis, 0, false}, {negInfinity / 1000, Millis, 0, false},
		{1<<63 - 1, Nanos, 0, false}, {-1 << 63, Nanos, 0, false}, {1 << 62, Millis, 0, false}, {253402300799999999, Micros, 253402300799999999, true},
	} {
		got, ok := micros(c.v, c.unit)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("micros(%d, %d) = %d %v, want %d %v", c.v, c.unit, got, ok, c.want, c.ok)
		}
	}
}

// TestShape_Widens: whatever was seen, the type holds every value, and a type
// once given holds all that fits said it holds.
func TestShape_Widens(t *testing.T) {
	value := rapid.SampledFrom([]string{
		"1", "-5", "9223372036854775807", "9223372036854775808", "123456789012345678901234567890123456789012", "1.5", "0.001", "1e3", "true", "false",
		`"x"`, `"NaN"`, "[1]", `["a"]`, "[]", "[[1.5]]", "[null]", `{"a":1}`, "12345678901234567890123456789012345678.5",
	})
	testenv.Check(t, func(t *rapid.T) {
		s := &Shape{Exact: rapid.Bool().Draw(t, "exact")}
		var seen []Token
		for range rapid.IntRange(1, 6).Draw(t, "n") {
			tok, _, err := Value([]byte(value.Draw(t, "v")), 0)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, tok)
			s.Add(tok)
		}
		typ := s.Type()
		n := NewNode(typ, Modes{})
		for _, tok := range seen {
			if !fits(typ, tok) {
				t.Fatalf("%s does not hold %s", typ, tok.Raw)
			}
			if !n.check(tok, &scratch{}) {
				t.Fatalf("the plan of %s does not read %s", typ, tok.Raw)
			}
		}
		again := &Shape{Exact: s.Exact}
		again.assume(typ)
		if got := again.Type(); !schema.Equal(got, typ) && !strings.Contains(fmt.Sprint(typ), "STRING") && !strings.Contains(fmt.Sprint(typ), "DECIMAL") {
			t.Fatalf("a shape of %s gives %s", typ, got)
		}
	})
}
