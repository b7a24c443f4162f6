package deltalog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func parse(t testing.TB, text string) *Commit {
	t.Helper()
	c, err := ParseCommit(0, "x.json", []byte(text), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParseCommit(t *testing.T) {
	t.Run("R-108 CRLF, blank lines, no newline at the end", func(t *testing.T) {
		c := parse(t, "\r\n"+protocolLine+"\r\n\n  \n"+addLine("a")+"\r\n"+addLine("b"))
		if c.Protocol == nil || len(c.Adds) != 2 || c.Adds[1].Path != "b" {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("R-108 a line of 40 MiB", func(t *testing.T) {
		big := strings.Repeat("x", 40<<20)
		c := parse(t, `{"commitInfo":{"operation":"`+big+`"}}`+"\n"+addLine("a"))
		if len(c.Info.Operation) != len(big) || len(c.Adds) != 1 {
			t.Error("the line is cut")
		}
	})
	t.Run("R-108 unknown actions and fields", func(t *testing.T) {
		c := parse(t, `{"newAction":{"x":1}}`+"\n"+`{}`+"\n"+`{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"new":{"deep":[1]}}}`)
		if len(c.Adds) != 1 {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("R-108 R-203 null for each optional field", func(t *testing.T) {
		c := parse(t, `{"add":{"path":"a","partitionValues":{"p":null},"size":1,"modificationTime":1,"dataChange":true,"stats":null,"tags":null,"deletionVector":null,"baseRowId":null,"defaultRowCommitVersion":null,"clusteringProvider":null},"remove":null}
{"remove":{"path":"a","dataChange":false,"deletionTimestamp":null,"extendedFileMetadata":null,"partitionValues":null,"size":null,"stats":null,"tags":null,"deletionVector":null,"baseRowId":null,"defaultRowCommitVersion":null}}
{"txn":{"appId":"a","version":1,"lastUpdated":null}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"readerFeatures":null,"writerFeatures":null}}
{"metaData":{"id":"m","name":null,"description":null,"format":{"provider":"parquet","options":null},"schemaString":"{}","partitionColumns":null,"configuration":null,"createdTime":null}}
{"domainMetadata":{"domain":"d","configuration":"{}"}}
{"commitInfo":null}`)
		r := c.Removes[0]
		if r.DeletionTimestamp != 0 || r.ExtendedFileMetadata || r.PartitionValues != nil || r.Size != nil || c.Domains[0].Removed || c.Adds[0].Tags != nil {
			t.Errorf("got %+v %+v", c.Adds[0], r)
		}
		if v, ok := c.Adds[0].PartitionValues["p"]; !ok || v != nil {
			t.Errorf("partition value %v", v)
		}
	})
	t.Run("R-109 integers beyond 2^53", func(t *testing.T) {
		const n = 9007199254740993
		c := parse(t, `{"add":{"path":"a","partitionValues":{},"size":9007199254740993,"modificationTime":9007199254740993,"dataChange":true,"baseRowId":9007199254740993}}
{"txn":{"appId":"a","version":9007199254740993}}
{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":"","createdTime":9007199254740993}}`)
		if a := c.Adds[0]; a.Size != n || a.ModificationTime != n || *a.BaseRowID != n || c.Txns[0].Version != n || *c.Metadata.CreatedTime != n {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("R-110 a bad line fails and is named", func(t *testing.T) {
		for _, bad := range []string{
			`{"add":`, `{"add":{"path":"a"`, `garbage`, `[1]`, `"add"`, `null`, `{"add":5}`, addLine("a") + addLine("b"),
			`{"add":{"path":"a","partitionValues":{},"size":"1","modificationTime":1,"dataChange":true}}`,
			`{"add":{"path":"a","partitionValues":{},"size":1.5,"modificationTime":1,"dataChange":true}}`,
			`{"add":{"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`,
			`{"add":{"path":"a","partitionValues":{},"modificationTime":1,"dataChange":true}}`,
			`{"remove":{"dataChange":true}}`, `{"txn":{"appId":"a"}}`, `{"protocol":{"minReaderVersion":1}}`,
			`{"metaData":{"id":"a"}}`, `{"domainMetadata":{}}`, `{"cdc":{}}`,
			`{"txn":{"appId":"a","version":1},"domainMetadata":{"domain":"d"}}`,
			protocolLine, // the second in this file
		} {
			_, err := ParseCommit(3, "v3.json", []byte(protocolLine+"\n\n"+bad+"\n"), time.Time{})
			var ce *CorruptError
			if !errors.As(err, &ce) || ce.File != "v3.json" || ce.Line != 3 {
				t.Errorf("%.60s: got %v", bad, err)
			}
		}
	})
	t.Run("R-203 dataChange missing is corruption", func(t *testing.T) {
		for _, bad := range []string{`{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1}}`, `{"remove":{"path":"a"}}`} {
			if _, err := ParseCommit(0, "x", []byte(bad), time.Time{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", bad, err)
			}
		}
	})
	t.Run("an empty file is corruption", func(t *testing.T) {
		for _, text := range []string{"", "\n\n"} {
			if _, err := ParseCommit(0, "x", []byte(text), time.Time{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
	t.Run("R-204 R-205 commitInfo is free-form", func(t *testing.T) {
		raw := `{"timestamp":5,"operation":"WRITE","operationParameters":{"mode":"Append","partitionBy":"[]","nested":{"a":[1]}},"operationMetrics":{"numFiles":"1","num_added":2,"nested":{"x":1}},"readVersion":"bad","isBlindAppend":"yes","inCommitTimestamp":7,"txnId":"t","mine":{"k":1}}`
		c := parse(t, `{"commitInfo":`+raw+`}`)
		i := c.Info
		if *i.Timestamp != 5 || i.Operation != "WRITE" || i.ReadVersion != nil || i.IsBlindAppend != nil || *i.InCommitTimestamp != 7 || i.TxnID != "t" {
			t.Errorf("got %+v", i)
		}
		if string(i.OperationParameters["nested"]) != `{"a":[1]}` || string(i.OperationParameters["mode"]) != `"Append"` {
			t.Errorf("parameters %s", i.OperationParameters)
		}
		if i.OperationMetrics["numFiles"] != "1" || i.OperationMetrics["num_added"] != "2" || i.OperationMetrics["nested"] != `{"x":1}` {
			t.Errorf("metrics %v", i.OperationMetrics)
		}
		if string(i.Raw) != raw {
			t.Errorf("raw %s", i.Raw)
		}
	})
}

func TestAdd_Decoded(t *testing.T) {
	for in, want := range map[string]string{
		"a%20b/c+d%25.parquet": "a b/c+d%.parquet", "p=a%2Fb/x": "p=a/b/x", "ü/%C3%BC": "ü/ü", "a%23b%3Fc%5Bd%5D%3A=e": "a#b?c[d]:=e",
	} {
		if got, err := (&Add{Path: in}).Decoded(); err != nil || got != want {
			t.Errorf("R-201 %q: got %q %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]bool{"a/b": false, "/a": true, "s3://b/k": true, "file:/a": true, "p=a:b/c": false, "a:b": false, "ab:c/d": false, "": false} {
		if IsAbsolute(in) != want {
			t.Errorf("R-202 IsAbsolute(%q) = %t", in, !want)
		}
	}
	for _, in := range []string{"/x/y", "file:/x/y", "file:///x/y"} {
		if got, err := canonicalPath(in); err != nil || got != "/x/y" {
			t.Errorf("R-202 canonical %q: %q %v", in, got, err)
		}
	}
}

func TestEncodeCommit(t *testing.T) {
	size := int64(10)
	v := "a<b>&"
	a := &Actions{
		Protocol: &Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"appendOnly"}},
		Metadata: &Metadata{ID: "m", Format: Format{Provider: "parquet"}, SchemaString: "{}", Extra: map[string]json.RawMessage{"future": json.RawMessage(`{"a":1}`)}},
		Txns:     []*Txn{{AppID: "app", Version: 9007199254740993}},
		Domains:  []*DomainMetadata{{Domain: "d", Configuration: "{}"}},
		Adds:     []*Add{{Path: "p=%3C/ü", PartitionValues: map[string]*string{"p": &v, "q": nil}, Size: 1, DataChange: true}},
		Removes:  []*Remove{{Path: "r", DeletionTimestamp: 5, DataChange: true, ExtendedFileMetadata: true, PartitionValues: map[string]*string{}, Size: &size}, {Path: "old", DataChange: true}},
		CDC:      []*CDC{{Path: "_change_data/c", Size: 3}},
	}
	data, err := encodeCommit(&commitInfoWire{Operation: "WRITE", OperationParameters: map[string]string{"mode": "Append"}, TxnID: "t"}, a)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"commitInfo":{"timestamp":0,"operation":"WRITE","operationParameters":{"mode":"Append"},"isolationLevel":"","isBlindAppend":false,"engineInfo":"","txnId":"t"}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly"]}}
{"metaData":{"id":"m","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],"configuration":{},"future":{"a":1}}}
{"txn":{"appId":"app","version":9007199254740993}}
{"domainMetadata":{"domain":"d","configuration":"{}","removed":false}}
{"remove":{"path":"r","deletionTimestamp":5,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{},"size":10}}
{"remove":{"path":"old","dataChange":true}}
{"add":{"path":"p=%3C/ü","partitionValues":{"p":"a<b>&","q":null},"size":1,"modificationTime":0,"dataChange":true}}
{"cdc":{"path":"_change_data/c","partitionValues":{},"size":3,"dataChange":false}}
`
	if string(data) != want {
		t.Errorf("W-102 W-103 got\n%s\nwant\n%s", data, want)
	}
	t.Run("W-703 feature lists", func(t *testing.T) {
		for want, p := range map[string]*Protocol{
			`{"minReaderVersion":1,"minWriterVersion":2}`:                                            {MinReaderVersion: 1, MinWriterVersion: 2},
			`{"minReaderVersion":2,"minWriterVersion":7,"writerFeatures":[]}`:                        {MinReaderVersion: 2, MinWriterVersion: 7},
			`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["x"]}`: {MinReaderVersion: 3, MinWriterVersion: 7, WriterFeatures: []string{"x"}},
		} {
			if got, err := marshal(p); err != nil || string(got) != want {
				t.Errorf("got %s %v, want %s", got, err, want)
			}
		}
	})
	t.Run("R-108 what we write reads back", func(t *testing.T) {
		c := parse(t, string(data))
		again, err := encodeCommit(&commitInfoWire{Operation: "WRITE", OperationParameters: map[string]string{"mode": "Append"}, TxnID: "t"}, &c.Actions)
		if err != nil || string(again) != want {
			t.Errorf("got\n%s %v", again, err)
		}
	})
}

func TestAdd_Remove(t *testing.T) {
	tag, id := "v", int64(7)
	off := int32(1)
	a := &Add{Path: "p=%25/x", PartitionValues: map[string]*string{"p": nil}, Size: 5, ModificationTime: 1, DataChange: true, Stats: `{"numRecords":1}`,
		Tags: map[string]*string{"t": &tag}, DeletionVector: &DeletionVectorDescriptor{"u", "abc", &off, 3, 1}, BaseRowID: &id, DefaultRowCommitVersion: &id}
	r := a.Remove(time.UnixMilli(99), true)
	got, err := marshal(r)
	want := `{"path":"p=%25/x","deletionTimestamp":99,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{"p":null},"size":5,"stats":"{\"numRecords\":1}","tags":{"t":"v"},"deletionVector":{"storageType":"u","pathOrInlineDv":"abc","offset":1,"sizeInBytes":3,"cardinality":1},"baseRowId":7,"defaultRowCommitVersion":7}`
	if err != nil || string(got) != want {
		t.Errorf("W-202 W-203 got %s %v\nwant %s", got, err, want)
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add([]byte(protocolLine + "\n" + metadataLine + "\n" + addLine("a")))
	f.Add([]byte(`{"remove":{"path":"a%20b","dataChange":true,"deletionVector":{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1}}}`))
	f.Add([]byte(`{"commitInfo":{"operationMetrics":{"a":1}}}` + "\n" + `{"cdc":{"path":"c"}}` + "\n" + `{"txn":{"appId":"a","version":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCommit(0, "x", data, time.Time{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("not a CorruptError: %v", err)
			}
			return
		}
		if c.Protocol != nil && c.Metadata != nil {
			if cfg, err := NewTableConfig(c.Protocol, c.Metadata); err == nil {
				_ = cfg.Require(OpWrite)
			}
		}
		out, err := encodeCommit(&commitInfoWire{}, &c.Actions)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCommit(0, "x", out, time.Time{}); err != nil {
			t.Fatalf("does not read back: %v\n%s", err, out)
		}
	})
}
