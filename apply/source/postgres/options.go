package postgres

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options of a source.
type Options struct {
	// Conn is where the server is and who connects.
	Conn *pgx.ConnConfig
	// Tables are patterns SCHEMA.TABLE, in which * stands for any text; empty: every
	// table of every schema that is not the system's.
	Tables []string
	// Anew are patterns like Tables: what they choose is copied once more, and rows that
	// are no longer in the source go away.
	Anew []string
	// Slot and Publication are made if they are not there.
	Slot, Publication string
	// Epoch is the first element of every sequence; raise it when positions began anew.
	Epoch int32
	// Workers is the number of tables that are copied at once; 0: 2.
	Workers int
	// SnapshotOnly ends a reading after the snapshot.
	SnapshotOnly bool
	// Timeline, if not 0, accepts a server that went over to this timeline.
	Timeline int
	// Round bounds one reading of the stream, which then ends between two
	// transactions, so that the slot can move on; 0: until what is there now is read.
	Round time.Duration
	// Patience is how long a lost connection is tried again; 0: 5 minutes.
	Patience time.Duration
	// WarnRetained is how many bytes of WAL the slot may hold back before a warning;
	// 0: 10 GiB.
	WarnRetained int64
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// SpillDir is where large open transactions are held; "": the system's folder.
	SpillDir string
}

// Error is a server, right, setting or option that is not as it must be. Code is
// stable: BAD_OPTION, SECRET_IN_URL, SERVER_UNREACHABLE, LOGIN_FAILED,
// UNSUPPORTED_VERSION, SETUP_NEEDED, NO_TABLES, SLOT_BUSY, SLOT_LOST, SLOT_FOREIGN,
// SOURCE_CHANGED, INPUT_GONE, COPY_OVERTAKEN.
type Error struct{ Code, Reason string }

func (e *Error) Error() string { return e.Code + ": " + e.Reason }

func fail(code, format string, args ...any) error { return &Error{code, fmt.Sprintf(format, args...)} }

// IsURL tells whether a location is postgres://user@host/database.
func IsURL(location string) bool {
	return strings.HasPrefix(location, "postgres://") || strings.HasPrefix(location, "postgresql://")
}

// passed are the connection parameters that a URL may hand on to the driver.
var passed = regexp.MustCompile(`^(sslmode|sslrootcert|sslcert|sslkey|sslsni|connect_timeout|passfile|service|servicefile|target_session_attrs|application_name|host|port|channel_binding)$`)

// ParseURL reads postgres://user@host:port/database?tables=public.*&slot=NAME and the
// source's settings, which it takes out of settings: tables, recopy, slot, publication, epoch,
// copy_workers, timeline, password_file, warn_retained. The same names may stand in
// the URL, beside sslmode and the other parameters of libpq. The password comes from
// PGPASSWORD, PGPASSFILE or the file that password_file names; one in the URL is
// refused.
func ParseURL(location string, settings map[string]string) (Options, error) {
	o := Options{}
	u, err := url.Parse(location)
	if err != nil {
		// The text of the fault quotes the URL.
		return o, fail("BAD_OPTION", "source: want postgres://user@host/database?tables=SCHEMA.TABLE")
	}
	if _, secret := u.User.Password(); secret {
		return o, fail("SECRET_IN_URL", "source: a password does not belong into the URL, where logs and process lists show it: set PGPASSWORD, PGPASSFILE or option password_file=FILE")
	}
	if strings.Trim(u.Path, "/") == "" {
		return o, fail("BAD_OPTION", "source: the URL names no database: want postgres://user@host/database?tables=SCHEMA.TABLE")
	}
	query, kept := u.Query(), url.Values{}
	own := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case len(query[name]) > 1:
			return o, fail("BAD_OPTION", "source: the URL has %s more than once: several values go with commas", name)
		case name == "password" || name == "sslpassword":
			return o, fail("SECRET_IN_URL", "source: a password does not belong into the URL: set PGPASSWORD, PGPASSFILE or option password_file=FILE")
		case passed.MatchString(name):
			kept[name] = query[name]
		default:
			own[name] = query.Get(name)
		}
	}
	secretFile := ""
	for _, from := range []map[string]string{own, settings} {
		for name, value := range from {
			known, err := o.set(name, value)
			if name == "password_file" {
				secretFile, known = value, true
			}
			if err != nil {
				return o, fail("BAD_OPTION", "%s=%s: %v", name, value, err)
			}
			if !known {
				return o, fail("BAD_OPTION", "postgres options: %s: no such option", name)
			}
			delete(settings, name)
		}
	}
	u.RawQuery = kept.Encode()
	if o.Conn, err = pgx.ParseConfig(u.String()); err != nil {
		return o, fail("BAD_OPTION", "source: %v", err)
	}
	if secretFile != "" {
		secret, err := os.ReadFile(secretFile)
		if err != nil {
			return o, fail("BAD_OPTION", "password_file: %v", err)
		}
		o.Conn.Password = strings.TrimRight(string(secret), "\r\n")
	}
	o.defaults()
	return o, nil
}

