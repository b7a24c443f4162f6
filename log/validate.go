package deltalog

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

func invalid(code, rule, format string, args ...any) error {
	return &InvalidError{ErrorCode: code, Rule: rule, Reason: fmt.Sprintf(format, args...)}
}

// alreadyDone is true when a staged txn version was recorded before (W-853).
func (t *Transaction) alreadyDone() (bool, error) {
	seen := map[string]bool{}
	for _, txn := range t.actions.Txns {
		if seen[txn.AppID] {
			return false, invalid("DELTA_DUPLICATE_ACTIONS_FOUND", "W-853", "application %q has two txn versions in one commit", txn.AppID)
		}
		seen[txn.AppID] = true
	}
	if t.snap == nil {
		return false, nil
	}
	for _, txn := range t.actions.Txns {
		if v, ok := t.snap.TxnVersion(txn.AppID); ok && txn.Version <= v {
			return true, nil
		}
	}
	return false, nil
}

// validate holds the staged actions to the writer's rules before any byte is
// written. c.config is the table before (nil: none), c.after the table with them.
func (c *committer) validate() error {
	a := &c.t.actions
	if a.Empty() && !c.opts.InfoOnly {
		return invalid("DELTA_EMPTY_COMMIT", "W-907", "there is nothing to commit")
	}
	if err := c.validateTable(a); err != nil {
		return err
	}
	if err := checkDuplicates(a); err != nil {
		return err
	}
	if err := checkDataChange(a); err != nil {
		return err
	}
	keys := c.after.PhysicalPartitionColumns()
	for _, f := range a.Adds {
		if err := checkFile("add", f.Path, f.PartitionValues, keys); err != nil {
			return err
		}
		if f.Size < 0 {
			return invalid("DELTA_INVALID_ACTION", "", "add %s: size %d", f.Path, f.Size)
		}
		if f.DeletionVector != nil && !c.after.Supports(DeletionVectors) {
			return invalid("DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", "W-306", "add %s has a deletion vector, which the table's protocol does not support", f.Path)
		}
	}
	for _, f := range a.CDC {
		if err := checkFile("cdc", f.Path, f.PartitionValues, keys); err != nil {
			return err
		}
		if f.DataChange {
			return invalid("DELTA_INVALID_ACTION", "W-207", "cdc %s: dataChange must be false", f.Path)
		}
	}
	if len(a.CDC) > 0 && !c.after.WritesChangeFeed() {
		return invalid("DELTA_INVALID_ACTION", "W-306", "change files in a table whose change feed is off")
	}
	for _, r := range a.Removes {
		if _, err := canonicalPath(r.Path); err != nil || r.Path == "" {
			return invalid("DELTA_INVALID_PATH", "R-201", "remove %q: not a path", r.Path)
		}
		if r.DataChange && c.after.AppendOnly() {
			return invalid("DELTA_CANNOT_MODIFY_APPEND_ONLY", "W-426", "the table is append-only (delta.appendOnly=true): rows cannot be deleted or changed")
		}
		if r.ExtendedFileMetadata && (r.PartitionValues == nil || r.Size == nil) {
			return invalid("DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", "W-202", "remove %s: partitionValues or size is missing", r.Path)
		}
	}
	if err := checkDomains(a.Domains, c.opts.drops); err != nil {
		return err
	}
	if len(a.Domains) > 0 && !c.after.Supports(DomainMetadataF) && c.opts.drops != DomainMetadataF {
		return invalid("DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", "W-306", "domain metadata needs the feature %s", DomainMetadataF)
	}
	return nil
}

