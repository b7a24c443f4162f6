package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
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
	feed, err := table.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64)}})
	if err != nil {
		return err
	}
	for batch, err := range feed.Rows(ctx) {
		if err != nil {
			return err
		}
		for row := range int(batch.NumRows()) {
			for c := range int(batch.NumCols()) {
				fmt.Print(batch.Column(c).ValueStr(row), " ")
			}
			fmt.Println()
		}
	}
	return nil
}
