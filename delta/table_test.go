package delta_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

var ctx = context.Background()

// coder is an error with a stable code.
type coder interface{ Code() string }

func codeOf(err error) string {
	var c coder
	if errors.As(err, &c) {
		return c.Code()
	}
	return ""
}

func wantRows(t *testing.T, tb *delta.Table, o delta.ScanOptions, want ...string) {
	t.Helper()
	if d := testtable.Diff(testtable.Read(t, tb, o), want); d != "" {
		t.Error(d)
	}
}

// actionsOf is the actions of the table's newest commit.
func actionsOf(t *testing.T, tb *delta.Table) *deltalog.Commit {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tb.Log().ReadCommit(ctx, snap.Version)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCreate(t *testing.T) {
	for _, tt := range []struct {
		name, ddl string
		props     map[string]string
		want      string
	}{
		{"W-304 plain", "id BIGINT", nil, "1 2 [] []"},
		{"W-304 change feed", "id BIGINT", map[string]string{"delta.enableChangeDataFeed": "true"}, "1 7 [] [appendOnly invariants changeDataFeed]"},
		{"W-304 timestamp without zone", "id TIMESTAMP_NTZ", nil, "3 7 [timestampNtz] [appendOnly invariants timestampNtz]"},
		{"W-304 deletion vectors", "id BIGINT", map[string]string{"delta.enableDeletionVectors": "true"}, "3 7 [deletionVectors] [appendOnly invariants deletionVectors]"},
		{"W-304 column mapping", "`a b` BIGINT", map[string]string{"delta.columnMapping.mode": "name"}, "2 7 [] [appendOnly invariants columnMapping]"},
		{"W-307 requested feature", "id BIGINT", map[string]string{"delta.feature.vacuumProtocolCheck": "supported"}, "3 7 [vacuumProtocolCheck] [appendOnly invariants vacuumProtocolCheck]"},
		{"W-205 requested versions are not stored", "id BIGINT", map[string]string{"delta.minReaderVersion": "1"}, "1 2 [] []"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: tt.ddl, Properties: tt.props})
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			p := snap.Protocol
			if got := fmt.Sprint(p.MinReaderVersion, p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures); got != tt.want {
				t.Errorf("protocol %s, want %s", got, tt.want)
			}
			for k := range snap.Metadata.Configuration {
				if strings.Contains(k, "feature") || strings.Contains(k, "min") {
					t.Errorf("W-205: %s is stored", k)
				}
			}
		})
	}
}

func TestCreate_Durations(t *testing.T) {
	for given, want := range map[string]string{"7 days": "interval 7 days", "INTERVAL 2 Weeks": "interval 2 weeks", " interval 1 day ": "interval 1 day"} {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: map[string]string{"delta.logRetentionDuration": given}})
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := snap.Metadata.Configuration["delta.logRetentionDuration"]; got != want {
			t.Errorf("%q is stored as %q, want %q", given, got, want)
		}
	}
}

