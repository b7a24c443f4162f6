package apply

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// The answers to a violation (auto-cdc 2.9).
const (
	dropRow    = "DROP ROW"
	failUpdate = "FAIL UPDATE"
)

// ExpectationCount counts the rows that updates inserted or changed, by whether they
// met an expectation; Dropped are those of Failed that DROP ROW hides.
type ExpectationCount struct {
	Passed  int64 `json:"passed"`
	Failed  int64 `json:"failed"`
	Dropped int64 `json:"dropped"`
}

func (c *ExpectationCount) add(o ExpectationCount) {
	c.Passed += o.Passed
	c.Failed += o.Failed
	c.Dropped += o.Dropped
}

// validateExpectations are the rules that need no schema.
func (f *Flow) validateExpectations() []error {
	var errs []error
	seen := map[string]bool{}
	for _, e := range f.Expectations {
		name := strings.ToLower(e.Name)
		switch {
		case e.Name == "":
			errs = append(errs, analysis(CodeExpectationInvalid, "an expectation has no name"))
		case seen[name]:
			errs = append(errs, analysis(CodeExpectationInvalid, "two expectations are named %q", e.Name))
		}
		seen[name] = true
		switch e.OnViolation {
		case "", dropRow, failUpdate:
		default:
			errs = append(errs, analysis(CodeExpectationInvalid, "expectation %q: on violation %q must be DROP ROW or FAIL UPDATE", e.Name, e.OnViolation))
		}
		if _, err := expr.Parse(e.Expr); err != nil {
			errs = append(errs, &Error{Code: CodeExpectationInvalid, Phase: PhaseAnalysis, Message: fmt.Sprintf("expectation %q", e.Name), Err: err})
		}
	}
	return errs
}

// expectation is one bound to the columns of the target.
type expectation struct {
	Expectation
	bound *expr.Bound
}

// bindExpectations binds the flow's expectations to the visible columns of a target.
func (f *Flow) bindExpectations(s *schema.Struct, zone expr.Options) ([]expectation, error) {
	var out []expectation
	for _, e := range f.Expectations {
		fail := func(err error) error {
			return &Error{Code: CodeExpectationInvalid, Phase: PhaseAnalysis, Message: fmt.Sprintf("expectation %q", e.Name), Err: err}
		}
		parsed, err := expr.Parse(e.Expr)
		if err != nil {
			return nil, fail(err)
		}
		b, err := parsed.BindWith(s, zone)
		if err != nil {
			return nil, fail(err)
		}
		if t := b.Type(); t != schema.Boolean && t != schema.Void {
			return nil, analysis(CodeExpectationInvalid, "expectation %q has type %s, not BOOLEAN", e.Name, t)
		}
		out = append(out, expectation{e, b})
	}
	return out, nil
}

// judge tests rows of the function's result: for each expectation, the rows for
// which it is TRUE.
func (f *fold) judge(regs []*register) ([][]bool, error) {
	if len(f.expect) == 0 || len(regs) == 0 {
		return nil, nil
	}
	sch, err := schema.ArrowSchema(f.shape.schema)
	if err != nil {
		return nil, err
	}
	cols := make([]arrow.Array, len(f.shape.schema.Fields))
	for i := range cols {
		if cols[i], err = f.shape.buildColumn(i, regs); err != nil {
			return nil, fmt.Errorf("test expectations: %w", err)
		}
	}
	rec := array.NewRecordBatch(sch, cols, int64(len(regs)))
	out := make([][]bool, len(f.expect))
	for i, e := range f.expect {
		meets, err := e.bound.EvalFilter(rec)
		if err != nil {
			return nil, &Error{Code: codeOf(err, "EXPRESSION_FAILED"), Phase: PhaseRun, Message: fmt.Sprintf("expectation %q", e.Name), Err: err}
		}
		out[i] = make([]bool, len(regs))
		for _, r := range meets {
			out[i][r] = true
		}
	}
	return out, nil
}

