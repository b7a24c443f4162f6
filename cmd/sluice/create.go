package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

func newCreateCommand(a *app) *cobra.Command {
	var ddl string
	var partition, cluster listFlag
	var props propertyFlag
	c := &cobra.Command{
		Use:   "create TABLE --schema DDL",
		Short: "Create an empty table",
		Long: "Create an empty table. Columns of --schema may have rules: NOT NULL, COMMENT 'text', DEFAULT expr,\n" +
			"GENERATED ALWAYS AS (expr), GENERATED ALWAYS|BY DEFAULT AS IDENTITY (START WITH n INCREMENT BY n).\n" +
			"The table gets the least features that the schema, its rules and the properties need.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING, born DATE"
  sluice create sales --schema "day DATE, amount DECIMAL(12,2)" --partition-by day --property delta.enableChangeDataFeed=true
  sluice create events --schema "id BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMP DEFAULT current_timestamp(), kind STRING" --cluster-by kind,at`,
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
			t, err := delta.Create(cmd.Context(), store, delta.CreateOptions{Schema: s, PartitionBy: partition.values, ClusterBy: cluster.values, Properties: props.values}, o)
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
	f.Var(&cluster, "cluster-by", "columns by which optimize puts rows in order (at most 4; not with --partition-by)")
	f.Var(&props, "property", "table property; may be repeated")
	return c
}
