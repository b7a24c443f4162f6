package source_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-data/sluice/apply/source"
)

// benchEvents is how many events of a format are decoded in one round.
const benchEvents = 100_000

// benchRow is the row of W7 (performance.md) as JSON, and as text where a format has
// only texts.
func benchRow(i int) string {
	return fmt.Sprintf(`{"id":%d,"customer_id":%d,"status":"shipped","city":"Zürich","amount":%d.25,"quantity":%d,"note":"note-%d","updated_at":"2024-05-17 08:30:15.%06d"}`,
		i%50_000, i*7, i%1000, i%50, i*31, i%1_000_000)
}

func benchText(i int) string {
	return fmt.Sprintf(`{"id":"%d","customer_id":"%d","status":"shipped","city":"Zürich","amount":"%d.25","quantity":"%d","note":"note-%d","updated_at":"2024-05-17 08:30:15.%06d"}`,
		i%50_000, i*7, i%1000, i%50, i*31, i%1_000_000)
}

const mysqlTypes = `{"id":"bigint","customer_id":"bigint","status":"varchar(20)","city":"varchar(20)","amount":"decimal(10,2)","quantity":"int","note":"text","updated_at":"datetime(6)"}`

// benchFormats writes the same update in each format.
var benchFormats = []struct {
	format  source.Format
	keys    []string
	options map[string]string
	event   func(buf *bytes.Buffer, i int)
}{
	{source.Debezium, []string{"id"}, nil, bareEvent},
	{source.DebeziumPlain, []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		row := benchRow(i)
		fmt.Fprintf(b, `%s,"__op":"u","__table":"orders","__lsn":%d,"__deleted":"false"}`+"\n", row[:len(row)-1], 178497976+i)
	}},
	{source.Rows, []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		row := benchRow(i)
		fmt.Fprintf(b, `%s,"op":"U","seq":%d}`+"\n", row[:len(row)-1], i)
	}},
	{"maxwell", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"database":"shop","table":"orders","type":"update","ts":1715934616,"xid":%d,"xoffset":3,"position":"binlog.000012:%d","data":%s,"old":{"status":"new"}}`+"\n", i, i, benchRow(i))
	}},
	{"canal", nil, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"id":%d,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":1715934615000,"ts":1715934615410,"sql":"","mysqlType":%s,"sqlType":{"id":-5},"data":[%s],"old":[{"status":"new"}]}`+"\n", i, mysqlTypes, benchText(i))
	}},
	{"ticdc", []string{"id"}, map[string]string{"schema": "infer"}, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"version":1,"database":"shop","table":"orders","tableID":96,"type":"UPDATE","commitTs":%d,"schemaVersion":4498,"data":%s,"old":%s}`+"\n", 449821963746803719+i, benchText(i), benchText(i))
	}},
	{"dms", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"data":%s,"metadata":{"timestamp":"2024-05-17T08:30:16.000001Z","record-type":"data","operation":"update","partition-key-type":"primary-key","schema-name":"shop","table-name":"orders","transaction-id":%d,"transaction-record-id":1,"commit-timestamp":"2024-05-17T08:30:15.000000Z"}}`+"\n", benchRow(i), i)
	}},
	{"goldengate", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"table":"SHOP.ORDERS","op_type":"U","op_ts":"2024-05-17 08:30:15.123456","current_ts":"2024-05-17T08:30:16.004000","pos":"%020d","before":{"id":%d,"status":"new"},"after":%s}`+"\n", i, i%50_000, benchRow(i))
	}},
	{"qlik", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"magic":"atMSG","type":"DT","message":{"data":%s,"beforeData":null,"headers":{"operation":"UPDATE","changeSequence":"20240517083015120000000000%09d","timestamp":"2024-05-17T08:30:15.120","columnMask":"FF"}}}`+"\n", benchText(i), i)
	}},
	{"airbyte", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		row := benchRow(i)
		fmt.Fprintf(b, `{"type":"RECORD","record":{"stream":"orders","data":%s,"_ab_cdc_lsn":%d,"_ab_cdc_updated_at":"2024-05-17T08:30:15Z","_ab_cdc_deleted_at":null},"emitted_at":1715934615123}}`+"\n", row[:len(row)-1], 44299448+i)
	}},
	{"fivetran", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		row := benchRow(i)
		fmt.Fprintf(b, `%s,"_fivetran_synced":"2024-05-17T08:31:00.%06dZ","_fivetran_deleted":false}`+"\n", row[:len(row)-1], i%1_000_000)
	}},
	{"singer", nil, nil, func(b *bytes.Buffer, i int) {
		if i == 0 {
			b.WriteString(`{"type":"SCHEMA","stream":"orders","schema":{"properties":{"id":{"type":"integer"},"amount":{"type":"number","multipleOf":0.01},"updated_at":{"type":"string","format":"date-time"}}},"key_properties":["id"]}` + "\n")
			return
		}
		fmt.Fprintf(b, `{"type":"RECORD","stream":"orders","version":17,"record":%s,"time_extracted":"2024-05-17T08:30:15Z"}`+"\n", benchRow(i))
	}},
	{"sqlserver-cdc", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		row := benchRow(i)
		fmt.Fprintf(b, `{"__$start_lsn":"0x0000003A0000%08X","__$end_lsn":null,"__$seqval":"0x0000003A0000%08X","__$operation":4,"__$update_mask":"0xFF",%s`+"\n", i, i, row[1:])
	}},
	{"wal2json", nil, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"action":"U","schema":"public","table":"orders","columns":[{"name":"id","type":"bigint","value":%d},{"name":"customer_id","type":"bigint","value":%d},{"name":"status","type":"text","value":"shipped"},{"name":"city","type":"text","value":"Zürich"},{"name":"amount","type":"numeric(10,2)","value":%d.25},{"name":"quantity","type":"integer","value":%d},{"name":"note","type":"text","value":"note-%d"},{"name":"updated_at","type":"timestamp without time zone","value":"2024-05-17 08:30:15.%06d"}],"identity":[{"name":"id","type":"bigint","value":%d}]}`+"\n",
			i%50_000, i*7, i%1000, i%50, i*31, i%1_000_000, i%50_000)
	}},
	{"mongodb", nil, nil, func(b *bytes.Buffer, i int) {
		row := benchRow(i)
		fmt.Fprintf(b, `{"_id":{"_data":"8266"},"operationType":"replace","clusterTime":{"$timestamp":{"t":1715934615,"i":%d}},"ns":{"db":"shop","coll":"orders"},"documentKey":{"_id":%d},"fullDocument":{"_id":%d,%s}`+"\n", i, i%50_000, i%50_000, row[1:])
	}},
	{"dynamodb", nil, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"eventID":"e","eventName":"MODIFY","eventSource":"aws:dynamodb","dynamodb":{"ApproximateCreationDateTime":1715934615,"Keys":{"id":{"N":"%d"}},"NewImage":{"id":{"N":"%d"},"customer_id":{"N":"%d"},"status":{"S":"shipped"},"city":{"S":"Zürich"},"amount":{"N":"%d.25"},"quantity":{"N":"%d"},"note":{"S":"note-%d"}},"SequenceNumber":"%021d","SizeBytes":61,"StreamViewType":"NEW_AND_OLD_IMAGES"}}`+"\n",
			i%50_000, i%50_000, i*7, i%1000, i%50, i*31, i)
	}},
	{"flink", []string{"id"}, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"data":%s,"op":"+I"}`+"\n", benchRow(i))
	}},
	{"aliyun", nil, nil, func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"payload":{"before":null,"after":{"dataColumn":%s},"op":"INSERT","sequenceId":"%d"},"schema":{"dataColumn":[{"name":"id","type":"LONG"},{"name":"amount","type":"DOUBLE"}],"primaryKey":["id"],"source":{"dbName":"shop","tableName":"orders"}},"version":"0.0.1"}`+"\n", benchRow(i), i)
	}},
}

// BenchmarkFormats decodes the same changes in each format from a file, as W7 does
// with Debezium's envelope. conformance/bench/formats.sh makes a table of it.
func BenchmarkFormats(b *testing.B) {
	for _, f := range benchFormats {
		b.Run(string(f.format), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "events.jsonl")
			var buf bytes.Buffer
			for i := range benchEvents {
				f.event(&buf, i)
			}
			if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
				b.Fatal(err)
			}
			benchSpec(b, source.Spec{Format: f.format, From: []string{path}, Keys: f.keys, Options: f.options}, path)
		})
	}
}
