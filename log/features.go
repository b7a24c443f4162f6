package deltalog

import (
	"fmt"
	"sort"
	"strings"
)

// Op is what a caller wants to do with a table.
type Op string

// The operations of the gate.
const (
	OpRead    Op = "read"
	OpReadCDF Op = "read the change feed of"
	OpWrite   Op = "write"
)

// Feature is the name of a table feature in its canonical spelling.
type Feature string

// The features that code of this module refers to; the table below has all.
const (
	AppendOnly          Feature = "appendOnly"
	Invariants          Feature = "invariants"
	CheckConstraints    Feature = "checkConstraints"
	ChangeDataFeed      Feature = "changeDataFeed"
	GeneratedColumns    Feature = "generatedColumns"
	ColumnMapping       Feature = "columnMapping"
	IdentityColumns     Feature = "identityColumns"
	DeletionVectors     Feature = "deletionVectors"
	TimestampNTZ        Feature = "timestampNtz"
	V2Checkpoint        Feature = "v2Checkpoint"
	DomainMetadataF     Feature = "domainMetadata"
	RowTracking         Feature = "rowTracking"
	InCommitTimestamp   Feature = "inCommitTimestamp"
	Clustering          Feature = "clustering"
	TypeWidening        Feature = "typeWidening"
	TypeWideningPreview Feature = "typeWidening-preview"
	CatalogManaged      Feature = "catalogManaged"
	catalogOwnedPreview Feature = "catalogOwned-preview"
)

// More names, apart so that the columns of neither block move when the other grows.
const (
	VacuumProtocolCheck   Feature = "vacuumProtocolCheck"
	CheckpointProtection  Feature = "checkpointProtection"
	ColumnDefaults        Feature = "allowColumnDefaults"
	VariantType           Feature = "variantType"
	VariantTypePreview    Feature = "variantType-preview"
	MaterializePartitions Feature = "materializePartitionColumns"
)

// support says whether this version can do something with a table that lists a feature.
type support int

const (
	no support = iota
	// inactive: only as long as the feature's metadata does not turn it on.
	inactive
	yes
)

// featureRow is everything the gate knows about one feature (1.5 of the checklist).
type featureRow struct {
	name Feature
	// rw: the feature binds readers too and stands in both lists.
	rw bool
	// reader, writer are the legacy versions that imply it; 0 is none.
	reader, writer int
	needs          []Feature
	read, write    support
	// active reports whether metadata turns the feature on, and how; nil means that
	// listing it is enough.
	active func(*TableConfig) (how string)
	// failAtUpgrade: a winner that adds it fails running transactions (C-31).
	failAtUpgrade bool
}

