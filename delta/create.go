package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// CreateOptions describe a new table. Only Schema is required.
type CreateOptions struct {
	Schema      *schema.Struct
	PartitionBy []string
	// ClusterBy are up to four columns, or fields "a.b", by which Optimize puts rows in
	// order; it excludes PartitionBy.
	ClusterBy []string
	// Properties are table properties. delta.* names are held to the list of known
	// ones; delta.columnMapping.mode=name gives columns fresh physical names.
	Properties        map[string]string
	Name, Description string
	// IfNotExists opens the table that is there instead of failing with ErrExists,
	// whatever it looks like.
	IfNotExists bool
	// UserMetadata goes to the commit.
	UserMetadata string
}

// ExistsError: there is a table already.
type ExistsError struct{ URL string }

func (e *ExistsError) Error() string { return "table " + e.URL + " exists already" }

// Code is the stable error code.
func (e *ExistsError) Code() string { return "DELTA_TABLE_ALREADY_EXISTS" }

// Is answers the class ErrExists.
func (e *ExistsError) Is(target error) bool { return target == ErrExists || target == ErrInvalid }

// Create makes an empty table at the root of store, with the weakest protocol that
// fits (W-304). A folder with files that are not of a table is refused with a
// *[FolderError].
func Create(ctx context.Context, store storage.Store, c CreateOptions, o Options) (*Table, error) {
	t := newTable(store, o)
	exists, err := t.log.Exists(ctx)
	if err != nil {
		return nil, err
	}
	if !exists {
		protocol, metadata, err := t.plan(c)
		if err != nil {
			return nil, err
		}
		if err = t.checkFolder(ctx, metadata.PartitionColumns); err == nil {
			err = t.create(ctx, c, protocol, metadata)
			if err == nil || !errors.Is(err, ErrConflict) {
				return t, err
			}
			// Another creator was first.
		} else if exists, again := t.log.Exists(ctx); again != nil || !exists {
			return nil, errors.Join(err, again)
		}
	}
	if !c.IfNotExists {
		return nil, &ExistsError{store.URL()}
	}
	return Open(ctx, store, o)
}

// plan makes the actions of version 0 and refuses what no table may be.
func (t *Table) plan(c CreateOptions) (*deltalog.Protocol, *deltalog.Metadata, error) {
	if c.Schema == nil || len(c.Schema.Fields) == 0 {
		return nil, nil, &deltalog.InvalidError{ErrorCode: "DELTA_EMPTY_DATA", Reason: "a table needs at least one column"}
	}
	config, features, err := checkProperties(c.Properties)
	if err != nil {
		return nil, nil, err
	}
	t.nameHidden(config)
	s, mapped := c.Schema, false
	if m := config["delta.columnMapping.mode"]; m != "" && !strings.EqualFold(m, "none") {
		var maxID int32
		mapped = true
		s, maxID = schema.AssignMapping(s, 0, func() string { return "col-" + t.opts.NewID() })
		config["delta.columnMapping.maxColumnId"] = strconv.Itoa(int(maxID))
	}
	if err := errors.Join(schema.CheckNames(s, mapped), schema.CheckNewTable(s, c.PartitionBy)); err != nil {
		return nil, nil, invalidSchema(err)
	}
	features = append(features, featuresOf(config)...)
	features = append(features, ruleFeatures(s, config)...)
	if uses(s, schema.Variant) {
		features = append(features, deltalog.VariantType)
	}
	if uses(s, schema.TimestampNTZ) {
		features = append(features, deltalog.TimestampNTZ)
	}
	if len(c.ClusterBy) > 0 {
		features = append(features, deltalog.Clustering)
	}
	reader, writer, err := deltalog.RequestedVersions(c.Properties)
	if err != nil {
		return nil, nil, err
	}
	protocol, err := deltalog.NewProtocol()
	if err == nil {
		protocol, err = protocol.AtLeast(reader, writer)
	}
	if err == nil {
		protocol, err = protocol.With(features...)
	}
	if err != nil {
		return nil, nil, err
	}
	partition := make([]string, len(c.PartitionBy))
	for i, p := range c.PartitionBy {
		partition[i] = s.Fields[s.Index(p)].Name
	}
	now := t.opts.Clock().UnixMilli()
	m := &deltalog.Metadata{
		ID: t.opts.NewID(), Name: c.Name, Description: c.Description,
		Format:       deltalog.Format{Provider: "parquet", Options: map[string]string{}},
		SchemaString: s.JSON(), PartitionColumns: partition, CreatedTime: &now, Configuration: config,
	}
	cfg, err := deltalog.NewTableConfig(protocol, m)
	if err != nil {
		return nil, nil, err
	}
	if err := cfg.Require(deltalog.OpWrite); err != nil {
		return nil, nil, err
	}
	if err := checkSkipping(cfg); err != nil {
		return nil, nil, err
	}
	if len(c.ClusterBy) > 0 {
		if _, _, err := t.clusterDomain(cfg, c.ClusterBy); err != nil {
			return nil, nil, err
		}
	}
	return protocol, m, t.checkNewRules(cfg)
}

func (t *Table) create(ctx context.Context, c CreateOptions, p *deltalog.Protocol, m *deltalog.Metadata) error {
	tx := t.log.Begin(nil)
	tx.SetProtocol(p)
	tx.SetMetadata(m)
	params := map[string]string{
		"partitionBy": jsonText(m.PartitionColumns), "clusterBy": "[]", "isManaged": "false", "properties": jsonText(m.Configuration),
	}
	if c.Description != "" {
		params["description"] = c.Description
	}
	if len(c.ClusterBy) > 0 {
		cfg, err := deltalog.NewTableConfig(p, m)
		if err != nil {
			return err
		}
		d, names, err := t.clusterDomain(cfg, c.ClusterBy)
		if err != nil {
			return err
		}
		tx.SetDomain(d)
		params["clusterBy"] = jsonText(names)
	}
	_, err := tx.Commit(ctx, deltalog.CommitOptions{
		Operation: "CREATE TABLE", Parameters: params, Metrics: map[string]string{}, UserMetadata: c.UserMetadata, NoRebase: true,
	})
	return err
}

// jsonText is v as JSON text without HTML escapes.
func jsonText(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v) // maps and lists of strings cannot fail
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func invalidSchema(err error) error {
	var r *schema.RuleError
	if errors.As(err, &r) {
		return &deltalog.InvalidError{ErrorCode: r.Code(), Reason: "table schema", Cause: err}
	}
	return err
}

// uses reports whether a type occurs anywhere in t.
func uses(t, want schema.Type) bool {
	switch t := t.(type) {
	case *schema.Struct:
		for _, f := range t.Fields {
			if uses(f.Type, want) {
				return true
			}
		}
		return false
	case *schema.Array:
		return uses(t.Elem, want)
	case *schema.Map:
		return uses(t.Key, want) || uses(t.Value, want)
	}
	return t == want
}
