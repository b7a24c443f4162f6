package demodata

import (
	"embed"
	"fmt"
)

//go:embed debezium-shop
var files embed.FS

// SnapshotLines is the number of leading events that come from the initial snapshot.
const SnapshotLines = 11

// Tables lists the source tables of the corpus.
func Tables() []string { return []string{"customers", "orders", "order_lines"} }

// Keys gives the primary key columns of a table of the corpus.
func Keys(table string) []string {
	if table == "order_lines" {
		return []string{"order_id", "line_no"}
	}
	return []string{"id"}
}

// Events is the stream, one record a line.
func Events() ([]byte, error) { return read("events.jsonl") }

// Expected is what the database held of a table after the last event, as jsonl.
func Expected(table string) ([]byte, error) { return read("expected/" + table + ".jsonl") }

func read(name string) ([]byte, error) {
	b, err := files.ReadFile("debezium-shop/" + name)
	if err != nil {
		return nil, fmt.Errorf("read bundled corpus: %w", err)
	}
	return b, nil
}
