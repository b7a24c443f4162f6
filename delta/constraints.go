package delta

import (
	"context"
	"fmt"
	"maps"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// ConstraintOptions are settings of [Table.AddConstraint] and [Table.DropConstraint];
// the zero value is the default.
type ConstraintOptions struct {
	// IfExists makes dropping a constraint that is not there succeed.
	IfExists     bool
	UserMetadata string
}

// AddConstraint adds a CHECK constraint: from this commit on every new row must make
// the expression TRUE, and false and NULL both fail. Rows that are there are held to
// it first; one that fails is a [*ConstraintError] with the number of such rows
// (W-422). The name is stored in lower case.
func (t *Table) AddConstraint(ctx context.Context, name, expression string, o ConstraintOptions) (Result, error) {
	name = strings.TrimSpace(name)
	if name == "" || strings.TrimSpace(expression) == "" {
		return Result{}, &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_CONSTRAINT", Rule: "W-422", Reason: "a CHECK constraint needs a name and an expression"}
	}
	return t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		for _, c := range Constraints(snap.Metadata) {
			if strings.EqualFold(c.Name, name) && snap.Supports(deltalog.CheckConstraints) {
				return Result{}, &deltalog.InvalidError{ErrorCode: "DELTA_CONSTRAINT_ALREADY_EXISTS", Rule: "W-422", Reason: fmt.Sprintf("constraint %s exists already: %s", c.Name, c.Expression)}
			}
		}
		cond, err := t.checkCondition(snap.Schema, name, expression)
		if err != nil {
			return Result{}, err
		}
		if err := t.validateRows(ctx, snap, name, cond); err != nil {
			return Result{}, err
		}
		p, err := snap.Protocol.With(deltalog.CheckConstraints)
		if err != nil {
			return Result{}, err
		}
		m := *snap.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		if m.Configuration == nil {
			m.Configuration = map[string]string{}
		}
		m.Configuration[constraintPrefix+strings.ToLower(name)] = expression
		tx := t.log.Begin(snap)
		tx.ReadWholeTable()
		if p != snap.Protocol {
			tx.SetProtocol(p)
		}
		tx.SetMetadata(&m)
		return t.finish(ctx, tx, &Staged{}, WriteOptions{UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
			Operation: "ADD CONSTRAINT", Parameters: map[string]string{"name": name, "expr": expression}, Metrics: map[string]string{}, NotBlind: true,
		})
	})
}

// DropConstraint removes a CHECK constraint, its name compared ignoring case.
func (t *Table) DropConstraint(ctx context.Context, name string, o ConstraintOptions) (Result, error) {
	return t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		m := *snap.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		text, found := "", false
		for k, v := range m.Configuration {
			if strings.EqualFold(k, constraintPrefix+strings.TrimSpace(name)) {
				text, found = v, true
				delete(m.Configuration, k)
			}
		}
		if !found {
			if o.IfExists {
				return nothing(snap), nil
			}
			return Result{}, &deltalog.InvalidError{ErrorCode: "DELTA_CONSTRAINT_DOES_NOT_EXIST", Rule: "W-422", Reason: "the table has no constraint " + name}
		}
		tx := t.log.Begin(snap)
		tx.SetMetadata(&m)
		return t.finish(ctx, tx, &Staged{}, WriteOptions{UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
			Operation: "DROP CONSTRAINT", Parameters: map[string]string{"name": name, "expr": text, "existed": "true"}, Metrics: map[string]string{},
		})
	})
}

// checkCondition binds the expression of a constraint that a user gives.
func (t *Table) checkCondition(s *schema.Struct, name, text string) (*expr.Bound, error) {
	e, err := expr.Parse(text)
	if err != nil {
		return nil, err
	}
	b, err := e.BindWith(s, expr.Options{Zone: t.opts.TimeZone})
	if err != nil {
		return nil, err
	}
	if b.Type() != schema.Boolean {
		return nil, &deltalog.InvalidError{ErrorCode: "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", Rule: "W-422",
			Reason: fmt.Sprintf("CHECK constraint %s (%s) has type %s, not BOOLEAN", name, b, b.Type())}
	}
	return b, nil
}

