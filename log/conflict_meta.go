package deltalog

import (
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// IdentityTag in commitInfo.tags marks a commit whose metadata moved nothing but the
// high water marks of identity columns (C-17). [Transaction.Commit] sets it itself.
const IdentityTag = "delta.identity.schemaUpdate"

const identityMarkKey = "delta.identity.highWaterMark"

// checkMetadata is C-16 to C-19; what may pass becomes the table's metadata.
func (c *committer) checkMetadata(w *Commit) error {
	if w.Metadata == nil {
		return nil
	}
	if c.t.actions.Metadata != nil {
		return conflict(MetadataChanged, "C-16", w, "")
	}
	if c.config == nil {
		return conflict(MetadataChanged, "C-19", w, "")
	}
	old := c.config.Metadata
	tagged := w.Info != nil && strings.EqualFold(w.Info.Tags[IdentityTag], "true")
	if !(tagged && onlyIdentityMarks(old, w.Metadata)) && !resolvable(old, w.Metadata) {
		return conflict(MetadataChanged, "C-19", w, "")
	}
	p := c.config.Protocol
	if w.Protocol != nil {
		p = w.Protocol
	}
	cfg, err := NewTableConfig(p, w.Metadata)
	if err == nil {
		err = cfg.Require(OpWrite)
	}
	if err != nil {
		return err
	}
	c.config = cfg
	return nil
}

// sameTable: everything but configuration and schemaString is equal.
func sameTable(a, b *Metadata) bool {
	x, y := *a, *b
	x.Configuration, y.Configuration, x.SchemaString, y.SchemaString = nil, nil, "", ""
	if len(x.Format.Options) == 0 && len(y.Format.Options) == 0 {
		x.Format.Options, y.Format.Options = nil, nil
	}
	if len(x.PartitionColumns) == 0 && len(y.PartitionColumns) == 0 {
		x.PartitionColumns, y.PartitionColumns = nil, nil
	}
	return reflect.DeepEqual(x, y)
}

// onlyIdentityMarks: the metadata differ in high water marks of identity columns alone.
func onlyIdentityMarks(a, b *Metadata) bool {
	return sameTable(a, b) && maps.Equal(a.Configuration, b.Configuration) &&
		sameSchema(a, b, identityMarkKey)
}

// sameSchema compares schemas with some keys of field metadata left out.
func sameSchema(a, b *Metadata, without ...string) bool {
	if a.SchemaString == b.SchemaString {
		return true
	}
	s, err1 := schema.ParseJSON([]byte(a.SchemaString))
	t, err2 := schema.ParseJSON([]byte(b.SchemaString))
	if err1 != nil || err2 != nil {
		return false
	}
	return schema.TypeJSON(stripped(s, without)) == schema.TypeJSON(stripped(t, without))
}

func stripped(t schema.Type, keys []string) schema.Type {
	switch t := t.(type) {
	case *schema.Struct:
		out := &schema.Struct{}
		for _, f := range t.Fields {
			for _, k := range keys {
				f.Metadata = f.Metadata.Without(k)
			}
			f.Type = stripped(f.Type, keys)
			out.Fields = append(out.Fields, f)
		}
		return out
	case *schema.Array:
		return &schema.Array{Elem: stripped(t.Elem, keys), ContainsNull: t.ContainsNull}
	case *schema.Map:
		return &schema.Map{Key: stripped(t.Key, keys), Value: stripped(t.Value, keys), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// resolvable is C-32: the new metadata differs from the old one only by settings that
// leave files written under the old one as they should be. Nothing is removed, and
// the change feed is not among them (C-33).
func resolvable(old, now *Metadata) bool {
	if !sameTable(old, now) {
		return false
	}
	for k := range old.Configuration {
		if _, ok := now.Configuration[k]; !ok {
			return false
		}
	}
	mapped := false
	for k, v := range now.Configuration {
		before, had := old.Configuration[k]
		if had && before == v {
			continue
		}
		on := strings.EqualFold(v, "true")
		ok := false
		switch strings.ToLower(strings.TrimPrefix(k, "delta.")) {
		case "enablerowtracking", "enabledeletionvectors", "enableincommittimestamps":
			ok = on
		case "rowtracking.materializedrowidcolumnname", "rowtracking.materializedrowcommitversioncolumnname":
			ok = !had
		case "incommittimestampenablementversion", "incommittimestampenablementtimestamp":
			ok = true
		case "checkpointpolicy":
			ok = strings.EqualFold(v, "v2")
		case "columnmapping.mode":
			ok = strings.EqualFold(v, "name") && (!had || strings.EqualFold(before, "none"))
			mapped = ok
		case "columnmapping.maxcolumnid":
			_, err := strconv.ParseInt(v, 10, 32)
			ok = err == nil
		}
		if !ok {
			return false
		}
	}
	if mapped {
		return sameSchema(old, now, "delta.columnMapping.id", "delta.columnMapping.physicalName")
	}
	return sameSchema(old, now)
}

// tagIdentity marks our own commit when its metadata is of that kind (C-17).
func (c *committer) tagIdentity() {
	m := c.t.actions.Metadata
	if m == nil || c.config == nil || m.SchemaString == c.config.Metadata.SchemaString || !onlyIdentityMarks(c.config.Metadata, m) {
		return
	}
	tags := maps.Clone(c.info.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[IdentityTag] = "true"
	c.info.Tags = tags
}
