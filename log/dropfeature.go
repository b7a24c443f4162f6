package deltalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Dropping a feature is the one legal downgrade of a protocol (W-303). What the feature
// left in the newest version must be gone, by a switch in the metadata, which is turned
// here, or by rewriting files, which the table does before. For a feature that binds
// readers the history counts as well: clients that do not know it may have to replay
// older commits. Either the history is truncated first, or the version of the drop gets
// a checkpoint that stays (checkpointProtection, W-308).

// DropFeatureOptions of [Log.DropFeature].
type DropFeatureOptions struct {
	// TruncateHistory needs a log in which no version uses the feature, and cleans it
	// first with delta.dropFeatureTruncateHistory.retentionDuration (24 hours) instead
	// of delta.logRetentionDuration. Without it the feature checkpointProtection comes
	// in for one that binds readers.
	TruncateHistory bool
	UserMetadata    string
}

// DropFeatureResult is what became of it.
type DropFeatureResult struct {
	// Version is that of the new protocol.
	Version  int64
	Protocol *Protocol
	// Protected is true when checkpointProtection was added for it.
	Protected bool
}

// FeatureTraces lists what in the snapshot still uses a feature: properties, columns,
// domains, files with deletion vectors. switches are those that [Log.DropFeature] turns
// off by itself, rewrites those that the table must rewrite away before.
func (s *Snapshot) FeatureTraces(ctx context.Context, f Feature) (switches, rewrites []string, err error) {
	rule := dropRules()[f]
	for _, key := range rule.properties {
		if v, ok := s.property(key); ok && !rule.off(key, v) {
			switches = append(switches, "delta."+key+"="+v)
		}
	}
	for _, name := range rule.domains {
		if _, ok := s.Domain(name); ok {
			switches = append(switches, "domain "+name)
		}
	}
	if rule.uses != nil {
		if how := rule.uses(s.TableConfig); how != "" {
			rewrites = append(rewrites, how)
		}
	}
	if f == DomainMetadataF {
		for _, d := range s.Domains() {
			rewrites = append(rewrites, "domain "+d.Domain)
		}
	}
	if f == DeletionVectors {
		files, err := s.FileList(ctx)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for _, a := range files {
			if a.DeletionVector != nil {
				n++
			}
		}
		if n > 0 {
			rewrites = append(rewrites, fmt.Sprintf("%d files with deletion vectors (purge them)", n))
		}
	}
	return switches, rewrites, nil
}

// dropRule says what a feature leaves in a table.
type dropRule struct {
	// properties are removed by the drop; values that mean off do not count as use.
	properties []string
	domains    []string
	// uses is what only a rewrite removes, "" for nothing.
	uses func(*TableConfig) string
}

func (dropRule) off(key, v string) bool {
	switch key {
	case "checkpointPolicy":
		return !strings.EqualFold(v, "v2")
	case "columnMapping.mode":
		return strings.EqualFold(v, "none")
	case "requireCheckpointProtectionBeforeVersion":
		return v == "0"
	}
	return strings.EqualFold(v, "false")
}

