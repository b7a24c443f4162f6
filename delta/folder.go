package delta

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// FolderError: a table was to be made in a folder that has files which are not of a
// table. They would count as leftovers, and VACUUM would delete them.
type FolderError struct {
	URL string
	// File is the first such file, relative to the folder.
	File string
}

func (e *FolderError) Error() string {
	return fmt.Sprintf("%s is no table and is not empty: it holds %s, which a later vacuum of a table made here would delete; choose an empty folder, move the files away, or convert them if they are Parquet", e.URL, e.File)
}

// Code is the stable error code, Spark's.
func (e *FolderError) Code() string { return "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION" }

// Is answers the class ErrInvalid.
func (e *FolderError) Is(target error) bool { return target == ErrInvalid }

// checkFolder refuses to make a table where a full vacuum of it would delete what is
// there: everything that is neither hidden (W-883) nor in the folder of another table.
func (t *Table) checkFolder(ctx context.Context, partition []string) error {
	tables := map[string]bool{"": false, ".": false} // by folder: it is one, or lies in one
	var inTable func(dir string) (bool, error)
	inTable = func(dir string) (bool, error) {
		if known, ok := tables[dir]; ok {
			return known, nil
		}
		found, err := inTable(path.Dir(dir))
		if err != nil {
			return false, err
		}
		if !found {
			for _, err := range t.store.List(ctx, dir+"/"+deltalog.LogDir, "") {
				if err != nil {
					return false, fmt.Errorf("list files: %w", err)
				}
				found = true
				break
			}
		}
		tables[dir] = found
		return found, nil
	}
	for o, err := range t.store.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list files: %w", err)
		}
		if strings.HasSuffix(o.Key, "/") || hiddenKey(o.Key, partition) {
			continue
		}
		nested, err := inTable(path.Dir(o.Key))
		if err != nil {
			return err
		}
		if !nested {
			return &FolderError{t.store.URL(), o.Key}
		}
	}
	return nil
}

// hiddenKey tells whether a part of the key begins with _ or . and is neither a folder of
// change files or indexes nor of a partition column (W-883).
func hiddenKey(key string, partition ...[]string) bool {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part[0] != '_' && part[0] != '.' || part == "_change_data" || part == "_delta_index" {
			continue
		}
		if !slices.ContainsFunc(partition, func(names []string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(part, schema.EscapePartition(n)+"=") })
		}) {
			return true
		}
	}
	return false
}
