package delta

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// PropertyOptions are settings of [Table.SetProperties]; the zero value is the default.
type PropertyOptions struct {
	// Unset lists properties to remove.
	Unset []string
	// Upgrade allows a feature that older readers do not know (column mapping,
	// deletion vectors) to be added to the protocol (W-305).
	Upgrade      bool
	UserMetadata string
}

// UpgradeError: the properties need a protocol feature that shuts readers out, and
// the caller did not ask for that.
type UpgradeError struct {
	Features []deltalog.Feature
	// Reader, if not 0, is the reader version that was asked for by number.
	Reader int
}

func (e *UpgradeError) Error() string {
	if e.Reader > 0 {
		return fmt.Sprintf("reader version %d shuts out older readers; ask for the upgrade explicitly", e.Reader)
	}
	names := make([]string, len(e.Features))
	for i, f := range e.Features {
		names[i] = string(f)
	}
	return "the properties need features that older readers do not know: " + strings.Join(names, ", ") + "; ask for the upgrade explicitly"
}

// Code is the stable error code.
func (e *UpgradeError) Code() string { return "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT" }

// Is answers the class ErrInvalid.
func (e *UpgradeError) Is(target error) bool { return target == ErrInvalid }

// SetProperties changes table properties in one commit, and the protocol with them
// where they need it: the change feed is switched on this way. When nothing differs
// nothing is committed.
func (t *Table) SetProperties(ctx context.Context, props map[string]string, o PropertyOptions) (Result, error) {
	config, features, err := checkProperties(props)
	if err != nil {
		return Result{}, err
	}
	reader, writer, err := deltalog.RequestedVersions(props)
	if err != nil {
		return Result{}, err
	}
	if strings.EqualFold(config[propRowTracking], "true") {
		if err := t.prepareRowTracking(ctx, o.UserMetadata); err != nil {
			return Result{}, err
		}
	}
	return t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		m, p, err := t.altered(snap, config, features, [2]int{reader, writer}, o)
		if err != nil {
			return Result{}, err
		}
		tx := t.log.Begin(snap)
		if p != snap.Protocol {
			tx.SetProtocol(p)
		}
		if m != nil {
			tx.SetMetadata(m)
		}
		if tx.Actions().Empty() {
			return nothing(snap), nil
		}
		operation, params := "SET TBLPROPERTIES", map[string]string{"properties": jsonText(config)}
		if len(props) == 0 {
			operation, params = "UNSET TBLPROPERTIES", map[string]string{"properties": jsonText(o.Unset), "ifExists": "true"}
		}
		return t.finish(ctx, tx, &Staged{}, WriteOptions{UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
			Operation: operation, Parameters: params, Metrics: map[string]string{},
		})
	})
}