// validateTable holds staged protocol and metadata to W-101, W-205, W-303, W-306,
// W-401, W-502, W-506 and W-905.
func (c *committer) validateTable(a *Actions) error {
	if c.config == nil && (a.Protocol == nil || a.Metadata == nil) {
		return invalid("DELTA_INVALID_COMMIT", "W-101", "the first commit of a table needs one protocol and one metaData")
	}
	if a.Protocol != nil && c.config != nil {
		old := c.config.Protocol
		f, dropped := old.downgrades(a.Protocol)
		if c.opts.drops != "" {
			// Without the one feature it is no downgrade.
			for _, g := range old.Features() {
				if g != c.opts.drops && !a.Protocol.Supports(g) {
					return invalid("DELTA_INVALID_PROTOCOL_DOWNGRADE", "W-303", "dropping %s would take %s as well", c.opts.drops, g)
				}
			}
		} else if dropped || a.Protocol.MinReaderVersion < old.MinReaderVersion || a.Protocol.MinWriterVersion < old.MinWriterVersion {
			return invalid("DELTA_INVALID_PROTOCOL_DOWNGRADE", "W-303", "protocol (%d, %d) cannot become (%d, %d) %s",
				old.MinReaderVersion, old.MinWriterVersion, a.Protocol.MinReaderVersion, a.Protocol.MinWriterVersion, f)
		}
	}
	if a.Protocol == nil && a.Metadata == nil {
		return nil
	}
	return checkTable(c.config, c.after, changesData(a), c.opts.Unmaps && c.opts.NoRebase)
}

// CheckTable holds a new version of a table's protocol and metadata to the rules of
// W-205, W-306, W-401, W-502, W-503, W-506 and W-905, as every commit does; it is for
// callers that want to know before they write files. before is nil for a new table;
// changesData is whether the same commit changes rows.
func CheckTable(before, after *TableConfig, changesData bool) error {
	return checkTable(before, after, changesData, false)
}

// checkTable is CheckTable; unmaps allows going back from column mapping.
func checkTable(before, after *TableConfig, changesData, unmaps bool) error {
	if missing := after.unsupportedUses(); missing != nil {
		return invalid("DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", "W-306", "the metadata uses what the protocol does not support: %s", strings.Join(missing, ", "))
	}
	if before != nil && after.Metadata == before.Metadata {
		return nil
	}
	if after.RowTracking() && after.Props.RowTrackingSuspended {
		return invalid("DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION", "W-804", "delta.enableRowTracking and delta.rowTrackingSuspended cannot both be true")
	}
	for k := range after.Metadata.Configuration {
		if isProtocolProperty(k) {
			return invalid("DELTA_UNKNOWN_CONFIGURATION", "W-205", "%s is a request to the protocol and is never stored", k)
		}
	}
	if err := schema.CheckNames(after.Schema, after.Mode() != schema.ModeNone); err != nil {
		return ruleError("W-401", err)
	}
	if after.Mode() != schema.ModeNone {
		if err := schema.CheckMapping(after.Schema, after.Props.ColumnMappingMaxID); err != nil {
			return ruleError("W-502", err)
		}
		if before != nil && after.Props.ColumnMappingMaxID < before.Props.ColumnMappingMaxID {
			return invalid("DELTA_COLUMN_MAPPING_SET_COLUMN_ID_NOT_SET", "W-502", "delta.columnMapping.maxColumnId cannot go down from %d to %d",
				before.Props.ColumnMappingMaxID, after.Props.ColumnMappingMaxID)
		}
	}
	if before != nil && before.Mode() != after.Mode() && !(unmaps && after.Mode() == schema.ModeNone) && (before.Mode() != schema.ModeNone || after.Mode() != schema.ModeName) {
		return invalid("DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", "W-503", "column mapping cannot go from %s to %s", before.Mode(), after.Mode())
	}
	if after.WritesChangeFeed() {
		if before != nil && changesData && remapped(before, after) {
			return invalid("DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION", "W-506",
				"one commit of a table with a change feed cannot both change rows and switch column mapping on, rename or drop columns")
		}
		for _, f := range after.Schema.Fields {
			switch strings.ToLower(f.Name) {
			case "_change_type", "_commit_version", "_commit_timestamp":
				return invalid("DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", "W-905", "column %s is reserved for the change feed", f.Name)
			}
		}
	}
	return nil
}

