package azurestore

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-data/sluice/storage/blobstore"
)

// Options of a container.
type Options struct {
	// URL is the container's URL as the user spelled it, ending in "/":
	// azblob://c/ or abfss://c@account.dfs.core.windows.net/.
	URL string
	// EncryptionScope names the scope that writes are encrypted with.
	EncryptionScope string
}

// metaID is the metadata key of blobstore.PutOptions.ID (a C# identifier, as Azure wants).
const metaID = "sluice_id"

// ClientOptions are those that a container client for [New] needs: no retries,
// and the given transport.
func ClientOptions(t policy.Transporter) azcore.ClientOptions {
	return azcore.ClientOptions{Transport: t, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{ApplicationID: "sluice"}}
}

// New makes the driver of a container; it does no I/O.
func New(c *container.Client, o Options) blobstore.Driver {
	d := &driver{c: c, o: o}
	if o.EncryptionScope != "" {
		d.scope = &blob.CPKScopeInfo{EncryptionScope: &o.EncryptionScope}
	}
	return d
}

type driver struct {
	c     *container.Client
	o     Options
	scope *blob.CPKScopeInfo
}

func (d *driver) URL() string { return d.o.URL }

func (d *driver) Head(ctx context.Context, key string) (blobstore.Attrs, error) {
	out, err := d.c.NewBlobClient(key).GetProperties(ctx, nil)
	if err != nil {
		return blobstore.Attrs{}, fault(err)
	}
	if isFolder(out.Metadata) {
		return blobstore.Attrs{}, &blobstore.Fault{Status: 404, Code: "BlobNotFound"}
	}
	return blobstore.Attrs{Key: key, Size: value(out.ContentLength), ModTime: value(out.LastModified), Version: string(value(out.ETag)), ID: meta(out.Metadata, metaID)}, nil
}

func (d *driver) Get(ctx context.Context, key string, off int64, buf []byte, version string) (int, blobstore.Attrs, error) {
	o := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: off, Count: int64(len(buf))}}
	if version != "" {
		o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(version))}}
	}
	out, err := d.c.NewBlobClient(key).DownloadStream(ctx, o)
	if err != nil {
		return 0, blobstore.Attrs{}, fault(err)
	}
	defer out.Body.Close()
	if isFolder(out.Metadata) {
		return 0, blobstore.Attrs{}, &blobstore.Fault{Status: 404, Code: "BlobNotFound"}
	}
	length := int64(-1)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	n, size, err := blobstore.ReadRange(out.Body, buf, off, value(out.ContentRange), length)
	return n, blobstore.Attrs{Key: key, Size: size, ModTime: value(out.LastModified), Version: string(value(out.ETag)), ID: meta(out.Metadata, metaID)}, err
}

func condition(o blobstore.PutOptions) *blob.AccessConditions {
	if !o.IfAbsent {
		return nil
	}
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}}
}

func (d *driver) Put(ctx context.Context, key string, data []byte, o blobstore.PutOptions) error {
	_, err := d.c.NewBlockBlobClient(key).Upload(ctx, body(data), &blockblob.UploadOptions{
		Metadata: map[string]*string{metaID: &o.ID}, AccessConditions: condition(o), CPKScopeInfo: d.scope})
	return fault(err)
}

func (d *driver) Delete(ctx context.Context, key string) error {
	_, err := d.c.NewBlobClient(key).Delete(ctx, nil)
	return fault(err)
}

// List reads the whole listing, since the order of pages is not the order of
// bytes where folders are real.
func (d *driver) List(ctx context.Context, prefix, startAfter, _ string) (blobstore.Page, error) {
	var p blobstore.Page
	pager := d.c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}})
	for pager.More() {
		out, err := pager.NextPage(ctx)
		if err != nil {
			return blobstore.Page{}, fault(err)
		}
		if out.Segment == nil {
			continue
		}
		for _, b := range out.Segment.BlobItems {
			if value(b.Name) <= startAfter || isFolder(b.Metadata) || b.Properties == nil || value(b.Properties.ResourceType) == "directory" {
				continue
			}
			p.Objects = append(p.Objects, blobstore.Attrs{Key: *b.Name, Size: value(b.Properties.ContentLength),
				ModTime: value(b.Properties.LastModified), Version: string(value(b.Properties.ETag))})
		}
	}
	slices.SortFunc(p.Objects, func(a, b blobstore.Attrs) int { return strings.Compare(a.Key, b.Key) })
	return p, nil
}

func (d *driver) Upload(_ context.Context, key string, o blobstore.PutOptions) (blobstore.Upload, error) {
	return &upload{d: d, c: d.c.NewBlockBlobClient(key), o: o}, nil
}

// upload stages blocks under names of its own, so that two uploads of one blob do
// not mix.
type upload struct {
	d *driver
	c *blockblob.Client
	o blobstore.PutOptions
}

func (u *upload) Parallel() bool { return true }

// block is the name of a block; all names of a blob have one length.
func (u *upload) block(n int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%.36s-%06d", u.o.ID, n))
}

func (u *upload) Part(ctx context.Context, n int, data []byte, _ bool) error {
	_, err := u.c.StageBlock(ctx, u.block(n), body(data), &blockblob.StageBlockOptions{CPKScopeInfo: u.d.scope})
	return fault(err)
}

func (u *upload) Complete(ctx context.Context, parts int) error {
	ids := make([]string, parts)
	for n := range ids {
		ids[n] = u.block(n)
	}
	_, err := u.c.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{
		Metadata: map[string]*string{metaID: &u.o.ID}, AccessConditions: condition(u.o), CPKScopeInfo: u.d.scope})
	return fault(err)
}

// Abort leaves the blocks to the store, which drops those that nobody commits
// within a week.
func (u *upload) Abort(context.Context) {}

func body(data []byte) io.ReadSeekCloser { return nopCloser{bytes.NewReader(data)} }

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// meta finds a metadata value; the case of its name is not kept by HTTP.
func meta(m map[string]*string, name string) string {
	for k, v := range m {
		if strings.EqualFold(k, name) {
			return value(v)
		}
	}
	return ""
}

func isFolder(m map[string]*string) bool { return strings.EqualFold(meta(m, "hdi_isfolder"), "true") }

// fault reads status and code; the message of the client is left out, since it
// holds what the store sent.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var re *azcore.ResponseError
	switch {
	case errors.As(err, &re):
		return &blobstore.Fault{Status: re.StatusCode, Code: re.ErrorCode}
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if credentials(err) {
		return &blobstore.Fault{Local: true, Err: errors.New("no credentials: set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or sign in (az login, workload identity, managed identity)")}
	}
	return blobstore.NoAnswer(err)
}

// credentials says whether the client found nothing to sign requests with.
func credentials(err error) bool {
	var never interface{ NonRetriable() }
	return errors.As(err, &never)
}
