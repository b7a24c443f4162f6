package source

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/changes"
	"github.com/sluice-data/sluice/apply/source/rows"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// SampleSize is how many records detection looks at.
const SampleSize = 100

// Detect tells the format of a sample (cdc-formats 1), and says why. It is an
// error (FORMAT_UNCLEAR) if fewer than 95 % of the data records are of one
// format, and UNSUPPORTED_FORMAT if they are of one that is not read yet.
func Detect(sample []*event.Record) (Format, string, error) {
	votes := map[string]int{}
	data := 0
	for _, r := range sample {
		switch name := fingerprint(r); name {
		case "control":
		case "":
			votes["rows"]++
			data++
		default:
			votes[name]++
			data++
		}
	}
	if data == 0 {
		return "", "", &Error{Code: "FORMAT_UNCLEAR", Reason: fmt.Sprintf("none of the first %d records carries data; name the format with --format", len(sample))}
	}
	names := make([]string, 0, len(votes))
	for n := range votes {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if votes[a] != votes[b] {
			return votes[b] - votes[a]
		}
		return strings.Compare(a, b)
	})
	best := names[0]
	if votes[best]*100 < data*95 {
		var parts []string
		for _, n := range names {
			parts = append(parts, fmt.Sprintf("%d %s", votes[n], n))
		}
		return "", "", &Error{Code: "FORMAT_UNCLEAR", Reason: fmt.Sprintf("of %d records %s; name the format with --format", data, strings.Join(parts, ", "))}
	}
	explain := fmt.Sprintf("%d of %d sampled records are %s", votes[best], data, best)
	sign := signs[best]
	if r := sample[0]; r.Columns != nil && changes.FileFormat(r.Source) == best {
		sign = "by the names of their files"
	}
	if sign != "" {
		explain += " (" + sign + ")"
	}
	switch best {
	case "debezium":
		return Debezium, explain, nil
	case "debezium-unwrapped":
		return DebeziumPlain, explain, nil
	case "rows":
		return Rows, explain, nil
	case "unreadable":
		return "", "", &Error{Code: "FORMAT_UNCLEAR", Reason: fmt.Sprintf("%d of %d records are no JSON objects; name the format with --format", votes[best], data)}
	}
	if slices.Contains(changes.Names(), best) {
		return Format(best), explain, nil
	}
	if best == framedAvro {
		return "", "", &Error{Code: "UNSUPPORTED_FORMAT", Reason: explain + ": name the registry with --option registry=URL"}
	}
	return "", "", &Error{Code: "UNSUPPORTED_FORMAT", Reason: explain + ", which is not read yet"}
}

// signs say what the records of a format are known by.
var signs = map[string]string{
	"debezium": "op and source block", "debezium-unwrapped": "__deleted or __op in a flat row", "rows": "no change format recognised",
	"maxwell": "database, table, type and a data object", "canal": "isDdl, type and mysqlType", "ticdc": "commitTs with version and type, or frames of the open protocol",
	"dms": "metadata with a record-type", "goldengate": "op_type, op_ts and pos", "qlik": "change sequences in headers", "airbyte": "_ab_cdc_ or _airbyte_ columns, or protocol lines",
	"fivetran": "_fivetran_ columns, or operations on tables", "singer": "_sdc_ columns, or messages of a stream", "sqlserver-cdc": "__$operation and __$start_lsn",
	"wal2json": "change lists, or actions", "mongodb": "operationType and ns", "dynamodb": "dynamodb records, or lines of an export", "flink": "op +I, -U, +U or -D beside data",
	"aliyun": "payload beside a schema of dataColumns",
}

// framedAvro is the print of a record with a registry's framing.
const framedAvro = "Avro with a registry"