func dropRules() map[Feature]dropRule {
	field := func(key string) func(*TableConfig) string {
		return func(c *TableConfig) string { return c.fieldWith(key) }
	}
	column := func(t schema.Type) func(*TableConfig) string {
		return func(c *TableConfig) string { return c.columnOf(t) }
	}
	widened := func(c *TableConfig) string {
		if schema.HasTypeChanges(c.Schema) {
			return "columns whose type was widened (rewrite their files)"
		}
		return ""
	}
	mapped := func(c *TableConfig) string {
		if c.Mode() != schema.ModeNone {
			return "delta.columnMapping.mode=" + string(c.Mode())
		}
		return c.fieldWith("delta.columnMapping.physicalName")
	}
	none := dropRule{}
	return map[Feature]dropRule{
		AppendOnly:       {properties: []string{"appendOnly"}},
		Invariants:       {uses: field("delta.invariants")},
		CheckConstraints: {uses: (*TableConfig).constraint},
		ChangeDataFeed:   {properties: []string{"enableChangeDataFeed", "enableChangeDataCapture"}},
		GeneratedColumns: {uses: field("delta.generationExpression")},
		IdentityColumns:  {uses: field("delta.identity.start")},
		ColumnDefaults:   {uses: field("CURRENT_DEFAULT")},
		ColumnMapping:    {uses: mapped, properties: []string{"columnMapping.maxColumnId"}},
		DeletionVectors:  {properties: []string{"enableDeletionVectors"}},
		TimestampNTZ:     {uses: column(schema.TimestampNTZ)},
		VariantType:      {uses: column(schema.Variant)},
		V2Checkpoint:     {properties: []string{"checkpointPolicy"}},
		InCommitTimestamp: {properties: []string{"enableInCommitTimestamps", "inCommitTimestampEnablementVersion",
			"inCommitTimestampEnablementTimestamp"}},
		RowTracking: {properties: []string{"enableRowTracking", "rowTrackingSuspended", "rowTracking.materializedRowIdColumnName",
			"rowTracking.materializedRowCommitVersionColumnName"}, domains: []string{rowTrackingDomain}},
		Clustering:            {domains: []string{ClusteringDomain}},
		TypeWidening:          {properties: []string{"enableTypeWidening"}, uses: widened},
		TypeWideningPreview:   {properties: []string{"enableTypeWidening"}, uses: widened},
		MaterializePartitions: {properties: []string{"enableMaterializePartitionColumnsFeature"}},
		CheckpointProtection:  {properties: []string{"requireCheckpointProtectionBeforeVersion"}},
		DomainMetadataF:       none,
		VacuumProtocolCheck:   none,
		"icebergCompatV1":     {properties: []string{"enableIcebergCompatV1"}},
		"icebergCompatV2":     {properties: []string{"enableIcebergCompatV2"}},
	}
}

// Without is p after a feature was dropped: the weakest protocol with the features
// that are left, legacy versions where they say exactly that.
func (p *Protocol) Without(f Feature) (*Protocol, error) {
	row, ok := lookupFeature(string(f))
	if !ok || !p.Supports(row.name) {
		return nil, invalid("DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT", "W-303", "the table's protocol has no feature %s", f)
	}
	left := slices.DeleteFunc(p.Features(), func(g Feature) bool { return g == row.name })
	for _, g := range left {
		if r, known := lookupFeature(string(g)); known && slices.Contains(r.needs, row.name) {
			return nil, invalid("DELTA_FEATURE_DROP_DEPENDENT_FEATURE", "W-303", "feature %s cannot be dropped before %s, which needs it", row.name, g)
		}
	}
	for w := 1; w < 7; w++ {
		for r := 1; r <= 2; r++ {
			legacy := &Protocol{MinReaderVersion: r, MinWriterVersion: w}
			if slices.Equal(legacy.Features(), left) {
				return legacy, nil
			}
		}
	}
	out := &Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{}}
	for _, g := range left {
		if r, known := lookupFeature(string(g)); known && r.rw {
			need := 3
			if r.reader > 0 {
				need = r.reader
			}
			out.MinReaderVersion = max(out.MinReaderVersion, need)
		} else if !known && p.bindsReaders(g) {
			out.MinReaderVersion = 3
		}
	}
	for _, g := range left {
		out.WriterFeatures = append(out.WriterFeatures, string(g))
	}
	if out.MinReaderVersion == 3 {
		out.ReaderFeatures = []string{}
		for _, g := range left {
			if r, known := lookupFeature(string(g)); known && r.rw || !known && p.bindsReaders(g) {
				out.ReaderFeatures = append(out.ReaderFeatures, string(g))
			}
		}
	}
	return out, nil
}

// dropTries bounds the commits that a drop loses to others before it gives up.
const dropTries = 20

