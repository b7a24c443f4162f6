package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
)

func newExplainCommand(a *app) *cobra.Command {
	var state string
	var keys []string
	c := &cobra.Command{
		Use:   "explain TABLE --key COLUMN=VALUE",
		Short: "Tell every event still known for a key, and why it won or lost",
		Long: "Tell, in sequence order, every event of a key that the rows, the hidden state and the change feed of a target of apply\n" +
			"still know, and why each won, lost, joined or was cut.",
		Example: `  echo '{"id":1,"name":"Ada","op":"I","ts":1}' > people.jsonl
  echo '{"id":1,"op":"D","ts":4}' >> people.jsonl
  echo '{"id":1,"name":"late","op":"U","ts":3}' >> people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts --except-columns op,ts
  sluice explain people --key id=1`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			key := map[string]string{}
			for _, k := range keys {
				name, value, ok := strings.Cut(k, "=")
				if !ok || name == "" {
					return usage("INVALID_FLAG", "--key %q: want COLUMN=VALUE", k)
				}
				key[name] = value
			}
			if len(key) == 0 {
				return usage("MISSING_FLAG", "explain: --key is missing")
			}
			m, o, err := a.operator(args[0], state)
			if err != nil {
				return err
			}
			x, err := apply.Explain(cmd.Context(), m, key, o)
			if err != nil {
				return fmt.Errorf("explain %s: %w", args[0], err)
			}
			return a.printResult(x, explanationText(x))
		},
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "value of a key column; repeat it for each column of the key (required)")
	c.Flags().StringVar(&state, "state", "", stateHelp)
	return c
}

func explanationText(x *apply.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s now\n", plural(int64(len(x.Rows)), "row", "rows"))
	for _, e := range x.Events {
		when := ""
		if e.Version != nil {
			when = fmt.Sprintf(" at version %d", *e.Version)
		}
		at := e.Sequence
		if e.System != "" {
			at += " reported at " + e.System
		}
		fmt.Fprintf(&b, "%s  %s  %s: %s (known from %s%s)\n", at, e.Kind, e.Fate, e.Why, e.Known, when)
	}
	return strings.TrimRight(b.String(), "\n")
}
