package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

func mustDDL(t *testing.T, text string) *Struct {
	t.Helper()
	s, err := ParseDDL(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var rule *RuleError
	switch {
	case code == "" && err != nil:
		t.Errorf("got %v, want none", err)
	case code != "" && (!errors.As(err, &rule) || rule.Code() != code):
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestCheckNames(t *testing.T) {
	const chars, dup = "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", "DELTA_DUPLICATE_COLUMNS_FOUND"
	for _, c := range []struct{ name, ddl, plain, mapped string }{
		{"plain", "a INT, `b.c` INT, `ü` INT, `d-e` INT", "", ""},
		{"duplicate ignoring case", "a INT, A INT", dup, dup},
		{"nested duplicate", "a ARRAY<STRUCT<b: INT, B: INT>>", dup, dup},
		{"same name at two levels", "a STRUCT<a: INT>", "", ""},
		{"nested space in a map", "a MAP<STRING, STRUCT<`b c`: INT>>", chars, ""},
	} {
		t.Run("W-401 "+c.name, func(t *testing.T) {
			wantCode(t, CheckNames(mustDDL(t, c.ddl), false), c.plain)
			wantCode(t, CheckNames(mustDDL(t, c.ddl), true), c.mapped)
		})
	}
	t.Run("W-401 each forbidden character", func(t *testing.T) {
		for _, ch := range " ,;{}()=\t\n" {
			s := &Struct{[]Field{{Name: "a" + string(ch), Type: Long}}}
			wantCode(t, CheckNames(s, false), chars)
			wantCode(t, CheckNames(s, true), "")
		}
	})
}

func TestCheckNewTable(t *testing.T) {
	const part = "DELTA_INVALID_PARTITION_COLUMN"
	for _, c := range []struct {
		name, ddl, parts, want string
	}{
		{"W-406 fine", "a INT, p DATE", "P", ""},
		{"W-406 unknown", "a INT", "p", part},
		{"W-406 twice", "a INT, p INT, q INT", "p,P", part},
		{"W-406 all columns", "p INT", "p", "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"},
		{"W-406 struct", "a INT, p STRUCT<x: INT>", "p", part},
		{"W-406 array", "a INT, p ARRAY<INT>", "p", part},
		{"W-406 void", "a INT, p VOID", "p", part},
		{"W-406 variant", "a INT, p VARIANT", "p", part},
		{"W-403 not null in a struct", "a STRUCT<x: INT NOT NULL>", "", ""},
		{"W-403 not null in an array", "a ARRAY<STRUCT<x: INT NOT NULL>>", "", "DELTA_NESTED_NOT_NULL_CONSTRAINT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var parts []string
			if c.parts != "" {
				parts = strings.Split(c.parts, ",")
			}
			wantCode(t, CheckNewTable(mustDDL(t, c.ddl), parts), c.want)
		})
	}
	t.Run("W-403 containsNull false", func(t *testing.T) {
		wantCode(t, CheckNewTable(&Struct{[]Field{{Name: "a", Type: &Array{Long, false}}}}, nil), "DELTA_NESTED_NOT_NULL_CONSTRAINT")
	})
	for ddl, want := range map[string]string{
		"a INT, v VOID": "", "v VOID": "DELTA_NULL_SCHEMA_IN_TABLE", "a INT, s STRUCT<v: VOID>": "DELTA_NULL_SCHEMA_IN_TABLE",
		"a ARRAY<VOID>": "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE", "a MAP<INT, VOID>": "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
		"a STRUCT<v: VOID, x: INT>": "",
	} {
		t.Run("W-404 "+ddl, func(t *testing.T) { wantCode(t, CheckWritable(mustDDL(t, ddl)), want) })
	}
}

func TestAssignMapping(t *testing.T) {
	s := mustDDL(t, "a INT, s STRUCT<b: INT, l ARRAY<STRUCT<c: INT>>>, m MAP<STRUCT<k: INT>, STRUCT<v: INT>>")
	t.Run("W-503 an existing table keeps its names", func(t *testing.T) {
		m, maxID := AssignMapping(s, 0, nil)
		if maxID != 8 {
			t.Errorf("max id %d, want 8", maxID)
		}
		if err := CheckMapping(m, maxID); err != nil {
			t.Error(err)
		}
		if got := PhysicalStruct(m, ModeName); !Equal(got, s) {
			t.Errorf("physical %v", got)
		}
		if id, _ := FieldID(m.Fields[1].Type.(*Struct).Fields[1]); id != 4 {
			t.Errorf("id of s.l: %d, want 4 (depth first)", id)
		}
		again, maxAgain := AssignMapping(m, maxID, nil)
		if again.JSON() != m.JSON() || maxAgain != maxID {
			t.Error("a mapped schema changes")
		}
	})
	t.Run("W-503 new columns get new names and ids above the largest", func(t *testing.T) {
		m, maxID := AssignMapping(s, 0, nil)
		m = &Struct{append(append([]Field{}, m.Fields...), Field{Name: "new", Type: Long, Nullable: true})}
		m, maxID = AssignMapping(m, maxID+5, func() string { return "col-1" })
		f := m.Fields[3]
		if id, _ := FieldID(f); id != 14 || maxID != 14 || PhysicalName(f) != "col-1" {
			t.Errorf("id %d, max %d, name %s", id, maxID, PhysicalName(f))
		}
	})
	t.Run("R-502 physical names at every level", func(t *testing.T) {
		n := 0
		m, _ := AssignMapping(s, 0, func() string { n++; return "c" + string(rune('a'+n-1)) })
		want := mustDDL(t, "ca INT, cb STRUCT<cc: INT, cd ARRAY<STRUCT<ce: INT>>>, cf MAP<STRUCT<cg: INT>, STRUCT<ch: INT>>")
		if got := PhysicalStruct(m, ModeID); !Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	t.Run("R-503 leftover names count in mode none, without ids", func(t *testing.T) {
		m, _ := AssignMapping(mustDDL(t, "a INT"), 0, func() string { return "col-1" })
		got := PhysicalStruct(m, ModeNone)
		if got.Fields[0].Name != "col-1" || len(got.Fields[0].Metadata) != 0 {
			t.Errorf("got %s", got.JSON())
		}
	})
	t.Run("W-502 broken mappings", func(t *testing.T) {
		m, _ := AssignMapping(mustDDL(t, "a INT, b INT"), 0, nil)
		wantCode(t, CheckMapping(m, 1), "DELTA_COLUMN_MAPPING_SET_COLUMN_ID_NOT_SET")
		wantCode(t, CheckMapping(mustDDL(t, "a INT"), 1), "DELTA_MISSING_COLUMN_MAPPING_ID")
		m.Fields[1].Metadata = m.Fields[1].Metadata.With(MappingIDKey, 1)
		wantCode(t, CheckMapping(m, 2), "DELTA_DUPLICATED_COLUMN_MAPPING_ID")
		m.Fields[1].Metadata = m.Fields[1].Metadata.With(MappingIDKey, 2).With(MappingNameKey, "a")
		wantCode(t, CheckMapping(m, 2), "DELTA_DUPLICATED_PHYSICAL_NAME")
	})
}

func TestStruct_Index(t *testing.T) {
	s := mustDDL(t, "a INT, B INT, c INT, C INT")
	for name, want := range map[string]int{"a": 0, "A": 0, "b": 1, "c": 2, "C": 3, "d": -1} {
		if got := s.Index(name); got != want {
			t.Errorf("R-406 Index(%s) = %d, want %d", name, got, want)
		}
	}
	two := mustDDL(t, "xa INT, XA INT")
	if got := two.Index("Xa"); got != -1 {
		t.Errorf("R-406 ambiguous name: %d", got)
	}
}

func TestFromArrow(t *testing.T) {
	t.Run("R-401 inverse of ArrowSchema", func(t *testing.T) {
		s := mustDDL(t, "a STRING, b BIGINT NOT NULL, c INT, d SMALLINT, e TINYINT, f FLOAT, g DOUBLE, h BOOLEAN, i BINARY, j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m DECIMAL(38,18), n STRUCT<x: INT NOT NULL, y: ARRAY<STRING>>, o MAP<STRING, INT>, p VOID")
		as, err := ArrowSchema(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromArrow(as)
		if err != nil || !Equal(got, s) {
			t.Errorf("got %v %v", got, err)
		}
	})
	t.Run("other encodings of the same values", func(t *testing.T) {
		got, err := FromArrow(arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.LargeString}, Nullable: true},
			{Name: "b", Type: &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "Europe/Vienna"}, Nullable: true},
			{Name: "c", Type: arrow.LargeListOf(arrow.PrimitiveTypes.Int16), Nullable: true},
			{Name: "d", Type: &arrow.FixedSizeBinaryType{ByteWidth: 3}, Nullable: true},
		}, nil))
		if want := mustDDL(t, "a STRING, b TIMESTAMP, c ARRAY<SMALLINT>, d BINARY"); err != nil || !Equal(got, want) {
			t.Errorf("got %v %v", got, err)
		}
	})
	t.Run("no Delta type", func(t *testing.T) {
		for _, typ := range []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Float16, arrow.FixedWidthTypes.MonthInterval, &arrow.Decimal256Type{Precision: 40}} {
			_, err := FromArrow(arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.ListOf(typ)}}, nil))
			var fe *FormatError
			if !errors.As(err, &fe) || fe.Path != "x.element" {
				t.Errorf("%v: %v", typ, err)
			}
		}
	})
}
