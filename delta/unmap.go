package delta

import (
	"context"
	"errors"
	"fmt"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// dropMapping takes column mapping out of the table's metadata (W-503, the rewrite that
// going back needs): in one commit, which changes no row, every live file is written
// again under the names of its columns, and partition values, statistics and clustering
// columns go by these names too. Names that only mapped tables may have are refused
// before a file is written, as in Spark.
func (t *Table) dropMapping(ctx context.Context, o deltalog.DropFeatureOptions) error {
	_, err := t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		plain := schema.Unmapped(snap.Schema)
		if snap.Mode() == schema.ModeNone && plain.JSON() == snap.Schema.JSON() {
			return nothing(snap), nil
		}
		return t.unmap(ctx, snap, plain, o)
	})
	return err
}

func (t *Table) unmap(ctx context.Context, snap *deltalog.Snapshot, plain *schema.Struct, o deltalog.DropFeatureOptions) (Result, error) {
	z := &optimizer{t: t, snap: snap, started: t.opts.Clock(), o: OptimizeOptions{Purge: true, stale: func(*deltalog.Add) bool { return true }}}
	if err := z.plan(); err != nil {
		return Result{}, err
	}
	m, domain, err := z.planUnmap(plain)
	if err != nil {
		return Result{}, err
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		return Result{}, err
	}
	done, err := z.pack(ctx, files)
	if err != nil {
		return Result{}, errors.Join(err, z.discard(ctx, done))
	}
	s, vectors := z.staged(done)
	for _, a := range s.Adds {
		if tag, ok := z.clusteredBy(a); ok { // it names columns as files have them
			for i, path := range tag.By {
				tag.By[i] = logicalPath(snap.Schema, path)
			}
			text := jsonText(tag)
			a.Tags[tagCluster] = &text
		}
	}
	tx := t.log.Begin(snap)
	tx.ReadWholeTable()
	tx.SetMetadata(m)
	if domain != nil {
		tx.SetDomain(domain)
	}
	c := z.commitOptions(s, vectors)
	c.Operation, c.Parameters, c.NoRebase, c.Unmaps = "REMOVE COLUMN MAPPING", map[string]string{}, true, true
	r, err := t.finish(ctx, tx, s, WriteOptions{UserMetadata: o.UserMetadata}, c)
	if err != nil && !unknownOutcome(err) {
		err = errors.Join(err, z.discard(ctx, done))
	}
	return r, err
}

// planUnmap is the metadata without column mapping, the clustering columns by their
// names (nil where there are none), and refuses what has no such form.
func (z *optimizer) planUnmap(plain *schema.Struct) (*deltalog.Metadata, *deltalog.DomainMetadata, error) {
	if err := schema.CheckNames(plain, false); err != nil {
		return nil, nil, &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING", Rule: "W-401",
			Reason: fmt.Sprintf("column mapping cannot be removed while a column has one of the characters %q or a space in its name; rename it first", strings.TrimSpace(schema.ForbiddenNameChars)), Cause: err}
	}
	// The state of AUTO CDC and the hidden row versions know columns as files name them.
	if _, target := z.snap.TxnVersion(applyApp); target {
		if name := renamed(z.snap.Schema); name != "" {
			return nil, nil, &deltalog.UnsupportedError{ErrorCode: "APPLY_COLUMN_MAPPING_IN_USE", Op: deltalog.OpWrite, Features: []string{string(deltalog.ColumnMapping)},
				MinReaderVersion: z.snap.Protocol.MinReaderVersion, MinWriterVersion: z.snap.Protocol.MinWriterVersion,
				Reason: "the table is a target of apply, whose state knows column " + name + " by its mapped name; apply its source into a table without column mapping instead"}
		}
	}
	m := *z.snap.Metadata
	m.SchemaString = plain.JSON()
	m.Configuration = map[string]string{}
	for k, v := range z.snap.Metadata.Configuration {
		if !strings.EqualFold(k, "delta.columnMapping.mode") && !strings.EqualFold(k, "delta.columnMapping.maxColumnId") {
			m.Configuration[k] = v
		}
	}
	cfg, err := deltalog.NewTableConfig(z.snap.Protocol, &m)
	if err != nil {
		return nil, nil, err
	}
	if z.to, err = z.t.layoutFor(z.snap, cfg); err != nil {
		return nil, nil, err
	}
	paths, err := z.snap.ClusteringColumns()
	if err != nil || len(paths) == 0 {
		return &m, nil, err
	}
	named := make([][]string, len(paths))
	for i, p := range paths {
		named[i] = logicalPath(z.snap.Schema, p)
	}
	z.to = z.to.WithStatsPaths(named)
	return &m, deltalog.NewClusteringDomain(named), nil
}

// renamed is a column or field that files have under another name, "" if there is none.
func renamed(t schema.Type) string {
	switch t := t.(type) {
	case *schema.Struct:
		for _, f := range t.Fields {
			if schema.PhysicalName(f) != f.Name {
				return f.Name
			}
			if name := renamed(f.Type); name != "" {
				return f.Name + "." + name
			}
		}
	case *schema.Array:
		return renamed(t.Elem)
	case *schema.Map:
		if name := renamed(t.Key); name != "" {
			return name
		}
		return renamed(t.Value)
	}
	return ""
}
