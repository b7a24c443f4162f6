package changes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// unnamed tells whether a row comes from a file whose first line was not read as
// a header.
func unnamed(row []wire.Field) bool {
	for i, f := range row {
		if string(f.Key.Raw) != "_c"+strconv.Itoa(i) {
			return false
		}
	}
	return len(row) > 0
}

// heading gives the columns of an unnamed row their names: those of the file's
// first line where that is a header, else extra ones and then those of the user's
// schema. header is true for the header itself. extra names the columns before the
// data by how many there are.
func (d *Decoder) heading(r *event.Record, row []wire.Field, isHeader func([]string) bool, extra func(n int) ([]string, error)) (header bool, err error) {
	var names []string
	if r.Line == 1 {
		texts := make([]string, len(row))
		for i, f := range row {
			if f.Val.Kind == wire.String {
				texts[i] = string(f.Val.Text(nil))
			}
		}
		d.state.Header = nil
		if isHeader(texts) {
			d.state.Header = map[string][]string{r.Source: texts}
			return true, nil
		}
	}
	if names = d.state.Header[r.Source]; names == nil {
		if d.opt.Schema == nil {
			return false, &ConfigError{"COLUMNS_UNKNOWN", fmt.Sprintf("%s, line %d: no header is known: name the data columns in their order with --schema, e.g. --schema 'id BIGINT, name STRING', or say --option header=true if its first line has their names", baseName(r.Source), r.Line)}
		}
		data := d.opt.Schema.Names()
		before, err := extra(len(row) - len(data))
		if err != nil {
			return false, err
		}
		names = append(slices.Clone(before), data...)
	}
	if len(row) > len(names) {
		return false, wire.Poison(event.PoisonEnvelope, "COLUMN_COUNT", "%d columns where there are names for %d", len(row), len(names))
	}
	for i := range row {
		row[i].Key = textToken(names[i])
	}
	return false, nil
}

// The names of columns before the data that files do not name.
const (
	colOp, colTime, colTable, colSchema = "\x00op", "\x00time", "\x00table", "\x00schema"
	colCommit, colSkip                  = "\x00commit", "\x00skip"
)

// readRow reads a row of a DMS file.
func (f *dms) readRow(d *Decoder, r *event.Record, row []wire.Field) error {
	if f.source != r.Source || f.source == "" {
		f.source = r.Source
		f.file, _ = dmsFileOf(r.Source)
	}
	if f.file.kind == dmsOther && f.timeColumn == "" {
		return &ConfigError{"FILE_NAME_UNKNOWN", baseName(r.Source) + " is not named as DMS names its files (LOAD00000001.csv, 20240517-083015123.csv), and their names are the order of the changes; name the column with the commit time (--option timestamp_column=NAME), or read plain rows with --format rows and a sequence of your own"}
	}
	named := !unnamed(row)
	if !named {
		header, err := d.heading(r, row, f.isHeader(d), f.extra)
		if err != nil || header {
			return err
		}
	}
	c := change{table: f.file.table, op: event.Upsert, complete: true}
	op, at := wire.Token{}, wire.Token{}
	for i := range row {
		name, val := string(row[i].Key.Text(nil)), row[i].Val
		before, isBefore := strings.CutPrefix(name, f.beforePrefix)
		switch {
		case name == colOp, i == 0 && name == "Op":
			op = val
		case name == colTime, f.timeColumn != "" && name == f.timeColumn:
			at = val
		case name == colTable:
			c.table = event.Table{Name: string(val.Text(nil))}
		case name == colSchema:
			c.table.Schema = string(val.Text(nil))
		case isBefore && f.beforePrefix != "":
			c.old = append(c.old, wire.Field{Key: textToken(before), Val: val})
		default:
			if f.noSupValue != "" && val.Is(f.noSupValue) {
				c.unavailable = append(c.unavailable, name)
			}
			c.image = append(c.image, row[i])
		}
	}
	d.lastID = c.table
	switch word := strings.ToUpper(string(op.Text(nil))); {
	case op.Kind <= wire.Null || word == "":
	case word == "I":
		if f.file.kind != dmsLoad {
			c.op = event.Insert
		}
	case word == "U":
		c.op = event.Update
	case word == "D":
		c.op, d.isDelete = event.Delete, true
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "column Op: %.40q is none of I, U, D", word)
	}
	c.seq = wire.Seq{Kind: wire.SeqDMSFile, Epoch: d.epoch, N: [4]int64{1, 0, f.file.number, r.Transport}}
	switch {
	case f.file.kind == dmsLoad:
		// The load's times are those of its transfer: it stands below every change.
		c.seq.N[0] = 0
	case f.timeColumn != "":
		us, ok := f.micros(at)
		if !ok {
			return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "column %s: %.40q is no time", f.timeColumn, at.Raw)
		}
		c.seq.N[1] = us
	}
	if len(c.old) == 0 && c.op == event.Update {
		d.Warn("DMS files tell no old key: where an update changes the key, the old row stays; let the task write the before image (BeforeImageSettings) and name its prefix with --option before_prefix=BI_")
	}
	d.add(c)
	return nil
}

