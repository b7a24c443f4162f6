package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/source/kafka"
	"github.com/sluice-data/sluice/apply/source/postgres"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage/open"
)

// applyFlags are the flags of `sluice apply`.
type applyFlags struct {
	into, table, format, ddl     string
	from                         []string
	keys, columns, exceptColumns listFlag
	include, exclude             listFlag // patterns of source tables
	sequenceBy                   string
	deletes, truncates           string
	storedAs                     oneOf
	ignoreNulls, track           columnsFlag
	columnsToUpdate              string
	systemSequence               string
	once, dryRun, acceptRows     bool
	batchRows                    int
	batchBytes                   sizeFlag
	flow                         string
	property, option             propertyFlag
	partition                    listFlag
	changeFeed, deletionVectors  onOff
	quarantine, state            string
	onPoison, onTableError       oneOf
	evolution                    oneOf
	hintsDDL                     string
	hints, given                 *schema.Struct // of --schema-hints and --schema
	overridesFile                string
	snapshotFlags
	followFlags
	memoryFlags
	// own are the overrides of single tables, nil without any.
	own *overrides
	// replaying: the records are those of a quarantine.
	replaying bool
	// types are those of a declared table's columns, which the records may not tell.
	types *schema.Struct
	// known is the format that the flow keeps; knownNamed: its user had named it.
	known      string
	knownNamed bool
}

const applyExample = `  echo '{"id":1,"name":"Ada","op":"I","ts":1}' > people.jsonl
  echo '{"id":2,"name":"Bob","op":"I","ts":2}' >> people.jsonl
  echo '{"id":1,"name":"Ada L.","op":"U","ts":3}' >> people.jsonl
  echo '{"id":2,"op":"D","ts":4}' >> people.jsonl
  sluice apply --into people --from people.jsonl --keys id --sequence-by ts --except-columns op,ts
  sluice cat people
  sluice changes people --from-version 0

  # Every version as a row, valid from __START_AT until before __END_AT
  sluice apply --into history --from people.jsonl --keys id --sequence-by ts --except-columns op,ts --stored-as 2
  sluice cat history

  # Debezium events of several tables, one Delta table each
  sluice demo shop > /dev/null
  sluice apply --into 'tables/{table}' --from shop/events.jsonl

  # The same from AUTO CDC statements
  echo 'create streaming table staff; apply changes into staff from stream(people) keys (id)' > staff.sql
  echo 'sequence by ts apply as delete when op = "D" columns * except (op, ts)' >> staff.sql
  sluice apply -f staff.sql --source people=people.jsonl --dry-run
  sluice apply -f staff.sql --source people=people.jsonl

  # Whole exports, one folder a day, oldest first: what is missing from one was deleted
  mkdir -p exports/2024-05-01 exports/2024-05-02
  echo '{"id":1,"name":"Ada"}' > exports/2024-05-01/people.jsonl
  echo '{"id":1,"name":"Ada L."}' > exports/2024-05-02/people.jsonl
  sluice apply --into daily --from exports --snapshot --snapshot-version '{version}' --keys id`

func newApplyCommand(a *app) *cobra.Command {
	var f applyFlags
	var st statementFlags
	c := &cobra.Command{
		Use:   "apply --into TABLE --from SRC | -f FILE",
		Short: "Apply change events to a table, exactly once and in their own order",
		Long: "Apply change events to a table (AUTO CDC): for each key the newest event wins, whatever order they arrive in;\n" +
			"or every version of a key is kept as a row. A second run over the same input goes on where the first one ended.",
		Example: applyExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if st.file != "" {
				return a.applyStatements(cmd, &st, &f)
			}
			f.followServer(cmd.Flags().Changed("follow"))
			return a.apply(cmd.Context(), &f)
		},
	}
	f.register(c.Flags())
	st.register(c.Flags())
	return c
}

