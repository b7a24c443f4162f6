package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluice-data/sluice/storage/blobstore"
)

// upload is a resumable upload: parts follow each other, and the last one makes
// the object.
type upload struct {
	d       *driver
	session string // a URL that is itself the right to write: never shown
	sent    int64  // bytes that the store acknowledged
}

func (d *driver) Upload(ctx context.Context, key string, o blobstore.PutOptions) (blobstore.Upload, error) {
	desc, err := describe(key, o)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Content-Type": {"application/json; charset=UTF-8"}, "X-Upload-Content-Type": {"application/octet-stream"}}
	resp, err := d.do(ctx, http.MethodPost, d.address("upload/storage/v1", "", d.insert("resumable", o)), h, desc)
	if err != nil {
		return nil, err
	}
	if err := drain(resp); err != nil {
		return nil, err
	}
	u := &upload{d: d, session: resp.Header.Get("Location")}
	if u.session == "" {
		return nil, blobstore.NoAnswer(errors.New("the store began no upload"))
	}
	return u, nil
}

func (u *upload) Parallel() bool { return false }

// Part sends the bytes of a part. After a fault it is called again with the same
// bytes: the session says how many of them it has.
func (u *upload) Part(ctx context.Context, _ int, data []byte, last bool) error {
	total := "*"
	if last {
		total = fmt.Sprint(u.sent + int64(len(data)))
	}
	err := u.send(ctx, data, fmt.Sprintf("bytes %d-%d/%s", u.sent, u.sent+int64(len(data))-1, total))
	var f *blobstore.Fault
	if errors.As(err, &f) && (f.Status == 0 || f.Status >= 500) && ctx.Err() == nil {
		if done, serr := u.settled(ctx, u.sent+int64(len(data)), last); serr == nil && done {
			err = nil
		}
	}
	if err == nil {
		u.sent += int64(len(data))
	}
	return err
}

func (u *upload) send(ctx context.Context, data []byte, contentRange string) error {
	resp, err := u.d.do(ctx, http.MethodPut, u.session, http.Header{"Content-Range": {contentRange}}, data)
	if err != nil {
		return err
	}
	return drain(resp)
}

// settled asks the session whether all bytes up to end are there. An object that
// was made answers 200, one under way 308 with the range that it has.
func (u *upload) settled(ctx context.Context, end int64, last bool) (bool, error) {
	total := "*"
	if last {
		total = fmt.Sprint(end)
	}
	resp, err := u.d.do(ctx, http.MethodPut, u.session, http.Header{"Content-Range": {"bytes */" + total}}, []byte{})
	if err != nil {
		return false, err
	}
	if err := drain(resp); err != nil {
		return false, err
	}
	if resp.StatusCode < 300 {
		return true, nil
	}
	return !last && strings.HasSuffix(resp.Header.Get("Range"), fmt.Sprintf("-%d", end-1)), nil
}

// Complete has nothing to do: the last part made the object.
func (u *upload) Complete(context.Context, int) error { return nil }

// Abort ends the session; one that cannot be told so ends by itself within a week.
func (u *upload) Abort(ctx context.Context) {
	if resp, err := u.d.do(ctx, http.MethodDelete, u.session, nil, nil); err == nil {
		_ = drain(resp)
	}
}
