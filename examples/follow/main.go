package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/storage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil && !errors.Is(err, context.Canceled) {
		log.Print(err)
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
	from := cdf.Options{Range: cdf.Range{FromVersion: new(int64)}}
	for batch, err := range table.Follow(ctx, from, 100*time.Millisecond) {
		if err != nil {
			return err
		}
		fmt.Println(batch.NumRows(), "changes, the first:", batch.NewSlice(0, 1))
	}
	return nil
}
