package source_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
)

// parquetFile writes rows given as JSON and names the file.
func parquetFile(t *testing.T, ddl, rows string) string {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	as, err := schema.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := parquetio.NewWriter(&b, s, parquetio.WriterOptions{})
	if err == nil {
		err = w.Write(batch)
	}
	if err == nil {
		err = w.Close()
	}
	path := filepath.Join(t.TempDir(), "rows.parquet")
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
