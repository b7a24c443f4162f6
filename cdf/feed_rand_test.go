package cdf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// replay applies change rows to a multiset of rows.
func replay(rows map[string]int, lines []string) error {
	for _, l := range lines {
		row := map[string]any{}
		d := json.NewDecoder(strings.NewReader(l))
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			return err
		}
		kind := row[cdf.ChangeTypeColumn].(string)
		delete(row, cdf.ChangeTypeColumn)
		delete(row, cdf.CommitVersionColumn)
		delete(row, cdf.CommitTimestampColumn)
		n := 1
		if kind == string(cdf.Delete) || kind == string(cdf.UpdatePre) {
			n = -1
		}
		rows[testtable.CanonicalJSON(row)] += n
	}
	return nil
}

// the rows of a version and the changes after it are the rows of any later
// version, whatever was done to the table in between.
func TestFeed_ReplayEqualsSnapshot(t *testing.T) {
	const ddl = "id BIGINT, p STRING, v INT"
	testenv.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		spec := testtable.Spec{DDL: ddl, Properties: feedOn}
		if rapid.Bool().Draw(r, "partitioned") {
			spec.Partition = []string{"p"}
		}
		table := testtable.New(t, spec)
		var history []string
		for range rapid.IntRange(1, 7).Draw(r, "operations") {
			cond := rapid.SampledFrom([]string{"", "id % 2 = 0", "p = 'a'", "p is null", "v > 3 and p <> 'b'", "id > 1000"}).Draw(r, "where")
			op := rapid.SampledFrom([]string{"append", "append", "append", "delete", "update", "move", "overwrite"}).Draw(r, "op")
			var b strings.Builder
			for range rapid.IntRange(0, 5).Draw(r, "rows") {
				fmt.Fprintf(&b, `{"id":%d,"p":%s,"v":%d}`, rapid.IntRange(0, 6).Draw(r, "id"),
					rapid.SampledFrom([]string{`"a"`, `"b"`, `null`, `"x/ y"`}).Draw(r, "p"), rapid.IntRange(0, 9).Draw(r, "v"))
			}
			var err error
			switch op {
			case "append":
				_, err = table.Append(ctx, testtable.Rows(t, ddl, b.String()), delta.WriteOptions{})
			case "delete":
				_, err = table.Delete(ctx, cond, delta.DMLOptions{})
			case "update":
				_, err = table.Update(ctx, "v = v + 1", cond, delta.DMLOptions{})
			case "move":
				_, err = table.Update(ctx, "p = 'moved', v = null", cond, delta.DMLOptions{})
			case "overwrite":
				_, err = table.Overwrite(ctx, testtable.Rows(t, ddl, b.String()), delta.OverwriteOptions{})
			}
			if err != nil {
				r.Fatalf("%s %s: %v", op, cond, err)
			}
			history = append(history, op+" "+cond)
		}
		snap, err := table.Snapshot(ctx)
		if err != nil {
			r.Fatal(err)
		}
		rowsAt := func(v int64) []string { return testtable.Read(t, table, delta.ScanOptions{Version: &v}) }
		from := rapid.Int64Range(0, snap.Version).Draw(r, "from")
		to := rapid.Int64Range(from, snap.Version).Draw(r, "to")
		rows := map[string]int{}
		if from > 0 {
			for _, l := range rowsAt(from - 1) {
				rows[l]++
			}
		}
		feed, err := table.Changes(ctx, cdf.Options{Range: versions(from, to), BatchRows: rapid.IntRange(0, 2).Draw(r, "batch")})
		if err != nil {
			r.Fatal(err)
		}
		lines, err := collect(t, feed)
		if err != nil {
			r.Fatal(err)
		}
		if err := replay(rows, lines); err != nil {
			r.Fatal(err)
		}
		var got []string
		for l, n := range rows {
			if n < 0 {
				r.Fatalf("%v\n%d..%d: %s is deleted more often than it was there", history, from, to, l)
			}
			for range n {
				got = append(got, l)
			}
		}
		slices.Sort(got)
		if d := testtable.Diff(got, rowsAt(to)); d != "" {
			r.Fatalf("%v\n%d..%d: %s", history, from, to, d)
		}
		// a stream that is cut and resumed anywhere shows the same rows.
		so := cdf.StreamOptions{FromVersion: &from, MaxFiles: rapid.IntRange(1, 4).Draw(r, "files")}
		stream, err := table.Stream(ctx, so)
		if err != nil {
			r.Fatal(err)
		}
		var streamed []string
		for {
			b, err := stream.Next(ctx)
			if err != nil {
				r.Fatal(err)
			}
			if b == nil {
				break
			}
			for rows, err := range b.Rows(ctx) {
				if err != nil {
					r.Fatal(err)
				}
				streamed = append(streamed, testtable.BatchLines(rows)...)
			}
			if rapid.Bool().Draw(r, "resume") {
				so.Position = &b.End
				if stream, err = table.Stream(ctx, so); err != nil {
					r.Fatal(err)
				}
			}
		}
		slices.Sort(streamed)
		if feed, err = table.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from}}); err != nil {
			r.Fatal(err)
		}
		if lines, err = collect(t, feed); err != nil {
			r.Fatal(err)
		}
		if d := testtable.Diff(streamed, lines); d != "" {
			r.Fatalf("%v\nstream from %d: %s", history, from, d)
		}
	})
}

// The same, version by version, for the tables that Spark wrote: deletion vectors,
// column mapping, restores and merges included.
func TestFeed_GoldenReplay(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "spark")
	files, err := filepath.Glob(filepath.Join(dir, "*.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	replayed := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		var g struct {
			CDF *goldenRange `json:"cdf"`
		}
		decode(t, file, &g)
		if g.CDF == nil || name == "vacuumed_cdf" {
			continue
		}
		t.Run("R-912 "+name, func(t *testing.T) {
			store, err := storage.NewLocal(filepath.Join(testtable.Unpack(t, filepath.Join(dir, name+".tar.zst")), name), storage.LocalOptions{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			table, err := delta.Open(ctx, store, delta.Options{})
			if errors.Is(err, delta.ErrUnsupported) {
				t.Fatalf("refused: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for v := max(g.CDF.Start, 1); v <= g.CDF.End; v++ {
				before, err := table.SnapshotAt(ctx, v-1)
				if err != nil {
					t.Fatal(err)
				}
				after, err := table.SnapshotAt(ctx, v)
				if err != nil {
					t.Fatal(err)
				}
				if !schema.Equal(before.Schema, after.Schema) {
					continue
				}
				feed, err := table.Changes(ctx, cdf.Options{Range: versions(v, v)})
				if err != nil {
					t.Fatal(err)
				}
				lines, err := collect(t, feed)
				if err != nil {
					t.Fatal(err)
				}
				rows := map[string]int{}
				for _, l := range testtable.Read(t, table, delta.ScanOptions{Snapshot: before}) {
					rows[l]++
				}
				if err := replay(rows, lines); err != nil {
					t.Fatal(err)
				}
				var got []string
				for l, n := range rows {
					for range n {
						got = append(got, l)
					}
				}
				slices.Sort(got)
				if d := testtable.Diff(got, testtable.Read(t, table, delta.ScanOptions{Snapshot: after})); d != "" {
					t.Errorf("version %d: %s", v, d)
				}
				replayed++
			}
		})
	}
	if replayed < 80 {
		t.Errorf("only %d versions were replayed", replayed)
	}
}