func changesData(a *Actions) bool {
	for _, f := range a.Adds {
		if f.DataChange {
			return true
		}
	}
	for _, r := range a.Removes {
		if r.DataChange {
			return true
		}
	}
	return len(a.CDC) > 0
}

// remapped is true when a table of two versions switches column mapping on, or has a
// mapped column under another name or not at all.
func remapped(before, after *TableConfig) bool {
	if before.Mode() != after.Mode() {
		return true
	}
	if after.Mode() == schema.ModeNone {
		return false
	}
	now := map[string]string{}
	logicalNames(after.Schema, "", now)
	old := map[string]string{}
	logicalNames(before.Schema, "", old)
	for path, name := range old {
		if now[path] != name {
			return true
		}
	}
	return false
}

// logicalNames maps the physical path of every field to its name.
func logicalNames(t schema.Type, path string, out map[string]string) {
	switch t := t.(type) {
	case *schema.Struct:
		for _, f := range t.Fields {
			at := path + "\x00" + schema.PhysicalName(f)
			out[at] = f.Name
			logicalNames(f.Type, at, out)
		}
	case *schema.Array:
		logicalNames(t.Elem, path+"\x00element", out)
	case *schema.Map:
		logicalNames(t.Key, path+"\x00key", out)
		logicalNames(t.Value, path+"\x00value", out)
	}
}

func ruleError(rule string, err error) error {
	var r *schema.RuleError
	if errors.As(err, &r) {
		return &InvalidError{ErrorCode: r.Code(), Rule: rule, Reason: "table metadata", Cause: err}
	}
	return err
}

// unsupportedUses lists features that metadata uses without protocol support.
func (c *TableConfig) unsupportedUses() []string {
	var out []string
	need := func(f Feature, how string) {
		if how != "" && !c.Supports(f) {
			out = append(out, fmt.Sprintf("%s (%s)", f, how))
		}
	}
	on := func(key string, set bool) string {
		if set {
			return "delta." + key
		}
		return ""
	}
	need(AppendOnly, on("appendOnly", c.Props.AppendOnly))
	need(ChangeDataFeed, on("enableChangeDataFeed", c.Props.ChangeDataFeed))
	need(DeletionVectors, on("enableDeletionVectors", c.Props.DeletionVectors))
	if !c.Supports(TypeWideningPreview) {
		need(TypeWidening, on("enableTypeWidening", c.Props.TypeWidening))
	}
	need(ColumnMapping, on("columnMapping.mode", c.Props.ColumnMappingMode != schema.ModeNone))
	need(InCommitTimestamp, on("enableInCommitTimestamps", c.Props.InCommitTimestamps))
	need(RowTracking, on("enableRowTracking", c.Props.RowTracking))
	need(V2Checkpoint, on("checkpointPolicy", c.Props.CheckpointPolicy == "v2"))
	need(CheckConstraints, c.constraint())
	need(GeneratedColumns, c.fieldWith("delta.generationExpression"))
	need(IdentityColumns, c.fieldWith("delta.identity.start"))
	need("allowColumnDefaults", c.fieldWith("CURRENT_DEFAULT"))
	need(TimestampNTZ, c.columnOf(schema.TimestampNTZ))
	if !c.Supports(VariantTypePreview) {
		need(VariantType, c.columnOf(schema.Variant))
	}
	return out
}

// columnOf names the first column, at any depth, of a type.
func (c *TableConfig) columnOf(want schema.Type) string {
	var has func(t schema.Type) bool
	has = func(t schema.Type) bool {
		switch t := t.(type) {
		case *schema.Struct:
			for _, f := range t.Fields {
				if has(f.Type) {
					return true
				}
			}
			return false
		case *schema.Array:
			return has(t.Elem)
		case *schema.Map:
			return has(t.Key) || has(t.Value)
		}
		return t == want
	}
	for _, f := range c.Schema.Fields {
		if has(f.Type) {
			return "column " + f.Name
		}
	}
	return ""
}

