package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/sql"
	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// statementFlags are those of `apply -f`.
type statementFlags struct {
	file    string
	sources []string
}

func (s *statementFlags) register(p *pflag.FlagSet) {
	p.StringVarP(&s.file, "file", "f", "", "AUTO CDC statements in SQL or, named .yaml, in YAML, instead of --from and its options;\n--into is then the folder of the tables (default .)")
	p.StringArrayVar(&s.sources, "source", nil, "NAME=SRC: what a source of the statements reads; may be repeated (default: CREATE SOURCE of the file,\nelse a Delta table by its change feed: the one of that name in --into, or one that is named by its path, delta.PATH)")
}

// withStatements are the flags of apply that go together with -f.
var withStatements = []string{"file", "source", "into", "dry-run", "batch-rows", "batch-bytes", "on-poison", "accept-rows", "change-feed", "deletion-vectors", "max-delete-fraction", "allow-empty-snapshot", "missing-grace", "memory", "spill-dir"}

func isYAML(file string) bool {
	ext := strings.ToLower(filepath.Ext(file))
	return ext == ".yaml" || ext == ".yml"
}

// readStatements reads a file of statements and gives its text too.
func (a *app) readStatements(file string) (*sql.Script, string, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(a.stdin)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read statements: %w", err)
	}
	parse := sql.Parse
	if isYAML(file) {
		parse = sql.ParseYAML
	}
	script, err := parse(string(raw))
	return script, string(raw), statementError(file, err)
}

// statementError makes one line of all problems of a file: each with its code and
// place, the code of the first being that of the failure.
func statementError(file string, err error) error {
	var list sql.Errors
	if !errors.As(err, &list) {
		return err
	}
	var b strings.Builder
	for i, e := range list {
		if i > 0 {
			fmt.Fprintf(&b, "; and %s: ", e.Code)
		}
		fmt.Fprintf(&b, "%s: %s:%d:%d", e.Message, file, e.Line, e.Col)
		if e.Remedy != "" && i < len(list)-1 {
			b.WriteString("; " + e.Remedy)
		}
	}
	return &cliError{code: list[0].Code, exit: exitUsage, message: b.String(), hint: list[len(list)-1].Remedy}
}

// boundFlow is a flow with where it reads and writes.
type boundFlow struct {
	plan   *sql.FlowPlan
	flags  applyFlags // what openInput needs
	target apply.Targets
	where  string // location of the target
	flow   apply.Flow
}

// statementRun is `apply -f`.
type statementRun struct {
	*app
	st    *statementFlags
	flags *applyFlags
	flows []*boundFlow
	plan  *sql.Plan
}

func (a *app) applyStatements(cmd *cobra.Command, st *statementFlags, f *applyFlags) error {
	ctx := cmd.Context()
	if err := a.checkResultForm(); err != nil {
		return err
	}
	if err := st.alone(cmd); err != nil {
		return err
	}
	if f.batchRows < 1 || f.batchBytes < 1 {
		return usage("INVALID_FLAG", "apply: --batch-rows and --batch-bytes must be at least 1")
	}
	if p := f.memoryFlags.problems(); len(p) > 0 {
		return usage("INVALID_FLAG", "apply: %s", strings.Join(p, "; "))
	}
	script, _, err := a.readStatements(st.file)
	if err != nil {
		return err
	}
	r := &statementRun{app: a, st: st, flags: f}
	if r.flags.into == "" {
		r.flags.into = "."
	}
	if err := r.bind(ctx, script); err != nil {
		return err
	}
	for _, w := range r.plan.Warnings {
		a.warn("%s", w)
	}
	for _, t := range r.plan.Tables {
		switch {
		case len(t.Flows) == 0:
			a.warn("table %s has no flow; nothing is created", t.Name)
		case t.ClusterBy != nil || t.ClusterByAuto:
			a.warn("table %s: rows are not clustered; CLUSTER BY is not kept", t.Name)
		}
	}
	if f.dryRun {
		return r.describe(ctx)
	}
	return r.run(ctx)
}

