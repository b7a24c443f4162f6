package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, work, dir string, args []string) error {
	store, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		return err
	}
	if work == "append" {
		return appendRows(ctx, store, args[0])
	}
	table, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		return err
	}
	switch work {
	case "scan", "count", "filter":
		var o delta.ScanOptions
		if work == "filter" {
			o.Where = fmt.Sprintf("id >= %s AND id <= %s", args[0], args[1])
		}
		scan, err := table.Scan(ctx, o)
		if err != nil {
			return err
		}
		if work == "count" {
			n, err := scan.Count(ctx)
			fmt.Println(n, "rows")
			return err
		}
		return drain(scan.Batches(ctx))
	case "open":
		scan, err := table.Scan(ctx, delta.ScanOptions{Where: "id = " + args[0]})
		if err != nil {
			return err
		}
		all, err := scan.Snapshot().FileList(ctx)
		if err != nil {
			return err
		}
		hits, err := scan.Files(ctx)
		fmt.Println(len(all), "files,", len(hits), "may hold the key")
		return err
	case "feed":
		const first = 10 // the table is made by ten appends
		feed, err := table.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64(first))}})
		if err != nil {
			return err
		}
		return drain(feed.Rows(ctx))
	}
	return fmt.Errorf("unknown work %q", work)
}

func drain(rows iter.Seq2[arrow.RecordBatch, error]) error {
	var n int64
	for b, err := range rows {
		if err != nil {
			return err
		}
		n += b.NumRows()
	}
	fmt.Println(n, "rows")
	return nil
}

func appendRows(ctx context.Context, store storage.Store, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := ipc.NewFileReader(f)
	if err != nil {
		return err
	}
	columns, err := schema.FromArrow(r.Schema())
	if err != nil {
		return err
	}
	table, err := delta.Create(ctx, store, delta.CreateOptions{Schema: columns}, delta.Options{})
	if err != nil {
		return err
	}
	res, err := table.Append(ctx, func(yield func(arrow.RecordBatch, error) bool) {
		for i := range r.NumRecords() {
			b, err := r.RecordBatch(i)
			if !yield(b, err) || err != nil {
				return
			}
		}
	}, delta.WriteOptions{})
	fmt.Println(res.Metrics.RowsInserted, "rows")
	return err
}
