package delta_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

func TestProperties_ProtocolVersions(t *testing.T) {
	text := func(p *deltalog.Protocol) string {
		return fmt.Sprint(p.MinReaderVersion, p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures)
	}
	for _, c := range []struct{ reader, writer, more, create, alter string }{
		{"", "4", "", "1 4 [] []", "1 4 [] []"},
		{"1", "2", "", "1 2 [] []", "1 2 [] []"},
		{"2", "", "", "2 5 [] []", "2 5 [] []"},
		{"2", "6", "", "2 6 [] []", "2 6 [] []"},
		{"", "7", "", "1 7 [] [appendOnly invariants]", "1 7 [] [appendOnly invariants]"},
		{"3", "", "", "3 7 [] [appendOnly invariants]", "3 7 [] [appendOnly invariants]"},
		{"3", "7", "delta.enableDeletionVectors", "3 7 [deletionVectors] [appendOnly invariants deletionVectors]", "3 7 [deletionVectors] [appendOnly invariants deletionVectors]"},
		{"1", "1", "delta.enableChangeDataFeed", "1 7 [] [appendOnly invariants changeDataFeed]", "DELTA_INVALID_PROTOCOL_DOWNGRADE"},
		{"", "5", "delta.enableChangeDataFeed", "1 5 [] []", "1 5 [] []"},
		{"4", "7", "", "DELTA_INVALID_PROTOCOL_VERSION", "DELTA_INVALID_PROTOCOL_VERSION"},
		{"", "8", "", "DELTA_INVALID_PROTOCOL_VERSION", "DELTA_INVALID_PROTOCOL_VERSION"},
		{"", "seven", "", "DELTA_PROTOCOL_PROPERTY_NOT_INT", "DELTA_PROTOCOL_PROPERTY_NOT_INT"},
		{"0", "", "", "DELTA_PROTOCOL_PROPERTY_NOT_INT", "DELTA_PROTOCOL_PROPERTY_NOT_INT"},
	} {
		t.Run(fmt.Sprintf("W-304 W-307 reader %q writer %q %s", c.reader, c.writer, c.more), func(t *testing.T) {
			props := map[string]string{}
			if c.reader != "" {
				props["delta.MINreaderversion"] = c.reader
			}
			if c.writer != "" {
				props["delta.minWriterVersion"] = c.writer
			}
			if c.more != "" {
				props[c.more] = "true"
			}
			check := func(tb *delta.Table, err error, want string) {
				t.Helper()
				if err != nil {
					if codeOf(err) != want {
						t.Errorf("got %v, want %s", err, want)
					}
					return
				}
				snap := mustSnapshot(t, tb)
				if got := text(snap.Protocol); got != want {
					t.Errorf("protocol %s, want %s", got, want)
				}
				for k := range snap.Metadata.Configuration {
					if strings.Contains(strings.ToLower(k), "version") {
						t.Errorf("W-205: %s is stored", k)
					}
				}
			}
			tb, err := delta.Create(ctx, storage.NewMemory("m"), delta.CreateOptions{Schema: testtable.Struct(t, "id INT"), Properties: props}, delta.Options{})
			check(tb, err, c.create)
			tb = testtable.New(t, testtable.Spec{DDL: "id INT"})
			before := text(mustSnapshot(t, tb).Protocol)
			var shut *delta.UpgradeError
			if _, err := tb.SetProperties(ctx, props, delta.PropertyOptions{}); c.reader > "1" && c.reader < "4" && !errors.As(err, &shut) {
				t.Errorf("W-305: readers are shut out without being asked: %v", err)
			} else if c.reader > "1" && text(mustSnapshot(t, tb).Protocol) != before {
				t.Error("W-305: the protocol changed")
			}
			_, err = tb.SetProperties(ctx, props, delta.PropertyOptions{Upgrade: true})
			check(tb, err, c.alter)
		})
	}
	t.Run("W-307 a feature that this version cannot write is refused before the table is made", func(t *testing.T) {
		s := storage.NewMemory("m")
		_, err := delta.Create(ctx, s, delta.CreateOptions{Schema: testtable.Struct(t, "id INT"), Properties: map[string]string{"delta.feature.catalogManaged": "supported"}}, delta.Options{})
		if !errors.Is(err, delta.ErrUnsupported) || !strings.Contains(err.Error(), "catalogManaged") {
			t.Errorf("got %v", err)
		}
		if _, err := delta.Open(ctx, s, delta.Options{}); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("a table was made: %v", err)
		}
	})
}

