package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
)

func newUpdateCommand(a *app) *cobra.Command {
	var set, where string
	c := &cobra.Command{
		Use:   "update TABLE --set ASSIGNMENTS [--where EXPR]",
		Short: "Change rows of a table",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice update people --set "name = upper(name)" --where "id = 1"`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notEmpty(cmd, "where"); err != nil {
				return err
			}
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if strings.TrimSpace(set) == "" {
				return usage("MISSING_FLAG", "update: --set is missing")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p := a.startProgress("updating", 0, false)
			r, err := t.Update(cmd.Context(), set, where, delta.DMLOptions{})
			p.Stop()
			return a.finish("update", args[0], t, r, err)
		},
	}
	c.Flags().StringVar(&set, "set", "", `assignments, for example "a = a + 1, b = 'x'" (required)`)
	c.Flags().StringVar(&where, "where", "", "change the rows for which this expression is true (default: all rows)")
	return c
}
