package files_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/files"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// flow is a consumer that keeps positions from run to run, as the engine does.
type flow struct {
	opt files.Options
	pos map[string]event.Position
}

// run reads what is there, at most n records (0: all), and keeps the positions.
func (f *flow) run(t *testing.T, n int) ([]string, error) {
	t.Helper()
	if f.opt.Host == "" {
		f.opt.Host = "h"
	}
	s, err := files.New(f.opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out []string
	for rec, err := range s.Records(context.Background(), f.pos) {
		if err != nil {
			return out, err
		}
		out = append(out, text(rec)...)
		if n > 0 && len(out) >= n {
			break
		}
	}
	pos, err := s.Positions()
	if err != nil {
		t.Fatal(err)
	}
	if f.pos == nil {
		f.pos = map[string]event.Position{}
	}
	for _, p := range pos {
		f.pos[p.Source] = p
	}
	return out, nil
}

func text(r *event.Record) []string {
	if r.Fault != "" {
		return []string{"fault " + r.Fault[:strings.Index(r.Fault, ":")]}
	}
	if r.Columns == nil {
		return []string{string(r.Value)}
	}
	var out []string
	for i := range int(r.Columns.NumRows()) {
		var parts []string
		for c, f := range r.Columns.Schema().Fields() {
			v := "NULL"
			if col := r.Columns.Column(c); col.IsValid(i) {
				v = col.ValueStr(i)
			}
			parts = append(parts, f.Name+"="+v)
		}
		out = append(out, strings.Join(parts, " "))
	}
	return out
}

func want(t *testing.T, got []string, err error, exp ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, exp) {
		t.Fatalf("got %q, want %q", got, exp)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *files.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
}

func TestSource_GrowingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.jsonl")
	f := &flow{opt: files.Options{Paths: []string{path}}}
	t.Run("Files.A read once, then on from the last boundary", func(t *testing.T) {
		write(t, path, "{\"a\":1}\n\n{\"a\":2}\r\n{\"a\":3")
		got, err := f.run(t, 0)
		want(t, got, err, `{"a":1}`, `{"a":2}`)
		got, err = f.run(t, 0)
		want(t, got, err)
		appendTo(t, path, "}\n{\"a\":4}")
		got, err = f.run(t, 0)
		want(t, got, err, `{"a":3}`, `{"a":4}`)
		appendTo(t, path, "\n")
		got, err = f.run(t, 0)
		want(t, got, err)
		appendTo(t, path, "{\"a\":5}\n")
		got, err = f.run(t, 0)
		want(t, got, err, `{"a":5}`)
	})
	t.Run("cut after each record", func(t *testing.T) {
		f := &flow{opt: f.opt}
		for _, rec := range []string{`{"a":1}`, `{"a":2}`, `{"a":3}`, `{"a":4}`, `{"a":5}`} {
			got, err := f.run(t, 1)
			want(t, got, err, rec)
		}
		got, err := f.run(t, 0)
		want(t, got, err)
	})
	t.Run("Files.D a change before the position", func(t *testing.T) {
		raw, _ := os.ReadFile(path)
		write(t, path, strings.Replace(string(raw), `"a":1`, `"a":9`, 1)+"{\"a\":6}\n")
		_, err := f.run(t, 0)
		wantCode(t, err, "FILE_CHANGED")
		write(t, path, "{\"a\":1}\n")
		_, err = f.run(t, 0)
		wantCode(t, err, "FILE_CHANGED")
		over := &flow{opt: f.opt, pos: maps.Clone(f.pos)}
		over.opt.Overwrite = true
		got, err := over.run(t, 0)
		want(t, got, err, `{"a":1}`)
		got, err = over.run(t, 0)
		want(t, got, err)
	})
	t.Run("a file that is gone", func(t *testing.T) {
		os.Remove(path)
		_, err := f.run(t, 0)
		wantCode(t, err, "INPUT_GONE")
		_, err = (&flow{opt: f.opt}).run(t, 0)
		wantCode(t, err, "NOT_FOUND")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%v is not fs.ErrNotExist", err)
		}
	})
}

