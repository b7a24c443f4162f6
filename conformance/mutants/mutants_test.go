package mutants

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

// mutant is a mistake as an edit of one file, and the tests that must see it.
type mutant struct {
	mistake, file, from, to string
	pkg, run                string
}

const (
	cells     = "TestDecoder_Matrix|TestMistakes"
	sourcePkg = "./apply/source"
)

var mutants = []mutant{
	{"1 a placeholder is NULL", "debezium/change.go", "d.cells[i].Unavailable = true", `d.cells[i].Tok = wire.Token{Kind: wire.Null, Raw: []byte("null")}`, sourcePkg, cells},
	{"1 a placeholder is text", "debezium/change.go", "d.cells[i].Unavailable = true", "d.cells[i].Unavailable = false", sourcePkg, cells},
	{"1 an absent field is NULL", "changes/put.go", "if row.Op != event.Delete && (c.complete || d.missingNull) {", "if row.Op != event.Delete {", sourcePkg, cells},
	{"1 a clear bit of a column mask is NULL", "changes/qlik.go", "c.image = out\n\treturn nil", "return nil", sourcePkg, cells},
	{"1 an unchanged large object is NULL", "changes/sqlserver.go", "c.image = unchangedObjects(c.image, m.mask)", "_ = unchangedObjects", sourcePkg, cells},
	{"1 what a partial document lacks is NULL", "debezium/mongo.go", "d.whole = e.after.Kind == wire.String", "d.whole = true", sourcePkg, cells},
	{"2 Maxwell's seconds order", "changes/maxwell.go", "s.N = [4]int64{file, pos, xoffset, r.Transport}", `ts, _ := number(find(top, "ts"))
	s.N = [4]int64{ts, 0 * pos, 0 * xoffset, 0}`, sourcePkg, cells},
	{"2 the clock of Debezium orders", "debezium/position.go", "s.N = [4]int64{file, pos, phase, row}", `ts, _ := integer(o.ts)
		s.N = [4]int64{ts, 0 * file * pos * phase, 0, 0 * row}`, sourcePkg, cells},
	{"2 op_ts of GoldenGate orders", "changes/dms.go", "c.seq.D[0] = pos", "_ = pos", sourcePkg, cells},
	{"3 binlog files as text", "debezium/position.go", "return n, ok && n >= 0", "for n > 0 && n < 1e12 {\n\t\tn *= 10\n\t}\n\treturn n, ok && n >= 0", sourcePkg, cells},
	{"3 LSNs as floats", "debezium/position.go", "first, haveFirst = v, true", "first, haveFirst = int64(float64(v)), true", sourcePkg, cells},
	{"3 numbers of DynamoDB as text", "changes/dynamo.go", `strings.Repeat("0", 40-len(n)) + n`, `n`, sourcePkg, cells},
	{"3 SCNs as text", "debezium/position.go", "n = n.Mul(ten).Add(decimal128.FromU64(uint64(c - '0')))\n\t}", "n = n.Mul(ten).Add(decimal128.FromU64(uint64(c - '0')))\n\t}\n\tfor k := len(t.Raw); k < 30; k++ {\n\t\tn = n.Mul(ten)\n\t}", sourcePkg, cells},
	{"3 X/Y without its upper half", "changes/wal2json.go", "return int64(h<<32 | l),", "return int64(0*h | l),", sourcePkg, cells},
	{"4 the only deletes, tombstones, are dropped", "debezium/decoder.go", "return d.flatTombstone(r)", "return nil", sourcePkg, cells},
	{"4 deletes of soft-deleted rows are lost", "changes/loads.go", `if find(meta, "_ab_cdc_deleted_at").Kind > wire.Null {`, `if find(meta, "_ab_cdc_deleted_at").Kind > wire.Array {`, sourcePkg, cells},
	{"4 before images are filtered", "changes/flink.go", `if op == "-U" {`, `if c.old = nil; op == "-U" {`, sourcePkg, cells},
	{"4 deletes by TTL are lost", "changes/dynamo.go", `if f.skipTTL && name == "REMOVE"`, `if name == "REMOVE"`, sourcePkg, cells},
	{"5 a key change is a plain update", "changes/put.go", "if c.op == event.Update && len(c.old) > 0 && d.moved(c, keys) {", "if false {", sourcePkg, cells},
	{"5 a key change of Debezium is a plain update", "debezium/change.go", "if len(d.old) == 0 || len(keys) == 0 {", "if src != nil {", sourcePkg, cells},
	{"5 preimages of a feed are dropped", "deltafeed/decoder.go", "d.parts[at.part].ops[at.row] = event.Delete", "_ = at", "./apply/source/deltafeed", "."},
	{"6 microseconds as milliseconds", "debezium/connect.go", `case "io.debezium.time.MicroTimestamp", "io.debezium.time.IsoTimestamp":
		return ts(wire.Micros)`, `case "io.debezium.time.MicroTimestamp", "io.debezium.time.IsoTimestamp":
		return ts(wire.Millis)`, sourcePkg, cells},
	{"6 bits in the order of decimals", "wire/forms.go", "s.text = append(s.text, '0'+b[i/8]>>(i%8)&1)", "s.text = append(s.text, '0'+b[len(b)-1-i/8]>>(i%8)&1)", sourcePkg, cells},
	{"6 a local time is an instant", "debezium/connect.go", "return &wire.Node{Type: schema.TimestampNTZ, Unit: u}", "return &wire.Node{Type: schema.Timestamp, Unit: u}", sourcePkg, cells},
	{"6 the base64 of a decimal is text", "debezium/connect.go", `case "org.apache.kafka.connect.data.Decimal":`, `case "org.apache.kafka.connect.data.Decimal_":`, sourcePkg, cells},
	{"6 Canal's bytes are UTF-8", "changes/canal.go", "forms := mysqlForms{binary: wire.Latin1,", "forms := mysqlForms{binary: wire.Base64,", sourcePkg, cells},
	{"7 a stale load wins by the time of its transfer", "changes/dms.go", "s.N = [4]int64{math.MinInt64, 0, 0, r.Transport}", "s.N = [4]int64{at.UnixMicro() + 0*math.MaxInt32, tx, rec, r.Transport}", sourcePkg, cells},
	{"7 a load file wins over changes", "changes/csvfiles.go", "c.seq.N[0] = 0", "c.seq.N[0] = 2", sourcePkg, cells},
	{"7 an empty snapshot deletes everything", "../snapshot.go", "case d.rows == 0 && d.live > 0 && !f.AllowEmptySnapshot:", "case false:", "./apply", "TestRun_SnapshotGuards"},
	{"8 a key of fillers is a key", "debezium/change.go", "if string(src.connector) != \"postgresql\" || len(keys) == 0", "if src != nil || len(keys) == 0", sourcePkg, cells},
	{"8 fillers of a delete are values", "wire/table.go", "blank := !upsert && !t.WholeDeletes", "blank := false && !t.WholeDeletes", sourcePkg, cells},
	{"8 a document that was gone is a delete", "changes/mongo.go", "case c.op == event.Delete:", `case c.op == event.Delete || op == "update" && doc.Kind != wire.Object:
		c.op = event.Delete`, sourcePkg, cells},
	{"9 an unknown op is ignored", "debezium/change.go", `return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op %q", e.op.Raw)`, "return nil", sourcePkg, cells},
	{"9 invalid UTF-8 is taken", "debezium/decoder.go", "if !utf8.Valid(r.Value) || !utf8.Valid(r.Key) {", "if false && utf8.Valid(r.Value) {", sourcePkg, cells},
	{"9 keys match in any case", "wire/table_columns.go", "if !t.Fold {\n\t\treturn -1", "if false {\n\t\treturn -1", sourcePkg, cells},
	{"9 a member that comes twice is taken", "changes/decoder.go", "return fields, wire.Unique(fields)\n}\n\n// members", "return fields, nil\n}\n\n// members", sourcePkg, cells},
	{"9 a bad field is NULL without rescue", "wire/table.go", "rescued = appendRescued(rescued, c.name, tok)", "_ = appendRescued", sourcePkg, cells},
	{"9 leftover bytes of Avro are ignored", "avro/value.go", `return nil, fmt.Errorf("%d bytes are left over: another schema or framing", len(r.b))`, "_ = fmt.Errorf", "./apply/source/avro", "."},
	{"10 aborted records are read", "kafka/source.go", "kgo.ReadCommitted()", "kgo.ReadUncommitted()", "./apply/source/kafka", "."},
	{"10 halves of an update meet across partitions", "changes/decoder.go", `strconv.Itoa(int(r.Partition))`, `strconv.Itoa(0 * int(r.Partition))`, sourcePkg, cells},
	{"10 an epoch is no part of the order", "debezium/position.go", "s := wire.Seq{Kind: kind, Epoch: d.opt.epoch}", "s := wire.Seq{Kind: kind}", sourcePkg, cells},
}

