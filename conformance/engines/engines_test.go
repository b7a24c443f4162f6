package engines_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
)

// wide has a column of every type that travels. All are nullable: delta-rs makes
// a table with both NOT NULL and timestamp_ntz that Spark refuses.
const wide = `{"type":"struct","fields":[
 {"name":"id","type":"long","nullable":true,"metadata":{}},
 {"name":"i","type":"integer","nullable":true,"metadata":{}},
 {"name":"s","type":"short","nullable":true,"metadata":{}},
 {"name":"b","type":"byte","nullable":true,"metadata":{}},
 {"name":"f","type":"float","nullable":true,"metadata":{}},
 {"name":"d","type":"double","nullable":true,"metadata":{}},
 {"name":"m","type":"decimal(38,10)","nullable":true,"metadata":{}},
 {"name":"t","type":"string","nullable":true,"metadata":{}},
 {"name":"x","type":"binary","nullable":true,"metadata":{}},
 {"name":"o","type":"boolean","nullable":true,"metadata":{}},
 {"name":"day","type":"date","nullable":true,"metadata":{}},
 {"name":"ts","type":"timestamp","nullable":true,"metadata":{}},
 {"name":"n","type":"timestamp_ntz","nullable":true,"metadata":{}},
 {"name":"st","type":{"type":"struct","fields":[{"name":"p","type":"long","nullable":true,"metadata":{}},{"name":"q","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
 {"name":"l","type":{"type":"array","elementType":"decimal(5,2)","containsNull":true},"nullable":true,"metadata":{}},
 {"name":"mp","type":{"type":"map","keyType":"string","valueType":"timestamp","valueContainsNull":true},"nullable":true,"metadata":{}},
 {"name":"mi","type":{"type":"map","keyType":"integer","valueType":"string","valueContainsNull":true},"nullable":true,"metadata":{}}]}`

var wideRows = []string{
	`{"id":9223372036854775807,"i":-2147483648,"s":-32768,"b":127,"f":0.1,"d":1e-7,"m":1234567890123456789012345678.0123456789,"t":"ü\"\n","x":"AAH/","o":true,"day":"1582-10-04","ts":"2024-05-01T10:00:00.123456Z","n":"0001-01-01T00:00:00.000001","st":{"p":1,"q":null},"l":[1.50,null,-0.01],"mp":{"a":"1969-12-31T23:59:59.999999Z","b":null},"mi":[{"key":2,"value":"z"}]}`,
	`{"id":2,"i":null,"s":null,"b":null,"f":null,"d":null,"m":null,"t":null,"x":null,"o":null,"day":null,"ts":null,"n":null,"st":null,"l":null,"mp":null,"mi":null}`,
	`{"id":3,"i":1,"s":2,"b":3,"f":"NaN","d":"-Infinity","m":-0.0000000001,"t":"","x":"","o":false,"day":"9999-12-31","ts":"2262-04-11T23:47:16.854775Z","n":"9999-12-31T23:59:59.999999","st":{"p":null,"q":"q"},"l":[],"mp":{},"mi":[]}`,
	`{"id":4,"i":0,"s":0,"b":-128,"f":3.4028235e+38,"d":1.7976931348623157e+308,"m":0,"t":"日本","x":"/w==","o":true,"day":"1970-01-01","ts":"1677-09-21T00:12:43.145225Z","n":"1970-01-01T00:00:00.000000","st":{"p":-1,"q":""},"l":[999.99],"mp":{"":"2024-02-29T12:00:00.000000Z"},"mi":[{"key":-1,"value":null},{"key":0,"value":""}]}`,
}

