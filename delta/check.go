package delta

import (
	"context"
	"fmt"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// CheckReport says what sluice can do with a table and why not; see [Check].
type CheckReport struct {
	Table    string        `json:"table"`
	Version  int64         `json:"version"`
	Protocol CheckProtocol `json:"protocol"`
	// Readable and Writable are the gates of the protocol; an operation may be
	// refused for its own reasons still.
	Readable   bool             `json:"readable"`
	Writable   bool             `json:"writable"`
	Features   []CheckFeature   `json:"features"`
	Properties []string         `json:"properties"`
	Operations []CheckOperation `json:"operations"`
}

// CheckProtocol is the version pair of a table.
type CheckProtocol struct {
	Reader int `json:"min_reader_version"`
	Writer int `json:"min_writer_version"`
}

// CheckFeature is one feature that the table's protocol lists or implies.
type CheckFeature struct {
	Name string `json:"name"`
	// Binds is who must know it: "readers" (and writers) or "writers".
	Binds string `json:"binds"`
	// Active is what turns it on in this table, "" for nothing in particular.
	Active string `json:"active,omitempty"`
	Read   bool   `json:"read"`
	Write  bool   `json:"write"`
	Why    string `json:"why,omitempty"`
}

// CheckOperation is the verdict over one operation.
type CheckOperation struct {
	Operation string `json:"operation"`
	Possible  bool   `json:"possible"`
	Code      string `json:"code,omitempty"`
	Why       string `json:"why,omitempty"`
}

// Check reads the newest version of the table at the root of store and says, for every
// feature and operation, what sluice can do with it. A table that cannot be read or
// written is no error; what is no table (ErrNotFound) or damaged (ErrCorrupt) is.
func Check(ctx context.Context, store storage.Store, o Options) (*CheckReport, error) {
	t := newTable(store, o)
	snap, err := t.log.Latest(ctx)
	i, err := deltalog.Inspect(snap, err)
	if err != nil {
		return nil, err
	}
	r := &CheckReport{Table: store.URL(), Version: i.Version, Readable: i.Read == nil, Writable: i.Write == nil,
		Protocol:   CheckProtocol{i.Protocol.MinReaderVersion, i.Protocol.MinWriterVersion},
		Properties: append([]string{}, i.Properties...), Features: []CheckFeature{}}
	for _, f := range i.Features {
		c := CheckFeature{Name: string(f.Name), Binds: "writers", Active: f.Active, Read: f.Read, Write: f.Write}
		if f.Readers {
			c.Binds = "readers"
		}
		switch {
		case !f.Known:
			c.Why = "this version does not know it"
		case !f.Read:
			c.Why = "this version does not read it"
		case !f.Write && f.Active != "":
			c.Why = "this version does not write it while it is in use: " + f.Active
		case !f.Write:
			c.Why = "this version does not write it"
		}
		r.Features = append(r.Features, c)
	}
	for _, op := range t.verdicts(snap, i) {
		v := CheckOperation{Operation: op.name, Possible: op.err == nil}
		if op.err != nil {
			v.Code, v.Why = codeOfError(op.err), strings.ReplaceAll(op.err.Error(), "\n", "; ")
		}
		r.Operations = append(r.Operations, v)
	}
	return r, nil
}

func codeOfError(err error) string {
	for err != nil {
		if c, ok := err.(interface{ Code() string }); ok {
			return c.Code()
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return ""
		}
		err = u.Unwrap()
	}
	return ""
}

type verdict struct {
	name string
	err  error
}

// verdicts holds every operation to what it would be refused for before it reads or
// writes a data file.
func (t *Table) verdicts(snap *deltalog.Snapshot, i *deltalog.Inspection) []verdict {
	first := func(errs ...error) error {
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	var layout, types, feed, rules, removes, columns error
	if c := i.Config; c != nil {
		_, layout = datafile.LayoutOf(c, t.opts.TimeZone)
		_, types = schema.ArrowSchema(c.Schema)
		if !c.WritesChangeFeed() {
			feed = &deltalog.InvalidError{ErrorCode: "DELTA_MISSING_CHANGE_DATA", Reason: "the change feed is off (delta.enableChangeDataFeed)"}
		}
		if i.Write == nil {
			_, rules = t.Rules(c)
			columns = invalidSchema(schema.CheckWritable(c.Schema))
			if c.AppendOnly() {
				removes = t.mayChange(snap, true)
			}
		}
	}
	if types != nil {
		types = &deltalog.UnsupportedError{ErrorCode: "DELTA_UNSUPPORTED_DATA_TYPES", Op: deltalog.OpRead, Reason: fmt.Sprintf("a column: %v", types),
			MinReaderVersion: i.Protocol.MinReaderVersion, MinWriterVersion: i.Protocol.MinWriterVersion}
	}
	// A table that cannot be read does not open, whatever is to be done with it.
	gate := first(i.Read, i.Write)
	read := first(i.Read, layout, types)
	write := first(gate, layout, types, columns)
	makes := first(write, rules)
	return []verdict{
		{"read", read}, {"changes", first(i.Read, i.ReadFeed, feed, read)},
		{"append", makes}, {"overwrite", first(makes, removes)}, {"delete", first(write, removes)},
		{"update", first(makes, removes)}, {"merge", first(makes, removes)},
		{"alter", first(gate, layout)}, {"optimize", write}, {"vacuum", gate}, {"restore", first(gate, removes)},
		{"checkpoint", gate},
	}
}
