package open

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/blobstore"
)

// ErrLocation is the class of every [*Error].
var ErrLocation = errors.New("location cannot be opened")

// ErrUnconditional is the class of the refusal to write to an object store that
// lets two writers create one object; see Options.SingleWriter.
var ErrUnconditional = blobstore.ErrUnconditional

// Codes of [*Error].
const (
	// CodeUnsupported: a scheme that this version cannot serve.
	CodeUnsupported = "UNSUPPORTED_STORE"
	// CodeInvalid: the text is no location.
	CodeInvalid = "INVALID_LOCATION"
	// CodeSetting: a setting that the store does not know, or a value that it cannot take.
	CodeSetting = "INVALID_STORE_OPTION"
)

// Error tells why a location cannot be opened.
type Error struct {
	ErrorCode string
	Location  string // with any password cut out
	Reason    string
}

func (e *Error) Error() string { return e.Reason + ": " + e.Location }

// Code is the stable error code.
func (e *Error) Code() string { return e.ErrorCode }

// Is answers the class.
func (e *Error) Is(target error) bool { return target == ErrLocation }

// Options of [Store]; the zero value serves local paths, and object stores as
// the environment says.
type Options struct {
	// Local configures local stores.
	Local storage.LocalOptions
	// Memory gives the store of mem://name/; nil refuses the scheme. For tests.
	Memory func(name string) (storage.Store, error)
	// Clouds keeps connections and proofs of one process; nil opens anew.
	Clouds *Clouds
	// Settings of object stores by name; see docs/stores.md. They go before the
	// environment. A name that no store knows is refused.
	Settings map[string]string
	// SingleWriter says that nobody else writes to the object store, so that it
	// need not know conditional writes.
	SingleWriter bool
}

// Store opens a location: a local path, file:///path, mem://name/path, or the URL
// of an object store: s3://bucket/prefix, gs://bucket/prefix,
// azblob://container/prefix and their other spellings. It does no I/O beyond
// reading the configuration of the cloud's tools.
func Store(location string, o Options) (storage.Store, error) {
	scheme, rest := split(location)
	switch scheme {
	case "":
		if location == "" {
			return nil, &Error{CodeInvalid, `""`, "the location is empty"}
		}
		if strings.ContainsRune(location, 0) {
			return nil, &Error{CodeInvalid, fmt.Sprintf("%q", location), "the path has a zero byte"}
		}
		return storage.NewLocal(location, o.Local)
	case "file":
		dir, err := filePath(location, rest)
		if err != nil {
			return nil, err
		}
		return storage.NewLocal(dir, o.Local)
	case "mem":
		if o.Memory != nil {
			return o.Memory(strings.Trim(rest, "/"))
		}
		return nil, &Error{CodeUnsupported, location, "memory stores exist inside one process only"}
	}
	if isCloud(scheme) {
		return o.cloud(location, scheme, rest)
	}
	return nil, &Error{CodeUnsupported, redact(location), fmt.Sprintf("unknown scheme %q: there are local paths, file://, s3://, gs://, azblob:// and abfss://", scheme)}
}

// split cuts "scheme://" off; a path has no scheme.
func split(location string) (scheme, rest string) {
	before, after, ok := strings.Cut(location, "://")
	if !ok || len(before) < 2 { // C://x is a Windows path
		return "", location
	}
	for i, r := range before {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", r)) {
			return "", location
		}
	}
	return strings.ToLower(before), after
}

// filePath is the path of a file URL (RFC 8089; percent-encoding is undone).
func filePath(location, rest string) (string, error) {
	host, p, _ := strings.Cut(rest, "/")
	if host != "" && host != "localhost" {
		return "", &Error{CodeInvalid, location, "a file URL has no host: write file:///path"}
	}
	p, err := url.PathUnescape("/" + p)
	if err != nil || strings.ContainsRune(p, 0) {
		return "", &Error{CodeInvalid, location, "bad percent-encoding in the file URL"}
	}
	if len(p) > 2 && p[2] == ':' { // file:///C:/data
		p = p[1:]
	}
	return filepath.FromSlash(p), nil
}

// redact cuts user information and the query, which may hold a secret.
func redact(location string) string {
	scheme, rest, _ := strings.Cut(location, "://")
	rest, _, _ = strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 && strings.Contains(rest[:at], ":") {
		rest = "***" + rest[at:]
	}
	return scheme + "://" + rest
}

// Join is the location of dir below location; dir is slash-separated and, in a
// URL, gets percent-encoded.
func Join(location, dir string) string {
	scheme, _ := split(location)
	if scheme == "" {
		return filepath.Join(location, filepath.FromSlash(dir))
	}
	parts := strings.Split(dir, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.TrimRight(location, "/") + "/" + strings.Join(parts, "/")
}

// Base is the last path element of a location, what a human calls the table.
func Base(location string) string {
	scheme, rest := split(location)
	if scheme == "" {
		if abs, err := filepath.Abs(location); err == nil {
			location = abs
		}
		return filepath.Base(location)
	}
	name := path.Base("/" + strings.Trim(rest, "/"))
	if u, err := url.PathUnescape(name); err == nil {
		name = u
	}
	return name
}
