package open

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/sluice-data/sluice/storage/blobstore"
	"github.com/sluice-data/sluice/storage/gcsstore"
)

const gcsScope = "https://www.googleapis.com/auth/devstorage.read_write"

// openGCS makes the driver of a bucket with application default credentials:
// GOOGLE_APPLICATION_CREDENTIALS (a key, or workload identity federation),
// gcloud's file, the metadata server. An emulator is spoken to without any.
func (s settings) openGCS(p place, b *bucket) error {
	c, err := s.httpClient()
	if err != nil {
		return err
	}
	anonymous, err := s.on("anonymous")
	if err != nil {
		return err
	}
	o := gcsstore.Options{Bucket: p.bucket, Endpoint: s.get("endpoint"), UserProject: s.get("user_project"), KMSKey: s.get("kms_key")}
	if emulator := s.getenv("STORAGE_EMULATOR_HOST"); o.Endpoint == "" && emulator != "" {
		if !strings.Contains(emulator, "://") {
			emulator = "http://" + emulator
		}
		o.Endpoint, anonymous = emulator, true
	}
	if !anonymous {
		c.Transport = &tokens{base: c.Transport}
	}
	b.driver = gcsstore.New(c, o)
	return nil
}

// tokens adds a bearer token to requests; it looks for credentials when the first
// one is sent.
type tokens struct {
	base http.RoundTripper
	mu   sync.Mutex
	src  oauth2.TokenSource
}

func (t *tokens) source() (oauth2.TokenSource, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.src == nil {
		// The source outlives the request that made it, so it gets no context of one.
		ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Transport: t.base})
		creds, err := google.FindDefaultCredentials(ctx, gcsScope)
		if err != nil {
			return nil, &blobstore.Fault{Local: true, Err: errors.New("no credentials: set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login")}
		}
		t.src = creds.TokenSource
	}
	return t.src, nil
}

// RoundTrip sends a copy of the request with the token. What the token's issuer
// answers is cut down to its code, since its body is not ours to show.
func (t *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	src, err := t.source()
	if err != nil {
		return nil, err
	}
	token, err := src.Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused):
		return nil, &blobstore.Fault{Local: true, Code: refused.ErrorCode, Err: errors.New("the credentials were refused")}
	case err != nil:
		f := blobstore.NoAnswer(err)
		f.Unsent = true
		return nil, f
	}
	r = r.Clone(r.Context())
	token.SetAuthHeader(r)
	return t.base.RoundTrip(r)
}
