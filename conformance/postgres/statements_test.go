package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Statements read a server as flags do: the snapshot first, then, from run to run, what
// changed, in the order of the log; a dry run makes nothing on the server, and what
// cannot be right is refused before anything is made there (docs/rfcs/statements.md).
func TestStatements_Server(t *testing.T) {
	c := start(t, "-c wal_level=logical")
	c.exec("shop", `create table people(id int primary key, name text, city text); create table pets(id int primary key, name text);
		insert into people values (1, 'Ann', 'Rome'), (2, 'Bob', 'Oslo')`)
	dir := t.TempDir()
	script := func(name string, lines ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	made := func() int {
		return len(c.rows("select slot_name from pg_replication_slots union all select pubname from pg_publication"))
	}
	now := "create streaming table now (id int, name string); apply changes into now from stream(s) keys (id) columns * except (city);"
	then := "create streaming table then; apply changes into then from stream(h) keys (id) columns * except (city) stored as scd type 2;"
	one := "create source s from '" + c.from("tables=public.*") + "' table 'public.people';"
	two := "create source h from '" + c.from("tables=public.people") + "' options (slot = 'histories');"

	script("which.sql", "create source s from '"+c.from("tables=public.*")+"';", now)
	script("none.sql", "create source s from '"+c.from("tables=public.*")+"' table 'public.plants';", now)
	script("shared.sql", one, strings.Replace(two, " options (slot = 'histories')", "", 1), now, then)
	for _, dry := range []string{"--dry-run=true", "--dry-run=false"} {
		for name, code := range map[string]string{"which.sql": "AMBIGUOUS_TABLE", "none.sql": "SOURCE_TABLE_NOT_FOUND", "shared.sql": "SLOT_BUSY"} {
			r := sluice(t, dir, nil, "apply", "-f", name, dry)
			refused(t, r, code)
			if name != "shared.sql" && !strings.Contains(r.stderr, "public.people, public.pets") {
				t.Errorf("%s names no tables: %s", name, r.stderr)
			}
		}
	}
	script("f.sql", one, two, now, then)
	plan := must(t, dir, "apply", "-f", "f.sql", "--dry-run")
	for _, want := range []string{`"slot":"sluice_shop"`, `"slot":"histories"`, `"makes_slot":true`, `"table":"public.people"`, `"keys":["id"]`} {
		if !strings.Contains(plan, want) {
			t.Errorf("%s is not in %s", want, plan)
		}
	}
	told := sluice(t, dir, nil, "apply", "-f", "f.sql", "--dry-run", "--output", "table")
	text := told.stdout + told.stderr
	if want := "slot histories would be made, publication histories would be made\n    public.people: about "; told.code != 0 || !strings.Contains(text, want) {
		t.Errorf("%s is not in %s", want, text)
	}
	if made() != 0 {
		t.Error("dry runs or refused ones made slots or publications")
	}
	if _, err := os.Stat(filepath.Join(dir, "now")); err == nil {
		t.Error("dry runs or refused ones made a table")
	}

	run := func(what string, rows, history []string) {
		t.Helper()
		must(t, dir, "apply", "-f", "f.sql")
		same(t, what, lines(must(t, dir, "cat", "now", "--order-by", "id")), rows)
		same(t, what+" as history", lines(must(t, dir, "cat", "then", "--columns", "id,name", "--order-by", "id,name")), history)
	}
	ann, bob, anna, cy := `{"id":1,"name":"Ann"}`, `{"id":2,"name":"Bob"}`, `{"id":1,"name":"Anna"}`, `{"id":3,"name":"Cy"}`
	run("copied", []string{ann, bob}, []string{ann, bob})
	c.exec("shop", "update people set name = 'Anna' where id = 1; delete from people where id = 2")
	run("followed", []string{anna}, []string{ann, anna, bob})
	c.exec("shop", "insert into people values (3, 'Cy', 'Lima'); insert into pets values (1, 'Rex')")
	run("followed once more", []string{anna, cy}, []string{ann, anna, bob, cy})
	must(t, dir, "apply", "-f", "f.sql", "--dry-run")
	run("nothing new", []string{anna, cy}, []string{ann, anna, bob, cy})
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
