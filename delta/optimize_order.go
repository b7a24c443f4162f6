package delta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/curve"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

const (
	// clusteringProvider is the name under which sluice clusters. Files of another
	// provider are not clustered again (W-823).
	clusteringProvider = "sluice"
	// tagCluster is the tag of a clustered file: which run made it, by which columns.
	tagCluster = "sluice.cluster"

	zOrderCurve  = "zorder"
	hilbertCurve = "hilbert"
)

// clustering says by what rows are put in order.
type clustering struct {
	curve    string
	names    []string   // logical, dotted
	paths    [][]string // logical
	physical [][]string
	encoders []*keycode.Encoder // one a column
	bits     int
}

// clusterTag is the JSON of tagCluster.
type clusterTag struct {
	ID string     `json:"id"`
	By [][]string `json:"by"`
}

func (z *optimizer) planOrder() error {
	var by [][]string
	if z.snap.Supports(deltalog.Clustering) {
		var err error
		if by, err = z.snap.ClusteringColumns(); err != nil {
			return err
		}
	}
	clustered := len(by) > 0
	switch {
	case z.o.Purge && (len(z.o.ZOrder) > 0 || z.o.Full):
		return &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_OPTIMIZE", Reason: "a purge rewrites files as they are: it goes with neither Z-order nor a full clustering"}
	case z.o.Purge:
		return nil
	case clustered && len(z.o.ZOrder) > 0:
		return &deltalog.InvalidError{ErrorCode: "DELTA_CLUSTERING_WITH_ZORDER_BY", Reason: "the table is clustered by its own columns; Z-order would undo that"}
	case clustered && z.where != nil:
		return &deltalog.InvalidError{ErrorCode: "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE", Reason: "a clustered table has no partitions to choose from"}
	case z.o.Full && !clustered:
		return &deltalog.InvalidError{ErrorCode: "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED", Reason: "the table has no clustering columns"}
	case clustered:
		z.cluster = &clustering{curve: hilbertCurve}
		for _, path := range by {
			if err := z.cluster.addPhysical(z.snap.Schema, path); err != nil {
				return err
			}
		}
	case len(z.o.ZOrder) > 0:
		z.cluster = &clustering{curve: zOrderCurve}
		for _, name := range z.o.ZOrder {
			if err := z.cluster.add(z.snap.Schema, name); err != nil {
				return err
			}
			if z.l.IsPartition(name) {
				return &deltalog.InvalidError{ErrorCode: "DELTA_ZORDERING_ON_PARTITION_COLUMN", Reason: fmt.Sprintf("column %s is a partition column: its rows lie together already", name)}
			}
		}
	default:
		return nil
	}
	c := z.cluster
	if len(c.names) > curve.MaxDims {
		return &deltalog.InvalidError{ErrorCode: "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS", Reason: fmt.Sprintf("%d columns, at most %d", len(c.names), curve.MaxDims)}
	}
	c.bits = curve.Bits(len(c.names))
	// Readers skip by the statistics of these columns, whatever the limits say (W-823).
	tops := make([]string, len(c.paths))
	for i, p := range c.paths {
		tops[i] = p[0]
	}
	z.l = z.l.WithStats(tops)
	return nil
}

// addPhysical adds the column at a physical path.
func (c *clustering) addPhysical(s *schema.Struct, physical []string) error {
	var logical []string
	for i, want := range physical {
		at := -1
		if s != nil {
			at = slices.IndexFunc(s.Fields, func(f schema.Field) bool { return schema.PhysicalName(f) == want })
		}
		if at < 0 {
			return &deltalog.CorruptError{ErrorCode: "DELTA_INVALID_CLUSTERING_DOMAIN", Reason: fmt.Sprintf("clustering column %s: not in the table", strings.Join(physical, "."))}
		}
		f := s.Fields[at]
		logical = append(logical, f.Name)
		if i == len(physical)-1 {
			return c.addLeaf(logical, physical, f.Type)
		}
		s, _ = f.Type.(*schema.Struct)
	}
	return &deltalog.CorruptError{ErrorCode: "DELTA_INVALID_CLUSTERING_DOMAIN", Reason: "a clustering column without a name"}
}

// add adds the column of a name as users write it: a column, or a path with dots.
func (c *clustering) add(s *schema.Struct, name string) error {
	parts := []string{name}
	if s.Index(name) < 0 {
		parts = strings.Split(name, ".")
	}
	var logical, physical []string
	for i, p := range parts {
		at := -1
		if s != nil {
			at = s.Index(p)
		}
		if at < 0 {
			break
		}
		f := s.Fields[at]
		logical, physical = append(logical, f.Name), append(physical, schema.PhysicalName(f))
		if i == len(parts)-1 {
			return c.addLeaf(logical, physical, f.Type)
		}
		s, _ = f.Type.(*schema.Struct)
	}
	return &deltalog.InvalidError{ErrorCode: expr.CodeUnresolvedColumn, Reason: fmt.Sprintf("Z-order column %s: not in the table", name)}
}