func TestSource_UnfinishedLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.jsonl")
	write(t, path, `{"a":1`)
	f := &flow{opt: files.Options{Paths: []string{path}}}
	got, err := f.run(t, 0)
	want(t, got, err)
	f.opt.Now = func() time.Time { return time.Now().Add(time.Hour) }
	got, err = f.run(t, 0)
	want(t, got, err, `{"a":1`) // no more comes: the decoder says what is wrong
}

func TestSource_ChangesWhileRead(t *testing.T) {
	for name, change := range map[string]func(string){
		"replaced": func(p string) {
			os.WriteFile(p+"2", []byte("{\"a\":1}\n{\"a\":2}\n"), 0o644)
			os.Rename(p+"2", p)
		},
		"truncated": func(p string) { os.Truncate(p, 3) },
		"removed":   func(p string) { os.Remove(p) },
	} {
		t.Run("Files.D "+name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "e.jsonl")
			write(t, path, "{\"a\":1}\n{\"a\":2}\n")
			s, err := files.New(files.Options{Paths: []string{path}, Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			var last error
			for _, err := range s.Records(context.Background(), nil) {
				if err == nil && change != nil {
					change(path)
					change = nil
				}
				last = err
			}
			wantCode(t, last, "FILE_CHANGED")
		})
	}
}

func TestSource_Discovery(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"part-10.jsonl", "part-9.jsonl", "sub/part-1.jsonl", "_SUCCESS", ".hidden", "x.tmp", "y.crdownload", "z.inprogress", "w._COPYING_", "_delta/v.jsonl"} {
		write(t, filepath.Join(dir, n), fmt.Sprintf("{\"n\":%q}\n", filepath.Base(n)))
	}
	write(t, filepath.Join(dir, "zero.jsonl"), "")
	all := []string{`{"n":"part-9.jsonl"}`, `{"n":"part-10.jsonl"}`, `{"n":"part-1.jsonl"}`}
	t.Run("Files.E hidden, unfinished and empty files are no input", func(t *testing.T) {
		got, err := (&flow{opt: files.Options{Paths: []string{dir}}}).run(t, 0)
		want(t, got, err, all...)
	})
	t.Run("Files.D numbers in names order as numbers", func(t *testing.T) {
		got, err := (&flow{opt: files.Options{Paths: []string{filepath.Join(dir, "part-*")}}}).run(t, 0)
		want(t, got, err, all[:2]...)
	})
	t.Run("a file named twice is read once", func(t *testing.T) {
		p := filepath.Join(dir, "part-9.jsonl")
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(p, link); err != nil {
			t.Skipf("the file system has no symbolic links: %v", err)
		}
		got, err := (&flow{opt: files.Options{Paths: []string{p, link, "file://" + p}}}).run(t, 0)
		want(t, got, err, all[0])
	})
	t.Run("Files.C a renamed file is a new one", func(t *testing.T) {
		f := &flow{opt: files.Options{Paths: []string{filepath.Join(dir, "sub")}}}
		got, err := f.run(t, 0)
		want(t, got, err, all[2])
		os.Rename(filepath.Join(dir, "sub/part-1.jsonl"), filepath.Join(dir, "sub/part-2.jsonl"))
		got, err = f.run(t, 0)
		want(t, got, err, all[2])
	})
	t.Run("identity has the host", func(t *testing.T) {
		f := &flow{opt: files.Options{Paths: []string{filepath.Join(dir, "part-9.jsonl")}, Host: "host-7"}}
		if _, err := f.run(t, 0); err != nil {
			t.Fatal(err)
		}
		for uri := range f.pos {
			if !strings.HasPrefix(uri, "file://host-7/") {
				t.Fatal(uri)
			}
		}
	})
}

func compressed(t *testing.T, ext string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch ext {
	case "gz":
		w = gzip.NewWriter(&b)
	case "zst":
		w, _ = zstd.NewWriter(&b)
	case "snappy":
		w = snappy.NewBufferedWriter(&b)
	case "bz2":
		cmd := exec.Command("bzip2", "-c")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &b
		if err := cmd.Run(); err != nil {
			t.Skip("bzip2 is not there to write with")
		}
		return b.Bytes()
	}
	w.Write(data)
	w.Close()
	return b.Bytes()
}

