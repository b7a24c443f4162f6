package engines

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Engine is one engine of another make. Paths are local directories. Methods
// that take a testing.TB fail the test on an error; Call returns it.
type Engine struct {
	p *process
}

// DeltaRS is delta-rs, by its Python package deltalake.
func DeltaRS(tb testing.TB) *Engine {
	tb.Helper()
	return &Engine{deltaRS.get(tb, "delta-rs", func(string) []string { return []string{"deltars"} },
		map[string]string{"deltalake": "DELTALAKE", "pyarrow": "PYARROW"})}
}

// Spark is Apache Spark with Delta Lake: one session, in UTC.
func Spark(tb testing.TB) *Engine {
	tb.Helper()
	return &Engine{spark.get(tb, "Spark", func(dir string) []string { return []string{"spark", filepath.Join(dir, "jars")} },
		map[string]string{"pyspark": "PYSPARK"})}
}

// All is every engine, for tests that hold for each.
func All(tb testing.TB) []*Engine {
	tb.Helper()
	return []*Engine{DeltaRS(tb), Spark(tb)}
}

// Name is "delta-rs" or "Spark".
func (e *Engine) Name() string { return e.p.name }

// Call does one operation of engine.py. An error of the engine is an
// [*EngineError].
func (e *Engine) Call(op string, args map[string]any) (json.RawMessage, error) {
	if path, ok := args["path"].(string); ok && !strings.Contains(path, "://") {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		args["path"] = abs
	}
	return e.p.call(op, args)
}

// Request is one operation of engine.py: "op" and its arguments, with absolute paths.
type Request map[string]any

// Sequence is what became of requests that were done one after the other: the
// results up to the first that failed, and why.
type Sequence struct {
	Results []json.RawMessage
	Err     error // an *EngineError
}

// Many does sequences of requests, two at a time, which is quicker for an engine that
// leaves processors idle.
func (e *Engine) Many(tb testing.TB, sequences ...[]Request) []Sequence {
	tb.Helper()
	var out []Sequence
	const most = 8 // a call has a time limit
	for len(sequences) > 0 {
		n := min(most, len(sequences))
		var answers []struct {
			Results []json.RawMessage
			Error   *EngineError
		}
		e.must(tb, &answers, "many", map[string]any{"sequences": sequences[:n]})
		for _, a := range answers {
			s := Sequence{Results: a.Results}
			if a.Error != nil {
				a.Error.Engine, a.Error.Op = e.Name(), "many"
				s.Err = a.Error
			}
			out = append(out, s)
		}
		sequences = sequences[n:]
	}
	return out
}

