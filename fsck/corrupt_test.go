package fsck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// damaged is a table to damage.
type damaged struct {
	t *testing.T
	m *storage.Memory
	d *delta.Table
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// busy is a table with everything that can break: versions 0 to 8, the checkpoint of
// version 5, a compaction of 1 to 3, checksums, a deletion vector, change files,
// partitions.
func busy(t *testing.T, props map[string]string) damaged {
	t.Helper()
	ctx := t.Context()
	m := storage.NewMemory("t")
	all := map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
	for k, v := range props {
		all[k] = v
	}
	d := testtable.New(t, testtable.Spec{DDL: "id BIGINT, name STRING, p INT", Partition: []string{"p"}, Properties: all, Store: m,
		Rows: []string{testtable.Numbers(0, 40, `,"name":"n%","p":1`), testtable.Numbers(40, 80, `,"name":"n%","p":2`), testtable.Numbers(80, 120, `,"name":"n%","p":1`)}})
	deleted := func(where string) {
		_, err := d.Delete(ctx, where, delta.DMLOptions{})
		must(t, err)
	}
	deleted("id in (1, 3, 50)") // 4
	_, err := d.Update(ctx, "name = 'x'", "id = 5", delta.DMLOptions{})
	must(t, err) // 5
	_, err = d.Checkpoint(ctx)
	must(t, err)
	must(t, d.Log().WriteCompaction(ctx, 1, 3))
	_, err = d.Append(ctx, testtable.Rows(t, "id BIGINT, name STRING, p INT", testtable.Numbers(200, 240, `,"name":"m%","p":3`)), delta.WriteOptions{})
	must(t, err)                   // 6
	deleted("id in (201, 203)")    // 7
	deleted("id = 90 or id = 205") // 8
	return damaged{t, m, d}
}

func (d damaged) read(key string) []byte {
	d.t.Helper()
	data, err := storage.ReadAll(context.Background(), d.m, key)
	must(d.t, err)
	return data
}

func (d damaged) put(key string, data []byte) {
	d.t.Helper()
	must(d.t, d.m.Put(context.Background(), key, data))
}

func (d damaged) drop(key string) {
	d.t.Helper()
	d.read(key)
	must(d.t, d.m.Delete(context.Background(), key))
}

// edit changes the actions of a commit; f gets each line, and drops it with nil.
func (d damaged) edit(version int64, f func(map[string]map[string]any) map[string]map[string]any) {
	d.t.Helper()
	key := deltalog.CommitKey(version)
	was := d.read(key)
	var out bytes.Buffer
	for _, line := range bytes.Split(bytes.TrimSpace(was), []byte("\n")) {
		var action map[string]map[string]any
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		must(d.t, dec.Decode(&action))
		if action = f(action); action != nil {
			data, err := json.Marshal(action)
			must(d.t, err)
			out.Write(append(data, '\n'))
		}
	}
	if bytes.Equal(was, out.Bytes()) {
		d.t.Fatalf("%s was not changed", key)
	}
	d.put(key, out.Bytes())
}

// set changes one field of the actions of a kind.
func (d damaged) set(version int64, kind, field string, change func(any) any) {
	d.t.Helper()
	d.edit(version, func(a map[string]map[string]any) map[string]map[string]any {
		if body, ok := a[kind]; ok {
			body[field] = change(body[field])
		}
		return a
	})
}

func to(v any) func(any) any { return func(any) any { return v } }

func replace(old, now string) func(any) any {
	return func(v any) any { return strings.Replace(v.(string), old, now, 1) }
}

// path is the path of the first action of a kind in a commit.
func (d damaged) path(version int64, kind string) string {
	d.t.Helper()
	var out string
	for _, line := range bytes.Split(bytes.TrimSpace(d.read(deltalog.CommitKey(version))), []byte("\n")) {
		var action map[string]struct{ Path string }
		if json.Unmarshal(line, &action) == nil && action[kind].Path != "" && out == "" {
			out = action[kind].Path
		}
	}
	if out == "" {
		d.t.Fatalf("no %s in version %d", kind, version)
	}
	return out
}

func (d damaged) find(part string) string {
	d.t.Helper()
	for _, key := range testtable.Files(d.t, d.m) {
		if strings.Contains(key, part) {
			return key
		}
	}
	d.t.Fatalf("no %s", part)
	return ""
}

const (
	checkpoint5 = "_delta_log/00000000000000000005.checkpoint.parquet"
	compaction3 = "_delta_log/00000000000000000001.00000000000000000003.compacted.json"
	hintKey     = "_delta_log/_last_checkpoint"
)

var tracked = map[string]string{"delta.enableRowTracking": "true"}
var timed = map[string]string{"delta.enableInCommitTimestamps": "true"}

// corruptions are what is done to a table and the code that must find it.
var corruptions = []struct {
	name, code string
	severity   deltalog.Severity
	props      map[string]string
	do         func(damaged)
}{
	{"a commit below the checkpoint is missing", deltalog.FsckCommitMissing, deltalog.SevereWarning, nil, func(d damaged) { d.drop(deltalog.CommitKey(2)) }},
	{"a commit above the checkpoint is missing", deltalog.FsckCommitMissing, deltalog.SevereError, nil, func(d damaged) { d.drop(deltalog.CommitKey(7)) }},
	{"the first commit above the checkpoint is missing", deltalog.FsckNoVersion, deltalog.SevereError, nil, func(d damaged) { d.drop(deltalog.CommitKey(6)) }},
	{"a commit is cut", deltalog.FsckCommitUnreadable, deltalog.SevereError, nil, func(d damaged) {
		data := d.read(deltalog.CommitKey(6))
		d.put(deltalog.CommitKey(6), data[:len(data)-30])
	}},
	{"a commit is no JSON", deltalog.FsckCommitUnreadable, deltalog.SevereError, nil, func(d damaged) { d.put(deltalog.CommitKey(3), []byte("no\n")) }},
	{"two metadata in a commit", deltalog.FsckCommitUnreadable, deltalog.SevereError, nil, func(d damaged) {
		lines := bytes.SplitAfter(d.read(deltalog.CommitKey(0)), []byte("\n"))
		i := slices.IndexFunc(lines, func(l []byte) bool { return bytes.Contains(l, []byte(`"metaData"`)) })
		d.put(deltalog.CommitKey(7), append(d.read(deltalog.CommitKey(7)), append(lines[i], lines[i]...)...))
	}},
	{"an unknown feature", deltalog.FsckMetadata, deltalog.SevereNote, nil, func(d damaged) {
		d.put(deltalog.CommitKey(7), append(d.read(deltalog.CommitKey(7)), `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["telepathy"],"writerFeatures":["telepathy"]}}`+"\n"...))
	}},
	{"a schema that is none", deltalog.FsckMetadata, deltalog.SevereError, nil, func(d damaged) { d.set(0, "metaData", "schemaString", to("{")) }},
	{"a file is removed that was none", deltalog.FsckRemoveUnknown, deltalog.SevereNote, nil, func(d damaged) { d.set(7, "remove", "path", to("p=3/else.parquet")) }},
	{"the remove beside a new vector is missing", deltalog.FsckFileTwice, deltalog.SevereError, nil, func(d damaged) {
		d.edit(7, func(a map[string]map[string]any) map[string]map[string]any {
			if a["remove"] != nil {
				return nil
			}
			return a
		})
	}},
	{"in-commit timestamps go back", deltalog.FsckCommitTime, deltalog.SevereError, timed, func(d damaged) { d.set(6, "commitInfo", "inCommitTimestamp", to(1)) }},
	{"an in-commit timestamp is missing", deltalog.FsckCommitTime, deltalog.SevereError, timed, func(d damaged) {
		d.edit(6, func(a map[string]map[string]any) map[string]map[string]any {
			delete(a["commitInfo"], "inCommitTimestamp")
			return a
		})
	}},

	{"a checkpoint is cut", deltalog.FsckCheckpoint, deltalog.SevereWarning, nil, func(d damaged) { d.put(checkpoint5, d.read(checkpoint5)[:200]) }},
	{"a checkpoint is empty", deltalog.FsckCheckpointPart, deltalog.SevereWarning, nil, func(d damaged) { d.put(checkpoint5, nil) }},
	{"a checkpoint is of another version", deltalog.FsckCheckpointDiffers, deltalog.SevereError, nil, func(d damaged) {
		d.put("_delta_log/00000000000000000007.checkpoint.parquet", d.read(checkpoint5))
	}},
	{"a part of a checkpoint is missing", deltalog.FsckCheckpointPart, deltalog.SevereWarning, nil, func(d damaged) {
		d.put("_delta_log/00000000000000000006.checkpoint.0000000001.0000000002.parquet", d.read(checkpoint5))
	}},
	{"a sidecar is missing", deltalog.FsckCheckpoint, deltalog.SevereWarning, map[string]string{"delta.checkpointPolicy": "v2"}, func(d damaged) { d.drop(d.find("_sidecars/")) }},
	{"_last_checkpoint names none", deltalog.FsckHint, deltalog.SevereWarning, nil, func(d damaged) { d.put(hintKey, []byte(`{"version":4,"size":3}`)) }},
	{"_last_checkpoint is no JSON", deltalog.FsckHint, deltalog.SevereWarning, nil, func(d damaged) { d.put(hintKey, []byte(`{"ver`)) }},
	{"_last_checkpoint has another checksum", deltalog.FsckHint, deltalog.SevereWarning, nil, func(d damaged) {
		d.put(hintKey, []byte(`{"version":5,"size":3,"checksum":"00000000000000000000000000000000"}`))
	}},
	{"a checksum counts other files", deltalog.FsckChecksum, deltalog.SevereWarning, nil, func(d damaged) {
		var sum map[string]any
		must(d.t, json.Unmarshal(d.read(deltalog.ChecksumKey(8)), &sum))
		sum["numFiles"] = 77
		data, err := json.Marshal(sum)
		must(d.t, err)
		d.put(deltalog.ChecksumKey(8), data)
	}},
	{"a checksum is no JSON", deltalog.FsckChecksum, deltalog.SevereWarning, nil, func(d damaged) { d.put(deltalog.ChecksumKey(8), []byte("{")) }},
	{"a compaction file lacks a file", deltalog.FsckCompaction, deltalog.SevereError, nil, func(d damaged) {
		data := d.read(compaction3)
		d.put(compaction3, data[:bytes.LastIndexByte(data[:len(data)-1], '\n')+1])
	}},
	{"a compaction file is no JSON", deltalog.FsckCompaction, deltalog.SevereWarning, nil, func(d damaged) { d.put(compaction3, []byte("[")) }},

	{"a data file is missing", FileMissing, deltalog.SevereError, nil, func(d damaged) { d.drop(d.path(6, "add")) }},
	{"a data file is cut", FileSize, deltalog.SevereError, nil, func(d damaged) {
		key := d.path(6, "add")
		d.put(key, d.read(key)[:100])
	}},
	{"the footer of a data file is damaged", FileUnreadable, deltalog.SevereError, nil, func(d damaged) {
		key := d.path(6, "add")
		data := d.read(key)
		copy(data[len(data)-8:], "\xff\xff\xff\xff")
		d.put(key, data)
	}},
	{"the pages of a data file are damaged", FileUnreadable, deltalog.SevereError, nil, func(d damaged) {
		key := d.path(6, "add")
		data := d.read(key)
		for i := 4; i < 60; i++ {
			data[i] = 0xff
		}
		d.put(key, data)
	}},
	{"numRecords is wrong", FileRows, deltalog.SevereError, nil, func(d damaged) { d.set(8, "add", "stats", replace(`"numRecords":40`, `"numRecords":39`)) }},
	{"a minimum is too high", Statistics, deltalog.SevereError, nil, func(d damaged) { d.set(8, "add", "stats", replace(`"minValues":{"id":200`, `"minValues":{"id":215`)) }},
	{"a maximum is too low", Statistics, deltalog.SevereError, nil, func(d damaged) { d.set(8, "add", "stats", replace(`"maxValues":{"id":239`, `"maxValues":{"id":215`)) }},
	{"a maximum of text is too low", Statistics, deltalog.SevereError, nil, func(d damaged) { d.set(8, "add", "stats", replace(`"name":"m239"`, `"name":"m"`)) }},
	{"a partition value is of another type", PartitionValue, deltalog.SevereError, nil, func(d damaged) { d.set(8, "add", "partitionValues", to(map[string]any{"p": "three"})) }},
	{"the file of a deletion vector is missing", Vector, deltalog.SevereError, nil, func(d damaged) { d.drop(d.find("deletion_vector")) }},
	{"a deletion vector is damaged", Vector, deltalog.SevereError, nil, func(d damaged) {
		for _, key := range testtable.Files(d.t, d.m) {
			if strings.Contains(key, "deletion_vector") {
				data := d.read(key)
				data[len(data)-1] ^= 0xff
				d.put(key, data)
			}
		}
	}},
	{"the cardinality of a deletion vector is wrong", Vector, deltalog.SevereError, nil, func(d damaged) {
		d.edit(8, func(a map[string]map[string]any) map[string]map[string]any {
			if a["add"] != nil {
				a["add"]["deletionVector"].(map[string]any)["cardinality"] = 17
			}
			return a
		})
	}},
	{"row ids overlap", RowIDs, deltalog.SevereError, tracked, func(d damaged) { d.set(8, "add", "baseRowId", to(0)) }},
	{"row ids beyond the high water mark", RowIDs, deltalog.SevereError, tracked, func(d damaged) { d.set(8, "add", "baseRowId", to(100000)) }},
	{"a file without row ids", RowIDs, deltalog.SevereError, tracked, func(d damaged) {
		d.edit(8, func(a map[string]map[string]any) map[string]map[string]any {
			delete(a["add"], "baseRowId")
			return a
		})
	}},

	{"a change file is missing", ChangeMissing, deltalog.SevereError, nil, func(d damaged) { d.drop(d.path(5, "cdc")) }},
	{"a change file is damaged", ChangeUnreadable, deltalog.SevereError, nil, func(d damaged) {
		key := d.path(5, "cdc")
		data := d.read(key)
		copy(data[len(data)-8:], "\xff\xff\xff\xff")
		d.put(key, data)
	}},
	{"a change file is cut", ChangeUnreadable, deltalog.SevereError, nil, func(d damaged) {
		key := d.path(5, "cdc")
		d.put(key, d.read(key)[:50])
	}},
	{"a commit lacks one of its change files", ChangeSum, deltalog.SevereError, map[string]string{"delta.enableDeletionVectors": "false"}, func(d damaged) {
		first := true
		d.edit(4, func(a map[string]map[string]any) map[string]map[string]any {
			if a["cdc"] != nil && first {
				first = false
				return nil
			}
			return a
		})
	}},
}

// check runs a check and gives its findings by code.
func check(t *testing.T, s storage.Store) (*Report, map[string]deltalog.Finding) {
	t.Helper()
	r, err := Check(t.Context(), s, Options{Table: delta.Options{Clock: testtable.Clock()}})
	must(t, err)
	out := map[string]deltalog.Finding{}
	for _, f := range r.Findings {
		if _, ok := out[f.Code]; !ok {
			out[f.Code] = f
		}
	}
	return r, out
}

// TestCheck_Corruptions damages a table in every way and looks for the finding; the
// whole table must have none.
func TestCheck_Corruptions(t *testing.T) {
	for _, props := range []map[string]string{nil, tracked, timed, {"delta.checkpointPolicy": "v2"}} {
		d := busy(t, props)
		r, found := check(t, d.m)
		if len(r.Findings) > 0 {
			t.Fatalf("%v: a whole table has findings: %v", props, found)
		}
		if r.Files != 5 || r.Rows != 160-7 || r.Vectors != 4 || r.Version != 8 || r.Commits != 9 || r.ChangeFiles == 0 {
			t.Errorf("%v: counts: %+v", props, r)
		}
	}
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			d := busy(t, c.props)
			c.do(d)
			_, found := check(t, d.m)
			f, ok := found[c.code]
			if !ok {
				t.Fatalf("not found; there is %v", found)
			}
			if f.Severity != c.severity || f.Detail == "" || f.File == "" && f.Version < 0 {
				t.Errorf("got %+v, want %s with a place", f, c.severity)
			}
		})
	}
	if len(corruptions) < 30 {
		t.Errorf("%d corruptions, want at least 30", len(corruptions))
	}
}

