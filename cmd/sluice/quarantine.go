package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func newQuarantineCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "quarantine list|show|replay TABLE",
		Short: "List, show and replay the events that could not be applied",
		Long: "Events that cannot be applied lie in the quarantine, a Delta table at TABLE/_apply/quarantine, with their bytes, their place in\n" +
			"the source and the reason. A replay sends them, as they are or repaired, through their flow with the place they had: what is\n" +
			"newer stays, and what was applied leaves the quarantine. TABLE as a template, DIR/{table}, is the quarantine of the records\n" +
			"whose table is not known, DIR/_quarantine.",
		Example: `  echo '{"id":1,"name":"Ada","op":"I","ts":1}' > people.jsonl
  echo '{"id":2,"name":"Bob","op":"?","ts":2}' >> people.jsonl
  echo '{"id":1,"name":"Ada L.","op":"U","ts":3}' >> people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts --except-columns op,ts --on-poison quarantine
  sluice quarantine list people

  # Repair the record in a file, and put it back in its place
  sluice quarantine show people > bad.jsonl
  sed 's/"op\\":\\"?\\"/"op\\":\\"I\\"/' bad.jsonl > good.jsonl
  sluice quarantine replay people --repaired good.jsonl --keys id --sequence-by ts --except-columns op,ts
  sluice cat people`,
		Args: func(*cobra.Command, []string) error { return errors.New("expected list, show or replay") },
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	for _, sub := range []*cobra.Command{newQuarantineList(a), newQuarantineShow(a), newQuarantineReplay(a)} {
		sub.Args = wrapArgs(oneTable)
		sub.Flags().SortFlags = false
		sub.DisableFlagsInUseLine = true
		c.AddCommand(sub)
	}
	return c
}

const (
	quarantineHelp = "where the quarantine lies (default TABLE/_apply/quarantine/)"
	idHelp         = "take this record only; may be repeated (default: all)"
)

func newQuarantineList(a *app) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:     "list TABLE",
		Short:   "List the records of a quarantine",
		Example: "  sluice quarantine list people",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, list, err := a.quarantined(cmd.Context(), args[0], at, nil)
			if err != nil {
				return err
			}
			s := &schema.Struct{}
			for _, f := range []struct {
				name string
				typ  schema.Type
			}{{"id", schema.String}, {"quarantined_at", schema.Timestamp}, {"flow", schema.String}, {"source_table", schema.String}, {"class", schema.String},
				{"code", schema.String}, {"is_delete", schema.Boolean}, {"source", schema.String}, {"topic", schema.String}, {"offset", schema.Long},
				{"line", schema.Long}, {"reason", schema.String}} {
				s.Fields = append(s.Fields, schema.Field{Name: f.name, Type: f.typ, Nullable: true})
			}
			var rows [][]any
			for _, x := range list {
				rows = append(rows, []any{x.ID, x.At, x.Flow, x.Table, string(x.Class), x.Code, x.Delete, x.Record.Source, x.Record.Topic, x.Record.Transport,
					x.Record.Line, x.Reason})
			}
			return a.printValues(s, rows)
		},
	}
	c.Flags().StringVar(&at, "quarantine", "", quarantineHelp)
	return c
}

