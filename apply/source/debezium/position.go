package debezium

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// origin is what the source block (or the metadata of a flattened row) says.
type origin struct {
	connector, name, db, schema, table []byte
	snapshot                           wire.Token
	lsn, sequence                      wire.Token
	file, pos, row                     wire.Token
	commitLSN, changeLSN, serial       wire.Token
	scn, commitSCN, ssn                wire.Token
	ts, ord                            wire.Token
}

// take reads one member of the source block; false: a name this page does not use.
func (o *origin) take(key []byte, v wire.Token) bool {
	switch string(key) {
	case "connector":
		o.connector = v.Text(nil)
	case "name":
		o.name = textOf(v)
	case "db":
		o.db = textOf(v)
	case "schema":
		o.schema = textOf(v)
	case "table", "collection":
		o.table = textOf(v)
	case "snapshot":
		o.snapshot = v
	case "lsn":
		o.lsn = v
	case "sequence":
		o.sequence = v
	case "file":
		o.file = v
	case "pos":
		o.pos = v
	case "row":
		o.row = v
	case "commit_lsn":
		o.commitLSN = v
	case "change_lsn":
		o.changeLSN = v
	case "event_serial_no":
		o.serial = v
	case "scn":
		o.scn = v
	case "commit_scn":
		o.commitSCN = v
	case "ssn":
		o.ssn = v
	case "ts_ms":
		o.ts = v
	case "ord":
		o.ord = v
	default:
		return false
	}
	return true
}

func textOf(t wire.Token) []byte {
	if t.Kind != wire.String {
		return nil
	}
	return t.Text(nil)
}

// kind is the sequence type of the connector; flattened rows without a
// connector name are judged by the fields that they have.
func (o *origin) kind() wire.SeqKind {
	switch string(o.connector) {
	case "postgresql":
		return wire.SeqPostgres
	case "mysql", "mariadb":
		return wire.SeqMySQL
	case "sqlserver", "db2":
		return wire.SeqSQLServer
	case "oracle":
		return wire.SeqOracle
	case "mongodb":
		return wire.SeqMongo
	case "":
		switch {
		case o.lsn.Kind > wire.Null || o.sequence.Kind > wire.Null:
			return wire.SeqPostgres
		case o.file.Kind > wire.Null:
			return wire.SeqMySQL
		case o.commitLSN.Kind > wire.Null:
			return wire.SeqSQLServer
		case o.scn.Kind > wire.Null || o.commitSCN.Kind > wire.Null:
			return wire.SeqOracle
		case o.ord.Kind > wire.Null:
			return wire.SeqMongo
		}
	}
	return wire.SeqTransport
}

// inSnapshot tells whether the row was read and not changed: the op says r, or
// the source block marks a snapshot of any kind (text, or a boolean of old).
func (o *origin) inSnapshot(op byte) bool {
	if op == 'r' {
		return true
	}
	switch o.snapshot.Kind {
	case wire.True:
		return true
	case wire.String:
		return string(o.snapshot.Raw) != "false" && len(o.snapshot.Raw) > 0
	}
	return false
}

func missing(what string) error {
	return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "%s is missing or unreadable; option sequence=transport orders by the place in the topic", what)
}

// seq is the event's sequence tuple (cdc-formats F1).
func (d *Decoder) seq(o *origin, kind wire.SeqKind, snapshot bool, transport int64) (wire.Seq, error) {
	s := wire.Seq{Kind: kind, Epoch: d.opt.epoch}
	phase := int64(1)
	if snapshot {
		phase = 0
	}
	var ok bool
	switch kind {
	case wire.SeqPostgres:
		return d.postgres(s, o, phase)
	case wire.SeqMySQL:
		file, ok1 := fileNumber(o.file)
		pos, ok2 := integer(o.pos)
		row, ok3 := integer(o.row)
		if o.row.Kind <= wire.Null {
			ok3 = true
		}
		if !ok1 || !ok2 || !ok3 {
			return s, missing("binlog file, pos or row")
		}
		s.N = [4]int64{file, pos, phase, row}
	case wire.SeqSQLServer:
		if o.commitLSN.Kind != wire.String {
			return s, missing("commit_lsn")
		}
		s.S[0], s.S[1] = o.commitLSN.Raw, []byte("00000000:00000000:0000")
		if o.changeLSN.Kind == wire.String {
			s.S[1] = o.changeLSN.Raw
		}
		if !isLSN(s.S[0]) || !isLSN(s.S[1]) {
			return s, missing("commit_lsn or change_lsn of the form 8:8:4")
		}
		if s.N[0], ok = integer(o.serial); !ok && o.serial.Kind > wire.Null {
			return s, missing("event_serial_no")
		}
	case wire.SeqOracle:
		scn, okSCN := scnOf(o.scn)
		commit, okCommit := scnOf(o.commitSCN)
		if !okCommit {
			commit = scn
		}
		if !okSCN {
			scn = commit
		}
		if !okSCN && !okCommit {
			return s, missing("scn")
		}
		s.D = [2]decimal128.Num{commit, scn}
		ssn, _ := integer(o.ssn)
		s.N[0], s.N[1] = ssn, transport
	case wire.SeqMongo:
		if s.N[0], ok = integer(o.ts); !ok {
			return s, missing("ts_ms")
		}
		ord, _ := integer(o.ord)
		s.N[1], s.N[2] = ord, transport
	default:
		s.N[0] = transport
	}
	return s, nil
}