// TestCheck_HalfCleaned checks a log whose clean-up died: commits, one of them with a
// metadata action, stand below the newest checkpoint with nothing below them.
func TestCheck_HalfCleaned(t *testing.T) {
	d := busy(t, nil)
	_, err := d.d.SetProperties(t.Context(), map[string]string{"team": "a"}, delta.PropertyOptions{}) // 9
	must(t, err)
	_, err = d.d.Delete(t.Context(), "id = 7", delta.DMLOptions{}) // 10
	must(t, err)
	_, err = d.d.Checkpoint(t.Context())
	must(t, err)
	for _, key := range testtable.Files(t, d.m) {
		name := strings.TrimPrefix(key, deltalog.LogDir)
		if name != key && name != "_last_checkpoint" && !strings.Contains(name, "/") && name < fmt.Sprintf("%020d", 8) {
			d.drop(key)
		}
	}
	r, found := check(t, d.m)
	for _, f := range r.Findings {
		if f.Severity == deltalog.SevereError {
			t.Errorf("a table that reads as it should has errors: %v", found)
			break
		}
	}
	if r.Version != 10 || r.Rows != 160-8 {
		t.Errorf("counts: %+v", r)
	}
}

// TestRepair repairs what can be repaired: the same rows, no finding that a repair was
// promised for, and no other file of the store touched.
func TestRepair(t *testing.T) {
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			d := busy(t, c.props)
			want := testtable.Read(t, d.d, delta.ScanOptions{})
			c.do(d)
			before := map[string]string{}
			for _, key := range testtable.Files(t, d.m) {
				before[key] = string(d.read(key))
			}
			_, found := check(t, d.m)
			r, err := Repair(t.Context(), d.m, Options{Table: delta.Options{Clock: testtable.Clock()}})
			if c.code == deltalog.FsckMetadata && c.severity == deltalog.SevereNote {
				if !errors.Is(err, deltalog.ErrUnsupported) || len(testtable.Files(t, d.m)) != len(before) {
					t.Errorf("a table that is not supported: %v", err)
				}
				return
			}
			must(t, err)
			for _, f := range r.Findings {
				if f.Repair != "" {
					t.Errorf("a finding with a repair is left: %+v", f)
				}
			}
			for key, data := range before {
				derived := strings.Contains(key, "checkpoint") || strings.HasSuffix(key, ".crc") || strings.Contains(key, "compacted")
				now, err := storage.ReadAll(t.Context(), d.m, key)
				if (err != nil || string(now) != data) && !derived {
					t.Errorf("%s was touched: %v", key, err)
				}
			}
			if f := found[c.code]; f.Repair == "" {
				return
			}
			tb, err := delta.Open(t.Context(), d.m, delta.Options{})
			must(t, err)
			if diff := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), want); diff != "" {
				t.Errorf("other rows after the repair:\n%s", diff)
			}
		})
	}
}

