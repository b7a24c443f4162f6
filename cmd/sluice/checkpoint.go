package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCheckpointCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint TABLE",
		Short: "Write a checkpoint of the newest version, so that readers need fewer log files",
		Long: `Write a checkpoint of the newest version: a V2 checkpoint with sidecars where the
table has delta.checkpointPolicy=v2, else a classic one. Log files that only versions
older than delta.logRetentionDuration need are deleted after it, unless
delta.enableExpiredLogCleanup is false.`,
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  sluice checkpoint people`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			version, err := t.Checkpoint(cmd.Context())
			if err != nil {
				return fmt.Errorf("checkpoint %s: %w", args[0], err)
			}
			return a.printResult(map[string]any{"table": t.Store().URL(), "version": version},
				fmt.Sprintf("checkpoint of version %d written", version))
		},
	}
}
