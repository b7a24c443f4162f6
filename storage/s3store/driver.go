package s3store

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/sluice-data/sluice/storage/blobstore"
)

// Options of a bucket.
type Options struct {
	// Scheme as the user spelled it: "s3" or "s3a".
	Scheme string
	Bucket string
	// PathStyle puts the bucket into the path of requests, not into the host name.
	PathStyle bool
	// RequesterPays says that the caller pays for its requests.
	RequesterPays bool
	// SSE is "AES256", "aws:kms" or "aws:kms:dsse"; "" leaves it to the bucket.
	SSE string
	// KMSKeyID is the key of aws:kms; "" takes the bucket's.
	KMSKeyID string
}

// metaID is the metadata key of blobstore.PutOptions.ID.
const metaID = "sluice-id"

// New makes the driver of a bucket; it does no I/O.
func New(cfg aws.Config, o Options) blobstore.Driver {
	d := &driver{o: o}
	d.client = s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.UsePathStyle = o.PathStyle
		so.Retryer = aws.NopRetryer{}
	})
	if o.RequesterPays {
		d.payer = types.RequestPayerRequester
	}
	if o.SSE != "" {
		d.sse = types.ServerSideEncryption(o.SSE)
	}
	if o.KMSKeyID != "" {
		d.kmsKey = &o.KMSKeyID
	}
	return d
}

type driver struct {
	client *s3.Client
	o      Options
	payer  types.RequestPayer
	sse    types.ServerSideEncryption
	kmsKey *string
}

func (d *driver) URL() string { return d.o.Scheme + "://" + d.o.Bucket + "/" }

// Tails: S3 knows ranges that count from the end.
func (d *driver) Tails() bool { return true }

func (d *driver) Head(ctx context.Context, key string) (blobstore.Attrs, error) {
	out, err := d.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &d.o.Bucket, Key: &key, RequestPayer: d.payer})
	if err != nil {
		return blobstore.Attrs{}, fault(err)
	}
	return blobstore.Attrs{Key: key, Size: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified),
		Version: aws.ToString(out.ETag), ID: out.Metadata[metaID]}, nil
}

func (d *driver) Get(ctx context.Context, key string, off int64, buf []byte, version string) (int, blobstore.Attrs, error) {
	in := &s3.GetObjectInput{Bucket: &d.o.Bucket, Key: &key, RequestPayer: d.payer, Range: aws.String(blobstore.RangeHeader(off, len(buf)))}
	if version != "" {
		in.IfMatch = &version
	}
	out, err := d.client.GetObject(ctx, in)
	if err != nil {
		return 0, blobstore.Attrs{}, fault(err)
	}
	defer out.Body.Close()
	a := blobstore.Attrs{Key: key, ModTime: aws.ToTime(out.LastModified), Version: aws.ToString(out.ETag), ID: out.Metadata[metaID]}
	length := int64(-1)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	n, size, err := blobstore.ReadRange(out.Body, buf, off, aws.ToString(out.ContentRange), length)
	a.Size = size
	return n, a, err
}

func (d *driver) Put(ctx context.Context, key string, data []byte, o blobstore.PutOptions) error {
	in := &s3.PutObjectInput{Bucket: &d.o.Bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		RequestPayer: d.payer, ServerSideEncryption: d.sse, SSEKMSKeyId: d.kmsKey, Metadata: map[string]string{metaID: o.ID}}
	if o.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	_, err := d.client.PutObject(ctx, in)
	return fault(err)
}

func (d *driver) Delete(ctx context.Context, key string) error {
	_, err := d.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &d.o.Bucket, Key: &key, RequestPayer: d.payer})
	return fault(err)
}

func (d *driver) List(ctx context.Context, prefix, startAfter, token string) (blobstore.Page, error) {
	in := &s3.ListObjectsV2Input{Bucket: &d.o.Bucket, Prefix: &prefix, RequestPayer: d.payer}
	if token != "" {
		in.ContinuationToken = &token
	} else if startAfter != "" {
		in.StartAfter = &startAfter
	}
	out, err := d.client.ListObjectsV2(ctx, in)
	if err != nil {
		return blobstore.Page{}, fault(err)
	}
	p := blobstore.Page{Objects: make([]blobstore.Attrs, len(out.Contents))}
	for i, o := range out.Contents {
		p.Objects[i] = blobstore.Attrs{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified), Version: aws.ToString(o.ETag)}
	}
	if aws.ToBool(out.IsTruncated) {
		p.Next = aws.ToString(out.NextContinuationToken)
	}
	return p, nil
}

func (d *driver) Upload(ctx context.Context, key string, o blobstore.PutOptions) (blobstore.Upload, error) {
	out, err := d.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &d.o.Bucket, Key: &key,
		RequestPayer: d.payer, ServerSideEncryption: d.sse, SSEKMSKeyId: d.kmsKey, Metadata: map[string]string{metaID: o.ID}})
	if err != nil {
		return nil, fault(err)
	}
	return &upload{d: d, key: key, id: out.UploadId, ifAbsent: o.IfAbsent}, nil
}

type upload struct {
	d        *driver
	key      string
	id       *string
	ifAbsent bool

	mu    sync.Mutex
	parts []types.CompletedPart
}

func (u *upload) Parallel() bool { return true }

func (u *upload) Part(ctx context.Context, n int, data []byte, _ bool) error {
	out, err := u.d.client.UploadPart(ctx, &s3.UploadPartInput{Bucket: &u.d.o.Bucket, Key: &u.key, UploadId: u.id, PartNumber: aws.Int32(int32(n + 1)),
		Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))), RequestPayer: u.d.payer})
	if err != nil {
		return fault(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.parts) <= n {
		u.parts = append(u.parts, types.CompletedPart{})
	}
	u.parts[n] = types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(int32(n + 1)),
		ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME, ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256}
	return nil
}

func (u *upload) Complete(ctx context.Context, _ int) error {
	in := &s3.CompleteMultipartUploadInput{Bucket: &u.d.o.Bucket, Key: &u.key, UploadId: u.id, RequestPayer: u.d.payer,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts}}
	if u.ifAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	_, err := u.d.client.CompleteMultipartUpload(ctx, in)
	return fault(err)
}

// Abort frees the parts. What it cannot free stays until the bucket's lifecycle
// rule for incomplete uploads takes it.
func (u *upload) Abort(ctx context.Context) {
	_, _ = u.d.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.d.o.Bucket, Key: &u.key, UploadId: u.id, RequestPayer: u.d.payer})
}

// fault reads status and code of what the client said.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var re *awshttp.ResponseError
	var ae smithy.APIError
	f := &blobstore.Fault{}
	if errors.As(err, &ae) {
		f.Code = ae.ErrorCode()
	}
	var send *smithyhttp.RequestSendError
	switch {
	case errors.As(err, &re) && re.HTTPStatusCode() != 0: // it also wraps requests that got no answer
		f.Status = re.HTTPStatusCode()
		return f
	case errors.As(err, &send):
		return blobstore.NoAnswer(send.Err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	f.Local, f.Err = true, cause(err)
	return f
}

// cause drops the layers that only repeat the operation.
func cause(err error) error {
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