// register adds the flags that say what a flow is.
func (f *applyFlags) register(p *pflag.FlagSet) {
	f.storedAs = oneOf{"1", []string{"1", "2", "bitemporal"}}
	f.onPoison.values = []string{"quarantine", "fail"}
	f.evolution.values = apply.Evolutions()
	f.onTableError = oneOf{"continue", []string{"continue", "stop"}}
	f.batchRows, f.batchBytes = 100000, 256e6
	p.StringVar(&f.into, "into", "", "target table, or a template such as DIR/{table} or DIR/{schema}/{table}: one table per source table (required)")
	p.StringArrayVar(&f.from, "from", nil, "files, globs, directories, also of object stores (s3://bucket/prefix), or - for standard input (.gz .zst .bz2\n.snappy are read as they are; may be repeated), kafka://host:port/topic, postgres://user@host/database?tables=SCHEMA.TABLE,\nor a Delta table, whose change feed is followed (required)")
	p.StringVar(&f.format, "format", "auto", "form of the events: "+formatNames())
	p.Var(&f.include, "include-tables", "source tables of a mixed stream that are taken: names or patterns such as sales.*, NAME, SCHEMA.NAME (default: all)")
	p.Var(&f.exclude, "exclude-tables", "source tables of a mixed stream that are left out: names or patterns")
	p.StringVar(&f.table, "table", "", "source table of a mixed stream: NAME or SCHEMA.NAME (default: all, which then needs {table})")
	p.Var(&f.keys, "keys", "key columns (default: those that the events carry)")
	p.StringVar(&f.sequenceBy, "sequence-by", "", "expression that orders the events of a key (default: the position that the events carry)")
	p.StringVar(&f.deletes, "apply-as-deletes", "", "condition under which an event deletes (default: the operation that the events carry)")
	p.StringVar(&f.truncates, "apply-as-truncates", "", "condition under which an event empties the table (default: the operation that the events carry)")
	p.StringVar(&f.ddl, "schema", "", "columns of plain rows and schema-less events (default: inferred, integers as BIGINT)")
	p.Var(&f.evolution, "schema-evolution", "what becomes of new columns and of values that do not fit (default: columns join, types widen where the\ntable allows it, other types are refused; docs/sources.md, When the schema changes)")
	p.StringVar(&f.hintsDDL, "schema-hints", "", "types of single columns, whatever the source says; what does not fit goes to _rescued_data")
	p.Var(&f.columns, "columns", "columns that land in the table (default: all)")
	p.Var(&f.exceptColumns, "except-columns", "columns that do not land in the table")
	p.Var(&f.ignoreNulls, "ignore-null-updates", "a null changes nothing: in every column, in those of on:a,b, or in all but those of except:a,b")
	p.Lookup("ignore-null-updates").NoOptDefVal = allColumns
	p.StringVar(&f.columnsToUpdate, "columns-to-update", "", "column with the list of the columns that an event sets (null: all)")
	p.Var(&f.storedAs, "stored-as", "how history is kept: 1 (newest row of a key), 2 (a row for every version, with __START_AT and __END_AT)\nor bitemporal (also what was believed when)")
	p.StringVar(&f.systemSequence, "system-sequence-by", "", "expression that orders what became known (with --stored-as bitemporal)")
	p.Var(&f.track, "track-history", "columns whose change starts a new version: on:a,b or except:a,b (default all); others change in place")
	p.BoolVar(&f.once, "once", false, "run to completion once per target")
	p.IntVar(&f.batchRows, "batch-rows", f.batchRows, "most events of a batch, which is one commit")
	p.Var(&f.batchBytes, "batch-bytes", "most source bytes of a batch")
	p.StringVar(&f.flow, "flow", "", "name of the flow in the table's state (default: from the names of target and source)")
	p.Var(&f.property, "property", "property of a table that is created; of an existing one, changes it; may be repeated")
	p.Var(&f.partition, "partition-by", "partition columns of a table that is created")
	p.Var(&f.changeFeed, "change-feed", "change feed of the table (default on for a table that is created)")
	p.Var(&f.deletionVectors, "deletion-vectors", "deletion vectors of the table: updates and deletes write\nnext to nothing instead of whole files, but some readers\nrefuse the table (default off for a table that is created)")
	p.StringVar(&f.quarantine, "quarantine", "", "where events go that cannot be applied (default <target>/_apply/quarantine/)")
	p.Var(&f.onPoison, "on-poison", "what happens to events that cannot be applied\n(default fail for plain rows, quarantine for change formats)")
	p.Var(&f.onTableError, "on-table-error", "of several targets, when one is refused: the others go on, or all stop")
	p.StringVar(&f.overridesFile, "overrides", "", "YAML file of what single source tables have of their own: keys, sequence, history, target ...\n(docs/sources.md, One stream, many tables)")
	p.StringVar(&f.state, "state", "", "where the table's apply state lies (default <target>/_apply/state/)")
	p.BoolVar(&f.acceptRows, "accept-rows", false, "go on after TARGET_REWOUND with the rows as they are")
	p.Var(&f.option, "option", "source or format option; may be repeated")
	p.BoolVar(&f.dryRun, "dry-run", false, "read and decide everything, write nothing")
	f.followFlags.register(p)
	f.snapshotFlags.register(p)
	f.memoryFlags.register(p)
}