const narrow = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},{"name":"v","type":"string","nullable":true,"metadata":{}},{"name":"p","type":"string","nullable":true,"metadata":{}}]}`

// TestEngine_EveryTypeBothWays: what one engine writes it reads back, and so
// does the other, value by value.
func TestEngine_EveryTypeBothWays(t *testing.T) {
	all := engines.All(t)
	for _, writer := range all {
		t.Run(writer.Name()+" writes", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t")
			writer.Create(t, path, wide, engines.CreateOptions{})
			writer.Append(t, path, wideRows...)
			for _, reader := range all {
				t.Run(reader.Name()+" reads", func(t *testing.T) {
					engines.SameRows(t, reader.Rows(t, path), wideRows)
					if got := columns(t, reader.Schema(t, path)); got != columns(t, wide) {
						t.Errorf("schema\n got  %s\n want %s", got, columns(t, wide))
					}
				})
			}
		})
	}
}

// columns is a schema without the spelling of its metadata.
func columns(t *testing.T, schema string) string {
	var s struct {
		Fields []struct {
			Name     string          `json:"name"`
			Type     json.RawMessage `json:"type"`
			Nullable bool            `json:"nullable"`
		} `json:"fields"`
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range s.Fields {
		typ := string(f.Type)
		if strings.HasPrefix(typ, "{") {
			typ = "nested"
		}
		b.WriteString(f.Name + " " + typ + " ")
		if !f.Nullable {
			b.WriteString("not null ")
		}
	}
	return b.String()
}

// TestEngine_Operations: each engine changes a table with a change feed; both
// see the same rows, versions and changes after each step.
func TestEngine_Operations(t *testing.T) {
	all := engines.All(t)
	for _, w := range all {
		t.Run(w.Name(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a table")
			w.Create(t, path, narrow, engines.CreateOptions{PartitionBy: []string{"p"},
				Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
			w.Append(t, path, `{"id":1,"v":"one","p":"a"}`, `{"id":2,"v":"two","p":"b-c"}`, `{"id":3,"v":"three","p":null}`)
			w.Update(t, path, map[string]string{"v": "'TWO'"}, "id = 2")
			w.Delete(t, path, "id = 1")
			w.Merge(t, path, engines.MergeOptions{On: "t.id = s.id", DeleteWhen: "s.v = 'gone'"},
				`{"id":2,"v":"zwei","p":"b-c"}`, `{"id":3,"v":"gone","p":null}`, `{"id":4,"v":"four","p":"a"}`)
			merged := []string{`{"id":2,"v":"zwei","p":"b-c"}`, `{"id":4,"v":"four","p":"a"}`}
			changes := []string{
				`{"id":1,"v":"one","p":"a","_change_type":"insert","_commit_version":1}`,
				`{"id":2,"v":"two","p":"b-c","_change_type":"insert","_commit_version":1}`,
				`{"id":3,"v":"three","p":null,"_change_type":"insert","_commit_version":1}`,
				`{"id":2,"v":"two","p":"b-c","_change_type":"update_preimage","_commit_version":2}`,
				`{"id":2,"v":"TWO","p":"b-c","_change_type":"update_postimage","_commit_version":2}`,
				`{"id":1,"v":"one","p":"a","_change_type":"delete","_commit_version":3}`,
				`{"id":2,"v":"TWO","p":"b-c","_change_type":"update_preimage","_commit_version":4}`,
				`{"id":2,"v":"zwei","p":"b-c","_change_type":"update_postimage","_commit_version":4}`,
				`{"id":3,"v":"three","p":null,"_change_type":"delete","_commit_version":4}`,
				`{"id":4,"v":"four","p":"a","_change_type":"insert","_commit_version":4}`,
			}
			for _, r := range all {
				engines.SameRows(t, r.Rows(t, path), merged)
				engines.SameRows(t, r.Changes(t, path, 0, 4), changes)
				engines.SameRows(t, r.Changes(t, path, 3, 3), changes[5:6])
				engines.SameRows(t, r.RowsAt(t, path, 2), []string{`{"id":1,"v":"one","p":"a"}`, `{"id":2,"v":"TWO","p":"b-c"}`, `{"id":3,"v":"three","p":null}`})
				if v := r.Version(t, path); v != 4 {
					t.Errorf("%s: version %d", r.Name(), v)
				}
				engines.SameRows(t, r.SQL(t, "SELECT count(*) AS n FROM x WHERE id > 2", map[string]string{"x": path}), []string{`{"n":1}`})
			}
			w.Append(t, path, `{"id":5,"v":"five","p":"a"}`)
			w.Optimize(t, path)
			w.Checkpoint(t, path)
			for _, r := range all {
				engines.SameRows(t, r.Rows(t, path), append(merged, `{"id":5,"v":"five","p":"a"}`))
			}
			w.Restore(t, path, 1)
			w.Vacuum(t, path, 0)
			w.Overwrite(t, path, `{"id":9,"v":null,"p":"z"}`)
			for _, r := range all {
				engines.SameRows(t, r.Rows(t, path), []string{`{"id":9,"v":null,"p":"z"}`})
			}
			files, err := filepath.Glob(filepath.Join(path, "p=z", "*.parquet"))
			if err != nil || len(files) != 1 {
				t.Fatalf("files %v, %v", files, err)
			}
			file := `{"id":9,"v":null}`
			if w.Name() == "Spark" { // it also stores the partition columns
				file = `{"id":9,"v":null,"p":"z"}`
			}
			engines.SameRows(t, w.Parquet(t, files[0]), []string{file})
		})
	}
}

// farTimes are timestamps that 64-bit nanoseconds cannot hold.
var farTimes = []string{`{"ts":"1582-10-04T00:00:00.000000Z"}`, `{"ts":"9999-12-31T23:59:59.999999Z"}`, `{"ts":"0001-01-01T00:00:00.000000Z"}`}

// TestEngine_FarTimestamps: delta-rs reads the INT96 that Spark writes through
// nanoseconds, so what is far from 1970 comes out wrong. When this fails, the
// engine was mended: then compare such tables without exceptions.
func TestEngine_FarTimestamps(t *testing.T) {
	schema := `{"type":"struct","fields":[{"name":"ts","type":"timestamp","nullable":true,"metadata":{}}]}`
	all := engines.All(t)
	for _, w := range all {
		path := filepath.Join(t.TempDir(), "t")
		w.Create(t, path, schema, engines.CreateOptions{})
		w.Append(t, path, farTimes...)
		for _, r := range all {
			wrong := engines.DiffRows(r.Rows(t, path), farTimes) != ""
			if known := w.Name() == "Spark" && r.Name() == "delta-rs"; wrong != known {
				t.Errorf("%s writes, %s reads: differs %v, known to differ %v", w.Name(), r.Name(), wrong, known)
			}
		}
	}
}

// TestEngine_EscapedPartitionFeed: delta-rs writes change files under paths that
// its own load_cdf does not decode. As above, a failure means it was mended.
func TestEngine_EscapedPartitionFeed(t *testing.T) {
	e := engines.DeltaRS(t)
	path := filepath.Join(t.TempDir(), "t")
	e.Create(t, path, narrow, engines.CreateOptions{PartitionBy: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
	e.Append(t, path, `{"id":1,"v":"one","p":"b c"}`)
	e.Update(t, path, map[string]string{"v": "'ONE'"}, "id = 1")
	if _, err := e.Call("changes", map[string]any{"path": path, "start": 0, "end": 2}); err == nil {
		t.Error("load_cdf reads the change feed of a partition value with a space")
	}
	changes := engines.Spark(t).Changes(t, path, 2, 2)
	engines.SameRows(t, changes, []string{
		`{"id":1,"v":"one","p":"b c","_change_type":"update_preimage","_commit_version":2}`,
		`{"id":1,"v":"ONE","p":"b c","_change_type":"update_postimage","_commit_version":2}`})
}

// TestEngine_Errors: an engine's refusal is an answer, and the engine lives on.
func TestEngine_Errors(t *testing.T) {
	for _, e := range engines.All(t) {
		t.Run(e.Name(), func(t *testing.T) {
			_, err := e.Call("rows", map[string]any{"path": t.TempDir()})
			var ee *engines.EngineError
			if !errors.As(err, &ee) || ee.Class == "" || ee.Message == "" {
				t.Fatalf("rows of an empty directory: %v", err)
			}
			if _, err := e.Call("no such op", nil); !errors.As(err, &ee) {
				t.Fatalf("unknown op: %v", err)
			}
			path := filepath.Join(t.TempDir(), "t")
			e.Create(t, path, narrow, engines.CreateOptions{})
			if _, err := os.Stat(filepath.Join(path, "_delta_log", "00000000000000000000.json")); err != nil {
				t.Fatal(err)
			}
			engines.SameRows(t, e.Rows(t, path), nil)
		})
	}
}