// fingerprint names the format of one record: "" for plain rows, "control" for
// records that carry no data, "unreadable" for what is no object.
func fingerprint(r *event.Record) string {
	switch {
	case r.Columns != nil:
		return columnsPrint(r)
	case r.Fault != "":
		return "unreadable"
	case changes.IsOpenProtocol(r.Key):
		return "ticdc"
	case r.Value == nil:
		return "control"
	case len(r.Value) > 5 && (r.Value[0] == 0 || r.Value[0] == 1 || r.Value[0] == 3):
		return framedAvro
	}
	value := bytes.TrimPrefix(r.Value, []byte("\ufeff"))
	fields, end, err := wire.ParseObject(value, 0, nil)
	if err != nil || wire.End(value, end) != nil {
		return "unreadable"
	}
	o := object(fields)
	if payload := o["payload"]; len(o) == 2 && o.has("schema") && payload.Kind == wire.Object {
		inner, _, err := wire.ParseObject(payload.Raw, 0, nil)
		if err != nil {
			return "unreadable"
		}
		o = object(inner)
	} else if len(o) == 2 && o.has("schema") && payload.Kind == wire.Null {
		return "control"
	} else if len(o) == 1 && payload.Kind == wire.Object {
		if in := o.inner("payload"); in.has("op") && in.kind("source", wire.Object) {
			o = in
		}
	}
	return o.print(r.Topic)
}

type members map[string]wire.Token

func object(fields []wire.Field) members {
	o := members{}
	for _, f := range fields {
		o[string(f.Key.Text(nil))] = f.Val
	}
	return o
}

func (o members) has(names ...string) bool {
	for _, n := range names {
		if _, ok := o[n]; !ok {
			return false
		}
	}
	return true
}

// oneOf tells whether a member is a string out of a list.
func (o members) oneOf(name string, list ...string) bool {
	for _, want := range list {
		if o[name].Is(want) {
			return true
		}
	}
	return false
}