func (e *Engine) must(tb testing.TB, out any, op string, args map[string]any) {
	tb.Helper()
	raw, err := e.Call(op, args)
	if err == nil && out != nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Rows is the content of the newest version.
func (e *Engine) Rows(tb testing.TB, path string) (rows []string) {
	tb.Helper()
	e.must(tb, &rows, "rows", map[string]any{"path": path})
	return rows
}

// RowsAt is the content of one version.
func (e *Engine) RowsAt(tb testing.TB, path string, version int64) (rows []string) {
	tb.Helper()
	e.must(tb, &rows, "rows", map[string]any{"path": path, "version": version})
	return rows
}

// Changes is the change feed of versions from to to, both inclusive, with
// _change_type and _commit_version and without _commit_timestamp.
func (e *Engine) Changes(tb testing.TB, path string, from, to int64) (rows []string) {
	tb.Helper()
	e.must(tb, &rows, "changes", map[string]any{"path": path, "start": from, "end": to})
	return rows
}

// SQL runs a statement; tables gives names to table paths.
func (e *Engine) SQL(tb testing.TB, text string, tables map[string]string) (rows []string) {
	tb.Helper()
	if tables == nil {
		tables = map[string]string{}
	}
	e.must(tb, &rows, "sql", map[string]any{"text": text, "tables": tables})
	return rows
}

// Parquet is the content of one Parquet file, columns outside the table's
// schema included.
func (e *Engine) Parquet(tb testing.TB, path string) (rows []string) {
	tb.Helper()
	e.must(tb, &rows, "parquet", map[string]any{"path": path})
	return rows
}

// Version is the newest version.
func (e *Engine) Version(tb testing.TB, path string) (v int64) {
	tb.Helper()
	e.must(tb, &v, "version", map[string]any{"path": path})
	return v
}

// Schema is the schema in the JSON form of the protocol, as the engine sees it.
func (e *Engine) Schema(tb testing.TB, path string) (schema string) {
	tb.Helper()
	e.must(tb, &schema, "schema", map[string]any{"path": path})
	return schema
}

// CreateOptions describes a new table.
type CreateOptions struct {
	PartitionBy []string
	Properties  map[string]string
}

// Create makes an empty table; schema is in the JSON form of the protocol.
func (e *Engine) Create(tb testing.TB, path, schema string, opts CreateOptions) {
	tb.Helper()
	args := map[string]any{"path": path, "schema": schema, "partition_by": opts.PartitionBy, "properties": opts.Properties}
	if opts.PartitionBy == nil {
		args["partition_by"] = []string{}
	}
	e.must(tb, nil, "create", args)
}

// Append adds rows of the table's schema.
func (e *Engine) Append(tb testing.TB, path string, rows ...string) {
	tb.Helper()
	e.must(tb, nil, "append", map[string]any{"path": path, "rows": rows})
}

// Overwrite replaces all rows.
func (e *Engine) Overwrite(tb testing.TB, path string, rows ...string) {
	tb.Helper()
	e.must(tb, nil, "append", map[string]any{"path": path, "rows": rows, "overwrite": true})
}

// Update sets columns to SQL expressions where the condition holds ("": everywhere).
func (e *Engine) Update(tb testing.TB, path string, set map[string]string, where string) {
	tb.Helper()
	e.must(tb, nil, "update", withWhere(map[string]any{"path": path, "set": set}, where))
}

// Delete removes the rows for which the condition holds ("": all).
func (e *Engine) Delete(tb testing.TB, path, where string) {
	tb.Helper()
	e.must(tb, nil, "delete", withWhere(map[string]any{"path": path}, where))
}

func withWhere(args map[string]any, where string) map[string]any {
	if where != "" {
		args["where"] = where
	}
	return args
}

// MergeOptions describes a merge of rows s into the table t.
type MergeOptions struct {
	On         string // "t.id = s.id"
	DeleteWhen string // WHEN MATCHED AND this THEN DELETE, before the update; "": never
	NoUpdate   bool   // leave out WHEN MATCHED THEN UPDATE SET *
	NoInsert   bool   // leave out WHEN NOT MATCHED THEN INSERT *
}

// Merge merges rows of the table's schema.
func (e *Engine) Merge(tb testing.TB, path string, opts MergeOptions, rows ...string) {
	tb.Helper()
	args := map[string]any{"path": path, "rows": rows, "on": opts.On, "update": !opts.NoUpdate, "insert": !opts.NoInsert}
	if opts.DeleteWhen != "" {
		args["delete_when"] = opts.DeleteWhen
	}
	e.must(tb, nil, "merge", args)
}

// Optimize compacts small files.
func (e *Engine) Optimize(tb testing.TB, path string) {
	tb.Helper()
	e.must(tb, nil, "optimize", map[string]any{"path": path})
}

// Restore makes an older version the newest content.
func (e *Engine) Restore(tb testing.TB, path string, version int64) {
	tb.Helper()
	e.must(tb, nil, "restore", map[string]any{"path": path, "version": version})
}

// Vacuum deletes what no version of the last hours needs; 0 is allowed.
func (e *Engine) Vacuum(tb testing.TB, path string, hours int) {
	tb.Helper()
	e.must(tb, nil, "vacuum", map[string]any{"path": path, "hours": hours})
}

// Checkpoint writes a checkpoint of the newest version.
func (e *Engine) Checkpoint(tb testing.TB, path string) {
	tb.Helper()
	e.must(tb, nil, "checkpoint", map[string]any{"path": path})
}
