package source_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/internal/testenv"
)

// producerSkips are the columns that the corpora's READMEs say the stream spoils.
var producerSkips = map[string]map[string][]string{
	"maxwell-types": {
		"types": {"t_time", "t_time3", "t_time6", "t_bit12", "t_bit64", "t_year", "t_bin", "t_enum", "t_set", "t_geom", "t_point", "t_dt", "t_dt3", "t_dt6", "t_float", "t_date", "t_dec65", "def_text"},
		"zeros": {"*"},
	},
	"canal-types": {
		"types": {"t_latin", "t_geom", "t_point", "t_bin", "t_vbin", "t_blob", "t_dec65", "def_text"},
		"zeros": {"*"},
	},
}

// TestDecoder_Producers decodes streams recorded from Maxwell and Canal and
// compares with what the database held.
func TestDecoder_Producers(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "producers")
	for name, format := range map[string]source.Format{"maxwell-shop": "maxwell", "maxwell-types": "maxwell", "canal-shop": "canal", "canal-types": "canal"} {
		dir := filepath.Join(base, name)
		t.Run(name, func(t *testing.T) {
			c := corpora.Load(t, dir)
			for _, table := range slices.Sorted(maps.Keys(c.Tables)) {
				if len(c.Tables[table].Key) == 0 || slices.Contains(producerSkips[name][table], "*") {
					continue
				}
				t.Run(table, func(t *testing.T) { producerTable(t, c, dir, table, format) })
			}
		})
	}
}

func producerTable(t *testing.T, c *corpora.Corpus, dir, table string, format source.Format) {
	hints, _ := corpora.Hints(c, table)
	spec := source.Spec{From: []string{corpora.EventsFile(t, dir)}, Tables: []string{table}, Schema: hints, Options: map[string]string{}}
	batches, all := decodeAll(t, spec, 0)
	for _, p := range all.Poison {
		t.Errorf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
	}
	var list []corpora.Change
	for _, b := range batches {
		list = append(list, corpora.Changes(b)...)
	}
	want := corpora.ExpectedRows(t, c, dir, table)
	initial, _ := filepath.Glob(filepath.Join(dir, "expected", "initial", table+".jsonl"))
	touched := map[string]bool{}
	for _, ch := range list {
		touched[ch.Key] = true
	}
	known := 0
	for key := range want {
		if touched[key] {
			known++
		}
	}
	if known == 0 {
		t.Fatal("no event of a row that is there at the end")
	}
	check := func(what string, list []corpora.Change) {
		t.Helper()
		got := corpora.CanonRows(c, table, corpora.Fold(list)[table].Images())
		if len(initial) > 0 {
			// Canal has no snapshot: rows without an event are as they were.
			for key, row := range want {
				if !touched[key] {
					got[key] = row
				}
			}
		}
		for _, rows := range []corpora.Table{got, want} {
			for _, row := range rows {
				for _, col := range producerSkips[c.Name][table] {
					delete(row, col)
				}
			}
		}
		corpora.SameRows(t, what, got, want)
	}
	check("in stream order", list)
	for _, n := range []int{1, 7} {
		var cut []corpora.Change
		parts, _ := decodeAll(t, spec, n)
		for _, b := range parts {
			cut = append(cut, corpora.Changes(b)...)
		}
		check(fmt.Sprintf("cut every %d records", n), cut)
	}
	rng := rand.New(rand.NewSource(1))
	for range 3 {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		check("shuffled", list)
	}
	o, err := source.Open(context.Background(), spec)
	if err != nil || o.Format != format {
		t.Errorf("detected %v, %v; want %s", o, err, format)
	}
}
