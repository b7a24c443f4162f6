package gcsstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/storage/blobstore"
)

// Options of a bucket.
type Options struct {
	Bucket string
	// Endpoint is the root of the API. Default https://storage.googleapis.com.
	Endpoint string
	// UserProject is billed for the requests, as buckets with requester pays want.
	UserProject string
	// KMSKey is the resource name of the key that writes are encrypted with.
	KMSKey string
}

// metaID is the metadata key of blobstore.PutOptions.ID.
const metaID = "sluice-id"

// New makes the driver of a bucket; it does no I/O. The client adds credentials.
func New(c *http.Client, o Options) blobstore.Driver {
	if o.Endpoint == "" {
		o.Endpoint = "https://storage.googleapis.com"
	}
	o.Endpoint = strings.TrimRight(o.Endpoint, "/")
	return &driver{c: c, o: o}
}

type driver struct {
	c *http.Client
	o Options
}

func (d *driver) URL() string { return "gs://" + d.o.Bucket + "/" }

// Tails: ranges may count from the end.
func (d *driver) Tails() bool { return true }

// address is the URL of a call: below kind, "storage/v1" or "upload/storage/v1".
func (d *driver) address(kind, object string, q url.Values) string {
	a := d.o.Endpoint + "/" + kind + "/b/" + url.PathEscape(d.o.Bucket) + "/o"
	if object != "" {
		a += "/" + escape(object)
	}
	if d.o.UserProject != "" {
		q.Set("userProject", d.o.UserProject)
	}
	if len(q) > 0 {
		a += "?" + q.Encode()
	}
	return a
}

// escape encodes all that is not unreserved, slashes included.
func escape(object string) string {
	return strings.ReplaceAll(url.QueryEscape(object), "+", "%20")
}

// do sends one request; the caller closes the body of the answer.
func (d *driver) do(ctx context.Context, method, address string, header http.Header, body []byte) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, r)
	if err != nil {
		return nil, &blobstore.Fault{Local: true, Err: errors.New("no valid request can be made of endpoint, bucket and key")}
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", "sluice")
	resp, err := d.c.Do(req)
	if err != nil {
		var local *blobstore.Fault // of the source of tokens
		if errors.As(err, &local) {
			return nil, local
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, blobstore.NoAnswer(err)
	}
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusPermanentRedirect {
		defer resp.Body.Close()
		return nil, fault(resp)
	}
	return resp, nil
}

// fault reads status and reason of an error answer.
func fault(resp *http.Response) error {
	f := &blobstore.Fault{Status: resp.StatusCode}
	var e struct {
		Error struct {
			Errors []struct{ Reason string }
		}
	}
	if b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil && json.Unmarshal(b, &e) == nil && len(e.Error.Errors) > 0 {
		f.Code = e.Error.Errors[0].Reason
	}
	return f
}

// resource is the part of an object's description that is used.
type resource struct {
	Name       string            `json:"name,omitempty"`
	Size       string            `json:"size,omitempty"`
	Updated    time.Time         `json:"updated,omitzero"`
	Generation string            `json:"generation,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

func (r resource) attrs() (blobstore.Attrs, error) {
	size, err := strconv.ParseInt(r.Size, 10, 64)
	if err != nil {
		return blobstore.Attrs{}, blobstore.NoAnswer(fmt.Errorf("bad size %q of an object", r.Size))
	}
	return blobstore.Attrs{Key: r.Name, Size: size, ModTime: r.Updated, Version: r.Generation, ID: r.Metadata[metaID]}, nil
}

func (d *driver) Head(ctx context.Context, key string) (blobstore.Attrs, error) {
	resp, err := d.do(ctx, http.MethodGet, d.address("storage/v1", key, url.Values{"fields": {"name,size,updated,generation,metadata"}}), nil, nil)
	if err != nil {
		return blobstore.Attrs{}, err
	}
	defer resp.Body.Close()
	var r resource
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return blobstore.Attrs{}, blobstore.NoAnswer(err)
	}
	return r.attrs()
}

func (d *driver) Get(ctx context.Context, key string, off int64, buf []byte, version string) (int, blobstore.Attrs, error) {
	q := url.Values{"alt": {"media"}}
	if version != "" {
		q.Set("generation", version)
	}
	h := http.Header{"Range": {blobstore.RangeHeader(off, len(buf))}, "Accept-Encoding": {"gzip"}} // no transcoding
	resp, err := d.do(ctx, http.MethodGet, d.address("storage/v1", key, q), h, nil)
	if err != nil {
		return 0, blobstore.Attrs{}, err
	}
	defer resp.Body.Close()
	n, size, err := blobstore.ReadRange(resp.Body, buf, off, resp.Header.Get("Content-Range"), resp.ContentLength)
	a := blobstore.Attrs{Key: key, Size: size, Version: resp.Header.Get("X-Goog-Generation")}
	if t, terr := http.ParseTime(resp.Header.Get("Last-Modified")); terr == nil {
		a.ModTime = t
	}
	return n, a, err
}

// insert are the parameters of a new object.
func (d *driver) insert(kind string, o blobstore.PutOptions) url.Values {
	q := url.Values{"uploadType": {kind}}
	if o.IfAbsent {
		q.Set("ifGenerationMatch", "0")
	}
	if d.o.KMSKey != "" {
		q.Set("kmsKeyName", d.o.KMSKey)
	}
	return q
}

func describe(key string, o blobstore.PutOptions) ([]byte, error) {
	return json.Marshal(resource{Name: key, Metadata: map[string]string{metaID: o.ID}})
}

func (d *driver) Put(ctx context.Context, key string, data []byte, o blobstore.PutOptions) error {
	desc, err := describe(key, o)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, part := range []struct {
		kind string
		data []byte
	}{{"application/json; charset=UTF-8", desc}, {"application/octet-stream", data}} {
		p, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {part.kind}})
		if err == nil {
			_, err = p.Write(part.data)
		}
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	h := http.Header{"Content-Type": {"multipart/related; boundary=" + w.Boundary()}}
	resp, err := d.do(ctx, http.MethodPost, d.address("upload/storage/v1", "", d.insert("multipart", o)), h, b.Bytes())
	if err != nil {
		return err
	}
	return drain(resp)
}

// drain reads the rest of an answer, so that its connection is used again.
func drain(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return blobstore.NoAnswer(err)
	}
	return nil
}

func (d *driver) Delete(ctx context.Context, key string) error {
	resp, err := d.do(ctx, http.MethodDelete, d.address("storage/v1", key, url.Values{}), nil, nil)
	if err != nil {
		return err
	}
	return drain(resp)
}

func (d *driver) List(ctx context.Context, prefix, startAfter, token string) (blobstore.Page, error) {
	q := url.Values{"prefix": {prefix}, "fields": {"nextPageToken,items(name,size,updated,generation)"}, "maxResults": {"1000"}}
	if startAfter != "" {
		q.Set("startOffset", startAfter) // inclusive: whoever asked leaves the key itself out
	}
	if token != "" {
		q.Set("pageToken", token)
	}
	resp, err := d.do(ctx, http.MethodGet, d.address("storage/v1", "", q), nil, nil)
	if err != nil {
		return blobstore.Page{}, err
	}
	defer resp.Body.Close()
	var out struct {
		NextPageToken string
		Items         []resource
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return blobstore.Page{}, blobstore.NoAnswer(err)
	}
	p := blobstore.Page{Next: out.NextPageToken}
	for _, r := range out.Items {
		a, err := r.attrs()
		if err != nil {
			return blobstore.Page{}, err
		}
		p.Objects = append(p.Objects, a)
	}
	return p, nil
}
