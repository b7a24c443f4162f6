package deltalog

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// smallParquet is a file of the rows in json, with no more columns than ddl has and not
// compressed: one changed byte of it changes one thing.
func smallParquet(f *testing.F, ddl, json string) []byte {
	f.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		f.Fatal(err)
	}
	as, err := schema.ArrowSchema(s)
	if err != nil {
		f.Fatal(err)
	}
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(json))
	if err != nil {
		f.Fatal(err)
	}
	defer batch.Release()
	var buf bytes.Buffer
	w, err := parquetio.NewWriter(&buf, s, parquetio.WriterOptions{Codec: "uncompressed", AllOptional: true})
	if err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		f.Fatal(err)
	}
	return buf.Bytes()
}

// wantClass fails for an error that belongs to no class.
func wantClass(t *testing.T, err error) {
	t.Helper()
	for _, class := range []error{nil, ErrCorrupt, ErrUnsupported, ErrInvalid, ErrNotFound, storage.ErrNotFound} {
		if errors.Is(err, class) {
			return
		}
	}
	t.Fatalf("untyped error %v", err)
}

// FuzzOpenCheckpoint reads any bytes as a classic checkpoint and as a sidecar. The seeds
// are small: what is interesting is shortened by the fuzzer byte by byte.
func FuzzOpenCheckpoint(f *testing.F) {
	const schemaString = `{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}`
	const metaDDL = "metaData STRUCT<id: STRING, format: STRUCT<provider: STRING>, schemaString: STRING>"
	f.Add(smallParquet(f, "protocol STRUCT<minReaderVersion: INT, minWriterVersion: INT>, "+metaDDL+", add STRUCT<path: STRING, size: BIGINT, modificationTime: BIGINT>",
		`[{"protocol":{"minReaderVersion":1,"minWriterVersion":2}},{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":"`+schemaString+`"}},{"add":{"path":"a","size":1,"modificationTime":1}}]`))
	f.Add(smallParquet(f, "add STRUCT<path: STRING, size: BIGINT, modificationTime: BIGINT, stats_parsed: STRUCT<numRecords: BIGINT, minValues: STRUCT<id: BIGINT>>>",
		`[{"add":{"path":"a","size":1,"modificationTime":1,"stats_parsed":{"numRecords":1,"minValues":{"id":5}}}}]`))
	f.Add(smallParquet(f, "remove STRUCT<path: STRING, partitionValues: MAP<STRING, STRING>>", `[{"remove":{"path":"a","partitionValues":[{"key":"p","value":null}]}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx := context.Background()
		for _, sidecar := range []bool{false, true} {
			l, m := testLog(t)
			if sidecar {
				put(t, m, sidecarDir+"s.parquet", string(data))
				put(t, m, LogDir+"00000000000000000001.checkpoint.abc.json", `{"checkpointMetadata":{"version":1}}`+"\n"+protocolLine+"\n"+metadataLine+"\n"+
					`{"sidecar":{"path":"s.parquet","sizeInBytes":1,"modificationTime":1}}`+"\n")
			} else {
				put(t, m, CheckpointKey(1), string(data))
			}
			put(t, m, CommitKey(2), addLine("b")+"\n")
			s, err := l.Latest(ctx)
			if err == nil {
				_, err = s.FileList(ctx)
			}
			wantClass(t, err)
		}
	})
}

// FuzzHint: whatever _last_checkpoint says, the newest version is found.
func FuzzHint(f *testing.F) {
	f.Add([]byte(`{"version":1,"size":3,"numOfAddFiles":1}`))
	f.Add([]byte(`{"version":1,"checksum":"x","checkpointSchema":{"fields":[{"name":"a"}]},"tags":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, m := testLog(t)
		rawTable(t, m, 3)
		put(t, m, LogDir+hintName, string(data))
		if s := mustLatest(t, l); s.Version != 2 {
			t.Fatalf("version %d", s.Version)
		}
	})
}

// FuzzProperties reads any text as every typed property.
func FuzzProperties(f *testing.F) {
	for _, s := range []string{"true", "interval 2 weeks 3 days", "-1", "`a,b`.c, d", "128mb", "v2", "9223372036854775807g"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseInterval(text); err == nil && d < 0 {
			t.Fatalf("interval %q is %s", text, d)
		}
		if n, err := ParseBytes(text); err == nil && n <= 0 {
			t.Fatalf("%q is %d bytes", text, n)
		}
		if paths, err := parseColumnList(text); err == nil {
			for _, p := range paths {
				if len(p) == 0 || p[0] == "" {
					t.Fatalf("%q is %q", text, paths)
				}
			}
		}
		conf := map[string]string{}
		for _, key := range []string{"checkpointInterval", "logRetentionDuration", "deletedFileRetentionDuration", "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "columnMapping.mode",
			"columnMapping.maxColumnId", "isolationLevel", "enableChangeDataFeed", "randomPrefixLength", "targetFileSize", "inCommitTimestampEnablementVersion", "parquet.compression.codec"} {
			conf["delta."+key] = text
		}
		p, bad := parseProperties(conf)
		if p.CheckpointInterval < 1 || p.RandomPrefixLength < 1 || p.LogRetention < 0 || len(bad) > len(conf) {
			t.Fatalf("%q: %+v", text, p)
		}
	})
}
