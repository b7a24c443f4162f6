package cdf_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// Whatever a commit says, the feed and the stream of its version end in rows or in an
// error of a known class; nothing outside the table is opened.
func FuzzFeed_Commit(f *testing.F) {
	ctx := context.Background()
	base := storage.NewMemory("t")
	tb := testtable.New(f, testtable.Spec{DDL: "id BIGINT, p STRING", Partition: []string{"p"}, Store: base, Properties: feedOn, Rows: []string{`{"id":1,"p":"a"}{"id":2,"p":"a"}`}})
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		f.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		f.Fatal(err)
	}
	p := files[0].Path
	for _, seed := range []string{
		`{"remove":{"path":"` + p + `","dataChange":true,"partitionValues":{"p":"a"},"size":1}}`,
		`{"add":{"path":"` + p + `","dataChange":true,"partitionValues":{"p":null},"size":500,"modificationTime":0,"deletionVector":{"storageType":"i","pathOrInlineDv":"wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L","sizeInBytes":40,"cardinality":6}}}`,
		`{"cdc":{"path":"` + p + `","dataChange":false,"partitionValues":{"p":"b"},"size":9}}`,
		`{"cdc":{"path":"../../etc/passwd","dataChange":false,"partitionValues":{},"size":9}}` + "\n" + `{"cdc":{"path":"file:///etc/passwd","dataChange":false,"partitionValues":{},"size":9}}`,
		`{"commitInfo":{"operation":"MERGE","operationMetrics":{"numTargetRowsInserted":0}}}`,
		`{"metaData":{"id":"x","format":{"provider":"parquet"},"schemaString":"{}","partitionColumns":[],"configuration":{}}}`,
		`{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}`,
	} {
		f.Add([]byte(seed))
	}
	known := func(t *testing.T, err error) {
		for _, class := range []error{deltalog.ErrNotFound, deltalog.ErrCorrupt, deltalog.ErrInvalid, deltalog.ErrUnsupported, storage.ErrNotFound, storage.ErrInvalidKey} {
			if errors.Is(err, class) {
				return
			}
		}
		t.Errorf("an error of no class: %v", err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		store := base.Crash()
		if err := store.Create(ctx, deltalog.CommitKey(2), data); err != nil {
			t.Fatal(err)
		}
		log := deltalog.Open(store, deltalog.Options{})
		one := int64(1)
		feed, err := cdf.Open(ctx, log, cdf.Options{Range: cdf.Range{FromVersion: &one}})
		if err != nil {
			known(t, err)
		} else {
			for _, err := range feed.Rows(ctx) {
				if err != nil {
					known(t, err)
				}
			}
		}
		s, err := cdf.OpenStream(ctx, log, cdf.StreamOptions{FromVersion: &one, MaxFiles: 1})
		if err != nil {
			known(t, err)
			return
		}
		for b, err := range s.Batches(ctx, nil) {
			if err != nil {
				known(t, err)
				return
			}
			for _, err := range b.Rows(ctx) {
				if err != nil {
					known(t, err)
				}
			}
		}
	})
}