func TestCreate_Refused(t *testing.T) {
	for _, tt := range []struct {
		name, ddl string
		partition []string
		props     map[string]string
		code      string
		class     error
	}{
		{"W-401 characters", "`a b` INT", nil, nil, "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", delta.ErrInvalid},
		{"W-401 duplicate", "a INT, A INT", nil, nil, "DELTA_DUPLICATE_COLUMNS_FOUND", delta.ErrInvalid},
		{"W-406 all partition", "a INT", []string{"a"}, nil, "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION", delta.ErrInvalid},
		{"W-406 unknown partition", "a INT", []string{"b"}, nil, "DELTA_INVALID_PARTITION_COLUMN", delta.ErrInvalid},
		{"unknown property", "a INT", nil, map[string]string{"delta.nonsense": "1"}, "DELTA_UNKNOWN_CONFIGURATION", delta.ErrInvalid},
		{"malformed property", "a INT", nil, map[string]string{"delta.checkpointInterval": "0"}, "DELTA_INVALID_PROPERTY_VALUE", delta.ErrInvalid},
		{"unsupported property", "a INT", nil, map[string]string{"delta.enableIcebergCompatV2": "true"}, "DELTA_UNSUPPORTED_PROPERTY", delta.ErrUnsupported},
		{"unknown feature", "a INT", nil, map[string]string{"delta.feature.shiny": "supported"}, "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG", delta.ErrUnsupported},
		{"unsupported feature", "a INT", nil, map[string]string{"delta.feature.geospatial": "supported"}, "DELTA_UNSUPPORTED_FEATURES_FOR_READ", delta.ErrUnsupported},
		{"W-905 reserved names", "a INT, _Change_Type STRING", nil, map[string]string{"delta.enableChangeDataFeed": "true"}, "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", delta.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := storage.NewMemory("c")
			_, err := delta.Create(ctx, s, delta.CreateOptions{Schema: testtable.Struct(t, tt.ddl), PartitionBy: tt.partition, Properties: tt.props}, delta.Options{})
			if codeOf(err) != tt.code || !errors.Is(err, tt.class) {
				t.Errorf("got %s %v", codeOf(err), err)
			}
			if left := testtable.Files(t, s); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestCreate_Exists(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "a INT"})
	opts := delta.CreateOptions{Schema: testtable.Struct(t, "b INT")}
	if _, err := delta.Create(ctx, tb.Store(), opts, delta.Options{}); !errors.Is(err, delta.ErrExists) {
		t.Errorf("got %v", err)
	}
	opts.IfNotExists = true
	again, err := delta.Create(ctx, tb.Store(), opts, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := again.Schema(ctx); err != nil || s.Fields[0].Name != "a" {
		t.Errorf("got %v %v", s, err)
	}
}

func TestCreate_Folder(t *testing.T) {
	put := func(t *testing.T, s storage.Store, keys ...string) {
		t.Helper()
		for _, k := range keys {
			if err := s.Put(ctx, k, []byte("mine")); err != nil {
				t.Fatal(err)
			}
		}
	}
	from := testtable.New(t, testtable.Spec{DDL: "id INT, _p INT"})
	makers := map[string]func(s storage.Store) error{
		"create": func(s storage.Store) error {
			_, err := delta.Create(ctx, s, delta.CreateOptions{Schema: testtable.Struct(t, "id INT, _p INT"), PartitionBy: []string{"_p"}}, delta.Options{})
			return err
		},
		"clone": func(s storage.Store) error {
			_, _, err := delta.Clone(ctx, from, s, delta.CloneOptions{}, delta.Options{})
			return err
		},
	}
	for name, table := range makers {
		for _, k := range []string{"notes.txt", "a/b/c.parquet", "_change_data/x.parquet", "tables/x.csv"} {
			t.Run("W-883 "+name+" beside "+k, func(t *testing.T) {
				s := storage.NewMemory("m")
				put(t, s, "_mine/ok", ".hidden", "tables/t/_delta_log/00000000000000000000.json", "tables/t/part-0.parquet", k)
				err := table(s)
				var folder *delta.FolderError
				if !errors.As(err, &folder) || folder.File != k || !errors.Is(err, delta.ErrInvalid) || codeOf(err) != "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION" {
					t.Fatalf("got %v", err)
				}
				if _, err := delta.Open(ctx, s, delta.Options{}); !errors.Is(err, delta.ErrNotFound) {
					t.Errorf("a table was made: %v", err)
				}
			})
		}
		t.Run("W-883 "+name+" beside what no vacuum touches", func(t *testing.T) {
			s := storage.NewMemory("m")
			put(t, s, "_mine/ok", ".hidden", "tables/t/_delta_log/00000000000000000000.json", "tables/t/part-0.parquet", "tables/t/sub/x.csv")
			if err := table(s); err != nil {
				t.Fatal(err)
			}
			tb, err := delta.Open(ctx, s, delta.Options{Clock: func() time.Time { return time.Now().Add(1000 * time.Hour) }})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := tb.Vacuum(ctx, delta.VacuumOptions{DryRun: true}); err != nil || len(r.Files) > 0 {
				t.Errorf("vacuum would delete %v, %v", r.Files, err)
			}
		})
	}
	t.Run("W-883 create beside a folder that a partition column makes visible", func(t *testing.T) {
		s := storage.NewMemory("m")
		put(t, s, "_p=1/x.parquet")
		var folder *delta.FolderError
		if err := makers["create"](s); !errors.As(err, &folder) {
			t.Errorf("got %v", err)
		}
	})
}

func TestCreate_Race(t *testing.T) {
	s := storage.NewMemory("c")
	errs := make(chan error, 16)
	for range 16 {
		go func() {
			_, err := delta.Create(ctx, s, delta.CreateOptions{Schema: testtable.Struct(t, "a INT")}, delta.Options{})
			errs <- err
		}()
	}
	won := 0
	for range 16 {
		if err := <-errs; err == nil {
			won++
		} else if !errors.Is(err, delta.ErrExists) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d creators won", won)
	}
}

func TestTable_Append(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRING, p INT", Partition: []string{"p"}})
	res, err := tb.Append(ctx, testtable.Rows(t, "ID BIGINT, p INT", `{"ID":1,"p":1}{"ID":2,"p":null}`), delta.WriteOptions{})
	if err != nil || !res.Committed || res.Version != 1 || res.Metrics.RowsInserted != 2 || res.Metrics.FilesAdded != 2 {
		t.Fatalf("%+v %v", res, err)
	}
	wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"p":1,"s":null}`, `{"id":2,"p":null,"s":null}`)
	c := actionsOf(t, tb)
	if c.Info.Operation != "WRITE" || string(c.Info.OperationParameters["mode"]) != `"Append"` || c.Info.IsBlindAppend == nil || !*c.Info.IsBlindAppend || c.Info.OperationMetrics["numOutputRows"] != "2" {
		t.Errorf("W-204: %s", c.Info.Raw)
	}
	for _, a := range c.Adds {
		if len(a.PartitionValues) != 1 || datafile.ParseStats(a.Stats).NumRecords != 1 {
			t.Errorf("W-201 W-601: %+v", a)
		}
	}
	t.Run("narrower types fit", func(t *testing.T) {
		if _, err := tb.Append(ctx, testtable.Rows(t, "id SMALLINT, p TINYINT", `{"id":3,"p":3}`), delta.WriteOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("W-907 no rows commit nothing", func(t *testing.T) {
		before, _ := tb.Snapshot(ctx)
		res, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", ``), delta.WriteOptions{})
		if err != nil || res.Committed || res.Version != before.Version {
			t.Errorf("%+v %v", res, err)
		}
	})
	t.Run("W-853 W-921 a recorded txn is skipped", func(t *testing.T) {
		o := delta.WriteOptions{Txn: &delta.Txn{AppID: "app", Version: 7}}
		first, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":9}`), o)
		if err != nil || !first.Committed {
			t.Fatalf("%+v %v", first, err)
		}
		second, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":9}`), o)
		if err != nil || second.Committed || !second.AlreadyDone {
			t.Errorf("%+v %v", second, err)
		}
	})
}