// DropFeature takes a feature out of the protocol of the newest version. Errors, all
// [ErrInvalid] unless said otherwise and before anything is written: the feature is not
// there or another one needs it; DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE;
// DELTA_FEATURE_DROP_TRACES when rewrites are needed first; with TruncateHistory also
// DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD after the switches were turned off in a
// commit of their own, and DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST.
func (l *Log) DropFeature(ctx context.Context, f Feature, opts DropFeatureOptions) (DropFeatureResult, error) {
	for try := 1; ; try++ {
		r, err := l.dropFeature(ctx, f, opts)
		if !errors.Is(err, ErrConflict) || try == dropTries {
			return r, err
		}
	}
}

func (l *Log) dropFeature(ctx context.Context, f Feature, opts DropFeatureOptions) (DropFeatureResult, error) {
	s, err := l.Latest(ctx)
	if err != nil {
		return DropFeatureResult{}, err
	}
	if err := s.Require(OpWrite); err != nil {
		return DropFeatureResult{}, err
	}
	row, _ := lookupFeature(string(f))
	after, err := s.Protocol.Without(f)
	if err != nil {
		return DropFeatureResult{}, err
	}
	f = row.name
	rule, removable := dropRules()[f]
	if !removable {
		return DropFeatureResult{}, invalid("DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", "W-303", "feature %s cannot be dropped: make a table without it and append the rows to that", f)
	}
	switches, rewrites, err := s.FeatureTraces(ctx, f)
	if err != nil {
		return DropFeatureResult{}, err
	}
	if len(rewrites) > 0 {
		return DropFeatureResult{}, invalid("DELTA_FEATURE_DROP_TRACES", "W-303", "feature %s is in use: %s", f, strings.Join(rewrites, ", "))
	}
	history := row.rw || f == CheckpointProtection
	switch {
	case f == CheckpointProtection:
		if first, err := l.firstVersion(ctx); err != nil {
			return DropFeatureResult{}, err
		} else if first < s.Props.RequireCheckpointBefore && !opts.TruncateHistory {
			return DropFeatureResult{}, invalid("DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION", "W-308",
				"the log still has versions below %d, which checkpoints protect: drop the feature with history truncation", s.Props.RequireCheckpointBefore)
		}
	case !history:
		opts.TruncateHistory = false
	}
	if opts.TruncateHistory {
		if err := l.truncateFor(ctx, s, f, switches, opts); err != nil {
			return DropFeatureResult{}, err
		}
	}
	protect := history && !opts.TruncateHistory && f != CheckpointProtection
	tx := l.Begin(s)
	m := s.turnedOff(rule)
	if protect {
		if after, err = after.With(CheckpointProtection); err != nil {
			return DropFeatureResult{}, err
		}
		m.Configuration["delta.requireCheckpointProtectionBeforeVersion"] = strconv.FormatInt(s.Version+1, 10)
	}
	if !maps.Equal(m.Configuration, s.Metadata.Configuration) {
		tx.SetMetadata(m)
	}
	tx.SetProtocol(after)
	for _, name := range rule.domains {
		if d, ok := s.Domain(name); ok {
			tx.SetDomain(d.removal())
		}
	}
	r, err := tx.Commit(ctx, CommitOptions{
		Operation: "DROP FEATURE", Parameters: map[string]string{"featureName": string(f), "truncateHistory": strconv.FormatBool(opts.TruncateHistory)},
		UserMetadata: opts.UserMetadata, NoRebase: true, drops: f,
	})
	if err != nil {
		return DropFeatureResult{}, err
	}
	out := DropFeatureResult{Version: r.Version, Protocol: after, Protected: protect}
	if history && !r.Checkpoint {
		// Clients without the feature read from this checkpoint on.
		now, err := l.At(ctx, r.Version)
		if err == nil {
			err = l.WriteCheckpoint(ctx, now)
		}
		if err != nil {
			return out, fmt.Errorf("checkpoint of version %d after feature %s was dropped: %w", r.Version, f, err)
		}
	}
	return out, nil
}

