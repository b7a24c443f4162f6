package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// debeziumChange is a Debezium envelope of PostgreSQL at a position; commits are the
// position of the commit before.
func debeziumChange(op string, lsn int, before, after, snapshot string) string {
	return fmt.Sprintf(`{"before":%s,"after":%s,"source":{"connector":"postgresql","name":"n","db":"d","schema":"s","table":"t","snapshot":%s,"lsn":%d,"sequence":"[\"%d\",\"%d\"]"},"op":"%s"}`,
		before, after, snapshot, lsn, lsn, lsn, op)
}

// keyed is a record of a topic; key and value are JSON.
func keyed(offset int, key, value, headers string) string {
	return fmt.Sprintf(`{"topic":"n.s.t","partition":0,"offset":%d,"key":%s,"value":%s,"headers":%s}`, offset, key, value, headers)
}

// steps applies the lines of each step and returns the table's rows.
func steps(t *testing.T, flags []string, list ...[]string) []string {
	t.Helper()
	dir := t.TempDir()
	for i, lines := range list {
		name := fmt.Sprintf("e%d.jsonl", i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, dir, append([]string{"apply", "--into", "t", "--from", name}, flags...)...)
	}
	return sortedLines(must(t, dir, "cat", "t", "-o", "jsonl"))
}