// checkDuplicates is W-206: no two actions of a commit reconcile with each other.
func checkDuplicates(a *Actions) error {
	dup := func(what, name string) error {
		return invalid("DELTA_DUPLICATE_ACTIONS_FOUND", "W-206", "%s %q occurs twice in one commit", what, name)
	}
	apps := map[string]bool{}
	for _, t := range a.Txns {
		if apps[t.AppID] {
			return dup("txn", t.AppID)
		}
		apps[t.AppID] = true
	}
	domains := map[string]bool{}
	for _, d := range a.Domains {
		if domains[d.Domain] {
			return dup("domainMetadata", d.Domain)
		}
		domains[d.Domain] = true
	}
	adds := map[string]string{}
	for _, f := range a.Adds {
		k, err := keyOf(f.Path, f.DeletionVector)
		if err != nil {
			return invalid("DELTA_INVALID_PATH", "R-201", "add %q: %v", f.Path, err)
		}
		if _, twice := adds[k.path]; twice {
			return dup("add", f.Path)
		}
		adds[k.path] = k.dv
	}
	removes := map[string]bool{}
	for _, r := range a.Removes {
		k, err := keyOf(r.Path, r.DeletionVector)
		if err != nil {
			return invalid("DELTA_INVALID_PATH", "R-201", "remove %q: %v", r.Path, err)
		}
		if removes[k.path] {
			return dup("remove", r.Path)
		}
		removes[k.path] = true
		if dv, both := adds[k.path]; both && dv == k.dv {
			return invalid("DELTA_DUPLICATE_ACTIONS_FOUND", "W-206", "file %q is both added and removed with the same deletion vector", r.Path)
		}
	}
	cdc := map[string]bool{}
	for _, f := range a.CDC {
		if cdc[f.Path] {
			return dup("cdc", f.Path)
		}
		cdc[f.Path] = true
	}
	return nil
}

// checkDataChange is W-207: adds and removes of one commit share dataChange.
func checkDataChange(a *Actions) error {
	var changing, moving bool
	for _, f := range a.Adds {
		changing, moving = changing || f.DataChange, moving || !f.DataChange
	}
	for _, r := range a.Removes {
		changing, moving = changing || r.DataChange, moving || !r.DataChange
	}
	if changing && moving {
		return invalid("DELTA_INVALID_ACTION", "W-207", "a commit cannot mix dataChange true and false")
	}
	if moving && len(a.CDC) > 0 {
		return invalid("DELTA_INVALID_ACTION", "W-902", "a commit that changes no data cannot have change files")
	}
	return nil
}

// checkFile is W-201: the keys of partitionValues are the partition columns.
func checkFile(what, path string, values map[string]*string, keys []string) error {
	if _, err := canonicalPath(path); err != nil || path == "" {
		return invalid("DELTA_INVALID_PATH", "R-201", "%s %q: not a path", what, path)
	}
	ok := len(values) == len(keys)
	for _, k := range keys {
		_, has := values[k]
		ok = ok && has
	}
	if ok {
		return nil
	}
	got := make([]string, 0, len(values))
	for k := range values {
		got = append(got, k)
	}
	sort.Strings(got)
	return invalid("DELTA_INVALID_PARTITION_VALUES", "W-201", "%s %s: partitionValues has keys %q, the partition columns are %q", what, path, got, keys)
}

func isProtocolProperty(key string) bool {
	k := strings.ToLower(key)
	return k == "delta.minreaderversion" || k == "delta.minwriterversion" || k == "delta.ignoreprotocoldefaults" ||
		strings.HasPrefix(k, "delta.feature.")
}

