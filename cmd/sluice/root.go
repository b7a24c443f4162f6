package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// globalFlags are the flags of every command.
type globalFlags struct {
	output    string
	progress  string
	logLevel  string
	logFormat string
	timeZone  string

	storeOptions map[string]string
	singleWriter bool
}

// newRoot builds the command tree over a.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Turn change events into Delta tables, and read and write Delta tables",
		Long: "sluice turns streams of change events (Debezium and others, from files and Kafka) into Delta Lake tables with a\n" +
			"change feed, and reads and writes Delta tables. One binary, no services.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if what, ok := laterCommands[args[0]]; ok {
				return notYet("command " + args[0] + " (" + what + ")")
			}
			msg := fmt.Sprintf("unknown command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				msg += ": did you mean " + strings.Join(near, " or ") + "?"
			}
			return &cliError{code: "UNKNOWN_COMMAND", exit: exitUsage, message: msg, hint: "see sluice --help"}
		},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error { return a.flags.validate() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	cobra.EnableCommandSorting = false
	root.SetHelpCommand(&cobra.Command{Use: "help [command]", Short: "Help about a command", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := root.Find(args)
			if err != nil || c == nil {
				return usage("UNKNOWN_COMMAND", "unknown command %q", strings.Join(args, " "))
			}
			return c.Help()
		}})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		code := "INVALID_FLAG"
		if strings.HasPrefix(err.Error(), "unknown") {
			code = "UNKNOWN_FLAG"
		}
		return &cliError{code: code, exit: exitUsage, message: flagText(err), hint: "see " + cmd.CommandPath() + " --help"}
	})
	p := root.PersistentFlags()
	p.SortFlags = false
	p.StringVarP(&a.flags.output, "output", "o", "", "form of the data: table, jsonl, json, csv, parquet or arrow\n(default table on a terminal, jsonl elsewhere)")
	p.StringVar(&a.flags.progress, "progress", "auto", "progress on standard error: auto, bar, plain (a line every ten seconds) or none")
	p.StringVar(&a.flags.logLevel, "log-level", "warn", "least level of log lines on standard error: debug, info, warn or error")
	p.StringVar(&a.flags.logFormat, "log-format", "text", "form of log lines: text or json")
	p.StringVar(&a.flags.timeZone, "time-zone", "UTC", "zone of timestamp partition values and text timestamps that carry none")

	p.StringToStringVar(&a.flags.storeOptions, "store-option", nil, "option of an object store, NAME=VALUE, repeatable: endpoint, region, profile, path_style ...\n(docs/stores.md; credentials come from the environment)")
	p.BoolVar(&a.flags.singleWriter, "single-writer", false, "nobody else writes: allow an object store that ignores conditional writes")

	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"streams", "Changing data from change streams:", []*cobra.Command{newApplyCommand(a), newRewindCommand(a), newRefreshCommand(a), newResetCommand(a), newQuarantineCommand(a),
			newDetectCommand(a), newFmtCommand(a), newDemoCommand(a)}},
		{"reading", "Reading:", []*cobra.Command{newCatCommand(a), newChangesCommand(a), newLogCommand(a), newInspectCommand(a), newExplainCommand(a), newVerifyCommand(a), newCheckCommand(a), newFsckCommand(a), newDiffCommand(a)}},
		{"tables", "Table operations:", []*cobra.Command{newCreateCommand(a), newAppendCommand(a), newOverwriteCommand(a),
			newDeleteCommand(a), newUpdateCommand(a), newAlterCommand(a),
			newMergeCommand(a), newOptimizeCommand(a), newVacuumCommand(a), newRestoreCommand(a), newCloneCommand(a), newConvertCommand(a), newCheckpointCommand(a)}},
		{"other", "Other:", []*cobra.Command{newCompletionCommand(a), newVersionCommand(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			if c.Args == nil {
				c.Args = cobra.NoArgs
			}
			c.Args, c.GroupID = wrapArgs(c.Args), g.id
			c.Flags().SortFlags = false
			c.DisableFlagsInUseLine = true
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("other")
	return root
}

// wrapArgs gives argument-count errors their code.
func wrapArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &cliError{code: "INVALID_ARGUMENTS", exit: exitUsage, message: cmd.Name() + ": " + err.Error(), hint: "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// oneTable is the argument check of commands on one table.
func oneTable(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected one table, found %d arguments", len(args))
	}
	return nil
}

func (f *globalFlags) validate() error {
	var problems []error
	if f.output != "" {
		if _, err := rowio.ParseForm(f.output); err != nil {
			problems = append(problems, err)
		}
	}
	check := func(flag, value string, allowed ...string) {
		for _, v := range allowed {
			if v == value {
				return
			}
		}
		problems = append(problems, fmt.Errorf("--%s %q: expected %s", flag, value, strings.Join(allowed, ", ")))
	}
	check("progress", f.progress, "auto", "bar", "plain", "none")
	check("log-level", f.logLevel, "debug", "info", "warn", "error")
	check("log-format", f.logFormat, "text", "json")
	if _, err := f.zone(); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return usage("INVALID_FLAG", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func (f *globalFlags) zone() (*time.Location, error) {
	z, err := time.LoadLocation(f.timeZone)
	if err != nil || f.timeZone == "" || f.timeZone == "Local" {
		return nil, fmt.Errorf("--time-zone %q: expected a zone name such as UTC or Europe/Berlin", f.timeZone)
	}
	return z, nil
}

// form is the form of rows on standard output.
func (a *app) form() rowio.Form {
	switch {
	case a.flags.output != "":
		return rowio.Form(a.flags.output)
	case a.outTerminal:
		return rowio.Table
	}
	return rowio.JSONL
}

// logger writes to standard error at the chosen level.
func (a *app) logger() *slog.Logger { return newLogger(a.stderr, a.flags) }

func newLogger(w io.Writer, f globalFlags) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		level = slog.LevelWarn
	}
	o := &slog.HandlerOptions{Level: level}
	if f.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// open gives the store of a location that the user named.
func (a *app) open(location string) (storage.Store, error) {
	s, err := open.Store(location, open.Options{Clouds: &a.clouds, Settings: a.flags.storeOptions, SingleWriter: a.flags.singleWriter})
	if errors.Is(err, storage.ErrNotFolder) {
		return nil, &cliError{code: "DELTA_TABLE_NOT_FOUND", exit: exitNotFound, message: fmt.Sprintf("open %s: it is a file, and a table is a folder", location),
			hint: "make a table with sluice create and put the rows of a file into it with sluice append --from"}
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err) // it names the location, less what may be secret in it
	}
	return storage.WithRetry(s, storage.RetryOptions{}), nil
}

// flagText is an error of a flag's value without the words of the package that read it.
func flagText(err error) string {
	text := err.Error()
	at := strings.Index(text, ": strconv.")
	if at < 0 {
		return text
	}
	what := "expected a whole number"
	switch {
	case strings.Contains(text[at:], "ParseBool"):
		what = "expected true or false"
	case strings.Contains(text[at:], "ParseFloat"):
		what = "expected a number"
	case strings.HasSuffix(text, "out of range"):
		what = "the number is too large"
	}
	return text[:at] + ": " + what
}
