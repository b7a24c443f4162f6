package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/log/schema"
)

// TestExpr runs the stories of testdata/expr:
//
//	schema     columns of the table, as DDL
//	rows       one row a line, constant expressions separated by |
//	parse      one expression a line: its canonical text or the error
//	eval       one expression a line: type and value per row, or the error
//	filter     one condition a line: the rows where it is TRUE
//	prune      bounds (see parseBounds), then one condition a line
//	set        assignments
func TestExpr(t *testing.T) {
	datadriven.Walk(t, "testdata/expr", func(t *testing.T, path string) {
		env := &testEnv{schema: &schema.Struct{}, zone: time.UTC}
		env.batch = env.makeBatch(t, []string{""})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.HasArg("zone") {
				var name string
				d.ScanArgs(t, "zone", &name)
				zone, err := time.LoadLocation(name)
				if err != nil {
					t.Fatal(err)
				}
				env.zone = zone
				defer func() { env.zone = time.UTC }()
			}
			var out strings.Builder
			switch d.Cmd {
			case "schema":
				s, err := schema.ParseDDL(d.Input)
				if err != nil {
					t.Fatal(err)
				}
				env.schema = s
			case "rows":
				env.batch = env.makeBatch(t, strings.Split(strings.TrimSpace(d.Input), "\n"))
			case "prune":
				bounds, list := parseBounds(t, env.schema, d.Input)
				for _, line := range list {
					fmt.Fprintf(&out, "%s => %s\n", line, env.prune(line, bounds))
				}
			default:
				for _, line := range strings.Split(d.Input, "\n") {
					fmt.Fprintf(&out, "%s => %s\n", line, env.run(d.Cmd, line))
				}
			}
			return out.String()
		})
	})
}

type testEnv struct {
	schema *schema.Struct
	batch  arrow.RecordBatch
	zone   *time.Location
}

// codeOf is the text of an error in a golden.
func codeOf(err error) string {
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return fmt.Sprintf("error %s: %v", coded.Code(), err)
	}
	return "error without code: " + err.Error()
}

func (e *testEnv) bind(text string) (*Bound, error) {
	x, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return x.BindWith(e.schema, Options{Zone: e.zone})
}

func (e *testEnv) run(cmd, line string) string {
	switch cmd {
	case "parse":
		x, err := Parse(line)
		if err != nil {
			return codeOf(err)
		}
		return x.String()
	case "set":
		list, err := ParseAssignments(line)
		if err != nil {
			return codeOf(err)
		}
		var out []string
		for _, a := range list {
			out = append(out, strings.Join(a.Path, ".")+" := "+a.Value.String())
		}
		return strings.Join(out, "; ")
	}
	b, err := e.bind(line)
	if err != nil {
		return codeOf(err)
	}
	if cmd == "filter" {
		rows, err := b.EvalFilter(e.batch)
		if err != nil {
			return codeOf(err)
		}
		return fmt.Sprint(rows)
	}
	a, err := b.Eval(e.batch)
	if err != nil {
		return codeOf(err)
	}
	want, _ := schema.ArrowType(b.Type())
	if !arrow.TypeEqual(want, a.DataType()) {
		return fmt.Sprintf("WRONG ARROW TYPE %s for %s", a.DataType(), b.Type())
	}
	return b.Type().String() + " " + showArray(a)
}

func (e *testEnv) prune(line string, bounds Bounds) string {
	b, err := e.bind(line)
	if err != nil {
		return codeOf(err)
	}
	switch {
	case !b.MayMatch(bounds):
		return "skip"
	case b.AllMatch(bounds):
		return "all"
	}
	return "read"
}

