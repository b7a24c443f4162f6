package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

const (
	propMapping = "delta.columnMapping.mode"
	propMaxID   = "delta.columnMapping.maxColumnId"
)

func (t *target) deltaOptions() delta.Options {
	o := t.run.o
	return delta.Options{Clock: o.Clock, NewID: o.NewID, Logger: o.Logger, TimeZone: o.TimeZone, EngineInfo: o.EngineInfo, Workers: t.run.budget.workers()}
}

// create makes the target as an empty version 0 (apply-state 1.5). Whoever loses
// the race takes the winner's table over at the next pin.
func (t *target) create(ctx context.Context, s *shape) error {
	f := t.rules()
	props := map[string]string{propChangeFeed: "true"}
	maps.Copy(props, f.Properties)
	if f.ChangeFeed != nil {
		props[propChangeFeed] = strconv.FormatBool(*f.ChangeFeed)
	}
	if f.DeletionVectors != nil {
		props[propDV] = strconv.FormatBool(*f.DeletionVectors)
	}
	for _, p := range f.PartitionBy {
		if s.schema.Index(p) < 0 {
			return &Error{Code: CodeInvalidLayout, Phase: PhaseAnalysis, Message: fmt.Sprintf("partition column %q is not a column of the target", p)}
		}
	}
	if n, bad := forbiddenName(s.schema); bad && !hasMapping(props) {
		props[propMapping] = "name"
		t.warnMapping(n)
	}
	maps.Copy(props, t.ownProperties(s))
	_, err := delta.Create(ctx, t.store, delta.CreateOptions{Schema: s.schema, PartitionBy: f.PartitionBy, Properties: props,
		Description: f.Comment, IfNotExists: true}, t.deltaOptions())
	if err != nil {
		return fmt.Errorf("create target: %w", err)
	}
	t.states = nil // its configuration comes from the table
	return nil
}

// ownProperties are those by which a target is known as one of apply's.
func (t *target) ownProperties(s *shape) map[string]string {
	p := map[string]string{propFormat: strconv.Itoa(formatNumber), datafile.PropCarry: s.hidden().JSON()}
	if t.run.flow.StatePath != "" {
		p[propState] = t.run.flow.StatePath
	}
	return p
}

func hasMapping(props map[string]string) bool {
	for k, v := range props {
		if strings.EqualFold(k, propMapping) {
			return !strings.EqualFold(v, "none")
		}
	}
	return false
}

// forbiddenName finds a column name that files cannot carry (W-401).
func forbiddenName(s *schema.Struct) (string, bool) {
	err := schema.CheckNames(s, false)
	var r *schema.RuleError
	if errors.As(err, &r) && r.Code() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES" {
		return r.Column, true
	}
	return "", false
}

func (t *target) warnMapping(column string) {
	t.run.warn(fmt.Sprintf("%s: column name %q needs column mapping, which is turned on; deltalake (delta-rs) then cannot follow the change feed, and its to_pandas and to_pyarrow_dataset show nulls (its SQL, Spark, DuckDB and sluice read rows rightly; Spark and sluice follow the feed); rename or leave out the column to avoid it", t.title, column))
}

// checkHidden holds the table's hidden group to the flow's sequence type.
func (a *attempt) checkHidden() error {
	if a.t.adopt {
		return nil
	}
	have := a.t.layout.Carry
	if have == nil {
		return a.t.mismatch("the target's property " + datafile.PropCarry + " is gone")
	}
	if !schema.EqualIgnoringNullability(have, a.shape.hidden()) {
		return stored(CodeSequencingTypeDrift, "the target's row versions are %s, the flow's sequence has type %s", have, typeName(a.shape.seqType))
	}
	return nil
}

// tableChange is what a commit changes of the table itself.
type tableChange struct {
	metadata *deltalog.Metadata
	protocol *deltalog.Protocol    // nil: stays
	config   *deltalog.TableConfig // the table with both
}

