package schema

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseJSON(t *testing.T) {
	one := func(typ string) string {
		return `{"type":"struct","fields":[{"name":"c","type":` + typ + `,"nullable":true,"metadata":{}}]}`
	}
	t.Run("R-401 every form", func(t *testing.T) {
		for text, want := range map[string]Type{
			`"string"`: String, `"long"`: Long, `"integer"`: Integer, `"short"`: Short, `"byte"`: Byte,
			`"float"`: Float, `"double"`: Double, `"boolean"`: Boolean, `"binary"`: Binary, `"date"`: Date,
			`"timestamp"`: Timestamp, `"timestamp_ntz"`: TimestampNTZ, `"void"`: Void, `"null"`: Void, `"variant"`: Variant,
			`"decimal"`: Decimal{10, 0}, `"decimal(38,18)"`: Decimal{38, 18}, `"decimal( 10 , 2 )"`: Decimal{10, 2},
			`{"type":"array","elementType":"integer","containsNull":false}`:                         &Array{Integer, false},
			`{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true}`:         &Map{String, Long, true},
			`{"type":"struct","fields":[{"name":"x","type":"long","nullable":false}]}`:              &Struct{[]Field{{Name: "x", Type: Long}}},
			`{"type":"struct","fields":[]}`:                                                         &Struct{},
			`{"type":"array","elementType":{"type":"array","elementType":"void"}}`:                  &Array{&Array{Void, true}, true},
			`{"fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}],"type":"struct"}`: &Struct{[]Field{{Name: "x", Type: Long, Nullable: true}}},
		} {
			s, err := ParseJSON([]byte(one(text)))
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if got := s.Fields[0].Type; !Equal(got, want) {
				t.Errorf("%s: got %v, want %v", text, got, want)
			}
		}
	})
	t.Run("R-402 unknown types are kept verbatim", func(t *testing.T) {
		for _, text := range []string{`"interval day to second"`, `"geometry(OGC:CRS84)"`, `"timestamp_nanos"`, `{"type":"udt","class":"x","sqlType":"string"}`} {
			s, err := ParseJSON([]byte(one(text)))
			if err != nil {
				t.Fatal(err)
			}
			if got := s.JSON(); got != one(text) {
				t.Errorf("got %s, want %s", got, one(text))
			}
			if _, err := ArrowSchema(s); err == nil {
				t.Errorf("%s: has an Arrow form", text)
			}
			var rule *RuleError
			if err := CheckWritable(s); !errors.As(err, &rule) {
				t.Errorf("%s: writable: %v", text, err)
			}
		}
	})
	t.Run("R-403 metadata round-trips verbatim", func(t *testing.T) {
		text := `{"type":"struct","fields":[{"name":"a<b>&\"","type":"long","nullable":false,"metadata":{"z":5,"a":5.0,"big":9007199254740993,"s":"x<y","o":{"k":[1,null,true]},"n":null}}]}`
		s, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.JSON(); got != text {
			t.Errorf("got  %s\nwant %s", got, text)
		}
	})
	t.Run("R-408 decimals", func(t *testing.T) {
		for _, text := range []string{`"decimal(0,0)"`, `"decimal(39,0)"`, `"decimal(5,6)"`, `"decimal(5,-1)"`} {
			if _, err := ParseJSON([]byte(one(text))); err == nil {
				t.Errorf("%s: accepted", text)
			}
		}
	})
	t.Run("broken text is a FormatError", func(t *testing.T) {
		for _, text := range []string{
			``, `{`, `[]`, `"long"`, `5`, `null`, `{"fields":[]}`, one(`5`), one(`null`), one(`{"type":"array"}`),
			one(`{"type":"map","keyType":"string"}`), `{"type":"struct","fields":[{"type":"long"}]}`,
			`{"type":"struct","fields":[{"name":"a","type":"long","metadata":[]}]}`,
			strings.Repeat(`{"type":"array","elementType":`, 3000) + `"long"` + strings.Repeat("}", 3000),
			one(strings.Repeat(`{"type":"array","elementType":`, 3000) + `"long"` + strings.Repeat("}", 3000)),
		} {
			_, err := ParseJSON([]byte(text))
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Errorf("%.60s: got %v", text, err)
			}
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{"k":1}}]}`))
	f.Add([]byte(`{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"string","valueType":{"type":"array","elementType":"decimal(3,1)"}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseJSON(data)
		if err != nil {
			return
		}
		text := s.JSON()
		if !json.Valid([]byte(text)) {
			t.Fatalf("not JSON: %s", text)
		}
		again, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !Equal(s, again) || again.JSON() != text {
			t.Fatalf("%s: does not round-trip", text)
		}
		_ = CheckNames(s, false)
		_, _ = AssignMapping(s, 0, nil)
		if _, err := ParseDDL(ddlOf(s)); err != nil && CheckNames(s, true) == nil && CheckWritable(s) == nil && !hasVariantOrEmpty(s) {
			t.Fatalf("%s: %v", ddlOf(s), err)
		}
	})
}

