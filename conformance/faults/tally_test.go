package faults

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

var (
	rewrite = flag.Bool("rewrite", false, "write docs/reliability.md with the counts of this run; those of faults that did not run stay")
	seed    = flag.Int64("seed", 1, "chooses the faults")
)

// tally counts the faults survived, by fault and operation.
var tally struct {
	sync.Mutex
	n counts
}

// counts are faults survived by "group: fault" and operation.
type counts map[string]map[string]int

// survived counts n faults after which everything was found right.
func survived(fault, operation string, n int) {
	tally.Lock()
	defer tally.Unlock()
	if tally.n == nil {
		tally.n = counts{}
	}
	if tally.n[fault] == nil {
		tally.n[fault] = map[string]int{}
	}
	tally.n[fault][operation] += n
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && *rewrite {
		if err := writeDocument(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	recorded = "testdata/survived.json"
	document = "docs/reliability.md"
)

func readCounts() (counts, error) {
	all := counts{}
	text, err := os.ReadFile(recorded)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return all, err
}

func writeDocument() error {
	all, err := readCounts()
	if err != nil {
		return err
	}
	maps.Copy(all, tally.n)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(recorded), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(recorded, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("..", "..", document), []byte(render(all)), 0o644)
}

// groups are the tables of the document, in its order, with what stands above each.
var groups = []struct{ name, text string }{
	{"store", "Every call of the operation on its store failed once, the first, the second, and so on: before it was applied, after it (the answer is\n" +
		"lost), or with the process (no call after it). The count is that of the calls."},
	{"S3", "A proxy between sluice and versitygw did this to one request in five, up to three in a row, chosen by a seed."},
	{"GCS", "The same before fake-gcs-server."},
	{"Azure", "The same before Azurite."},
	{"process", "A process of its own did the operation and was ended by SIGKILL at a random moment of it."},
	{"disk", "A local disk that was full to some KiB, that was mounted read-only in the middle, or on which the right to write was taken away in the middle."},
	{"soak", "Processes that append, merge keys of their own and keys of all, delete, optimize and vacuum one table on versitygw at the same time; in the end\n" +
		"its rows were those of the processes' models, for sluice and for delta-rs. The counts are those of acknowledged operations."},
	{"clock", "The machine's clock went back an hour between two looks at it."},
}

const head = `# What was survived

Each number counts faults after which all of this was found true: the table opens; its rows are those of a version that the operation passes
through, and those of the last one if the operation was acknowledged; the change feed from version 0 leads to the rows; ` + "`sluice fsck`" + ` finds no
error; the operation done again ends in the rows that it makes without a fault; then a vacuum leaves no file that no version needs.

The numbers come from the tests themselves:

    SLUICE_LONG=1 go test ./conformance/faults -timeout 6h -rewrite     # all of them; without SLUICE_LONG a share
    go test ./conformance/faults -run FullDisk -rewrite                 # one kind of fault; the others keep their numbers
    go test ./conformance/faults -run OnServers/soak -soak 20m -rewrite

` + "`-seed N`" + ` chooses other faults. Not here: [conformance/kill](../conformance/kill) kills and stops an apply before and after each of its calls,
[conformance/multiprocess](../conformance/multiprocess) kills some of a hundred writers.

A clone whose process died leaves files and no table: the next clone there names one of them and refuses (` + "`DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION`" + `); delete the
folder and clone again. So it was done here. Uploads in parts that a killed process left on an object store are not listed by it; a lifecycle rule
takes them away ([stores](stores.md)).
`

// render is the document.
func render(all counts) string {
	var b strings.Builder
	b.WriteString(head)
	var missing []string
	for _, g := range groups {
		faults, ops := []string{}, []string{}
		for key, n := range all {
			if group, fault, _ := strings.Cut(key, ": "); group == g.name {
				faults = append(faults, fault)
				for op := range n {
					if !slices.Contains(ops, op) {
						ops = append(ops, op)
					}
				}
			}
		}
		if len(faults) == 0 {
			missing = append(missing, g.name)
			continue
		}
		slices.Sort(faults)
		slices.SortFunc(ops, func(a, b string) int { return cmp.Or(place(a)-place(b), strings.Compare(a, b)) })
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", strings.ToUpper(g.name[:1])+g.name[1:], g.text)
		cell := func(row, column string) int { return all[g.name+": "+row][column] }
		rows, columns := faults, ops
		if len(ops) > len(faults) {
			rows, columns = ops, faults
			cell = func(row, column string) int { return all[g.name+": "+column][row] }
		}
		fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)))
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s |", row)
			for _, column := range columns {
				fmt.Fprintf(&b, " %d |", cell(row, column))
			}
			b.WriteString("\n")
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(&b, "\nTested and not counted here yet: faults of %s.\n", strings.Join(missing, ", "))
	}
	return b.String()
}

// place orders operations as the list of them does.
func place(name string) int {
	return slices.IndexFunc(operations(), func(op operation) bool { return op.name == name })
}

// The document is what was recorded, and what was recorded of calls of a store is so of
// every operation.
func TestReliability_Document(t *testing.T) {
	if *rewrite {
		t.Skip("it is being written")
	}
	all, err := readCounts()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(testenv.RepoRoot(t), document))
	if err != nil {
		t.Fatal(err)
	}
	again := "run SLUICE_LONG=1 go test ./conformance/faults -timeout 6h -rewrite"
	if string(text) != render(all) {
		t.Errorf("%s is not what was recorded: %s", document, again)
	}
	for fault, n := range all {
		if !strings.HasPrefix(fault, "store: ") {
			continue
		}
		for _, op := range operations() {
			if n[op.name] == 0 {
				t.Errorf("%s lacks %s under %q: %s", document, op.name, fault, again)
			}
		}
	}
}
