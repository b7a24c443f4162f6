package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

var ctx = context.Background()

// ours is a table of ours on the local disk.
type ours struct {
	t    *testing.T
	path string
	*delta.Table
}

func at(t *testing.T, path string) storage.Store {
	t.Helper()
	s, err := storage.NewLocal(path, storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, ddl string, partition []string, props map[string]string) *ours {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a table")
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := delta.Create(ctx, at(t, path), delta.CreateOptions{Schema: s, PartitionBy: partition, Properties: props}, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &ours{t, path, tb}
}

func open(t *testing.T, path string) *ours {
	t.Helper()
	tb, err := delta.Open(ctx, at(t, path), delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &ours{t, path, tb}
}

// lines are rows in the JSON form of the command line.
func lines(t *testing.T, s *schema.Struct, rows iter.Seq2[arrow.RecordBatch, error]) []string {
	t.Helper()
	var b bytes.Buffer
	w, err := rowio.NewWriter(&b, rowio.JSONL, s, rowio.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for batch, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")[:bytes.Count(b.Bytes(), []byte("\n"))]
}

// input are rows from the same form.
func (o *ours) input(rows ...string) iter.Seq2[arrow.RecordBatch, error] {
	o.t.Helper()
	s, err := o.Schema(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	return rowio.Read(ctx, strings.NewReader(strings.Join(rows, "\n")), rowio.JSONL, rowio.ReadOptions{Schema: s})
}

func (o *ours) append(rows ...string) {
	o.t.Helper()
	if _, err := o.Append(ctx, o.input(rows...), delta.WriteOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *ours) update(set, where string) {
	o.t.Helper()
	if _, err := o.Update(ctx, set, where, delta.DMLOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *ours) delete(where string) {
	o.t.Helper()
	if _, err := o.Delete(ctx, where, delta.DMLOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *ours) overwrite(w delta.OverwriteOptions, rows ...string) {
	o.t.Helper()
	if _, err := o.Overwrite(ctx, o.input(rows...), w); err != nil {
		o.t.Fatal(err)
	}
}

func (o *ours) rows(version int64) []string {
	o.t.Helper()
	so := delta.ScanOptions{}
	if version >= 0 {
		so.Version = &version
	}
	s, err := o.Scan(ctx, so)
	if err != nil {
		o.t.Fatal(err)
	}
	return lines(o.t, s.Schema(), s.Batches(ctx))
}

// changes is the feed without commit times, which delta-rs takes from elsewhere.
func (o *ours) changes(from, to int64) []string {
	o.t.Helper()
	f, err := o.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from, ToVersion: &to}})
	if err != nil {
		o.t.Fatal(err)
	}
	out := lines(o.t, f.Schema, f.Rows(ctx))
	for i, l := range out {
		out[i] = l[:strings.LastIndex(l, `,"_commit_timestamp"`)] + "}"
	}
	return out
}

func (o *ours) version() int64 {
	o.t.Helper()
	s, err := o.Snapshot(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	return s.Version
}

// same holds what an engine reads of the table against what we read: the newest and
// two older versions, and the feed from version from on (-1: no feed).
func (o *ours) same(e *engines.Engine, from int64) {
	o.t.Helper()
	last := o.version()
	if v := e.Version(o.t, o.path); v != last {
		o.t.Errorf("%s: version %d, want %d", e.Name(), v, last)
	}
	engines.SameRows(o.t, e.Rows(o.t, o.path), o.rows(-1))
	for v := last % 2; v < last; v += 1 + last/2 {
		engines.SameRows(o.t, e.RowsAt(o.t, o.path, v), o.rows(v))
	}
	if from >= 0 {
		engines.SameRows(o.t, e.Changes(o.t, o.path, from, last), o.changes(from, last))
	}
}

const wideDDL = "id BIGINT, i INT, s SMALLINT, b TINYINT, f FLOAT, d DOUBLE, m DECIMAL(38,10), m9 DECIMAL(9,2), t STRING, x BINARY, o BOOLEAN, day DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, " +
	"st STRUCT<p: BIGINT, q: STRUCT<r: STRING>>, l ARRAY<DECIMAL(5,2)>, ls ARRAY<STRUCT<a: INT>>, mp MAP<STRING, TIMESTAMP>, mi MAP<INT, STRING>"

var wideRows = []string{
	`{"id":9223372036854775807,"i":-2147483648,"s":-32768,"b":127,"f":0.1,"d":1e-7,"m":1234567890123456789012345678.0123456789,"m9":-1234567.89,"t":"ü\"\n","x":"AAH/","o":true,"day":"1582-10-04","ts":"2024-05-01T10:00:00.123456Z","n":"0001-01-01T00:00:00.000001","st":{"p":1,"q":null},"l":[1.50,null,-0.01],"ls":[{"a":1},null,{"a":null}],"mp":{"a":"1969-12-31T23:59:59.999999Z","b":null},"mi":[{"key":2,"value":"z"}]}`,
	`{"id":2,"i":null,"s":null,"b":null,"f":null,"d":null,"m":null,"m9":null,"t":null,"x":null,"o":null,"day":null,"ts":null,"n":null,"st":null,"l":null,"ls":null,"mp":null,"mi":null}`,
	`{"id":3,"i":1,"s":2,"b":3,"f":"NaN","d":"-Infinity","m":-0.0000000001,"m9":0.01,"t":"","x":"","o":false,"day":"9999-12-31","ts":"2262-04-11T23:47:16.854775Z","n":"9999-12-31T23:59:59.999999","st":{"p":null,"q":{"r":null}},"l":[],"ls":[],"mp":{},"mi":[]}`,
	`{"id":4,"i":0,"s":0,"b":-128,"f":3.4028235e+38,"d":1.7976931348623157e+308,"m":0,"m9":0,"t":"日本 😀","x":"/w==","o":true,"day":"1970-01-01","ts":"0001-01-01T00:00:00.000000Z","n":"1970-01-01T00:00:00.000000","st":{"p":-1,"q":{"r":""}},"l":[999.99],"ls":[{"a":-1}],"mp":{"":"2024-02-29T12:00:00.000000Z"},"mi":[{"key":-1,"value":null},{"key":0,"value":""}]}`,
}

// TestConformance_Types: every type that we write is read by the others.
func TestConformance_Types(t *testing.T) {
	o := create(t, wideDDL, nil, nil)
	o.append(wideRows...)
	o.append(wideRows[1])
	engines.SameRows(t, o.rows(1), wideRows)
	for _, e := range engines.All(t) {
		t.Run(e.Name(), func(t *testing.T) {
			o := open(t, o.path)
			o.same(e, -1)
		})
	}
	// Predicates on our statistics must not lose rows in engines that prune by them.
	var counts, want []string
	for i, where := range []string{"id > 100", "m < 0", "t >= 'z'", "day = DATE '1970-01-01'", "ts < TIMESTAMP '2000-01-01T00:00:00Z'", "st.p = 1", "m9 = 0.01", "i IS NULL", "f > 1"} {
		s, err := o.Scan(ctx, delta.ScanOptions{Where: where})
		if err != nil {
			t.Fatal(err)
		}
		n, err := s.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, fmt.Sprintf("SELECT %d AS i, count(*) AS n FROM x WHERE %s", i, where))
		want = append(want, fmt.Sprintf(`{"i":%d,"n":%d}`, i, n))
	}
	engines.SameRows(t, engines.Spark(t).SQL(t, strings.Join(counts, " UNION ALL "), map[string]string{"x": o.path}), want)
}

// history does every operation of ours on a partitioned table.
func history(o *ours) {
	o.append(`{"id":1,"v":"one","p":"a","n":1.50}`, `{"id":2,"v":"two","p":"b-c","n":null}`, `{"id":3,"v":"three","p":null,"n":3.00}`, `{"id":4,"v":null,"p":"a","n":4.00}`)
	o.update("v = upper(v), n = n * 2", "id <= 2")
	o.delete("id = 1")
	o.update("p = 'd'", "p IS NULL")
	o.append(`{"id":5,"v":"five","p":"b-c","n":5.25}`, `{"id":6,"v":"six","p":"e","n":null}`)
	o.overwrite(delta.OverwriteOptions{Where: "p = 'b-c' AND id > 2"}, `{"id":7,"v":"seven","p":"b-c","n":7.00}`)
	o.overwrite(delta.OverwriteOptions{Dynamic: true}, `{"id":8,"v":"eight","p":"e","n":8.00}`)
	o.delete("p = 'a'")
	o.delete("id = 2 OR id = 8")
	o.overwrite(delta.OverwriteOptions{}, `{"id":9,"v":"nine","p":"z","n":9.00}`, `{"id":10,"v":"ten","p":"a","n":10.00}`)
	o.update("n = id", "")
	o.delete("")
	o.append(`{"id":11,"v":"eleven","p":"a","n":11.00}`)
}

// TestConformance_History: each version and the feed of every operation of ours, as
// the others see them.
func TestConformance_History(t *testing.T) {
	for _, c := range []struct {
		name  string
		props map[string]string
		from  int64
	}{
		{"plain", nil, -1},
		{"change feed", map[string]string{"delta.enableChangeDataFeed": "true"}, 0},
		{"checkpoint after every commit", map[string]string{"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "1"}, 0},
		{"statistics as struct", map[string]string{"delta.checkpointInterval": "3", "delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}, -1},
		{"zstd", map[string]string{"delta.parquet.compression.codec": "zstd"}, -1},
		{"column mapping", map[string]string{"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := create(t, "id BIGINT, v STRING, p STRING, n DECIMAL(12,2)", []string{"p"}, c.props)
			history(o)
			for _, e := range engines.All(t) {
				t.Run(e.Name(), func(t *testing.T) {
					from := c.from
					if c.name == "column mapping" && e.Name() == "delta-rs" {
						from = -1 // it does not read the feed of mapped tables, and says so
					}
					open(t, o.path).same(e, from)
				})
			}
		})
	}
}

// TestConformance_Partitions: partition values of every type, and those with special
// characters, in the paths that we give them.
func TestConformance_Partitions(t *testing.T) {
	types := create(t, "id BIGINT, i INT, d DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, m DECIMAL(10,3), b BOOLEAN, f DOUBLE", []string{"i", "d", "ts", "n", "m", "b", "f"}, nil)
	types.append(
		`{"id":1,"i":-5,"d":"2024-02-29","ts":"2024-06-15T19:30:45.000000Z","n":"2024-06-15T12:30:45.000000","m":1.230,"b":true,"f":1.5}`,
		`{"id":2,"i":null,"d":null,"ts":null,"n":null,"m":null,"b":null,"f":null}`,
		`{"id":3,"i":0,"d":"1969-12-31","ts":"1969-12-31T23:59:59.999999Z","n":"1969-12-31T23:59:59.999999","m":-0.001,"b":false,"f":1e22}`)
	text := create(t, "id BIGINT, p STRING", []string{"p"}, map[string]string{"delta.enableChangeDataFeed": "true"})
	special := []string{"US/East", "Serbia/srb%", "a b", "a=b", "a:b", "#?&+", "ü日本😀", "{x}[y]", "'\"`", "back\\slash", "..", "a%2Fb", "tab\tline\n", "~!@$^*()", "C:\\x"}
	var rows []string
	for i, p := range special {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, fmt.Sprintf(`{"id":%d,"p":%s}`, i, b))
	}
	text.append(append(rows, `{"id":100,"p":""}`, `{"id":101,"p":null}`)...)
	text.update("id = id + 1000", "id % 2 = 0")
	text.delete("p = 'a b' OR id = 1")
	for _, e := range engines.All(t) {
		t.Run(e.Name(), func(t *testing.T) {
			open(t, types.path).same(e, -1)
			from := int64(0)
			if e.Name() == "delta-rs" {
				from = -1 // its feed reader does not decode paths
			}
			open(t, text.path).same(e, from)
		})
	}
}

// TestConformance_Foreign: tables that the others write are read, changed by us and
// read by them again.
func TestConformance_Foreign(t *testing.T) {
	const narrow = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},{"name":"v","type":"string","nullable":true,"metadata":{}},{"name":"p","type":"string","nullable":true,"metadata":{}},{"name":"n","type":"decimal(12,2)","nullable":true,"metadata":{}}]}`
	for _, w := range engines.All(t) {
		for _, feed := range []string{"false", "true"} {
			t.Run(w.Name()+" writes, feed "+feed, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "a table")
				w.Create(t, path, narrow, engines.CreateOptions{PartitionBy: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": feed}})
				w.Append(t, path, `{"id":1,"v":"one","p":"a","n":1.50}`, `{"id":2,"v":"two","p":"b-c","n":null}`, `{"id":3,"v":"three","p":null,"n":3.00}`)
				w.Update(t, path, map[string]string{"v": "'TWO'"}, "id = 2")
				w.Delete(t, path, "id = 1")
				o := open(t, path)
				history(o)
				w.Append(t, path, `{"id":20,"v":"twenty","p":"a","n":20.00}`)
				w.Update(t, path, map[string]string{"n": "n + 1"}, "p = 'a'")
				o.update("v = 'ours'", "id = 20")
				w.Checkpoint(t, path)
				o.delete("id = 11")
				from := int64(-1)
				if feed == "true" {
					from = 0
				}
				for _, r := range engines.All(t) {
					t.Run(r.Name()+" reads", func(t *testing.T) {
						open(t, path).same(r, from)
					})
				}
			})
		}
	}
}

// TestConformance_DeletionVectors: a table with deletion vectors of Spark, changed by
// us by rewriting.
func TestConformance_DeletionVectors(t *testing.T) {
	spark := engines.Spark(t)
	path := filepath.Join(t.TempDir(), "t")
	spark.Create(t, path, `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},{"name":"v","type":"string","nullable":true,"metadata":{}}]}`,
		engines.CreateOptions{Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}})
	var rows []string
	for i := range 50 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"v":"v%d"}`, i, i))
	}
	spark.Append(t, path, rows...)
	spark.Delete(t, path, "id % 5 = 0")
	o := open(t, path)
	o.update("v = concat(v, '!')", "id < 7")
	o.delete("id > 40")
	o.append(`{"id":100,"v":"new"}`)
	spark.Delete(t, path, "id = 100 OR id = 12")
	o.delete("id % 2 = 0")
	for _, e := range engines.All(t) {
		t.Run(e.Name(), func(t *testing.T) {
			from := int64(0)
			if e.Name() == "delta-rs" {
				from = -1 // its feed of a removed file with a deletion vector is wrong
			}
			open(t, path).same(e, from)
		})
	}
}