func (c *clustering) addLeaf(logical, physical []string, t schema.Type) error {
	name := strings.Join(logical, ".")
	if slices.Contains(c.names, name) {
		return &deltalog.InvalidError{ErrorCode: "DELTA_DUPLICATE_COLUMNS_FOUND", Reason: "column " + name + " is named twice"}
	}
	err := keycode.CheckType(t)
	var e *keycode.Encoder
	if err == nil {
		var at arrow.DataType
		if at, err = schema.ArrowType(t); err == nil {
			e, err = keycode.NewEncoder([]arrow.DataType{at})
		}
	}
	if err != nil {
		return &deltalog.InvalidError{ErrorCode: "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", Reason: fmt.Sprintf("column %s of type %s has no order", name, t), Cause: err}
	}
	c.names, c.paths, c.physical, c.encoders = append(c.names, name), append(c.paths, logical), append(c.physical, physical), append(c.encoders, e)
	return nil
}

// columns are the values of a batch that decide its rows' places.
func (c *clustering) columns(b arrow.RecordBatch) ([]arrow.Array, error) {
	out := make([]arrow.Array, len(c.paths))
	for i, path := range c.paths {
		at := b.Schema().FieldIndices(path[0])
		if len(at) == 0 {
			return nil, fmt.Errorf("order rows: column %s is not in the batch", path[0])
		}
		a := b.Column(at[0])
		for _, name := range path[1:] {
			st, ok := a.(*array.Struct)
			if !ok {
				return nil, fmt.Errorf("order rows: column %s is no struct", c.names[i])
			}
			f, ok := st.DataType().(*arrow.StructType)
			if !ok {
				return nil, fmt.Errorf("order rows: column %s is no struct", c.names[i])
			}
			k, ok := f.FieldIdx(name)
			if !ok {
				return nil, fmt.Errorf("order rows: column %s has no field %s", c.names[i], name)
			}
			child := st.Field(k)
			if st.NullN() > 0 {
				masked, err := maskNulls(child, st)
				if err != nil {
					return nil, err
				}
				child = masked
			}
			a = child
		}
		out[i] = a
	}
	return out, nil
}

// order rewrites the chosen files with their rows along the curve.
func (z *optimizer) order(ctx context.Context, files []*deltalog.Add) ([]*rewritten, error) {
	groups := z.partitions(files)
	if z.cluster.curve == hilbertCurve {
		groups = [][]*deltalog.Add{z.unclustered(files)}
	}
	var done []*rewritten
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		written, err := z.sortRows(ctx, g)
		if err != nil {
			return done, err
		}
		r := &rewritten{from: g}
		tags := commonTags(g)
		for _, f := range written {
			a := f.Add(false)
			a.Tags = tags
			r.adds, r.keys, r.rows = append(r.adds, a), append(r.keys, f.Key), r.rows+f.Rows
		}
		if z.cluster.curve == hilbertCurve {
			z.markClustered(r)
		}
		done = append(done, r)
	}
	return done, nil
}

// markClustered tells later runs that the files need no work (W-823).
func (z *optimizer) markClustered(r *rewritten) {
	provider, text := clusteringProvider, jsonText(clusterTag{ID: z.t.opts.NewID(), By: z.cluster.physical})
	for _, a := range r.adds {
		tags := map[string]*string{tagCluster: &text}
		for k, v := range a.Tags {
			tags[k] = v
		}
		a.Tags, a.ClusteringProvider = tags, &provider
	}
}

// unclustered are the files to cluster: those that no provider has clustered, those
// of ours with too many deleted rows, and the files of earlier runs that are together
// smaller than one full file. With Full also those that we clustered by other columns.
func (z *optimizer) unclustered(files []*deltalog.Add) []*deltalog.Add {
	var out []*deltalog.Add
	runs := map[string][]*deltalog.Add{}
	var order []string
	for _, a := range files {
		switch tag, ok := z.clusteredBy(a); {
		case a.ClusteringProvider == nil:
			out = append(out, a)
		case *a.ClusteringProvider != clusteringProvider:
		case !ok || !slices.EqualFunc(tag.By, z.cluster.physical, slices.Equal):
			if z.o.Full {
				out = append(out, a)
			}
		case deletedShare(a) > z.o.MaxDeleted:
			out = append(out, a)
		default:
			if runs[tag.ID] == nil {
				order = append(order, tag.ID)
			}
			runs[tag.ID] = append(runs[tag.ID], a)
		}
	}
	var small [][]*deltalog.Add
	for _, id := range order {
		var size int64
		for _, a := range runs[id] {
			size += a.Size
		}
		if size < z.o.MinSize {
			small = append(small, runs[id])
		}
	}
	if len(out) == 0 && len(small) < 2 {
		return nil
	}
	return append(out, slices.Concat(small...)...)
}

func (z *optimizer) clusteredBy(a *deltalog.Add) (tag clusterTag, ok bool) {
	v := a.Tags[tagCluster]
	if v == nil {
		return tag, false
	}
	return tag, json.Unmarshal([]byte(*v), &tag) == nil
}
