package spill

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
)

var rowsSchema = arrow.NewSchema([]arrow.Field{
	{Name: "number", Type: arrow.PrimitiveTypes.Int64},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "list", Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true})), Nullable: true},
	{Name: "none", Type: arrow.Null, Nullable: true},
}, nil)

// rowsOf makes a batch of numbers, each with values of its own.
func rowsOf(numbers []int64) arrow.RecordBatch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, rowsSchema)
	defer rb.Release()
	for _, n := range numbers {
		rb.Field(0).(*array.Int64Builder).Append(n)
		if n%3 == 0 {
			rb.Field(1).AppendNull()
		} else {
			rb.Field(1).(*array.StringBuilder).Append(string(rune('a' + n%26)))
		}
		l := rb.Field(2).(*array.ListBuilder)
		l.Append(n%4 != 0)
		st := l.ValueBuilder().(*array.StructBuilder)
		for i := range n % 4 {
			st.Append(true)
			st.FieldBuilder(0).(*array.Float64Builder).Append(float64(i))
		}
		rb.Field(3).AppendNull()
	}
	return rb.NewRecordBatch()
}

func create(t testing.TB) *File {
	t.Helper()
	f, err := Create(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Segments read back as they were, also parts of batches, from several goroutines.
func TestFile_Segments(t *testing.T) {
	f := create(t)
	var numbers []int64
	for n := range int64(100) {
		numbers = append(numbers, n)
	}
	whole := rowsOf(numbers)
	var mu sync.Mutex
	at := map[int64]Segment{}
	var wg sync.WaitGroup
	for from := int64(0); from < 100; from += 7 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s, err := f.Append(whole.NewSlice(from, min(from+7, 100)))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			at[from] = s
		}()
	}
	wg.Wait()
	for from, s := range at {
		got, err := f.Read(s)
		if err != nil {
			t.Fatal(err)
		}
		want := whole.NewSlice(from, min(from+7, 100))
		if !array.RecordEqual(got, want) || s.Rows != want.NumRows() || !got.Schema().Equal(want.Schema()) {
			t.Errorf("from %d: got %v, want %v", from, got, want)
		}
	}
	if f.Size() == 0 {
		t.Error("no size")
	}
}

// Runs merge into the sorted whole, whatever their cuts.
func TestFile_Merge(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		f := create(t)
		var want []int64
		var runs [][]Segment
		for range rapid.IntRange(0, 5).Draw(rt, "runs") {
			numbers := rapid.SliceOfN(rapid.Int64Range(0, 60), 0, 40).Draw(rt, "numbers")
			slices.Sort(numbers)
			want = append(want, numbers...)
			var run []Segment
			for len(numbers) > 0 {
				n := rapid.IntRange(0, len(numbers)).Draw(rt, "piece")
				s, err := f.Append(rowsOf(numbers[:n]))
				if err != nil {
					rt.Fatal(err)
				}
				run, numbers = append(run, s), numbers[n:]
			}
			runs = append(runs, run)
		}
		slices.Sort(want)
		var got []int64
		for b, err := range f.Merge(runs, 0) {
			if err != nil {
				rt.Fatal(err)
			}
			part := b.Column(0).(*array.Int64).Int64Values()
			if !array.RecordEqual(b, rowsOf(part)) {
				rt.Fatalf("rows of %v: %v", part, b)
			}
			got = append(got, part...)
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	})
}

// A file leaves nothing behind, not even that of a process that was killed.
func TestFile_LeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sluice-spill-123"), []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var files []*File
	for range 3 { // one does not take the files of another away
		f, err := Create(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	if runtime.GOOS != "windows" && !slices.Equal(names(), []string{"other"}) {
		t.Errorf("while files are open: %v", names())
	}
	for _, f := range files {
		s, err := f.Append(rowsOf([]int64{1, 2}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(s); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(names(), []string{"other"}) {
		t.Errorf("left behind: %v", names())
	}
}

// What fails names the directory.
func TestFile_Errors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	_, err := Create(Options{Dir: dir})
	var e *Error
	if !errors.As(err, &e) || e.Dir != dir || e.Code() != "SPILL_FAILED" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	f := create(t)
	if _, err := f.Read(Segment{off: 10, size: 20}); !errors.As(err, &e) {
		t.Errorf("nothing there: %v", err)
	}
}