// check reports every problem of the flags at once.
func (f *applyFlags) check() error {
	var problems []string
	if f.into == "" {
		problems = append(problems, "--into is missing")
	}
	if len(f.from) == 0 {
		problems = append(problems, "--from is missing")
	}
	if f.batchRows < 1 {
		problems = append(problems, "--batch-rows must be at least 1")
	}
	if f.batchBytes < 1 {
		problems = append(problems, "--batch-bytes must be at least 1")
	}
	if len(f.columns.values) > 0 && len(f.exceptColumns.values) > 0 {
		problems = append(problems, "--columns and --except-columns exclude each other")
	}
	if f.overridesFile != "" && (f.snapshot || !strings.Contains(f.into, "{table}")) && !f.replaying {
		problems = append(problems, "--overrides is for a stream of many tables: --into DIR/{table}, and not --snapshot")
	}
	if f.table != "" && (f.include.values != nil || f.exclude.values != nil) {
		problems = append(problems, "--table excludes --include-tables and --exclude-tables")
	}
	for _, src := range f.from {
		if scheme, _, _ := strings.Cut(src, "://"); f.snapshot && (kafka.IsURL(src) || postgres.IsURL(src)) {
			return notYet("source " + scheme + ":// of snapshots")
		}
		if isTable(src) && !f.snapshot && len(f.from) > 1 {
			problems = append(problems, "--from "+src+": a Delta table is the only source of its flow")
		}
		if isTable(src) && f.readsItself(src) {
			return usage(apply.CodeInvalidTarget, "apply: %s would be applied into itself; name another table with --into", src)
		}
	}
	problems = append(problems, f.snapshotFlags.problems(f)...)
	problems = append(problems, f.followFlags.problems(f)...)
	problems = append(problems, f.memoryFlags.problems()...)
	if len(problems) > 0 {
		return usage("INVALID_FLAG", "apply: %s", strings.Join(problems, "; "))
	}
	return nil
}

// declared are the columns of --schema; nil without it.
func (f *applyFlags) declared() (*schema.Struct, error) {
	if f.hintsDDL != "" {
		hints, err := schema.ParseDDL(f.hintsDDL)
		if err != nil {
			return nil, fmt.Errorf("read --schema-hints: %w", err)
		}
		if f.types, f.hints = hints, hints; f.evolution.value == "" {
			f.evolution.value = string(apply.EvolveAddWiden)
		}
	}
	if f.ddl == "" {
		return nil, nil
	}
	columns, err := schema.ParseDDL(f.ddl)
	if err != nil {
		return nil, fmt.Errorf("read --schema: %w", err)
	}
	f.given = columns
	return columns, nil
}

// isTable tells whether a source is the folder of a Delta table, whose files must
// not be taken for rows: some of them may be removed, rewritten or change files.
func isTable(src string) bool {
	st, err := os.Stat(filepath.Join(strings.TrimPrefix(src, "file://"), "_delta_log"))
	return err == nil && st.IsDir()
}

// readsItself tells whether the table src is also what --into names.
func (f *applyFlags) readsItself(src string) bool {
	into := f.into
	if t, ok, err := parseTemplate(into); err != nil {
		return false
	} else if ok {
		dir, err := t.dir(event.Table{Name: open.Base(src)})
		if err != nil {
			return false
		}
		into = open.Join(t.root, dir)
	}
	return samePlace(src, into)
}

// samePlace tells whether two locations are one folder.
func samePlace(a, b string) bool {
	real := func(s string) string {
		s = strings.TrimPrefix(s, "file://")
		if strings.Contains(s, "://") {
			return strings.TrimRight(s, "/")
		}
		if abs, err := filepath.Abs(s); err == nil {
			s = abs
		}
		if links, err := filepath.EvalSymlinks(s); err == nil {
			s = links
		}
		return filepath.Clean(s)
	}
	return real(a) == real(b)
}

