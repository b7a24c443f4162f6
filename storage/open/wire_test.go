package open_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// recorder is a server that writes down what reaches it and knows no object: it takes every
// write once and refuses the second one of a name, as the probe of a bucket wants it.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	had  map[string]bool
}

func record(t *testing.T, tls bool) *recorder {
	t.Helper()
	r := &recorder{had: map[string]bool{}}
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, req)
		again := r.had[req.URL.String()]
		switch req.Method {
		case http.MethodPut:
			r.had[req.URL.String()] = true
			if again {
				w.WriteHeader(http.StatusPreconditionFailed)
			} else {
				w.WriteHeader(http.StatusCreated)
			}
		case http.MethodPost: // of GCS
			if strings.Contains(req.URL.Path, "/upload/") {
				fmt.Fprint(w, `{"name":"k","generation":"1"}`)
			}
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	if tls {
		r.Server = httptest.NewTLSServer(h)
	} else {
		r.Server = httptest.NewServer(h)
	}
	t.Cleanup(r.Close)
	return r
}

// find is the first request that a condition holds for.
func (r *recorder) find(cond func(*http.Request) bool) *http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.seen {
		if cond(req) {
			return req
		}
	}
	return nil
}

func keys(t *testing.T) {
	t.Helper()
	noCloud(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIA")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func opened(t *testing.T, location string, settings map[string]string) storage.Store {
	t.Helper()
	s, err := open.Store(location, open.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Options reach the wire: on every request, or on those that write.
func TestStore_OptionsOnTheWire(t *testing.T) {
	put := func(req *http.Request) bool {
		return strings.Contains(req.URL.String(), "data") && (req.Method == http.MethodPut || req.Method == http.MethodPost)
	}
	head := func(req *http.Request) bool { return req.Method == http.MethodHead || req.Method == http.MethodGet }
	for _, c := range []struct {
		name, location string
		settings       map[string]string
		header, value  string
		query          string
		reads          bool // also on requests that read
	}{
		{"requester pays", "s3://b/p", map[string]string{"requester_pays": "true"}, "X-Amz-Request-Payer", "requester", "", true},
		{"sse", "s3://b/p", map[string]string{"sse": "AES256"}, "X-Amz-Server-Side-Encryption", "AES256", "", false},
		{"sse of KMS", "s3://b/p", map[string]string{"sse_kms_key_id": "arn:key"}, "X-Amz-Server-Side-Encryption", "aws:kms", "", false},
		{"key of KMS", "s3://b/p", map[string]string{"sse_kms_key_id": "arn:key"}, "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "arn:key", "", false},
		{"condition of S3", "s3://b/p", nil, "If-None-Match", "*", "", false},
		{"encryption scope", "azblob://b/p", map[string]string{"encryption_scope": "scope1"}, "X-Ms-Encryption-Scope", "scope1", "", false},
		{"condition of Azure", "azblob://b/p", nil, "If-None-Match", "*", "", false},
		{"billed project", "gs://b/p", map[string]string{"user_project": "billed"}, "", "", "userProject=billed", true},
		{"key of GCS", "gs://b/p", map[string]string{"kms_key": "projects/p/k"}, "", "", "kmsKeyName=projects%2Fp%2Fk", false},
		{"condition of GCS", "gs://b/p", nil, "", "", "ifGenerationMatch=0", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys(t)
			t.Setenv("AZURE_STORAGE_ACCOUNT", "acct")
			t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
			r := record(t, false)
			settings := map[string]string{"endpoint": r.URL}
			if strings.HasPrefix(c.location, "gs:") {
				settings["anonymous"] = "true"
			}
			for k, v := range c.settings {
				settings[k] = v
			}
			s := opened(t, c.location, settings)
			_ = s.Create(t.Context(), "data", []byte("x")) // GCS's own proof of the bucket may fail on this server
			has := func(req *http.Request) bool {
				return c.header != "" && req.Header.Get(c.header) == c.value || c.query != "" && strings.Contains(req.URL.RawQuery, c.query)
			}
			written := put
			if strings.HasPrefix(c.location, "gs:") {
				written = func(req *http.Request) bool { return req.Method == http.MethodPost }
			}
			if strings.HasPrefix(c.location, "azblob:") {
				written = func(req *http.Request) bool { return req.Method == http.MethodPut }
			}
			w := r.find(written)
			if w == nil {
				t.Fatal("nothing was written")
			}
			if !has(w) {
				t.Errorf("not on the write: %s %s %v", w.Method, w.URL, w.Header)
			}
			if c.reads {
				_, _ = s.Head(t.Context(), "other")
				if req := r.find(func(req *http.Request) bool { return head(req) && strings.Contains(req.URL.String(), "other") }); req == nil || !has(req) {
					t.Errorf("not on the read: %v", req)
				}
			}
		})
	}
}

// A server whose certificate an authority of one's own signed is trusted with ca_file, taken
// unseen with insecure_tls, and else refused.
func TestStore_OwnAuthority(t *testing.T) {
	keys(t)
	r := record(t, true)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, location := range []string{"s3://b/p", "gs://b/p", "azblob://b/p"} {
		for _, c := range []struct {
			name, value string
			trusted     bool
		}{{"", "", false}, {"ca_file", ca, true}, {"insecure_tls", "true", true}} {
			settings := map[string]string{"endpoint": r.URL, "anonymous": "true", "account": "acct"}
			if c.name != "" {
				settings[c.name] = c.value
			}
			_, err := opened(t, location, settings).Head(t.Context(), "k")
			if errors.Is(err, storage.ErrNotFound) != c.trusted {
				t.Errorf("%s with %s: %v", location, c.name, err)
			}
		}
	}
}

// Requests go to the proxy that is named, with the store's name in them.
func TestStore_Proxy(t *testing.T) {
	keys(t)
	r := record(t, false) // an HTTP proxy gets whole URLs
	for _, location := range []string{"s3://b/p", "gs://b/p", "azblob://b/p"} {
		settings := map[string]string{"endpoint": "http://store.invalid", "anonymous": "true", "account": "acct", "proxy": r.URL}
		if _, err := opened(t, location, settings).Head(t.Context(), "k"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v", location, err)
		}
	}
	n := 0
	for _, req := range r.seen {
		if req.URL.Host == "store.invalid" {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d of 3 stores went through the proxy: %v", n, r.seen)
	}
}

// A SAS is the query of every request, and nothing is signed beside it.
func TestStore_SAS(t *testing.T) {
	noCloud(t)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acct")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2024-01-01&sp=racwdl&sig="+secret)
	r := record(t, false)
	s := opened(t, "azblob://c/p", map[string]string{"endpoint": r.URL})
	if err := s.Create(t.Context(), "data", []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := s.Head(t.Context(), "other"); !errors.Is(err, storage.ErrNotFound) || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
	for _, req := range r.seen {
		if req.URL.Query().Get("sig") != secret || req.Header.Get("Authorization") != "" {
			t.Errorf("%s %s %v", req.Method, req.URL.Path, req.Header)
		}
	}
	if len(r.seen) < 4 {
		t.Errorf("%d requests", len(r.seen))
	}
}

// issuer is the instance's metadata service (IMDSv2) and the token service (STS) in one.
func issuer(t *testing.T) (url string, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var paths []string
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		paths = append(paths, r.Method+" "+r.URL.Path+" "+string(body))
		mu.Unlock()
		switch {
		case r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
			fmt.Fprint(w, "session")
		case strings.HasPrefix(r.URL.Path, "/latest/") && r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "role")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/role":
			_ = json.NewEncoder(w).Encode(map[string]string{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "FROMROLE", "SecretAccessKey": secret,
				"Token": "role-token", "Expiration": until})
		case strings.Contains(string(body), "AssumeRoleWithWebIdentity"):
			fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>FROMIDENTITY</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>identity-token</SessionToken><Expiration>%s</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, secret, until)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string { mu.Lock(); defer mu.Unlock(); return paths }
}

// The credentials of an instance's role and of a pod's identity are fetched and sign requests.
func TestStore_FetchedCredentials(t *testing.T) {
	for _, c := range []struct {
		name, id, token string
		set             func(t *testing.T, issuer string)
	}{
		{"instance role", "FROMROLE", "role-token", func(t *testing.T, issuer string) {
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", issuer)
		}},
		{"web identity", "FROMIDENTITY", "identity-token", func(t *testing.T, issuer string) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("pod-token"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
			t.Setenv("AWS_ENDPOINT_URL_STS", issuer)
			t.Setenv("AWS_REGION", "us-east-1")
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			noCloud(t)
			url, asked := issuer(t)
			c.set(t, url)
			r := record(t, false)
			if _, err := opened(t, "s3://b/p", map[string]string{"endpoint": r.URL}).Head(t.Context(), "k"); !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("%v; asked for %v", err, asked())
			}
			req := r.find(func(*http.Request) bool { return true })
			if req == nil || !strings.Contains(req.Header.Get("Authorization"), "Credential="+c.id+"/") || req.Header.Get("X-Amz-Security-Token") != c.token {
				t.Errorf("%v; asked for %v", req, asked())
			}
		})
	}
}

// A store that nobody answers for is said with the cause, and a write that was never sent
// is not one whose outcome is unknown.
func TestStore_NoConnection(t *testing.T) {
	keys(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, location := range []string{"s3://b/p", "gs://b/p", "azblob://b/p"} {
		s := opened(t, location, map[string]string{"endpoint": gone.URL, "anonymous": "true", "account": "acct"})
		_, err := s.Head(t.Context(), "k")
		if !errors.Is(err, storage.ErrTransient) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: head: %v", location, err)
		}
		if err := s.Create(t.Context(), "k", nil); !errors.Is(err, storage.ErrTransient) || errors.Is(err, storage.ErrAmbiguous) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: create: %v", location, err)
		}
	}
}
