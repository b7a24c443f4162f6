package delta_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// refused runs op, wants an error with the code that says all the words, and that
// neither the table nor its directory changed.
func refused(t *testing.T, tb *delta.Table, code string, words []string, op func() error) {
	t.Helper()
	files := testtable.Files(t, tb.Store())
	err := op()
	var coded interface{ Code() string }
	if !errors.As(err, &coded) || coded.Code() != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if after := testtable.Files(t, tb.Store()); !slices.Equal(files, after) {
		t.Errorf("files left behind: before %v, after %v", files, after)
	}
}

func appendRows(t *testing.T, tb *delta.Table, ddl, rows string) error {
	t.Helper()
	_, err := tb.Append(ctx, testtable.Rows(t, ddl, rows), delta.WriteOptions{})
	return err
}

func goldenSpark(t *testing.T, name string) *delta.Table {
	t.Helper()
	dir := testenv.SharedDir(t, "golden", "spark")
	tb, err := delta.Open(ctx, local(t, filepath.Join(testtable.Unpack(t, filepath.Join(dir, name+".tar.zst")), name)), delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func whereRows(t *testing.T, tb *delta.Table, where string, want ...string) {
	t.Helper()
	if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{Where: where}), want); d != "" {
		t.Error(d)
	}
}

func TestTable_AddConstraint(t *testing.T) {
	const ddl = "id BIGINT, v INT"
	for _, mapped := range []bool{false, true} {
		props := map[string]string{"delta.enableChangeDataFeed": "true"}
		if mapped {
			props["delta.columnMapping.mode"] = "name"
		}
		t.Run(fmt.Sprintf("W-422 every write is held to it, mapped %v", mapped), func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: ddl, Properties: props, Rows: []string{`{"id":1,"v":1}{"id":2,"v":2}`}})
			if _, err := tb.AddConstraint(ctx, "Positive", "v > 0", delta.ConstraintOptions{}); err != nil {
				t.Fatal(err)
			}
			words := []string{"positive", "v > 0", "v = -1", "row 1"}
			refused(t, tb, delta.CodeCheck, words, func() error { return appendRows(t, tb, ddl, `{"id":3,"v":3}{"id":4,"v":-1}`) })
			refused(t, tb, delta.CodeCheck, []string{"v = (null)"}, func() error { return appendRows(t, tb, ddl, `{"id":3}`) })
			refused(t, tb, delta.CodeCheck, []string{"v = -1"}, func() error {
				_, err := tb.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":3,"v":-1}`), delta.OverwriteOptions{})
				return err
			})
			refused(t, tb, delta.CodeCheck, []string{"v = -1"}, func() error {
				_, err := tb.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":1,"v":-1}`), delta.OverwriteOptions{Where: "id = 1"})
				return err
			})
			refused(t, tb, delta.CodeCheck, []string{"v = 0", "positive"}, func() error {
				_, err := tb.Update(ctx, "v = v - 1", "id = 1", delta.DMLOptions{})
				return err
			})
			_, err := tb.Update(ctx, "v = v + 1", "id = 1", delta.DMLOptions{})
			must(t, err)
			_, err = tb.Delete(ctx, "id = 2", delta.DMLOptions{})
			must(t, err)
			must(t, appendRows(t, tb, ddl, `{"id":5,"v":5}`))
			whereRows(t, tb, "", `{"id":1,"v":2}`, `{"id":5,"v":5}`)
			_, err = tb.DropConstraint(ctx, "POSITIVE", delta.ConstraintOptions{})
			must(t, err)
			must(t, appendRows(t, tb, ddl, `{"id":6,"v":-6}`))
		})
	}
	t.Run("W-422 rows that are there come first", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{`{"id":1,"v":1}{"id":2}{"id":3,"v":-3}`}})
		refused(t, tb, delta.CodeNewCheck, []string{"2 rows", "v > 0"}, func() error {
			_, err := tb.AddConstraint(ctx, "c", "v > 0", delta.ConstraintOptions{})
			return err
		})
		_, err := tb.AddConstraint(ctx, "c", "v IS NULL OR v > -5", delta.ConstraintOptions{})
		must(t, err)
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		if !snap.Supports(deltalog.CheckConstraints) || snap.Metadata.Configuration["delta.constraints.c"] != "v IS NULL OR v > -5" {
			t.Errorf("metadata %v, protocol %v", snap.Metadata.Configuration, snap.Protocol)
		}
		for code, op := range map[string][2]string{
			"DELTA_CONSTRAINT_ALREADY_EXISTS": {"C", "v < 9"}, "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT": {"d", "v + 1"},
			"UNRESOLVED_COLUMN": {"d", "nix > 1"}, expr.CodeNonDeterministic: {"d", "v > rand()"}, "DELTA_INVALID_CONSTRAINT": {"", "v > 1"},
		} {
			files := testtable.Files(t, tb.Store())
			_, err := tb.AddConstraint(ctx, op[0], op[1], delta.ConstraintOptions{})
			var coded interface{ Code() string }
			if !errors.As(err, &coded) || coded.Code() != code || !slices.Equal(files, testtable.Files(t, tb.Store())) {
				t.Errorf("%s: %v", code, err)
			}
		}
		refused(t, tb, "DELTA_CONSTRAINT_DOES_NOT_EXIST", nil, func() error {
			_, err := tb.DropConstraint(ctx, "nix", delta.ConstraintOptions{})
			return err
		})
		refused(t, tb, "DELTA_ADD_CONSTRAINTS", nil, func() error {
			_, err := tb.SetProperties(ctx, map[string]string{"delta.constraints.x": "v > 0"}, delta.PropertyOptions{})
			return err
		})
	})
	t.Run("W-422 B61 what sluice cannot evaluate is refused by name", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{`{"id":1,"v":1}`}})
		commitOf(t, tb, "ADD CONSTRAINT", func(tx *deltalog.Transaction) {
			m := *tx.Snapshot().Metadata
			m.Configuration = map[string]string{"delta.constraints.odd": "soundex(v) = 'x'", "delta.constraints.worse": "v >> 1 = (SELECT 1)"}
			p, err := tx.Snapshot().Protocol.With(deltalog.CheckConstraints)
			must(t, err)
			tx.SetMetadata(&m)
			tx.SetProtocol(p)
		})
		words := []string{"odd", "soundex", "worse"}
		refused(t, tb, delta.CodeRuleText, words, func() error { return appendRows(t, tb, ddl, `{"id":2,"v":1}`) })
		refused(t, tb, delta.CodeRuleText, words, func() error {
			_, err := tb.Update(ctx, "v = 2", "", delta.DMLOptions{})
			return err
		})
		if _, err := tb.Delete(ctx, "id = 1", delta.DMLOptions{}); err != nil {
			t.Errorf("a delete makes no rows: %v", err)
		}
	})
	t.Run("W-421 an invariant inside of an array is refused by name", func(t *testing.T) {
		s := testtable.Struct(t, "id BIGINT, a ARRAY<STRUCT<x: INT>>")
		el := s.Fields[1].Type.(*schema.Array).Elem.(*schema.Struct)
		el.Fields[0].Metadata = el.Fields[0].Metadata.With("delta.invariants", `{"expression":{"expression":"x > 0"}}`)
		_, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: s}, delta.Options{})
		if !errors.Is(err, delta.ErrUnsupported) || !strings.Contains(err.Error(), "a.element.x") {
			t.Error(err)
		}
	})
	t.Run("W-421 an invariant on a field of a struct", func(t *testing.T) {
		s := testtable.Struct(t, "s STRUCT<x: INT>")
		st := s.Fields[0].Type.(*schema.Struct)
		st.Fields[0].Metadata = st.Fields[0].Metadata.With("delta.invariants", `{"expression":{"expression":"s.x > 0"}}`)
		tb, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: s}, delta.Options{})
		must(t, err)
		must(t, appendRows(t, tb, "s STRUCT<x: INT>", `{"s":{"x":1}}`))
		refused(t, tb, delta.CodeCheck, []string{"s.x > 0"}, func() error { return appendRows(t, tb, "s STRUCT<x: INT>", `{"s":{"x":0}}`) })
	})
	t.Run("R-305 a property without the feature counts for nothing", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: ddl})
		raw := `{"commitInfo":{"operation":"X"}}` + "\n" + `{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":` +
			`"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{"delta.constraints.c":"id > 5"}}}` + "\n"
		must(t, tb.Store().Create(ctx, "_delta_log/00000000000000000001.json", []byte(raw)))
		must(t, appendRows(t, tb, "id BIGINT", `{"id":1}`))
	})
	t.Run("C-19 a constraint that wins the race holds for the loser's rows", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Store: store})
		other, err := delta.Open(ctx, store, delta.Options{})
		must(t, err)
		rows := testtable.Batch(t, ddl, `{"id":1,"v":-1}`)
		_, err = tb.Append(ctx, func(yield func(b arrow.RecordBatch, err error) bool) {
			if _, err := other.AddConstraint(ctx, "c", "v > 0", delta.ConstraintOptions{}); err != nil {
				t.Error(err)
			}
			yield(rows, nil)
		}, delta.WriteOptions{})
		var c *delta.ConstraintError
		if !errors.As(err, &c) || c.Constraint != "c" {
			t.Fatalf("got %v", err)
		}
		for _, f := range testtable.Files(t, store) {
			if strings.HasSuffix(f, ".parquet") {
				t.Errorf("left behind: %s", f)
			}
		}
	})
}

