package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// Alteration is one change of a table's schema or description, the argument of
// [Table.Alter]: [AddColumns], [DropColumns], [RenameColumn], [ChangeColumn],
// [ClusterBy], [SetDescription].
type Alteration interface {
	alter(a *alteration) error
}

// AlterOptions are settings of [Table.Alter]; the zero value is the default.
type AlterOptions struct {
	// Upgrade allows a feature that older readers do not know to be added to the
	// protocol (W-305): timestampNtz for a column of that type.
	Upgrade      bool
	UserMetadata string
}

// alteration is a change that is being made of one version.
type alteration struct {
	t    *Table
	snap *deltalog.Snapshot

	schema      *schema.Struct
	partition   []string
	config      map[string]string
	description string
	stats       [][]string // columns of delta.dataSkippingStatsColumns
	features    []deltalog.Feature
	domains     []*deltalog.DomainMetadata
	// notNull are columns that rows must be looked through for nulls in.
	notNull [][]string

	operation string
	params    map[string]string
}

// Alter makes one change of the table in one commit, named as Spark names it. Columns
// are given by [schema.ParsePath] texts. What a CHECK constraint, generated column or
// clustering uses is not changed under it (W-504); nothing is committed when nothing
// differs. Errors: deltalog.ErrInvalid with Spark's code, [*UpgradeError].
func (t *Table) Alter(ctx context.Context, change Alteration, o AlterOptions) (Result, error) {
	return t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		a := &alteration{t: t, snap: snap, schema: snap.Schema, partition: slices.Clone(snap.PartitionColumns()),
			config: maps.Clone(snap.Metadata.Configuration), description: snap.Metadata.Description, stats: snap.Props.SkippingStatsColumns}
		if err := change.alter(a); err != nil {
			return Result{}, invalidSchema(err)
		}
		cfg, err := a.after(o)
		if err != nil {
			return Result{}, err
		}
		tx := t.log.Begin(snap)
		if len(a.notNull) > 0 {
			tx.ReadWholeTable()
			if err := a.checkNulls(ctx); err != nil {
				return Result{}, err
			}
		}
		if cfg.Protocol != snap.Protocol {
			tx.SetProtocol(cfg.Protocol)
		}
		if cfg.Metadata != snap.Metadata {
			tx.SetMetadata(cfg.Metadata)
		}
		for _, d := range a.domains {
			tx.SetDomain(d)
		}
		if tx.Actions().Empty() {
			return nothing(snap), nil
		}
		return t.finish(ctx, tx, &Staged{}, WriteOptions{UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
			Operation: a.operation, Parameters: a.params, Metrics: map[string]string{}, NotBlind: len(a.notNull) > 0,
		})
	})
}