// bind analyses the script with what its sources hold and finds every location.
// Nothing is written; what the engine lacks is refused before anything is read.
func (r *statementRun) bind(ctx context.Context, script *sql.Script) error {
	given := map[string]string{}
	for _, s := range r.st.sources {
		name, src, ok := strings.Cut(s, "=")
		if !ok || name == "" || src == "" {
			return usage("INVALID_FLAG", "apply: --source %s: expected NAME=SRC", s)
		}
		given[strings.ToLower(name)] = src
	}
	used := map[string]bool{}
	stdin := ""
	inputs := map[*sql.Flow]applyFlags{}
	schemas := sql.Schemas{}
	for _, f := range script.Flows {
		if f.Source == "" {
			if q, ok := sql.ReadSnapshotQuery(f.Snapshot); ok {
				used[strings.ToLower(q.Table)] = true
				if flags, ok := r.input(script, &sql.Flow{Source: q.Table, Keys: f.Keys}, given); ok {
					inputs[f] = flags
				}
			}
			continue
		}
		flags, ok := r.input(script, f, given)
		used[strings.ToLower(f.Source)] = true
		if !ok {
			continue
		}
		if slices.Contains(flags.from, "-") {
			if stdin != "" {
				return usage("INVALID_FLAG", "apply: flows into %s and %s both read standard input, which can be read once; write it to a file", stdin, f.Target)
			}
			stdin = f.Target
		}
		inputs[f] = flags
		if _, done := schemas[f.Source]; done {
			continue
		}
		s, err := r.look(ctx, script, f, flags)
		if err != nil {
			return fmt.Errorf("source %s: %w", f.Source, err)
		}
		schemas[f.Source] = s
	}
	for name := range given {
		if slices.ContainsFunc(script.Flows, func(f *sql.Flow) bool { // a query that is refused for itself
			return strings.Contains(strings.ToLower(f.Snapshot), name)
		}) {
			continue
		}
		if !used[name] {
			return usage("UNKNOWN_SOURCE", "apply: --source %s: no flow of %s reads it", name, r.st.file)
		}
	}
	var err error
	if r.plan, err = sql.Analyze(script, schemas); err != nil {
		return statementError(r.st.file, err)
	}
	return r.locate(inputs)
}

// locate gives every flow its target and refuses what cannot run at all.
func (r *statementRun) locate(inputs map[*sql.Flow]applyFlags) error {
	where := map[string]string{}
	for _, p := range r.plan.Flows {
		flags, bound := inputs[p.Flow]
		source := p.Source
		if q, ok := sql.ReadSnapshotQuery(p.Snapshot); ok {
			source = q.Table
		}
		if !bound && source != "" {
			return &cliError{code: "SOURCE_NOT_BOUND", exit: exitUsage, message: fmt.Sprintf("source %s of flow %s reads from nowhere", source, p.FlowName),
				hint: fmt.Sprintf("add --source %s=SRC, or CREATE SOURCE %s FROM 'SRC'", source, source)}
		}
		b := &boundFlow{plan: p, flags: flags, where: r.folder(p.Target), flow: p.Apply()}
		if p.Snapshot != "" && bound {
			r.bindSnapshot(b)
		}
		if other, clash := where[b.where]; clash && other != p.Into.Name {
			return usage(apply.CodeTargetClash, "tables %s and %s lie in one folder %s", other, p.Into.Name, b.where)
		}
		where[b.where] = p.Into.Name
		for _, src := range flags.from {
			if samePlace(src, b.where) {
				return usage(apply.CodeInvalidTarget, "flow %s would apply table %s into itself", p.FlowName, b.where)
			}
		}
		store, err := r.open(b.where)
		if err != nil {
			return err
		}
		b.target = apply.Targets{Store: store, Name: p.Into.Name}
		f := &b.flow
		f.BatchRows, f.BatchBytes = r.flags.batchRows, int64(r.flags.batchBytes)
		f.OnPoison = apply.OnPoison(r.flags.onPoison.value) // "" fails
		f.AcceptRows, f.DryRun = r.flags.acceptRows, r.flags.dryRun
		f.ChangeFeed, f.DeletionVectors = r.flags.changeFeed.value, r.flags.deletionVectors.value
		r.flows = append(r.flows, b)
	}
	if err := r.ownSlots(); err != nil {
		return err
	}
	if r.flags.dryRun {
		return nil // shown, then refused
	}
	return r.refusals()
}