// altered is the metadata (nil when it stays) and protocol after the change; versions are
// the reader and the writer version asked for, 0 is none.
func (t *Table) altered(snap *deltalog.Snapshot, config map[string]string, features []deltalog.Feature, versions [2]int, o PropertyOptions) (*deltalog.Metadata, *deltalog.Protocol, error) {
	m := *snap.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	if m.Configuration == nil {
		m.Configuration = map[string]string{}
	}
	for _, k := range o.Unset {
		for have := range m.Configuration {
			if strings.EqualFold(have, k) {
				delete(m.Configuration, have)
			}
		}
	}
	for k, v := range config {
		for have := range m.Configuration {
			if strings.EqualFold(have, k) {
				delete(m.Configuration, have)
			}
		}
		m.Configuration[k] = v
	}
	t.nameHidden(m.Configuration)
	if err := checkModeChange(snap, m.Configuration); err != nil {
		return nil, nil, err
	}
	if mode := schema.Mode(strings.ToLower(m.Configuration["delta.columnMapping.mode"])); mode == schema.ModeName && snap.Mode() == schema.ModeNone {
		// Files stay as they are: physical names are today's names (W-503).
		s, maxID := schema.AssignMapping(snap.Schema, snap.Props.ColumnMappingMaxID, nil)
		m.SchemaString = s.JSON()
		m.Configuration["delta.columnMapping.maxColumnId"] = strconv.Itoa(int(maxID))
	}
	need := append(slices.Clone(features), featuresOf(m.Configuration)...)
	if snap.Supports(deltalog.TypeWideningPreview) {
		need = slices.DeleteFunc(need, func(f deltalog.Feature) bool { return f == deltalog.TypeWidening })
	}
	for i, have := range []int{snap.Protocol.MinReaderVersion, snap.Protocol.MinWriterVersion} {
		if want := versions[i]; want > 0 && want < have {
			return nil, nil, &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_PROTOCOL_DOWNGRADE", Rule: "W-303",
				Reason: fmt.Sprintf("%s=%d is below the table's %d: versions do not go back; drop the features that need them", []string{"delta.minReaderVersion", "delta.minWriterVersion"}[i], want, have)}
		}
	}
	p, err := snap.Protocol.AtLeast(versions[0], versions[1])
	if err == nil {
		p, err = p.With(need...)
	}
	if err != nil {
		return nil, nil, err
	}
	if !o.Upgrade && p.MinReaderVersion > snap.Protocol.MinReaderVersion && versions[0] > snap.Protocol.MinReaderVersion {
		return nil, nil, &UpgradeError{Reader: versions[0]}
	}
	if !o.Upgrade {
		var shut []deltalog.Feature
		for _, f := range need {
			if !snap.Supports(f) && (f == deltalog.ColumnMapping || slices.Contains(p.ReaderFeatures, string(f))) {
				shut = append(shut, f)
			}
		}
		if len(shut) > 0 {
			return nil, nil, &UpgradeError{Features: shut}
		}
	}
	if _, set := config["delta.dataSkippingStatsColumns"]; set {
		cfg, err := deltalog.NewTableConfig(p, &m)
		if err == nil {
			err = checkSkipping(cfg)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if maps.Equal(m.Configuration, snap.Metadata.Configuration) && m.SchemaString == snap.Metadata.SchemaString {
		if p == snap.Protocol {
			return nil, p, nil
		}
		return nil, p, mayWrite(p, snap.Metadata)
	}
	return &m, p, mayWrite(p, &m)
}

// checkSkipping refuses statistics of a column that is not there (W-603).
func checkSkipping(cfg *deltalog.TableConfig) error {
	for _, path := range cfg.Props.SkippingStatsColumns {
		if _, err := schema.Lookup(cfg.Schema, path); err != nil {
			return &deltalog.InvalidError{ErrorCode: "DELTA_COLUMN_NOT_FOUND", Rule: "W-603", Reason: "delta.dataSkippingStatsColumns: " + schema.PathText(path) + ": there is no such column", Cause: err}
		}
	}
	return nil
}

// mayWrite refuses to make a table that this version could not write any more.
func mayWrite(p *deltalog.Protocol, m *deltalog.Metadata) error {
	cfg, err := deltalog.NewTableConfig(p, m)
	if err != nil {
		return err
	}
	return cfg.Require(deltalog.OpWrite)
}

// checkModeChange is W-503: column mapping goes from none to name and nowhere else.
func checkModeChange(snap *deltalog.Snapshot, config map[string]string) error {
	have, want := snap.Mode(), schema.Mode(strings.ToLower(config["delta.columnMapping.mode"]))
	if want == "" {
		want = schema.ModeNone
	}
	if have == want || have == schema.ModeNone && want == schema.ModeName {
		return nil
	}
	reason := "switching it off rewrites every file under its plain names: drop the feature columnMapping"
	if have == schema.ModeNone {
		reason = "files that are there have no field ids: use mode name, or create another table with mode id"
	}
	return &deltalog.InvalidError{ErrorCode: "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", Rule: "W-503",
		Reason: fmt.Sprintf("column mapping cannot go from %s to %s: %s", have, want, reason)}
}
