package cdf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func (f *fixture) stream(o cdf.StreamOptions) *cdf.Stream {
	f.t.Helper()
	s, err := f.table.Stream(context.Background(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// line is a change row as "version kind id", a row of a row stream as its id.
func line(t testing.TB, text string) string {
	t.Helper()
	var row struct {
		ID      int64  `json:"id"`
		Kind    string `json:"_change_type"`
		Version int64  `json:"_commit_version"`
	}
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		t.Fatal(err)
	}
	if row.Kind == "" {
		return fmt.Sprint(row.ID)
	}
	return fmt.Sprintf("%d %s %d", row.Version, row.Kind, row.ID)
}

// batchLines are the sorted rows of one batch.
func batchLines(t testing.TB, b *cdf.StreamBatch) []string {
	t.Helper()
	var out []string
	for rows, err := range b.Rows(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range testtable.BatchLines(rows) {
			out = append(out, line(t, l))
		}
	}
	slices.Sort(out)
	return out
}

// drain reads a stream to the newest version: the rows of each batch that has files.
func drain(t testing.TB, s *cdf.Stream) (batches [][]string, err error) {
	t.Helper()
	for b, err := range s.Batches(context.Background(), nil) {
		if err != nil {
			return batches, err
		}
		if b.Files > 0 {
			batches = append(batches, batchLines(t, b))
		}
	}
	return batches, nil
}

func (f *fixture) wantStream(o cdf.StreamOptions, want ...string) {
	f.t.Helper()
	got, err := drain(f.t, f.stream(o))
	if err != nil {
		f.t.Fatal(err)
	}
	all := slices.Concat(got...)
	slices.Sort(all)
	slices.Sort(want)
	if fmt.Sprint(all) != fmt.Sprint(want) {
		f.t.Errorf("got %q, want %q", all, want)
	}
}

func TestStream_Start(t *testing.T) {
	f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}{"id":2}`, `{"id":3}`}})
	ctx := context.Background()
	if _, err := f.table.Delete(ctx, "id = 1", delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	f.next++
	v := func(n int64) *int64 { return &n }
	at := func(s int) *time.Time { x := base.Add(time.Duration(s) * time.Second); return &x }
	t.Run("R-921 without a start: the snapshot as inserts, then changes", func(t *testing.T) {
		s := f.stream(cdf.StreamOptions{})
		got, err := drain(t, s)
		if err != nil || fmt.Sprint(got) != "[[3 insert 2 3 insert 3]]" {
			t.Errorf("%q, %v", got, err)
		}
		if p := s.Position(); p.Snapshot || p.Version != 4 || p.Index != 0 {
			t.Errorf("at %v", p)
		}
		f.append(ddl, `{"id":9}`)
		if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[4 insert 9]]" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("R-905 rows of the snapshot carry its time", func(t *testing.T) {
		s := f.stream(cdf.StreamOptions{Where: "id = 9"})
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for rows, err := range b.Rows(ctx) {
			if l := testtable.BatchLines(rows); err != nil || !strings.Contains(l[0], `"_commit_timestamp":"2024-01-01T00:00:40.000000Z"`) {
				t.Errorf("%v %v", l, err)
			}
		}
	})
	all := []string{"1 insert 1", "1 insert 2", "2 insert 3", "3 delete 1", "4 insert 9"}
	t.Run("R-921 from a version", func(t *testing.T) {
		f.t = t
		f.wantStream(cdf.StreamOptions{FromVersion: v(0)}, all...)
		f.wantStream(cdf.StreamOptions{FromVersion: v(2)}, all[2:]...)
		f.wantStream(cdf.StreamOptions{FromVersion: v(5)})
	})
	t.Run("R-921 from a time", func(t *testing.T) {
		f.t = t
		f.wantStream(cdf.StreamOptions{FromTime: at(15)}, all[2:]...)
	})
	t.Run("R-921 from the newest on", func(t *testing.T) {
		f.t = t
		s := f.stream(cdf.StreamOptions{FromLatest: true})
		if got, err := drain(t, s); err != nil || len(got) > 0 {
			t.Errorf("%q, %v", got, err)
		}
		f.append(ddl, `{"id":10}`)
		if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[5 insert 10]]" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("starts that are none", func(t *testing.T) {
		for _, c := range []struct {
			o     cdf.StreamOptions
			code  string
			class error
		}{
			{cdf.StreamOptions{FromVersion: v(1), FromTime: at(1)}, "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET", deltalog.ErrInvalid},
			{cdf.StreamOptions{FromVersion: v(99)}, "DELTA_CDC_START_VERSION_AFTER_LATEST", deltalog.ErrNotFound},
			{cdf.StreamOptions{FromTime: at(1000)}, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", deltalog.ErrNotFound},
			{cdf.StreamOptions{Columns: []string{"nope"}}, "UNRESOLVED_COLUMN", deltalog.ErrInvalid},
		} {
			_, err := f.table.Stream(ctx, c.o)
			wantCode(t, err, c.code, c.class)
		}
	})
	t.Run("a start in the future is waited for", func(t *testing.T) {
		s := f.stream(cdf.StreamOptions{FromVersion: v(7), OutOfRange: true})
		late := f.stream(cdf.StreamOptions{FromTime: at(65), OutOfRange: true})
		f.append(ddl, `{"id":11}`) // 6, at 60 s
		f.append(ddl, `{"id":12}`) // 7
		for _, s := range []*cdf.Stream{s, late} {
			if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[7 insert 12]]" {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}

// whatever the limits, and wherever a stream is cut, every change comes once.
func TestStream_Resume(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Properties: feedOn,
		Rows: []string{`{"id":1,"p":1}{"id":2,"p":2}{"id":3,"p":3}`, `{"id":4,"p":1}{"id":5,"p":2}`}})
	if _, err := f.table.Update(ctx, "id = id + 10", "p < 3", delta.DMLOptions{}); err != nil { // change files
		t.Fatal(err)
	}
	f.next++
	if _, err := f.table.Delete(ctx, "p = 2", delta.DMLOptions{}); err != nil { // removes only
		t.Fatal(err)
	}
	f.next++
	f.commit("protocol", protocolDV)
	files, err := f.snapshot().FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dvFile, whole := *files[0], *files[1]
	with := dvFile
	with.DeletionVector, with.DataChange = vector(0), true
	f.commit("remove", dvFile.Remove(base, true), "add", &with, "remove", whole.Remove(base, true))
	from := int64(0)
	want, err := f.feed(cdf.Options{Range: cdf.Range{FromVersion: &from}})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range want {
		want[i] = line(t, l)
	}
	slices.Sort(want)
	for _, o := range []cdf.StreamOptions{{MaxFiles: 1}, {MaxFiles: 2}, {MaxFiles: 3}, {MaxBytes: 1}, {MaxBytes: 1500}, {}} {
		t.Run(fmt.Sprintf("R-922 %d files, %d bytes", o.MaxFiles, o.MaxBytes), func(t *testing.T) {
			f.t = t
			o.FromVersion = &from
			var got []string
			batches := 0
			for {
				s := f.stream(o) // every batch by another process
				b, err := s.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					break
				}
				batches++
				got = append(got, batchLines(t, b)...)
				if o.MaxFiles > 0 && b.Files > o.MaxFiles && b.From != b.To && b.End.Index != 0 {
					t.Errorf("%d files in a batch that was not of whole versions", b.Files)
				}
				if b.End != s.Position() {
					t.Errorf("end %v, stream at %v", b.End, s.Position())
				}
				raw, err := json.Marshal(b.End)
				if err != nil {
					t.Fatal(err)
				}
				p, err := cdf.ParsePosition(raw)
				if err != nil || p != b.End {
					t.Fatalf("%v, %v: %s", p, err, raw)
				}
				o.Position = &p
			}
			slices.Sort(got)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if (o.MaxFiles == 1 || o.MaxBytes == 1) != (batches > 5) && o.MaxFiles != 2 {
				t.Errorf("%d batches", batches)
			}
		})
	}
	t.Run("R-922 a version with change files or vectors is one batch", func(t *testing.T) {
		f.t = t
		for _, v := range []int64{3, 6} {
			s := f.stream(cdf.StreamOptions{FromVersion: &v, MaxFiles: 1})
			b, err := s.Next(ctx)
			if err != nil || b.Files < 2 || b.End.Version != v+1 || b.End.Index != 0 {
				t.Errorf("version %d: %+v, %v", v, b, err)
			}
		}
	})
	t.Run("R-922 the snapshot is cut too", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`}})
		b, err := f.stream(cdf.StreamOptions{MaxFiles: 1}).Next(ctx)
		if err != nil || b.Files != 1 || !b.End.Snapshot || b.End.Index != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		got := batchLines(t, b)
		f.append(ddl, `{"id":77}`)
		rest, err := drain(t, f.stream(cdf.StreamOptions{Position: &b.End}))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, slices.Concat(rest...)...)
		slices.Sort(got)
		if fmt.Sprint(got) != "[3 insert 1 3 insert 2 3 insert 3 4 insert 77]" {
			t.Errorf("%q", got)
		}
	})
}

