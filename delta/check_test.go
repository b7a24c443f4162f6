package delta_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

func verdict(r *delta.CheckReport, op string) delta.CheckOperation {
	for _, v := range r.Operations {
		if v.Operation == op {
			return v
		}
	}
	return delta.CheckOperation{}
}

func TestCheck(t *testing.T) {
	head := func(protocol, config, schema string) storage.Store {
		m := storage.NewMemory("t")
		text := `{"protocol":` + protocol + "}\n" + `{"metaData":{"id":"a","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[` +
			strings.ReplaceAll(schema, `"`, `\"`) + `]}","partitionColumns":[],"configuration":{` + config + "}}}\n"
		if err := m.Create(ctx, deltalog.CommitKey(0), []byte(text)); err != nil {
			t.Fatal(err)
		}
		return m
	}
	const id = `{"name":"id","type":"long","nullable":true,"metadata":{}}`
	for _, c := range []struct {
		name                      string
		store                     storage.Store
		read, changes, write, del bool
		features, why             string
	}{
		{"R-301 plain", head(`{"minReaderVersion":1,"minWriterVersion":2}`, "", id), true, false, true, true, "[appendOnly:w+ invariants:w+]", ""},
		{"R-302 an unknown reader feature", head(`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["quarks"],"writerFeatures":["quarks","appendOnly"]}`, "", id), false, false, false, false,
			"[appendOnly:w+ quarks:r--]", "quarks"},
		{"W-301 an unknown writer feature", head(`{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["quarks"]}`, "", id), true, false, false, false, "[quarks:w-]", "quarks"},
		{"R-851 a catalog", head(`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged","inCommitTimestamp"]}`, "", id), false, false, false, false,
			"[inCommitTimestamp:w+ catalogManaged:r--]", "catalogManaged"},
		{"W-851 iceberg in use", head(`{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["icebergCompatV1"]}`, `"delta.enableIcebergCompatV1":"true"`, id), true, false, false, false,
			"[icebergCompatV1:w-]", "delta.enableIcebergCompatV1=true"},
		{"W-851 iceberg listed", head(`{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["icebergCompatV1"]}`, "", id), true, false, true, true, "[icebergCompatV1:w+]", ""},
		{"W-426 append only", head(`{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","changeDataFeed"]}`, `"delta.appendOnly":"true","delta.enableChangeDataFeed":"true"`, id), true, true, true, false,
			"[appendOnly:w+ changeDataFeed:w+]", "append-only"},
		{"R-402 an unknown type", head(`{"minReaderVersion":1,"minWriterVersion":2}`, "", `{"name":"id","type":"quark","nullable":true,"metadata":{}}`), false, false, false, false, "[appendOnly:w+ invariants:w+]", "quark"},
		{"R-831 an unlisted type change", head(`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["typeWidening"],"writerFeatures":["typeWidening"]}`, "",
			`{"name":"id","type":"long","nullable":true,"metadata":{"delta.typeChanges":[{"fromType":"string","toType":"long"}]}}`), false, false, false, false, "[typeWidening:r++]", "STRING to BIGINT"},
		{"W-422 a rule that is beyond us", head(`{"minReaderVersion":1,"minWriterVersion":3}`, `"delta.constraints.c":"quark(id) > 0"`, id), true, false, false, true, "[appendOnly:w+ invariants:w+ checkConstraints:w+]", "quark"},
		{"a malformed property", head(`{"minReaderVersion":1,"minWriterVersion":2}`, `"delta.checkpointInterval":"soon"`, id), true, false, false, false, "[appendOnly:w+ invariants:w+]", "checkpointInterval"},
		{"R-301 versions", head(`{"minReaderVersion":4,"minWriterVersion":8}`, "", id), false, false, false, false, "[]", "reader 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := delta.Check(ctx, c.store, delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for op, want := range map[string]bool{"read": c.read, "changes": c.changes, "append": c.write, "delete": c.del} {
				v := verdict(r, op)
				if v.Possible != want || v.Possible != (v.Code == "" && v.Why == "") {
					t.Errorf("%s: %+v", op, v)
				}
			}
			var got []string
			sign := map[bool]string{true: "+", false: "-"}
			for _, f := range r.Features {
				s := f.Name + ":" + f.Binds[:1]
				if f.Binds == "readers" {
					s += sign[f.Read]
				}
				got = append(got, s+sign[f.Write])
			}
			if c.features != "[]" && fmt.Sprint(got) != c.features {
				t.Errorf("features %v", got)
			}
			if c.why != "" && !strings.Contains(fmt.Sprint(r), c.why) {
				t.Errorf("no word of %s in %+v", c.why, r)
			}
		})
	}
	t.Run("what is no table, or damaged", func(t *testing.T) {
		if _, err := delta.Check(ctx, storage.NewMemory("x"), delta.Options{}); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		m := storage.NewMemory("y")
		if err := m.Create(ctx, deltalog.CommitKey(0), []byte("{")); err != nil {
			t.Fatal(err)
		}
		if _, err := delta.Check(ctx, m, delta.Options{}); !errors.Is(err, delta.ErrCorrupt) {
			t.Errorf("got %v", err)
		}
	})
}

// TestCheck_Golden: the verdicts are what the operations do.
func TestCheck_Golden(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "spark")
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.zst"))
	if err != nil || len(archives) == 0 {
		t.Fatal(err)
	}
	for i, a := range archives {
		if testing.Short() && i%4 != 0 {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(a), ".tar.zst")
		t.Run(name, func(t *testing.T) {
			store := local(t, filepath.Join(testtable.Unpack(t, a), name))
			r, err := delta.Check(ctx, store, delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tb, err := delta.Open(ctx, store, delta.Options{NoCheckpoints: true})
			if (err == nil) != r.Readable {
				t.Errorf("R-301: readable %t, open says %v", r.Readable, err)
			}
			if err != nil {
				return
			}
			_, err = tb.SetProperties(ctx, map[string]string{"my.key": "x"}, delta.PropertyOptions{})
			if v := verdict(r, "alter"); (err == nil) != v.Possible {
				t.Errorf("W-301: %+v, alter says %v", v, err)
			}
			_, err = tb.Delete(ctx, "false", delta.DMLOptions{})
			if v := verdict(r, "delete"); (err == nil) != v.Possible {
				t.Errorf("W-301: %+v, delete says %v", v, err)
			}
		})
	}
}
