package postgres

import (
	"fmt"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
)

// TestSource_ConfirmsOnlyWhatIsCommitted loses the connection in the middle of a reading
// of which nothing is committed: the source reads on from where it was, but the slot
// stays where the targets are, so that a crash right after loses nothing (apply-state 2.6).
func TestSource_ConfirmsOnlyWhatIsCommitted(t *testing.T) {
	c := start(t, "-c wal_level=logical")
	c.exec("shop", "create table k (id int primary key, v text); insert into k values (0, 'first')")
	in, err := source.Open(t.Context(), source.Spec{From: []string{c.from("tables=k&slot=careful")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Source.Close(); err != nil {
			t.Error(err)
		}
	}()
	read := func(from map[string]event.Position, visit func()) map[string]event.Position {
		t.Helper()
		for _, err := range in.Source.Records(t.Context(), from) {
			if err != nil {
				t.Fatal(err)
			}
			visit()
		}
		positions, err := in.Source.Positions()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]event.Position{}
		for _, p := range positions {
			out[p.Source] = p
		}
		return out
	}
	committed := read(nil, func() {})
	for i := range 4 {
		c.exec("shop", fmt.Sprintf("insert into k select %d + g, repeat(md5(g::text), 32) from generate_series(1, 3000) g", i*3000))
	}
	records := 0
	end := read(committed, func() {
		if records++; records == 5000 {
			c.exec("shop", "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'careful'")
		}
	})
	if records < 12000 {
		t.Fatalf("%d records, want all of them", records)
	}
	var at int64
	for id, p := range committed {
		if end[id].Offset <= p.Offset && !p.Done {
			t.Fatalf("%s did not move: %+v, %+v", id, p, end[id])
		}
		if !p.Done {
			at = p.Offset
		}
	}
	if err := c.conn("shop").QueryRow(t.Context(), "select (confirmed_flush_lsn - ('0/0'::pg_lsn + $1::bigint::numeric))::bigint from pg_replication_slots where slot_name = 'careful'", at).Scan(&at); err != nil {
		t.Fatal(err)
	}
	if at > 0 {
		t.Errorf("the slot stands %d bytes after what is committed", at)
	}
}
