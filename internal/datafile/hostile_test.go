package datafile

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/log/schema"
)

// A small text of statistics whose parts multiply counts as none, in memory in
// proportion to it.
func TestParseStats_Hostile(t *testing.T) {
	leaves := make([]string, 100_000)
	for i := range leaves {
		leaves[i] = `"` + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + `":1`
	}
	text := `{"numRecords":3,"minValues":{"` + strings.Repeat("k", 1<<20) + `":{"a":1,"b":{"c":1,` + strings.Join(leaves, ",") + `}}},"maxValues":{"a":2},"nullCount":{"a":0}}`
	deep := `{"numRecords":3,"minValues":` + strings.Repeat(`{"`+strings.Repeat("k", 5000)+`":`, 190) + `1` + strings.Repeat("}", 191)
	for name, text := range map[string]string{"a long name above many leaves": text, "many long names above each other": deep} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := ParseStats(text)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 400<<20 {
			t.Errorf("R-601 %s: %d MiB were allocated for %d bytes", name, took>>20, len(text))
		}
		if s.NumRecords != 3 || len(s.min)+len(s.max)+len(s.nulls) > 2 {
			t.Errorf("R-601 %s: %d rows, %d bounds", name, s.NumRecords, len(s.min)+len(s.max)+len(s.nulls))
		}
	}
}

// FuzzParseStats: whatever the text, it is statistics or none, and no bound of it panics
// where it is read as any type.
func FuzzParseStats(f *testing.F) {
	f.Add(`{"numRecords":3,"tightBounds":false,"minValues":{"a":1,"s":{"x":"1970-01-01"}},"maxValues":{"a":9223372036854775807,"s":{"x":null}},"nullCount":{"a":0}}`)
	f.Add(`{"numRecords":-1,"minValues":{"a":"NaN","b":1e400,"c":"2024-03-10T06:30:00.123-08:00"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := ParseStats(text)
		for _, v := range slices.Concat(slices.Collect(maps.Values(s.min)), slices.Collect(maps.Values(s.max)), slices.Collect(maps.Values(s.nulls))) {
			for _, typ := range boundTypes {
				lo, ok1 := parseBound(v, typ, false)
				hi, ok2 := parseBound(v, typ, true)
				if ok1 != ok2 {
					t.Fatalf("%s as %s: %v %v, %v %v", v, typ, lo, ok1, hi, ok2)
				}
			}
		}
	})
}

var boundTypes = []schema.Type{schema.Long, schema.Double, schema.Float, schema.String, schema.Date, schema.Timestamp, schema.TimestampNTZ, schema.Boolean, schema.Decimal{Precision: 10, Scale: 2}}
