package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

func newCreateCommand(a *app) *cobra.Command {
	var ddl string
	var partition listFlag
	var props propertyFlag
	c := &cobra.Command{
		Use:   "create TABLE --schema DDL",
		Short: "Create an empty table",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING, born DATE"
  sluice create sales --schema "day DATE, amount DECIMAL(12,2)" --partition-by day --property delta.enableChangeDataFeed=true`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if ddl == "" {
				return usage("MISSING_FLAG", "create: --schema is missing")
			}
			s, err := schema.ParseDDL(ddl)
			if err != nil {
				return fmt.Errorf("read --schema: %w", err)
			}
			store, err := a.open(args[0])
			if err != nil {
				return err
			}
			o, err := a.deltaOptions()
			if err != nil {
				return err
			}
			t, err := delta.Create(cmd.Context(), store, delta.CreateOptions{Schema: s, PartitionBy: partition.values, Properties: props.values}, o)
			if err != nil {
				return fmt.Errorf("create %s: %w", args[0], err)
			}
			snap, err := t.Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			return a.printResult(map[string]any{"table": store.URL(), "version": snap.Version},
				fmt.Sprintf("created %s at version %d with %d columns", args[0], snap.Version, len(s.Fields)))
		},
	}
	f := c.Flags()
	f.StringVar(&ddl, "schema", "", `columns, for example "id BIGINT NOT NULL, name STRING" (required)`)
	f.Var(&partition, "partition-by", "partition columns")
	f.Var(&props, "property", "table property; may be repeated")
	return c
}
