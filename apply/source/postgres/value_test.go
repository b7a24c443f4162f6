package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/corpora"
)

// copied decodes one value of a type as a snapshot has it.
func copied(t *testing.T, oid uint32, mod int32, defs []typeDef, text string) (value any, rescued, typ string) {
	t.Helper()
	rel := &relation{oid: 1, schema: "s", name: "t", identity: 'd', columns: []column{{key: true, name: "id", oid: oidInt4, mod: -1}, {name: "v", oid: oid, mod: mod}}}
	catalog, err := json.Marshal(Catalog{Types: defs})
	if err != nil {
		t.Fatal(err)
	}
	line := "1\t" + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`).Replace(text) + "\n"
	batches, all := decode(t, DecoderOptions{}, []*event.Record{{Topic: TopicCatalog, Value: catalog},
		{Topic: TopicCopy, Key: appendRelation(binary.BigEndian.AppendUint64(nil, 5), rel), Value: []byte(line), End: 1}}, 0)
	if len(all.Poison) > 0 || len(batches) != 1 {
		t.Fatalf("%s: %d batches, %+v", text, len(batches), all.Poison)
	}
	if batches[0].Rescued != nil {
		rescued = batches[0].Rescued[0]
		if !json.Valid([]byte(rescued)) {
			t.Errorf("%s: rescued as %s, which is no JSON", text, rescued)
		}
	}
	return corpora.Value(batches[0].Rows.Column(1), 0), rescued, batches[0].Columns.Fields[1].Type.String()
}

// TestDecoder_F11Types: the table of docs/postgres.md, value by value.
func TestDecoder_F11Types(t *testing.T) {
	defs := []typeDef{
		{OID: 90001, Name: "posint", Kind: "d", Base: oidInt4, Mod: -1}, {OID: 90002, Name: "mood", Kind: "e"}, {OID: 90003, Name: "_mood", Kind: "b", Elem: 90002},
		{OID: 90004, Name: "hstore", Kind: "b"}, {OID: 90005, Name: "money2", Kind: "d", Base: oidNumeric, Mod: 10<<16 + 2 + 4}, {OID: 90006, Name: "pair", Kind: "c"},
		{OID: 90007, Name: "ints", Kind: "d", Base: 1007, Mod: -1}, {OID: 90008, Name: "_ints", Kind: "b", Elem: 90007}, {OID: 90009, Name: "a", Kind: "d", Base: 90009},
	}
	for _, c := range []struct {
		oid     uint32
		mod     int32
		text    string
		typ     string
		want    string
		rescued bool
	}{
		{oidBool, -1, "t", "BOOLEAN", "true", false},
		{oidInt8, -1, "-9223372036854775808", "BIGINT", "-9223372036854775808", false},
		{oidOID, -1, "4294967295", "BIGINT", "4294967295", false},
		{oidInt2, -1, "-32768", "SMALLINT", "-32768", false},
		{oidFloat4, -1, "NaN", "FLOAT", "NaN", false},
		{oidFloat8, -1, "-Infinity", "DOUBLE", "-Inf", false},
		{oidFloat8, -1, "1e+20", "DOUBLE", "1e+20", false},
		{oidNumeric, 18<<16 + 4 + 4, "-0.0001", "DECIMAL(18,4)", "-0.0001", false},
		{oidNumeric, 18<<16 + 4 + 4, "NaN", "DECIMAL(18,4)", "<nil>", true},
		{oidNumeric, 5<<16 + (2046 & 0x7ff) + 4, "12300", "DECIMAL(7,0)", "12300", false},
		{oidNumeric, -1, "1.50", "STRING", "1.50", false},
		{oidNumeric, 50<<16 + 4, "1", "STRING", "1", false},
		{oidBytea, -1, `\x00ff`, "BINARY", "[0 255]", false},
		{oidDate, -1, "1969-12-31", "DATE", "-1", false},
		{oidDate, -1, "0001-01-01 BC", "DATE", "-719528", false},
		{oidDate, -1, "0044-03-15 BC", "DATE", "-735160", false},
		{oidDate, -1, "infinity", "DATE", "<nil>", true},
		{oidTimestamp, -1, "1969-12-31 23:59:59.999999", "TIMESTAMP_NTZ", "-1", false},
		{oidTimestamptz, -1, "1970-01-01 01:00:00+01", "TIMESTAMP", "0", false},
		{oidTimestamptz, -1, "-infinity", "TIMESTAMP", "<nil>", true},
		{oidTime, -1, "24:00:00", "STRING", "24:00:00.000000", false},
		{1266, -1, "23:59:59.999999-12", "STRING", "23:59:59.999999-12", false},
		{1186, -1, "P1Y2M-3DT4H5M6.789S", "STRING", "P1Y2M-3DT4H5M6.789S", false},
		{oidBit, 1, "1", "BOOLEAN", "true", false},
		{oidBit, 11, "10000000001", "STRING", "10000000001", false},
		{1562, 70, "", "STRING", "", false},
		{790, -1, "-$1,000.01", "STRING", "-$1,000.01", false},
		{1042, 9, "ab   ", "STRING", "ab   ", false},
		{25, -1, "tab\tnew\nback\\slash\"", "STRING", "tab\tnew\nback\\slash\"", false},
		{2950, -1, "ffffffff-ffff-ffff-ffff-ffffffffffff", "STRING", "ffffffff-ffff-ffff-ffff-ffffffffffff", false},
		{1007, -1, "{1,NULL,-2147483648}", "ARRAY<INT>", "[1 <nil> -2147483648]", false},
		{1007, -1, "[0:1]={1,2}", "ARRAY<INT>", "[1 2]", false},
		{1007, -1, "{{1,2},{3,4}}", "ARRAY<INT>", "<nil>", true},
		{1007, -1, "{}", "ARRAY<INT>", "[]", false},
		{1009, -1, `{NULL,"NULL","","a,b","q\"x","{}"}`, "ARRAY<STRING>", `[<nil> NULL  a,b q"x {}]`, false},
		{1231, 10<<16 + 2 + 4, "{1.10,NULL,-99999999.99}", "ARRAY<DECIMAL(10,2)>", "[1.10 <nil> -99999999.99]", false},
		{1182, -1, `{2024-02-29,"0001-01-01 BC"}`, "ARRAY<DATE>", "[19782 -719528]", false},
		{1022, -1, "{0.1,NaN,-Infinity,NULL}", "ARRAY<DOUBLE>", "[0.1 NaN -Inf <nil>]", false},
		{1000, -1, "{t,f,NULL}", "ARRAY<BOOLEAN>", "[true false <nil>]", false},
		{90001, -1, "7", "INT", "7", false},
		{90002, -1, "quote'd", "STRING", "quote'd", false},
		{90003, -1, `{ok,"with space"}`, "ARRAY<STRING>", "[ok with space]", false},
		{90004, -1, `"a"=>"1", "b\"c"=>NULL`, "STRING", `{"a":"1","b\"c":null}`, false},
		{90005, -1, "12.50", "DECIMAL(10,2)", "12.50", false},
		{90006, -1, `(1,"a b")`, "STRING", `(1,"a b")`, false},
		{90008, -1, `{"{1,2}"}`, "STRING", `{"{1,2}"}`, false},
		{90009, -1, "round", "STRING", "round", false},
		{99999, -1, "unheard of", "STRING", "unheard of", false},
	} {
		value, rescued, typ := copied(t, c.oid, c.mod, defs, c.text)
		if got := fmt.Sprint(value); got != c.want || typ != c.typ || (rescued != "") != c.rescued {
			t.Errorf("%d %s: %s %s (rescued %s), want %s %s", c.oid, c.text, typ, got, rescued, c.typ, c.want)
		}
	}
}

func FuzzArray(f *testing.F) {
	for _, s := range []string{"{}", "{1,NULL}", `{"a\"b",{x}}`, "[2:3]={1,2}", "{,}", "{1", `{"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out, err := appendArray(nil, &plan{form: asText}, []byte(text))
		if err == nil && !json.Valid(out) {
			t.Errorf("%q became %q", text, out)
		}
		if out, err = appendHstore(nil, []byte(text)); err == nil && !json.Valid(out) {
			t.Errorf("%q became %q", text, out)
		}
	})
}
