package main

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/testenv"
)

func TestParseTemplate_Forms(t *testing.T) {
	for _, c := range []struct{ into, root, rest, dir string }{
		{"out/{table}", "out/", "{table}", "orders"},
		{"{table}", ".", "{table}", "orders"},
		{"/data/{schema}/{table}/", "/data/", "{schema}/{table}", "ops/orders"},
		{"/data/x-{schema}.{table}/v1", "/data/", "x-{schema}.{table}/v1", "x-ops.orders/v1"},
		{"file:///d/{table}", "file:///d/", "{table}", "orders"},
	} {
		got, ok, err := parseTemplate(c.into)
		if err != nil || !ok || got.root != c.root || got.rest != c.rest {
			t.Errorf("%s: got %+v, %v, %v", c.into, got, ok, err)
			continue
		}
		if dir, err := got.dir(event.Table{Database: "logi", Schema: "ops", Name: "orders"}); err != nil || dir != c.dir {
			t.Errorf("%s: dir %s, %v, want %s", c.into, dir, err, c.dir)
		}
	}
	if _, ok, err := parseTemplate("plain/path"); ok || err != nil {
		t.Errorf("plain path: %v, %v", ok, err)
	}
	for _, into := range []string{"out/{tabel}", "out/{schema}", "out/{table", "out/{table}/../x", "out/{table}//x", "s3://{table}"} {
		if got, _, err := parseTemplate(into); err == nil {
			t.Errorf("%s: got %+v, want an error", into, got)
		}
	}
}

func TestTemplate_NamesStayInside(t *testing.T) {
	tmpl, _, err := parseTemplate("root/{schema}/{table}")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"../x": "%2E.%2Fx", "..": "%2E.", "_delta_log": "%5Fdelta_log", "a/b\\c%": "a%2Fb%5Cc%25",
		"Order Lines": "Order Lines", "naïve": "naïve", "a\x00\n": "a%00%0A", "x.y_z": "x.y_z"} {
		got, err := tmpl.dir(event.Table{Schema: "s", Name: name})
		if err != nil || got != "s/"+want {
			t.Errorf("%q: got %s, %v, want s/%s", name, got, err, want)
		}
	}
	if _, err := tmpl.dir(event.Table{Name: "t"}); err == nil {
		t.Error("no schema: want an error")
	}
	if got, err := tmpl.dir(event.Table{Database: "shop", Name: "t"}); err != nil || got != "shop/t" {
		t.Errorf("database for schema: got %s, %v", got, err)
	}
	testenv.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(1, 20, -1).Draw(t, "a"), rapid.StringN(1, 20, -1).Draw(t, "b")
		dir, err := tmpl.dir(event.Table{Schema: "s", Name: a})
		if err != nil {
			t.Fatal(err)
		}
		abs := filepath.Join("/base", filepath.FromSlash(dir))
		if filepath.Dir(abs) != filepath.FromSlash("/base/s") || strings.HasPrefix(filepath.Base(abs), "_") {
			t.Fatalf("%q lands on %s", a, abs)
		}
		if other, err := tmpl.dir(event.Table{Schema: "s", Name: b}); err != nil || (other == dir) != (a == b) {
			t.Fatalf("%q and %q land on %s and %s (%v)", a, b, dir, other, err)
		}
	})
}

func TestTableMatches_Names(t *testing.T) {
	tab := event.Table{Database: "logi", Schema: "ops", Name: "orders"}
	for want, ok := range map[string]bool{"orders": true, "ops.orders": true, "logi.ops.orders": true, "logi.orders": true, "Orders": false, "x.orders": false, "ops": false} {
		if tableMatches(tab, want) != ok {
			t.Errorf("%s: want %v", want, ok)
		}
	}
}