// flowOf is the flow that the flags describe.
func (a *app) flowOf(f *applyFlags, several bool, defaultPoison apply.OnPoison) apply.Flow {
	flow := apply.Flow{Name: f.flow, Keys: f.keys.values, SequenceBy: f.sequenceBy, ApplyAsDeletes: f.deletes, ApplyAsTruncates: f.truncates,
		ColumnList: f.columns.values, ExceptColumnList: f.exceptColumns.values, StoredAsSCDType: f.storedAs.value, Once: f.once,
		IgnoreNullUpdates: f.ignoreNulls.all, IgnoreNullUpdatesColumnList: f.ignoreNulls.on, IgnoreNullUpdatesExceptColumnList: f.ignoreNulls.except,
		ColumnsToUpdate: f.columnsToUpdate, SystemSequenceBy: f.systemSequence,
		TrackHistoryColumnList: f.track.on, TrackHistoryExceptColumnList: f.track.except,
		PartitionBy: f.partition.values, Properties: f.property.values, ChangeFeed: f.changeFeed.value, DeletionVectors: f.deletionVectors.value,
		BatchRows: f.batchRows, BatchBytes: int64(f.batchBytes), OnPoison: apply.OnPoison(f.onPoison.value), AcceptRows: f.acceptRows, DryRun: f.dryRun,
		StopTogether: f.onTableError.value == "stop", Evolution: apply.Evolution(f.evolution.value), Hints: f.hints}
	if f.evolution.value != "" {
		flow.Declared = f.given
	}
	if flow.OnPoison == "" {
		flow.OnPoison = defaultPoison
	}
	if f.quarantine != "" {
		flow.Quarantine = a.below(f.quarantine, several, "")
	}
	if f.state != "" {
		flow.StatePath = f.state
		flow.State = a.below(f.state, true, "state")
	}
	return flow
}

func (a *app) apply(ctx context.Context, f *applyFlags) error {
	if err := a.checkResultForm(); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	zone, err := a.flags.zone()
	if err != nil {
		return err
	}
	columns, err := f.declared()
	if err != nil {
		return err
	}
	targets, err := a.targets(f.into, f.table, f.include.values, f.exclude.values)
	if err != nil {
		return err
	}
	if f.snapshot {
		return a.applySnapshots(ctx, f, targets, columns)
	}
	if f.overridesFile != "" {
		if f.own, err = readOverrides(f.overridesFile, a.flowOf(f, true, "")); err != nil {
			return err
		}
		targets.Route = f.own.route(targets.Route)
	}
	options := a.applyOptions(&f.memoryFlags, zone)
	f.keepFormat(ctx, apply.Spec{Target: targets, Flow: a.flowOf(f, targets.Route != nil, "")}, options)
	in, err := a.openInput(ctx, f, columns)
	if err != nil {
		return err
	}
	if src, ok := in.Source.(*postgres.Source); ok {
		if f.dryRun {
			return errors.Join(a.planServer(ctx, f, src, targets), src.Close())
		}
		f.retained = src.RetainedWAL
	}
	total := in.bytes
	if f.follow {
		total = 0
	}
	p := a.startProgress("applying", total, true)
	if src, ok := in.Source.(*postgres.Source); ok {
		src.Progress = func(table string, rows, estimate int64) {
			p.note.Store(fmt.Sprintf("copying %s: %d of about %d rows", table, rows, max(rows, estimate)))
		}
	}
	f.lagging, _ = in.Source.(event.Lagging)
	f.reopen = func(ctx context.Context) error {
		again, err := a.openInput(ctx, f, columns)
		if err != nil {
			return err
		}
		was := in.Source
		in.Opened = again.Opened
		return was.Close()
	}
	round := func(ctx context.Context, resume *apply.Resume) (apply.Result, error) {
		flow := a.flowOf(f, targets.Route != nil, in.onPoison)
		flow.Format, flow.FormatNamed = f.formatOf(in)
		return apply.Run(ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Target: targets, Flow: flow, FlowOf: f.own.flowOf(flow), Resume: resume,
			Progress: func(s apply.Progress) {
				p.done.Store(s.Bytes)
				if s.Version >= 0 {
					p.note.Store(fmt.Sprintf("%s at version %d", s.Target, s.Version))
				}
			}}, options)
	}
	if f.follow {
		p.Stop()
		return errors.Join(a.follow(ctx, f, round), in.Source.Close())
	}
	result, err := round(ctx, nil)
	p.Stop()
	if err = errors.Join(err, in.Source.Close()); err == nil {
		err = a.nothingCame(ctx, f, in, result)
	}
	for _, w := range f.own.unused() {
		a.warn("%s", w)
	}
	return a.finishApply(f, result, err)
}

// nothingCame is why a run that should have made a table found nothing: the input is
// empty and its format not known, or it has no such table.
func (a *app) nothingCame(ctx context.Context, f *applyFlags, in *input, r apply.Result) error {
	switch {
	case r.Version >= 0 || r.Events.Read > 0 || len(r.Targets) > 0:
		return nil
	case in.Empty:
		return &source.Error{Code: "FORMAT_UNCLEAR", Reason: "the input is empty, so that nothing tells its format; name it with --format"}
	case f.table == "":
		return nil
	}
	return a.noSuchTable(ctx, f)
}

