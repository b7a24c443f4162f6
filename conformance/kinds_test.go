package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
)

func (o *ours) checkpoint() {
	o.t.Helper()
	if _, err := o.Checkpoint(ctx); err != nil {
		o.t.Fatal(err)
	}
}

// everywhere is one cell for each engine: the newest rows, those of version 1 and the
// feed from a version on, -1 without. An engine of which noFeed says why reads no feed.
func (o *ours) everywhere(from int64, noFeed ...string) {
	o.t.Helper()
	for _, e := range engines.All(o.t) {
		o.t.Run(e.Name(), func(t *testing.T) {
			engines.SameRows(t, e.Rows(t, o.path), o.rows(-1))
			engines.SameRows(t, e.RowsAt(t, o.path, 1), o.rows(1))
			if from < 0 {
				return
			}
			if len(noFeed) == 2 && noFeed[0] == e.Name() {
				t.Skip("rows compared; no feed: " + noFeed[1])
			}
			engines.SameRows(t, e.Changes(t, o.path, from, o.version()), o.changes(from, o.version()))
		})
	}
}

// kinds of values: columns, and rows that hold their extremes.
var kinds = []struct {
	name, ddl string
	rows      []string
}{
	{"primitive types", "id BIGINT, i INT, s SMALLINT, b TINYINT, f FLOAT, d DOUBLE, t STRING, x BINARY, o BOOLEAN, day DATE, ts TIMESTAMP", []string{
		`{"id":9223372036854775807,"i":-2147483648,"s":-32768,"b":127,"f":0.1,"d":1e-7,"t":"ü\"\n","x":"AAH/","o":true,"day":"1582-10-04","ts":"2024-05-01T10:00:00.123456Z"}`,
		`{"id":-9223372036854775808,"i":2147483647,"s":32767,"b":-128,"f":3.4028235e+38,"d":1.7976931348623157e+308,"t":"日本","x":"/w==","o":false,"day":"0001-01-01","ts":"0001-01-01T00:00:00.000000Z"}`,
		`{"id":0,"i":0,"s":0,"b":0,"f":"NaN","d":"NaN","t":"","x":"","o":true,"day":"9999-12-31","ts":"9999-12-31T23:59:59.999999Z"}`,
		`{"id":1,"i":1,"s":1,"b":1,"f":"Infinity","d":"-Infinity","t":"\u0000\t","x":"AA==","o":true,"day":"1969-12-31","ts":"1969-12-31T23:59:59.999999Z"}`,
		`{"id":2,"i":2,"s":2,"b":2,"f":1e-45,"d":5e-324,"t":"` + strings.Repeat("long ", 50) + `","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","o":false,"day":"1970-01-01","ts":"1582-10-04T23:59:59.999999Z"}`,
		`{"id":3,"i":null,"s":null,"b":null,"f":null,"d":null,"t":null,"x":null,"o":null,"day":null,"ts":null}`,
	}},
	{"timestamps without zone", "id INT NOT NULL, n TIMESTAMP_NTZ, l ARRAY<TIMESTAMP_NTZ>", []string{
		`{"id":1,"n":"0001-01-01T00:00:00.000001","l":["2024-05-01T10:00:00.123456",null]}`,
		`{"id":2,"n":"9999-12-31T23:59:59.999999","l":[]}`, `{"id":3,"n":null,"l":null}`, `{"id":4,"n":"1970-01-01T00:00:00.000000","l":[null]}`,
	}},
	{"decimals of every width", "id INT, a DECIMAL(4,2), b DECIMAL(9,0), c DECIMAL(10,2), d DECIMAL(18,18), e DECIMAL(19,0), f DECIMAL(38,0), g DECIMAL(38,38), h DECIMAL(1,0)", []string{
		`{"id":1,"a":99.99,"b":999999999,"c":99999999.99,"d":0.999999999999999999,"e":9999999999999999999,"f":99999999999999999999999999999999999999,"g":0.99999999999999999999999999999999999999,"h":9}`,
		`{"id":2,"a":-99.99,"b":-999999999,"c":-99999999.99,"d":-0.999999999999999999,"e":-9999999999999999999,"f":-99999999999999999999999999999999999999,"g":-0.99999999999999999999999999999999999999,"h":-9}`,
		`{"id":3,"a":0.01,"b":0,"c":-0.01,"d":0.000000000000000001,"e":-1,"f":1,"g":0.00000000000000000000000000000000000001,"h":0}`,
		`{"id":4,"a":null,"b":null,"c":null,"d":null,"e":null,"f":null,"g":null,"h":null}`,
	}},
	{"nested types", "id INT, s STRUCT<p: BIGINT, q: STRUCT<r: STRING, t: ARRAY<INT>>>, l ARRAY<ARRAY<DECIMAL(5,2)>>, m MAP<STRING, STRUCT<x: DATE>>, n MAP<INT, ARRAY<STRING>>, a ARRAY<STRUCT<k: STRING, v: MAP<STRING, DOUBLE>>>", []string{
		`{"id":1,"s":{"p":1,"q":{"r":"r","t":[1,null,3]}},"l":[[1.50,null],[],null,[-999.99]],"m":{"a":{"x":"2024-02-29"},"b":{"x":null},"c":null},"n":[{"key":2,"value":["z",null,""]},{"key":3,"value":null}],"a":[{"k":"k","v":{"y":1.5,"z":null}},null,{"k":null,"v":null}]}`,
		`{"id":2,"s":{"p":null,"q":null},"l":[],"m":{},"n":[],"a":[]}`,
		`{"id":3,"s":{"p":null,"q":{"r":null,"t":null}},"l":[null],"m":{"":{"x":"0001-01-01"}},"n":[{"key":-1,"value":[]}],"a":[{"k":"","v":{}}]}`,
		`{"id":4,"s":null,"l":null,"m":null,"n":null,"a":null}`,
		`{"id":5,"s":{"p":5,"q":{"r":"","t":[]}},"l":[[0.01,0.02,0.03],[null,null]],"m":null,"n":null,"a":[null]}`,
	}},
}

