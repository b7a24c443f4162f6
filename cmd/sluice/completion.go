package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCompletionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print the completion script of a shell",
		Example:   "  sluice completion bash > sluice.bash\n  sluice completion zsh > _sluice",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "bash" && args[0] != "zsh" && args[0] != "fish" {
				return fmt.Errorf("expected bash, zsh or fish")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return cmd.Root().GenZshCompletion(a.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(a.stdout, true)
			}
			return cmd.Root().GenBashCompletionV2(a.stdout, true)
		},
	}
}
