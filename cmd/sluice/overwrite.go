package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
)

func newOverwriteCommand(a *app) *cobra.Command {
	var in rowInput
	var where string
	var dynamic bool
	var partition listFlag
	c := &cobra.Command{
		Use:   "overwrite TABLE --from FILE",
		Short: "Replace rows of a table by the rows of a file",
		Long: "Replace rows of a table by the rows of a file, in one commit: all rows, the rows that match --where\n" +
			"(the new rows must match it too), or with --dynamic the partitions that the new rows lie in.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' > people.jsonl
  sluice append people --from people.jsonl
  sluice overwrite people --from people.jsonl --where "id = 1"`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notEmpty(cmd, "where"); err != nil {
				return err
			}
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if err := in.check(); err != nil {
				return err
			}
			if dynamic && where != "" {
				return usage("INVALID_FLAG", "--where and --dynamic exclude each other")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			done, err := in.fetch(cmd.Context(), a)
			defer done()
			if err != nil {
				return err
			}
			rows, err := in.rows(cmd.Context(), a, t)
			if err != nil {
				return err
			}
			rows, stop := a.counted("overwriting", rows)
			r, err := t.Overwrite(cmd.Context(), rows, delta.OverwriteOptions{
				WriteOptions: delta.WriteOptions{MergeSchema: in.merge}, Where: where, Dynamic: dynamic, OverwriteSchema: in.replace, PartitionBy: partition.values})
			stop()
			return a.finish("overwrite", args[0], t, r, err)
		},
	}
	in.flags(c)
	in.evolution(c)
	c.Flags().BoolVar(&in.replace, "overwrite-schema", false, "give the table the columns of the rows instead of its own")
	c.Flags().Var(&partition, "partition-by", "with --overwrite-schema: the partition columns from then on (default: those it has)")
	c.Flags().StringVar(&where, "where", "", "replace only the rows for which this expression is true")
	c.Flags().BoolVar(&dynamic, "dynamic", false, "replace only the partitions of the new rows")
	return c
}
