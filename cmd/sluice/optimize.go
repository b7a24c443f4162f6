package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
)

func newOptimizeCommand(a *app) *cobra.Command {
	var o delta.OptimizeOptions
	var target, least, memory sizeFlag
	var zorder listFlag
	c := &cobra.Command{
		Use:   "optimize TABLE [flags]",
		Short: "Pack small files and order rows so that readers skip more",
		Long: "Rewrite files of a table in one commit that changes no row: small files are packed together and files\n" +
			"with many deleted rows are rewritten. On a clustered table the files that are not clustered yet are put in\n" +
			"the order of the clustering columns. A run that finds nothing to gain commits nothing. The old files stay\n" +
			"for readers of older versions until vacuum.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING, country STRING" --partition-by country
  echo '{"id":1,"name":"Ada","country":"UK"}' | sluice append people --from - --format jsonl
  echo '{"id":2,"name":"Alan","country":"UK"}' | sluice append people --from - --format jsonl
  sluice optimize people
  sluice optimize people --where "country = 'UK'" --zorder id,name
  sluice optimize people --purge`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			if cmd.Flags().Changed("target-size") && target < 1 {
				return usage("INVALID_FLAG", "--target-size: expected at least 1 byte")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.TargetSize, o.MinSize, o.MaxMemory, o.ZOrder = int64(target), int64(least), int64(memory), zorder.values
			p := a.startProgress("optimizing", 0, false)
			r, err := t.Optimize(cmd.Context(), o)
			p.Stop()
			if err != nil {
				return fmt.Errorf("optimize %s: %w", args[0], err)
			}
			out := writeResult{Operation: "optimize", Table: t.Store().URL(), Version: r.Version, Committed: r.Committed, Metrics: metricsOf(r.Metrics)}
			out.Metrics["partitions"], out.Metrics["deletion_vectors_removed"], out.Metrics["files_skipped"] = int64(r.Partitions), r.VectorsRemoved, int64(r.Skipped)
			summary := fmt.Sprintf("optimize %s: nothing to gain, version %d stands", args[0], r.Version)
			if r.Committed {
				summary = fmt.Sprintf("optimize %s: version %d: %s (%s) became %s (%s)", args[0], r.Version, plural(r.Metrics.FilesRemoved, "file", "files"),
					humanSize(r.Metrics.BytesRemoved), plural(r.Metrics.FilesAdded, "file", "files"), humanSize(r.Metrics.BytesAdded))
			}
			return a.printResult(out, summary)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Where, "where", "", "only partitions for which this expression of partition columns is true (default: all)")
	f.Var(&target, "target-size", "size that files are packed to (default: the table's delta.targetFileSize, else 128MiB)")
	f.Var(&least, "min-size", "leave files of this size and more alone (default: three quarters of the target size)")
	f.Var(&zorder, "zorder", "put the rows in Z-order of these columns")
	f.BoolVar(&o.Purge, "purge", false, "rewrite only files that have a deletion vector, without the deleted rows")
	f.BoolVar(&o.Full, "full", false, "on a clustered table: also files that were clustered by other columns")
	f.Var(&memory, "memory", "rows held in memory while ordering; more goes to temporary files (default 256MiB)")
	return c
}