// turnedOff is the metadata without the properties of a feature.
func (s *Snapshot) turnedOff(rule dropRule) *Metadata {
	m := *s.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	if m.Configuration == nil {
		m.Configuration = map[string]string{}
	}
	for k := range m.Configuration {
		for _, p := range rule.properties {
			if strings.EqualFold(k, "delta."+p) {
				delete(m.Configuration, k)
			}
		}
	}
	return &m
}

func (l *Log) firstVersion(ctx context.Context) (int64, error) {
	files, err := l.listOnce(ctx, 0)
	if err != nil || len(files) == 0 {
		return 0, err
	}
	return files[0].version, nil
}

// truncateFor makes the history free of a feature or says what keeps it from being so.
func (l *Log) truncateFor(ctx context.Context, s *Snapshot, f Feature, switches []string, opts DropFeatureOptions) error {
	if len(switches) > 0 && f != CheckpointProtection {
		tx := l.Begin(s)
		tx.SetMetadata(s.turnedOff(dropRules()[f]))
		r, err := tx.Commit(ctx, CommitOptions{Operation: "UNSET TBLPROPERTIES", Parameters: map[string]string{"feature": string(f)}, UserMetadata: opts.UserMetadata, NoRebase: true})
		if err != nil {
			return err
		}
		return invalid("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD", "W-303",
			"version %d turned %s off (%s); drop it again when the versions before it have expired", r.Version, f, strings.Join(switches, ", "))
	}
	keep := 24 * time.Hour
	if v, ok := s.property("dropFeatureTruncateHistory.retentionDuration"); ok {
		d, err := ParseInterval(v)
		if err != nil {
			return invalid("DELTA_INVALID_TABLE_PROPERTY", "W-303", "delta.dropFeatureTruncateHistory.retentionDuration=%q %v", v, err)
		}
		keep = d
	}
	if s.CheckpointVersion() != s.Version {
		if err := l.WriteCheckpoint(ctx, s); err != nil {
			return err
		}
	}
	cleaned, err := l.CleanUp(ctx, s, CleanUpOptions{Retention: max(keep, time.Nanosecond), exact: true, unprotect: f == CheckpointProtection})
	if err != nil {
		return err
	}
	first, err := l.firstVersion(ctx)
	if err != nil {
		return err
	}
	left := func(v int64, how string) error {
		reason := cleaned.Kept
		if reason != "" {
			reason = "; " + reason
		}
		return invalid("DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST", "W-303", "version %d in the log still uses %s (%s)%s", v, f, how, reason)
	}
	if f == CheckpointProtection {
		if first < s.Props.RequireCheckpointBefore {
			return left(first, "it is below the protected version")
		}
		return nil
	}
	old, err := l.At(ctx, first)
	if err != nil {
		return err
	}
	sw, rw, err := old.FeatureTraces(ctx, f)
	if err != nil {
		return err
	}
	if how := append(sw, rw...); len(how) > 0 {
		return left(first, how[0])
	}
	for c, err := range l.Commits(ctx, first, s.Version) {
		if err != nil {
			return err
		}
		if how := s.usedBy(c, f); how != "" {
			return left(c.Version, how)
		}
	}
	return nil
}

// usedBy says how a commit of the history uses a feature that binds readers, "" if not.
func (s *Snapshot) usedBy(c *Commit, f Feature) string {
	if f == DeletionVectors {
		for _, a := range c.Adds {
			if a.DeletionVector != nil {
				return "a deletion vector of " + a.Path
			}
		}
		for _, r := range c.Removes {
			if r.DeletionVector != nil {
				return "a deletion vector of " + r.Path
			}
		}
	}
	if c.Metadata == nil {
		return ""
	}
	cfg, err := NewTableConfig(s.Protocol, c.Metadata)
	if err != nil {
		return err.Error()
	}
	rule := dropRules()[f]
	for _, key := range rule.properties {
		if v, ok := cfg.property(key); ok && !rule.off(key, v) {
			return "delta." + key + "=" + v
		}
	}
	if rule.uses != nil {
		return rule.uses(cfg)
	}
	return ""
}