// makeBatch evaluates the constants of each row as the type of their column.
func (e *testEnv) makeBatch(t *testing.T, lines []string) arrow.RecordBatch {
	sc, err := schema.ArrowSchema(e.schema)
	if err != nil {
		t.Fatal(err)
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	one := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
	for _, line := range lines {
		if len(e.schema.Fields) == 0 {
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) != len(e.schema.Fields) {
			t.Fatalf("%d cells for %d columns: %s", len(cells), len(e.schema.Fields), line)
		}
		for i, c := range cells {
			x, err := Parse(c)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			b, err := x.BindWith(&schema.Struct{}, Options{Target: e.schema.Fields[i].Type})
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			a, err := b.Eval(one)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if !arrow.TypeEqual(a.DataType(), sc.Field(i).Type) && classOf(b.Type()) != clsNested {
				t.Fatalf("%s: %s is not %s", c, a.DataType(), sc.Field(i).Type)
			}
			appendNested(builder.Field(i), a, 0)
		}
	}
	if len(e.schema.Fields) == 0 {
		return one
	}
	return builder.NewRecordBatch()
}

func showArray(a arrow.Array) string {
	var out []string
	for i := range a.Len() {
		out = append(out, showValue(a, i))
	}
	return strings.Join(out, " ")
}

func showValue(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return "NULL"
	}
	switch x := a.(type) {
	case *array.String:
		s, _ := json.Marshal(x.Value(i))
		return string(s)
	case *array.Binary:
		return fmt.Sprintf("x%x", x.Value(i))
	case *array.Float64:
		return formatFloat(x.Value(i), 64)
	case *array.Float32:
		return formatFloat(float64(x.Value(i)), 32)
	case *array.Decimal128:
		return x.Value(i).ToString(x.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Date32:
		return formatDate(int64(x.Value(i)))
	case *array.Timestamp:
		s := strings.ReplaceAll(formatTimestamp(int64(x.Value(i))), " ", "T")
		if x.DataType().(*arrow.TimestampType).TimeZone != "" {
			s += "Z"
		}
		return s
	case *array.Struct:
		var out []string
		for f := range x.NumField() {
			out = append(out, x.DataType().(*arrow.StructType).Field(f).Name+":"+showValue(x.Field(f), i))
		}
		return "{" + strings.Join(out, ",") + "}"
	case *array.List:
		var out []string
		for j, end := x.ValueOffsets(i); j < end; j++ {
			out = append(out, showValue(x.ListValues(), int(j)))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	return a.ValueStr(i)
}

// testBounds are bounds by column path.
type testBounds struct {
	rows   int64
	known  bool
	cols   map[string]columnBounds
	exacts bool
}

type columnBounds struct {
	min, max *Value
	nulls    int64
	hasNulls bool
}

func (b testBounds) RowCount() (int64, bool) { return b.rows, b.known }

func (b testBounds) Min(path []string) (Value, bool) {
	c := b.cols[strings.Join(path, ".")]
	if c.min == nil {
		return Value{}, false
	}
	return *c.min, true
}

func (b testBounds) Max(path []string) (Value, bool) {
	c := b.cols[strings.Join(path, ".")]
	if c.max == nil {
		return Value{}, false
	}
	return *c.max, true
}

func (b testBounds) NullCount(path []string) (int64, bool) {
	c := b.cols[strings.Join(path, ".")]
	return c.nulls, c.hasNulls
}

func (b testBounds) Exact([]string) bool { return b.exacts }

// parseBounds reads lines `rows N`, `exact` and `column | min | max | nulls`,
// where - means absent, up to a line of dashes; the rest are conditions.
func parseBounds(t *testing.T, s *schema.Struct, input string) (testBounds, []string) {
	out := testBounds{cols: map[string]columnBounds{}}
	lines := strings.Split(input, "\n")
	for i, line := range lines {
		var n int64
		switch {
		case line == "---":
			return out, lines[i+1:]
		case line == "exact":
			out.exacts = true
		case strings.HasPrefix(line, "rows "):
			if _, err := fmt.Sscanf(line, "rows %d", &n); err != nil {
				t.Fatal(err)
			}
			out.rows, out.known = n, true
		default:
			parts := strings.Split(line, "|")
			name := strings.TrimSpace(parts[0])
			b, err := Column(strings.Split(name, ".")...).Bind(s)
			if err != nil {
				t.Fatal(err)
			}
			c := columnBounds{min: constantOf(t, parts[1], b.Type()), max: constantOf(t, parts[2], b.Type())}
			if p := strings.TrimSpace(parts[3]); p != "-" {
				_, err := fmt.Sscan(p, &c.nulls)
				c.hasNulls = err == nil
			}
			out.cols[name] = c
		}
	}
	return out, nil
}

func constantOf(t *testing.T, text string, typ schema.Type) *Value {
	if strings.TrimSpace(text) == "-" {
		return nil
	}
	x, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x.BindWith(&schema.Struct{}, Options{Target: typ})
	if err != nil {
		t.Fatal(err)
	}
	v, ok, err := b.Constant()
	if err != nil || !ok {
		t.Fatalf("%s is not a constant: %v", text, err)
	}
	return &v
}
