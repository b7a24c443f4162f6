package conformance_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
)

// mergeWorld is a table, a source and statements over them: what comes after ON, with a
// plus sign for WITH SCHEMA EVOLUTION and an exclamation mark where one of the two
// refuses by a decision of docs/rfcs/merge.md.
type mergeWorld struct {
	name, table string
	partition   []string
	rows        []string
	check       string // a constraint
	source      string
	from        []string
	statements  []string
}

var mergeWorlds = []mergeWorld{
	{
		name: "null keys and several clauses", table: "id BIGINT, k STRING, v INT", source: "id BIGINT, k STRING, v INT, op STRING",
		rows: []string{`{"id":1,"k":"a","v":1}`, `{"id":2,"k":null,"v":2}`, `{"id":null,"k":"c","v":3}`, `{"id":null,"k":null,"v":4}`, `{"id":5,"k":"e","v":5}`, `{"id":6,"k":"f","v":null}`},
		from: []string{`{"id":1,"k":"a","v":10,"op":"u"}`, `{"id":2,"k":null,"v":20,"op":"d"}`, `{"id":null,"k":"c","v":30,"op":"u"}`, `{"id":null,"k":null,"v":40,"op":null}`,
			`{"id":8,"k":"x","v":80,"op":"i"}`, `{"id":8,"k":"x","v":81,"op":"i"}`, `{"id":8,"k":"x","v":80,"op":"i"}`, `{"id":6,"k":"f","v":null,"op":"u"}`},
		statements: []string{
			"t.id = s.id AND t.k = s.k WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED AND s.v > 5 THEN UPDATE SET v = s.v WHEN MATCHED THEN UPDATE SET k = 'last' WHEN NOT MATCHED AND s.op = 'i' THEN INSERT (id, v) VALUES (s.id, s.v) WHEN NOT MATCHED THEN INSERT (k) VALUES (concat('n', s.op))",
			"t.id <=> s.id AND t.k <=> s.k WHEN MATCHED AND t.v = 4 THEN DELETE WHEN MATCHED AND s.op IS NOT NULL THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, s.k, s.v)",
			"t.id = s.id WHEN MATCHED AND CAST(NULL AS BOOLEAN) THEN DELETE WHEN MATCHED AND t.k IS NULL THEN UPDATE SET k = s.op WHEN NOT MATCHED BY SOURCE AND t.id IS NULL AND t.k IS NULL THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.v > 3 THEN UPDATE SET v = -t.v WHEN NOT MATCHED BY SOURCE AND t.k = 'c' THEN UPDATE SET k = NULL, v = t.v * 100",
			"t.id <=> s.id WHEN MATCHED THEN UPDATE SET v = s.v",
			"t.id <=> s.id WHEN MATCHED AND s.k IS NOT NULL AND t.k = s.k THEN UPDATE SET v = s.v",
			"t.id = s.id WHEN NOT MATCHED THEN INSERT (v, id, k) VALUES (s.v, s.id, upper(s.k)) WHEN NOT MATCHED BY SOURCE THEN DELETE",
		},
	},
	{
		name: "star forms by name", table: "id BIGINT, Name STRING, s STRUCT<a: INT, B: STRING>", source: "S STRUCT<B: STRING, a: INT>, NAME STRING, Id BIGINT",
		rows: []string{`{"id":1,"Name":"x","s":{"a":1,"B":"p"}}`, `{"id":2,"Name":"y","s":null}`, `{"id":3,"Name":null,"s":{"a":3,"B":null}}`},
		from: []string{`{"S":{"B":"q","a":10},"NAME":"new","Id":1}`, `{"S":{"B":null,"a":null},"NAME":"two","Id":2}`, `{"S":null,"NAME":"three","Id":3}`, `{"S":{"B":"z","a":9},"NAME":null,"Id":9}`},
		statements: []string{
			"t.ID = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET S.A = s.s.a + 1, name = s.name",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (ID, NAME) VALUES (s.id, 'i')",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET nowhere = 1",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'a', NAME = 'b'",
		},
	},
	{
		name: "schema evolution", table: "id BIGINT, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: INT>>", source: "id BIGINT, extra DATE, s STRUCT<c: BIGINT, a: INT>, l ARRAY<STRUCT<x: INT, y: STRING>>",
		rows: []string{`{"id":1,"s":{"a":1,"b":"p"},"l":[{"x":1},null]}`, `{"id":2,"s":null,"l":null}`, `{"id":3,"s":{"a":null,"b":"r"},"l":[]}`},
		from: []string{`{"id":1,"extra":"2024-01-01","s":{"c":100,"a":10},"l":[{"x":5,"y":"five"}]}`, `{"id":2,"extra":null,"s":{"c":null,"a":20},"l":[null]}`, `{"id":9,"extra":"2024-09-09","s":null,"l":null}`},
		statements: []string{
			"+t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
			"+t.id = s.id WHEN MATCHED THEN UPDATE SET extra = s.extra",
			"+t.id = s.id WHEN NOT MATCHED THEN INSERT (id, extra) VALUES (s.id, s.extra)",
			"+t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
			"t.id = s.id WHEN NOT MATCHED THEN INSERT *",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET *",
		},
	},
	{
		name: "casts", table: "id BIGINT, i INT, b TINYINT, d DECIMAL(5,2), day DATE, ts TIMESTAMP, t STRING, f FLOAT", source: "id BIGINT, l BIGINT, d DECIMAL(20,6), day STRING, ts STRING, x DOUBLE",
		rows: []string{`{"id":1,"i":1,"b":1,"d":1.00,"day":"2024-01-01","ts":"2024-01-01T00:00:00Z","t":"a","f":1.5}`, `{"id":2,"i":2,"b":2,"d":2.00,"day":null,"ts":null,"t":null,"f":null}`},
		from: []string{`{"id":1,"l":127,"d":123.456500,"day":"2024-02-29","ts":"2024-02-29 10:11:12.123456","x":2.5}`, `{"id":2,"l":3000000000,"d":12345.000000,"day":"2023-02-29","ts":"nonsense","x":1e300}`, `{"id":3,"l":-129,"d":-0.005000,"day":" 2024-03-01 ","ts":"2024-03-01","x":-0.5}`},
		statements: []string{
			"t.id = s.id AND s.id = 1 WHEN MATCHED THEN UPDATE SET i = s.l, b = s.l, d = s.d, day = CAST(s.day AS DATE), ts = CAST(s.ts AS TIMESTAMP), t = s.l, f = s.x",
			"!t.id = s.id AND s.id = 1 WHEN MATCHED THEN UPDATE SET day = s.day",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET i = s.l",
			"t.id = s.id WHEN MATCHED AND s.id = 1 THEN UPDATE SET i = s.l WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, s.l)",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET d = s.d",
			"t.id = s.id AND s.id <> 2 WHEN MATCHED THEN UPDATE SET d = s.d WHEN NOT MATCHED AND s.id = 3 THEN INSERT (id, d, day, ts, f) VALUES (s.id, s.d, CAST(s.day AS DATE), CAST(s.ts AS TIMESTAMP), s.x)",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET day = s.day",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET ts = s.ts",
			"t.id = s.id WHEN MATCHED AND s.id = 2 THEN UPDATE SET i = t.i + 2147483647",
			"t.id = s.id WHEN MATCHED AND s.id = 2 THEN UPDATE SET f = s.x, t = s.x",
			"t.id = s.id AND 1 / (s.id - 3) > 0 WHEN MATCHED THEN UPDATE SET i = 0",
			"t.id = s.id WHEN MATCHED AND s.id = 1 THEN UPDATE SET t = t.ts, i = CAST(s.x AS INT), d = s.x",
		},
	},
	{
		name: "columns that the table fills", table: "id BIGINT, n INT, twice INT GENERATED ALWAYS AS (n * 2), t STRING DEFAULT 'none'", source: "id BIGINT, n INT",
		rows: []string{`{"id":1,"n":1,"t":"a"}`, `{"id":2,"n":2,"t":null}`},
		from: []string{`{"id":1,"n":10}`, `{"id":3,"n":null}`, `{"id":4,"n":40}`},
		statements: []string{
			"t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)",
			"!t.id = s.id WHEN NOT MATCHED THEN INSERT *",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET twice = 5",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET twice = 2, t = 'b'",
			"t.id = s.id WHEN NOT MATCHED THEN INSERT (id, n, twice) VALUES (s.id, s.n, s.n * 2)",
			"t.id = s.id WHEN NOT MATCHED THEN INSERT (id, n, twice) VALUES (s.id, s.n, 7)",
		},
	},
	{
		name: "constraints", table: "id BIGINT NOT NULL, v INT", check: "v > 0", source: "id BIGINT, v INT",
		rows: []string{`{"id":1,"v":1}`, `{"id":2,"v":2}`, `{"id":3,"v":3}`},
		from: []string{`{"id":1,"v":-1}`, `{"id":2,"v":20}`, `{"id":null,"v":4}`, `{"id":9,"v":null}`},
		statements: []string{
			"t.id = s.id WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v",
			"t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
			"t.id = s.id WHEN MATCHED AND s.v < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v",
			"t.id = s.id WHEN NOT MATCHED AND s.id = 9 THEN INSERT *",
			"t.id = s.id WHEN NOT MATCHED AND s.v IS NOT NULL THEN INSERT *",
			"t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = t.v - 3",
		},
	},
}