func TestStream_Position(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}`}})
	id := f.snapshot().Metadata.ID
	open := func(p cdf.Position) error {
		_, err := f.table.Stream(ctx, cdf.StreamOptions{Position: &p})
		return err
	}
	good := cdf.Position{Kind: cdf.ChangeStream, TableID: id, Version: 2}
	if err := open(good); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name   string
		change func(p *cdf.Position)
		code   string
		class  error
	}{
		{"R-922 of another table", func(p *cdf.Position) { p.TableID = "other" }, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", deltalog.ErrUnsupported},
		{"of another kind of stream", func(p *cdf.Position) { p.Kind = cdf.RowStream }, "STREAM_POSITION_INVALID", deltalog.ErrInvalid},
		{"behind a table that was put back", func(p *cdf.Position) { p.Version = 3 }, "DELTA_CDC_START_VERSION_AFTER_LATEST", deltalog.ErrNotFound},
		{"a snapshot that is not there", func(p *cdf.Position) { p.Snapshot = true }, "DELTA_CDC_START_VERSION_AFTER_LATEST", deltalog.ErrNotFound},
		{"negative", func(p *cdf.Position) { p.Index = -1 }, "STREAM_POSITION_INVALID", deltalog.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := good
			c.change(&p)
			wantCode(t, open(p), c.code, c.class)
		})
	}
	t.Run("more files than the version has", func(t *testing.T) {
		for _, snapshot := range []bool{false, true} {
			s := f.stream(cdf.StreamOptions{Position: &cdf.Position{Kind: cdf.ChangeStream, TableID: id, Version: 1, Index: 2, Snapshot: snapshot}})
			_, err := s.Next(ctx)
			wantCode(t, err, "STREAM_POSITION_INVALID", deltalog.ErrInvalid)
		}
	})
	t.Run("R-922 the table is replaced while the stream runs", func(t *testing.T) {
		s := f.stream(cdf.StreamOptions{FromLatest: true})
		m := *f.snapshot().Metadata
		f.append(ddl, `{"id":2}`)
		m.ID = "another"
		f.commit("metaData", &m)
		got, err := drain(t, s)
		if fmt.Sprint(got) != "[[2 insert 2]]" {
			t.Errorf("before it: %q", got)
		}
		wantCode(t, err, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", deltalog.ErrUnsupported)
		p := s.Position()
		_, err = f.table.Stream(ctx, cdf.StreamOptions{Position: &p})
		wantCode(t, err, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", deltalog.ErrUnsupported)
	})
}

func TestParsePosition(t *testing.T) {
	whole := `{"format":1,"kind":"changes","tableId":"x","version":9007199254740993,"index":3,"snapshot":true}`
	p, err := cdf.ParsePosition([]byte(whole))
	if err != nil || p.Version != 9007199254740993 || p.Index != 3 || !p.Snapshot {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "null", "{}", "[]", "1", whole[:40], whole + "x", whole + "{}",
		strings.Replace(whole, `"format":1`, `"format":2,"new":true`, 1), strings.Replace(whole, `"index"`, `"unknown"`, 1),
		strings.Replace(whole, "changes", "other", 1), strings.Replace(whole, `"x"`, `""`, 1), strings.Replace(whole, "9007199254740993", "-1", 1),
		strings.Replace(whole, "9007199254740993", "1e30", 1), strings.Replace(whole, "9007199254740993", "1.5", 1), strings.Replace(whole, `"version":9007199254740993,`, "", 1),
		strings.Repeat(" ", 70000) + whole} {
		_, err := cdf.ParsePosition([]byte(bad))
		wantCode(t, err, "STREAM_POSITION_INVALID", deltalog.ErrInvalid)
	}
}

// Whatever the bytes, a position is refused or says the same again.
func FuzzParsePosition(f *testing.F) {
	f.Add([]byte(`{"format":1,"kind":"changes","tableId":"x","version":1,"index":3,"snapshot":true}`))
	f.Add([]byte(`{"format":1,"kind":"rows","tableId":"","version":-1}`))
	f.Add([]byte(`{"format":1e0,"kind":"rows","tableId":"\ud800","version":9223372036854775808}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := cdf.ParsePosition(data)
		if err != nil {
			var e *cdf.Error
			if !errors.As(err, &e) || e.ErrorCode != cdf.CodePosition {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := cdf.ParsePosition(again); err != nil || q != p {
			t.Fatalf("%+v, then %+v, %v", p, q, err)
		}
	})
}