// Every kind of value that sluice writes is read by the engines as it went in: from
// the file, from change files, after a rewrite, after a checkpoint.
func TestKinds_Values(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := create(t, k.ddl, nil, map[string]string{"delta.enableChangeDataFeed": "true"})
			o.append(k.rows...)
			o.append(k.rows[1:]...)
			o.update("id = id", "id IN (1, 3)") // writes them again, and change files of every type
			o.checkpoint()
			o.delete("id = 2")
			engines.SameRows(t, o.rows(1), k.rows)
			o.everywhere(0)
		})
	}
}

// An engine that prunes files by our statistics finds every value.
func TestKinds_StatisticsPruneNothingTooMuch(t *testing.T) {
	long := strings.Repeat("z", 31)
	o := create(t, "id INT, t STRING, d DOUBLE, ts TIMESTAMP, m DECIMAL(38,10), day DATE, st STRUCT<n: BIGINT>", nil, nil)
	rows := []string{
		`{"id":1,"t":"` + long + `zz","d":1.5,"ts":"2024-05-01T10:00:00.123999Z","m":12345678901234567890.0123456789,"day":"0001-01-01","st":{"n":1}}`,
		`{"id":2,"t":"` + long + `😀😀","d":"NaN","ts":"1969-12-31T23:59:59.999999Z","m":-0.0000000001,"day":"9999-12-31","st":{"n":null}}`,
		`{"id":3,"t":"","d":-0.0,"ts":"0001-01-01T00:00:00.000001Z","m":0,"day":"1970-01-01","st":null}`,
		`{"id":4,"t":null,"d":null,"ts":null,"m":null,"day":null,"st":{"n":9223372036854775807}}`,
	}
	for _, r := range rows {
		o.append(r)
	}
	o.checkpoint()
	conditions := []struct {
		where string
		n     int
	}{
		{"t = '" + long + "zz'", 1}, {"t > '" + long + "z'", 2}, {"t >= '" + long + "😀'", 1}, {"t = ''", 1}, {"t IS NULL", 1},
		{"ts = TIMESTAMP '2024-05-01 10:00:00.123999'", 1}, {"ts > TIMESTAMP '2024-05-01 10:00:00.123'", 1}, {"ts < TIMESTAMP '1970-01-01 00:00:00'", 2},
		{"m > 12345678901234567890", 1}, {"m < 0", 1}, {"day = DATE '9999-12-31'", 1}, {"day < DATE '0002-01-01'", 1}, {"d = 0.0", 1}, {"d < 2.0", 2}, {"id = 4", 1},
		{"st.n = 9223372036854775807", 1}, {"st.n IS NULL", 2},
	}
	var union []string
	var want []string
	for i, c := range conditions {
		union = append(union, fmt.Sprintf("SELECT %d AS q, count(*) AS n FROM x WHERE %s", i, strings.ReplaceAll(c.where, "st.n", "st['n']")))
		want = append(want, fmt.Sprintf(`{"q":%d,"n":%d}`, i, c.n))
	}
	for _, e := range engines.All(t) {
		text := strings.Join(union, " UNION ALL ")
		if e.Name() == "Spark" {
			text = strings.ReplaceAll(text, "st['n']", "st.n")
		}
		t.Run(e.Name(), func(t *testing.T) { engines.SameRows(t, e.SQL(t, text, map[string]string{"x": o.path}), want) })
	}
}

