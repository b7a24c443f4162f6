package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
)

func newAppendCommand(a *app) *cobra.Command {
	var in rowInput
	c := &cobra.Command{
		Use:   "append TABLE --from FILE",
		Short: "Append the rows of a file to a table",
		Long: "Append the rows of a file to a table, in one commit. Columns are matched by name, columns that the\n" +
			"file lacks get their default, generated or identity value, else null; a row that does not fit the table is an error that names it, and nothing is written.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  echo '{"id":1,"name":"Ada"}' | sluice append people --from - --format jsonl
  sluice cat people -o csv > more.csv
  sluice append people --from more.csv`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if err := in.check(); err != nil {
				return err
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
			rows, stop := a.counted("appending", rows)
			r, err := t.Append(cmd.Context(), rows, delta.WriteOptions{MergeSchema: in.merge})
			stop()
			return a.finish("append", args[0], t, r, err)
		},
	}
	in.flags(c)
	in.evolution(c)
	return c
}
