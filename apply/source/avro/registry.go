package avro

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Schemas gives the text of schemas.
type Schemas interface {
	// Schema is the text of a schema. An error stops the flow: what is unknown now
	// may be known later.
	Schema(ctx context.Context, r Ref) ([]byte, error)
}

// Error is a schema that is not to be had. Code is stable: SCHEMA_UNKNOWN,
// REGISTRY_UNREACHABLE, REGISTRY_REFUSED.
type Error struct{ Code, Reason string }

func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// Registry is a client of a schema registry: Confluent's API, and Apicurio's for
// global and content ids.
type Registry struct {
	// URL of the registry. For ids of Apicurio's own API its root, e.g.
	// http://host:8080/apis/registry/v2; for Confluent's e.g. http://host:8081.
	URL            string
	User, Password string
	Client         *http.Client
	// Attempts is how often an answer is asked for, with pauses that double from
	// Pause. 0: 6 and 200 ms.
	Attempts int
	Pause    time.Duration
	// Sleep waits between attempts; nil: a timer.
	Sleep func(ctx context.Context, d time.Duration) error

	mu   sync.Mutex
	kept map[Ref][]byte
}

// Schema implements Schemas. It may be called from several goroutines.
func (g *Registry) Schema(ctx context.Context, r Ref) ([]byte, error) {
	g.mu.Lock()
	text, ok := g.kept[r]
	g.mu.Unlock()
	if ok {
		return text, nil
	}
	if r.Kind == "glue" {
		return nil, &Error{"REGISTRY_REFUSED", fmt.Sprintf("schema %s is one of AWS Glue, whose API is not spoken: give the schemas by their version ids in a file, --option schemas=FILE", r)}
	}
	text, err := g.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kept == nil {
		g.kept = map[Ref][]byte{}
	}
	g.kept[r] = text
	return text, nil
}

// ask asks until there is an answer that another attempt would not change.
func (g *Registry) ask(ctx context.Context, r Ref) ([]byte, error) {
	attempts, pause := g.Attempts, g.Pause
	if attempts == 0 {
		attempts = 6
	}
	if pause == 0 {
		pause = 200 * time.Millisecond
	}
	var last error
	for i := range attempts {
		if i > 0 {
			if err := g.sleep(ctx, pause); err != nil {
				return nil, err
			}
			pause *= 2
		}
		text, again, err := g.get(ctx, r)
		if err == nil {
			return text, nil
		}
		last = err
		if !again {
			break
		}
	}
	return nil, last
}

func (g *Registry) sleep(ctx context.Context, d time.Duration) error {
	if g.Sleep != nil {
		return g.Sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (g *Registry) path(r Ref) string {
	base := strings.TrimRight(g.URL, "/")
	switch r.Kind {
	case "guid":
		return base + "/schemas/guids/" + r.ID
	case "globalId":
		return base + "/ids/globalIds/" + r.ID
	case "contentId":
		return base + "/ids/contentIds/" + r.ID
	}
	return base + "/schemas/ids/" + r.ID
}

// get asks once; again tells whether another attempt may help.
func (g *Registry) get(ctx context.Context, r Ref) (text []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.path(r), nil)
	if err != nil {
		return nil, false, &Error{"REGISTRY_UNREACHABLE", err.Error()}
	}
	req.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json")
	if g.User != "" {
		req.SetBasicAuth(g.User, g.Password)
	}
	client := g.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		return nil, true, &Error{"REGISTRY_UNREACHABLE", fmt.Sprintf("schema %s: the registry does not answer", r)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, true, &Error{"REGISTRY_UNREACHABLE", fmt.Sprintf("schema %s: the registry's answer breaks off", r)}
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		// A registry that lags behind its leader does not know a new id yet.
		return nil, true, &Error{"SCHEMA_UNKNOWN", fmt.Sprintf("the registry does not know schema %s", r)}
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, false, &Error{"REGISTRY_REFUSED", "the registry refuses: set SCHEMA_REGISTRY_USER and SCHEMA_REGISTRY_PASSWORD"}
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return nil, true, &Error{"REGISTRY_UNREACHABLE", fmt.Sprintf("schema %s: the registry answers %s", r, resp.Status)}
	case resp.StatusCode != http.StatusOK:
		return nil, false, &Error{"REGISTRY_REFUSED", fmt.Sprintf("schema %s: the registry answers %s", r, resp.Status)}
	}
	if r.Kind == "globalId" || r.Kind == "contentId" {
		return body, false, nil // the schema itself
	}
	var doc struct {
		Schema     string `json:"schema"`
		SchemaType string `json:"schemaType"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Schema == "" {
		return nil, false, &Error{"REGISTRY_REFUSED", fmt.Sprintf("schema %s: the registry's answer holds no schema", r)}
	}
	if doc.SchemaType != "" && doc.SchemaType != "AVRO" {
		return nil, false, &Error{"REGISTRY_REFUSED", fmt.Sprintf("schema %s is %s: only Avro is read", r, doc.SchemaType)}
	}
	return []byte(doc.Schema), false, nil
}

// File is schemas kept in a file: a JSON object of schema texts, or of objects
// with a member schema, by id.
type File struct{ byID map[string][]byte }

// ReadFile reads schemas from a file.
func ReadFile(path string) (*File, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read schemas: %w", err)
	}
	var docs map[string]json.RawMessage
	if err := json.Unmarshal(raw, &docs); err != nil {
		return nil, fmt.Errorf("read schemas of %s: %w", path, err)
	}
	f := &File{byID: map[string][]byte{}}
	for id, doc := range docs {
		var text string
		var wrapped struct {
			Schema json.RawMessage `json:"schema"`
		}
		if json.Unmarshal(doc, &wrapped) == nil && len(wrapped.Schema) > 0 {
			doc = wrapped.Schema
		}
		if json.Unmarshal(doc, &text) == nil {
			doc = []byte(text)
		}
		f.byID[id] = doc
	}
	return f, nil
}

// Schema implements Schemas.
func (f *File) Schema(_ context.Context, r Ref) ([]byte, error) {
	if text, ok := f.byID[r.ID]; ok {
		return text, nil
	}
	return nil, &Error{"SCHEMA_UNKNOWN", fmt.Sprintf("the file of schemas has no %s", r)}
}

var errNoSchemas = errors.New("name a registry (registry=URL) or a file of schemas (schemas=FILE)")