// TakeProtocolProperties splits requests to the protocol from table properties
// (W-205, W-307): delta.feature.<name>=supported asks for a feature; for the version
// keys see [RequestedVersions].
func TakeProtocolProperties(conf map[string]string) (rest map[string]string, features []Feature, err error) {
	rest = make(map[string]string, len(conf))
	for k, v := range conf {
		if !isProtocolProperty(k) {
			rest[k] = v
			continue
		}
		const prefix = "delta.feature."
		if len(k) <= len(prefix) || !strings.EqualFold(k[:len(prefix)], prefix) {
			continue
		}
		if v != "supported" && v != "enabled" {
			return nil, nil, invalid("DELTA_UNSUPPORTED_FEATURE_STATUS", "W-307", `%s=%q: the value must be "supported"`, k, v)
		}
		features = append(features, Feature(canonical(k[len(prefix):])))
	}
	sort.Slice(features, func(i, j int) bool { return features[i] < features[j] })
	return rest, features, nil
}

// RequestedVersions are the protocol versions that properties ask for by
// delta.minReaderVersion and delta.minWriterVersion, 0 where they ask for none. Reader 2
// needs writer 5 and reader 3 writer 7, and a writer that low is raised, as Spark does.
func RequestedVersions(conf map[string]string) (reader, writer int, err error) {
	for k, v := range conf {
		for _, want := range []struct {
			key  string
			most int
			out  *int
		}{{"delta.minReaderVersion", 3, &reader}, {"delta.minWriterVersion", 7, &writer}} {
			if !strings.EqualFold(k, want.key) {
				continue
			}
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil || n < 1 {
				return 0, 0, invalid("DELTA_PROTOCOL_PROPERTY_NOT_INT", "W-307", "%s=%q: the value must be a whole number from 1 to %d", want.key, v, want.most)
			}
			if n > want.most {
				return 0, 0, invalid("DELTA_INVALID_PROTOCOL_VERSION", "W-307", "%s=%d: the highest version that there is is %d", want.key, n, want.most)
			}
			*want.out = n
		}
	}
	switch reader {
	case 2:
		writer = max(writer, 5)
	case 3:
		writer = 7
	}
	return reader, writer, nil
}

// AtLeast is p with versions that are not below those given; what versions imply p then
// supports, and it keeps its features. Version 7 of writers, or 3 of readers, makes p list
// them by name. 0 asks for nothing.
func (p *Protocol) AtLeast(reader, writer int) (*Protocol, error) {
	if reader <= p.MinReaderVersion && writer <= p.MinWriterVersion {
		return p, nil
	}
	if writer < 7 && p.MinWriterVersion < 7 {
		out := &Protocol{MinReaderVersion: max(p.MinReaderVersion, reader), MinWriterVersion: max(p.MinWriterVersion, writer)}
		return out, nil
	}
	if writer < 7 { // p lists its features
		out, err := p.With((&Protocol{MinReaderVersion: max(1, reader), MinWriterVersion: writer}).Features()...)
		if err == nil && out.MinReaderVersion < reader {
			err = invalid("DELTA_INVALID_PROTOCOL_VERSION", "W-307", "reader version %d asks for no feature that writer version %d has", reader, writer)
		}
		return out, err
	}
	out := &Protocol{MinReaderVersion: max(p.MinReaderVersion, reader), MinWriterVersion: 7, WriterFeatures: []string{}}
	for _, f := range p.Features() {
		out.WriterFeatures = append(out.WriterFeatures, string(f))
		if row, known := lookupFeature(string(f)); out.MinReaderVersion == 3 && (known && row.rw || p.bindsReaders(f)) {
			out.ReaderFeatures = append(out.ReaderFeatures, string(f))
		}
	}
	if out.MinReaderVersion == 3 && out.ReaderFeatures == nil {
		out.ReaderFeatures = []string{}
	}
	return out, nil
}
