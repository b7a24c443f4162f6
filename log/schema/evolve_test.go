package schema_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

func ddl(t testing.TB, text string) *schema.Struct {
	t.Helper()
	s, err := schema.ParseDDL(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCanWiden(t *testing.T) {
	t.Run("R-831 the pairs of the protocol", func(t *testing.T) {
		all := []string{"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING", "BINARY", "BOOLEAN",
			"DECIMAL(9,0)", "DECIMAL(10,0)", "DECIMAL(10,2)", "DECIMAL(12,2)", "DECIMAL(12,4)", "DECIMAL(11,4)", "DECIMAL(20,0)", "DECIMAL(22,2)", "DECIMAL(21,2)"}
		want := map[string]string{
			"TINYINT":       "SMALLINT INT BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2) DECIMAL(21,2)",
			"SMALLINT":      "INT BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2) DECIMAL(21,2)",
			"INT":           "BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2) DECIMAL(21,2)",
			"BIGINT":        "DECIMAL(20,0) DECIMAL(22,2)",
			"FLOAT":         "DOUBLE",
			"DATE":          "TIMESTAMP_NTZ",
			"DECIMAL(9,0)":  "DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2) DECIMAL(21,2)",
			"DECIMAL(10,0)": "DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2) DECIMAL(21,2)",
			"DECIMAL(10,2)": "DECIMAL(12,2) DECIMAL(12,4) DECIMAL(22,2) DECIMAL(21,2)",
			"DECIMAL(12,2)": "DECIMAL(22,2) DECIMAL(21,2)",
			"DECIMAL(20,0)": "DECIMAL(22,2)",
			"DECIMAL(21,2)": "DECIMAL(22,2)",
			"DECIMAL(11,4)": "DECIMAL(12,4)",
		}
		for _, from := range all {
			for _, to := range all {
				a, b := typ(t, from), typ(t, to)
				ok := strings.Contains(" "+want[from]+" ", " "+to+" ")
				if got := schema.CanWiden(a, b); got != ok {
					t.Errorf("%s to %s: %t", from, to, got)
				}
				auto := ok && (!strings.HasSuffix(from, "INT") || strings.HasSuffix(to, "INT"))
				if got := schema.CanEvolve(a, b); got != auto {
					t.Errorf("by itself %s to %s: %t", from, to, got)
				}
			}
		}
	})
	t.Run("R-831 an unlisted pair is refused", func(t *testing.T) {
		for _, c := range []struct{ meta, want string }{
			{`[{"toType":"long","fromType":"integer"}]`, ""},
			{`[{"toType":"integer","fromType":"short","tableVersion":3},{"toType":"long","fromType":"integer","fieldPath":"element.key"}]`, ""},
			{`[{"toType":"string","fromType":"integer"}]`, "INT to STRING"},
			{`[{"toType":"integer","fromType":"long"}]`, "BIGINT to INT"},
			{`[{"toType":"quark","fromType":"integer"}]`, "INT to quark"},
			{`{}`, "typeChanges"},
		} {
			s, err := schema.ParseJSON([]byte(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{"delta.typeChanges":` + c.meta + `}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			err = schema.CheckTypeChanges(s)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.meta, err)
			}
		}
	})
}

func typ(t testing.TB, text string) schema.Type {
	t.Helper()
	x, err := schema.ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestMerge(t *testing.T) {
	for _, c := range []struct {
		name, table, in, want string
		widen                 bool
		err                   string
	}{
		{"W-407 a column more", "id BIGINT NOT NULL", "ID BIGINT, x STRING NOT NULL", "id BIGINT NOT NULL, x STRING", false, ""},
		{"W-407 nothing new", "id BIGINT NOT NULL, n STRING", "n STRING, id BIGINT", "id BIGINT NOT NULL, n STRING", false, ""},
		{"W-407 fields inside struct, array and map", "s STRUCT<a: INT NOT NULL>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>",
			"m MAP<STRING, STRUCT<b: ARRAY<INT>>>, l ARRAY<STRUCT<b: INT, a: INT>>, s STRUCT<c: STRUCT<d: DATE>>",
			"s STRUCT<a: INT NOT NULL, c: STRUCT<d: DATE>>, l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: INT, b: ARRAY<INT>>>", false, ""},
		{"W-404 void gets a type", "id INT, v VOID", "v STRING", "id INT, v STRING", false, ""},
		{"W-404 void adds nothing", "id INT, v STRING", "v VOID", "id INT, v STRING", false, ""},
		{"narrower rows", "id BIGINT, d DECIMAL(10,2)", "id INT, d DECIMAL(5,1)", "id BIGINT, d DECIMAL(10,2)", false, ""},
		{"W-831 wider needs the feature", "s STRUCT<id: INT>", "s STRUCT<id: BIGINT>", "", false, "s.id: the table has INT, the rows have BIGINT: a wider type needs type widening"},
		{"W-831 wider", "id INT, s STRUCT<f: FLOAT>, l ARRAY<SMALLINT>, d DATE", "id BIGINT, s STRUCT<f: DOUBLE>, l ARRAY<INT>, d TIMESTAMP_NTZ",
			"id BIGINT, s STRUCT<f: DOUBLE>, l ARRAY<INT>, d TIMESTAMP_NTZ", true, ""},
		{"W-831 an int does not become a double by itself", "id INT", "id DOUBLE", "", true, "not made by itself"},
		{"kinds differ", "id INT", "id STRUCT<a: INT>", "", false, "different kinds"},
		{"kinds differ the other way", "id ARRAY<INT>", "id INT", "", false, "different kinds"},
		{"values decide", "id INT", "id STRING", "id INT", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o schema.MergeOptions
			if c.widen {
				o.Widen = schema.CanEvolve
			}
			got, err := schema.Merge(ddl(t, c.table), ddl(t, c.in), o)
			if c.err != "" {
				var r *schema.RuleError
				if !errors.As(err, &r) || !strings.Contains(err.Error(), c.err) || r.Code() != "DELTA_FAILED_TO_MERGE_FIELDS" {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || !schema.Equal(got, ddl(t, c.want)) {
				t.Errorf("got %v, %v", got, err)
			}
			if err := schema.CheckTypeChanges(got); err != nil {
				t.Error(err)
			}
			if c.widen != schema.HasTypeChanges(got) {
				t.Errorf("W-831 history: %s", got.JSON())
			}
		})
	}
	t.Run("W-831 history is appended", func(t *testing.T) {
		s := ddl(t, "m MAP<SMALLINT, ARRAY<FLOAT>>, c TINYINT")
		for _, in := range []string{"m MAP<INT, ARRAY<FLOAT>>, c SMALLINT", "m MAP<INT, ARRAY<DOUBLE>>, c BIGINT"} {
			var err error
			if s, err = schema.Merge(s, ddl(t, in), schema.MergeOptions{Widen: schema.CanWiden}); err != nil {
				t.Fatal(err)
			}
		}
		const want = `{"type":"struct","fields":[{"name":"m","type":{"type":"map","keyType":"integer","valueType":{"type":"array","elementType":"double","containsNull":true},"valueContainsNull":true},"nullable":true,"metadata":{"delta.typeChanges":[{"toType":"integer","fromType":"short","fieldPath":"key"},{"toType":"double","fromType":"float","fieldPath":"value.element"}]}},` +
			`{"name":"c","type":"long","nullable":true,"metadata":{"delta.typeChanges":[{"toType":"short","fromType":"byte"},{"toType":"long","fromType":"short"}]}}]}`
		if got := s.JSON(); got != want {
			t.Errorf("got %s", got)
		}
		if schema.HasTypeChanges(schema.WithoutTypeChanges(s)) {
			t.Error("history is left")
		}
	})
	t.Run("B21 metadata stays", func(t *testing.T) {
		s := ddl(t, "id BIGINT COMMENT 'key'")
		s.Fields[0].Metadata = s.Fields[0].Metadata.With("custom", 5)
		in := ddl(t, "id BIGINT COMMENT 'other', x INT COMMENT 'new'")
		in.Fields[1].Metadata = in.Fields[1].Metadata.With(schema.MappingIDKey, 77).With("delta.generationExpression", "id + 1")
		got, err := schema.Merge(s, in, schema.MergeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"comment":"key","custom":5}},{"name":"x","type":"integer","nullable":true,"metadata":{"comment":"new"}}]}`
		if got.JSON() != want {
			t.Errorf("got %s", got.JSON())
		}
	})
}

// TestMerge_Rand: merging is idempotent, keeps the table's fields as a prefix and
// takes in every incoming name.
func TestMerge_Rand(t *testing.T) {
	var gen func(depth int) *rapid.Generator[schema.Type]
	structs := func(depth int) *rapid.Generator[*schema.Struct] {
		return rapid.Custom(func(t *rapid.T) *schema.Struct {
			s := &schema.Struct{}
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 3, rapid.ID[string]).Draw(t, "names") {
				s.Fields = append(s.Fields, schema.Field{Name: n, Type: gen(depth+1).Draw(t, "type"), Nullable: rapid.Bool().Draw(t, "null")})
			}
			return s
		})
	}
	gen = func(depth int) *rapid.Generator[schema.Type] {
		return rapid.Custom(func(t *rapid.T) schema.Type {
			k := rapid.IntRange(0, 6).Draw(t, "kind")
			switch {
			case depth < 3 && k == 0:
				return structs(depth).Draw(t, "struct")
			case depth < 3 && k == 1:
				return &schema.Array{Elem: gen(depth+1).Draw(t, "elem"), ContainsNull: true}
			case depth < 3 && k == 2:
				return &schema.Map{Key: schema.String, Value: gen(depth+1).Draw(t, "value"), ValueContainsNull: true}
			}
			return rapid.SampledFrom([]schema.Type{schema.Short, schema.Integer, schema.Long, schema.Float, schema.Double, schema.String, schema.Void}).Draw(t, "leaf")
		})
	}
	testenv.Check(t, func(t *rapid.T) {
		a, b := structs(0).Draw(t, "table"), structs(0).Draw(t, "rows")
		o := schema.MergeOptions{Widen: schema.CanEvolve}
		m, err := schema.Merge(a, b, o)
		if err != nil {
			var r *schema.RuleError
			if !errors.As(err, &r) {
				t.Fatalf("error %T", err)
			}
			return
		}
		again, err := schema.Merge(m, b, o)
		if err != nil || again != m {
			t.Fatalf("not idempotent: %v + %v = %v, then %v (%v)", a, b, m, again, err)
		}
		for i, f := range a.Fields {
			if m.Fields[i].Name != f.Name || m.Fields[i].Nullable != f.Nullable {
				t.Fatalf("column %d moved: %v + %v = %v", i, a, b, m)
			}
		}
		for _, f := range b.Fields {
			if m.Index(f.Name) < 0 {
				t.Fatalf("%s is missing: %v + %v = %v", f.Name, a, b, m)
			}
		}
		if err := schema.CheckTypeChanges(m); err != nil {
			t.Fatal(err)
		}
	})
}