// isHeader knows the first line of a CSV file as a header: it begins with Op, or
// is the user's columns. What else it may be is not guessed.
func (f *dms) isHeader(d *Decoder) func([]string) bool {
	return func(texts []string) bool {
		if len(texts) > 0 && texts[0] == "Op" {
			return true
		}
		if d.opt.Schema == nil {
			return false
		}
		names := d.opt.Schema.Names()
		return slices.Equal(texts, names) || f.timeColumn != "" && len(texts) == len(names)+1 && texts[0] == f.timeColumn && slices.Equal(texts[1:], names)
	}
}

func (f *dms) extra(n int) ([]string, error) {
	switch {
	case f.file.kind == dmsTx && n == 3:
		return []string{colOp, colTable, colSchema}, nil
	case f.file.kind == dmsTx:
	case n <= 0:
		if f.file.kind != dmsLoad {
			return nil, wire.Poison(event.PoisonEnvelope, "COLUMN_COUNT", "a row of changes has no column Op before its data: the schema names as many columns as there are, or more")
		}
		return nil, nil
	case n == 1 && f.timeColumn != "" && f.file.kind == dmsLoad:
		return []string{colTime}, nil
	case n == 1:
		return []string{colOp}, nil
	case n == 2 && f.timeColumn != "":
		return []string{colOp, colTime}, nil
	}
	return nil, wire.Poison(event.PoisonEnvelope, "COLUMN_COUNT", "%d columns more than the schema names", n)
}

func (f *dms) micros(t wire.Token) (int64, bool) {
	if f.clock == nil {
		f.clock = wire.NewNode(schema.Timestamp, wire.Modes{})
	}
	return f.clock.Micros(t)
}

// readRow reads a row of TiCDC's CSV: operation, table, schema, commit time,
// whether it is half of an update, data.
func (f *ticdc) readRow(d *Decoder, r *event.Record, row []wire.Field) error {
	if unnamed(row) {
		isHeader := func(texts []string) bool { return len(texts) > 0 && texts[0] == "ticdc-meta$operation" }
		header, err := d.heading(r, row, isHeader, func(n int) ([]string, error) {
			switch n {
			case 3:
				return []string{colOp, colTable, colSchema}, nil
			case 4:
				return []string{colOp, colTable, colSchema, colCommit}, nil
			case 5:
				return []string{colOp, colTable, colSchema, colCommit, colSkip}, nil
			}
			return nil, wire.Poison(event.PoisonEnvelope, "COLUMN_COUNT", "%d columns beside those of the schema; operation, table, schema, commit time (and the flag of updates) stand before the data", n)
		})
		if err != nil || header {
			return err
		}
	}
	c := change{complete: true}
	var op, commit wire.Token
	for i := range row {
		name := string(row[i].Key.Text(nil))
		switch name {
		case colOp, "ticdc-meta$operation":
			op = row[i].Val
		case colTable, "ticdc-meta$table":
			c.table.Name = string(row[i].Val.Text(nil))
		case colSchema, "ticdc-meta$schema":
			c.table.Database = string(row[i].Val.Text(nil))
		case colCommit, "ticdc-meta$commit-ts":
			commit = row[i].Val
		case colSkip:
		default:
			if strings.HasPrefix(name, "ticdc-meta$") {
				continue
			}
			c.image = append(c.image, row[i])
		}
	}
	d.lastID = c.table
	rank := int64(1)
	switch word := string(op.Text(nil)); word {
	case "I":
		c.op = event.Insert
	case "U":
		c.op = event.Update
	case "D":
		c.op, d.isDelete, rank = event.Delete, true, 0
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "operation %.40q is none of I, U, D", word)
	}
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the row names no table")
	}
	ts, ok := number(commit)
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "the row has no commit time, which orders it: set include-commit-ts=true in the changefeed")
	}
	// A transaction changes a key once, its old row away and its new row in, in
	// whatever order the file has them.
	c.seq = wire.Seq{Kind: wire.SeqTiDBFile, Epoch: d.epoch, N: [4]int64{ts, rank}}
	d.add(c)
	return nil
}
