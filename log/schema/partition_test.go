package schema

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/scalar"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
)

func scalarArray(t testing.TB, s scalar.Scalar) arrow.Array {
	t.Helper()
	a, err := scalar.MakeArrayFromScalar(s, 1, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPartitionValue(t *testing.T) {
	// Each raw text as read, and the text we write for the same value ("" = null).
	for _, c := range []struct {
		typ       Type
		raw, want string
	}{
		{String, "a b/c=%", "a b/c=%"}, {String, "ü😀", "ü😀"}, {String, "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"},
		{Byte, "-128", "-128"}, {Short, "32767", "32767"}, {Integer, "01", "1"}, {Long, "9223372036854775807", "9223372036854775807"},
		{Float, "1.1", "1.1"}, {Double, "1", "1.0"}, {Double, "1e10", "1.0E10"}, {Double, "1.5E-7", "1.5E-7"}, {Double, "-0.0", "0.0"},
		{Double, "NaN", "NaN"}, {Double, "inf", "Infinity"}, {Double, "-Infinity", "-Infinity"}, {Float, "3.4028235E38", "3.4028235E38"},
		{Double, "123456.789", "123456.789"}, {Double, "12345678", "1.2345678E7"}, {Double, "0.001", "0.001"},
		{Decimal{38, 18}, "1.23", "1.230000000000000000"}, {Decimal{5, 2}, "-.5", "-0.50"}, {Decimal{5, 2}, "1.2E2", "120.00"}, {Decimal{3, 0}, "0", "0"},
		{Boolean, "TRUE", "true"}, {Boolean, "false", "false"},
		{Date, "2024-02-29", "2024-02-29"}, {Date, "1969-12-31", "1969-12-31"}, {Date, "0001-01-01", "0001-01-01"},
		{Timestamp, "2024-06-15T19:30:45.000000Z", "2024-06-15T19:30:45.000000Z"}, {Timestamp, "2024-06-15 19:30:45", "2024-06-15T19:30:45.000000Z"},
		{Timestamp, "2024-06-15 19:30:45.123456789", "2024-06-15T19:30:45.123456Z"}, {Timestamp, "2024-06-15T19:30:45+02:00", "2024-06-15T17:30:45.000000Z"},
		{Timestamp, "1969-12-31 23:59:59.999999", "1969-12-31T23:59:59.999999Z"}, {Timestamp, "2024-06-15", "2024-06-15T00:00:00.000000Z"},
		{TimestampNTZ, "2024-06-15 12:30:45", "2024-06-15 12:30:45"}, {TimestampNTZ, "2024-06-15T12:30:45.5", "2024-06-15 12:30:45.500000"},
		{Binary, "text", "text"}, {Binary, `\u0041\u00c3\u00bc`, "Aü"}, {Binary, `\u0041x`, `\u0041x`},
		{String, "", ""}, {Long, "", ""}, {Binary, "", ""},
	} {
		t.Run("R-551 R-553 R-554 W-551 "+c.typ.String()+" "+c.raw, func(t *testing.T) {
			v, err := ParsePartitionValue(c.typ, &c.raw, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, null, err := FormatPartitionValue(scalarArray(t, v), 0)
			if err != nil || got != c.want || null != (c.want == "") {
				t.Errorf("got %q null=%v %v, want %q", got, null, err, c.want)
			}
		})
	}
	t.Run("R-551 nil is null", func(t *testing.T) {
		if v, err := ParsePartitionValue(Date, nil, nil); err != nil || v.IsValid() {
			t.Errorf("got %v %v", v, err)
		}
	})
	t.Run("refused texts", func(t *testing.T) {
		for _, c := range []struct {
			typ Type
			raw string
		}{
			{Integer, "+1"}, {Integer, " 1"}, {Byte, "128"}, {Long, "9223372036854775808"}, {Long, "1.0"}, {Double, "x"}, {Double, "0x1p3"}, {Double, "1_0"},
			{Boolean, "1"}, {Date, "2024-13-01"}, {Date, "2023-02-29"}, {Date, "2024-01-01x"}, {Decimal{3, 1}, "100"}, {Decimal{3, 1}, "1.25"}, {Decimal{3, 1}, "x"},
			{Decimal{3, 1}, "1e999999999"}, {Timestamp, "2024-06-15 25:00:00"}, {Timestamp, "2024-06-15 12:30"}, {TimestampNTZ, "2024-06-15 12:30:45Z"},
			{&Array{Long, true}, "1"}, {Variant, "1"},
		} {
			_, err := ParsePartitionValue(c.typ, &c.raw, nil)
			var pe *PartitionValueError
			if !errors.As(err, &pe) {
				t.Errorf("%v %q: %v", c.typ, c.raw, err)
			}
		}
	})
	t.Run("R-554 zone of the writer", func(t *testing.T) {
		zone := time.FixedZone("x", -8*3600)
		raw := "2024-06-15 19:30:45"
		v, err := ParsePartitionValue(Timestamp, &raw, zone)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := FormatPartitionValue(scalarArray(t, v), 0); got != "2024-06-16T03:30:45.000000Z" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("W-551 W-554 what cannot be written", func(t *testing.T) {
		b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		b.AppendValues([][]byte{{}, {0xff}, {'a', 0}}, nil)
		a := b.NewArray()
		if _, null, err := FormatPartitionValue(a, 0); !null || err != nil {
			t.Errorf("empty: %v %v", null, err)
		}
		for i := 1; i < 3; i++ {
			if _, _, err := FormatPartitionValue(a, i); err == nil {
				t.Errorf("value %d accepted", i)
			}
		}
	})
	t.Run("property: written values read back", testenv.MakeCheck(func(t *rapid.T) {
		var s scalar.Scalar
		var typ Type
		switch rapid.IntRange(0, 6).Draw(t, "type") {
		case 0:
			typ, s = Double, scalar.NewFloat64Scalar(rapid.Float64().Draw(t, "v"))
		case 1:
			typ, s = Float, scalar.NewFloat32Scalar(rapid.Float32().Draw(t, "v"))
		case 2:
			us := arrow.Timestamp(rapid.Int64Range(-62135596800_000000, 253402300799_999999).Draw(t, "v"))
			typ, s = Timestamp, scalar.NewTimestampScalar(us, arrowPrimitives[Timestamp])
		case 3:
			us := arrow.Timestamp(rapid.Int64Range(-62135596800_000000, 253402300799_999999).Draw(t, "v"))
			typ, s = TimestampNTZ, scalar.NewTimestampScalar(us, arrowPrimitives[TimestampNTZ])
		case 4:
			typ, s = Date, scalar.NewDate32Scalar(arrow.Date32(rapid.Int32Range(-719162, 2932896).Draw(t, "v")))
		case 5:
			typ, s = Long, scalar.NewInt64Scalar(rapid.Int64().Draw(t, "v"))
		case 6:
			d := Decimal{18, 7}
			at, _ := ArrowType(d)
			typ, s = d, scalar.NewDecimal128Scalar(decimal128.FromI64(rapid.Int64Range(-1e17, 1e17).Draw(t, "v")), at)
		}
		a, err := scalar.MakeArrayFromScalar(s, 1, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		raw, null, err := FormatPartitionValue(a, 0)
		if err != nil || null {
			t.Fatal(null, err)
		}
		back, err := ParsePartitionValue(typ, &raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		if order, ok := CompareScalars(s, back); !ok || order != 0 {
			t.Fatalf("%v -> %q -> %v", s, raw, back)
		}
	}))
}

func TestCompareScalars(t *testing.T) {
	nan, inf := scalar.NewFloat64Scalar(math.NaN()), scalar.NewFloat64Scalar(math.Inf(1))
	if o, ok := CompareScalars(nan, inf); !ok || o != 1 {
		t.Errorf("NaN against Infinity: %d", o)
	}
	if o, ok := CompareScalars(inf, nan); !ok || o != -1 {
		t.Errorf("Infinity against NaN: %d", o)
	}
	if _, ok := CompareScalars(nan, scalar.NewInt64Scalar(1)); ok {
		t.Error("two types compare")
	}
}

func TestPartitionDir(t *testing.T) {
	p := func(s string) *string { return &s }
	for _, c := range []struct{ val, dir, path string }{
		{"US/East", "p=US%2FEast", "p=US%252FEast"},
		{"Serbia/srb%", "p=Serbia%2Fsrb%25", "p=Serbia%252Fsrb%2525"},
		{"2024-06-15 12:30:45", "p=2024-06-15 12%3A30%3A45", "p=2024-06-15%2012%253A30%253A45"},
		{"a}", "p=a}", "p=a%7D"},
		{"ü<>|", "p=ü<>|", "p=%C3%BC%3C%3E%7C"},
		{"\"#%'*/:=?\\{[]^\x01\x7f", "p=%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E%01%7F", "p=%2522%2523%2525%2527%252A%252F%253A%253D%253F%255C%257B%255B%255D%255E%2501%257F"},
	} {
		t.Run("W-552 W-553 "+c.val, func(t *testing.T) {
			dir, ok := PartitionDir([]string{"p"}, []*string{&c.val})
			if !ok || dir != c.dir {
				t.Errorf("dir %q, want %q", dir, c.dir)
			}
			path := EncodePath(dir)
			if path != c.path {
				t.Errorf("path %q, want %q", path, c.path)
			}
			if back, err := DecodePath(path); err != nil || back != dir {
				t.Errorf("R-201 back %q %v", back, err)
			}
		})
	}
	t.Run("W-552 null and order", func(t *testing.T) {
		dir, ok := PartitionDir([]string{"b", "a"}, []*string{nil, p("1")})
		if !ok || dir != "b=__HIVE_DEFAULT_PARTITION__/a=1" {
			t.Errorf("got %q", dir)
		}
	})
	t.Run("W-554 long values", func(t *testing.T) {
		if _, ok := PartitionDir([]string{"a"}, []*string{p(strings.Repeat("x", 254))}); ok {
			t.Error("256 bytes accepted")
		}
		if _, ok := PartitionDir([]string{"a"}, []*string{p(strings.Repeat("x", 253))}); !ok {
			t.Error("255 bytes refused")
		}
	})
}

func TestDecodePath(t *testing.T) {
	for in, want := range map[string]string{"a+b": "a+b", "a%25b": "a%b", "a%2525": "a%25", "a%20b%3f%23": "a b?#", "ü%C3%BC": "üü", "": ""} {
		if got, err := DecodePath(in); err != nil || got != want {
			t.Errorf("R-201 %q: got %q %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"%", "a%2", "%zz", "100%!"} {
		if _, err := DecodePath(in); err == nil {
			t.Errorf("R-201 %q: accepted", in)
		}
	}
	t.Run("R-201 property", testenv.MakeCheck(func(t *rapid.T) {
		s := rapid.String().Draw(t, "path")
		if got, err := DecodePath(EncodePath(s)); err != nil || got != s {
			t.Fatalf("%q: %q %v", s, got, err)
		}
	}))
}
