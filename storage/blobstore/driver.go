package blobstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// Attrs describe an object as a cloud knows it.
type Attrs struct {
	Key     string
	Size    int64 // bytes
	ModTime time.Time
	// Version is what a ranged read is pinned to: an ETag or a generation.
	Version string
	// ID is the write that made the object ([PutOptions].ID); empty for objects
	// of others. Listings do not give it.
	ID string
}

// PutOptions of a write.
type PutOptions struct {
	// IfAbsent makes the store refuse the write if the key exists.
	IfAbsent bool
	// ID is kept with the object as metadata.
	ID string
}

// Page is a part of a listing.
type Page struct {
	Objects []Attrs // in byte order of keys
	Next    string  // token of the next page; "" at the end
}

// Driver is one bucket. Keys are whole object names. Every failure is a [*Fault]
// or the error of ctx; no call is repeated by the driver or by what it uses,
// except Part, which may be.
type Driver interface {
	// URL is the bucket's URL as the user spelled its scheme, ending in "/".
	URL() string
	// Head describes one object.
	Head(ctx context.Context, key string) (Attrs, error)
	// Get fills buf from off on and says how many bytes came (fewer only at the
	// end of the object). version "" reads what there is. An offset at or behind
	// the end is a Fault with status 416.
	Get(ctx context.Context, key string, off int64, buf []byte, version string) (int, Attrs, error)
	// Put writes one object in one request.
	Put(ctx context.Context, key string, data []byte, o PutOptions) error
	// Upload begins an object in parts.
	Upload(ctx context.Context, key string, o PutOptions) (Upload, error)
	// List gives the objects with a prefix, from the first key after startAfter
	// or where the token of the page before says.
	List(ctx context.Context, prefix, startAfter, token string) (Page, error)
	// Delete removes an object; an absent one may be a 404.
	Delete(ctx context.Context, key string) error
}

// Upload is an object on its way. Complete or Abort ends it.
type Upload interface {
	// Part sends part n, counted from 0. Parts are sent in any order, several at
	// once if Parallel says so; last marks the one with the highest number.
	Part(ctx context.Context, n int, data []byte, last bool) error
	Parallel() bool
	// Complete makes the object of the given number of parts.
	Complete(ctx context.Context, parts int) error
	Abort(ctx context.Context)
}

// Fault is a request that failed: the answer of the store, or its absence.
type Fault struct {
	Status  int    // HTTP status; 0 if no answer came
	Code    string // the store's word for it, "SlowDown"
	Unsent  bool   // the request never reached the store
	Local   bool   // no request could be made: no credentials, no region
	Err     error  // the cause if no answer came
	Message string // said to the user beyond status and code; never a body
}

func (f *Fault) Error() string {
	var parts []string
	if f.Status != 0 {
		parts = append(parts, fmt.Sprintf("HTTP %d", f.Status))
	}
	if f.Code != "" {
		parts = append(parts, f.Code)
	}
	if f.Message != "" {
		parts = append(parts, f.Message)
	}
	s := strings.Join(parts, " ")
	if f.Err != nil {
		if s != "" {
			s += ": "
		}
		s += f.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// NoAnswer is the Fault of an error of the network: without the URL, which may
// hold a signature, and marked Unsent if no connection came about.
func NoAnswer(err error) *Fault {
	f := &Fault{Err: err}
	var dial *net.OpError
	var dns *net.DNSError
	if errors.As(err, &dial) && dial.Op == "dial" {
		f.Unsent, f.Err = true, dial
	}
	if errors.As(err, &dns) {
		f.Unsent, f.Err = true, dns
	}
	if u := (*url.Error)(nil); !f.Unsent && errors.As(err, &u) {
		f.Err = u.Err
	}
	return f
}

// throttle are codes that say that the store did not take the request up.
func (f *Fault) throttled() bool {
	switch f.Code {
	case "SlowDown", "ServerBusy", "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequests", "rateLimitExceeded", "userRateLimitExceeded":
		return true
	}
	return f.Status == http.StatusTooManyRequests
}

// exists says that the store refused a conditional write for the object that is there.
func (f *Fault) exists() bool {
	return f.Code == "BlobAlreadyExists" || f.Code == "PreconditionFailed" || f.Status == http.StatusPreconditionFailed
}

// contested is a refusal that does not say whether the object is there.
func (f *Fault) contested() bool {
	return f.Status == http.StatusConflict || f.Code == "InvalidBlockList" || f.Code == "ConditionalRequestConflict"
}

// class is the storage class of a failed read, and of a write that is certain
// not to have been applied.
func (f *Fault) class() error {
	switch {
	case f.Local:
		return nil
	case f.throttled() || f.Unsent:
		return storage.ErrTransient
	case f.Status == http.StatusNotFound:
		return storage.ErrNotFound
	case f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden:
		return storage.ErrPermission
	case f.Status == http.StatusInsufficientStorage || f.Code == "QuotaExceeded" || f.Code == "XMinioStorageFull":
		return storage.ErrNoSpace
	case f.Status == http.StatusPreconditionFailed || f.Status == http.StatusRequestedRangeNotSatisfiable:
		return nil
	case f.Status == 0 || f.Status == http.StatusRequestTimeout || f.Status >= 500 || f.Status < 400:
		return storage.ErrTransient
	}
	return nil
}

// writeClass adds that without a plain refusal a write may have been applied.
func (f *Fault) writeClass() error {
	if c := f.class(); !errors.Is(c, storage.ErrTransient) || f.throttled() || f.Unsent {
		return c
	}
	return storage.ErrAmbiguous
}

// retriable says whether a part of an upload, or a read, is worth another try.
func retriable(err error) bool {
	var f *Fault
	return errors.As(err, &f) && errors.Is(f.class(), storage.ErrTransient)
}
