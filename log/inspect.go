package deltalog

import (
	"errors"
	"fmt"
	"sort"

	"github.com/sluice-data/sluice/log/schema"
)

// RefusedError is the error of a snapshot whose protocol and metadata were found but
// cannot be worked with. Class and code are those of Err.
type RefusedError struct {
	Version  int64
	Protocol *Protocol
	Metadata *Metadata
	Err      error
}

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// FeatureStatus is what this version does with a feature that a table lists.
type FeatureStatus struct {
	Name Feature
	// Known is false for a name that this version has never heard of.
	Known bool
	// Readers: the feature binds readers too.
	Readers bool
	// Active tells what in the table turns the feature on; "" is listed but unused, or
	// on by being listed.
	Active string
	// Read and Write tell whether the feature, as this table uses it, is honoured.
	Read, Write bool
}

// Inspection says what this version can do with a table, whatever the table is.
type Inspection struct {
	Version  int64
	Protocol *Protocol
	Metadata *Metadata
	// Config is nil when the table cannot be read.
	Config   *TableConfig
	Features []FeatureStatus
	// Read, ReadFeed and Write are nil, or why not.
	Read, ReadFeed, Write error
	// Properties are set properties that this version does not write under, and
	// malformed ones with what they must be.
	Properties []string
}

// Inspect looks at the newest version as [Log.Latest] found it or failed to: err is
// its error. Errors other than [*RefusedError] are returned as they are.
func Inspect(s *Snapshot, err error) (*Inspection, error) {
	i := &Inspection{}
	var refused *RefusedError
	switch {
	case err == nil:
		i.Version, i.Protocol, i.Metadata, i.Config = s.Version, s.Protocol, s.Metadata, s.TableConfig
	case errors.As(err, &refused):
		i.Version, i.Protocol, i.Metadata = refused.Version, refused.Protocol, refused.Metadata
		i.Read, i.ReadFeed, i.Write = refused.Err, refused.Err, refused.Err
	default:
		return nil, err
	}
	c := i.Config
	if c == nil {
		c = looseConfig(i.Protocol, i.Metadata)
	}
	for _, f := range i.Protocol.Features() {
		row, known := lookupFeature(string(f))
		st := FeatureStatus{Name: f, Known: known, Readers: i.Protocol.bindsReaders(f)}
		if known && row.active != nil {
			st.Active = row.active(c)
		}
		st.Read = !st.Readers || known && row.read != no
		st.Write = st.Read && known && (row.write == yes || row.write == inactive && st.Active == "")
		i.Features = append(i.Features, st)
	}
	i.Properties = c.refusedProperties()
	for _, b := range c.bad {
		i.Properties = append(i.Properties, fmt.Sprintf("%s=%q %s", b.key, b.value, b.reason))
	}
	sort.Strings(i.Properties)
	if i.Config != nil {
		i.ReadFeed, i.Write = i.Config.Require(OpReadCDF), i.Config.Require(OpWrite)
	} else if w := c.Require(OpWrite); errors.Is(i.Read, ErrUnsupported) && w != nil {
		i.Write = w // it lists what binds writers too
	}
	return i, nil
}

// looseConfig is as much of a table as can be made of what was refused.
func looseConfig(p *Protocol, m *Metadata) *TableConfig {
	c := &TableConfig{Protocol: p, Metadata: m, Schema: &schema.Struct{}, features: map[string]bool{}}
	c.Props, c.bad = parseProperties(m.Configuration)
	if s, err := schema.ParseJSON([]byte(m.SchemaString)); err == nil {
		c.Schema = s
	}
	return c
}
