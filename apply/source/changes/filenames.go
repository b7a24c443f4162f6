package changes

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
)

// FileFormat names the format that names its files like this one; "" if none does.
func FileFormat(file string) string {
	if f, ok := dmsFileOf(file); ok && f.kind != dmsOther {
		return "dms"
	}
	base, _, _ := strings.Cut(path.Base(file), ".")
	if n, ok := strings.CutPrefix(base, "CDC"); ok && len(n) >= 6 && isDigits(n) {
		return "ticdc"
	}
	return ""
}

// The kinds of files that DMS writes.
const (
	dmsOther  = iota // not named as DMS does
	dmsLoad          // LOAD00000001: the full load
	dmsChange        // 20240517-083015123: changes
	dmsTx            // CDC_TXN-20240517083015123: changes of many tables, in the order of their transactions
)

// dmsFile is what the path of a file says (cdc-formats F6).
type dmsFile struct {
	kind int
	// number orders the files of its kind: LOAD names count in hexadecimal.
	number int64
	table  event.Table
}

// dmsFileOf reads BUCKET/SCHEMA/TABLE/[YYYY/MM/DD/]NAME; false if the file has no path.
func dmsFileOf(source string) (dmsFile, bool) {
	f := dmsFile{}
	if u, err := url.Parse(source); err == nil && u.Scheme != "" {
		source = u.Path
	}
	if source == "" || source == "-" {
		return f, false
	}
	parts := strings.Split(strings.Trim(source, "/"), "/")
	base, _, _ := strings.Cut(parts[len(parts)-1], ".")
	dirs := parts[:len(parts)-1]
	for len(dirs) > 0 && isDigits(dirs[len(dirs)-1]) { // date partitions
		dirs = dirs[:len(dirs)-1]
	}
	if len(dirs) > 0 {
		f.table.Name = dirs[len(dirs)-1]
	}
	if len(dirs) > 1 {
		f.table.Schema = dirs[len(dirs)-2]
	}
	if hex, ok := strings.CutPrefix(base, "LOAD"); ok && len(hex) >= 8 {
		if n, err := strconv.ParseInt(hex, 16, 64); err == nil {
			f.kind, f.number = dmsLoad, n
		}
		return f, true
	}
	kind := dmsChange
	name, tx := strings.CutPrefix(base, "CDC_TXN-")
	if tx {
		kind = dmsTx
	}
	day, clock, dash := strings.Cut(name, "-")
	digits := day + clock
	if (dash && len(day) == 8 || tx) && isDigits(digits) && len(digits) >= 12 && len(digits) <= 18 {
		// Names of different precision are brought to one: ten digits of the clock.
		n, err := strconv.ParseInt(digits+strings.Repeat("0", 18-len(digits)), 10, 64)
		if err == nil {
			f.kind, f.number = kind, n
		}
	}
	return f, true
}

// baseName is the last element of a file's identity, for messages.
func baseName(source string) string {
	if u, err := url.Parse(source); err == nil && u.Scheme != "" {
		source = u.Path
	}
	return path.Base(source)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