func TestSource_Compressed(t *testing.T) {
	for _, ext := range []string{"gz", "zst", "snappy", "bz2"} {
		t.Run(ext, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "e.jsonl."+ext)
			data := compressed(t, ext, []byte("{\"a\":1}\n{\"a\":2}\n{\"a\":3}"))
			write(t, path, string(data))
			f := &flow{opt: files.Options{Paths: []string{path}}}
			got, err := f.run(t, 1)
			want(t, got, err, `{"a":1}`)
			if len(f.pos) != 0 {
				t.Fatalf("a position in the middle: %v", f.pos)
			}
			got, err = f.run(t, 0)
			want(t, got, err, `{"a":1}`, `{"a":2}`, `{"a":3}`)
			for _, p := range f.pos {
				if !p.Done {
					t.Fatalf("not done: %+v", p)
				}
			}
			got, err = f.run(t, 0)
			want(t, got, err)
			later := time.Now().Add(time.Hour)
			os.Chtimes(path, later, later) // touched, same bytes
			got, err = f.run(t, 0)
			want(t, got, err)
			write(t, path, string(compressed(t, ext, []byte("{\"a\":4}\n"))))
			_, err = f.run(t, 0)
			wantCode(t, err, "FILE_CHANGED")
			f.opt.Overwrite = true
			got, err = f.run(t, 0)
			want(t, got, err, `{"a":4}`)
		})
		t.Run("Files.G cut "+ext, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "e.jsonl."+ext)
			data := compressed(t, ext, bytes.Repeat([]byte("{\"a\":\"some text\"}\n"), 100))
			write(t, path, string(data[:len(data)-3]))
			_, err := (&flow{opt: files.Options{Paths: []string{path}}}).run(t, 0)
			wantCode(t, err, "FILE_UNREADABLE")
		})
	}
	t.Run("by first bytes, whatever the name", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events")
		write(t, path, string(compressed(t, "zst", []byte("{\"a\":1}\n"))))
		got, err := (&flow{opt: files.Options{Paths: []string{path}}}).run(t, 0)
		want(t, got, err, `{"a":1}`)
	})
	t.Run("a name that lies", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "e.jsonl.gz")
		write(t, path, "{\"a\":1}\n")
		_, err := (&flow{opt: files.Options{Paths: []string{path}}}).run(t, 0)
		wantCode(t, err, "FILE_UNREADABLE")
	})
}

func TestSource_Stdin(t *testing.T) {
	f := &flow{opt: files.Options{Paths: []string{"-"}, Stdin: strings.NewReader("{\"a\":1}\n{\"a\":2}")}}
	got, err := f.run(t, 0)
	want(t, got, err, `{"a":1}`, `{"a":2}`)
	if len(f.pos) != 0 {
		t.Fatalf("standard input has a position: %v", f.pos)
	}
	f = &flow{opt: files.Options{Paths: []string{"-"}, Stdin: bytes.NewReader(compressed(t, "gz", []byte("{\"a\":1}\n")))}}
	got, err = f.run(t, 0)
	want(t, got, err, `{"a":1}`)
}

func TestSource_LongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.jsonl")
	long := `{"a":"` + strings.Repeat("x", 40<<20) + `"}`
	write(t, path, "{\"a\":1}\n"+long+"\n{\"a\":2}\n")
	f := &flow{opt: files.Options{Paths: []string{path}}}
	got, err := f.run(t, 0)
	want(t, got, err, `{"a":1}`, long, `{"a":2}`)
	f = &flow{opt: files.Options{Paths: []string{path}, MaxRecordBytes: 1 << 20}}
	got, err = f.run(t, 0)
	want(t, got, err, `{"a":1}`, "fault LINE_TOO_LONG", `{"a":2}`)
	got, err = f.run(t, 0)
	want(t, got, err)
}