func TestCheck_ApplyState(t *testing.T) {
	target := func(t *testing.T) *storage.Memory {
		t.Helper()
		m := storage.NewMemory("t")
		applyRows(t, m)
		return m
	}
	r, _ := check(t, target(t))
	if !r.State || len(r.Findings) > 0 {
		t.Fatalf("a whole target: %+v", r)
	}
	for name, part := range map[string]string{"state commit": "_apply/state/_delta_log/00000000000000000000.json", "state files": "_apply/state/part-"} {
		t.Run(name+" missing", func(t *testing.T) {
			m := target(t)
			d := damaged{t: t, m: m}
			for _, key := range testtable.Files(t, m) {
				if strings.Contains(key, part) {
					d.drop(key)
				}
			}
			if _, found := check(t, m); found[State].Severity != deltalog.SevereError {
				t.Errorf("not found; there is %v", found)
			}
		})
	}
}

// applyRows makes a target of apply with state.
func applyRows(t *testing.T, m *storage.Memory) {
	t.Helper()
	dir := t.TempDir()
	for i, rows := range []string{`{"id":1,"seq":1,"op":"u","name":"a"}` + "\n" + `{"id":2,"seq":2,"op":"u","name":"b"}`, `{"id":1,"seq":5,"op":"d"}`} {
		name := filepath.Join(dir, fmt.Sprintf("%d.jsonl", i))
		must(t, os.WriteFile(name, []byte(rows+"\n"), 0o644))
		in, err := source.Open(t.Context(), source.Spec{NoOp: true, From: []string{name}, Format: "rows", Keys: []string{"id"}})
		must(t, err)
		_, err = apply.Run(t.Context(), apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Target: apply.Targets{Store: m, Name: "t"},
			Flow: apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "seq", ApplyAsDeletes: "op = 'd'", ExceptColumnList: []string{"op", "seq"}}}, apply.Options{})
		must(t, err)
		must(t, in.Source.Close())
	}
}
