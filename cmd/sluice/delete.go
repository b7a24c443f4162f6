package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
)

func newDeleteCommand(a *app) *cobra.Command {
	var where string
	c := &cobra.Command{
		Use:   "delete TABLE [--where EXPR]",
		Short: "Delete rows of a table",
		Long:  "Delete the rows for which --where is true; without it all rows.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice delete people --where "name = 'Ada' AND id < 10"`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notEmpty(cmd, "where"); err != nil {
				return err
			}
			if err := a.checkResultForm(); err != nil {
				return err
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p := a.startProgress("deleting", 0, false)
			r, err := t.Delete(cmd.Context(), where, delta.DMLOptions{})
			p.Stop()
			return a.finish("delete", args[0], t, r, err)
		},
	}
	c.Flags().StringVar(&where, "where", "", "delete the rows for which this expression is true (default: all rows)")
	return c
}
