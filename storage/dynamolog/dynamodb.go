package dynamolog

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/sluice-data/sluice/storage"
)

// Attributes of an entry, as Spark and delta-rs write them.
const (
	attrTablePath = "tablePath" // S, hash key
	attrFileName  = "fileName"  // S, range key
	attrTempPath  = "tempPath"  // S
	attrComplete  = "complete"  // S, "true" or "false"
	attrExpires   = "expireTime"
)

// NewTable is the DynamoDB table of that name; it must exist. The client may
// repeat calls: who holds an entry is told by its temporary path.
func NewTable(client *dynamodb.Client, name string) Table {
	return &table{client, name}
}

type table struct {
	client *dynamodb.Client
	name   string
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func (t *table) Get(ctx context.Context, tablePath, fileName string) (*Entry, error) {
	out, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &t.name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{attrTablePath: text(tablePath), attrFileName: text(fileName)}})
	if err != nil {
		return nil, t.fail("get", tablePath, err)
	}
	return t.entry(tablePath, out.Item)
}

func (t *table) Latest(ctx context.Context, tablePath string) (*Entry, error) {
	out, err := t.client.Query(ctx, &dynamodb.QueryInput{TableName: &t.name, ConsistentRead: aws.Bool(true),
		ScanIndexForward: aws.Bool(false), Limit: aws.Int32(1),
		KeyConditionExpression:    aws.String(attrTablePath + " = :path"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":path": text(tablePath)}})
	if err != nil {
		return nil, t.fail("query", tablePath, err)
	}
	if len(out.Items) == 0 {
		return nil, nil
	}
	return t.entry(tablePath, out.Items[0])
}

func item(e Entry) map[string]types.AttributeValue {
	m := map[string]types.AttributeValue{attrTablePath: text(e.TablePath), attrFileName: text(e.FileName),
		attrTempPath: text(e.TempPath), attrComplete: text(strconv.FormatBool(e.Complete))}
	if e.Expires != 0 {
		m[attrExpires] = &types.AttributeValueMemberN{Value: strconv.FormatInt(e.Expires, 10)}
	}
	return m
}

func (t *table) entry(tablePath string, m map[string]types.AttributeValue) (*Entry, error) {
	if len(m) == 0 {
		return nil, nil
	}
	str := func(name string) string {
		if v, ok := m[name].(*types.AttributeValueMemberS); ok {
			return v.Value
		}
		return ""
	}
	e := &Entry{TablePath: str(attrTablePath), FileName: str(attrFileName), TempPath: str(attrTempPath), Complete: str(attrComplete) == "true"}
	if v, ok := m[attrExpires].(*types.AttributeValueMemberN); ok {
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			return nil, t.fail("read", tablePath, fmt.Errorf("%s is no number", attrExpires))
		}
		e.Expires = n
	}
	if e.FileName == "" || e.TempPath == "" || str(attrComplete) != "true" && str(attrComplete) != "false" {
		return nil, t.fail("read", tablePath, fmt.Errorf("an entry without %s, %s or %s", attrFileName, attrTempPath, attrComplete))
	}
	return e, nil
}

func (t *table) Add(ctx context.Context, e Entry) error {
	_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &t.name, Item: item(e),
		ConditionExpression: aws.String("attribute_not_exists(" + attrFileName + ")")})
	return t.fail("add", e.TablePath, err)
}

func (t *table) Replace(ctx context.Context, e Entry) error {
	_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &t.name, Item: item(e)})
	return t.fail("complete", e.TablePath, err)
}

// fail gives an error of the client its class. What the service sent is cut to its code.
func (t *table) fail(op, tablePath string, err error) error {
	if err == nil {
		return nil
	}
	e := &storage.Error{Op: op + " entry", Root: "dynamodb:" + t.name + "/", Key: tablePath, Err: err}
	var code smithy.APIError
	var answer *awshttp.ResponseError
	answered := errors.As(err, &answer)
	if errors.As(err, &code) {
		e.Err = errors.New(code.ErrorCode())
		switch code.ErrorCode() {
		case "ConditionalCheckFailedException":
			e.Class = storage.ErrExists
			return e
		case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException":
			e.Class = storage.ErrPermission
			return e
		case "ResourceNotFoundException":
			e.Err = fmt.Errorf("there is no such DynamoDB table: create it with hash key %s and range key %s, both strings", attrTablePath, attrFileName)
			return e
		case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded":
			e.Class = storage.ErrTransient
			return e
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if !answered || answer.HTTPStatusCode() >= 500 {
		e.Class = storage.ErrTransient
	}
	return e
}
