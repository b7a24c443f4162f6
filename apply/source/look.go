package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

// LookSize is how many records Look decodes.
const LookSize = 1000

// Look is what the first records of a source say of it.
type Look struct {
	Format  Format
	Explain string
	// Records were decoded; More tells that the source has others.
	Records  int
	More     bool
	Tables   []LookTable
	Controls map[event.ControlKind]int64
	Poison   []event.Poison
	Warnings []string
}

// LookTable is one source table.
type LookTable struct {
	Table event.Table
	// Keys are the key columns, empty if neither user nor format names them;
	// Sequence the parts of the format's position, empty if it has none.
	Keys, Sequence []string
	Columns        *schema.Struct
	Changes        map[event.Op]int64
	// Sample is one row, the first that is no delete or truncate, nil if there is
	// none; SampleColumns are its columns, which may be fewer than Columns.
	Sample        arrow.RecordBatch
	SampleColumns *schema.Struct
}

// LookAt opens a source, decodes its first records and says what is in them.
// Nothing is remembered of it.
func LookAt(ctx context.Context, s Spec) (*Look, error) {
	s.look = true
	opened, err := Open(ctx, s)
	if err != nil {
		return nil, err
	}
	defer opened.Source.Close()
	if opened.Format == Postgres {
		return nil, &Error{Code: "BAD_OPTION", Reason: "a server has no events to look at before it is read: a dry run of apply says what it has"}
	}
	if opened.Empty {
		return nil, &Error{Code: "FORMAT_UNCLEAR", Reason: "the input is empty"}
	}
	out := &Look{Format: opened.Format, Explain: opened.Explain}
	if out.Explain == "" {
		out.Explain = "as asked for"
	}
	d := opened.NewDecoder()
	for rec, err := range opened.Source.Records(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if out.Records == LookSize {
			out.More = true
			break
		}
		out.Records++
		if err := d.Add(ctx, rec); err != nil {
			return nil, fmt.Errorf("decode record %d: %w", rec.Line, err)
		}
	}
	decoded, err := d.Flush()
	if err != nil {
		return nil, err
	}
	out.Controls, out.Poison, out.Warnings = decoded.Controls, decoded.Poison, append(opened.Doubts, decoded.Warnings...)
	for _, b := range decoded.Batches {
		out.add(b)
	}
	slices.SortStableFunc(out.Tables, func(a, b LookTable) int {
		return cmp.Or(cmp.Compare(a.Table.Database, b.Table.Database), cmp.Compare(a.Table.Schema, b.Table.Schema), cmp.Compare(a.Table.Name, b.Table.Name))
	})
	return out, nil
}

// add takes a batch in; the newest columns count.
func (l *Look) add(b *event.Batch) {
	i := slices.IndexFunc(l.Tables, func(t LookTable) bool { return t.Table == b.Table })
	if i < 0 {
		i = len(l.Tables)
		l.Tables = append(l.Tables, LookTable{Table: b.Table, Changes: map[event.Op]int64{}})
	}
	t := &l.Tables[i]
	if len(b.Columns.Fields) > 0 {
		t.Columns = b.Columns
	}
	if len(b.Keys) > 0 {
		t.Keys = b.Keys
	}
	if b.SeqType != nil {
		t.Sequence = b.SeqType.Names()
	}
	for r, op := range b.Ops {
		t.Changes[op]++
		if op != event.Delete && op != event.Truncate && t.Sample == nil {
			t.Sample, t.SampleColumns = b.Rows.NewSlice(int64(r), int64(r)+1), b.Columns
		}
	}
}
