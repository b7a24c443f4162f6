package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/delta"
)

func newCheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check TABLE",
		Short: "Print what sluice can read and write of a table, and why not",
		Long: "Print what sluice can read and write of a table, and why not: the protocol, its features one by one,\n" +
			"properties that stand in the way, and a verdict for every operation. A table that cannot be read or\n" +
			"written is an answer, not an error.",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  sluice check people
  sluice check people -o json`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			store, err := a.open(args[0])
			if err != nil {
				return err
			}
			o, err := a.deltaOptions()
			if err != nil {
				return err
			}
			r, err := delta.Check(cmd.Context(), store, o)
			if err != nil {
				return fmt.Errorf("check %s: %w", args[0], err)
			}
			if a.wantsSummary() {
				_, err := fmt.Fprint(a.stdout, checkText(r))
				return err
			}
			return a.printResult(r, "")
		},
	}
}

// checkText is the report for a reader.
func checkText(r *delta.CheckReport) string {
	yesNo := map[bool]string{true: "yes", false: "no"}
	var b strings.Builder
	fmt.Fprintf(&b, "table       %s\nversion     %d\nprotocol    reader %d, writer %d\nreadable    %s\nwritable    %s\n",
		r.Table, r.Version, r.Protocol.Reader, r.Protocol.Writer, yesNo[r.Readable], yesNo[r.Writable])
	fmt.Fprintln(&b, "features")
	for _, f := range r.Features {
		fmt.Fprintf(&b, "  %-28s read %-3s  write %-3s", f.Name, yesNo[f.Read], yesNo[f.Write])
		if f.Why != "" {
			fmt.Fprintf(&b, "  %s", f.Why)
		} else if f.Active != "" {
			fmt.Fprintf(&b, "  %s", f.Active)
		}
		fmt.Fprintln(&b)
	}
	if len(r.Properties) > 0 {
		fmt.Fprintln(&b, "properties in the way")
		for _, p := range r.Properties {
			fmt.Fprintf(&b, "  %s\n", p)
		}
	}
	fmt.Fprintln(&b, "operations")
	for _, op := range r.Operations {
		fmt.Fprintf(&b, "  %-28s %-3s", op.Operation, yesNo[op.Possible])
		if op.Why != "" {
			fmt.Fprintf(&b, "  %s: %s", op.Code, op.Why)
		}
		fmt.Fprintln(&b)
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}
