package source_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
)

// A scenario of one format: five events at positions 9 to 14, which as text would
// stand in another order: a row whose second column the update leaves out, a row that
// is deleted, a row whose key changes.
type scenario struct {
	format source.Format
	// event writes one event; old is the row before ("" where the format needs none).
	event func(op string, pos int, row, old string) string
	// whole: an update carries every column; noKeyChange: the old key is not told.
	whole, noKeyChange bool
	options            map[string]string
}

func scenarios() []scenario {
	orNull := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	return []scenario{
		{format: "debezium", event: func(op string, pos int, row, old string) string {
			return fmt.Sprintf(`{"before":%s,"after":%s,"source":{"connector":"mysql","db":"d","table":"t","file":"b.%06d","pos":4,"row":0,"snapshot":"false"},"op":"%s"}`,
				orNull(old), orNull(row), pos, map[string]string{"I": "c", "U": "u", "D": "d"}[op])
		}},
		{format: "maxwell", event: func(op string, pos int, row, old string) string {
			if op == "D" {
				row, old = old, ""
			}
			return fmt.Sprintf(`{"database":"d","table":"t","type":"%s","ts":1,"position":"b.000001:%d","data":%s,"old":%s}`,
				map[string]string{"I": "insert", "U": "update", "D": "delete"}[op], pos, row, orNull(old))
		}},
		{format: "canal", whole: true, event: func(op string, pos int, row, old string) string {
			if op == "D" {
				row, old = old, ""
			}
			if old != "" {
				old = "[" + old + "]"
			}
			return fmt.Sprintf(`{"database":"d","table":"t","isDdl":false,"type":"%s","mysqlType":{"id":"bigint","v":"text","w":"text"},"pkNames":["id"],"data":[%s],"old":%s,"_tidb":{"commitTs":%d}}`,
				map[string]string{"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op], row, orNull(old), pos)
		}},
		{format: "ticdc", options: map[string]string{"schema": "infer"}, event: func(op string, pos int, row, old string) string {
			return fmt.Sprintf(`{"version":1,"database":"d","table":"t","type":"%s","commitTs":%d,"data":%s,"old":%s}`,
				map[string]string{"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op], pos, orNull(row), orNull(old))
		}},
		{format: "goldengate", event: func(op string, pos int, row, old string) string {
			return fmt.Sprintf(`{"table":"D.T","op_type":"%s","op_ts":"2024-05-17 08:30:15","pos":"%d","before":%s,"after":%s}`, op, pos, orNull(old), orNull(row))
		}},
		{format: "dms", event: func(op string, pos int, row, old string) string {
			return fmt.Sprintf(`{"data":%s,"before-image":%s,"metadata":{"record-type":"data","operation":"%s","schema-name":"d","table-name":"t","transaction-id":1,"transaction-record-id":%d,"commit-timestamp":"2024-05-17T08:30:15Z"}}`,
				orNull(row), orNull(old), map[string]string{"I": "insert", "U": "update", "D": "delete"}[op], pos)
		}},
		{format: "aliyun", event: func(op string, pos int, row, old string) string {
			wrap := func(s string) string {
				if s == "" {
					return "null"
				}
				return `{"dataColumn":` + s + `}`
			}
			return fmt.Sprintf(`{"payload":{"before":%s,"after":%s,"op":"%s","sequenceId":"%d"},"schema":{"dataColumn":[],"primaryKey":["id"],"source":{"dbName":"d","tableName":"t"}},"version":"0.0.1"}`,
				wrap(old), wrap(row), map[string]string{"I": "INSERT", "U": "UPDATE_AFTER", "D": "DELETE"}[op], pos)
		}},
	}
}

// mutants are the mistakes of cdc-formats 24 that show in what a decoder emits.
var mutants = []struct {
	name   string
	mutate func([]corpora.Change) []corpora.Change
	skip   func(scenario) bool
}{
	{"1 an absent field is NULL", func(list []corpora.Change) []corpora.Change {
		for i := range list {
			if _, ok := list[i].Vals["w"]; !ok && list[i].Op != event.Delete {
				list[i].Vals["w"] = nil
			}
		}
		return list
	}, func(s scenario) bool { return s.whole }},
	{"3 positions compare as text", func(list []corpora.Change) []corpora.Change {
		for i := range list {
			for k := range list[i].Seq {
				list[i].Seq[k] = fmt.Sprint(list[i].Seq[k])
			}
		}
		return list
	}, nil},
	{"4 deletes are lost", func(list []corpora.Change) []corpora.Change {
		return slices.DeleteFunc(list, func(c corpora.Change) bool { return c.Op == event.Delete && !c.NewKey })
	}, nil},
	{"5 a key change leaves the old row", func(list []corpora.Change) []corpora.Change {
		return slices.DeleteFunc(list, func(c corpora.Change) bool { return c.Op == event.Delete && c.NewKey })
	}, func(s scenario) bool { return s.noKeyChange }},
}

// TestMistakes_Mutants puts the mistakes in: with each of them the rows of every
// format's scenario are other ones, so that a decoder that makes it is found out.
func TestMistakes_Mutants(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(string(s.format), func(t *testing.T) {
			update := `{"id":1,"v":"c"}`
			if s.whole {
				update = `{"id":1,"v":"c","w":"b"}`
			}
			lines := []string{
				s.event("I", 9, `{"id":1,"v":"a","w":"b"}`, ""), s.event("U", 10, update, `{"v":"a"}`),
				s.event("I", 8, `{"id":2,"v":"x","w":"y"}`, ""), s.event("D", 12, "", `{"id":2,"v":"x","w":"y"}`),
				s.event("I", 9, `{"id":3,"v":"x","w":"y"}`, ""), s.event("U", 14, `{"id":4,"v":"x","w":"y"}`, `{"id":3}`),
			}
			decode := func() []corpora.Change {
				path := writeLines(t, lines)
				spec := source.Spec{Format: s.format, From: []string{path}, Keys: []string{"id"}, Host: "h", Options: map[string]string{}}
				for k, v := range s.options {
					spec.Options[k] = v
				}
				all, err := run(spec)
				if err != nil {
					t.Fatal(err)
				}
				if len(all.Poison) > 0 {
					t.Fatalf("poison: %s %s", all.Poison[0].Code, all.Poison[0].Reason)
				}
				var list []corpora.Change
				for _, b := range all.Batches {
					list = append(list, corpora.Changes(b)...)
				}
				return list
			}
			right := foldText(decode())
			if n := strings.Count(right, "\n"); n != 2 || !strings.Contains(right, `[1]`) || !strings.Contains(right, `v="c" w="b"`) || !strings.Contains(right, `[4]`) {
				t.Fatalf("rows\n%s", right)
			}
			for _, m := range mutants {
				if m.skip != nil && m.skip(s) {
					continue
				}
				if got := foldText(m.mutate(decode())); got == right {
					t.Errorf("%s: nobody would notice", m.name)
				}
			}
		})
	}
}