func TestTable_AppendRefused(t *testing.T) {
	for _, tt := range []struct{ name, ddl, rows, code string }{
		{"unknown column", "id BIGINT, x INT", `{"id":1,"x":1}`, "SCHEMA_MISMATCH"},
		{"unknown field", "id BIGINT, s STRUCT<a: INT, b: INT>", `{"id":1,"s":{"a":1,"b":2}}`, "SCHEMA_MISMATCH"},
		{"wrong type", "id STRING", `{"id":"1"}`, "SCHEMA_MISMATCH"},
		{"wider type", "id BIGINT, n BIGINT", `{"id":1,"n":5000000000}`, "SCHEMA_MISMATCH"},
		{"null in NOT NULL", "id BIGINT, n INT", `{"id":1}{"id":null,"n":1}`, datafile.CodeNotNull},
		{"missing NOT NULL column", "n INT", `{"n":1}`, datafile.CodeNotNull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT NOT NULL, n INT, s STRUCT<a: INT>"})
			before := testtable.Files(t, tb.Store())
			_, err := tb.Append(ctx, testtable.Rows(t, tt.ddl, tt.rows), delta.WriteOptions{})
			if codeOf(err) != tt.code {
				t.Errorf("got %s %v", codeOf(err), err)
			}
			if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
				t.Errorf("left behind: %v", after)
			}
		})
	}
	t.Run("W-404 only void columns", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "v VOID"})
		if _, err := tb.Append(ctx, testtable.Rows(t, "v VOID", `{}`), delta.WriteOptions{}); codeOf(err) != "DELTA_NULL_SCHEMA_IN_TABLE" {
			t.Errorf("got %v", err)
		}
	})
}