// featureTable is the one table of features; its order is the order of lists we write.
func featureTable() []featureRow {
	prop := func(key, want string) func(*TableConfig) string {
		return func(c *TableConfig) string {
			if v, ok := c.property(key); ok && strings.EqualFold(v, want) {
				return "delta." + key + "=" + v
			}
			return ""
		}
	}
	return []featureRow{
		{name: AppendOnly, writer: 2, read: yes, write: yes},
		{name: Invariants, writer: 2, read: yes, write: yes, failAtUpgrade: true},
		{name: CheckConstraints, writer: 3, read: yes, write: yes, failAtUpgrade: true},
		{name: ChangeDataFeed, writer: 4, read: yes, write: yes},
		{name: GeneratedColumns, writer: 4, read: yes, write: yes, failAtUpgrade: true},
		{name: ColumnMapping, rw: true, reader: 2, writer: 5, read: yes, write: yes},
		{name: IdentityColumns, writer: 6, read: yes, write: yes, failAtUpgrade: true},
		{name: ColumnDefaults, read: yes, write: yes, failAtUpgrade: true},
		{name: DeletionVectors, rw: true, read: yes, write: yes},
		{name: TimestampNTZ, rw: true, read: yes, write: yes},
		{name: V2Checkpoint, rw: true, read: yes, write: yes},
		{name: VacuumProtocolCheck, rw: true, read: yes, write: yes},
		{name: DomainMetadataF, read: yes, write: yes},
		{name: RowTracking, needs: []Feature{DomainMetadataF}, read: yes, write: yes},
		{name: InCommitTimestamp, read: yes, write: yes},
		{name: Clustering, needs: []Feature{DomainMetadataF}, read: yes, write: yes, failAtUpgrade: true},
		{name: TypeWidening, rw: true, read: yes, write: yes},
		{name: TypeWideningPreview, rw: true, read: yes, write: yes},
		{name: VariantType, rw: true, read: yes, write: yes, failAtUpgrade: true},
		{name: VariantTypePreview, rw: true, read: yes, write: yes, failAtUpgrade: true},
		{name: "variantShredding", rw: true, needs: []Feature{VariantType}, read: yes, write: yes, failAtUpgrade: true},
		{name: "variantShredding-preview", rw: true, needs: []Feature{VariantType}, read: yes, write: yes, failAtUpgrade: true},
		{name: MaterializePartitions, read: yes, write: yes, failAtUpgrade: true},
		{name: CheckpointProtection, read: yes, write: yes, failAtUpgrade: true},
		{name: "icebergCompatV1", needs: []Feature{ColumnMapping}, read: yes, write: inactive, active: prop("enableIcebergCompatV1", "true")},
		{name: "icebergCompatV2", needs: []Feature{ColumnMapping}, read: yes, write: inactive, active: prop("enableIcebergCompatV2", "true")},
		{name: "icebergCompatV3", needs: []Feature{ColumnMapping, RowTracking}, read: yes, write: inactive, active: prop("enableIcebergCompatV3", "true")},
		{name: "icebergWriterCompatV1", needs: []Feature{"icebergCompatV2"}, read: yes},
		{name: CatalogManaged, rw: true, needs: []Feature{InCommitTimestamp, VacuumProtocolCheck}},
		{name: catalogOwnedPreview, rw: true, needs: []Feature{InCommitTimestamp, VacuumProtocolCheck}},
		{name: "coordinatedCommits-preview", needs: []Feature{InCommitTimestamp, VacuumProtocolCheck}, read: yes, failAtUpgrade: true},
		{name: "redirectReaderWriter-preview", rw: true},
		{name: "redirectWriterOnly-preview"},
		{name: "adaptiveMetadata-preview", rw: true},
		{name: "geospatial", rw: true, failAtUpgrade: true},
		{name: "geospatial-dev", rw: true, failAtUpgrade: true},
		{name: "collations", needs: []Feature{DomainMetadataF}, read: yes},
		{name: "columnMappingUsageTracking", read: yes},
		{name: "timestampNanos", rw: true, needs: []Feature{TimestampNTZ}},
	}
}

// lookupFeature finds a name ignoring case.
func lookupFeature(name string) (featureRow, bool) {
	if strings.EqualFold(name, "timestampWithoutTimezone") {
		name = string(TimestampNTZ)
	}
	for _, row := range featureTable() {
		if strings.EqualFold(string(row.name), name) {
			return row, true
		}
	}
	return featureRow{}, false
}