// postgres: pos is the end of the commit before (so that transactions stay
// whole and in commit order), else the event's own LSN. Streamed events of the
// first transactions have no commit before them; where their LSN lies below the
// snapshot they are after it all the same.
func (d *Decoder) postgres(s wire.Seq, o *origin, phase int64) (wire.Seq, error) {
	lsn, haveLSN := integer(o.lsn)
	first, haveFirst, second, haveSecond, ok := sequencePair(o.sequence)
	if !ok || o.lsn.Kind > wire.Null && !haveLSN {
		return s, missing("lsn or sequence")
	}
	if !haveLSN {
		lsn, haveLSN = second, haveSecond
	}
	if !haveLSN {
		return s, missing("lsn")
	}
	pos := lsn
	if haveFirst {
		pos = first
	}
	switch {
	case phase == 0:
		if pos > d.state.Snapshot[string(o.name)] {
			d.state.Snapshot[string(o.name)] = pos
		}
	case !haveFirst:
		pos = max(pos, d.state.Snapshot[string(o.name)])
	}
	s.N = [4]int64{pos, phase, lsn}
	return s, nil
}

// sequencePair reads ["1","2"] or [null,"2"], as an array or as its JSON text.
// Absent is fine; anything else is not ok.
func sequencePair(t wire.Token) (first int64, haveFirst bool, second int64, haveSecond, ok bool) {
	if t.Kind <= wire.Null {
		return 0, false, 0, false, true
	}
	if t.Kind != wire.String && t.Kind != wire.Array {
		return
	}
	n := 0
	for i := 0; i < len(t.Raw); {
		c := t.Raw[i]
		switch {
		case c == 'n':
			n++
			i += 4
		case c >= '0' && c <= '9':
			j := i
			for j < len(t.Raw) && t.Raw[j] >= '0' && t.Raw[j] <= '9' {
				j++
			}
			v, good := wire.Int(t.Raw[i:j])
			if !good {
				return
			}
			switch n {
			case 0:
				first, haveFirst = v, true
			case 1:
				second, haveSecond = v, true
			}
			n++
			i = j
		case c == '[' || c == ']' || c == ',' || c == '"' || c == '\\' || c == ' ':
			i++
		default:
			return
		}
	}
	return first, haveFirst, second, haveSecond, n == 2
}

// integer reads a number, or text that is one.
func integer(t wire.Token) (int64, bool) {
	if t.Kind != wire.Number && t.Kind != wire.String {
		return 0, false
	}
	return wire.Int(t.Raw)
}

// fileNumber is the number behind the last dot of a binlog file's name: past
// six digits the names no longer sort as text.
func fileNumber(t wire.Token) (int64, bool) {
	if t.Kind != wire.String {
		return 0, false
	}
	n, ok := wire.Int(t.Raw[bytes.LastIndexByte(t.Raw, '.')+1:])
	return n, ok && n >= 0
}

// isLSN checks SQL Server's fixed-width hex, which sorts as text.
func isLSN(s []byte) bool {
	if len(s) != 22 || s[8] != ':' || s[17] != ':' {
		return false
	}
	for i, c := range s {
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if !hex && i != 8 && i != 17 {
			return false
		}
	}
	return true
}

// scnOf reads an SCN, a number or text, of up to 38 digits.
func scnOf(t wire.Token) (decimal128.Num, bool) {
	if t.Kind != wire.Number && t.Kind != wire.String || len(t.Raw) == 0 || len(t.Raw) > 38 {
		return decimal128.Num{}, false
	}
	var n decimal128.Num
	ten := decimal128.FromU64(10)
	for _, c := range t.Raw {
		if c < '0' || c > '9' {
			return decimal128.Num{}, false
		}
		n = n.Mul(ten).Add(decimal128.FromU64(uint64(c - '0')))
	}
	return n, true
}