// evolve commits a metadata with another schema.
func (f *fixture) evolve(ddl string) int64 {
	f.t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		f.t.Fatal(err)
	}
	m := *f.snapshot().Metadata
	m.SchemaString = s.JSON()
	return f.commit("metaData", &m)
}

func TestStream_SchemaChange(t *testing.T) {
	ctx := context.Background()
	const ddl = "id BIGINT, name STRING, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<y: INT>>"
	for _, c := range []struct{ name, ddl, reason string }{
		{"added", ddl + ", late INT", "late was added"},
		{"added inside", strings.Replace(ddl, "a: INT", "a: INT, b: INT", 1), "s.b was added"},
		{"added in an element", strings.Replace(ddl, "x: INT", "x: INT, z: INT", 1), "l.element.z was added"},
		{"added in a value", strings.Replace(ddl, "y: INT", "y: INT, z: INT", 1), "m.value.z was added"},
		{"dropped", strings.Replace(ddl, "name STRING, ", "", 1), "name was dropped"},
		{"renamed", strings.Replace(ddl, "name STRING", "title STRING", 1), "title was added"},
		{"of another type", strings.Replace(ddl, "name STRING", "name INT", 1), "name changed its type from STRING to INT"},
	} {
		t.Run("R-923 "+c.name, func(t *testing.T) {
			f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}`}})
			s := f.stream(cdf.StreamOptions{FromVersion: new(int64)})
			v := f.evolve(c.ddl)
			f.append(c.ddl, `{"id":2}`)
			got, err := drain(t, s)
			if fmt.Sprint(got) != "[[1 insert 1]]" {
				t.Errorf("before the change: %q", got)
			}
			var changed *cdf.SchemaChangedError
			if !errors.As(err, &changed) || changed.Version != v || !strings.Contains(changed.Reason, c.reason) || !errors.Is(err, deltalog.ErrUnsupported) {
				t.Fatalf("%v", err)
			}
			wantCode(t, err, "DELTA_SCHEMA_CHANGED_WITH_VERSION", deltalog.ErrUnsupported)
			if _, again := s.Next(ctx); again == nil {
				t.Error("the second call passes over the change")
			}
			p := s.Position()
			if p != changed.At {
				t.Errorf("at %v, the error says %v", p, changed.At)
			}
			after := f.stream(cdf.StreamOptions{Position: &p})
			if got, err := drain(t, after); err != nil || fmt.Sprint(got) != "[[3 insert 2]]" {
				t.Errorf("after the change: %q, %v", got, err)
			}
			if len(after.Schema().Fields) == len(s.Schema().Fields) && c.name == "added" {
				t.Error("the new column is not there")
			}
		})
	}
	t.Run("R-923 comments and properties are no change", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: "id BIGINT", Properties: feedOn, Rows: []string{`{"id":1}`}})
		s := f.stream(cdf.StreamOptions{FromVersion: new(int64)})
		f.evolve("id BIGINT COMMENT 'the key'")
		f.append("id BIGINT", `{"id":2}`)
		if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[1 insert 1 3 insert 2]]" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("R-923 an overwrite with another schema", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: "id BIGINT, name STRING", Properties: feedOn, Rows: []string{`{"id":1,"name":"a"}`}})
		s := f.stream(cdf.StreamOptions{FromVersion: new(int64)})
		file := f.file()
		m := *f.snapshot().Metadata
		m.SchemaString = testtable.Struct(t, "id BIGINT, name STRING, extra INT").JSON()
		f.commit("metaData", &m, "remove", file.Remove(base, true))
		if _, err := drain(t, s); err == nil {
			t.Fatal("not stopped")
		}
		p := s.Position()
		if got, err := drain(t, f.stream(cdf.StreamOptions{Position: &p})); err != nil || fmt.Sprint(got) != "[[2 delete 1]]" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("R-923 an overwrite that changes a type", func(t *testing.T) {
		const before, after = "id BIGINT, name STRING", "id BIGINT, name INT"
		f := newFixture(t, testtable.Spec{DDL: before, Properties: feedOn, Rows: []string{`{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`}})
		live := f.stream(cdf.StreamOptions{FromVersion: new(int64)})
		if _, err := f.table.Overwrite(ctx, testtable.Rows(t, after, `{"id":3,"name":7}`), delta.OverwriteOptions{OverwriteSchema: true}); err != nil {
			t.Fatal(err)
		}
		f.next++
		f.append(after, `{"id":4,"name":8}`)
		for _, name := range []string{"opened before it", "opened at it", "one file a batch"} {
			t.Run(name, func(t *testing.T) {
				o, s, batches, want := cdf.StreamOptions{}, live, 1, "[1 insert 1 2 insert 2 3 delete 1 3 delete 2]"
				if name != "opened before it" {
					three := int64(3)
					if o.FromVersion, want = &three, "[3 delete 1 3 delete 2]"; name != "opened at it" {
						o.MaxFiles, batches = 1, 2
					}
					s = f.stream(o)
				}
				got, err := drain(t, s)
				var changed *cdf.SchemaChangedError
				all := slices.Concat(got...)
				slices.Sort(all)
				if !errors.As(err, &changed) || changed.Version != 3 || len(got) != batches || fmt.Sprint(all) != want {
					t.Fatalf("%q, %v", got, err)
				}
				if s.Schema().Fields[1].Type != schema.String {
					t.Errorf("deleted rows have the schema %s", s.Schema())
				}
				p := s.Position()
				if p != changed.At {
					t.Errorf("at %v, the error says %v", p, changed.At)
				}
				next := f.stream(cdf.StreamOptions{Position: &p})
				if next.Schema().Fields[1].Type != schema.Integer {
					t.Errorf("new rows have the schema %s", next.Schema())
				}
				if got, err := drain(t, next); err != nil || fmt.Sprint(got) != "[[3 insert 3 4 insert 4]]" {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		t.Run("resumed among the deleted rows", func(t *testing.T) {
			three := int64(3)
			b, err := f.stream(cdf.StreamOptions{FromVersion: &three, MaxFiles: 1}).Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			s := f.stream(cdf.StreamOptions{Position: &b.End})
			got, err := drain(t, s)
			var changed *cdf.SchemaChangedError
			if !errors.As(err, &changed) || len(got) != 1 || len(got[0]) != 1 {
				t.Errorf("%q, %v", got, err)
			}
		})
	})
	t.Run("R-923 the feed is switched off", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: "id BIGINT", Properties: feedOn, Rows: []string{`{"id":1}`}})
		s := f.stream(cdf.StreamOptions{FromVersion: new(int64)})
		if _, err := f.table.SetProperties(ctx, map[string]string{"delta.enableChangeDataFeed": "false"}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		f.next++
		got, err := drain(t, s)
		if fmt.Sprint(got) != "[[1 insert 1]]" {
			t.Errorf("%q", got)
		}
		wantCode(t, err, "DELTA_MISSING_CHANGE_DATA", deltalog.ErrUnsupported)
		_, err = f.table.Stream(ctx, cdf.StreamOptions{})
		wantCode(t, err, "DELTA_MISSING_CHANGE_DATA", deltalog.ErrUnsupported)
	})
	t.Run("R-904 partition columns change while the stream runs", func(t *testing.T) {
		f := newFixture(t, testtable.Spec{DDL: "id BIGINT, name STRING", Properties: feedOn, Rows: []string{`{"id":1,"name":"a"}`}})
		s := f.stream(cdf.StreamOptions{FromVersion: new(int64)})
		file := f.file()
		moved, name := *file, "other"
		moved.Path, moved.PartitionValues = "moved.parquet", map[string]*string{"name": &name}
		copyObject(t, f.store, file.Path, moved.Path)
		m := *f.snapshot().Metadata
		m.PartitionColumns = []string{"name"}
		f.commit("metaData", &m, "remove", file.Remove(base, true), "add", &moved)
		if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[1 insert 1 2 delete 1 2 insert 1]]" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// a stream of rows.
func TestStream_Rows(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, testtable.Spec{DDL: ddl, Rows: []string{`{"id":1}{"id":2}`, `{"id":3}`}})
	rows := func(change func(o *cdf.StreamOptions)) ([][]string, error) {
		o := cdf.StreamOptions{Kind: cdf.RowStream, FromVersion: new(int64)}
		if change != nil {
			change(&o)
		}
		return drain(t, f.stream(o))
	}
	if got, err := rows(nil); err != nil || fmt.Sprint(got) != "[[1 2 3]]" {
		t.Errorf("R-924 appends: %q, %v", got, err)
	}
	s := f.stream(cdf.StreamOptions{Kind: cdf.RowStream, Columns: []string{"id"}})
	if names := fmt.Sprint(s.Schema().Names()); names != "[id]" {
		t.Errorf("columns %s", names)
	}
	if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[1 2 3]]" {
		t.Errorf("R-921 snapshot: %q, %v", got, err)
	}
	file := func(id string) *deltalog.Add {
		files, err := f.snapshot().FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range files {
			if strings.Contains(a.Stats, `"minValues":{"id":`+id) {
				return a
			}
		}
		t.Fatal("no such file")
		return nil
	}
	three := file("3")
	f.commit("remove", three.Remove(base, true)) // 3: removes only
	compact := *file("1")
	compact.DataChange = false
	f.commit("remove", file("1").Remove(base, false), "add", &compact) // 4: no data change
	t.Run("R-924 a delete", func(t *testing.T) {
		got, err := rows(nil)
		if fmt.Sprint(got) != "[[1 2 3]]" {
			t.Errorf("%q", got)
		}
		wantCode(t, err, "DELTA_SOURCE_IGNORE_DELETE", deltalog.ErrUnsupported)
		for _, change := range []func(o *cdf.StreamOptions){
			func(o *cdf.StreamOptions) { o.IgnoreDeletes = true },
			func(o *cdf.StreamOptions) { o.IgnoreChanges = true },
			func(o *cdf.StreamOptions) { o.SkipChangeCommits = true },
		} {
			if got, err := rows(change); err != nil || fmt.Sprint(got) != "[[1 2 3]]" {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
	if _, err := f.table.Update(ctx, "name = 'x'", "id = 1", delta.DMLOptions{}); err != nil { // 5: rewrites
		t.Fatal(err)
	}
	f.next++
	f.append(ddl, `{"id":4}`) // 6
	t.Run("R-924 a rewrite", func(t *testing.T) {
		_, err := rows(func(o *cdf.StreamOptions) { o.IgnoreDeletes = true })
		wantCode(t, err, "DELTA_SOURCE_TABLE_IGNORE_CHANGES", deltalog.ErrUnsupported)
		if got, err := rows(func(o *cdf.StreamOptions) { o.IgnoreChanges = true }); err != nil || fmt.Sprint(got) != "[[1 1 2 2 3 4]]" {
			t.Errorf("ignore changes: %q, %v", got, err)
		}
		if got, err := rows(func(o *cdf.StreamOptions) { o.SkipChangeCommits = true }); err != nil || fmt.Sprint(got) != "[[1 2 3 4]]" {
			t.Errorf("skip change commits: %q, %v", got, err)
		}
	})
}

// lazyStore counts the data files that are opened.
type lazyStore struct {
	storage.Store
	opened []string
}

func (s *lazyStore) Open(ctx context.Context, key string) (storage.Reader, error) {
	if strings.HasSuffix(key, ".parquet") {
		s.opened = append(s.opened, key)
	}
	return s.Store.Open(ctx, key)
}

func TestStream_ReadsWhenAsked(t *testing.T) {
	ctx := context.Background()
	lazy := &lazyStore{Store: storage.NewMemory("t")}
	tb := testtable.New(t, testtable.Spec{DDL: ddl, Properties: feedOn, Store: lazy, Options: delta.Options{NoCheckpoints: true}, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`}})
	s, err := tb.Stream(ctx, cdf.StreamOptions{FromVersion: new(int64), MaxFiles: 2})
	if err != nil {
		t.Fatal(err)
	}
	lazy.opened = nil
	b, err := s.Next(ctx)
	if err != nil || b.Files != 2 || len(lazy.opened) != 0 {
		t.Fatalf("%+v, %v, opened %v", b, err, lazy.opened)
	}
	for range b.Rows(ctx) {
		break
	}
	if len(lazy.opened) != 1 {
		t.Errorf("one batch of rows was taken, opened %v", lazy.opened)
	}
	if got := batchLines(t, b); len(got) != 2 {
		t.Errorf("a batch can be read again: %q", got)
	}
}

func TestStream_Lost(t *testing.T) {
	ctx := context.Background()
	setup := func(t *testing.T) (*fixture, cdf.Position) {
		f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`}})
		s := f.stream(cdf.StreamOptions{FromVersion: new(int64), MaxFiles: 1})
		b, err := s.Next(ctx)
		if err != nil || b.End.Version != 2 {
			t.Fatalf("%+v, %v", b, err)
		}
		snap, err := f.table.SnapshotAt(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.table.Log().WriteCheckpoint(ctx, snap); err != nil {
			t.Fatal(err)
		}
		for v := range int64(3) {
			if err := f.store.Delete(ctx, deltalog.CommitKey(v)); err != nil {
				t.Fatal(err)
			}
		}
		return f, b.End
	}
	t.Run("R-923 resumed behind the log", func(t *testing.T) {
		f, p := setup(t)
		_, err := f.table.Stream(ctx, cdf.StreamOptions{Position: &p})
		wantCode(t, err, "DELTA_MISSING_FILES_UNEXPECTED_VERSION", deltalog.ErrNotFound)
		lost := ""
		s := f.stream(cdf.StreamOptions{Position: &p, OnLost: func(from, to int64) { lost += fmt.Sprint(from, to) }})
		if got, err := drain(t, s); err != nil || fmt.Sprint(got) != "[[3 insert 3 4 insert 4]]" || lost != "2 2" {
			t.Errorf("%q, %v, lost %s", got, err, lost)
		}
	})
	t.Run("R-923 lost while it runs", func(t *testing.T) {
		for _, allowed := range []bool{false, true} {
			f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`}})
			o, lost := cdf.StreamOptions{FromVersion: new(int64), MaxFiles: 1}, ""
			if allowed {
				o.OnLost = func(from, to int64) { lost += fmt.Sprint(from, to) }
			}
			s := f.stream(o)
			if _, err := s.Next(ctx); err != nil {
				t.Fatal(err)
			}
			snap, err := f.table.SnapshotAt(ctx, 3)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.table.Log().WriteCheckpoint(ctx, snap); err != nil {
				t.Fatal(err)
			}
			for v := range int64(3) {
				if err := f.store.Delete(ctx, deltalog.CommitKey(v)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := drain(t, s)
			if !allowed {
				wantCode(t, err, "DELTA_MISSING_FILES_UNEXPECTED_VERSION", deltalog.ErrNotFound)
			} else if err != nil || fmt.Sprint(got) != "[[3 insert 3] [4 insert 4]]" || lost != "2 2" {
				t.Errorf("%q, %v, lost %s", got, err, lost)
			}
		}
	})
}

