package rows

import (
	"strings"

	"github.com/sluice-data/sluice/apply/event"
)

// opOf is the operation that a word names (cdc-formats F16); case and
// surrounding space do not count.
func opOf(word string) (event.Op, bool) {
	switch strings.ToUpper(strings.TrimSpace(word)) {
	case "APPEND", "INSERT", "I", "C", "CREATE", "+I", "NEW":
		return event.Insert, true
	case "UPDATE", "U", "MODIFY", "+U", "UPSERT", "MERGE":
		return event.Upsert, true
	case "DELETE", "D", "REMOVE", "-D", "TOMBSTONE":
		return event.Delete, true
	case "TRUNCATE", "T":
		return event.Truncate, true
	}
	return 0, false
}

// IsOpWord tells whether a value may stand in an operation column.
func IsOpWord(word string) bool {
	_, ok := opOf(word)
	return ok
}

// IsOpName tells whether a column of that name is taken for the operation when
// its words are operations.
func IsOpName(name string) bool {
	switch strings.ToLower(name) {
	case "op", "_op", "operation":
		return true
	}
	return false
}

// RescuedName is the column in which upstream loaders keep what they could not read.
const RescuedName = "_rescued_data"
