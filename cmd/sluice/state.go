package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/storage/open"
)

const stateHelp = "where the table's apply state lies (default <target>/_apply/state/)"

// operator opens a target for an operation that is no batch.
func (a *app) operator(location, state string) (apply.Operator, apply.Options, error) {
	o := apply.Options{Clock: a.clock, Logger: a.logger(), EngineInfo: "sluice " + version}
	store, err := a.open(location)
	if err != nil {
		return apply.Operator{}, o, err
	}
	if o.TimeZone, err = a.flags.zone(); err != nil {
		return apply.Operator{}, o, err
	}
	m := apply.Operator{Store: store, Name: open.Base(location)}
	if state != "" {
		m.StatePath, m.State = state, a.below(state, true, "state")
	}
	return m, o, nil
}

// operate runs an operation and prints its result.
func (a *app) operate(ctx context.Context, location, state string, work func(apply.Operator, apply.Options) (apply.OperationResult, error)) error {
	if err := a.checkResultForm(); err != nil {
		return err
	}
	m, o, err := a.operator(location, state)
	if err != nil {
		return err
	}
	r, err := work(m, o)
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.Operation, location, err)
	}
	text := fmt.Sprintf("%s %s: version %d; %s added, %s removed", r.Operation, location, r.Version, plural(r.Files.Added, "file", "files"), plural(r.Files.Removed, "file", "files"))
	if r.Operation == "rewind" {
		text += fmt.Sprintf("; rows and state are those of version %d", r.To)
	}
	return a.printResult(r, text)
}

func newRewindCommand(a *app) *cobra.Command {
	var state, at string
	var to int64
	c := &cobra.Command{
		Use:   "rewind TABLE --version N | --timestamp TIME",
		Short: "Take a target of apply back: rows, state and positions together",
		Long: "Make rows, hidden state, positions, once marks and snapshot versions of a target what they were at a version.\n" +
			"The next run reads the source on from there. A full refresh in between cannot be crossed.",
		Example: `  echo '{"id":1,"name":"Ada","ts":1}' > people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts
  echo '{"id":1,"name":"typing error","ts":2}' >> people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts
  sluice rewind people --version 1
  sluice cat people`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			byVersion := cmd.Flags().Changed("version")
			var when *time.Time
			var version *int64
			switch {
			case byVersion == (at != ""):
				return usage("MISSING_FLAG", "rewind: give --version or --timestamp, and not both")
			case byVersion && to < 0:
				return usage("INVALID_FLAG", "--version %d: versions start at 0", to)
			case byVersion:
				version = &to
			default:
				ts, err := rowio.ParseTime(at, nil)
				if err != nil {
					return usage("INVALID_FLAG", "--timestamp: %v", err)
				}
				when = &ts
			}
			return a.operate(cmd.Context(), args[0], state, func(m apply.Operator, o apply.Options) (apply.OperationResult, error) {
				return apply.Rewind(cmd.Context(), m, version, when, o)
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&to, "version", 0, "version to go back to")
	f.StringVar(&at, "timestamp", "", "go back to the newest version of this time: RFC 3339, or YYYY-MM-DD[ HH:MM:SS[.ffffff]] in UTC")
	f.StringVar(&state, "state", "", stateHelp)
	return c
}

func newRefreshCommand(a *app) *cobra.Command {
	var state string
	var full bool
	c := &cobra.Command{
		Use:   "refresh TABLE --full",
		Short: "Empty a target of apply and forget all that is known of it",
		Long: "Remove all rows of a target, and its hidden state, positions, once marks, snapshot versions and stored types, in one\n" +
			"commit. The next run reads what the source still has. pipelines.reset.allowed = false refuses it.",
		Example: `  echo '{"id":1,"name":"Ada","ts":1}' > people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts
  sluice refresh people --full
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !full {
				return usage("MISSING_FLAG", "refresh: rows and state are removed; say --full")
			}
			return a.operate(cmd.Context(), args[0], state, func(m apply.Operator, o apply.Options) (apply.OperationResult, error) {
				return apply.Refresh(cmd.Context(), m, o)
			})
		},
	}
	c.Flags().BoolVar(&full, "full", false, "remove rows and state (required)")
	c.Flags().StringVar(&state, "state", "", stateHelp)
	return c
}

func newResetCommand(a *app) *cobra.Command {
	var into, state string
	var forget bool
	c := &cobra.Command{
		Use:   "reset FLOW --into TABLE",
		Short: "Forget how far a flow has read",
		Long: "Forget the positions of one flow. It reads its source again; what it has applied before changes nothing as long as the\n" +
			"tombstones are kept. With --forget the flow itself is forgotten, and nothing waits for it any more.",
		Example: `  echo '{"id":1,"name":"Ada","ts":1}' > people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts
  sluice reset people --into people
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts`,
		Args: cobra.MatchAll(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if into == "" {
				return usage("MISSING_FLAG", "reset: --into is missing")
			}
			return a.operate(cmd.Context(), into, state, func(m apply.Operator, o apply.Options) (apply.OperationResult, error) {
				return apply.Reset(cmd.Context(), m, args[0], forget, o)
			})
		},
	}
	c.Flags().StringVar(&into, "into", "", "target of the flow (required)")
	c.Flags().BoolVar(&forget, "forget", false, "forget the flow itself")
	c.Flags().StringVar(&state, "state", "", stateHelp)
	return c
}
