package conformance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"
)

// asked is a question to every engine about a table of ours, with its answer.
type asked struct {
	report, path string
	request      engines.Request
	want         []string
	only         string // name of the one engine that is asked; "" all
}

// TestFieldReports are public bug reports about tables that one engine wrote and
// another could not read, or read wrong: here sluice is the writer.
func TestFieldReports(t *testing.T) {
	var questions []asked
	ask := func(report string, o *ours, where string, want int, only ...string) {
		name := fmt.Sprintf("x%d", len(questions))
		q := asked{report: report, path: o.path, want: []string{fmt.Sprintf(`{"n":%d}`, want)},
			request: engines.Request{"op": "sql", "text": "SELECT count(*) AS n FROM " + name + " WHERE " + where, "tables": map[string]string{name: o.path}}}
		if len(only) > 0 {
			q.only = only[0]
		}
		questions = append(questions, q)
	}

	for _, asStruct := range []string{"true", "false"} {
		var ddl, row []string
		for i := range 40 {
			ddl = append(ddl, fmt.Sprintf("c%d INT NOT NULL", i))
			row = append(row, fmt.Sprintf(`"c%d":%d`, i, i))
		}
		o := create(t, strings.Join(ddl, ", "), []string{"c5"}, map[string]string{"delta.checkpoint.writeStatsAsStruct": asStruct})
		text := "{" + strings.Join(row, ",") + "}"
		o.append(text)
		o.append(strings.Replace(text, `"c5":5`, `"c5":6`, 1))
		o.checkpoint()
		ask("B25 forty NOT NULL columns, struct "+asStruct, o, "c5 = 6 AND c39 = 39 AND c0 >= 0", 1)
	}

	mapped := create(t, "id BIGINT, day DATE", []string{"day"}, map[string]string{"delta.columnMapping.mode": "name", "delta.checkpoint.writeStatsAsStruct": "true"})
	for i := range 3 {
		mapped.append(fmt.Sprintf(`{"id":%d,"day":"2024-05-0%d"}`, i, i+1), fmt.Sprintf(`{"id":%d,"day":"2024-05-01"}`, 10+i))
	}
	if _, err := mapped.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
		t.Fatal(err)
	}
	mapped.checkpoint()
	ask("B26 a mapped partition column after compaction and checkpoint", mapped, "day = DATE '2024-05-02'", 1)

	refreshed := create(t, "id BIGINT", nil, nil)
	refreshed.append(`{"id":1}`, `{"id":2}`)
	snap, err := refreshed.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	again := *files[0]
	again.DataChange, again.Stats = false, `{"numRecords":2}`
	tx := refreshed.Log().Begin(snap)
	tx.Add(&again)
	if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "COMPUTE STATS"}); err != nil {
		t.Fatal(err)
	}
	ask("B33 statistics computed again", refreshed, "id >= 1", 2)

	floats := create(t, "id INT, a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE", nil, nil)
	floats.append(`{"id":1,"a":1,"b":"NaN","c":1,"d":-0.0}`, `{"id":2,"a":"NaN","b":"NaN","c":"Infinity","d":0.0}`, `{"id":3,"a":5,"b":null,"c":1,"d":-0.0}`)
	ask("B36 NaN is above 10", floats, "a > 10", 1)
	ask("B36 equal to NaN", floats, "a = double('NaN')", 1, "Spark")
	ask("B36 only NaN", floats, "b > 10", 2)
	ask("B36 infinity", floats, "c > 10", 1)
	ask("B36 zeros", floats, "d = 0", 3, "Spark") // delta-rs tells -0.0 from 0.0

	nulls := create(t, "id INT, v STRING, s STRUCT<w: INT>", nil, nil)
	nulls.append(`{"id":1,"v":null,"s":null}`, `{"id":2,"v":null,"s":{"w":null}}`)
	ask("B38 all null", nulls, "v IS NULL", 2)
	ask("B38 not null", nulls, "v IS NOT NULL", 0)

	times := create(t, "id INT, ts TIMESTAMP", nil, nil)
	times.append(`{"id":1,"ts":"2024-03-10T06:30:00.123456Z"}`)
	times.append(`{"id":2,"ts":"1850-01-01T00:00:00.000001Z"}`)
	ask("B35 the last microsecond", times, "ts >= TIMESTAMP '2024-03-10 06:30:00.123400'", 1)
	ask("B35 a time in 1850", times, "ts < TIMESTAMP '1850-01-01 00:00:00.000500'", 1)

	parts := create(t, "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, p INT", []string{"p"}, map[string]string{"delta.enableChangeDataFeed": "true"})
	parts.append(`{"id":1,"at":"2024-01-01T00:00:00.000000Z","tags":["a"],"p":1}`, `{"id":2,"at":null,"tags":[],"p":1}`, `{"id":3,"at":null,"tags":["x",null],"p":2}`,
		`{"id":4,"at":null,"tags":null,"p":2}`, `{"id":5,"at":null,"tags":null,"p":null}`, `{"id":6,"at":"1969-12-31T23:59:59.000000Z","tags":null,"p":null}`)
	parts.update("at = TIMESTAMP '2020-02-02T00:00:00Z'", "id IN (1, 3, 5)")
	parts.delete("id IN (2, 4, 6)")
	questions = append(questions, asked{report: "B06 change rows of partitions", path: parts.path, want: parts.changes(0, parts.version()),
		request: engines.Request{"op": "changes", "path": parts.path, "start": 0, "end": parts.version()}})

	for _, e := range engines.All(t) {
		var calls [][]engines.Request
		var here []asked
		for _, q := range questions {
			if q.only == "" || q.only == e.Name() {
				calls, here = append(calls, []engines.Request{q.request}), append(here, q)
			}
		}
		for i, s := range e.Many(t, calls...) {
			t.Run(here[i].report+" by "+e.Name(), func(t *testing.T) {
				if s.Err != nil {
					t.Fatal(s.Err)
				}
				var got []string
				if err := json.Unmarshal(s.Results[0], &got); err != nil {
					t.Fatal(err)
				}
				engines.SameRows(t, got, here[i].want)
			})
		}
	}
}
