package apply_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// rowFlow applies files of plain rows to one table in memory.
type rowFlow struct {
	t     *testing.T
	dir   string
	store storage.Store
	spec  source.Spec
	flow  apply.Flow
	n     int
}

func newRowFlow(t *testing.T, flow apply.Flow) *rowFlow {
	return &rowFlow{t: t, dir: t.TempDir(), store: storage.NewMemory("t"), flow: flow, spec: source.Spec{Format: source.Rows, Keys: flow.Keys, NoOp: true, Truncates: flow.ApplyAsTruncates != ""}}
}

// run applies one more file.
func (f *rowFlow) run(name string, lines ...string) (apply.Result, error) {
	f.t.Helper()
	f.n++
	file := filepath.Join(f.dir, fmt.Sprintf("%d-%s", f.n, name))
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	spec := f.spec
	spec.From = []string{file}
	o, err := source.Open(context.Background(), spec)
	if err != nil {
		return apply.Result{}, err
	}
	defer o.Source.Close()
	return apply.Run(context.Background(), apply.Spec{Source: o.Source, NewDecoder: o.NewDecoder, Target: apply.Targets{Store: f.store, Name: "t"}, Flow: f.flow}, apply.Options{})
}

func (f *rowFlow) must(name string, lines ...string) apply.Result {
	f.t.Helper()
	r, err := f.run(name, lines...)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *rowFlow) table() *delta.Table {
	f.t.Helper()
	tb, err := delta.Open(context.Background(), f.store, delta.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	return tb
}

// rows are those of the table as texts, columns by name.
func (f *rowFlow) rows() string {
	f.t.Helper()
	scan, err := f.table().Scan(context.Background(), delta.ScanOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for b, err := range scan.Batches(context.Background()) {
		if err != nil {
			f.t.Fatal(err)
		}
		for r := range int(b.NumRows()) {
			var cells []string
			for c, x := range b.Schema().Fields() {
				cells = append(cells, fmt.Sprintf("%s=%v", strings.ToLower(x.Name), corpora.Value(b.Column(c), r)))
			}
			slices.Sort(cells)
			out = append(out, strings.Join(cells, " "))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func wantErrorCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *apply.Error
	var s *source.Error
	switch {
	case errors.As(err, &e) && e.Code == code:
	case errors.As(err, &s) && s.Code == code:
	default:
		t.Errorf("got %v, want %s", err, code)
	}
}

// TestRun_F16_B_RowsAreASet: what a field means that a JSON record lacks depends on
// that record alone, not on the records around it.
func TestRun_F16_B_RowsAreASet(t *testing.T) {
	events := []string{
		`{"id":1,"name":"Ann","ts":1}`, `{"id":1,"city":"Rome","ts":2}`, `{"id":1,"name":null,"ts":3}`,
		`{"id":2,"name":"Bob","city":"Oslo","ts":4}`, `{"id":2,"city":null,"age":7,"ts":5}`, `{"ID":3,"Name":"Cy","ts":6}`,
		`{"id":3,"age":8,"ts":7}`, `{"id":1,"age":9,"ts":8}`,
	}
	const want = "age=7 city=<nil> id=2 name=Bob\nage=8 city=<nil> id=3 name=Cy\nage=9 city=Rome id=1 name=<nil>"
	rng := rand.New(rand.NewSource(1))
	for round := range 12 {
		flow := apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "ts", ExceptColumnList: []string{"ts"}, BatchRows: []int{0, 1, 3}[round%3]}
		list := slices.Clone(events)
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		f := newRowFlow(t, flow)
		if cut := rng.Intn(len(list)); cut > 0 && round%2 == 0 { // another run
			f.must("a.jsonl", list[:cut]...)
			list = list[cut:]
		}
		f.must("b.jsonl", list...)
		if got := f.rows(); got != want {
			t.Fatalf("round %d, batches of %d, %v:\n%s\nwant\n%s", round, flow.BatchRows, list, got, want)
		}
	}
}

// TestRun_F16_B_SchemaSaysWhatIsMissing: under a declared schema a missing field is null.
func TestRun_F16_B_SchemaSaysWhatIsMissing(t *testing.T) {
	ddl, err := schema.ParseDDL("id BIGINT, name STRING, city STRING, ts BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{0, 1} {
		f := newRowFlow(t, apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "ts", ExceptColumnList: []string{"ts"}, BatchRows: rows})
		f.spec.Schema = ddl
		f.must("a.jsonl", `{"id":1,"name":"Ann","ts":1}`, `{"id":1,"city":"Rome","ts":2}`)
		if got := f.rows(); got != "city=Rome id=1 name=<nil>" {
			t.Errorf("batches of %d: %s", rows, got)
		}
	}
	f := newRowFlow(t, apply.Flow{Keys: []string{"id"}, SequenceBy: "ts"})
	f.spec.Options = map[string]string{"missing_fields": "null"}
	_, err = f.run("a.jsonl", `{"id":1,"ts":1}`)
	wantErrorCode(t, err, "BAD_OPTION")
}

// TestRun_E15_TruncateWithoutKey: a condition makes truncates of rows whose key is
// null or missing; of others that is NULL_KEY.
func TestRun_E15_TruncateWithoutKey(t *testing.T) {
	flow := apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "ts", ApplyAsTruncates: "op = 'T'", ExceptColumnList: []string{"op", "ts"}}
	for name, lines := range map[string][]string{
		"a.jsonl": {`{"id":1,"v":"a","op":"U","ts":1}`, `{"id":null,"op":"T","ts":3}`, `{"op":"T","ts":2}`, `{"id":2,"v":"b","op":"U","ts":4}`},
		"a.csv":   {"id,v,op,ts", "1,a,U,1", ",,T,3", "2,b,U,4"},
	} {
		for _, rows := range []int{0, 1} {
			flow.BatchRows = rows
			f := newRowFlow(t, flow)
			f.must(name, lines...)
			if got := f.rows(); got != "id=2 v=b" {
				t.Errorf("%s: %s", name, got)
			}
			_, err := f.run("b.jsonl", `{"id":null,"v":"x","op":"U","ts":5}`)
			if name == "a.csv" {
				_, err = f.run("b.csv", "id,v,op,ts", ",x,U,5")
			}
			wantErrorCode(t, err, apply.CodeNullKey)
		}
	}
	f := newRowFlow(t, flow)
	_, err := f.run("only.jsonl", `{"id":null,"op":"T","ts":3}`)
	wantErrorCode(t, err, apply.CodeNullKey) // no event tells the type of the key
}

// TestRun_TargetTypes: the columns of the target say what records without types mean;
// a column that a file lacks, or has nothing but nulls in, is no error.
func TestRun_TargetTypes(t *testing.T) {
	ctx := context.Background()
	ddl, err := schema.ParseDDL("id BIGINT, price DECIMAL(10,2), day DATE, note STRING, tags ARRAY<STRING>")
	if err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"a.jsonl": {`{"ID":1,"price":5,"day":"2024-05-01","note":7,"ts":1}`, `{"id":2,"price":null,"day":null,"ts":2}`},
		"a.csv":   {"id,price,day,note,ts", "1,5,2024-05-01,7,1", "2,,,,2"},
	} {
		f := newRowFlow(t, apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "CAST(ts AS BIGINT)", ColumnList: []string{"id", "price", "day", "note", "tags"}})
		if _, err := delta.Create(ctx, f.store, delta.CreateOptions{Schema: ddl}, delta.Options{}); err != nil {
			t.Fatal(err)
		}
		f.must(name, lines...)
		got := f.rows()
		if lines := strings.Split(got, "\n"); len(lines) != 2 || !strings.Contains(got, "id=1 note=7 price=5.00 tags=<nil>") || !strings.Contains(got, "day=<nil> id=2 note=<nil> price=<nil>") {
			t.Errorf("%s: %s", name, got)
		}
		s, err := f.table().Schema(ctx)
		if err != nil || !schema.EqualIgnoringNullability(s, ddl) {
			t.Errorf("%s: %s, %v", name, s, err)
		}
	}
	f := newRowFlow(t, apply.Flow{Keys: []string{"id"}, SequenceBy: "ts", ColumnList: []string{"id", "nothing"}})
	_, err = f.run("a.jsonl", `{"id":1,"ts":1}`)
	wantErrorCode(t, err, apply.CodeColumnsNotFound)
}