func TestTable_GoldenRules(t *testing.T) {
	t.Run("W-422 W-403 W-405 constraints", func(t *testing.T) {
		tb := goldenSpark(t, "constraints")
		const ddl = "id BIGINT, name STRING, qty INT, s STRUCT<x: INT, y: STRING>, c STRING, v STRING"
		refused(t, tb, delta.CodeCheck, []string{"positive", "qty = -1"}, func() error {
			return appendRows(t, tb, ddl, `{"id":100,"name":"bad","qty":-1,"s":{"x":1,"y":"n"}}`)
		})
		refused(t, tb, delta.CodeCheck, []string{"in range"}, func() error {
			return appendRows(t, tb, ddl, `{"id":100,"name":"bad","s":{"x":101,"y":"n"}}`)
		})
		refused(t, tb, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", []string{"v"}, func() error {
			return appendRows(t, tb, ddl, `{"id":102,"v":"seven77","s":{"x":1}}`)
		})
		refused(t, tb, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", []string{"column id"}, func() error {
			return appendRows(t, tb, ddl, `{"name":"x","s":{"x":1}}`)
		})
		refused(t, tb, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", []string{"s.x"}, func() error {
			return appendRows(t, tb, "id BIGINT, name STRING, qty INT", `{"id":106,"name":"no struct","qty":1}`)
		})
		refused(t, tb, delta.CodeNewCheck, []string{"23 rows"}, func() error {
			_, err := tb.AddConstraint(ctx, "never", "id < 0", delta.ConstraintOptions{})
			return err
		})
		must(t, appendRows(t, tb, ddl, `{"id":200,"name":"ok","qty":1,"s":{"x":1,"y":"n"},"c":"ab","v":"six 66"}`))
		whereRows(t, tb, "id = 200", `{"c":"ab  ","id":200,"name":"ok","qty":1,"s":{"x":1,"y":"n"},"v":"six 66"}`)
	})
	t.Run("W-421 invariant_old", func(t *testing.T) {
		tb := goldenSpark(t, "invariant_old")
		refused(t, tb, delta.CodeCheck, []string{"qty > 0", "qty = -1"}, func() error {
			return appendRows(t, tb, "id BIGINT, qty INT", `{"id":99,"qty":-1}`)
		})
		must(t, appendRows(t, tb, "id BIGINT, qty INT", `{"id":99,"qty":1}`))
		refused(t, tb, delta.CodeCheck, nil, func() error {
			_, err := tb.Update(ctx, "qty = 0", "id = 99", delta.DMLOptions{})
			return err
		})
	})
	t.Run("W-423 generated", func(t *testing.T) {
		tb := goldenSpark(t, "generated")
		refused(t, tb, delta.CodeCheck, []string{"Generated Column", "twice = 3", "id = 1"}, func() error {
			return appendRows(t, tb, "id BIGINT, twice BIGINT", `{"id":1,"twice":3}`)
		})
		refused(t, tb, delta.CodeCheck, []string{"twice = 1"}, func() error {
			_, err := tb.Update(ctx, "twice = 1", "id = 10", delta.DMLOptions{})
			return err
		})
		must(t, appendRows(t, tb, "id BIGINT, ts TIMESTAMP, name STRING", `{"id":500,"ts":"2024-03-01T23:59:59Z","name":"zoe"}{"id":501}`))
		whereRows(t, tb, "id >= 500",
			`{"day":"2024-03-01","id":500,"initial":"z","name":"zoe","ts":"2024-03-01T23:59:59.000000Z","twice":1000}`,
			`{"day":null,"id":501,"initial":null,"name":null,"ts":null,"twice":1002}`)
		must(t, appendRows(t, tb, "id BIGINT, twice BIGINT, initial STRING", `{"id":502,"twice":1004}`))
		_, err := tb.Update(ctx, "ts = TIMESTAMP '2025-01-01 00:00:00Z', name = 'amy', id = id + 1", "id = 500", delta.DMLOptions{})
		must(t, err)
		whereRows(t, tb, "initial = 'a' AND id > 400", `{"day":"2025-01-01","id":501,"initial":"a","name":"amy","ts":"2025-01-01T00:00:00.000000Z","twice":1002}`)
	})
	t.Run("W-424 defaults", func(t *testing.T) {
		tb := goldenSpark(t, "defaults")
		must(t, appendRows(t, tb, "id BIGINT", `{"id":500}`))
		must(t, appendRows(t, tb, "id BIGINT, status STRING, z INT", `{"id":501,"z":1}`))
		whereRows(t, tb, "id >= 500",
			`{"arr":[1,2],"d":"2002-02-22","id":500,"n":null,"status":"changed","z":9}`,
			`{"arr":[1,2],"d":"2002-02-22","id":501,"n":null,"status":null,"z":1}`)
	})
	t.Run("W-425 identity", func(t *testing.T) {
		tb := goldenSpark(t, "identity")
		refused(t, tb, delta.CodeIdentityGiven, []string{"id"}, func() error {
			return appendRows(t, tb, "id BIGINT, v STRING", `{"id":5,"v":"x"}`)
		})
		refused(t, tb, delta.CodeIdentityUpdate, []string{"id"}, func() error {
			_, err := tb.Update(ctx, "id = 5", "v = 'u'", delta.DMLOptions{})
			return err
		})
		must(t, appendRows(t, tb, "v STRING", `{"v":"a"}{"v":"b"}`))
		must(t, appendRows(t, tb, "v STRING, alt BIGINT", `{"v":"c","alt":7}`))
		must(t, appendRows(t, tb, "v STRING", `{"v":"d"}`))
		whereRows(t, tb, "v IN ('a', 'b', 'c', 'd')", `{"alt":-33,"id":252,"v":"a"}`, `{"alt":-35,"id":262,"v":"b"}`, `{"alt":7,"id":272,"v":"c"}`, `{"alt":-37,"id":282,"v":"d"}`)
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		if raw, _ := snap.Schema.Fields[0].Metadata.Get("delta.identity.highWaterMark"); string(raw) != "282" {
			t.Errorf("high-water mark %s", raw)
		}
		_, err = tb.Update(ctx, "v = 'e'", "v = 'd'", delta.DMLOptions{})
		must(t, err)
		_, err = tb.Delete(ctx, "v = 'e'", delta.DMLOptions{})
		must(t, err)
	})
}