// TestMutants puts each mistake in. It is the tests' test: where it fails, a decoder
// could make that mistake and nobody would notice.
func TestMutants(t *testing.T) {
	root := testenv.RepoRoot(t)
	seen := map[string]bool{}
	for _, m := range mutants {
		number, _, _ := strings.Cut(m.mistake, " ")
		build := !seen[number] || os.Getenv("SLUICE_LONG") != ""
		seen[number] = true
		t.Run(m.mistake, func(t *testing.T) { m.check(t, root, build) })
	}
	if len(seen) != 10 {
		t.Errorf("mutants of %d of the ten mistakes", len(seen))
	}
}

// check puts the mutant in and wants a test to fail; without build only its text is held
// against the source.
func (m *mutant) check(t *testing.T, root string, build bool) {
	path := filepath.Join(root, "apply", "source", filepath.FromSlash(m.file))
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(src), m.from); n != 1 {
		t.Fatalf("the text to replace is %d times in %s", n, m.file)
	}
	if !build {
		return
	}
	dir := t.TempDir()
	edited := filepath.Join(dir, "edited.go")
	if err := os.WriteFile(edited, []byte(strings.Replace(string(src), m.from, m.to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: edited}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "mutant.test")
	compile := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, m.pkg)
	compile.Dir = root
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	run := exec.Command(binary, "-test.run", m.run, "-test.timeout", "120s")
	run.Dir = filepath.Join(root, filepath.FromSlash(m.pkg))
	out, err := run.CombinedOutput()
	if err == nil {
		t.Error("no test fails")
		return
	}
	if !strings.Contains(string(out), "--- FAIL") {
		t.Errorf("the tests did not fail but break: %v\n%.2000s", err, out)
	}
}
