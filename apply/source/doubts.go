package source

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// doubts says why records that were taken for plain rows may be none: what detection
// cannot decide is the user's to say (cdc-formats 1).
func doubts(sample []*event.Record) []string {
	if len(sample) == 0 {
		return nil
	}
	if sample[0].Columns != nil {
		return columnDoubts(sample[0])
	}
	for _, r := range sample {
		fields, _, err := wire.ParseObject(r.Value, 0, nil)
		if err != nil || !object(fields).isMessage() {
			return nil
		}
	}
	return []string{"the rows look like messages of a topic, but lack topic, partition and offset, by which lines are known as such: write these three beside key and value, or the value alone"}
}

// isMessage tells whether all members are those of a dumped message.
func (o members) isMessage() bool {
	body := false
	for name := range o {
		switch name {
		case "value", "value_b64", "payload":
			body = true
		case "key", "key_b64", "key_text", "headers", "timestamp", "topic", "partition", "offset":
		default:
			return false
		}
	}
	return body
}

// columnDoubts looks at the first column of a file for the operations that AWS DMS
// and TiCDC write there.
func columnDoubts(r *event.Record) []string {
	if r.Columns.NumCols() < 2 {
		return nil
	}
	name := r.Columns.ColumnName(0)
	col, ok := r.Columns.Column(0).(*array.String)
	if !ok || name != "Op" && !isLetterOp(name) {
		return nil
	}
	for i := range min(col.Len(), 1000) {
		if col.IsValid(i) && !isLetterOp(col.Value(i)) {
			return nil
		}
	}
	if name == "Op" {
		return []string{"the first column is Op with I, U, D, as AWS DMS writes it, but the file is not named as DMS names files: it is read as plain rows; --format dms --option timestamp_column=NAME reads it as changes of DMS"}
	}
	return []string{fmt.Sprintf("the first line was taken for the names of the columns, but begins with the operation %s: if the file has no header, say --format dms or ticdc, and name the columns with --schema", name)}
}

func isLetterOp(s string) bool { return s == "I" || s == "U" || s == "D" }