// hides tells whether DROP ROW hides row r.
func (f *fold) hides(meets [][]bool, r int) bool {
	for i, m := range meets {
		if f.expect[i].OnViolation == dropRow && !m[r] {
			return true
		}
	}
	return false
}

// tally counts a row that the batch inserts or changes; a row that FAIL UPDATE does
// not let pass ends the batch.
func (f *fold) tally(meets [][]bool, r int, k *keyed, reg *register) error {
	for i, m := range meets {
		e := f.expect[i]
		c := f.judged[e.Name]
		switch {
		case m[r]:
			c.Passed++
		default:
			c.Failed++
			if e.OnViolation == dropRow {
				c.Dropped++
			}
			if e.OnViolation == failUpdate {
				return running(CodeExpectationViolated, "expectation %q (%s) does not hold for %s%s", e.Name, e.Expr, f.rowText(reg), f.sourceText(k, reg))
			}
		}
		f.judged[e.Name] = c
	}
	return nil
}

// rowText prints a row for messages.
func (f *fold) rowText(reg *register) string {
	parts := make([]string, len(f.shape.schema.Fields))
	for i, c := range f.shape.schema.Fields {
		parts[i] = c.Name + "="
		a, err := f.shape.buildColumn(i, []*register{reg})
		if err != nil {
			parts[i] += "?"
			continue
		}
		text := cellString(a, 0)
		if len(text) > 100 {
			text = text[:100] + "..."
		}
		parts[i] += text
	}
	return "row " + strings.Join(parts, ", ")
}

// sourceText names the event of the batch that a row comes from.
func (f *fold) sourceText(k *keyed, reg *register) string {
	line := int64(0)
	for i := range f.events {
		if e := &f.events[i]; e.key == k.key && (line == 0 || bytes.Equal(e.seq, reg.u)) {
			line = e.line
		}
	}
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(" (event of line %d)", line)
}

// readDropped gives the keys of an SCD1 target whose row DROP ROW hides what the
// state keeps of it.
func (f *fold) readDropped() error {
	reader, err := newHiddenReader(f.shape, f.covers)
	if err != nil {
		return err
	}
	var keys []*keyed
	for _, k := range f.keys {
		facts := f.state.hidden[k.key]
		if k.row != nil || len(facts) == 0 {
			continue // facts beside a row are void
		}
		keys = append(keys, k)
		for _, fact := range facts {
			e := happening{seq: fact.seq, event: -1}
			if err := f.readFact(reader, fact, k.key, &e); err != nil {
				return err
			}
			k.list = append(k.list, e)
		}
	}
	if keys == nil {
		return nil
	}
	reader.finish()
	quiet := f.joiner
	for _, k := range keys {
		var r register
		slices.SortStableFunc(k.list, func(a, b happening) int { return a.before(&b) })
		for _, e := range k.list {
			if e.del {
				quiet.remove(&r, e.seq)
			} else {
				quiet.upsert(&r, e.seq, e.at)
			}
		}
		if d := f.state.floor(k.key); d != nil {
			quiet.remove(&r, d)
		}
		k.start(r, nil)
	}
	return nil
}

// droppedFacts are what the state keeps of a row that DROP ROW hides: an upsert for
// each version that one of its fields has.
func (f *fold) droppedFacts(r *register, now int64) ([]hiddenFact, error) {
	vers := map[string]bool{string(r.u): true}
	for n := range f.fields {
		if v := r.version(n); len(v) > 0 {
			vers[string(v)] = true
		}
	}
	var out []hiddenFact
	for v := range vers {
		payload, err := f.shape.encodeUpsert(nil, r, []byte(v))
		if err != nil {
			return nil, err
		}
		out = append(out, hiddenFact{kind: kindDropped, seq: []byte(v), payload: payload, at: now})
	}
	slices.SortFunc(out, func(a, b hiddenFact) int { return bytes.Compare(a.seq, b.seq) })
	return out, nil
}