func TestCreate_Rules(t *testing.T) {
	t.Run("W-423 W-424 W-425 rules in the schema text", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{Partition: []string{"y"}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
			DDL: "id BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY -5) COMMENT 'n, m', " +
				"d DATE NOT NULL DEFAULT DATE '2024-05-06' COMMENT 'x', y INT GENERATED ALWAYS AS (year(d)), s STRING DEFAULT concat('a', ', b)'), at TIMESTAMP DEFAULT current_timestamp() NOT NULL"})
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		for _, f := range []deltalog.Feature{deltalog.IdentityColumns, deltalog.GeneratedColumns, "allowColumnDefaults"} {
			if !snap.Supports(f) {
				t.Errorf("W-306: %s is not supported", f)
			}
		}
		if snap.Protocol.MinReaderVersion != 1 {
			t.Errorf("W-304: reader version %d", snap.Protocol.MinReaderVersion)
		}
		must(t, appendRows(t, tb, "d DATE", `{"d":"2020-02-02"}{"d":"2021-02-02"}`))
		must(t, appendRows(t, tb, "id BIGINT", `{"id":77}`))
		s, err := tb.Scan(ctx, delta.ScanOptions{Columns: []string{"id", "d", "y", "s"}})
		must(t, err)
		if d := testtable.Diff(testtable.Lines(t, s.Batches(ctx)), []string{`{"d":"2020-02-02","id":10,"s":"a, b)","y":2020}`,
			`{"d":"2021-02-02","id":5,"s":"a, b)","y":2021}`, `{"d":"2024-05-06","id":77,"s":"a, b)","y":2024}`}); d != "" {
			t.Error(d)
		}
		n, err := tb.Update(ctx, "d = DATE '2030-01-01'", "y = 2020", delta.DMLOptions{})
		must(t, err)
		if n.Metrics.RowsUpdated != 1 {
			t.Errorf("updated %d", n.Metrics.RowsUpdated)
		}
		s, err = tb.Scan(ctx, delta.ScanOptions{Columns: []string{"id"}, Where: "y = 2030"})
		must(t, err)
		if got := testtable.Lines(t, s.Batches(ctx)); len(got) != 1 {
			t.Errorf("moved row: %v", got)
		}
	})
	for code, ddl := range map[string]string{
		"DELTA_INVALID_GENERATED_COLUMN_REFERENCES":      "a INT, b INT GENERATED ALWAYS AS (a + 1), c INT GENERATED ALWAYS AS (b + 1)",
		"DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH":     "a INT, b BIGINT GENERATED ALWAYS AS (a + 1)",
		"DELTA_INVALID_COLUMN_RULES":                     "a INT, b INT DEFAULT 1 GENERATED ALWAYS AS (a + 1)",
		delta.CodeRuleText:                               "a INT, b INT GENERATED ALWAYS AS (nix(a))",
		"DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED": "p BIGINT GENERATED ALWAYS AS IDENTITY, a INT",
	} {
		t.Run("W-423 W-425 refused: "+code, func(t *testing.T) {
			store := storage.NewMemory("t")
			o := delta.CreateOptions{Schema: testtable.Struct(t, ddl)}
			if strings.HasPrefix(ddl, "p ") {
				o.PartitionBy = []string{"p"}
			}
			_, err := delta.Create(ctx, store, o, delta.Options{})
			var coded interface{ Code() string }
			if !errors.As(err, &coded) || coded.Code() != code {
				t.Errorf("got %v", err)
			}
			if f := testtable.Files(t, store); len(f) > 0 {
				t.Errorf("files %v", f)
			}
		})
	}
	t.Run("W-423 NaN is itself, -0.0 is 0.0", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "a DOUBLE, b DOUBLE GENERATED ALWAYS AS (a * 1D)"})
		b := array.NewFloat64Builder(memory.DefaultAllocator)
		b.AppendValues([]float64{math.NaN(), math.Copysign(0, -1), math.Inf(1)}, nil)
		a := b.NewArray()
		rows := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "a", Type: a.DataType(), Nullable: true}, {Name: "b", Type: a.DataType(), Nullable: true}}, nil), []arrow.Array{a, a}, 3)
		_, err := tb.Append(ctx, testtable.Stream(rows), delta.WriteOptions{})
		must(t, err)
	})
	t.Run("W-425 Stage hands out no identity values unasked", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT GENERATED ALWAYS AS IDENTITY, v INT"})
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		e := delta.Edits{Insert: []arrow.RecordBatch{testtable.Batch(t, "v INT", `{"v":1}`)}}
		refused(t, tb, "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", []string{"identityColumns"}, func() error {
			_, err := tb.Stage(ctx, snap, e, delta.StageOptions{})
			return err
		})
		s, err := tb.Stage(ctx, snap, e, delta.StageOptions{Identity: true})
		must(t, err)
		if s.Metadata == nil || !strings.Contains(s.Metadata.SchemaString, `"delta.identity.highWaterMark":1`) || s.Tags(nil)["delta.identity.schemaUpdate"] != "true" {
			t.Errorf("staged %v", s.Metadata)
		}
	})
	t.Run("W-424 a default that reads a column", func(t *testing.T) {
		_, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: testtable.Struct(t, "a INT, b INT DEFAULT a + 1")}, delta.Options{})
		if !errors.Is(err, delta.ErrUnsupported) || !strings.Contains(err.Error(), "column b DEFAULT") {
			t.Error(err)
		}
	})
}

