package datafile

import (
	"fmt"
	"maps"
	"strings"
	"time"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// PropCarry is the table property that lists, as the JSON text of a struct,
// physical columns of data files that the table schema does not show and that
// rewrites carry along.
const PropCarry = "sluice.carry"

// ChangeTypeColumn is the extra column of change files.
const ChangeTypeColumn = "_change_type"

// DefaultTargetFileSize is where a writer starts the next file, in bytes.
const DefaultTargetFileSize = 128 << 20

// Layout says how the logical columns of one table version lie in its files. It is
// immutable:
//
//  1. Schema holds the logical columns in table order; Partition is a subset of
//     them, spelled as in Schema.
//  2. Every column of Schema is either a partition column or a file column (a void
//     one has its place in batches, not in files). Carry columns are neither and
//     share no name with a file column.
type Layout struct {
	Schema    *schema.Struct
	Partition []string
	Mapping   schema.Mode
	// Carry are the hidden physical columns, nil when there are none.
	Carry *schema.Struct
	// RowIDs are the hidden physical columns of row id and row commit version, nil
	// unless row tracking is enabled.
	RowIDs         []schema.Field
	Zone           *time.Location
	Codec          string
	TargetFileSize int64

	// RandomPrefix, if not 0, is the length of the random folder that files go into
	// instead of that of their partition (delta.randomizeFilePrefixes).
	RandomPrefix int

	// materialize: partition columns are written into files too (W-852).
	materialize bool

	physical  *schema.Struct // Schema with physical names
	columns   []column       // aligned with Schema.Fields
	file      *schema.Struct // physical file columns without Carry
	partition []int          // Partition as indices of Schema.Fields
	indexed   map[string]bool
	prefix    int
	tight     bool
}

type column struct {
	physical  string
	partition bool
	file      int // index in Layout.file, -1 for partition columns
}

// LayoutOf builds the layout of a table version; zone is that of partition
// timestamps that name none, nil is UTC. A malformed [PropCarry] is a [*LayoutError].
func LayoutOf(c *deltalog.TableConfig, zone *time.Location) (*Layout, error) {
	l := &Layout{
		Schema: c.Schema, Mapping: c.Mode(), Zone: zone, Codec: c.Props.Compression, TargetFileSize: c.Props.TargetFileSize,
		prefix: c.Props.SkippingStringPrefix, tight: c.Supports(deltalog.DeletionVectors),
		materialize: c.MaterializesPartitions(),
	}
	if l.Zone == nil {
		l.Zone = time.UTC
	}
	if c.Props.RandomizeFilePrefixes {
		l.RandomPrefix = min(max(c.Props.RandomPrefixLength, 1), 32)
	}
	if l.TargetFileSize <= 0 {
		l.TargetFileSize = DefaultTargetFileSize
	}
	for _, p := range c.PartitionColumns() {
		i := c.Schema.Index(p)
		l.partition = append(l.partition, i)
		l.Partition = append(l.Partition, c.Schema.Fields[i].Name)
	}
	l.arrange()
	if v := c.Metadata.Configuration[PropCarry]; v != "" {
		s, err := schema.ParseJSON([]byte(v))
		if err != nil {
			return nil, &LayoutError{PropCarry, v, err.Error()}
		}
		for _, f := range s.Fields {
			if l.file.Index(f.Name) >= 0 {
				return nil, &LayoutError{PropCarry, v, "column " + f.Name + " is a column of the table too"}
			}
		}
		l.Carry = s
	}
	l.RowIDs = rowIDFields(c)
	if err := l.checkRowIDs(); err != nil {
		return nil, err
	}
	l.indexed = l.indexedLeaves(c.Props)
	return l, nil
}

// arrange sorts the columns into partition and file columns.
func (l *Layout) arrange() {
	l.physical = schema.PhysicalStruct(l.Schema, l.Mapping)
	l.columns = make([]column, len(l.Schema.Fields))
	for _, i := range l.partition {
		l.columns[i].partition = true
	}
	l.file = &schema.Struct{}
	for i, f := range l.physical.Fields {
		c := &l.columns[i]
		c.physical, c.file = f.Name, -1
		if !c.partition {
			c.file = len(l.file.Fields)
			l.file.Fields = append(l.file.Fields, f)
		}
	}
}

// indexedLeaves decides which leaves get statistics (W-603), by physical path.
func (l *Layout) indexedLeaves(props deltalog.Properties) map[string]bool {
	type leaf struct{ logical, physical string }
	var leaves []leaf
	for i, f := range l.Schema.Fields {
		if l.columns[i].file < 0 {
			continue
		}
		lo := schema.Leaves(&schema.Struct{Fields: []schema.Field{f}})
		ph := schema.Leaves(&schema.Struct{Fields: []schema.Field{l.physical.Fields[i]}})
		for j := range lo {
			if lo[j].Field.Type == schema.Void {
				continue
			}
			leaves = append(leaves, leaf{strings.Join(lo[j].Path, "\x00"), strings.Join(ph[j].Path, "\x00")})
		}
	}
	out := map[string]bool{}
	if names := props.SkippingStatsColumns; names != nil {
		for _, want := range names {
			key := strings.ToLower(strings.Join(want, "\x00"))
			for _, lf := range leaves {
				have := strings.ToLower(lf.logical)
				if have == key || strings.HasPrefix(have, key+"\x00") {
					out[lf.physical] = true
				}
			}
		}
		return out
	}
	limit := props.SkippingNumIndexedCols
	for i, lf := range leaves {
		if limit < 0 || i < limit {
			out[lf.physical] = true
		}
	}
	return out
}

// LayoutError reports a table property that cannot be honoured.
type LayoutError struct{ Property, Value, Reason string }

func (e *LayoutError) Error() string {
	return fmt.Sprintf("table property %s=%s: %s", e.Property, e.Value, e.Reason)
}

// Code is the stable error code.
func (e *LayoutError) Code() string { return "DELTA_INVALID_TABLE_PROPERTY" }

// WithStats is l with statistics also for the given columns, whatever the limits
// of W-603 say.
func (l *Layout) WithStats(columns []string) *Layout {
	out := *l
	out.indexed = make(map[string]bool, len(l.indexed)+len(columns))
	for k := range l.indexed {
		out.indexed[k] = true
	}
	for _, c := range columns {
		i := l.Schema.Index(c)
		if i < 0 || l.columns[i].file < 0 {
			continue
		}
		f := &schema.Struct{Fields: []schema.Field{l.file.Fields[l.columns[i].file]}}
		for _, lf := range schema.Leaves(f) {
			out.indexed[strings.Join(lf.Path, "\x00")] = true
		}
	}
	return &out
}

// WithStatsPaths is l with statistics also for the columns and fields at the given
// physical paths, whatever the limits of W-603 say.
func (l *Layout) WithStatsPaths(paths [][]string) *Layout {
	if len(paths) == 0 {
		return l
	}
	out := *l
	out.indexed = maps.Clone(l.indexed)
	for _, lf := range schema.Leaves(l.file) {
		at := strings.Join(lf.Path, "\x00")
		for _, p := range paths {
			if key := strings.Join(p, "\x00"); at == key || strings.HasPrefix(at, key+"\x00") {
				out.indexed[at] = true
			}
		}
	}
	return &out
}

// HasStats tells whether the leaf at a physical path gets statistics.
func (l *Layout) HasStats(path []string) bool { return l.indexed[strings.Join(path, "\x00")] }

// IsPartition tells whether the logical column is a partition column.
func (l *Layout) IsPartition(name string) bool {
	i := l.Schema.Index(name)
	return i >= 0 && l.columns[i].partition
}

// PhysicalPartition lists the keys of add.partitionValues in partition order.
func (l *Layout) PhysicalPartition() []string {
	out := make([]string, len(l.partition))
	for i, c := range l.partition {
		out[i] = l.columns[c].physical
	}
	return out
}
