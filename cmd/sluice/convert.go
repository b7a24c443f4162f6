package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

func newConvertCommand(a *app) *cobra.Command {
	var o delta.ConvertOptions
	var partition string
	var props propertyFlag
	c := &cobra.Command{
		Use:   "convert DIR [--partition-schema COLUMNS] [--no-stats]",
		Short: "Make a table of a folder of Parquet files, in place",
		Long: "Make a Delta table of the Parquet files in a folder, in place: only a log is written beside them. Folders\n" +
			"named column=value make partition columns; columns are joined over all files and types must agree.\n" +
			"Statistics come from the footers. Hidden files and folders (_x, .x) are left out.",
		Example: `  sluice create people --schema "id BIGINT, country STRING" --partition-by country
  echo '{"id":1,"country":"UK"}' | sluice append people --from - --format jsonl
  mkdir files && cp -r people/country=* files/
  sluice convert files --partition-schema "country STRING"
  sluice cat files`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("expected one folder, found %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if partition != "" {
				s, err := schema.ParseDDL(partition)
				if err != nil {
					return fmt.Errorf("read --partition-schema: %w", err)
				}
				o.PartitionSchema = s
			}
			o.Properties = props.values
			store, err := a.open(args[0])
			if err != nil {
				return err
			}
			do, err := a.deltaOptions()
			if err != nil {
				return err
			}
			p := a.startProgress("reading footers", 0, false)
			t, r, err := delta.Convert(cmd.Context(), store, o, do)
			p.Stop()
			if err != nil {
				return fmt.Errorf("convert %s: %w", args[0], err)
			}
			out := writeResult{Operation: "convert", Table: t.Store().URL(), Version: r.Version, Committed: r.Committed, Metrics: metricsOf(r.Metrics)}
			out.Metrics["rows"] = r.Rows
			return a.printResult(out, fmt.Sprintf("convert %s: a table of %s and %s", args[0], plural(r.Metrics.FilesAdded, "file", "files"), plural(r.Rows, "row", "rows")))
		},
	}
	f := c.Flags()
	f.StringVar(&partition, "partition-schema", "", `types of the columns in folder names, for example "day DATE, country STRING"
(default: INT, BIGINT or DATE where every value is one, else STRING)`)
	f.BoolVar(&o.NoStats, "no-stats", false, "write no statistics: readers then skip no file by its values")
	f.Var(&props, "property", "table property; may be repeated")
	return c
}
