package open

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/dynamolog"
	"github.com/sluice-data/sluice/storage/s3store"
)

// openS3 makes the driver of a bucket with the credentials of the AWS tools:
// AWS_* variables, AWS_PROFILE and the shared files, web identity, container and
// instance roles.
func (s settings) openS3(p place, b *bucket) error {
	cfg, err := s.aws(s.get("region"))
	if err != nil {
		return err
	}
	custom := cfg.BaseEndpoint != nil || s.getenv("AWS_ENDPOINT_URL_S3") != ""
	if e := s.get("endpoint"); e != "" {
		cfg.BaseEndpoint, custom = &e, true
	}
	if custom {
		// What speaks like S3 seldom knows the checksums that AWS adds by default.
		if s.getenv("AWS_REQUEST_CHECKSUM_CALCULATION") == "" {
			cfg.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		}
		if s.getenv("AWS_RESPONSE_CHECKSUM_VALIDATION") == "" {
			cfg.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}
	}
	o := s3store.Options{Scheme: p.scheme, Bucket: p.bucket, SSE: s.get("sse"), KMSKeyID: s.get("sse_kms_key_id"), PathStyle: custom}
	if o.SSE != "" && !slices.Contains([]string{"AES256", "aws:kms", "aws:kms:dsse"}, o.SSE) {
		return &Error{CodeSetting, "sse", fmt.Sprintf("%q is none of AES256, aws:kms, aws:kms:dsse", o.SSE)}
	}
	if o.KMSKeyID != "" && o.SSE == "" {
		o.SSE = "aws:kms"
	}
	if s.get("path_style") != "" {
		if o.PathStyle, err = s.on("path_style"); err != nil {
			return err
		}
	}
	if o.RequesterPays, err = s.on("requester_pays"); err != nil {
		return err
	}
	b.driver = s3store.New(cfg, o)
	return s.logStore(p, b)
}

// logStore puts Delta's DynamoDB log store before a bucket, if the user asks for
// it by option or by the variables that delta-rs reads.
func (s settings) logStore(p place, b *bucket) error {
	switch kind := s.get("log_store", "AWS_S3_LOCKING_PROVIDER"); kind {
	case "":
		return nil
	case "dynamodb":
	default:
		return &Error{CodeSetting, "log_store", fmt.Sprintf("%q is not dynamodb, the only one that there is", kind)}
	}
	region := s.get("dynamodb_region")
	if region == "" {
		region = s.get("region")
	}
	cfg, err := s.aws(region)
	if err != nil {
		return err
	}
	if e := s.get("dynamodb_endpoint", "AWS_ENDPOINT_URL_DYNAMODB"); e != "" {
		cfg.BaseEndpoint = &e
	}
	name := s.get("dynamodb_table", "DELTA_DYNAMO_TABLE_NAME")
	if name == "" {
		name = "delta_log"
	}
	table := dynamolog.NewTable(dynamodb.NewFromConfig(cfg), name)
	b.guard.External = true
	b.wrap = func(st storage.Store, prefix string) storage.Store {
		return dynamolog.New(st, p.scheme+"://"+p.bucket+"/"+prefix, table, dynamolog.Options{})
	}
	return nil
}

// aws loads the configuration that the AWS tools use.
func (s settings) aws(region string) (aws.Config, error) {
	setUp, err := s.transport()
	if err != nil {
		return aws.Config{}, err
	}
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(setUp))}
	if region != "" {
		load = append(load, config.WithRegion(region))
	}
	if profile := s.get("profile"); profile != "" {
		load = append(load, config.WithSharedConfigProfile(profile))
	}
	anonymous, err := s.on("anonymous")
	if err != nil {
		return aws.Config{}, err
	}
	if anonymous {
		load = append(load, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	// It reads files only: credentials are fetched when the first request is signed.
	cfg, err := config.LoadDefaultConfig(context.Background(), load...)
	if err != nil {
		return aws.Config{}, &Error{CodeSetting, "AWS configuration", "cannot be read (" + err.Error() + ")"}
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	return cfg, nil
}