// set takes one setting.
func (o *Options) set(name, value string) (known bool, err error) {
	switch name {
	case "tables":
		o.Tables = strings.Split(value, ",")
		if slices.ContainsFunc(o.Tables, func(p string) bool { return strings.Count(p, ".") > 1 || p == "" }) {
			return true, errors.New("want SCHEMA.TABLE, SCHEMA.* or several with commas")
		}
	case "recopy":
		o.Anew = strings.Split(value, ",")
	case "slot":
		o.Slot = value
		if !slotName.MatchString(value) {
			return true, errors.New("want up to 63 of a-z, 0-9 and _")
		}
	case "publication":
		o.Publication = value
		if value == "" || len(value) > 63 {
			return true, errors.New("want a name of up to 63 bytes")
		}
	case "epoch":
		n, e := strconv.ParseInt(value, 10, 32)
		o.Epoch, err = int32(n), e
	case "copy_workers":
		o.Workers, err = strconv.Atoi(value)
		if err == nil && (o.Workers < 1 || o.Workers > 64) {
			err = errors.New("want 1 to 64")
		}
	case "timeline":
		o.Timeline, err = strconv.Atoi(value)
	case "warn_retained":
		o.WarnRetained, err = strconv.ParseInt(value, 10, 64)
	default:
		return false, nil
	}
	return true, err
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// defaults names slot and publication after the database, and sets what makes the
// server print values in one way, whatever its own settings are.
func (o *Options) defaults() {
	if o.Slot == "" {
		o.Slot = "sluice_" + regexp.MustCompile(`[^a-z0-9_]`).ReplaceAllString(strings.ToLower(o.Conn.Database), "_")
		o.Slot = o.Slot[:min(len(o.Slot), 63)]
	}
	if o.Publication == "" {
		o.Publication = o.Slot
	}
	if o.Workers == 0 {
		o.Workers = 2
	}
	if o.Patience == 0 {
		o.Patience = 5 * time.Minute
	}
	if o.WarnRetained == 0 {
		o.WarnRetained = 10 << 30
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for name, value := range map[string]string{
		"DateStyle": "ISO, YMD", "TimeZone": "UTC", "IntervalStyle": "iso_8601", "extra_float_digits": "1", "bytea_output": "hex",
		"client_encoding": "UTF8", "search_path": "pg_catalog", "standard_conforming_strings": "on",
		"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
	} {
		o.Conn.RuntimeParams[name] = value
	}
	if o.Conn.RuntimeParams["application_name"] == "" {
		o.Conn.RuntimeParams["application_name"] = "sluice"
	}
}

// wanted tells whether the patterns choose a table.
func (o *Options) wanted(schema, name string) bool {
	return len(o.Tables) == 0 || matches(o.Tables, schema, name)
}

// wantedAnew tells whether a table is to be copied once more.
func (o *Options) wantedAnew(schema, name string) bool { return matches(o.Anew, schema, name) }

func matches(patterns []string, schema, name string) bool {
	for _, p := range patterns {
		s, n, both := strings.Cut(p, ".")
		if !both {
			s, n = "public", p
		}
		if glob(s, schema) && glob(n, name) {
			return true
		}
	}
	return false
}

// glob matches text with a pattern in which * stands for any text.
func glob(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(text, p)
		if i < 0 {
			return false
		}
		text = text[i+len(p):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}