// TestRun_VoidColumns: columns without a value so far bind wherever a clause names them.
func TestRun_VoidColumns(t *testing.T) {
	f := newRowFlow(t, apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "ts", ColumnsToUpdate: "cols", ApplyAsDeletes: "op = 'D'", ExceptColumnList: []string{"op", "ts", "later"}})
	f.must("a.jsonl", `{"id":1,"v":"a","cols":null,"op":null,"later":null,"ts":1}`)
	f.must("b.jsonl", `{"id":1,"v":"b","w":3,"cols":["w"],"ts":2}`, `{"id":2,"v":"x","ts":3}`, `{"id":2,"op":"D","ts":4}`)
	if got := f.rows(); got != "id=1 v=a w=3" {
		t.Error(got)
	}
	_, err := f.run("c.jsonl", `{"id":1,"v":"b","ts":null}`)
	wantErrorCode(t, err, apply.CodeNullSequence)
}

// TestOpen_UnknownKey: a key column that no record has is not in the schema.
func TestOpen_UnknownKey(t *testing.T) {
	f := newRowFlow(t, apply.Flow{Keys: []string{"nosuch"}, SequenceBy: "ts"})
	for name, lines := range map[string][]string{"a.jsonl": {`{"id":1,"ts":1}`}, "a.csv": {"id,ts", "1,1"}} {
		_, err := f.run(name, lines...)
		wantErrorCode(t, err, apply.CodeColumnsNotFound)
		if err == nil || !strings.Contains(err.Error(), "id, ts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRun_TextSequence warns of numbers that are compared as text.
func TestRun_TextSequence(t *testing.T) {
	for _, c := range []struct {
		expr  string
		ts    [2]string
		warns bool
	}{
		{"ts", [2]string{"9", "10"}, true}, {"CAST(ts AS BIGINT)", [2]string{"9", "10"}, false}, {"ts", [2]string{"20240509", "20240510"}, false},
		{"ts", [2]string{"2024-05-09T10:00:00Z", "2024-05-10T10:00:00Z"}, false}, {"ts", [2]string{"0009", "0010"}, false},
	} {
		f := newRowFlow(t, apply.Flow{Keys: []string{"id"}, SequenceBy: c.expr})
		r := f.must("a.csv", "id,ts", "1,"+c.ts[0], "1,"+c.ts[1])
		if warned := len(r.Warnings) == 1 && strings.Contains(r.Warnings[0], "as text 9 comes after 10"); warned != c.warns {
			t.Errorf("%s of %v: warnings %q", c.expr, c.ts, r.Warnings)
		}
	}
}

// TestRun_TypesOfLaterRecords: the first records together say what type a column has,
// and which columns there are, before the first batch is made of them.
func TestRun_TypesOfLaterRecords(t *testing.T) {
	var lines []string
	for i := range 150 {
		lines = append(lines, fmt.Sprintf(`{"id":%d,"v":%d,"ts":%d}`, i%2, i, i))
	}
	lines = append(lines, `{"id":1,"v":1.5,"op":"x","ts":999}`)
	for _, rows := range []int{0, 50} {
		f := newRowFlow(t, apply.Flow{Name: "f", Keys: []string{"id"}, SequenceBy: "ts", ExceptColumnList: []string{"op", "ts"}, BatchRows: rows})
		f.must("a.jsonl", lines...)
		if got := f.rows(); got != "id=0 v=148.0\nid=1 v=1.5" {
			t.Errorf("batches of %d: %s", rows, got)
		}
	}
}
