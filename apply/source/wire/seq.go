package wire

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// SeqKind is a format's sequence type; NoSeq for formats without.
type SeqKind uint8

// The sequence tuples (cdc-formats F1, 0.3).
const (
	NoSeq SeqKind = iota
	SeqPostgres
	SeqMySQL
	SeqSQLServer
	SeqOracle
	SeqMongo
	SeqTransport
	// SeqMessage is the transport with the row's index in the message.
	SeqMessage
	SeqMaxwell
	SeqTiDB
	SeqDMS
	SeqGoldenGate
	SeqQlik
	SeqAirbyte
	SeqAirbyteMySQL
	SeqSinger
	SeqStitch
	SeqFivetran
	SeqSQLServerTable
	SeqWAL
	SeqCluster
	SeqDynamoDB
	SeqDynamoDBExport
	SeqAliyun
	// SeqDMSFile orders the rows of DMS files: full load, then by time.
	SeqDMSFile
	// SeqTiDBFile is TiDB's commit with deletes before upserts, for files.
	SeqTiDBFile
	// SeqDynamoDBCreated orders records of Kinesis, which have no sequence number.
	SeqDynamoDBCreated
)

// Seq is one sequence value; the parts are used in the order of the kind's fields.
type Seq struct {
	Kind  SeqKind
	Epoch int32
	N     [4]int64
	S     [2][]byte
	D     [2]decimal128.Num
}

// Type is the struct of the kind; nil for NoSeq.
func (k SeqKind) Type() *schema.Struct {
	f := func(name string, t schema.Type) schema.Field { return schema.Field{Name: name, Type: t} }
	epoch := f("epoch", schema.Integer)
	scn := schema.Decimal{Precision: 38}
	switch k {
	case SeqPostgres:
		return fields(epoch, f("pos", schema.Long), f("phase", schema.Integer), f("lsn", schema.Long))
	case SeqMySQL:
		return fields(epoch, f("file", schema.Long), f("pos", schema.Long), f("phase", schema.Integer), f("row", schema.Long))
	case SeqSQLServer:
		return fields(epoch, f("commit_lsn", schema.String), f("change_lsn", schema.String), f("event_serial_no", schema.Long))
	case SeqOracle:
		return fields(epoch, f("commit_scn", scn), f("scn", scn), f("ssn", schema.Long), f("offset", schema.Long))
	case SeqMongo:
		return fields(epoch, f("ts_ms", schema.Long), f("ord", schema.Long), f("offset", schema.Long))
	case SeqTransport:
		return fields(epoch, f("offset", schema.Long))
	case SeqMessage:
		return fields(epoch, f("offset", schema.Long), f("index", schema.Long))
	case SeqMaxwell:
		return fields(epoch, f("file", schema.Long), f("pos", schema.Long), f("xoffset", schema.Long), f("offset", schema.Long))
	case SeqTiDB:
		return fields(epoch, f("commit_ts", schema.Long), f("offset", schema.Long), f("index", schema.Long))
	case SeqDMS:
		return fields(epoch, f("commit_timestamp", schema.Long), f("transaction_id", schema.Long), f("record_id", schema.Long), f("offset", schema.Long))
	case SeqGoldenGate:
		return fields(epoch, f("pos", schema.Decimal{Precision: 38}), f("offset", schema.Long))
	case SeqQlik:
		return fields(epoch, f("change_seq", schema.Decimal{Precision: 38}), f("rank", schema.Integer))
	case SeqAirbyte:
		return fields(epoch, f("generation", schema.Long), f("lsn", schema.Decimal{Precision: 38}), f("extracted_at", schema.Long), f("offset", schema.Long))
	case SeqAirbyteMySQL:
		return fields(epoch, f("generation", schema.Long), f("file", schema.Long), f("pos", schema.Long), f("offset", schema.Long))
	case SeqSinger:
		return fields(epoch, f("version", schema.Long), f("offset", schema.Long))
	case SeqStitch:
		return fields(epoch, f("version", schema.Long), f("sequence", schema.Long))
	case SeqFivetran:
		return fields(epoch, f("synced", schema.Long), f("offset", schema.Long))
	case SeqSQLServerTable:
		return fields(epoch, f("start_lsn", schema.String), f("command_id", schema.Long), f("seqval", schema.String), f("operation", schema.Integer))
	case SeqWAL:
		return fields(epoch, f("commit_lsn", schema.Long), f("index", schema.Long))
	case SeqCluster:
		return fields(epoch, f("t", schema.Long), f("i", schema.Long), f("index", schema.Long), f("offset", schema.Long))
	case SeqDynamoDB:
		return fields(epoch, f("sequence_number", schema.String))
	case SeqAliyun:
		return fields(epoch, f("sequence_id", schema.Long), f("offset", schema.Long))
	case SeqDMSFile:
		return fields(epoch, f("phase", schema.Integer), f("time", schema.Long), f("file", schema.Long), f("row", schema.Long))
	case SeqTiDBFile:
		return fields(epoch, f("commit_ts", schema.Long), f("rank", schema.Integer))
	case SeqDynamoDBCreated:
		return fields(epoch, f("created_micros", schema.Long), f("offset", schema.Long), f("index", schema.Long))
	case SeqDynamoDBExport:
		return fields(epoch, f("write_micros", schema.Long))
	}
	return nil
}

func fields(list ...schema.Field) *schema.Struct { return &schema.Struct{Fields: list} }

// SeqBuilder gathers sequences of one kind.
type SeqBuilder struct {
	kind SeqKind
	typ  *schema.Struct
	kids []array.Builder
	rows int
}

func newSeqBuilder(kind SeqKind) *SeqBuilder {
	b := &SeqBuilder{kind: kind, typ: kind.Type()}
	if b.typ == nil {
		return b
	}
	for _, f := range b.typ.Fields {
		kid, err := newBuilder(f.Type)
		if err != nil {
			continue // cannot be: the types are primitive
		}
		b.kids = append(b.kids, kid)
	}
	return b
}

func (b *SeqBuilder) differs(s *Seq) bool { return b != nil && b.kind != s.Kind }

func (b *SeqBuilder) add(s *Seq) {
	if b.typ == nil {
		return
	}
	n, str, dec := 0, 0, 0
	for i, kid := range b.kids {
		switch kid := kid.(type) {
		case *array.Int32Builder:
			if i == 0 {
				kid.Append(s.Epoch)
				continue
			}
			kid.Append(int32(s.N[n]))
			n++
		case *array.Int64Builder:
			kid.Append(s.N[n])
			n++
		case *array.StringBuilder:
			kid.BinaryBuilder.Append(s.S[str])
			str++
		case *array.Decimal128Builder:
			kid.Append(s.D[dec])
			dec++
		}
	}
	b.rows++
}

func (b *SeqBuilder) finish() (arrow.Array, *schema.Struct, error) {
	if b.typ == nil {
		return nil, nil, nil
	}
	at, err := schema.ArrowType(b.typ)
	if err != nil {
		return nil, nil, err
	}
	kids := make([]arrow.ArrayData, len(b.kids))
	for i, k := range b.kids {
		arr := k.NewArray()
		defer arr.Release()
		kids[i] = arr.Data()
	}
	data := array.NewData(at, b.rows, []*memory.Buffer{nil}, kids, 0, 0)
	defer data.Release()
	b.rows = 0
	return array.NewStructData(data), b.typ, nil
}
