package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	stream, err := table.Stream(ctx, cdf.StreamOptions{Position: load(dir + ".position")})
	if err != nil {
		return err
	}
	for batch, err := range stream.Batches(ctx, nil) { // table.Wait(0) instead of nil follows the table
		if err != nil {
			return err
		}
		for rows, err := range batch.Rows(ctx) {
			if err != nil {
				return err
			}
			fmt.Println(rows.NumRows(), "changes of versions", batch.From, "to", batch.To)
		}
		if err := save(dir+".position", batch.End); err != nil { // after the rows: a crash repeats a batch
			return err
		}
	}
	return nil
}

// load is nil, the start of the stream, when nothing was stored yet.
func load(file string) *cdf.Position {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, err2 := cdf.ParsePosition(data)
	if err := errors.Join(err, err2); err != nil {
		log.Fatal(err)
	}
	return &p
}

func save(file string, p cdf.Position) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