func TestTable_Scan(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRING, p INT", Partition: []string{"p"}, Rows: []string{
		testtable.Numbers(0, 5, `,"s":"v%","p":0`), testtable.Numbers(5, 9, `,"s":null,"p":1`),
	}})
	v1 := int64(1)
	wantRows(t, tb, delta.ScanOptions{Version: &v1, Columns: []string{"ID"}, Where: "id > 2"}, `{"id":3}`, `{"id":4}`)
	wantRows(t, tb, delta.ScanOptions{Columns: []string{"p", "id"}, Where: "p = 1 AND id < 6"}, `{"id":5,"p":1}`)
	s, err := tb.Scan(ctx, delta.ScanOptions{Columns: []string{"id"}, OrderBy: []delta.Order{{Column: "s", Desc: true}, {Column: "id"}}, Limit: 6})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for b, err := range s.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, testtable.BatchLines(b)...)
	}
	if want := `[{"id":4} {"id":3} {"id":2} {"id":1} {"id":0} {"id":5}]`; fmt.Sprint(got) != want {
		t.Errorf("order: %v", got)
	}
	if rows := testtable.Read(t, tb, delta.ScanOptions{Limit: 3}); len(rows) != 3 {
		t.Errorf("limit: %v", rows)
	}
	for _, c := range []struct {
		where string
		want  int64
	}{{"", 9}, {"p = 1", 4}, {"id >= 7", 2}, {"s IS NULL", 4}, {"id < 0", 0}} {
		s, err := tb.Scan(ctx, delta.ScanOptions{Where: c.where})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.Count(ctx); err != nil || n != c.want {
			t.Errorf("count where %q: %d %v", c.where, n, err)
		}
	}
	t.Run("pruned files are not opened", func(t *testing.T) {
		s, err := tb.Scan(ctx, delta.ScanOptions{Where: "id > 100"})
		if err != nil {
			t.Fatal(err)
		}
		if files, err := s.Files(ctx); err != nil || len(files) != 0 {
			t.Errorf("%d files, %v", len(files), err)
		}
	})
	for _, o := range []delta.ScanOptions{{Columns: []string{"nope"}}, {Where: "nope = 1"}, {Where: "id +"}, {OrderBy: []delta.Order{{Column: "nope"}}}, {Where: "id"}} {
		if _, err := tb.Scan(ctx, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	v9 := int64(9)
	if _, err := tb.Scan(ctx, delta.ScanOptions{Version: &v9}); !errors.Is(err, delta.ErrNotFound) {
		t.Errorf("version 9: %v", err)
	}
}

func TestOpen_NotATable(t *testing.T) {
	if _, err := delta.Open(ctx, storage.NewMemory("x"), delta.Options{}); !errors.Is(err, delta.ErrNotFound) || codeOf(err) != "DELTA_TABLE_NOT_FOUND" {
		t.Errorf("R-101: got %v", err)
	}
}

func TestTable_Overwrite(t *testing.T) {
	for _, feed := range []string{"false", "true"} {
		spec := testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": feed},
			Rows: []string{`{"id":1,"p":1}{"id":2,"p":1}{"id":3,"p":2}{"id":4,"p":null}`}}
		rows := testtable.Rows(t, spec.DDL, `{"id":8,"p":1}`)
		t.Run("2.1 whole, feed "+feed, func(t *testing.T) {
			tb := testtable.New(t, spec)
			res, err := tb.Overwrite(ctx, rows, delta.OverwriteOptions{})
			if err != nil || res.Metrics.FilesRemoved != 3 {
				t.Fatalf("%+v %v", res, err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":8,"p":1}`)
			if c := actionsOf(t, tb); len(c.CDC) != 0 || *c.Info.IsBlindAppend {
				t.Errorf("%d change files", len(c.CDC))
			}
		})
		t.Run("2.1 dynamic, feed "+feed, func(t *testing.T) {
			tb := testtable.New(t, spec)
			if _, err := tb.Overwrite(ctx, rows, delta.OverwriteOptions{Dynamic: true}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":3,"p":2}`, `{"id":4,"p":null}`, `{"id":8,"p":1}`)
			if c := actionsOf(t, tb); len(c.CDC) != 0 || string(c.Info.OperationParameters["isDynamicPartitionOverwrite"]) != `"true"` {
				t.Errorf("%d change files, W-204 %s", len(c.CDC), c.Info.Raw)
			}
		})
		t.Run("2.1 partition predicate, feed "+feed, func(t *testing.T) {
			tb := testtable.New(t, spec)
			if _, err := tb.Overwrite(ctx, rows, delta.OverwriteOptions{Where: "p < 2"}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":3,"p":2}`, `{"id":4,"p":null}`, `{"id":8,"p":1}`)
			if c := actionsOf(t, tb); len(c.CDC) != 0 {
				t.Errorf("%d change files", len(c.CDC))
			}
		})
		t.Run("2.1 data predicate, feed "+feed, func(t *testing.T) {
			tb := testtable.New(t, spec)
			res, err := tb.Overwrite(ctx, rows, delta.OverwriteOptions{Where: "id > 1 AND p = 1"})
			if err != nil || res.Metrics.RowsDeleted != 1 || res.Metrics.RowsCopied != 1 {
				t.Fatalf("%+v %v", res, err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"p":1}`, `{"id":3,"p":2}`, `{"id":4,"p":null}`, `{"id":8,"p":1}`)
			want := 0
			if feed == "true" {
				want = 1
			}
			if c := actionsOf(t, tb); len(c.CDC) != want {
				t.Errorf("%d change files, want %d", len(c.CDC), want)
			}
		})
		t.Run("rows outside of the predicate, feed "+feed, func(t *testing.T) {
			tb := testtable.New(t, spec)
			before := testtable.Files(t, tb.Store())
			if _, err := tb.Overwrite(ctx, rows, delta.OverwriteOptions{Where: "p = 2"}); codeOf(err) != "DELTA_REPLACE_WHERE_MISMATCH" {
				t.Errorf("got %v", err)
			}
			if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
				t.Errorf("left behind: %v", after)
			}
		})
	}
}

func TestTable_OverwriteCounts(t *testing.T) {
	const ddl = "id BIGINT, p INT"
	for _, c := range []struct {
		name    string
		o       delta.OverwriteOptions
		deleted int64
	}{{"whole", delta.OverwriteOptions{}, 8}, {"dynamic", delta.OverwriteOptions{Dynamic: true}, 5}, {"where", delta.OverwriteOptions{Where: "p = 1"}, 5}} {
		for _, stats := range []bool{true, false} {
			t.Run(fmt.Sprintf("2.1 %s, statistics %v", c.name, stats), func(t *testing.T) {
				tb := testtable.New(t, testtable.Spec{DDL: ddl, Partition: []string{"p"}, Properties: map[string]string{"delta.enableDeletionVectors": "true"},
					Rows: []string{testtable.Numbers(0, 6, `,"p":1`), testtable.Numbers(6, 9, `,"p":2`)}})
				if _, err := tb.Delete(ctx, "id = 0", delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				if !stats && c.o.Where == "" { // vectors need statistics
					snap := mustSnapshot(t, tb)
					tx := tb.Log().Begin(snap)
					files, err := snap.FileList(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range files {
						bare := *a
						if bare.DataChange = false; a.DeletionVector == nil {
							bare.Stats = ""
						}
						tx.Actions().Adds = append(tx.Actions().Adds, &bare)
					}
					if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "COMPUTE STATS"}); err != nil {
						t.Fatal(err)
					}
				}
				r, err := tb.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":9,"p":1}`), c.o)
				if err != nil {
					t.Fatal(err)
				}
				if m := r.Metrics; m.RowsDeleted != c.deleted || m.RowsInserted != 1 {
					t.Errorf("%d rows deleted, %d inserted, want %d and 1", m.RowsDeleted, m.RowsInserted, c.deleted)
				}
				if got := actionsOf(t, tb).Info.OperationMetrics["numDeletedRows"]; got != fmt.Sprint(c.deleted) {
					t.Errorf("numDeletedRows is %q", got)
				}
			})
		}
	}
}

func TestTable_Delete(t *testing.T) {
	for _, tt := range []struct {
		name, where string
		rows        []string
		res         string // inserted updated deleted copied; files added removed; change files with feed
	}{
		{"2.1 partition only", "p = 1", []string{`{"id":3,"p":2}`, `{"id":4,"p":null}`}, "deleted 2 copied 0 added 0 removed 1 cdc 0"},
		{"2.1 without condition", "", nil, "deleted 4 copied 0 added 0 removed 3 cdc 0"},
		{"2.1 by rewrite", "id = 2", []string{`{"id":1,"p":1}`, `{"id":3,"p":2}`, `{"id":4,"p":null}`}, "deleted 1 copied 1 added 1 removed 1 cdc 1"},
		{"2.1 one file whole, another in part", "id >= 2 AND p <= 2", []string{`{"id":1,"p":1}`, `{"id":4,"p":null}`}, "deleted 2 copied 1 added 1 removed 2 cdc 2"},
		{"all rows of a file", "id = 3", []string{`{"id":1,"p":1}`, `{"id":2,"p":1}`, `{"id":4,"p":null}`}, "deleted 1 copied 0 added 0 removed 1 cdc 0"},
	} {
		for _, feed := range []string{"false", "true"} {
			t.Run(tt.name+", feed "+feed, func(t *testing.T) {
				tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": feed},
					Rows: []string{`{"id":1,"p":1}{"id":2,"p":1}{"id":3,"p":2}{"id":4,"p":null}`}})
				res, err := tb.Delete(ctx, tt.where, delta.DMLOptions{})
				if err != nil {
					t.Fatal(err)
				}
				wantRows(t, tb, delta.ScanOptions{}, tt.rows...)
				want := tt.res
				if feed == "false" {
					want = want[:len(want)-1] + "0"
				}
				m := res.Metrics
				if got := fmt.Sprintf("deleted %d copied %d added %d removed %d cdc %d", m.RowsDeleted, m.RowsCopied, m.FilesAdded, m.FilesRemoved, m.ChangeFiles); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				for _, r := range actionsOf(t, tb).Removes {
					if !r.ExtendedFileMetadata || r.Size == nil || r.DeletionTimestamp == 0 || len(r.PartitionValues) != 1 || r.Stats == "" {
						t.Errorf("W-202: %+v", r)
					}
				}
			})
		}
	}
	t.Run("W-907 nothing matched", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Rows: []string{`{"id":1}{"id":3}`}})
		before := testtable.Files(t, tb.Store())
		for _, where := range []string{"id = 2", "id > 100"} {
			res, err := tb.Delete(ctx, where, delta.DMLOptions{})
			if err != nil || res.Committed || res.Version != 1 {
				t.Errorf("%+v %v", res, err)
			}
		}
		if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
			t.Errorf("left behind: %v", after)
		}
	})
	t.Run("W-426 append-only", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: map[string]string{"delta.appendOnly": "true"}, Rows: []string{`{"id":1}`}})
		if _, err := tb.Delete(ctx, "", delta.DMLOptions{}); codeOf(err) != "DELTA_CANNOT_MODIFY_APPEND_ONLY" {
			t.Errorf("got %v", err)
		}
		if _, err := tb.Overwrite(ctx, testtable.Rows(t, "id BIGINT", `{"id":1}`), delta.OverwriteOptions{}); codeOf(err) != "DELTA_CANNOT_MODIFY_APPEND_ONLY" {
			t.Errorf("got %v", err)
		}
	})
}

