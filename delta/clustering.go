package delta

import (
	"context"
	"fmt"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// layoutFor is the layout of files written for cfg on top of snap: clustering columns
// have statistics whatever the table's limits say (W-823).
func (t *Table) layoutFor(snap *deltalog.Snapshot, cfg *deltalog.TableConfig) (*datafile.Layout, error) {
	l, err := datafile.LayoutOf(cfg, t.opts.TimeZone)
	if err != nil || !cfg.Supports(deltalog.Clustering) {
		return l, err
	}
	paths, err := snap.ClusteringColumns()
	if err != nil {
		return nil, err
	}
	return l.WithStatsPaths(paths), nil
}

// clusterDomain holds clustering columns to what they may be (W-823): leaves that have
// statistics, no more than four, in a table without partitions. It answers the domain
// and the names in canonical spelling; no columns are the domain of a table that is
// clustered no more.
func (t *Table) clusterDomain(cfg *deltalog.TableConfig, columns []string) (*deltalog.DomainMetadata, []string, error) {
	bad := func(code, format string, args ...any) error {
		return &deltalog.InvalidError{ErrorCode: code, Rule: "W-823", Reason: fmt.Sprintf(format, args...)}
	}
	if len(cfg.PartitionColumns()) > 0 {
		return nil, nil, bad("DELTA_CLUSTER_BY_WITH_PARTITIONED_BY", "a table is either partitioned or clustered")
	}
	if len(columns) > maxClusteringColumns {
		return nil, nil, bad("DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS", "%d clustering columns, at most %d", len(columns), maxClusteringColumns)
	}
	l, err := datafile.LayoutOf(cfg, t.opts.TimeZone)
	if err != nil {
		return nil, nil, err
	}
	c := &clustering{curve: hilbertCurve}
	for _, name := range columns {
		if err := c.add(cfg.Schema, name); err != nil {
			return nil, nil, err
		}
	}
	for i, path := range c.paths {
		var at schema.Type = cfg.Schema
		for _, name := range path {
			st := at.(*schema.Struct) // add has walked the same way
			at = st.Fields[st.Index(name)].Type
		}
		if at == schema.Boolean || at == schema.Binary {
			return nil, nil, bad("DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", "clustering column %s: %s has no statistics", c.names[i], at)
		}
		if !l.HasStats(c.physical[i]) {
			return nil, nil, bad("DELTA_CLUSTERING_COLUMN_MISSING_STATS", "clustering column %s is not among the columns with statistics; name it in delta.dataSkippingStatsColumns", c.names[i])
		}
	}
	return deltalog.NewClusteringDomain(c.physical), c.names, nil
}

const maxClusteringColumns = 4

// ClusterBy changes the clustering columns of a table; none means that it is clustered
// no more. Files stay as they are until the next Optimize. A table that is not
// clustered yet gets the feature, which only writers must know.
func (t *Table) ClusterBy(ctx context.Context, columns []string, userMetadata string) (Result, error) {
	return t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		d, names, err := t.clusterDomain(snap.TableConfig, columns)
		if err != nil {
			return Result{}, err
		}
		p, err := snap.Protocol.With(deltalog.Clustering)
		if err != nil {
			return Result{}, err
		}
		old, err := snap.ClusteringColumns()
		if err != nil {
			return Result{}, err
		}
		was := make([]string, len(old))
		for i, path := range old {
			was[i] = strings.Join(path, ".")
		}
		tx := t.log.Begin(snap)
		if p != snap.Protocol {
			tx.SetProtocol(p)
		}
		tx.SetDomain(d)
		return t.finish(ctx, tx, &Staged{}, WriteOptions{UserMetadata: userMetadata}, deltalog.CommitOptions{
			Operation: "CLUSTER BY", Metrics: map[string]string{},
			Parameters: map[string]string{"oldClusteringColumns": strings.Join(was, ","), "newClusteringColumns": strings.Join(names, ",")},
		})
	})
}
