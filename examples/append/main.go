package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	store, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		return err
	}
	table, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		return err
	}
	columns, err := table.Schema(ctx)
	if err != nil {
		return err
	}
	types, err := schema.ArrowSchema(columns)
	if err != nil {
		return err
	}
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, types, strings.NewReader(
		`[{"id":1,"name":"Ada","at":"2024-05-01T10:00:00Z"},{"id":2,"name":"Brin"},{"id":3,"name":"Cy"}]`))
	if err != nil {
		return err
	}
	res, err := table.Append(ctx, delta.Batches(batch), delta.WriteOptions{})
	if err == nil {
		fmt.Printf("version %d: %d rows\n", res.Version, res.Metrics.RowsInserted)
	}
	return err
}