// after is the table as the change makes it.
func (a *alteration) after(o AlterOptions) (*deltalog.TableConfig, error) {
	if a.schema == a.snap.Schema && slices.Equal(a.partition, a.snap.PartitionColumns()) && maps.Equal(a.config, a.snap.Metadata.Configuration) &&
		a.description == a.snap.Metadata.Description && len(a.features) == 0 {
		return a.snap.TableConfig, nil
	}
	need := slices.Clone(a.features)
	if err := a.t.checkFeatures(a.snap.TableConfig, a.schema); err != nil {
		var up *UpgradeError
		if !o.Upgrade || !errors.As(err, &up) {
			return nil, err
		}
		need = append(need, up.Features...)
	}
	p, err := a.snap.Protocol.With(need...)
	if err != nil {
		return nil, err
	}
	m := *a.snap.Metadata
	m.Configuration, m.Description = a.config, a.description
	base, err := deltalog.NewTableConfig(p, &m)
	if err != nil {
		return nil, err
	}
	cfg, err := a.t.withSchema(base, a.schema, a.partition, false)
	if err != nil {
		return nil, err
	}
	if err := deltalog.CheckTable(a.snap.TableConfig, cfg, false); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(cfg.Metadata, a.snap.Metadata) {
		if p == a.snap.Protocol {
			return a.snap.TableConfig, nil
		}
		return deltalog.NewTableConfig(p, a.snap.Metadata)
	}
	if err := cfg.Require(deltalog.OpWrite); err != nil {
		return nil, err
	}
	if _, err := a.t.Rules(a.snap.TableConfig); err == nil {
		if err := a.t.checkNewRules(cfg); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// checkNulls looks for a row that a new NOT NULL forbids.
func (a *alteration) checkNulls(ctx context.Context) error {
	for _, path := range a.notNull {
		where := schema.PathText(path) + " IS NULL"
		s, err := a.t.Scan(ctx, ScanOptions{Version: &a.snap.Version, Where: where, Columns: []string{}, Limit: 1})
		if err != nil {
			return err
		}
		for b, err := range s.Batches(ctx) {
			if err != nil {
				return err
			}
			if b.NumRows() > 0 {
				return &ConstraintError{ErrorCode: "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", Column: strings.Join(path, "."), Row: -1,
					Reason: "it holds nulls, so it cannot become NOT NULL"}
			}
		}
	}
	return nil
}

// columnJSON is a column as Spark writes it into operationParameters, by its full name
// and without column mapping.
func columnJSON(parent []string, f schema.Field) json.RawMessage {
	f.Metadata = f.Metadata.Without(schema.MappingIDKey).Without(schema.MappingNameKey).Without(schema.MappingNestedIDsKey)
	f.Name = attribute(append(slices.Clone(parent), f.Name))
	text := (&schema.Struct{Fields: []schema.Field{f}}).JSON()
	return json.RawMessage(strings.TrimSuffix(strings.TrimPrefix(text, `{"type":"struct","fields":[`), "]}"))
}

// attribute is Spark's text of a column path: backticks only around dots.
func attribute(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		if parts[i] = p; strings.Contains(p, ".") {
			parts[i] = "`" + p + "`"
		}
	}
	return strings.Join(parts, ".")
}

// SetDescription gives the table a description; "" removes it.
type SetDescription struct{ Text string }

func (c SetDescription) alter(a *alteration) error {
	a.description = c.Text
	a.operation, a.params = "SET TBLPROPERTIES", map[string]string{"properties": jsonText(map[string]string{"comment": c.Text})}
	if c.Text == "" {
		a.operation, a.params = "UNSET TBLPROPERTIES", map[string]string{"properties": `["comment"]`, "ifExists": "true"}
	}
	return nil
}

// ClusterBy changes the clustering columns (W-823); none ends clustering. Files that
// are there stay as they are until OPTIMIZE.
type ClusterBy struct{ Columns []string }

func (c ClusterBy) alter(a *alteration) error {
	if len(a.partition) > 0 {
		return &deltalog.InvalidError{ErrorCode: "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY", Rule: "W-823", Reason: "a partitioned table cannot be clustered"}
	}
	if len(c.Columns) > 4 {
		return &deltalog.InvalidError{ErrorCode: "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS", Rule: "W-823", Reason: fmt.Sprintf("%d clustering columns, at most 4", len(c.Columns))}
	}
	old, err := a.snap.ClusteringColumns()
	if err != nil {
		return err
	}
	names := func(paths [][]string) string {
		out := make([]string, len(paths))
		for i, p := range paths {
			out[i] = attribute(logicalPath(a.schema, p))
		}
		return strings.Join(out, ",")
	}
	if !a.snap.Supports(deltalog.Clustering) {
		if len(c.Columns) == 0 {
			return nil
		}
		a.features = append(a.features, deltalog.Clustering)
	}
	paths := [][]string{}
	for _, text := range c.Columns {
		path, err := schema.ParsePath(text)
		if err != nil {
			return err
		}
		f, err := schema.Lookup(a.schema, path)
		if err != nil {
			return err
		}
		switch t := f.Type.(type) {
		case *schema.Struct, *schema.Array, *schema.Map, schema.Unknown:
			return &schema.RuleError{ErrorCode: "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", Column: text, Reason: fmt.Sprintf("type %s cannot cluster a table", t)}
		case schema.Primitive:
			if t == schema.Binary || t == schema.Boolean || t == schema.Void || t == schema.Variant {
				return &schema.RuleError{ErrorCode: "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", Column: text, Reason: fmt.Sprintf("type %s has no statistics to cluster by", t)}
			}
		}
		p, err := physicalPath(a.schema, path)
		if err != nil {
			return err
		}
		paths = append(paths, p)
	}
	if slices.EqualFunc(old, paths, slices.Equal) {
		return nil
	}
	a.operation, a.params = "CLUSTER BY", map[string]string{"oldClusteringColumns": names(old), "newClusteringColumns": names(paths)}
	a.domains = append(a.domains, &deltalog.DomainMetadata{Domain: deltalog.ClusteringDomain, Configuration: `{"clusteringColumns":` + jsonText(paths) + `,"domainName":"delta.clustering"}`})
	return nil
}

// physicalPath turns logical names of nested structs into physical ones.
func physicalPath(s *schema.Struct, path []string) ([]string, error) {
	out := make([]string, len(path))
	for i := range path {
		f, err := schema.Lookup(s, path[:i+1])
		if err != nil {
			return nil, err
		}
		out[i] = schema.PhysicalName(f)
	}
	return out, nil
}