func TestTable_IdentityRace(t *testing.T) {
	t.Run("W-425 C-16 writers never share a value", func(t *testing.T) {
		store := storage.NewMemory("t")
		testtable.New(t, testtable.Spec{DDL: "id BIGINT GENERATED ALWAYS AS IDENTITY, twice BIGINT, v INT", Store: store})
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				tb, err := delta.Open(ctx, store, delta.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				for i := range 5 {
					rows := fmt.Sprintf(`{"v":%d}{"v":%d}`, w*100+i, w*100+i+50)
					if _, err := tb.Append(ctx, testtable.Rows(t, "v INT", rows), delta.WriteOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		tb, err := delta.Open(ctx, store, delta.Options{})
		must(t, err)
		s, err := tb.Scan(ctx, delta.ScanOptions{Columns: []string{"id"}})
		must(t, err)
		got := testtable.Lines(t, s.Batches(ctx))
		if n := len(slices.Compact(slices.Sorted(slices.Values(got)))); len(got) != 40 || n != 40 {
			t.Errorf("%d rows, %d different ids", len(got), n)
		}
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		if raw, _ := snap.Schema.Fields[0].Metadata.Get("delta.identity.highWaterMark"); string(raw) != "40" {
			t.Errorf("high-water mark %s", raw)
		}
		files, err := snap.FileList(ctx)
		must(t, err)
		left := 0
		for _, f := range testtable.Files(t, store) {
			if strings.HasSuffix(f, ".parquet") && !strings.HasPrefix(f, "_delta_log/") {
				left++
			}
		}
		if left != len(files) {
			t.Errorf("%d data files, %d in the log", left, len(files))
		}
	})
}
