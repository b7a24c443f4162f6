package wire

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// Members of an object are the fields of a struct whatever their case, at every depth; an
// object with two members for one field has no place in it (auto-cdc 1.2 rule 6).
func TestNode_NamesIgnoreCase(t *testing.T) {
	s, err := schema.ParseDDL("v STRUCT<City: STRING, list: ARRAY<STRUCT<X: BIGINT>>, m: MAP<STRING, STRUCT<Y: BIGINT>>>")
	if err != nil {
		t.Fatal(err)
	}
	at, err := schema.ArrowType(s.Fields[0].Type)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"v":{"city":"Rome","LIST":[{"x":1}],"m":{"k":{"y":2}}}}`: `{"City":"Rome","list":[{"X":1}],"m":[{"key":"k","value":{"Y":2}}]}`,
		`{"v":{"c\u0069ty":"Rome","more":1}}`:                      `{"City":"Rome","list":null,"m":null}`,
		`{"v":{"city":"Rome","CITY":"Bonn"}}`:                      "",
		`{"v":{"City":"Rome","City":"Bonn"}}`:                      "",
		`{"v":{"list":[{"x":1,"X":2}]}}`:                           "",
	} {
		fields, _, err := ParseObject([]byte(text), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := array.NewBuilder(memory.DefaultAllocator, at)
		ok := NewNode(s.Fields[0].Type, Modes{}).Append(b, fields[0].Val)
		switch a := b.NewArray(); {
		case ok != (want != ""):
			t.Errorf("%s: fits %t", text, ok)
		case ok && a.ValueStr(0) != want:
			t.Errorf("%s: got %s, want %s", text, a.ValueStr(0), want)
		}
	}
	both := &schema.Struct{Fields: []schema.Field{{Name: "a", Type: schema.Long}, {Name: "A", Type: schema.Long}}}
	n := NewNode(both, Modes{})
	fields, _, err := ParseObject([]byte(`{"v":{"a":1,"A":2}}`), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !n.Fits(fields[0].Val) {
		t.Error("exact names come first")
	}
}