func wantRows(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFieldReports_Debezium are public bug reports about sinks of Debezium's
// events (field-reports 9). Each way to cut the events gives the same table.
func TestFieldReports_Debezium(t *testing.T) {
	cuts := func(lines []string) [][][]string {
		var each [][]string
		for _, l := range lines {
			each = append(each, []string{l})
		}
		return [][][]string{{lines}, each}
	}
	deb := []string{"--format", "debezium", "--keys", "id"}

	t.Run("B73 a placeholder keeps the stored value", func(t *testing.T) {
		const bytes, marker = `"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="`, `"__debezium_unavailable_value"`
		events := []string{
			debeziumChange("c", 10, "null", `{"id":1,"doc":"long text","bin":"AAEC","tags":["a"],"n":1}`, `"false"`),
			debeziumChange("c", 11, "null", `{"id":2,"doc":"other","bin":"AAEC","tags":["b"],"n":1}`, `"false"`),
			debeziumChange("u", 20, "null", `{"id":1,"doc":`+marker+`,"bin":`+bytes+`,"tags":[`+marker+`],"n":2}`, `"false"`),
			debeziumChange("u", 21, "null", `{"id":2,"doc":"new","bin":null,"tags":null,"n":2}`, `"false"`),
			debeziumChange("u", 30, "null", `{"id":3,"doc":`+marker+`,"bin":`+bytes+`,"tags":[`+marker+`],"n":3}`, `"false"`),
			debeziumChange("u", 25, "null", `{"id":3,"doc":"late","bin":"AAEC","tags":["c"],"n":2}`, `"false"`),
		}
		for _, c := range cuts(events) {
			wantRows(t, steps(t, deb, c...),
				`{"id":1,"doc":"long text","bin":"AAEC","tags":["a"],"n":2}`,
				`{"id":2,"doc":"new","bin":null,"tags":null,"n":2}`,
				`{"id":3,"doc":"late","bin":"AAEC","tags":["c"],"n":3}`)
		}
		own := append(slices.Clone(deb), "--option", "unavailable.value.placeholder=<gone>")
		wantRows(t, steps(t, own, []string{debeziumChange("c", 10, "null", `{"id":1,"doc":"x"}`, `"false"`), debeziumChange("u", 20, "null", `{"id":1,"doc":"<gone>"}`, `"false"`)}), `{"id":1,"doc":"x"}`)
		history := append(slices.Clone(deb), "--stored-as", "2")
		got := steps(t, history, []string{debeziumChange("c", 10, "null", `{"id":1,"doc":"x","n":1}`, `"false"`)}, []string{debeziumChange("u", 20, "null", `{"id":1,"doc":`+marker+`,"n":2}`, `"false"`)})
		if len(got) != 2 || !strings.Contains(got[0], `"doc":"x","n":1`) || !strings.Contains(got[1], `"doc":"x","n":2`) {
			t.Errorf("history %s", strings.Join(got, "\n"))
		}
	})

	t.Run("B75 units and zones of times come from the schema", func(t *testing.T) {
		row := `{"type":"struct","optional":true,"field":"after","fields":[{"type":"int32","optional":false,"field":"id"},` +
			`{"type":"int32","optional":true,"field":"d","name":"io.debezium.time.Date"},{"type":"int64","optional":true,"field":"ms","name":"io.debezium.time.Timestamp"},` +
			`{"type":"int64","optional":true,"field":"us","name":"io.debezium.time.MicroTimestamp"},{"type":"int64","optional":true,"field":"ns","name":"io.debezium.time.NanoTimestamp"},` +
			`{"type":"string","optional":true,"field":"z","name":"io.debezium.time.ZonedTimestamp"},{"type":"int64","optional":true,"field":"c","name":"org.apache.kafka.connect.data.Timestamp"}]}`
		event := debeziumChange("c", 1, "null", `{"id":1,"d":19792,"ms":1710052200123,"us":1710052200123456,"ns":1710052200123456789,"z":"2024-03-10T01:30:00.5-05:00","c":1710052200123}`, `"false"`)
		t.Setenv("TZ", "America/Lima")
		wantRows(t, steps(t, deb, []string{`{"schema":{"type":"struct","fields":[` + row + `]},"payload":` + event + `}`}),
			`{"id":1,"d":"2024-03-10","ms":"2024-03-10T06:30:00.123000","us":"2024-03-10T06:30:00.123456","ns":"2024-03-10T06:30:00.123456","z":"2024-03-10T06:30:00.500000Z","c":"2024-03-10T06:30:00.123000"}`)
		// Without a schema a number stays a number until its unit is told.
		bare := debeziumChange("c", 1, "null", `{"id":1,"at":1710052200123}`, `"false"`)
		wantRows(t, steps(t, deb, []string{bare}), `{"id":1,"at":1710052200123}`)
		typed := append(slices.Clone(deb), "--schema", "id BIGINT, at TIMESTAMP", "--option", "time.at=millis")
		wantRows(t, steps(t, typed, []string{bare}), `{"id":1,"at":"2024-03-10T06:30:00.123000Z"}`)
	})

	t.Run("B76 infinity, intervals and times outside of the day", func(t *testing.T) {
		row := `{"type":"struct","optional":true,"field":"after","fields":[{"type":"int32","optional":false,"field":"id"},` +
			`{"type":"int64","optional":true,"field":"us","name":"io.debezium.time.MicroTimestamp"},{"type":"int64","optional":true,"field":"dur","name":"io.debezium.time.MicroDuration"},` +
			`{"type":"string","optional":true,"field":"iv","name":"io.debezium.time.Interval"},{"type":"int64","optional":true,"field":"t","name":"io.debezium.time.MicroTime"}]}`
		wrap := func(event string) string {
			return `{"schema":{"type":"struct","fields":[` + row + `]},"payload":` + event + `}`
		}
		dir := t.TempDir()
		lines := []string{
			wrap(debeziumChange("c", 1, "null", `{"id":1,"us":9223372036825200000,"dur":2629800000000,"iv":"P1Y2M3DT4H5M6.78S","t":-3020399000000}`, `"false"`)),
			wrap(debeziumChange("c", 2, "null", `{"id":2,"us":-9223372036832400000,"dur":0,"iv":"P0Y","t":3020399000000}`, `"false"`)),
		}
		if err := os.WriteFile(filepath.Join(dir, "e.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, dir, append([]string{"apply", "--into", "t", "--from", "e.jsonl"}, deb...)...)
		out := must(t, dir, "cat", "t", "-o", "jsonl", "--columns", "id,us,dur,iv,t")
		wantRows(t, sortedLines(out), `{"id":1,"us":null,"dur":2629800000000,"iv":"P1Y2M3DT4H5M6.78S","t":"-838:59:59.000000"}`,
			`{"id":2,"us":null,"dur":0,"iv":"P0Y","t":"838:59:59.000000"}`)
		if all := must(t, dir, "cat", "t", "-o", "jsonl"); !strings.Contains(all, "9223372036825200000") || !strings.Contains(all, "-9223372036832400000") {
			t.Errorf("the infinities are not kept: %s", all)
		}
	})

	t.Run("B78 snapshot rows between stream events", func(t *testing.T) {
		r := func(lsn int, after, flag string) string { return debeziumChange("r", lsn, "null", after, flag) }
		for _, flag := range []string{`"true"`, `"last"`, `"incremental"`, "true", `"first"`} {
			events := []string{
				debeziumChange("u", 500, "null", `{"id":1,"v":"new"}`, `"false"`), r(480, `{"id":1,"v":"old"}`, flag),
				debeziumChange("d", 500, `{"id":2,"v":""}`, "null", "null"), r(480, `{"id":2,"v":"dead"}`, flag),
				r(480, `{"id":3,"v":"read"}`, flag),
			}
			ways := cuts(events)
			if flag != `"true"` {
				ways = ways[:1]
			}
			for _, c := range ways {
				// A second snapshot doubles nothing; rows that it lacks stay, as nobody said that they are gone.
				again := append(slices.Clone(c), []string{r(600, `{"id":1,"v":"new"}`, flag)})
				wantRows(t, steps(t, deb, again...), `{"id":1,"v":"new"}`, `{"id":3,"v":"read"}`)
			}
		}
	})

	t.Run("B80 changes of the primary key", func(t *testing.T) {
		move := func(offset, lsn, from, to int, v string) []string {
			key := func(n int) string { return fmt.Sprintf(`{"id":%d}`, n) }
			return []string{
				keyed(offset, key(from), debeziumChange("d", lsn, fmt.Sprintf(`{"id":%d,"v":""}`, from), "null", `"false"`), `{"__debezium.newkey":`+key(to)+`}`),
				keyed(offset+1, key(from), "null", `{"__debezium.newkey":`+key(to)+`}`),
				keyed(offset+2, key(to), debeziumChange("c", lsn, "null", fmt.Sprintf(`{"id":%d,"v":"%s"}`, to, v), `"false"`), `{"__debezium.oldkey":`+key(from)+`}`),
			}
		}
		create := func(offset, lsn, id int, v string) string {
			return keyed(offset, fmt.Sprintf(`{"id":%d}`, id), debeziumChange("c", lsn, "null", fmt.Sprintf(`{"id":%d,"v":"%s"}`, id, v), `"false"`), "{}")
		}
		there := slices.Concat([]string{create(0, 10, 1, "a")}, move(1, 20, 1, 2, "a"), move(4, 30, 2, 1, "a"))
		chain := slices.Concat([]string{create(0, 10, 1, "a"), create(1, 11, 2, "b")}, move(2, 20, 2, 3, "b"), move(5, 21, 1, 2, "a"))
		for i, events := range [][]string{there, chain} {
			for _, c := range cuts(events) {
				got := steps(t, []string{"--format", "debezium"}, c...)
				if i == 0 {
					wantRows(t, got, `{"id":1,"v":"a"}`)
				} else {
					wantRows(t, got, `{"id":2,"v":"a"}`, `{"id":3,"v":"b"}`)
				}
			}
		}
	})

	t.Run("B81 flattened rows and deletes that know only the key", func(t *testing.T) {
		flat := []string{"--format", "debezium-unwrapped", "--keys", "id", "--schema", "id BIGINT, name STRING"}
		for _, c := range []struct {
			deleted string
			gone    bool
		}{{`,"__deleted":"true"`, true}, {`,"__deleted":true`, true}, {`,"__deleted":"false"`, false}, {`,"__deleted":null`, false}, {``, false}} {
			got := steps(t, flat, []string{`{"id":3,"name":"x","__deleted":"false"}`, `{"id":4,"name":"y","__deleted":"false"}`, `{"id":3,"name":null` + c.deleted + `}`})
			if c.gone {
				wantRows(t, got, `{"id":4,"name":"y"}`)
			} else {
				wantRows(t, got, `{"id":3,"name":null}`, `{"id":4,"name":"y"}`)
			}
		}
		dir := t.TempDir()
		must(t, dir, "create", "t", "--schema", "id BIGINT, name STRING NOT NULL")
		lines := []string{
			keyed(0, `{"id":1}`, debeziumChange("c", 10, "null", `{"id":1,"name":"a"}`, `"false"`), "{}"),
			keyed(1, `{"id":2}`, debeziumChange("c", 11, "null", `{"id":2,"name":"b"}`, `"false"`), "{}"),
			keyed(2, `{"id":1}`, debeziumChange("d", 20, `{"id":1}`, "null", `"false"`), "{}"),
			keyed(3, `{"id":2}`, debeziumChange("d", 21, "null", "null", `"false"`), "{}"),
		}
		if err := os.WriteFile(filepath.Join(dir, "e.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, dir, "apply", "--into", "t", "--from", "e.jsonl", "--format", "debezium")
		if left := must(t, dir, "cat", "t", "-o", "jsonl"); left != "" {
			t.Errorf("left %s", left)
		}
	})
}
