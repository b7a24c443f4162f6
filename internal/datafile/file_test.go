package datafile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/expr"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func batchOf(t testing.TB, as *arrow.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write puts rows into files of the layout and returns the add actions.
func write(t testing.TB, store storage.Store, l *Layout, o WriterOptions, rows ...string) []*deltalog.Add {
	t.Helper()
	w, err := NewWriter(store, l, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := w.Write(context.Background(), batchOf(t, w.Schema(), r)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	adds := make([]*deltalog.Add, len(files))
	for i, f := range files {
		adds[i] = f.Add(true)
	}
	return adds
}

// read is the rows of a file as JSON lines with their row numbers.
func read(t testing.TB, store storage.Store, l *Layout, add *deltalog.Add, o ReadOptions) (string, error) {
	t.Helper()
	var b strings.Builder
	for batch, err := range Read(context.Background(), store, l, add, o) {
		if err != nil {
			return "", err
		}
		rows, err := array.RecordToStructArray(batch.RecordBatch).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var each []json.RawMessage
		if err := json.Unmarshal(rows, &each); err != nil {
			t.Fatal(err)
		}
		for i, r := range each {
			fmt.Fprintf(&b, "%d %s\n", batch.Rows[i], r)
		}
	}
	return b.String(), nil
}

func TestWriter_Partitions(t *testing.T) {
	s := storage.NewMemory("w")
	l := mustLayout(t, "p STRING, v INT, d DATE", []string{"d", "p"}, nil)
	adds := write(t, s, l, WriterOptions{},
		`[{"p":"US/East","v":1,"d":"2024-01-01"},{"p":"srb%","v":2,"d":null},{"p":"US/East","v":3,"d":"2024-01-01"},{"p":"","v":4,"d":null}]`,
		`[{"p":null,"v":5,"d":null},{"p":"US/East","v":6,"d":"2024-01-01"}]`)
	got := map[string]string{}
	for _, a := range adds {
		i := strings.LastIndex(a.Path, "/")
		pv, _ := json.Marshal(a.PartitionValues)
		got[a.Path[:i]] = string(pv)
	}
	want := map[string]string{
		"d=2024-01-01/p=US%252FEast":                                `{"d":"2024-01-01","p":"US/East"}`,
		"d=__HIVE_DEFAULT_PARTITION__/p=srb%2525":                   `{"d":null,"p":"srb%"}`,
		"d=__HIVE_DEFAULT_PARTITION__/p=__HIVE_DEFAULT_PARTITION__": `{"d":null,"p":null}`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("W-551 W-552 W-553: got %v, want %v", got, want)
	}
	rows, err := read(t, s, l, adds[0], ReadOptions{})
	if want := "0 {\"d\":\"2024-01-01\",\"p\":\"US/East\",\"v\":1}\n1 {\"d\":\"2024-01-01\",\"p\":\"US/East\",\"v\":3}\n2 {\"d\":\"2024-01-01\",\"p\":\"US/East\",\"v\":6}\n"; err != nil || rows != want {
		t.Errorf("got %s %v", rows, err)
	}
	if !strings.HasSuffix(adds[0].Path, "-c000.snappy.parquet") || !strings.Contains(adds[0].Path, "/part-0000") {
		t.Errorf("file name %s", adds[0].Path)
	}
	t.Run("R-405 partition columns come from the action", func(t *testing.T) {
		a := *adds[0]
		other := "elsewhere"
		a.PartitionValues = map[string]*string{"p": &other, "d": nil}
		rows, err := read(t, s, l, &a, ReadOptions{Columns: []string{"P", "d"}, Rows: []int64{2}})
		if err != nil || rows != "2 {\"d\":null,\"p\":\"elsewhere\"}\n" {
			t.Errorf("%s %v", rows, err)
		}
	})
	t.Run("W-554 a long value goes to another directory", func(t *testing.T) {
		long := strings.Repeat("x", 300)
		a := write(t, s, l, WriterOptions{NewID: func() string { return "abcdef" }}, `[{"p":"`+long+`","v":1}]`)[0]
		if !strings.HasPrefix(a.Path, "ab/part-") || *a.PartitionValues["p"] != long {
			t.Errorf("path %s", a.Path)
		}
	})
}

func TestWriter_Roll(t *testing.T) {
	s := storage.NewMemory("w")
	l := mustLayout(t, "v STRING", nil, nil)
	w, err := NewWriter(s, l, WriterOptions{Roll: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range 20 {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		for range 2000 {
			b.Append(fmt.Sprintf("value %d %x", n, n*7919))
			n++
		}
		if err := w.Write(context.Background(), array.NewRecordBatch(w.Schema(), []arrow.Array{b.NewArray()}, 2000)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	for _, f := range files {
		rows += f.Rows
		o, err := s.Head(context.Background(), f.Key)
		if err != nil || o.Size != f.Size || f.Size > 250_000 {
			t.Errorf("%s: %d bytes, head %d %v", f.Key, f.Size, o.Size, err)
		}
	}
	if len(files) < 3 || rows != int64(n) {
		t.Errorf("%d files, %d rows", len(files), rows)
	}
}

func TestWriter_MaxOpen(t *testing.T) {
	s := storage.NewMemory("w")
	l := mustLayout(t, "p INT, v INT", []string{"p"}, nil)
	adds := write(t, s, l, WriterOptions{MaxOpen: 2}, `[{"p":1},{"p":2},{"p":3},{"p":1}]`, `[{"p":1},{"p":2},{"p":3}]`)
	total := int64(0)
	for _, a := range adds {
		total += ParseStats(a.Stats).NumRecords
	}
	if total != 7 || len(adds) < 4 {
		t.Errorf("%d rows in %d files", total, len(adds))
	}
}

func TestWriter_Constraints(t *testing.T) {
	limited := func(kind string) *Layout {
		s := &schema.Struct{Fields: []schema.Field{{Name: "c", Type: schema.String, Nullable: true, Metadata: schema.Metadata{}.With(schema.CharVarcharKey, kind)}}}
		l, err := LayoutOf(mustConfig(t, s, nil, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, tt := range []struct {
		name string
		l    *Layout
		rows string
		code string
		col  string
	}{
		{"W-403 top level", mustLayout(t, "a INT NOT NULL", nil, nil), `[{"a":1},{"a":null}]`, CodeNotNull, "a"},
		{"W-403 field of a struct", mustLayout(t, "s STRUCT<x: INT NOT NULL>", nil, nil), `[{"s":{"x":null}}]`, CodeNotNull, "s.x"},
		{"W-403 null struct is no violation", mustLayout(t, "s STRUCT<x: INT NOT NULL>", nil, nil), `[{"s":null}]`, "", ""},
		{"W-551 empty partition value", mustLayout(t, "p STRING NOT NULL, v INT", []string{"p"}, nil), `[{"p":"","v":1}]`, CodeNotNull, "p"},
		{"W-405 varchar", limited("varchar(3)"), `[{"c":"abcd"}]`, CodeLength, "c"},
		{"W-405 characters, not bytes", limited("varchar(3)"), `[{"c":"äöü"}]`, "", ""},
		{"W-405 trailing spaces are cut", limited("varchar(3)"), `[{"c":"abc   "}]`, "", ""},
		{"W-405 char", limited("char(3)"), `[{"c":"abcd"}]`, CodeLength, "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := storage.NewMemory("w")
			w, err := NewWriter(s, tt.l, WriterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			err = w.Write(context.Background(), batchOf(t, w.Schema(), tt.rows))
			var c *ConstraintError
			if tt.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &c) || c.ErrorCode != tt.code || c.Column != tt.col {
				t.Errorf("got %v", err)
			}
			if err := w.Abort(context.Background()); err != nil {
				t.Error(err)
			}
			for o := range s.List(context.Background(), "", "") {
				t.Errorf("left behind: %s", o.Key)
			}
		})
	}
	t.Run("W-405 char is padded", func(t *testing.T) {
		s, l := storage.NewMemory("w"), limited("char(3)")
		rows, err := read(t, s, l, write(t, s, l, WriterOptions{}, `[{"c":"a"},{"c":null},{"c":"abc "}]`)[0], ReadOptions{})
		if want := "0 {\"c\":\"a  \"}\n1 {\"c\":null}\n2 {\"c\":\"abc\"}\n"; err != nil || rows != want {
			t.Errorf("%q %v", rows, err)
		}
	})
}

// TestWriter_CharMemory: what CHAR(n) pads is bounded by what is written, not by n.
func TestWriter_CharMemory(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		rows       int
		bad        bool
	}{
		{"W-405 one value", "char(2147483647)", 1, true},
		{"W-405 many values", "char(1000000)", 400, true},
		{"W-405 varchar is not padded", "varchar(2147483647)", 400, false},
		{"W-405 a long one", "char(100000)", 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &schema.Struct{Fields: []schema.Field{{Name: "c", Type: schema.String, Nullable: true, Metadata: schema.Metadata{}.With(schema.CharVarcharKey, c.kind)}}}
			l, err := LayoutOf(mustConfig(t, s, nil, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			w, err := NewWriter(storage.NewMemory("w"), l, WriterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b := batchOf(t, w.Schema(), "["+strings.Repeat(`{"c":"x"},`, c.rows-1)+`{"c":"x"}]`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = w.Write(context.Background(), b)
			runtime.ReadMemStats(&after)
			var bad *ConstraintError
			if errors.As(err, &bad) != c.bad || c.bad && (bad.ErrorCode != CodeLength || !strings.Contains(bad.Reason, "VARCHAR")) || !c.bad && err != nil {
				t.Errorf("got %v", err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("%d MiB allocated", used>>20)
			}
			if err := w.Abort(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWriter_Abort(t *testing.T) {
	ctx := context.Background()
	s := storage.NewMemory("w")
	w, err := NewWriter(s, mustLayout(t, "p INT, v INT", []string{"p"}, nil), WriterOptions{MaxOpen: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ctx, batchOf(t, w.Schema(), `[{"p":1},{"p":2},{"p":3}]`)); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	for o := range s.List(ctx, "", "") {
		t.Errorf("left behind: %s", o.Key)
	}
}

func TestRead_Evolution(t *testing.T) {
	s := storage.NewMemory("r")
	old := mustLayout(t, "a INT, gone STRING, s STRUCT<x: INT>, l ARRAY<STRUCT<i: INT>>", nil, nil)
	add := write(t, s, old, WriterOptions{}, `[{"a":1,"gone":"g","s":{"x":2},"l":[{"i":3}]},{"a":null,"gone":null,"s":null,"l":[]}]`)[0]
	now := mustLayout(t, "n STRING, S STRUCT<x: INT, y: DATE>, a INT, v VOID, l ARRAY<STRUCT<i: INT, j: VOID>>", nil, nil)
	rows, err := read(t, s, now, add, ReadOptions{})
	want := `0 {"S":{"x":2,"y":null},"a":1,"l":[{"i":3,"j":null}],"n":null,"v":null}` + "\n" + `1 {"S":null,"a":null,"l":[],"n":null,"v":null}` + "\n"
	if err != nil || rows != want {
		t.Errorf("R-404 R-406 R-407: got %s %v", rows, err)
	}
	rows, err = read(t, s, now, add, ReadOptions{Columns: []string{}})
	if err != nil || rows != "0 {}\n1 {}\n" {
		t.Errorf("no columns: %q %v", rows, err)
	}
}

func TestRead_Mapping(t *testing.T) {
	for _, mode := range []schema.Mode{schema.ModeName, schema.ModeID} {
		t.Run("R-501 W-501 "+string(mode), func(t *testing.T) {
			s := storage.NewMemory("r")
			plain, err := schema.ParseDDL("`a b` INT, s STRUCT<`x,y`: STRING>, p STRING, m MAP<STRING, STRUCT<q: INT>>")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			mapped, maxID := schema.AssignMapping(plain, 0, func() string { n++; return fmt.Sprintf("col-%d", n) })
			l, err := LayoutOf(mustConfig(t, mapped, []string{"p"}, map[string]string{"delta.columnMapping.mode": string(mode), "delta.columnMapping.maxColumnId": fmt.Sprint(maxID)}), nil)
			if err != nil {
				t.Fatal(err)
			}
			rows := `[{"a b":1,"s":{"x,y":"u"},"p":"part","m":[{"key":"k","value":{"q":7}}]}]`
			add := write(t, s, l, WriterOptions{}, rows)[0]
			phys := l.physical
			if _, ok := add.PartitionValues[phys.Fields[2].Name]; !ok || !strings.Contains(add.Stats, `"`+phys.Fields[0].Name+`":1`) {
				t.Errorf("R-502: partitionValues %v, stats %s", add.PartitionValues, add.Stats)
			}
			// A rename keeps the files as they are.
			mapped.Fields[0].Name = "renamed"
			l2, err := LayoutOf(mustConfig(t, mapped, []string{"p"}, map[string]string{"delta.columnMapping.mode": string(mode), "delta.columnMapping.maxColumnId": fmt.Sprint(maxID)}), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(t, s, l2, add, ReadOptions{})
			if want := `0 {"m":[{"key":"k","value":{"q":7}}],"p":"part","renamed":1,"s":{"x,y":"u"}}` + "\n"; err != nil || got != want {
				t.Errorf("got %s %v", got, err)
			}
		})
	}
}

func TestRead_Hidden(t *testing.T) {
	s := storage.NewMemory("r")
	carry := `{"type":"struct","fields":[{"name":"__sluice","type":{"type":"struct","fields":[{"name":"v","type":"long","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}`
	l := mustLayout(t, "a INT", nil, map[string]string{PropCarry: carry})
	add := write(t, s, l, WriterOptions{Hidden: true}, `[{"a":1,"__sluice":{"v":9}}]`)[0]
	if strings.Contains(add.Stats, "__sluice") {
		t.Errorf("hidden columns in statistics: %s", add.Stats)
	}
	if got, err := read(t, s, l, add, ReadOptions{}); err != nil || got != "0 {\"a\":1}\n" {
		t.Errorf("plain read: %s %v", got, err)
	}
	if got, err := read(t, s, l, add, ReadOptions{Hidden: true}); err != nil || got != "0 {\"__sluice\":{\"v\":9},\"a\":1}\n" {
		t.Errorf("hidden read: %s %v", got, err)
	}
	without := write(t, s, l, WriterOptions{}, `[{"a":2}]`)[0]
	if got, err := read(t, s, l, without, ReadOptions{Hidden: true}); err != nil || got != "0 {\"__sluice\":null,\"a\":2}\n" {
		t.Errorf("file without them: %s %v", got, err)
	}
}

func TestRead_BadFiles(t *testing.T) {
	ctx := context.Background()
	s := storage.NewMemory("r")
	l := mustLayout(t, "a INT, b STRING", nil, nil)
	add := write(t, s, l, WriterOptions{}, `[{"a":1,"b":"x"},{"a":2,"b":"y"}]`)[0]
	data, err := storage.ReadAll(ctx, s, add.Path)
	if err != nil {
		t.Fatal(err)
	}
	other := write(t, s, mustLayout(t, "a STRING, b STRING", nil, nil), WriterOptions{}, `[{"a":"q","b":"x"}]`)[0]
	for _, tt := range []struct {
		name, code string
		class      error
		make       func() *deltalog.Add
	}{
		{"missing", CodeMissing, deltalog.ErrNotFound, func() *deltalog.Add { a := *add; a.Path = "part-gone.parquet"; return &a }},
		{"shorter than its size", CodeTruncated, deltalog.ErrCorrupt, func() *deltalog.Add {
			s.Put(ctx, "short", data[:len(data)-10])
			a := *add
			a.Path = "short"
			return &a
		}},
		{"empty", CodeTruncated, deltalog.ErrCorrupt, func() *deltalog.Add {
			s.Put(ctx, "empty", nil)
			a := *add
			a.Path, a.Size = "empty", 0
			return &a
		}},
		{"not Parquet", CodeCorrupt, deltalog.ErrCorrupt, func() *deltalog.Add {
			s.Put(ctx, "text", []byte(strings.Repeat("hello ", 1000)))
			a := *add
			a.Path = "text"
			return &a
		}},
		{"another schema", CodeSchema, deltalog.ErrCorrupt, func() *deltalog.Add { return other }},
		{"outside of the store", CodePath, deltalog.ErrUnsupported, func() *deltalog.Add { a := *add; a.Path = "s3://elsewhere/x.parquet"; return &a }},
		{"parent directory", CodePath, deltalog.ErrUnsupported, func() *deltalog.Add { a := *add; a.Path = "../x.parquet"; return &a }},
		{"damaged deletion vector", CodeVector, deltalog.ErrCorrupt, func() *deltalog.Add {
			a := *add
			a.DeletionVector = &deltalog.DeletionVectorDescriptor{StorageType: "i", PathOrInlineDv: "00000", SizeInBytes: 4, Cardinality: 1}
			return &a
		}},
		{"deletion vector of another file", CodeVector, deltalog.ErrCorrupt, func() *deltalog.Add {
			a := *add
			a.DeletionVector = &deltalog.DeletionVectorDescriptor{StorageType: "i", PathOrInlineDv: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}
			return &a
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := read(t, s, l, tt.make(), ReadOptions{})
			var fe *FileError
			if !errors.As(err, &fe) || fe.ErrorCode != tt.code || !errors.Is(err, tt.class) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRead_DeletionVector(t *testing.T) {
	s := storage.NewMemory("r")
	l := mustLayout(t, "a INT", nil, nil)
	var rows []string
	for i := range 31 {
		rows = append(rows, fmt.Sprintf(`{"a":%d}`, i))
	}
	add := write(t, s, l, WriterOptions{}, "["+strings.Join(rows, ",")+"]")[0]
	add.DeletionVector = &deltalog.DeletionVectorDescriptor{StorageType: "i", PathOrInlineDv: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}
	gone := []int64{3, 4, 7, 11, 18, 29}
	count := func(o ReadOptions) (out []int64) {
		for b, err := range Read(context.Background(), s, l, add, o) {
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range b.Rows {
				if int64(b.Column(0).(*array.Int32).Value(i)) != r {
					t.Errorf("R-655: row %d holds %v", r, b.Column(0))
				}
			}
			out = append(out, b.Rows...)
		}
		return out
	}
	live := count(ReadOptions{})
	if len(live) != 25 || slices.ContainsFunc(live, func(r int64) bool { return slices.Contains(gone, r) }) {
		t.Errorf("live rows %v", live)
	}
	if all := count(ReadOptions{KeepDeleted: true}); len(all) != 31 {
		t.Errorf("kept rows %v", all)
	}
	if only := count(ReadOptions{OnlyDeleted: true}); !slices.Equal(only, gone) {
		t.Errorf("deleted rows %v", only)
	}
	if some := count(ReadOptions{Rows: []int64{2, 3, 4, 30}}); !slices.Equal(some, []int64{2, 30}) {
		t.Errorf("chosen rows %v", some)
	}
	if got := count(ReadOptions{Filter: bind(t, l, "a % 2 = 1 AND a < 12")}); !slices.Equal(got, []int64{1, 5, 9}) {
		t.Errorf("filtered rows %v", got)
	}
}

func bind(t interface{ Fatal(...any) }, l *Layout, text string) *expr.Bound {
	e, err := expr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Bind(l.Schema)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLayout_MayMatch(t *testing.T) {
	s := storage.NewMemory("p")
	l := mustLayout(t, "p INT, i INT, s STRING, f DOUBLE, d DECIMAL(10,2), t TIMESTAMP, n STRUCT<x: INT>", []string{"p"}, nil)
	add := write(t, s, l, WriterOptions{}, `[{"p":1,"i":10,"s":"m","f":-0.0,"d":"1.50","t":"2024-01-01T00:00:00.123456Z","n":{"x":5}},{"p":1,"i":20,"s":null,"f":0.0,"d":"9.99","t":"2024-01-02T00:00:00Z","n":null}]`)[0]
	raw := func(stats string) *deltalog.Add { a := *add; a.Stats = stats; return &a }
	one := "01"
	typed := *add
	typed.PartitionValues = map[string]*string{"p": &one}
	for _, tt := range []struct {
		name, where string
		add         *deltalog.Add
		want        bool
	}{
		{"below the minimum", "i < 10", add, false},
		{"at the minimum", "i <= 10", add, true},
		{"R-602 other conjunct unknown", "i > 20 AND f = 1", add, false},
		{"R-602 or", "i > 20 OR s = 'm'", add, true},
		{"R-551 partition", "p = 2", add, false},
		{"R-553 partition values are typed", "p = 1", &typed, true},
		{"null count", "i IS NULL", add, false},
		{"null count of a string", "s IS NULL", add, true},
		{"nested leaf", "n.x > 5", add, false},
		{"nested leaf inside", "n.x = 5", add, true},
		{"R-608 zeroes", "f = 0.0", add, true},
		{"decimal", "d > 9.99", add, false},
		{"R-605 maximum was floored", "t > timestamp '2024-01-02 00:00:00.000500Z'", add, true},
		{"R-605 beyond the millisecond", "t > timestamp '2024-01-02 00:00:00.001Z'", add, false},
		{"R-601 no statistics", "i = 1000", raw(""), true},
		{"R-601 not JSON", "i = 1000", raw("{oops"), true},
		{"R-601 no statistics, partition still known", "p = 2", raw(""), false},
		{"R-602 missing maximum", "i > 1000", raw(`{"numRecords":2,"minValues":{"i":1},"nullCount":{"i":0}}`), true},
		{"R-602 all null", "i > 1000", raw(`{"numRecords":2,"nullCount":{"i":2}}`), false},
		{"R-603 wide null count", "i IS NULL", raw(`{"numRecords":3,"tightBounds":false,"nullCount":{"i":0}}`), false},
		{"R-603 wide null count says little", "i IS NOT NULL", raw(`{"numRecords":3,"tightBounds":false,"nullCount":{"i":2}}`), true},
		{"R-606 rounded float for a decimal", "d = 12345678.91", raw(`{"numRecords":1,"minValues":{"d":1.2345678905e7},"maxValues":{"d":1.2345678905e7}}`), true},
		{"R-606 decimal as text", "d > 5", raw(`{"numRecords":1,"minValues":{"d":"1.00"},"maxValues":{"d":"4.00"}}`), false},
		{"R-607 NaN may hide", "f > 100", raw(`{"numRecords":1,"minValues":{"f":1.0},"maxValues":{"f":2.0}}`), true},
		{"R-609 bound of an older type", "i > 100", raw(`{"numRecords":1,"minValues":{"i":"a"},"maxValues":{"i":"b"}}`), true},
		{"R-605 delta-rs text", "t < timestamp '2020-01-01Z'", raw(`{"numRecords":1,"minValues":{"t":"2024-01-01 00:00:00.123456"},"maxValues":{"t":"2024-01-01 00:00:00.123456"}}`), false},
		{"R-605 offset", "t < timestamp '2024-01-01 08:00:00Z'", raw(`{"numRecords":1,"minValues":{"t":"2024-01-01T00:00:00.000-08:00"},"maxValues":{"t":"2024-01-01T00:00:00.000-08:00"}}`), false},
		{"no rows", "true", raw(`{"numRecords":0}`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := l.MayMatch(bind(t, l, tt.where), tt.add); got != tt.want {
				t.Errorf("%s: %v", tt.where, got)
			}
		})
	}
	if ok, err := l.PartitionMatch(bind(t, l, "p + 1 = 2"), add); !ok || err != nil {
		t.Errorf("PartitionMatch: %v %v", ok, err)
	}
	if !l.AllMatch(bind(t, l, "i >= 10"), add) || l.AllMatch(bind(t, l, "i > 10"), add) {
		t.Error("AllMatch")
	}
}

func TestWriter_Change(t *testing.T) {
	s := storage.NewMemory("c")
	l := mustLayout(t, "p STRING, v INT NOT NULL", []string{"p"}, nil)
	w, err := NewWriter(s, l, WriterOptions{Change: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := w.Write(ctx, batchOf(t, w.Schema(), `[{"p":"a","v":1,"_change_type":"update_preimage"},{"p":"b","v":1,"_change_type":"update_postimage"}]`)); err != nil {
		t.Fatal(err)
	}
	files, err := w.Close(ctx)
	if err != nil || len(files) != 2 {
		t.Fatalf("W-908: %d files, %v", len(files), err)
	}
	c := files[1].CDC()
	if !strings.HasPrefix(c.Path, "_change_data/p=b/cdc-00001-") || !strings.HasSuffix(c.Path, ".c000.snappy.parquet") || c.DataChange || len(c.PartitionValues) != 1 {
		t.Errorf("W-903: %+v", c)
	}
	var got string
	for b, err := range ReadFile(ctx, s, l, Source{Path: c.Path, PartitionValues: c.PartitionValues, Size: c.Size}, ReadOptions{Change: true}) {
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := array.RecordToStructArray(b.RecordBatch).MarshalJSON()
		got += strings.ReplaceAll(string(rows), "\n", "")
	}
	if want := `[{"_change_type":"update_postimage","p":"b","v":1}]`; got != want {
		t.Errorf("got %s", got)
	}
}
