package lint

import "path"

// module is the module path; keys of the tables are relative to it.
const module = "github.com/sluice-data/sluice"

// layer is one row of the import table.
type layer struct {
	pkg  string // relative to the module; path.Match pattern
	tier int    // an import goes to a smaller number; see ARCHITECTURE.md
	test bool   // only tests import it
}

// layers is the import order of the repository, low to high. Tens are the tiers
// of ARCHITECTURE.md; what lies between two of them is ordered within one.
var layers = []layer{
	{pkg: "storage", tier: 0},
	{pkg: "log/schema", tier: 0},
	{pkg: "internal/pipeline", tier: 0},
	{pkg: "internal/invariants", tier: 0},
	{pkg: "internal/demodata", tier: 0},
	{pkg: "internal/curve", tier: 0},
	{pkg: "internal/variant", tier: 0},

	{pkg: "storage/blobstore", tier: 10},
	{pkg: "internal/dv", tier: 10},
	{pkg: "internal/expr", tier: 10},
	{pkg: "internal/keycode", tier: 10},

	{pkg: "internal/parquetio", tier: 20},

	{pkg: "log", tier: 30},
	{pkg: "internal/rowio", tier: 35},

	{pkg: "internal/datafile", tier: 40},
	{pkg: "internal/spill", tier: 45},
	{pkg: "cdf", tier: 50},
	{pkg: "delta", tier: 60},
	{pkg: "merge", tier: 70},

	{pkg: "apply/event", tier: 79},
	{pkg: "apply/source/wire", tier: 80},
	{pkg: "apply/source/avro", tier: 81},
	{pkg: "apply/source/*", tier: 82},
	{pkg: "apply/source", tier: 83},
	{pkg: "apply", tier: 84},
	{pkg: "apply/sql", tier: 85},
	{pkg: "fsck", tier: 86},

	{pkg: "storage/s3store", tier: 88},
	{pkg: "storage/gcsstore", tier: 88},
	{pkg: "storage/azurestore", tier: 88},
	{pkg: "storage/dynamolog", tier: 88},
	{pkg: "storage/open", tier: 90},
	{pkg: "cmd/*", tier: 91},
	{pkg: "examples/*", tier: 92},
	{pkg: "examples", tier: 93},
	{pkg: "conformance", tier: 93},
	{pkg: "conformance/*", tier: 94},

	{pkg: "storage/faultstore", tier: 100, test: true},
	{pkg: "storage/storagetest", tier: 100, test: true},
	{pkg: "internal/lint", tier: 100, test: true},
	{pkg: "internal/coverage", tier: 100, test: true},
	{pkg: "conformance/engines", tier: 102, test: true},
	{pkg: "conformance/stores", tier: 102, test: true},
	{pkg: "conformance/servers", tier: 101, test: true},
	{pkg: "conformance/faultproxy", tier: 102, test: true},
	{pkg: "internal/model", tier: 100, test: true},
	{pkg: "internal/testenv", tier: 100, test: true},
	{pkg: "internal/corpora", tier: 103, test: true},
	{pkg: "internal/testtable", tier: 101, test: true},
	{pkg: "internal/testreport", tier: 100, test: true},
}

// layerOf finds the row of a package. An exact row goes before a pattern.
func layerOf(pkg string) (layer, bool) {
	for _, l := range layers {
		if l.pkg == pkg {
			return l, true
		}
	}
	for _, l := range layers {
		if ok, err := path.Match(l.pkg, pkg); ok && err == nil {
			return l, true
		}
	}
	return layer{}, false
}

// outside says which packages may import a dependency, by its path prefix. A
// dependency without a row is free to all.
var outside = []struct {
	prefix string
	pkgs   []string // path.Match patterns
}{
	{"github.com/parquet-go/", []string{"internal/parquetio"}},
	{"github.com/spf13/cobra", []string{"cmd/*"}},
	{"golang.org/x/term", []string{"cmd/*"}},
	{"github.com/aws/", []string{"storage/open", "storage/s3store", "storage/dynamolog"}},
	{"github.com/Azure/", []string{"storage/open", "storage/azurestore", "conformance/stores"}},
	{"golang.org/x/oauth2", []string{"storage/open"}},
	{"pgregory.net/rapid", nil},
	{"github.com/cockroachdb/datadriven", nil},
}

// exception lifts one rule for one file.
type exception struct {
	file   string // relative path
	rule   string
	reason string
}

var exceptions = []exception{
	{"log/schema/types.go", "calls", "Metadata.With panics on a value without a JSON form, which only a wrong call site can pass"},
}