// ddlOf is the column list of s.
func ddlOf(s *Struct) string {
	text := s.String()
	return text[len("STRUCT<") : len(text)-1]
}

func hasVariantOrEmpty(s *Struct) bool {
	return strings.Contains(s.String(), "VARIANT") || len(s.Fields) == 0
}

func TestParseDDL(t *testing.T) {
	t.Run("every form", func(t *testing.T) {
		s, err := ParseDDL("id BIGINT NOT NULL, name STRING COMMENT 'it''s', s STRUCT<a: INT, `b c` string not null>,\n m map<string,array<int>>, d DECIMAL(10, 2), e decimal, v VARCHAR(5) NOT NULL COMMENT \"q\", t timestamp_ntz")
		if err != nil {
			t.Fatal(err)
		}
		want := &Struct{[]Field{
			{Name: "id", Type: Long},
			{Name: "name", Type: String, Nullable: true, Metadata: Metadata{{"comment", json.RawMessage(`"it's"`)}}},
			{Name: "s", Type: &Struct{[]Field{{Name: "a", Type: Integer, Nullable: true}, {Name: "b c", Type: String}}}, Nullable: true},
			{Name: "m", Type: &Map{String, &Array{Integer, true}, true}, Nullable: true},
			{Name: "d", Type: Decimal{10, 2}, Nullable: true},
			{Name: "e", Type: Decimal{10, 0}, Nullable: true},
			{Name: "v", Type: String, Metadata: Metadata{{CharVarcharKey, json.RawMessage(`"varchar(5)"`)}, {"comment", json.RawMessage(`"q"`)}}},
			{Name: "t", Type: TimestampNTZ, Nullable: true},
		}}
		if !reflect.DeepEqual(s, want) {
			t.Errorf("got  %s\nwant %s", s.JSON(), want.JSON())
		}
	})
	t.Run("the type form reads back", func(t *testing.T) {
		s, err := ParseDDL("a STRUCT<`x y`: ARRAY<MAP<STRING, DECIMAL(38,3)>>, ```q`: DATE NOT NULL>, b BINARY")
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseType(s.String())
		if err != nil || !Equal(s, again) {
			t.Errorf("got %v %v, want %v", again, err, s)
		}
	})
	t.Run("errors name the position", func(t *testing.T) {
		for text, at := range map[string]int{
			"id": 2, "id BIGIN": 3, "id BIGINT,": 10, "id BIGINT x": 10, "id BIGINT NOT": 13, "a DECIMAL(39,0)": 2,
			"a ARRAY<INT": 11, "a ARRAY INT": 8, "a MAP<INT>": 9, "`a INT": 1, "a STRING COMMENT x": 17,
			"a STRING COMMENT 'x": 19, "a VARCHAR": 2, "a ARRAY<CHAR(3)>": 8, "a STRUCT<b INT": 14, "`` INT": 2, "a-b INT": 1,
			"a " + strings.Repeat("ARRAY<", 500) + "INT": 1208,
		} {
			_, err := ParseDDL(text)
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Errorf("%.40s: got %v", text, err)
			} else if se.Offset != at {
				t.Errorf("%.40s: offset %d, want %d (%v)", text, se.Offset, at, err)
			}
		}
	})
}

func FuzzParseDDL(f *testing.F) {
	f.Add("id BIGINT NOT NULL, name STRING COMMENT 'x', s STRUCT<a: INT>, m MAP<STRING,INT>, d DECIMAL(10,2)")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseDDL(text)
		if err != nil {
			return
		}
		if _, err := ParseJSON([]byte(s.JSON())); err != nil {
			t.Fatal(err)
		}
	})
}
