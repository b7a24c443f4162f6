package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// versionFlags choose the version of a table.
type versionFlags struct {
	version   int64
	timestamp string
}

func (v *versionFlags) flags(c *cobra.Command) {
	c.Flags().Int64Var(&v.version, "version", -1, "read this version (default: the newest)")
	c.Flags().StringVar(&v.timestamp, "timestamp", "", "read the newest version at this time: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC")
}

func newCatCommand(a *app) *cobra.Command {
	var at versionFlags
	var columns listFlag
	var where, orderBy string
	var limit int64
	var count, rowIDs bool
	c := &cobra.Command{
		Use:   "cat TABLE",
		Short: "Print the rows of a table",
		Long:  "Print the rows of a table. Their order is unspecified unless --order-by is given.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice cat people --where "id < 10" --order-by "name DESC, id" --limit 5
  sluice cat people --columns name --version 1 -o csv
  sluice cat people --count`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := distinct("columns", columns.values); err != nil {
				return err
			}
			o := delta.ScanOptions{Columns: columns.values, Where: where, RowIDs: rowIDs}
			if cmd.Flags().Changed("version") {
				if at.version < 0 {
					return usage("INVALID_FLAG", "--version %d: versions start at 0", at.version)
				}
				o.Version = &at.version
			}
			if at.timestamp != "" {
				if o.Version != nil {
					return usage("INVALID_FLAG", "--version and --timestamp exclude each other")
				}
				ts, err := rowio.ParseTime(at.timestamp, nil)
				if err != nil {
					return usage("INVALID_FLAG", "--timestamp: %v", err)
				}
				o.Timestamp = &ts
			}
			if cmd.Flags().Changed("limit") {
				if limit < 0 {
					return usage("INVALID_FLAG", "--limit %d: expected 0 or more", limit)
				}
				o.Limit = limit
			}
			if orderBy != "" {
				order, err := parseOrder(orderBy)
				if err != nil {
					return err
				}
				o.OrderBy = order
			}
			if count && (orderBy != "" || len(columns.values) > 0 || rowIDs || cmd.Flags().Changed("limit")) {
				return usage("INVALID_FLAG", "--count excludes --columns, --limit, --order-by and --row-ids")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			scan, err := t.Scan(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("read %s: %w", args[0], err)
			}
			if count {
				n, err := scan.Count(cmd.Context())
				if err != nil {
					return fmt.Errorf("count %s: %w", args[0], err)
				}
				return a.printValues(&schema.Struct{Fields: []schema.Field{{Name: "count", Type: schema.Long}}}, [][]any{{n}})
			}
			rows := scan.Batches(cmd.Context())
			if cmd.Flags().Changed("limit") && limit == 0 {
				rows = func(func(arrow.RecordBatch, error) bool) {}
			}
			return a.printRows(scan.Schema(), rows)
		},
	}
	at.flags(c)
	f := c.Flags()
	f.Var(&columns, "columns", "columns to print, in this order (default: all)")
	f.StringVar(&where, "where", "", "print the rows for which this expression is true")
	f.StringVar(&orderBy, "order-by", "", `columns to sort by, each with ASC or DESC, for example "name DESC, id"`)
	f.Int64Var(&limit, "limit", 0, "print at most this many rows (default: all)")
	f.BoolVar(&count, "count", false, "print only the number of rows")
	f.BoolVar(&rowIDs, "row-ids", false, "add the columns _row_id and _row_commit_version (tables with row tracking)")
	return c
}