func TestTable_Update(t *testing.T) {
	spec := testtable.Spec{DDL: "id BIGINT NOT NULL, s STRUCT<x: INT, y: STRING>, p STRING", Partition: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
		Rows: []string{`{"id":1,"s":{"x":1,"y":"a"},"p":"u"}{"id":2,"s":null,"p":"u"}{"id":3,"s":{"x":3,"y":"c"},"p":"v"}`}}
	t.Run("several columns, values from the old row", func(t *testing.T) {
		tb := testtable.New(t, spec)
		res, err := tb.Update(ctx, "id = id + 10, s.x = id", "id < 3", delta.DMLOptions{})
		if err != nil || res.Metrics.RowsUpdated != 2 || res.Metrics.RowsCopied != 0 || res.Metrics.ChangeFiles != 1 {
			t.Fatalf("%+v %v", res, err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":11,"p":"u","s":{"x":1,"y":"a"}}`, `{"id":12,"p":"u","s":{"x":2,"y":null}}`, `{"id":3,"p":"v","s":{"x":3,"y":"c"}}`)
		if c := actionsOf(t, tb); c.Info.Operation != "UPDATE" || string(c.Info.OperationParameters["predicate"]) != `"[\"id < 3\"]"` || c.Info.OperationMetrics["numUpdatedRows"] != "2" {
			t.Errorf("W-204: %s", c.Info.Raw)
		}
	})
	t.Run("W-908 into another partition", func(t *testing.T) {
		tb := testtable.New(t, spec)
		if _, err := tb.Update(ctx, "p = 'w'", "id = 1", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{Columns: []string{"id", "p"}}, `{"id":1,"p":"w"}`, `{"id":2,"p":"u"}`, `{"id":3,"p":"v"}`)
		c := actionsOf(t, tb)
		if len(c.CDC) != 2 || *c.CDC[0].PartitionValues["p"] == *c.CDC[1].PartitionValues["p"] {
			t.Errorf("change files %+v", c.CDC)
		}
	})
	t.Run("W-403 null into NOT NULL", func(t *testing.T) {
		tb := testtable.New(t, spec)
		before := testtable.Files(t, tb.Store())
		if _, err := tb.Update(ctx, "id = NULL", "id = 1", delta.DMLOptions{}); codeOf(err) != datafile.CodeNotNull {
			t.Errorf("got %v", err)
		}
		if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
			t.Errorf("left behind: %v", after)
		}
	})
	for _, bad := range []string{"nope = 1", "s = 1", "s.x = 1, s = NULL", "id = ", "s.x.y = 1"} {
		if _, err := testtable.New(t, spec).Update(ctx, bad, "", delta.DMLOptions{}); err == nil {
			t.Errorf("set %s: no error", bad)
		}
	}
	t.Run("without condition", func(t *testing.T) {
		tb := testtable.New(t, spec)
		res, err := tb.Update(ctx, "s = NULL", "", delta.DMLOptions{})
		if err != nil || res.Metrics.RowsUpdated != 3 {
			t.Fatalf("%+v %v", res, err)
		}
		wantRows(t, tb, delta.ScanOptions{Where: "s IS NULL", Columns: []string{"id"}}, `{"id":1}`, `{"id":2}`, `{"id":3}`)
	})
}

func TestTable_SetProperties(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, `v` STRING", Rows: []string{`{"id":1}`}})
	res, err := tb.SetProperties(ctx, map[string]string{"DELTA.enablechangedatafeed": "true", "mine": "1"}, delta.PropertyOptions{})
	if err != nil || !res.Committed {
		t.Fatalf("%+v %v", res, err)
	}
	snap, _ := tb.Snapshot(ctx)
	if snap.Metadata.Configuration["delta.enableChangeDataFeed"] != "true" || !snap.WritesChangeFeed() || snap.Protocol.MinWriterVersion != 7 {
		t.Errorf("W-303: %+v %v", snap.Protocol, snap.Metadata.Configuration)
	}
	if res, err := tb.SetProperties(ctx, map[string]string{"mine": "1"}, delta.PropertyOptions{}); err != nil || res.Committed {
		t.Errorf("nothing to set: %+v %v", res, err)
	}
	if _, err := tb.SetProperties(ctx, map[string]string{"delta.columnMapping.mode": "name"}, delta.PropertyOptions{}); codeOf(err) != "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT" {
		t.Errorf("W-305: %v", err)
	}
	if _, err := tb.SetProperties(ctx, map[string]string{"delta.columnMapping.mode": "name"}, delta.PropertyOptions{Upgrade: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT, v STRING", `{"id":2,"v":"x"}`), delta.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"v":null}`, `{"id":2,"v":"x"}`)
	if _, err := tb.SetProperties(ctx, nil, delta.PropertyOptions{Unset: []string{"mine"}}); err != nil {
		t.Fatal(err)
	}
	snap, _ = tb.Snapshot(ctx)
	if _, ok := snap.Metadata.Configuration["mine"]; ok {
		t.Error("property is still set")
	}
}