func newQuarantineShow(a *app) *cobra.Command {
	var at string
	var ids []string
	c := &cobra.Command{
		Use:   "show TABLE [--id ID]",
		Short: "Print records of a quarantine whole, one JSON object a line",
		Long: "Print records of a quarantine whole, one JSON object a line, as `replay --repaired` takes them: key and value as text, or in\n" +
			"base64 (key_base64, value_base64) where their bytes are none; raw where the record as it stood is more than its value.",
		Example: "  sluice quarantine show people > bad.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, list, err := a.quarantined(cmd.Context(), args[0], at, ids)
			if err != nil {
				return err
			}
			enc := json.NewEncoder(a.stdout)
			enc.SetEscapeHTML(false)
			for _, x := range list {
				if err := enc.Encode(x); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&ids, "id", nil, idHelp)
	c.Flags().StringVar(&at, "quarantine", "", quarantineHelp)
	return c
}

// notOfReplay are flags of apply that a replay does not have: what it reads, where
// it goes and how long it runs are settled.
var notOfReplay = []string{"into", "from", "table", "include-tables", "exclude-tables", "flow", "once", "on-poison", "on-table-error", "quarantine", "follow", "batch-interval", "listen", "snapshot", "snapshot-version",
	"max-delete-fraction", "allow-empty-snapshot", "missing-grace"}

func newQuarantineReplay(a *app) *cobra.Command {
	var f applyFlags
	var st statementFlags
	var at, repaired string
	var ids []string
	c := &cobra.Command{
		Use:   "replay TABLE [--id ID | --repaired FILE] [flags of the flow | -f FILE]",
		Short: "Apply records of a quarantine, as they are or repaired",
		Long: "Apply records of a quarantine with the place in the source that they had, so that what is newer stays. Give the flags that the\n" +
			"flow has (--keys, --sequence-by ...), or its statements with -f. Without --repaired the records go as they are: for when a flag or the version was at\n" +
			"fault. A record that still cannot be applied stays, and exit is 3.",
		Example: "  sluice quarantine replay people --repaired good.jsonl --keys id --sequence-by ts --except-columns op,ts",
		RunE: func(cmd *cobra.Command, args []string) error {
			if repaired != "" && len(ids) > 0 {
				return usage("INVALID_FLAG", "replay: --id and --repaired exclude each other: the file names its records")
			}
			if err := st.alone(cmd, "id", "repaired", "quarantine"); err != nil {
				return err
			}
			return a.replay(cmd.Context(), args[0], at, ids, repaired, &f, &st)
		},
	}
	p := c.Flags()
	p.StringArrayVar(&ids, "id", nil, idHelp)
	p.StringVar(&repaired, "repaired", "", "file of records as show prints them, with key, value or headers repaired; - is standard input")
	p.StringVar(&at, "quarantine", "", quarantineHelp)
	p.StringVarP(&st.file, "file", "f", "", "the statements of the flow, as apply -f takes them, instead of its flags")
	p.StringArrayVar(&st.sources, "source", nil, "NAME=SRC, as with apply -f; may be repeated")
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SortFlags = false
	f.register(all)
	all.VisitAll(func(fl *pflag.Flag) {
		if !slices.Contains(notOfReplay, fl.Name) {
			p.AddFlag(fl)
		}
	})
	return c
}

// quarantined opens the quarantine of a target and reads the records asked for, in
// the order of the source. nil ids are all.
func (a *app) quarantined(ctx context.Context, location, at string, ids []string) (*apply.Quarantine, []apply.Quarantined, error) {
	o := apply.Options{Clock: a.clock, Logger: a.logger(), EngineInfo: "sluice " + version}
	var err error
	if o.TimeZone, err = a.flags.zone(); err != nil {
		return nil, nil, err
	}
	t, isTemplate, err := parseTemplate(location)
	if err != nil {
		return nil, nil, err
	}
	where, below := location, "_apply/quarantine"
	if isTemplate {
		where, below = t.root, "_quarantine"
	}
	if at != "" {
		where, below = at, ""
	}
	store, err := a.open(where)
	if err != nil {
		return nil, nil, err
	}
	if below != "" {
		store = storage.Sub(store, below)
	}
	q, err := apply.OpenQuarantine(ctx, store, o)
	if err != nil {
		return nil, nil, fmt.Errorf("quarantine of %s: %w", location, err)
	}
	var out []apply.Quarantined
	missing := slices.Clone(ids)
	for x, err := range q.Records(ctx) {
		if err != nil {
			return nil, nil, fmt.Errorf("quarantine of %s: %w", location, err)
		}
		if ids != nil && !slices.Contains(ids, x.ID) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == x.ID })
		out = append(out, x)
	}
	if len(missing) > 0 {
		return nil, nil, &cliError{code: apply.CodeUnknownRecord, exit: exitNotFound, message: "there is no record " + strings.Join(missing, ", ") + " in the quarantine"}
	}
	slices.SortFunc(out, func(x, y apply.Quarantined) int {
		return cmp.Or(cmp.Compare(x.Record.Source, y.Record.Source), cmp.Compare(x.Record.End, y.Record.End), cmp.Compare(x.Record.Line, y.Record.Line))
	})
	return q, out, nil
}