// refusals are what the engine lacks, of all flows.
func (r *statementRun) refusals() error {
	for _, b := range r.flows {
		if err := b.flow.Validate(); err != nil {
			at := b.plan.Place()
			return fmt.Errorf("flow %s at %s:%d:%d: %w", b.plan.FlowName, r.st.file, at.Line, at.Col, err)
		}
	}
	return nil
}

// folder is where the table of a name lies.
func (r *statementRun) folder(name string) string {
	var parts []string
	for _, s := range sql.NameParts(name) {
		parts = append(parts, pathElement(s))
	}
	return open.Join(r.flags.into, path.Join(parts...))
}

// tableNamed is where a source lies that nothing binds: delta.`PATH`, a table of the
// script, or one in the folder of the tables. "": nowhere.
func (r *statementRun) tableNamed(script *sql.Script, name string) string {
	if parts := sql.NameParts(name); len(parts) == 2 && strings.EqualFold(parts[0], "delta") {
		return parts[1]
	}
	where := r.folder(name)
	if isTable(where) || slices.ContainsFunc(script.Tables, func(t *sql.Table) bool { return strings.EqualFold(t.Name, name) }) {
		return where
	}
	return ""
}

// input is where a flow reads, in the words of the flags.
func (r *statementRun) input(script *sql.Script, f *sql.Flow, given map[string]string) (applyFlags, bool) {
	flags := applyFlags{format: "auto"}
	for _, s := range script.Sources {
		if !strings.EqualFold(s.Name, f.Source) {
			continue
		}
		flags.from, flags.table = s.From, s.Table
		if s.Format != "" {
			flags.format = s.Format
		}
		flags.option.values = s.Options
	}
	if src, ok := given[strings.ToLower(f.Source)]; ok {
		flags.from = []string{src}
	}
	for _, k := range f.Keys {
		if parts := sql.NameParts(k); len(parts) == 1 {
			flags.keys.values = append(flags.keys.values, parts[0])
		}
	}
	if len(flags.from) == 0 {
		if where := r.tableNamed(script, f.Source); where != "" {
			flags.from, flags.format = []string{where}, string(source.DeltaFeed)
		}
	}
	// The statements say what deletes; plain rows have no operation of their own.
	flags.deletes, flags.truncates = "FALSE", f.ApplyAsTruncates
	flags.types = r.declared(script, f.Target)
	return flags, len(flags.from) > 0
}

// run applies the flows in text order and prints one result.
func (r *statementRun) run(ctx context.Context) error {
	var total apply.Result
	total.Version = -1
	for _, b := range r.flows {
		if !b.readsServer() {
			continue
		}
		if _, err := r.planFlow(ctx, b); err != nil {
			return fmt.Errorf("flow %s: %w", b.plan.FlowName, err)
		}
	}
	for _, b := range r.flows {
		if err := r.createDeclared(ctx, b); err != nil {
			return fmt.Errorf("apply into %s: %w", b.where, err)
		}
		one, err := r.applyFlow(ctx, b)
		total = together(total, one, len(r.flows))
		if err != nil {
			f := *r.flags
			f.into = b.where
			return r.finishApply(&f, total, err)
		}
	}
	if len(r.flows) == 0 {
		return usage("NO_FLOWS", "%s has no flow", r.st.file)
	}
	return r.finishApply(r.flags, total, nil)
}

