package main

import (
	"context"
	"fmt"
	"log"
	"os"

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
	columns, err := schema.ParseDDL("id BIGINT NOT NULL, name STRING, at TIMESTAMP")
	if err != nil {
		return err
	}
	_, err = delta.Create(ctx, store, delta.CreateOptions{
		Schema: columns, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
	}, delta.Options{})
	if err == nil {
		fmt.Println("created", dir)
	}
	return err
}
