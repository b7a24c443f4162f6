package apply

import (
	"context"

	"github.com/sluice-data/sluice/internal/expr"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

// findHistory finds the rows of the batch's keys in a target with history. Files
// without an open row are looked into only for keys with a late event, for new ones,
// and for those that ended (apply-state 7.3).
func (a *attempt) findHistory(ctx context.Context, span *merge.Range) error {
	t := a.t
	if t.snap == nil {
		return nil
	}
	files, err := t.snap.FileList(ctx)
	if err != nil || len(files) == 0 {
		return err
	}
	if err := a.checkUnique(ctx, files); err != nil {
		return err
	}
	open, closed, err := a.splitFiles(files)
	if err != nil {
		return err
	}
	if a.groups, err = a.findIn(ctx, open, a.fold.keys, span); err != nil {
		return err
	}
	if err := a.fold.readRows(a.groups, 0); err != nil || len(closed) == 0 {
		return err
	}
	var late []*keyed
	rest := merge.NewRange(a.shape.schema, a.shape.keyNames())
	for _, k := range a.fold.keys {
		if k.plant() {
			continue
		}
		late = append(late, k)
		if len(k.list) == 0 {
			rest.Open() // the old key of a key change is known as bytes only
			continue
		}
		rest.Add(k.list[0].at.o.keys, k.list[0].at.row)
	}
	if len(late) == 0 {
		return nil
	}
	more, err := a.findIn(ctx, closed, late, rest)
	if err != nil {
		return err
	}
	from := len(a.groups)
	a.groups = append(a.groups, more...)
	return a.fold.readRows(a.groups, from)
}

// splitFiles parts the files of an SCD2 target into those that may hold an open row
// and those that hold none.
func (a *attempt) splitFiles(files []*deltalog.Add) (open, closed []*deltalog.Add, err error) {
	if a.shape.storedAs != storedSCD2 {
		return files, nil, nil
	}
	e, err := expr.Parse(schema.QuoteName(a.shape.schema.Fields[a.shape.frame[1]].Name) + " IS NULL")
	if err != nil {
		return nil, nil, err
	}
	isOpen, err := e.BindWith(a.t.snap.Schema, expr.Options{})
	if err != nil { // the column joins the table with this batch
		return files, nil, nil
	}
	for _, f := range files {
		if a.t.layout.MayMatch(isOpen, f) {
			open = append(open, f)
		} else {
			closed = append(closed, f)
		}
	}
	return open, closed, nil
}