func (r *statementRun) applyFlow(ctx context.Context, b *boundFlow) (apply.Result, error) {
	zone, err := r.app.flags.zone()
	if err != nil {
		return apply.Result{}, err
	}
	if b.flags.snapshot {
		return r.applySnapshotFlow(ctx, b)
	}
	options := r.applyOptions(&r.flags.memoryFlags, zone)
	b.flags.keepFormat(ctx, apply.Spec{Target: b.target, Flow: b.flow}, options)
	in, err := r.openInput(ctx, &b.flags, b.columns())
	if err != nil {
		return apply.Result{}, err
	}
	b.flow.Format, b.flow.FormatNamed = b.flags.formatOf(in)
	flags := applyFlags{exceptColumns: listFlag{values: b.flow.ExceptColumnList}}
	flags.withoutOperation(in.Opened)
	b.flow.ExceptColumnList = flags.exceptColumns.values
	p := r.startProgress("applying "+b.plan.FlowName, in.bytes, true)
	result, err := apply.Run(ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Target: b.target, Flow: b.flow,
		Progress: func(s apply.Progress) {
			p.done.Store(s.Bytes)
			if s.Version >= 0 {
				p.note.Store(fmt.Sprintf("%s at version %d", s.Target, s.Version))
			}
		}}, options)
	p.Stop()
	return result, errors.Join(err, in.Source.Close())
}

// createDeclared makes a table that declares its columns, in that order and with
// its NOT NULL and comments; the flow then finds it.
func (r *statementRun) createDeclared(ctx context.Context, b *boundFlow) error {
	t := b.plan.Into
	if t.Table.Schema == nil {
		return nil
	}
	columns := t.Derived
	if columns == nil {
		columns = t.Table.Schema
	}
	o, err := r.deltaOptions()
	if err != nil {
		return err
	}
	props := map[string]string{"delta.enableChangeDataFeed": "true"}
	for k, v := range b.flow.Properties {
		props[k] = v
	}
	if v := b.flow.ChangeFeed; v != nil {
		props["delta.enableChangeDataFeed"] = fmt.Sprint(*v)
	}
	if exists, err := tableExists(ctx, b.target.Store, o); exists || err != nil {
		return err
	}
	_, err = delta.Create(ctx, b.target.Store, delta.CreateOptions{Schema: columns, PartitionBy: b.flow.PartitionBy, Properties: props,
		Description: b.flow.Comment, IfNotExists: true}, o)
	return err
}

func tableExists(ctx context.Context, store storage.Store, o delta.Options) (bool, error) {
	_, err := delta.Open(ctx, store, o)
	if errors.Is(err, deltalog.ErrNotFound) || errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// together adds the result of a flow to a total. That of an only flow stands for
// itself; several are told apart as targets.
func together(total, one apply.Result, flows int) apply.Result {
	if flows == 1 {
		return one
	}
	total.Targets = append(total.Targets, apply.TargetResult{Target: one.Target, Flow: one.Flow, Version: one.Version, Batches: one.Batches,
		Events: one.Events, Rows: one.Rows, Files: one.Files, Bytes: one.Bytes, Snapshots: one.Snapshots, Expectations: one.Expectations})
	for name, c := range one.Expectations {
		if total.Expectations == nil {
			total.Expectations = map[string]apply.ExpectationCount{}
		}
		have := total.Expectations[one.Target+"."+name]
		have.Passed, have.Failed, have.Dropped = have.Passed+c.Passed, have.Failed+c.Failed, have.Dropped+c.Dropped
		total.Expectations[one.Target+"."+name] = have
	}
	total.Batches += one.Batches
	total.Snapshots += one.Snapshots
	total.Seconds += one.Seconds
	e, x := &total.Events, one.Events
	e.Read, e.Applied, e.Stale, e.Duplicate = e.Read+x.Read, e.Applied+x.Applied, e.Stale+x.Stale, e.Duplicate+x.Duplicate
	e.Poison, e.PoisonDeletes, e.SequenceConflicts = e.Poison+x.Poison, e.PoisonDeletes+x.PoisonDeletes, e.SequenceConflicts+x.SequenceConflicts
	total.Rows.Inserted += one.Rows.Inserted
	total.Rows.Updated += one.Rows.Updated
	total.Rows.Deleted += one.Rows.Deleted
	total.Files.Added += one.Files.Added
	total.Files.Removed += one.Files.Removed
	total.Files.Change += one.Files.Change
	total.Bytes.Read += one.Bytes.Read
	total.Bytes.Written += one.Bytes.Written
	total.Warnings = append(total.Warnings, one.Warnings...)
	return total
}