// tableChange compares the table with what the flow needs: adoption, columns that
// join, properties that were set explicitly. Nil if nothing changes.
func (t *target) tableChange(s *shape) (*tableChange, error) {
	md := *t.snap.Metadata
	md.Configuration = maps.Clone(t.snap.Metadata.Configuration)
	if md.Configuration == nil {
		md.Configuration = map[string]string{}
	}
	changed := s.grown
	set := func(k, v string) {
		if md.Configuration[k] != v {
			md.Configuration[k], changed = v, true
		}
	}
	if t.adopt || t.state.target.Fresh {
		for k, v := range t.ownProperties(s) {
			set(k, v)
		}
	}
	f := t.rules()
	props, features, err := delta.CheckProperties(f.Properties)
	if err != nil {
		return nil, err
	}
	for k, v := range props {
		set(k, v)
	}
	for _, x := range features {
		changed = changed || !t.snap.Supports(x)
	}
	if f.ChangeFeed != nil {
		set(propChangeFeed, strconv.FormatBool(*f.ChangeFeed))
	}
	if f.DeletionVectors != nil {
		set(propDV, strconv.FormatBool(*f.DeletionVectors))
	}
	if !changed {
		return nil, nil
	}
	on := func(k string, feature deltalog.Feature) {
		if strings.EqualFold(md.Configuration[k], "true") {
			features = append(features, feature)
		}
	}
	on(propChangeFeed, deltalog.ChangeDataFeed)
	on(propDV, deltalog.DeletionVectors)
	sch := s.schema
	if usesType(sch, schema.TimestampNTZ) {
		features = append(features, deltalog.TimestampNTZ)
	}
	if n, bad := forbiddenName(sch); bad && t.snap.Mode() == schema.ModeNone {
		t.warnMapping(n)
		md.Configuration[propMapping] = "name"
	}
	if hasMapping(md.Configuration) {
		features = append(features, deltalog.ColumnMapping)
	}
	if hasMapping(md.Configuration) {
		var maxID int64
		if v := md.Configuration[propMaxID]; v != "" {
			maxID, _ = strconv.ParseInt(v, 10, 32) // CheckMapping finds ids above it
		}
		mapped, top := schema.AssignMapping(sch, int32(maxID), nil)
		md.Configuration[propMaxID] = strconv.Itoa(int(top))
		sch = mapped
	}
	if err := errors.Join(schema.CheckNames(sch, hasMapping(md.Configuration)), schema.CheckNewTable(sch, md.PartitionColumns)); err != nil {
		return nil, err
	}
	md.SchemaString = sch.JSON()
	out := &tableChange{metadata: &md}
	protocol, err := t.snap.Protocol.With(features...)
	if err != nil {
		return nil, err
	}
	if !sameProtocol(protocol, t.snap.Protocol) {
		out.protocol = protocol
	}
	out.config, err = deltalog.NewTableConfig(protocol, &md)
	return out, err
}

func sameProtocol(a, b *deltalog.Protocol) bool {
	return a.MinReaderVersion == b.MinReaderVersion && a.MinWriterVersion == b.MinWriterVersion &&
		slices.Equal(a.ReaderFeatures, b.ReaderFeatures) && slices.Equal(a.WriterFeatures, b.WriterFeatures)
}

func usesType(t, want schema.Type) bool {
	switch t := t.(type) {
	case *schema.Struct:
		for _, f := range t.Fields {
			if usesType(f.Type, want) {
				return true
			}
		}
		return false
	case *schema.Array:
		return usesType(t.Elem, want)
	case *schema.Map:
		return usesType(t.Key, want) || usesType(t.Value, want)
	}
	return t == want
}

// refit fits the first batch after a full refresh: the table's columns and types are
// those of the batch. A column that stays keeps its identity.
func (t *target) refit(s *shape) error {
	s.grown = len(s.schema.Fields) != len(t.snap.Schema.Fields)
	for i := range s.schema.Fields {
		f := &s.schema.Fields[i]
		at := t.snap.Schema.Index(f.Name)
		if at >= 0 && schema.EqualIgnoringNullability(plainType(t.snap.Schema.Fields[at].Type), plainType(f.Type)) {
			*f = t.snap.Schema.Fields[at]
		} else if t.snap.Mode() != schema.ModeNone {
			if t.mapped == nil {
				t.mapped = map[string]string{}
			}
			if t.mapped[f.Name] == "" {
				t.mapped[f.Name] = "col-" + t.run.o.NewID()
			}
			f.Metadata = f.Metadata.With(schema.MappingNameKey, t.mapped[f.Name])
		}
		s.grown = s.grown || at != i || f.Type.String() != t.snap.Schema.Fields[i].Type.String()
	}
	return s.finish()
}

// physicalFor gives columns that join a mapped table, or one that must become
// mapped, their physical names; the same column gets the same name at every try.
func (t *target) physicalFor(s *shape) error {
	_, bad := forbiddenName(s.schema)
	if t.snap == nil || !s.grown || !bad && t.snap.Mode() == schema.ModeNone {
		return nil
	}
	if t.mapped == nil {
		t.mapped = map[string]string{}
	}
	for i := range s.schema.Fields {
		c := &s.schema.Fields[i]
		if t.snap.Schema.Index(c.Name) >= 0 {
			continue
		}
		if t.mapped[c.Name] == "" {
			t.mapped[c.Name] = "col-" + t.run.o.NewID()
		}
		c.Metadata = c.Metadata.With(schema.MappingNameKey, t.mapped[c.Name])
	}
	return s.finish()
}

// checkUnique refuses to adopt a table in which a key stands on two rows.
func (a *attempt) checkUnique(ctx context.Context, files []*deltalog.Add) error {
	t := a.t
	if !t.adopt || t.unique {
		return nil
	}
	dup, err := merge.FirstDuplicate(ctx, t.store, t.layout, files, a.shape.identityNames(), merge.Options{})
	if err != nil {
		return err
	}
	if dup != nil {
		return stored(CodeTargetKeyNotUnique, "the target has two rows with key %s (in %s and %s); remove one", a.shape.keyBytesText(dup.Key), dup.Files[0], dup.Files[1])
	}
	t.unique = true
	return nil
}

// keyValueText prints the key of a row for messages.
func keyValueText(s *shape, o *origin, row int) string {
	var parts []string
	for k, i := range s.keys {
		parts = append(parts, s.schema.Fields[i].Name+"="+cellString(o.keys[k], row))
	}
	return strings.Join(parts, ", ")
}

func cellString(a arrow.Array, row int) string {
	if a.IsNull(row) {
		return "null"
	}
	return a.ValueStr(row)
}