// noSuchTable refuses a source table that the first records do not have; it names
// those that they have. Nil if they have none at all.
func (a *app) noSuchTable(ctx context.Context, f *applyFlags) error {
	missing := &cliError{code: "SOURCE_TABLE_NOT_FOUND", exit: exitNotFound, message: fmt.Sprintf("no event of table %s came", f.table)}
	if slices.Contains(f.from, "-") {
		missing.hint = "name a table of the stream"
		return missing
	}
	format, err := source.ParseFormat(f.format)
	if err != nil {
		return err
	}
	look, err := source.LookAt(ctx, source.Spec{Format: format, From: f.from, Keys: f.keys.values, Options: f.option.values, Now: a.clock, OpenTable: a.sourceTable, Getenv: os.Getenv})
	if err != nil {
		return missing // what the source cannot show is not what was asked
	}
	var names []string
	for _, t := range look.Tables {
		if tableMatches(t.Table, f.table) {
			return nil
		}
		names = append(names, strings.Trim(t.Table.Schema+"."+t.Table.Name, "."))
	}
	if len(names) == 0 {
		return nil
	}
	missing.hint = "the stream has " + strings.Join(names, ", ")
	return missing
}

// finishApply tells what a run did, also one that failed or was stopped.
func (a *app) finishApply(f *applyFlags, r apply.Result, err error) error {
	for _, w := range r.Warnings {
		a.warn("%s", w)
	}
	if r.Events.Poison > 0 {
		a.warn("%d events could not be applied and lie in quarantine (%d of them would have deleted a row)", r.Events.Poison, r.Events.PoisonDeletes)
	}
	if err != nil {
		if r.Batches > 0 {
			err = &committedError{text: committedText(r), err: err}
		}
		return fmt.Errorf("apply into %s: %w", f.into, err)
	}
	if err := a.printResult(r, applySummary(r, f.dryRun)); err != nil {
		return err
	}
	for _, t := range r.Targets {
		if t.Parked != nil {
			return fmt.Errorf("apply into %s: %w", f.into, t.Parked)
		}
	}
	return nil
}

func committedText(r apply.Result) string {
	if len(r.Targets) > 1 {
		return fmt.Sprintf("committed before that: %s", plural(r.Batches, "batch", "batches"))
	}
	return fmt.Sprintf("committed before that: %s, %s is at version %d", plural(r.Batches, "batch", "batches"), r.Target, r.Version)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func applySummary(r apply.Result, dryRun bool) string {
	var b strings.Builder
	if dryRun {
		b.WriteString("dry run, nothing was written\n")
	}
	one := func(target string, version, batches int64, e apply.Events, rows apply.Rows) {
		if e.Read == 0 && batches == 0 {
			fmt.Fprintf(&b, "%s: nothing new, version %d stands\n", target, version)
			return
		}
		fmt.Fprintf(&b, "%s: version %d, %s; %s: %d applied, %d stale, %d duplicate, %d poison; rows: %d inserted, %d updated, %d deleted\n",
			target, version, plural(batches, "batch", "batches"), plural(e.Read, "event", "events"), e.Applied, e.Stale, e.Duplicate, e.Poison,
			rows.Inserted, rows.Updated, rows.Deleted)
	}
	plan := func(target string, p *apply.TargetPlan) {
		if p == nil {
			return
		}
		verb := "writes"
		if p.Creates {
			verb = "would create"
		} else if p.Adopts {
			verb = "would adopt"
		}
		fmt.Fprintf(&b, "%s: %s (%s); keys %s; sequence %s; SCD type %s", target, verb, p.Schema, strings.Join(p.Keys, ", "), p.Sequence, p.StoredAs)
		if len(p.Adds) > 0 {
			fmt.Fprintf(&b, "; adds %s", strings.Join(p.Adds, ", "))
		}
		b.WriteString("\n")
	}
	plan(r.Target, r.Plan)
	for _, t := range r.Targets {
		plan(t.Target, t.Plan)
	}
	if len(r.Targets) == 0 {
		one(r.Target, r.Version, r.Batches, r.Events, r.Rows)
	}
	for _, t := range r.Targets {
		one(t.Target, t.Version, t.Batches, t.Events, t.Rows)
		if t.Parked != nil {
			fmt.Fprintf(&b, "%s: stopped: %s\n", t.Target, oneLine(t.Parked.Error()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Expectations)) {
		c := r.Expectations[name]
		fmt.Fprintf(&b, "expectation %s: %d passed, %d failed, %d dropped\n", name, c.Passed, c.Failed, c.Dropped)
	}
	fmt.Fprintf(&b, "%s read in %.1f s", humanSize(r.Bytes.Read), r.Seconds)
	return b.String()
}
