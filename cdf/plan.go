package cdf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// maxKept bounds the file actions that are kept from the check of a range until its
// rows are read; commits beyond it are read twice.
const maxKept = 200_000

// plan is a checked range: which commits it has and how their files are laid out.
type plan struct {
	f *Feed
	// kept are the first commits of the range.
	kept []*deltalog.Commit
	// partitions are the partition columns in force from a version on, ascending;
	// the first entry is that of the version before the range.
	partitions []partitioning
	layouts    *layouts
}

type partitioning struct {
	from    int64
	columns []string
}

// newPlan checks every version of the range (invariant 2).
func newPlan(ctx context.Context, f *Feed) (*plan, error) {
	p := &plan{f: f, layouts: &layouts{read: f.read.TableConfig, zone: f.opts.Zone, known: map[string]*datafile.Layout{}}}
	start := f.read
	var err error
	if f.From != f.To {
		if start, err = f.log.At(ctx, f.From); err != nil {
			return nil, err
		}
	}
	if !start.Props.ChangeDataFeed {
		return nil, missing(f.From)
	}
	var first *Error // the start is told after the changes, as Spark does
	if reason := incompatible(start.TableConfig, f.read.TableConfig); reason != "" {
		first = &Error{ErrorCode: CodeIncompatibleSchema, Version: f.From, Reason: reason}
	}
	p.partitions = []partitioning{{f.From, start.PartitionColumns()}}
	protocol, metadata := start.Protocol, start.Metadata
	actions, keeping := 0, true
	for c, err := range f.log.Commits(ctx, f.From, f.To) {
		if err != nil {
			return nil, err
		}
		if c.Version == f.From {
			if c.Metadata != nil && f.From > 0 && len(c.CDC) == 0 && len(c.Removes) > 0 {
				if err := p.before(ctx); err != nil {
					return nil, err
				}
			}
		} else if c.Metadata != nil || c.Protocol != nil {
			if c.Metadata != nil {
				metadata = c.Metadata
			}
			if c.Protocol != nil {
				protocol = c.Protocol
			}
			if err := p.change(c.Version, protocol, metadata); err != nil {
				return nil, err
			}
		}
		if actions += len(c.Adds) + len(c.Removes) + len(c.CDC); actions > maxKept {
			keeping = false
		}
		if keeping {
			p.kept = append(p.kept, c)
		}
	}
	if first != nil {
		return nil, first
	}
	return p, p.arrange()
}

func missing(version int64) error {
	return &Error{ErrorCode: CodeMissingChangeData, Version: version,
		Reason: "changes were not recorded: the change feed was off (table property delta.enableChangeDataFeed); begin at a version where it was on"}
}

// before checks the schema of the files that the first version removes, when that
// version has a metadata of its own, and finds their partition columns. If the log
// holds no older version, it is taken that nothing changed.
func (p *plan) before(ctx context.Context) error {
	s, err := p.f.log.At(ctx, p.f.From-1)
	switch {
	case errors.Is(err, deltalog.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	columns, err := removedColumns(p.f.From, s.TableConfig, p.f.read.TableConfig)
	if err != nil {
		return err
	}
	p.partitions = slices.Insert(p.partitions, 0, partitioning{p.f.From - 1, columns})
	return nil
}

// removedColumns checks that the files which a version removes can be read with the
// schema of read, and answers their partition columns.
func removedColumns(version int64, before, read *deltalog.TableConfig) ([]string, error) {
	// Columns that this very version dropped are not asked for.
	kept := &schema.Struct{Fields: slices.DeleteFunc(slices.Clone(before.Schema.Fields), func(f schema.Field) bool { return read.Schema.Index(f.Name) < 0 })}
	if reason := compareStructs(kept, read.Schema, comparison{byFile: mapped(before, read)}, ""); reason != "" {
		return nil, &Error{ErrorCode: CodeIncompatibleSchema, Version: version, Reason: "files it removes: " + reason}
	}
	return slices.DeleteFunc(slices.Clone(before.PartitionColumns()), func(c string) bool { return read.Schema.Index(c) < 0 }), nil
}

// change checks a new protocol or metadata inside the range.
func (p *plan) change(version int64, protocol *deltalog.Protocol, metadata *deltalog.Metadata) error {
	c, err := deltalog.NewTableConfig(protocol, metadata)
	if err != nil {
		return fmt.Errorf("read change feed: version %d: %w", version, err)
	}
	if err := c.Require(deltalog.OpReadCDF); err != nil {
		return fmt.Errorf("read change feed: version %d: %w", version, err)
	}
	if !c.Props.ChangeDataFeed {
		return missing(version)
	}
	if reason := incompatible(c, p.f.read.TableConfig); reason != "" {
		return &Error{ErrorCode: CodeIncompatibleChange, Version: version, Reason: reason}
	}
	p.partitions = append(p.partitions, partitioning{version, c.PartitionColumns()})
	return nil
}

// commits yields the commits of the range, reading again those that were not kept.
func (p *plan) commits(ctx context.Context) iter.Seq2[*deltalog.Commit, error] {
	return func(yield func(*deltalog.Commit, error) bool) {
		next := p.f.From
		for _, c := range p.kept {
			if !yield(c, nil) {
				return
			}
			next = c.Version + 1
		}
		if next > p.f.To {
			return
		}
		for c, err := range p.f.log.Commits(ctx, next, p.f.To) {
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// layout is how the files of a version lie: the columns of the end version, with
// the partition columns of their own. removed files are those of the version before.
func (p *plan) layout(version int64, removed bool) *datafile.Layout {
	columns := p.partitions[0].columns
	for _, e := range p.partitions {
		if e.from < version || e.from == version && !removed {
			columns = e.columns
		}
	}
	return p.layouts.known[strings.Join(columns, "\x00")]
}

// arrange makes the layouts of the range, which do not change afterwards.
func (p *plan) arrange() error {
	for _, e := range p.partitions {
		if _, err := p.layouts.of(e.columns); err != nil {
			return err
		}
	}
	return nil
}
