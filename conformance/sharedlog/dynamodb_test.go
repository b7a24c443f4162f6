package sharedlog_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/dynamolog"
	"github.com/sluice-data/sluice/storage/open"
)

// dynamo is versitygw with dynalite beside it, set up as engines share them.
func dynamo(t *testing.T) (*stores.Server, *dynamodb.Client) {
	t.Helper()
	s, address := stores.S3(t), stores.DynamoDB(t)
	s.Setenv(t)
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", address)
	t.Setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: &address,
		Credentials: credentials.NewStaticCredentialsProvider("sluice", stores.Secret, "")})
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	attr := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{TableName: aws.String("delta_log"),
		AttributeDefinitions:  []types.AttributeDefinition{attr("tablePath"), attr("fileName")},
		KeySchema:             []types.KeySchemaElement{key("tablePath", types.KeyTypeHash), key("fileName", types.KeyTypeRange)},
		ProvisionedThroughput: &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(5), WriteCapacityUnits: aws.Int64(5)}})
	if err != nil {
		t.Fatal(err)
	}
	for { // the only way to learn that it is made
		d, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("delta_log")})
		if err != nil {
			t.Fatal(err)
		}
		if d.Table.TableStatus == types.TableStatusActive {
			return s, client
		}
	}
}

// items are the entries of a table, by file name, as another engine sees them.
func items(t *testing.T, c *dynamodb.Client, table string) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	got, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("delta_log"), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range got.Items {
		e := map[string]string{}
		for k, v := range item {
			switch v := v.(type) {
			case *types.AttributeValueMemberS:
				e[k] = v.Value
			case *types.AttributeValueMemberN:
				e[k] = "N " + v.Value
			}
		}
		if e["tablePath"] == table {
			out[e["fileName"]] = e
		}
	}
	return out
}

func openStore(t *testing.T, location string, o open.Options) storage.Store {
	t.Helper()
	s, err := open.Store(location, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ids(t *testing.T, text string) []int {
	t.Helper()
	var out []int
	for _, line := range stores.Sorted(text) {
		var row struct{ ID int }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, row.ID)
	}
	slices.Sort(out)
	return out
}

// TestDynamoDB: processes of sluice commit through one DynamoDB table at the same
// time, while delta-rs, which knows of no such table since 1.6, commits past it by
// conditional writes. Every acknowledged row is there once, and every version of
// ours is in the table, complete, as Delta's log store writes it.
func TestDynamoDB(t *testing.T) {
	x := stores.NewCommand(t)
	s, client := dynamo(t)
	rs := engines.DeltaRS(t)
	for _, past := range []int{0, 4} { // appends by delta-rs
		t.Run(fmt.Sprintf("W-126 racing writers and %d commits past the table", past), func(t *testing.T) {
			x := x.For(t)
			table := s.Bucket(t) + "/lake/shared"
			x.Run("create", table, "--schema", "id BIGINT, who STRING")
			var wg sync.WaitGroup
			defer wg.Wait()
			var want []int
			for w := range 4 {
				for n := range 4 {
					want = append(want, 100*w+n)
				}
				wg.Go(func() {
					for n := range 4 {
						file := stores.WriteFile(t, "rows.jsonl", fmt.Sprintf(`{"id":%d,"who":"sluice"}`, 100*w+n))
						if _, e, err := x.Try("append", table, "--from", file); err != nil {
							t.Errorf("append: %v\n%s", err, e)
						}
					}
				})
			}
			for n := range past {
				rs.Append(t, table, fmt.Sprintf(`{"id":%d,"who":"delta-rs"}`, 1000+n))
				want = append(want, 1000+n)
			}
			wg.Wait()
			if got := ids(t, x.Run("cat", table)); !slices.Equal(got, want) {
				t.Fatalf("rows %v, want %v", got, want)
			}
			if got := rs.Rows(t, table); len(got) != len(want) {
				t.Fatalf("delta-rs reads %d rows, want %d", len(got), len(want))
			}
			entries := items(t, client, table)
			if len(entries) < 17 {
				t.Fatalf("only %d entries: %v", len(entries), slices.Sorted(maps.Keys(entries)))
			}
			for name, e := range entries {
				if e["complete"] != "true" || !strings.HasPrefix(e["expireTime"], "N ") || !strings.HasPrefix(e["tempPath"], ".tmp/"+name+".") {
					t.Errorf("entry %v", e)
				}
			}
		})
	}
	for _, step := range []string{"before the copy", "before the acknowledgement"} {
		for _, next := range []string{"read", "write"} {
			t.Run("W-126 a commit that its writer left "+step+" is ended by a "+next, func(t *testing.T) {
				x := x.For(t)
				table := s.Bucket(t) + "/half"
				x.Run("create", table, "--schema", "id BIGINT, who STRING")
				x.Run("append", table, "--from", stores.WriteFile(t, "rows.jsonl", `{"id":1,"who":"half"}`))
				half(t, client, table, step)
				want := []int{1}
				if next == "write" {
					x.Run("append", table, "--from", stores.WriteFile(t, "more.jsonl", `{"id":2}`))
					want = append(want, 2)
				}
				if got := ids(t, x.Run("cat", table)); !slices.Equal(got, want) {
					t.Errorf("rows %v, want %v", got, want)
				}
				if got := rs.Rows(t, table); len(got) != len(want) {
					t.Errorf("delta-rs reads %v", got)
				}
				if e := items(t, client, table)["00000000000000000001.json"]; e["complete"] != "true" {
					t.Errorf("entry %v", e)
				}
			})
		}
	}
}

// half takes version 1 of a table back to what a writer leaves that died before a
// step of its commit.
func half(t *testing.T, client *dynamodb.Client, table, step string) {
	t.Helper()
	name := "00000000000000000001.json"
	plain := openStore(t, table, open.Options{Settings: map[string]string{"log_store": ""}})
	data, err := storage.ReadAll(t.Context(), plain, "_delta_log/"+name)
	if err != nil {
		t.Fatal(err)
	}
	e := dynamolog.Entry{TablePath: table, FileName: name, TempPath: ".tmp/" + name + ".dead"}
	if err := plain.Put(t.Context(), "_delta_log/"+e.TempPath, data); err != nil {
		t.Fatal(err)
	}
	if step == "before the copy" {
		for _, key := range []string{name, "00000000000000000001.crc"} {
			if err := plain.Delete(t.Context(), "_delta_log/"+key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := dynamolog.NewTable(client, "delta_log").Replace(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}