func (o members) prefix(p string) bool {
	for name := range o {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// inner are the members of an object.
func (o members) inner(name string) members {
	fields, _, err := wire.ParseObject(o[name].Raw, 0, nil)
	if err != nil {
		return nil
	}
	return object(fields)
}

// tablesOf tells whether a member of one of the names holds tables: an object of
// lists or definitions, or a list of names.
func (o members) tablesOf(names ...string) bool {
	for _, n := range names {
		switch t := o[n]; t.Kind {
		case wire.Array:
			return n == "truncate_before"
		case wire.Object:
			for _, inner := range o.inner(n) {
				if inner.Kind != wire.Array && n != "create_table" || inner.Kind < wire.Object {
					return false
				}
			}
			return true
		}
	}
	return false
}

func (o members) kind(name string, k wire.Kind) bool { return o[name].Kind == k }

// print applies the fingerprints in the order of the table.
func (o members) print(topic string) string {
	switch {
	case o.has("op") && o.kind("source", wire.Object):
		if o.oneOf("op", "m") {
			return "control"
		}
		return "debezium"
	case o.has("before", "after") && o.oneOf("op", "c", "u", "d", "r") && !o.has("source", "data"):
		return "debezium"
	case o.oneOf("status", "BEGIN", "END") && o.has("id", "event_count"),
		o.has("ddl") && o.kind("source", wire.Object),
		strings.HasPrefix(topic, "__debezium-heartbeat"),
		len(o) == 1 && o.has("ts_ms"):
		return "control"
	case o.has("specversion", "iodebeziumop"):
		return "debezium"
	case o.has("__deleted") || o.has("__op"):
		return "debezium-unwrapped"
	case o.oneOf("type", "table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop"):
		return "control"
	case o.has("database", "table", "type", "data") && o.kind("data", wire.Object) && !o.has("isDdl") && !o.has("commitTs"):
		return "maxwell"
	case o.has("isDdl", "type", "mysqlType"):
		return "canal"
	case o.has("version", "type", "commitTs"):
		return "ticdc"
	case o.kind("metadata", wire.Object) && bytes.Contains(o["metadata"].Raw, []byte(`"record-type"`)):
		return "dms"
	case o.has("op_type", "op_ts", "pos", "table"):
		return "goldengate"
	case o.has("header__change_seq"), o.has("headers", "data") && bytes.Contains(o["headers"].Raw, []byte(`"changeSequence"`)):
		return "qlik"
	case o.prefix("_fivetran_"), len(o) == 1 && o.tablesOf("upsert", "update", "replace", "insert", "delete", "soft_delete", "create_table", "truncate_before"):
		return "fivetran"
	case o.has("payload", "schema", "version") && o.inner("schema").has("dataColumn", "source"):
		return "aliyun"
	case o.prefix("_ab_cdc_"), o.prefix("_airbyte_"), o.oneOf("type", "RECORD") && o.kind("record", wire.Object) && o.inner("record").has("stream", "data"),
		o.oneOf("type", "STATE") && o.has("state"), o.oneOf("type", "TRACE", "LOG", "CATALOG", "SPEC", "CONNECTION_STATUS") && o.has(strings.ToLower(string(o["type"].Raw))):
		return "airbyte"
	case o.prefix("_sdc_"), o.oneOf("type", "RECORD", "SCHEMA", "ACTIVATE_VERSION") && o.has("stream"), o.oneOf("type", "STATE") && o.has("value"):
		return "singer"
	case o.has("__$operation", "__$start_lsn"):
		return "sqlserver-cdc"
	case o.kind("change", wire.Array) && o["change"].Raw[1] == ']' && !o.has("nextlsn"):
		return "control"
	case o.kind("change", wire.Array), o.has("action") && o.oneOf("action", "B", "I", "U", "D", "C", "T", "M"):
		return "wal2json"
	case o.has("operationType") && (o.has("ns") || o.has("_id", "clusterTime")):
		return "mongodb"
	case o.has("eventName", "dynamodb"), o.kind("Records", wire.Array) && bytes.Contains(o["Records"].Raw, []byte(`"dynamodb"`)),
		len(o) == 1 && o.kind("Item", wire.Object), o.kind("Metadata", wire.Object) && o.has("Keys"):
		return "dynamodb"
	case o.oneOf("op", "+I", "-U", "+U", "-D") && o.kind("data", wire.Object):
		return "flink"
	case o.has("_change_type", "_commit_version"):
		return "delta change feed"
	}
	return ""
}

// columnsPrint looks at the names of columns.
func columnsPrint(r *event.Record) string {
	o := members{}
	for _, f := range r.Columns.Schema().Fields() {
		o[f.Name] = wire.Token{Kind: wire.String}
	}
	if name := changes.FileFormat(r.Source); name != "" {
		return name
	}
	switch {
	case o.has("_change_type", "_commit_version"):
		return "delta change feed"
	case o.has("__$operation", "__$start_lsn"):
		return "sqlserver-cdc"
	case o.has("header__change_seq"):
		return "qlik"
	case o.prefix("_ab_cdc_"), o.prefix("_airbyte_"):
		return "airbyte"
	case o.prefix("_fivetran_"):
		return "fivetran"
	case o.prefix("_sdc_"):
		return "singer"
	}
	return ""
}

// opColumn is the column of an operation's name whose sampled values are all
// operations; "" if there is none.
func opColumn(sample []*event.Record) string {
	good, bad := map[string]int{}, map[string]int{}
	vote := func(name, word string) {
		if word == "" {
			return
		}
		if rows.IsOpWord(word) {
			good[name]++
		} else {
			bad[name]++
		}
	}
	for _, r := range sample {
		if r.Columns != nil {
			for c, f := range r.Columns.Schema().Fields() {
				col, ok := r.Columns.Column(c).(*array.String)
				if !ok || !rows.IsOpName(f.Name) {
					continue
				}
				for i := range min(col.Len(), 1000) {
					if col.IsValid(i) {
						vote(f.Name, col.Value(i))
					}
				}
			}
			continue
		}
		fields, _, err := wire.ParseObject(r.Value, 0, nil)
		if err != nil {
			continue
		}
		for _, f := range fields {
			if name := string(f.Key.Text(nil)); rows.IsOpName(name) && f.Val.Kind == wire.String {
				vote(name, string(f.Val.Text(nil)))
			}
		}
	}
	best := ""
	for name, n := range good {
		if n >= bad[name] && (best == "" || n > good[best] || n == good[best] && name < best) {
			best = name
		}
	}
	return best
}