// checkShape holds a protocol to its legal forms and the known versions.
func (p *Protocol) checkShape() error {
	corrupt := func(format string, args ...any) error {
		return &CorruptError{ErrorCode: "DELTA_INVALID_PROTOCOL_VERSION", Reason: "protocol: " + fmt.Sprintf(format, args...)}
	}
	r, w := p.MinReaderVersion, p.MinWriterVersion
	switch {
	case r < 1 || w < 1:
		return corrupt("versions (%d, %d) are below 1", r, w)
	case r > 3 || w > 7:
		return nil // the gate names them
	case r == 3 && w != 7:
		return corrupt("reader version 3 needs writer version 7, not %d", w)
	case r == 3 && p.ReaderFeatures == nil:
		return corrupt("reader version 3 without readerFeatures")
	case w == 7 && p.WriterFeatures == nil:
		return corrupt("writer version 7 without writerFeatures")
	case r < 3 && len(p.ReaderFeatures) > 0:
		return corrupt("readerFeatures with reader version %d", r)
	case w < 7 && len(p.WriterFeatures) > 0:
		return corrupt("writerFeatures with writer version %d", w)
	}
	inWriter := map[string]bool{}
	for _, f := range p.WriterFeatures {
		inWriter[strings.ToLower(canonical(f))] = true
	}
	inReader := map[string]bool{}
	for _, f := range p.ReaderFeatures {
		inReader[strings.ToLower(canonical(f))] = true
		if !inWriter[strings.ToLower(canonical(f))] {
			return corrupt("feature %s is only in readerFeatures", f)
		}
	}
	for _, f := range p.WriterFeatures {
		row, known := lookupFeature(f)
		if !known || !row.rw || inReader[strings.ToLower(string(row.name))] {
			continue
		}
		if r == 3 || row.reader == 0 || r < row.reader {
			return corrupt("feature %s binds readers but reader version %d does not list it", f, r)
		}
	}
	return nil
}

func canonical(name string) string {
	if row, ok := lookupFeature(name); ok {
		return string(row.name)
	}
	return name
}

// Features lists what p supports, legacy versions expanded, in canonical spelling;
// unknown names come last, as they are.
func (p *Protocol) Features() []Feature {
	var out []Feature
	named := map[string]bool{}
	for _, l := range [][]string{p.WriterFeatures, p.ReaderFeatures} {
		for _, f := range l {
			named[strings.ToLower(canonical(f))] = true
		}
	}
	for _, row := range featureTable() {
		key := strings.ToLower(string(row.name))
		legacy := row.writer > 0 && p.MinWriterVersion < 7 && p.MinWriterVersion >= row.writer && p.MinReaderVersion >= row.reader
		if legacy || named[key] {
			out = append(out, row.name)
		}
		delete(named, key)
	}
	var rest []string
	for _, f := range p.WriterFeatures {
		if named[strings.ToLower(f)] {
			rest = append(rest, f)
			delete(named, strings.ToLower(f))
		}
	}
	sort.Strings(rest)
	for _, f := range rest {
		out = append(out, Feature(f))
	}
	return out
}

// Supports reports whether p lists f or implies it by its versions.
func (p *Protocol) Supports(f Feature) bool {
	for _, g := range p.Features() {
		if strings.EqualFold(string(f), string(g)) {
			return true
		}
	}
	return false
}

// NewProtocol is the weakest protocol with the given features and what they need
// (W-304): (1,2) for none, (1,7) with writer features, (2,7) with column mapping,
// (3,7) where another feature binds readers. appendOnly and invariants are always
// in, as in every protocol of today's writers.
func NewProtocol(features ...Feature) (*Protocol, error) {
	return (&Protocol{MinReaderVersion: 1, MinWriterVersion: 2}).With(features...)
}