// Partition columns of every type that can be one.
func TestKinds_PartitionsOfEveryType(t *testing.T) {
	o := create(t, "id INT, a INT, b BOOLEAN, c DATE, d TIMESTAMP, e DECIMAL(10,2), f BIGINT, g DOUBLE, h SMALLINT",
		[]string{"a", "b", "c", "d", "e", "f", "g", "h"}, map[string]string{"delta.enableChangeDataFeed": "true"})
	rows := []string{
		`{"id":1,"a":-2147483648,"b":true,"c":"0001-01-01","d":"2024-05-01T10:00:00.123456Z","e":-99999999.99,"f":9223372036854775807,"g":1.5e-10,"h":-1}`,
		`{"id":2,"a":1,"b":false,"c":"9999-12-31","d":"1969-12-31T23:59:59.999999Z","e":0.10,"f":-1,"g":"NaN","h":1}`,
		`{"id":3,"a":null,"b":null,"c":null,"d":null,"e":null,"f":null,"g":null,"h":null}`,
		`{"id":4,"a":1,"b":false,"c":"2024-02-29","d":"2024-02-29T00:00:00.000000Z","e":100.00,"f":0,"g":"-Infinity","h":0}`,
	}
	o.append(rows...)
	engines.SameRows(t, o.rows(-1), rows)
	o.update("id = id + 10", "a = 1")
	o.delete("id = 3")
	o.everywhere(0, "delta-rs", "its load_cdf does not decode escaped paths, and a timestamp has colons")
}

// mappingFeed is why delta-rs reads no feed of a table with column mapping.
const mappingFeed = "delta-rs reads no change feed under column mapping (recipes.md)"

// Column names that only column mapping allows.
func TestKinds_MappedNames(t *testing.T) {
	o := create(t, "`a b` INT, `x,y;` STRING, `{}()=` STRUCT<`n n`: INT, `,`: ARRAY<STRUCT<` `: STRING>>>, `part one` STRING", []string{"part one"},
		map[string]string{"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"})
	rows := []string{
		`{"a b":1,"x,y;":"x","{}()=":{"n n":1,",":[{" ":"s"},null]},"part one":"a b"}`,
		`{"a b":2,"x,y;":null,"{}()=":{"n n":null,",":null},"part one":null}`,
		`{"a b":3,"x,y;":"","{}()=":null,"part one":"c/d"}`,
	}
	o.append(rows...)
	engines.SameRows(t, o.rows(-1), rows)
	o.update("`x,y;` = 'upd'", "`a b` = 1")
	o.checkpoint()
	o.delete("`a b` = 3")
	o.everywhere(0, "delta-rs", mappingFeed)
}