// validateRows counts the rows that are not TRUE under a new constraint.
func (t *Table) validateRows(ctx context.Context, snap *deltalog.Snapshot, name string, cond *expr.Bound) error {
	l, err := t.Layout(snap)
	if err != nil {
		return err
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		return err
	}
	var bad int64
	for _, a := range files {
		for b, err := range datafile.Read(ctx, t.store, l, a, datafile.ReadOptions{Columns: cond.Columns()}) {
			if err != nil {
				return err
			}
			hits, err := cond.EvalFilter(b.RecordBatch)
			if err != nil {
				return fmt.Errorf("CHECK constraint %s: %w", name, err)
			}
			bad += b.NumRows() - int64(len(hits))
		}
	}
	if bad == 0 {
		return nil
	}
	e := &ConstraintError{ErrorCode: CodeNewCheck, Row: -1, Reason: fmt.Sprintf("%d rows of the table violate the new CHECK constraint %s (%s)", bad, name, cond)}
	if cols := cond.Columns(); len(cols) > 0 {
		e.Column = cols[0]
	}
	return e
}

// ruleFeatures lists the features that the rules in a schema and in properties need.
func ruleFeatures(s *schema.Struct, config map[string]string) []deltalog.Feature {
	var out []deltalog.Feature
	has := func(key string, f deltalog.Feature) {
		for _, c := range s.Fields {
			if _, ok := c.Metadata.Get(key); ok {
				out = append(out, f)
				return
			}
		}
	}
	has(keyGeneration, deltalog.GeneratedColumns)
	has(keyIdentityStart, deltalog.IdentityColumns)
	has(keyDefault, featureDefaults)
	if len(Constraints(&deltalog.Metadata{Configuration: config})) > 0 {
		out = append(out, deltalog.CheckConstraints)
	}
	return out
}

// checkNewRules holds the rules of a new table, or of new columns, to what may be
// created: expressions that evaluate, generated columns of ordinary ones and of
// exactly their type, identity columns that are BIGINT and no partition columns.
func (t *Table) checkNewRules(cfg *deltalog.TableConfig) error {
	bad := func(code, format string, args ...any) error {
		return &deltalog.InvalidError{ErrorCode: code, Rule: "W-423", Reason: fmt.Sprintf(format, args...)}
	}
	r, err := t.Rules(cfg)
	if err != nil {
		return err
	}
	for i, f := range cfg.Schema.Fields {
		c := r.columns[i]
		_, isDefault := f.Metadata.Get(keyDefault)
		_, isGenerated := f.Metadata.Get(keyGeneration)
		if isGenerated && isDefault || c.identity != nil && (isDefault || isGenerated) {
			return bad("DELTA_INVALID_COLUMN_RULES", "column %s: only one of DEFAULT, GENERATED AS and IDENTITY is possible", f.Name)
		}
		if c.identity != nil {
			for _, p := range cfg.PartitionColumns() {
				if strings.EqualFold(p, f.Name) {
					return bad("DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED", "identity column %s cannot be a partition column", f.Name)
				}
			}
		}
		if c.generated == nil {
			continue
		}
		text, _ := textOf(f, keyGeneration)
		for _, name := range c.generated.Columns() {
			if at := cfg.Schema.Index(name); at >= 0 && (r.columns[at].generated != nil || r.columns[at].identity != nil) {
				return bad("DELTA_INVALID_GENERATED_COLUMN_REFERENCES", "generated column %s (%s) reads %s, which is generated too", f.Name, text, name)
			}
		}
		e, err := expr.Parse(text)
		if err != nil {
			return err
		}
		b, err := e.BindWith(cfg.Schema, expr.Options{Zone: t.opts.TimeZone})
		if err != nil {
			return err
		}
		if !schema.EqualIgnoringNullability(b.Type(), f.Type) {
			return bad("DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH", "generated column %s has type %s, its expression %s has %s", f.Name, f.Type, text, b.Type())
		}
	}
	return nil
}
