package deltalog

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// Domain metadata (1.14): named texts beside the table's own metadata. Domains of
// others are carried and never lost; those that begin with "delta." belong to the
// protocol, and only the ones this package knows are written.

// ClusteringDomain is the domain that names the clustering columns of a table.
const ClusteringDomain = "delta.clustering"

// SetDomain stages the metadata of a domain. Of the system's domains a commit takes
// only [ClusteringDomain] and delta.rowTracking (a high water mark to start from);
// other names that begin with "delta." are refused (W-821).
func (t *Transaction) SetDomain(d *DomainMetadata) {
	t.actions.Domains = append(t.actions.Domains, d)
}

// SetUserDomain stages the metadata of a domain of the user: any name that is not
// empty and does not begin with "delta." (W-821).
func (t *Transaction) SetUserDomain(domain, configuration string) error {
	if err := checkUserDomain(domain); err != nil {
		return err
	}
	t.SetDomain(&DomainMetadata{Domain: domain, Configuration: configuration})
	return nil
}

// RemoveUserDomain stages the removal of a user's domain; false if the table has none
// of that name.
func (t *Transaction) RemoveUserDomain(domain string) (bool, error) {
	if err := checkUserDomain(domain); err != nil {
		return false, err
	}
	if t.snap == nil {
		return false, nil
	}
	d, ok := t.snap.Domain(domain)
	if ok {
		t.SetDomain(d.removal())
	}
	return ok, nil
}

func checkUserDomain(domain string) error {
	if domain == "" || isSystemDomain(domain) {
		return invalid("DELTA_DOMAIN_METADATA_NOT_SUPPORTED", "W-821", "domain %q cannot be set: names that begin with %q are the system's", domain, "delta.")
	}
	return nil
}

func isSystemDomain(domain string) bool { return strings.HasPrefix(strings.ToLower(domain), "delta.") }

func (d *DomainMetadata) removal() *DomainMetadata {
	return &DomainMetadata{Domain: d.Domain, Configuration: d.Configuration, Removed: true}
}

// checkDomains is W-821 for the staged domains of a commit.
func checkDomains(domains []*DomainMetadata, drops Feature) error {
	for _, d := range domains {
		if d.Domain == "" || isSystemDomain(d.Domain) && d.Domain != ClusteringDomain && d.Domain != rowTrackingDomain {
			return invalid("DELTA_DOMAIN_METADATA_NOT_SUPPORTED", "W-821", "domain %q is the system's and not written by this version", d.Domain)
		}
		if d.Domain == rowTrackingDomain && d.Removed && drops != RowTracking {
			return invalid("DELTA_DOMAIN_METADATA_NOT_SUPPORTED", "W-821", "domain %s is removed only with its feature", d.Domain)
		}
	}
	return nil
}

// ReplaceDomains are the actions of a commit that replaces the table: the clustering
// domain goes unless redefined names it again; all others stay as they are (W-822).
func (s *Snapshot) ReplaceDomains(redefined ...*DomainMetadata) []*DomainMetadata {
	out := append([]*DomainMetadata(nil), redefined...)
	for _, d := range redefined {
		if d.Domain == ClusteringDomain {
			return out
		}
	}
	if d, ok := s.Domain(ClusteringDomain); ok {
		out = append(out, d.removal())
	}
	return out
}

// RestoreDomains are the actions that bring the clustering domain of s back to what it
// was in target (W-822). Domains of users stay, as does the high water mark of row
// ids, which never goes back.
func (s *Snapshot) RestoreDomains(target *Snapshot) []*DomainMetadata {
	now, hasNow := s.Domain(ClusteringDomain)
	then, hadThen := target.Domain(ClusteringDomain)
	switch {
	case hadThen && (!hasNow || now.Configuration != then.Configuration):
		return []*DomainMetadata{{Domain: ClusteringDomain, Configuration: then.Configuration}}
	case hasNow && !hadThen:
		return []*DomainMetadata{now.removal()}
	}
	return nil
}

// ClusteringColumns are the physical paths of the clustering columns, in order; nil
// for a table that is not clustered. Every form that writers have used is read: lists
// of paths, a flat list of names, under a current or an older key.
func (s *Snapshot) ClusteringColumns() ([][]string, error) {
	d, ok := s.Domain(ClusteringDomain)
	if !ok {
		return nil, nil
	}
	return parseClustering(d.Configuration)
}

// parseClustering reads the configuration of [ClusteringDomain].
func parseClustering(text string) ([][]string, error) {
	corrupt := func(cause error) error {
		return &CorruptError{ErrorCode: codeCorrupt, Reason: fmt.Sprintf("domain %s: %q does not list clustering columns", ClusteringDomain, text), Cause: cause}
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, corrupt(err)
	}
	var found json.RawMessage
	for _, key := range []string{"clusteringColumns", "clusterBy", "columns"} {
		if raw, ok := m[key]; ok && isSet(raw) {
			found = raw
			break
		}
	}
	if found == nil {
		// Another key that is sure to mean columns: the only one that mentions them.
		var keys []string
		for k, raw := range m {
			if strings.Contains(strings.ToLower(k), "column") && isSet(raw) {
				keys = append(keys, k)
			}
		}
		sort.Strings(keys)
		if len(keys) != 1 {
			return nil, corrupt(nil)
		}
		found = m[keys[0]]
	}
	var items []json.RawMessage
	if err := json.Unmarshal(found, &items); err != nil {
		return nil, corrupt(err)
	}
	out := [][]string{}
	for _, raw := range items {
		var path []string
		var name string
		var object struct {
			Physical []string `json:"physicalName"`
		}
		switch {
		case json.Unmarshal(raw, &path) == nil && len(path) > 0:
		case json.Unmarshal(raw, &name) == nil && name != "":
			path = []string{name}
		case json.Unmarshal(raw, &object) == nil && len(object.Physical) > 0:
			path = object.Physical
		default:
			return nil, corrupt(nil)
		}
		out = append(out, path)
	}
	return out, nil
}

// NewClusteringDomain is the domain for physical column paths, as Spark writes it.
func NewClusteringDomain(paths [][]string) *DomainMetadata {
	if paths == nil {
		paths = [][]string{}
	}
	// Lists of strings always encode.
	text, _ := marshal(map[string]any{"clusteringColumns": paths})
	return &DomainMetadata{Domain: ClusteringDomain, Configuration: string(text)}
}
