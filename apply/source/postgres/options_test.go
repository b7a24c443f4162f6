package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
)

func record(data []byte) *event.Record {
	return &event.Record{Source: "s", Value: data, Transport: 4, End: 6}
}

// TestParseURL_Secrets: a password never stands where it is seen, and never in an error.
func TestParseURL_Secrets(t *testing.T) {
	const canary = "Kanarienvogel7"
	for _, u := range []string{
		"postgres://me:" + canary + "@127.0.0.1/db", "postgres://me@127.0.0.1/db?password=" + canary,
		"postgres://me@127.0.0.1/db?sslpassword=" + canary, "postgres://me:" + canary + "@127.0.0.1:no/db", "postgres://me:" + canary + "%zz@h/db",
		"postgres://me:" + canary + "@127.0.0.1/",
	} {
		_, err := ParseURL(u, map[string]string{})
		var e *Error
		if !errors.As(err, &e) || e.Code != "SECRET_IN_URL" && e.Code != "BAD_OPTION" {
			t.Errorf("%v", err)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{"password_file": file, "slot": "mine"}
	o, err := ParseURL("postgres://me@127.0.0.1/db?tables=a.*,b.c&sslmode=disable", settings)
	if err != nil || o.Conn.Password != canary || len(settings) != 0 {
		t.Fatalf("%v, left %v", err, settings)
	}
	if o.Slot != "mine" || o.Publication != "mine" || !o.wanted("a", "x") || !o.wanted("b", "c") || o.wanted("b", "d") || o.wanted("ab", "c") {
		t.Errorf("%+v", o)
	}
	// Nobody listens there: the error names the place and nothing else.
	o, err = ParseURL("postgres://me@127.0.0.1:1/db", map[string]string{"password_file": file})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range New(o).Records(t.Context(), nil) {
		var e *Error
		if !errors.As(err, &e) || e.Code != "SERVER_UNREACHABLE" || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "127.0.0.1:1/db") {
			t.Errorf("%v", err)
		}
	}
}

func TestParseURL_Refused(t *testing.T) {
	for _, u := range []string{
		"postgres://me@h", "postgres://me@h/db?slot=Mixed", "postgres://me@h/db?slot=a-b", "postgres://me@h/db?tables=a.b.c", "postgres://me@h/db?tables=",
		"postgres://me@h/db?colour=red", "postgres://me@h/db?tables=a.b&tables=c.d", "postgres://me@h/db?copy_workers=0", "postgres://me@h/db?epoch=x", "postgres://me@h/db?password_file=/does/not/exist",
	} {
		var e *Error
		if _, err := ParseURL(u, map[string]string{}); !errors.As(err, &e) || e.Code != "BAD_OPTION" {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{{"*", "", true}, {"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "acb", false}, {"a*b*c", "axbyc", true}, {"a*b*c", "abc", true}, {"ab", "abc", false}, {"a*a", "a", false}} {
		if got := glob(c.pattern, c.text); got != c.want {
			t.Errorf("%s %s: %v", c.pattern, c.text, got)
		}
	}
}
