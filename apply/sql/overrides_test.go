package sql

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
)

func TestParseOverrides_Good(t *testing.T) {
	list, err := ParseOverrides(`
tables:
  - table: sales.log_*
    keys: [day, n]
    sequence_by: struct(day, n)
    stored_as_scd_type: 2
    track_history_except_column_list: [seen]
    target: logs/{schema}/{table}
  - table: [audit, "hr.*"]
    except_column_list: [secret]
    table_properties: {delta.logRetentionDuration: interval 9 days}
    partition_cols: day
    schema_evolution: rescue
    schema_hints: amount DECIMAL(10,2)
    expect_all_or_drop: {positive: amount > 0}
`)
	if err != nil {
		t.Fatal(err)
	}
	base := apply.Flow{Name: "f", Keys: []string{"id"}, ColumnList: []string{"id", "x"}, BatchRows: 7}
	a, b := list[0].Apply(base), list[1].Apply(base)
	if !slices.Equal(a.Keys, []string{"day", "n"}) || a.StoredAsSCDType != "2" || a.SequenceBy == "" || !slices.Equal(a.TrackHistoryExceptColumnList, []string{"seen"}) ||
		a.Name != "f" || a.BatchRows != 7 || !slices.Equal(a.ColumnList, base.ColumnList) || list[0].Target != "logs/{schema}/{table}" {
		t.Errorf("%+v", a)
	}
	if !slices.Equal(b.Keys, base.Keys) || b.ColumnList != nil || !slices.Equal(b.ExceptColumnList, []string{"secret"}) || b.Properties["delta.logRetentionDuration"] != "interval 9 days" ||
		!slices.Equal(b.PartitionBy, []string{"day"}) || b.Evolution != apply.EvolveRescue || b.Hints.Fields[0].Name != "amount" || len(b.Expectations) != 1 || list[1].Keys() != nil {
		t.Errorf("%+v", b)
	}
	for name, want := range map[string]int{"sales.log_1": 0, "sales.orders": -1, "x.audit": 1, "hr.pay": 1} {
		schemaName, table, _ := strings.Cut(name, ".")
		tab := event.Table{Schema: schemaName, Name: table}
		if got := slices.IndexFunc(list, func(o *Override) bool { return o.Fits(tab) }); got != want {
			t.Errorf("%s: entry %d, want %d", name, got, want)
		}
	}
	if list, err := ParseOverrides(""); err != nil || list != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// TestParseOverrides_Errors: every problem has its place.
func TestParseOverrides_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"tables:\n  - keys: [id]\n":                                                  "2:5 PARSE_SYNTAX_ERROR",
		"tables:\n  - table: '[a'\n":                                                 "2:12 PARSE_SYNTAX_ERROR",
		"tables:\n  - table: a\n    key: [id]\n":                                     "3:5 PARSE_SYNTAX_ERROR",
		"tables:\n  - table: a\n    keys: [id, ID]\n":                                "3:16 AUTOCDC_DUPLICATE_COLUMN",
		"tables:\n  - table: a\n    sequence_by: \"a +\"\n":                          "3:22 PARSE_SYNTAX_ERROR",
		"tables:\n  - table: a\n    stored_as_scd_type: 3\n":                         "3:5 PARSE_SYNTAX_ERROR",
		"tables:\n  - table: a\n    column_list: [a]\n    except_column_list: [b]\n": "4:5 CANNOT_SET_TOGETHER",
		"tables:\n  - table: a\n    schema_evolution: no\n":                          "3:23 PARSE_SYNTAX_ERROR",
		"tables:\n  - table: a\n    schema_hints: a BIGGER\n":                        "3:19 PARSE_SYNTAX_ERROR",
		"tables: a\n":  "1:9 PARSE_SYNTAX_ERROR",
		"table: [a]\n": "1:1 PARSE_SYNTAX_ERROR",
		"- a\n":        "1:1 PARSE_SYNTAX_ERROR",
	} {
		_, err := ParseOverrides(text)
		list, ok := err.(Errors)
		if !ok {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if at := strings.SplitN(want, " ", 2); list[0].Code != at[1] || posText(list[0]) != at[0] {
			t.Errorf("%q: %s %s, want %s", text, posText(list[0]), list[0], want)
		}
	}
}

func posText(e *Error) string { return fmt.Sprintf("%d:%d", e.Line, e.Col) }
