package open

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/blobstore"
)

// Clouds holds what one process shares of object stores: the connections to a
// bucket, and the proof that it refuses a second creator. The zero value is ready.
type Clouds struct {
	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	driver blobstore.Driver
	guard  *blobstore.Guard
	// wrap goes around the store of a prefix; nil for nothing.
	wrap func(st storage.Store, prefix string) storage.Store
}

// place is a location in an object store.
type place struct {
	scheme  string // as spelled, lower case
	bucket  string // or container
	account string // host of an abfs URL, "account.dfs.core.windows.net"; else ""
	prefix  string // decoded, without slashes at its ends
}

// cloud opens the store of a URL.
func (o Options) cloud(location, scheme, rest string) (storage.Store, error) {
	p, err := parse(location, scheme, rest)
	if err != nil {
		return nil, err
	}
	set := settings{given: o.Settings, getenv: os.Getenv}
	if err := set.check(); err != nil {
		return nil, err
	}
	c := o.Clouds
	if c == nil {
		c = &Clouds{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := strings.Join([]string{p.scheme, p.bucket, p.account}, "\x00")
	b := c.buckets[id]
	if b == nil {
		b = &bucket{guard: &blobstore.Guard{SingleWriter: o.SingleWriter}}
		switch p.kind() {
		case kindS3:
			err = set.openS3(p, b)
		case kindGCS:
			err = set.openGCS(p, b)
		default:
			err = set.openAzure(p, b)
		}
		if err != nil {
			return nil, err
		}
		if c.buckets == nil {
			c.buckets = map[string]*bucket{}
		}
		c.buckets[id] = b
	}
	s := blobstore.New(b.driver, p.prefix, blobstore.Options{Guard: b.guard})
	if b.wrap != nil {
		return b.wrap(s, p.prefix), nil
	}
	return s, nil
}

const (
	kindS3    = "S3"
	kindGCS   = "Google Cloud Storage"
	kindAzure = "Azure Blob Storage"
)

func (p place) kind() string {
	switch p.scheme {
	case "s3", "s3a":
		return kindS3
	case "gs":
		return kindGCS
	}
	return kindAzure
}

// isCloud says whether a scheme is that of an object store.
func isCloud(scheme string) bool {
	switch scheme {
	case "s3", "s3a", "gs", "azblob", "az", "abfs", "abfss":
		return true
	}
	return false
}

// parse reads scheme://bucket/prefix, and container@account for Azure.
func parse(location, scheme, rest string) (place, error) {
	bad := func(reason string) (place, error) { return place{}, &Error{CodeInvalid, redact(location), reason} }
	if strings.ContainsAny(rest, "?#") {
		return bad("a location has no query: settings are given with --store-option, credentials in the environment")
	}
	host, path, _ := strings.Cut(rest, "/")
	p := place{scheme: scheme, bucket: host}
	if before, after, ok := strings.Cut(host, "@"); ok {
		if scheme != "abfs" && scheme != "abfss" || strings.Contains(before, ":") {
			return bad("a location has no user and no password: credentials come from the environment")
		}
		p.bucket, p.account = before, after
	}
	if p.bucket == "" || strings.ContainsAny(p.bucket, ":%") {
		return bad("no bucket: write " + scheme + "://bucket/path")
	}
	path, err := url.PathUnescape(strings.Trim(path, "/"))
	if err != nil {
		return bad("bad percent-encoding")
	}
	if p.prefix = path; path != "" {
		if err := storage.ValidateKey(path); err != nil {
			return bad(err.Error())
		}
	}
	return p, nil
}

// settings are what the user said by option, and the environment behind it.
type settings struct {
	given  map[string]string
	getenv func(string) string
}

// known lists the settings of all stores. One that only another cloud knows is
// taken and not used, since a command may name tables in two clouds.
func known() []string {
	return []string{"account", "anonymous", "ca_file", "dynamodb_endpoint", "dynamodb_region", "dynamodb_table", "encryption_scope", "endpoint",
		"insecure_tls", "kms_key", "log_store", "path_style", "profile", "proxy", "region", "requester_pays", "sse", "sse_kms_key_id", "user_project"}
}

func (s settings) check() error {
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if !slices.Contains(known(), name) {
			return &Error{CodeSetting, name, "unknown store option; there are " + strings.Join(known(), ", ")}
		}
	}
	return nil
}

// get is the value of a setting, else of the first variable that is set.
func (s settings) get(name string, env ...string) string {
	if v, ok := s.given[name]; ok {
		return v
	}
	for _, e := range env {
		if v := s.getenv(e); v != "" {
			return v
		}
	}
	return ""
}

// on reads a setting that is true or false; "" is false.
func (s settings) on(name string, env ...string) (bool, error) {
	switch v := s.get(name, env...); strings.ToLower(v) {
	case "", "false", "0", "no":
		return false, nil
	case "true", "1", "yes":
		return true, nil
	default:
		return false, &Error{CodeSetting, name, fmt.Sprintf("%q is neither true nor false", v)}
	}
}