// TestConformance_MergeCorners: statements where SQL has corners, by Spark and by us on
// copies of one table: both refuse, or rows and change rows are the same. A third of the
// statements is enough for every run: SLUICE_LONG=1 takes all.
func TestConformance_MergeCorners(t *testing.T) {
	spark := engines.Spark(t)
	type pair struct {
		name         string
		mine, theirs *ours
		err          error
	}
	n := 0
	var pairs []pair
	var work [][]engines.Request
	for i, w := range mergeWorlds {
		vectors := "false"
		if i%2 == 1 {
			vectors = "true"
		}
		base := create(t, w.table, w.partition, map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors})
		base.some(w.plain(), w.rows...)
		if w.check != "" {
			if _, err := base.AddConstraint(ctx, "c", w.check, delta.ConstraintOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s := create(t, w.source, nil, nil)
		s.append(w.from...)
		for _, st := range w.statements {
			if n++; n%3 != 1 && os.Getenv("SLUICE_LONG") == "" {
				continue
			}
			p := pair{name: w.name + ": " + st, mine: copyOf(t, base), theirs: copyOf(t, base)}
			head := "MERGE INTO"
			if strings.HasPrefix(st, "+") {
				head = "MERGE WITH SCHEMA EVOLUTION INTO"
			}
			sql := head + " delta.`" + p.theirs.path + "` AS t USING delta.`" + s.path + "` AS s ON " + strings.TrimLeft(st, "+!")
			p.err = p.mine.merge(s, sql)
			pairs = append(pairs, p)
			work = append(work, []engines.Request{{"op": "sql", "text": sql, "tables": map[string]string{}}})
		}
	}
	for i, a := range spark.Many(t, work...) {
		p := pairs[i]
		t.Run(p.name, func(t *testing.T) {
			if strings.Contains(p.name, ": !") {
				if (a.Err == nil) == (p.err == nil) {
					t.Errorf("decided otherwise, and yet\nSpark: %v\nsluice: %v", a.Err, p.err)
				}
				return
			}
			if (a.Err == nil) != (p.err == nil) {
				t.Fatalf("Spark: %v\nsluice: %v", a.Err, p.err)
			}
			theirs, mine := open(t, p.theirs.path), open(t, p.mine.path)
			if p.err != nil {
				t.Logf("Spark: %.200v\nsluice: %v", a.Err, p.err)
				if mine.version() != theirs.version() {
					t.Errorf("a refused statement left version %d, Spark %d", mine.version(), theirs.version())
				}
				return
			}
			engines.SameRows(t, mine.rows(-1), theirs.rows(-1))
			if v := mine.version(); v == theirs.version() {
				engines.SameRows(t, mine.changes(v, v), theirs.changes(v, v))
			} else {
				t.Logf("one of the two had nothing to commit: versions %d and %d", v, theirs.version())
			}
		})
	}
}

// plain is the DDL of the columns that rows of the world give.
func (w mergeWorld) plain() string {
	s, _, _ := strings.Cut(w.table, ", twice")
	if strings.Contains(w.table, "DEFAULT") {
		s += ", t STRING"
	}
	return s
}
