package apply

import "slices"

// TargetPlan is what a dry run says of a target: how it would stand after the batch.
type TargetPlan struct {
	// Creates: there is no table yet; Adopts: there is one that apply has not written.
	Creates bool `json:"creates"`
	Adopts  bool `json:"adopts,omitempty"`
	// Schema is the target's in DDL form, Adds the columns that would join it.
	Schema      string   `json:"schema"`
	Adds        []string `json:"adds,omitempty"`
	Keys        []string `json:"keys"`
	Sequence    string   `json:"sequence_type"`
	StoredAs    string   `json:"stored_as"`
	PartitionBy []string `json:"partition_by,omitempty"`
}

// plan tells what the attempt would make of its target.
func (a *attempt) plan() *TargetPlan {
	if a.shape == nil {
		return nil
	}
	p := &TargetPlan{Creates: a.t.snap == nil, Adopts: a.t.adopt, Schema: a.shape.schema.String(), Keys: a.shape.keyNames(),
		Sequence: typeName(a.shape.seqType), StoredAs: a.def.StoredAs}
	if a.t.snap == nil {
		p.PartitionBy = slices.Clone(a.t.rules().PartitionBy)
		return p
	}
	p.PartitionBy = a.t.snap.Metadata.PartitionColumns
	for _, n := range a.shape.schema.Names() {
		if a.t.snap.Schema.Index(n) < 0 {
			p.Adds = append(p.Adds, n)
		}
	}
	return p
}
