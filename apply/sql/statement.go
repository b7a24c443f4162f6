package sql

import (
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// Script is what statements say, whichever front end read them, in text order.
// Go programs fill it by hand.
//
// Names of tables, flows and sources are one to three identifiers joined by
// dots. An identifier that holds a dot or a backtick stands in backticks (a
// doubled backtick is one), in names and in column lists alike. Names and
// columns are compared ignoring case.
type Script struct {
	Sources []*Source
	Tables  []*Table
	Flows   []*Flow

	views []*view // relations that this language has no statement for
	order []any   // *Source, *Table, *Flow or *view as they stand in the text
	text  *layout // of SQL text: what the formatter needs
}

// Source binds a name to input: CREATE SOURCE, ours (docs/rfcs/statements.md).
type Source struct {
	Name    string
	From    []string // files, globs, directories, -
	Format  string   // "" is auto
	Table   string   // source table of a mixed stream
	Schema  *schema.Struct
	Options map[string]string

	at positions
}

// Table is a streaming table (CREATE STREAMING TABLE).
type Table struct {
	Name        string
	OrRefresh   bool
	IfNotExists bool
	Private     bool
	// Schema is the declared column list; nil: derived from the flows.
	Schema          *schema.Struct
	Comment         string
	TableProperties map[string]string
	PartitionCols   []string
	ClusterBy       []string
	ClusterByAuto   bool
	// Expectations are ExpectAll, ExpectAllOrDrop and ExpectAllOrFail in one list.
	Expectations []Expectation

	clusterByNone, using, hasComment bool
	propertyOrder                    []string
	query                            bool     // it has its own query
	columnItems, expectItems         []string // their items in the layout
	inline                           *Flow    // FLOW AUTO CDC in the same statement
	at                               positions
	raw                              originals
}

// Violation is what happens to rows that violate an expectation.
type Violation string

// The answers to a violation; the zero value only counts.
const (
	Warn       Violation = ""
	DropRow    Violation = "DROP ROW"
	FailUpdate Violation = "FAIL UPDATE"
)

// Expectation is a condition on the rows of a target (auto-cdc 2.9).
type Expectation struct {
	Name, Expr  string
	OnViolation Violation
}

// Flow is an AUTO CDC flow in the words of auto-cdc 1.7. A nil list was not
// given, an empty one was given empty.
type Flow struct {
	Name   string // "": that of the target
	Target string
	// Source is the name of a stream. NotStream: it is not read as one.
	Source    string
	NotStream bool
	// Snapshot is the query of FROM SNAPSHOT, instead of Source.
	Snapshot        string
	SnapshotVersion string // query of WITH VERSION

	Keys                              []string
	SequenceBy                        string
	SystemSequenceBy                  string
	IgnoreNullUpdates                 bool
	IgnoreNullUpdatesColumnList       []string
	IgnoreNullUpdatesExceptColumnList []string
	ColumnsToUpdate                   string
	ApplyAsDeletes                    string
	ApplyAsTruncates                  string
	ColumnList                        []string
	ExceptColumnList                  []string
	StoredAsSCDType                   string // "", "1", "2" or "bitemporal"
	TrackHistoryColumnList            []string
	TrackHistoryExceptColumnList      []string
	Once                              bool

	Comment                string
	OrRefresh, IfNotExists bool

	bare   bool // APPLY CHANGES INTO without CREATE FLOW
	insert bool // an append flow
	at     positions
	raw    originals
}

// originals are expressions as they stand in the text, by option: places of
// problems count in them, not in the canonical text.
type originals map[string]string

func (o originals) of(option, canonical string) string {
	if raw, ok := o[option]; ok {
		return raw
	}
	return canonical
}

// view is a relation that the language knows only to refuse it.
type view struct {
	name, kind string
	at         Pos
}

// positions are the places of the parts of a statement: "" the statement, else
// the option name of auto-cdc 1.7, for elements of lists followed by a dot and
// the index.
type positions map[string]Pos

func (p positions) of(option string) Pos {
	if at, ok := p[option]; ok {
		return at
	}
	return p[""]
}

func (p positions) item(option string, i int) Pos {
	if at, ok := p[option+"."+strconv.Itoa(i)]; ok {
		return at
	}
	return p.of(option)
}

// Place is where the flow stands in its text; the zero Pos for Go structs.
func (f *Flow) Place() Pos { return f.at.of("") }

// encodeIdent is the form of a name in Script.
func encodeIdent(raw string) string {
	if strings.ContainsAny(raw, ".`") {
		return "`" + strings.ReplaceAll(raw, "`", "``") + "`"
	}
	return raw
}

// splitName is the inverse of joining encoded identifiers by dots; ok is false if
// the text is no name.
func splitName(s string) (parts []string, ok bool) {
	for {
		if rest, quoted := strings.CutPrefix(s, "`"); quoted {
			var b strings.Builder
			for {
				i := strings.IndexByte(rest, '`')
				if i < 0 {
					return nil, false
				}
				b.WriteString(rest[:i])
				rest = rest[i+1:]
				if !strings.HasPrefix(rest, "`") {
					break
				}
				b.WriteByte('`')
				rest = rest[1:]
			}
			parts, s = append(parts, b.String()), rest
		} else {
			i := strings.IndexAny(s, ".`")
			if i < 0 {
				i = len(s)
			}
			parts, s = append(parts, s[:i]), s[i:]
		}
		if parts[len(parts)-1] == "" {
			return nil, false
		}
		if s == "" {
			return parts, true
		}
		if s[0] != '.' {
			return nil, false
		}
		s = s[1:]
	}
}

// NameParts are the identifiers of a name of a table, flow or source, nil if the
// text is no name.
func NameParts(name string) []string {
	parts, ok := splitName(name)
	if !ok {
		return nil
	}
	return parts
}

// fold is a name as it is compared.
func fold(name string) string {
	return strings.ToLower(name)
}

// columns decodes a list of column identifiers of a statement that passed checks.
func columns(list []string) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c
		if parts, ok := splitName(c); ok && len(parts) == 1 {
			out[i] = parts[0]
		}
	}
	return out
}