// repairs reads the records of a file of repairs.
func (a *app) repairs(name string) (map[string][]byte, []string, error) {
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		defer f.Close()
		in = f
	}
	lines := map[string][]byte{}
	var ids []string
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(strings.TrimSpace(string(line))) > 0 {
			var x struct{ ID string }
			if e := json.Unmarshal(line, &x); e != nil || x.ID == "" {
				return nil, nil, usage(apply.CodeInvalidRepair, "%s line %d is no record as `quarantine show` prints it, with its id", name, n)
			}
			if lines[x.ID] != nil {
				return nil, nil, usage(apply.CodeInvalidRepair, "%s line %d: record %s stands there twice", name, n, x.ID)
			}
			lines[x.ID], ids = line, append(ids, x.ID)
		}
		if errors.Is(err, io.EOF) {
			return lines, ids, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
}

func (a *app) replay(ctx context.Context, location, at string, ids []string, repaired string, f *applyFlags, st *statementFlags) error {
	if err := a.checkResultForm(); err != nil {
		return err
	}
	f.into, f.from, f.replaying = location, []string{"-"}, true
	if err := f.check(); err != nil {
		return err
	}
	var lines map[string][]byte
	if repaired != "" {
		var err error
		if lines, ids, err = a.repairs(repaired); err != nil {
			return err
		}
	}
	q, list, err := a.quarantined(ctx, location, at, ids)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return a.printResult(apply.ReplayResult{Runs: []apply.Result{}}, "nothing to replay")
	}
	records := make([]*event.Record, len(list))
	for i := range list {
		if line := lines[list[i].ID]; line != nil {
			if err := list[i].Repair(line); err != nil {
				return err
			}
		}
		records[i] = &list[i].Record
	}
	var spec apply.Spec
	if st.file != "" {
		spec, err = a.replayStatements(ctx, location, f, st, records, list)
	} else {
		spec, err = a.replaySpec(ctx, f, records, list)
	}
	if err != nil {
		return err
	}
	r, err := q.Replay(ctx, list, spec)
	if err != nil {
		return fmt.Errorf("replay into %s: %w", location, err)
	}
	text := fmt.Sprintf("%s: %s replayed, %d still cannot be applied", location, plural(r.Replayed, "record", "records"), len(r.Still))
	if err := a.printResult(r, text); err != nil {
		return err
	}
	if len(r.Still) > 0 {
		x := r.Still[0]
		return &cliError{code: apply.CodePoison, exit: exitRefused,
			message: fmt.Sprintf("replay into %s: %s stay in the quarantine; the first is %s: %s (%s): %s", location, plural(int64(len(r.Still)), "record", "records"), x.ID, x.Code, x.Class, x.Reason)}
	}
	return nil
}

// replaySpec is the flow of a replay, without its source.
func (a *app) replaySpec(ctx context.Context, f *applyFlags, records []*event.Record, list []apply.Quarantined) (apply.Spec, error) {
	columns, err := f.declared()
	if err != nil {
		return apply.Spec{}, err
	}
	if f.overridesFile != "" {
		if f.own, err = readOverrides(f.overridesFile, a.flowOf(f, true, "")); err != nil {
			return apply.Spec{}, err
		}
	}
	targets, err := a.targets(f.into, "", nil, nil)
	if err != nil {
		return apply.Spec{}, err
	}
	f.keepFormat(ctx, apply.Spec{Target: targets, Flow: a.flowOf(f, targets.Route != nil, "")}, apply.Options{Clock: a.clock, Logger: a.logger()})
	spec, err := a.sourceSpec(f, columns)
	if err != nil {
		return apply.Spec{}, err
	}
	opened, err := source.OpenRecords(ctx, spec, records)
	if err != nil {
		return apply.Spec{}, fmt.Errorf("open records: %w", err)
	}
	f.withoutOperation(opened)
	flow := a.flowOf(f, targets.Route != nil, apply.PoisonFail)
	flow.Quarantine = nil
	out := apply.Spec{NewDecoder: opened.NewDecoder, Target: targets, Flow: flow}
	if targets.Route != nil {
		targets.Route = f.own.route(targets.Route)
		out.Target, out.FlowOf = targets, f.own.flowOf(flow)
	} else if x := f.own.of(tableOf(list[0].Table)); x != nil {
		out.Flow = x.Apply(flow)
	}
	return out, nil
}