func TestProperties_Columns(t *testing.T) {
	const key = "delta.dataSkippingStatsColumns"
	t.Run("W-603 statistics of columns that are not there", func(t *testing.T) {
		create := func(v string) error {
			_, err := delta.Create(ctx, storage.NewMemory("m"), delta.CreateOptions{Schema: testtable.Struct(t, "id INT, s STRUCT<x: INT>"), Properties: map[string]string{key: v}}, delta.Options{})
			return err
		}
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, s STRUCT<x: INT>"})
		for v, ok := range map[string]bool{"id": true, "S.X,id": true, "nope": false, "id,s.y": false} {
			_, err := tb.SetProperties(ctx, map[string]string{key: v}, delta.PropertyOptions{})
			for _, err := range []error{create(v), err} {
				if ok != (err == nil) || !ok && codeOf(err) != "DELTA_COLUMN_NOT_FOUND" {
					t.Errorf("%s: %v", v, err)
				}
			}
		}
	})
	t.Run("section 4: randomizeFilePrefixes", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, p INT", Partition: []string{"p"}, Properties: map[string]string{
			"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "3", "delta.enableChangeDataFeed": "true"},
			Rows: []string{testtable.Numbers(0, 4, `,"p":%`)}})
		if _, err := tb.Update(ctx, "id = id + 10", "id < 2", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		dirs, change := map[string]bool{}, 0
		for o, err := range tb.Store().List(ctx, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if m := regexp.MustCompile(`^(_change_data/)?([0-9a-f]{3})/[^/]*\.parquet$`).FindStringSubmatch(o.Key); m != nil {
				dirs[m[2]] = true
				if m[1] != "" {
					change++
				}
			} else if !strings.HasPrefix(o.Key, "_delta_log/") {
				t.Errorf("file %s", o.Key)
			}
		}
		if len(dirs) < 2 || change == 0 {
			t.Errorf("folders %v, %d change files", dirs, change)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":10,"p":0}`, `{"id":11,"p":1}`, `{"id":2,"p":2}`, `{"id":3,"p":3}`)
	})
}

func TestTable_ConditionClock(t *testing.T) {
	clock := time.Date(2024, 5, 6, 23, 30, 0, 0, time.UTC)
	tb := testtable.New(t, testtable.Spec{DDL: "id INT, at TIMESTAMP, d DATE", Options: delta.Options{Clock: func() time.Time { clock = clock.Add(time.Microsecond); return clock }}, Rows: []string{
		`{"id":1,"at":"2024-05-06T23:00:00Z","d":"2024-05-06"}{"id":2,"at":"2024-05-07T01:00:00Z","d":"2024-05-07"}`}})
	for where, want := range map[string]string{"at < current_timestamp()": `{"id":1}`, "d > current_date": `{"id":2}`, "at >= now() AND current_timestamp() = now()": `{"id":2}`} {
		wantRows(t, tb, delta.ScanOptions{Columns: []string{"id"}, Where: where}, want)
	}
	if r, err := tb.Delete(ctx, "at < current_timestamp()", delta.DMLOptions{}); err != nil || r.Metrics.RowsDeleted != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	wantRows(t, tb, delta.ScanOptions{Columns: []string{"id"}}, `{"id":2}`)
}

func TestTable_CharLengths(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "id INT, c CHAR(4), v VARCHAR(3), s STRING", Rows: []string{`{"id":1,"c":"ab","v":"abc","s":"x"}{"id":2,"c":"abcd","v":"a","s":"y"}`}})
	for where, want := range map[string]string{
		"c = 'ab'": "1", "'ab' = c": "1", "c <=> 'ab  '": "1", "c IN ('x', 'ab')": "1", "c IN ('1', '2', '3', 'ab')": "1", "c > 'ab'": "2", "c BETWEEN 'ab' AND 'ab'": "1", "c <> 'ab'": "2", "c = 'ab      '": "1", "c = 'abcde'": "", "v = 'a'": "2", "v = 'a '": "",
	} {
		t.Run("W-405 "+where, func(t *testing.T) {
			var lines []string
			if want != "" {
				lines = []string{`{"id":` + want + `}`}
			}
			wantRows(t, tb, delta.ScanOptions{Columns: []string{"id"}, Where: where}, lines...)
		})
	}
	t.Run("W-405 lengths grow and go, and nothing else", func(t *testing.T) {
		for _, c := range []struct{ column, length string }{{"v", "varchar(2)"}, {"v", "char(5)"}, {"c", "char(5)"}, {"c", "varchar(3)"}, {"s", "varchar(10)"}, {"id", "varchar(10)"}} {
			wantAlterError(t, tb, delta.ChangeColumn{Column: c.column, Length: &c.length}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP")
		}
		alter(t, tb, delta.ChangeColumn{Column: "v", Length: ptr("varchar(5)")})
		if _, err := appendAs(t, tb, false, "v STRING", `{"v":"abcde"}`); err != nil {
			t.Error(err)
		}
		if _, err := appendAs(t, tb, false, "v STRING", `{"v":"abcdef"}`); codeOf(err) != "DELTA_EXCEED_CHAR_VARCHAR_LIMIT" {
			t.Errorf("got %v", err)
		}
		alter(t, tb, delta.ChangeColumn{Column: "v", Length: ptr("")})
		alter(t, tb, delta.ChangeColumn{Column: "c", Length: ptr("varchar(4)")})
		if _, err := appendAs(t, tb, false, "v STRING, c STRING", `{"v":"abcdefghijk","c":"z"}`); err != nil {
			t.Error(err)
		}
		wantRows(t, tb, delta.ScanOptions{Columns: []string{"c"}, Where: "c = 'z'"}, `{"c":"z"}`)
		version := mustSnapshot(t, tb).Version
		alter(t, tb, delta.ChangeColumn{Column: "c", Length: ptr("varchar(4)")})
		if got := mustSnapshot(t, tb).Version; got != version {
			t.Errorf("W-907: the same length committed version %d", got)
		}
	})
}

func TestTable_AddNestedNotNull(t *testing.T) {
	tb := testtable.New(t, testtable.Spec{DDL: "id INT", Rows: []string{`{"id":1}`}})
	for _, ddl := range []string{"s STRUCT<a: INT NOT NULL>", "s STRUCT<a: STRUCT<b: INT NOT NULL>>"} {
		wantAlterError(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Field: testtable.Struct(t, ddl).Fields[0]}}}, "DELTA_ADD_COLUMN_NOT_NULL")
	}
}