func TestSource_TopicRecords(t *testing.T) {
	read := func(line string) *event.Record {
		s, err := files.New(files.Options{Paths: []string{"-"}, Stdin: strings.NewReader(line)})
		if err != nil {
			t.Fatal(err)
		}
		recs, err := s.Sample(context.Background(), 1)
		if err != nil || len(recs) != 1 {
			t.Fatalf("%s: %v %v", line, recs, err)
		}
		return recs[0]
	}
	r := read(`{"topic":"t","partition":3,"offset":9007199254740993,"key":{"id":1},"value":{"a":[1,"}"]},"headers":{"h":"x","n":null,"j":{"k":1}}}`)
	if r.Topic != "t" || r.Partition != 3 || r.Transport != 9007199254740993 || string(r.Key) != `{"id":1}` || string(r.Value) != `{"a":[1,"}"]}` {
		t.Errorf("JSON: %+v", r)
	}
	if len(r.Headers) != 3 || string(r.Headers[0].Value) != "x" || r.Headers[1].Value != nil || string(r.Headers[2].Value) != `{"k":1}` {
		t.Errorf("headers: %q", r.Headers)
	}
	r = read(`{"topic":"t","partition":0,"offset":1,"tstype":"create","ts":5,"broker":1,"headers":["a","1","b",null],"key":"{\"id\":1}","payload":"{\"a\":\"\\u00e9\\n\"}"}`)
	if string(r.Key) != `{"id":1}` || string(r.Value) != `{"a":"\u00e9\n"}` || len(r.Headers) != 2 || string(r.Headers[0].Value) != "1" || r.Headers[1].Value != nil {
		t.Errorf("kcat: %q %q %q", r.Key, r.Value, r.Headers)
	}
	r = read(`{"topic":"t","partition":0,"offset":1,"key":null,"value":null}`)
	if r.Key != nil || r.Value != nil || r.Topic != "t" {
		t.Errorf("tombstone: %+v", r)
	}
	r = read(`{"topic":"t","partition":0,"offset":1,"key":"","value":""}`)
	if r.Key == nil || r.Value == nil || len(r.Value) != 0 {
		t.Errorf("empty is not null: %+v", r)
	}
	r = read(`{"topic":"t","partition":0,"offset":1,"headers":[{"key":"k","value":"v"}],"value":{}}`)
	if len(r.Headers) != 1 || string(r.Headers[0].Value) != "v" {
		t.Errorf("header objects: %q", r.Headers)
	}
	for _, bare := range []string{
		`{"topic":"t","value":5}`,
		`{"topic":"t","partition":0,"offset":1,"value":{},"extra":1}`,
		`{"topic":"t","partition":0,"offset":1.5,"value":{}}`,
		`{"topic":"t","partition":0,"offset":1,"value":{}`,
		`{"topic":"t","topic":"u","partition":0,"offset":1,"value":{}}`,
		`{"before":null}`,
	} {
		if r := read(bare); r.Topic != "" || string(r.Value) != bare {
			t.Errorf("%s is taken for a record of a topic", bare)
		}
	}
}

func TestSource_CSV(t *testing.T) {
	dir := t.TempDir()
	t.Run("Files.B the header may differ from file to file", func(t *testing.T) {
		write(t, filepath.Join(dir, "a-1.csv"), "id,v\n1,x\n")
		write(t, filepath.Join(dir, "a-2.csv"), "v,id\ny,2\n")
		got, err := (&flow{opt: files.Options{Paths: []string{dir}}}).run(t, 0)
		want(t, got, err, "id=1 v=x", "v=y id=2")
	})
	t.Run("growing", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "g.csv")
		write(t, p, "id,v\n1,\"two\nlines\"\n2,\"un")
		f := &flow{opt: files.Options{Paths: []string{p}, StableAge: time.Hour}}
		got, err := f.run(t, 0)
		want(t, got, err, "id=1 v=two\nlines")
		appendTo(t, p, "finished\"\n3,\"\"\n4,\n")
		got, err = f.run(t, 0)
		want(t, got, err, "id=2 v=unfinished", "id=3 v=", "id=4 v=NULL")
	})
	t.Run("a last record without newline counts once the file rests", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "g.csv")
		write(t, p, "id,v\n1,x")
		f := &flow{opt: files.Options{Paths: []string{p}}}
		f.opt.Now = func() time.Time { return time.Now().Add(time.Minute) }
		got, err := f.run(t, 0)
		want(t, got, err, "id=1 v=x")
	})
	t.Run("tabs, no header", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "g.tsv")
		write(t, p, "1\ta,b\r\n2\t\"c\"\r\n")
		got, err := (&flow{opt: files.Options{Paths: []string{p}, NoHeader: true}}).run(t, 0)
		want(t, got, err, "_c0=1 _c1=a,b", "_c0=2 _c1=c")
	})
	t.Run("many rows", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "m.csv")
		var b strings.Builder
		var exp []string
		b.WriteString("id,v\n")
		for i := range 10_000 {
			fmt.Fprintf(&b, "%d,v%d\n", i, i)
			exp = append(exp, fmt.Sprintf("id=%d v=v%d", i, i))
		}
		write(t, p, b.String())
		got, err := (&flow{opt: files.Options{Paths: []string{p}}}).run(t, 0)
		want(t, got, err, exp...)
	})
	t.Run("a header that names a column twice", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "h.csv")
		write(t, p, "id,id\n1,2\n")
		_, err := (&flow{opt: files.Options{Paths: []string{p}}}).run(t, 0)
		wantCode(t, err, "FILE_UNREADABLE")
	})
}