// With is p upgraded to support the features and what they need (W-303); p itself
// when it already does. Versions and features only grow.
func (p *Protocol) With(features ...Feature) (*Protocol, error) {
	want := map[Feature]bool{}
	var unknown []string
	var add func(f Feature)
	add = func(f Feature) {
		row, ok := lookupFeature(string(f))
		if !ok {
			unknown = append(unknown, string(f))
			return
		}
		if want[row.name] {
			return
		}
		want[row.name] = true
		for _, n := range row.needs {
			add(n)
		}
	}
	missing := false
	for _, f := range features {
		add(f)
	}
	for f := range want {
		missing = missing || !p.Supports(f)
	}
	if unknown != nil {
		sort.Strings(unknown)
		return nil, &UnsupportedError{ErrorCode: "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG", Op: OpWrite, Features: unknown,
			MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
	}
	if !missing {
		return p, nil
	}
	var foreign []string
	for _, f := range p.Features() {
		if _, known := lookupFeature(string(f)); !known {
			foreign = append(foreign, string(f))
		}
		want[f] = true
	}
	out := &Protocol{MinReaderVersion: p.MinReaderVersion, MinWriterVersion: 7}
	for _, row := range featureTable() {
		if want[row.name] && row.rw {
			need := 3
			if row.reader > 0 {
				need = row.reader
			}
			out.MinReaderVersion = max(out.MinReaderVersion, need)
		}
	}
	for _, row := range featureTable() {
		if !want[row.name] {
			continue
		}
		out.WriterFeatures = append(out.WriterFeatures, string(row.name))
		if row.rw && out.MinReaderVersion == 3 {
			out.ReaderFeatures = append(out.ReaderFeatures, string(row.name))
		}
	}
	out.WriterFeatures = append(out.WriterFeatures, foreign...)
	for _, f := range foreign {
		for _, g := range p.ReaderFeatures {
			if strings.EqualFold(f, g) {
				out.ReaderFeatures = append(out.ReaderFeatures, f)
			}
		}
	}
	if out.MinReaderVersion == 3 && out.ReaderFeatures == nil {
		out.ReaderFeatures = []string{}
	}
	return out, nil
}

// Downgrades reports whether going from p to q drops a version or a feature, and
// names the first one dropped.
func (p *Protocol) downgrades(q *Protocol) (string, bool) {
	for _, f := range p.Features() {
		if !q.Supports(f) {
			return string(f), true
		}
	}
	return "", false
}

// Require refuses op unless every feature and property that binds it is supported
// (R-301, R-302, W-301, W-302). The error lists all of them: *[UnsupportedError]
// or, for malformed properties, *[InvalidError].
func (c *TableConfig) Require(op Op) error {
	var missing []string
	p := c.Protocol
	code := "DELTA_UNSUPPORTED_FEATURES_FOR_READ"
	if op == OpWrite {
		code = "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
	}
	if p.MinReaderVersion > 3 || op == OpWrite && p.MinWriterVersion > 7 {
		return &UnsupportedError{ErrorCode: "DELTA_INVALID_PROTOCOL_VERSION", Op: op, Reason: "this version knows reader versions 1 to 3 and writer versions 1 to 7",
			Features:         unknownOf(p, op),
			MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
	}
	for _, f := range p.Features() {
		row, known := lookupFeature(string(f))
		binds := op == OpWrite || p.bindsReaders(f)
		switch {
		case !binds:
		case !known, row.read == no && p.bindsReaders(f):
			missing = append(missing, string(f))
		case op != OpWrite || row.write == yes:
		case row.write == no:
			missing = append(missing, string(f))
		default:
			if how := row.active(c); how != "" {
				missing = append(missing, fmt.Sprintf("%s (%s)", f, how))
			}
		}
		if f == CatalogManaged || f == catalogOwnedPreview {
			code = "DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED"
		}
	}
	if op == OpWrite {
		missing = append(missing, c.refusedProperties()...)
	}
	if missing != nil {
		return &UnsupportedError{ErrorCode: code, Op: op, Features: missing,
			MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
	}
	return c.requireProperties(op)
}

func unknownOf(p *Protocol, op Op) []string {
	var out []string
	for _, f := range p.Features() {
		if _, known := lookupFeature(string(f)); !known && (op == OpWrite || p.bindsReaders(f)) {
			out = append(out, string(f))
		}
	}
	return out
}

// bindsReaders: the name is in readerFeatures, or column mapping by versions.
func (p *Protocol) bindsReaders(f Feature) bool {
	for _, g := range p.ReaderFeatures {
		if strings.EqualFold(canonical(g), string(f)) {
			return true
		}
	}
	return f == ColumnMapping && p.MinReaderVersion == 2
}