// B08: files that VACUUM took.
func TestFeed_Missing(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, testtable.Spec{DDL: ddl, Properties: feedOn, Rows: []string{`{"id":1}{"id":2}`}})
	var paths []string
	for i := range 4 {
		if _, err := f.table.Update(ctx, "name = 'n'", fmt.Sprintf("id = %d", 1+i%2), delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		c, err := f.table.Log().ReadCommit(ctx, f.next)
		if err != nil || len(c.CDC) != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		paths = append(paths, c.CDC[0].Path)
		f.next++
	}
	for _, p := range []string{paths[0], paths[2]} { // versions 2 and 4
		if err := f.store.Delete(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	one := int64(1)
	t.Run("B08 R-907 the error names the oldest readable version", func(t *testing.T) {
		_, err := f.feed(cdf.Options{Range: cdf.Range{FromVersion: &one}})
		wantCode(t, err, "DATA_FILE_MISSING", deltalog.ErrNotFound)
		var m *cdf.MissingError
		if !errors.As(err, &m) || m.Version != 2 || m.Path != paths[0] || m.OldestReadable != 5 || !strings.Contains(err.Error(), "from version 5 on") || !strings.Contains(err.Error(), "VACUUM") {
			t.Errorf("%v", err)
		}
		_, err = f.feed(cdf.Options{Range: versions(1, 4)})
		if !errors.As(err, &m) || m.OldestReadable != -1 {
			t.Errorf("%v", err)
		}
		_, err = f.feed(cdf.Options{Range: versions(5, 5)})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("B08 R-907 a stream says the same", func(t *testing.T) {
		s := f.stream(cdf.StreamOptions{FromVersion: &one})
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range b.Rows(ctx) {
			var m *cdf.MissingError
			if err != nil && (!errors.As(err, &m) || m.OldestReadable != 5) {
				t.Error(err)
			}
		}
	})
	t.Run("B08 R-907 passed over when asked for", func(t *testing.T) {
		var told []string
		lines, err := f.feed(cdf.Options{Range: versions(1, 5), OnMissing: func(version int64, path string) {
			told = append(told, fmt.Sprint(version, " ", path))
		}})
		if err != nil || len(lines) != 2+2*2 {
			t.Errorf("%d lines, %v", len(lines), err)
		}
		if want := fmt.Sprint([]string{"2 " + paths[0], "4 " + paths[2]}); fmt.Sprint(told) != want {
			t.Errorf("told %v, want %s", told, want)
		}
	})
}