func TestSource_Parquet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.parquet")
	var b bytes.Buffer
	s := &schema.Struct{Fields: []schema.Field{{Name: "id", Type: schema.Long, Nullable: true}, {Name: "v", Type: schema.String, Nullable: true}}}
	w, err := parquetio.NewWriter(&b, s, parquetio.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	as, _ := schema.ArrowSchema(s)
	rb := array.NewRecordBuilder(memory.DefaultAllocator, as)
	rb.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
	rb.Field(1).(*array.StringBuilder).AppendValues([]string{"x", "y"}, nil)
	var rows arrow.RecordBatch = rb.NewRecordBatch()
	if err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.String())
	f := &flow{opt: files.Options{Paths: []string{path}}}
	got, err := f.run(t, 0)
	want(t, got, err, "id=1 v=x", "id=2 v=y")
	got, err = f.run(t, 0)
	want(t, got, err)
	t.Run("Files.G cut Parquet", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "r.parquet")
		write(t, p, b.String()[:b.Len()-5])
		_, err := (&flow{opt: files.Options{Paths: []string{p}}}).run(t, 0)
		wantCode(t, err, "FILE_UNREADABLE")
	})
	t.Run("grown after it was read", func(t *testing.T) {
		appendTo(t, path, "x")
		_, err := f.run(t, 0)
		wantCode(t, err, "FILE_CHANGED")
	})
}

// TestSource_CSVPositions: wherever the consumer stops, a later run gives the
// rest, each row once.
func TestSource_CSVPositions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.csv")
	write(t, path, "id,v\n1,a\n2,b\n3\n4,d\n\n5,\"x\"y\n6,f\n7,g,h\n8,i\n9,\"two\nlines\"\n")
	var exp []string
	f := &flow{opt: files.Options{Paths: []string{path}}}
	exp, err := f.run(t, 0)
	if err != nil || len(exp) != 9 {
		t.Fatalf("%q %v", exp, err)
	}
	step := &flow{opt: f.opt}
	var got []string
	for range 20 {
		rows, err := step.run(t, 1)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rows...)
	}
	if !slices.Equal(got, exp) {
		t.Fatalf("in steps %q, at once %q", got, exp)
	}
}

// TestSource_Cancelled: a position taken after a cancelled reading covers what
// was yielded and no more.
func TestSource_Cancelled(t *testing.T) {
	for _, name := range []string{"r.csv", "r.jsonl"} {
		path := filepath.Join(t.TempDir(), name)
		var b strings.Builder
		b.WriteString("id\n")
		for i := range 200_000 {
			fmt.Fprintf(&b, "%d\n", i)
		}
		write(t, path, b.String())
		s, err := files.New(files.Options{Paths: []string{path}, Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		for rec, err := range s.Records(ctx, nil) {
			if err != nil {
				break
			}
			n += len(text(rec))
			if n > 50_000 {
				cancel()
			}
		}
		cancel()
		pos, _ := s.Positions()
		f := &flow{opt: files.Options{Paths: []string{path}}, pos: map[string]event.Position{pos[0].Source: pos[0]}}
		rest, err := f.run(t, 0)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := (&flow{opt: f.opt}).run(t, 0)
		if n+len(rest) != len(all) {
			t.Fatalf("%s: %d and then %d of %d", name, n, len(rest), len(all))
		}
	}
}
