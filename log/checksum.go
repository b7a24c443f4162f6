package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/sluice-data/sluice/storage"
)

// Version checksums: one JSON object beside a commit that says what the table
// is after it. They are written after a commit where they cost no replay, and held
// against every replay of their version.

// ChecksumKey is the key of the checksum of a version.
func ChecksumKey(version int64) string { return fmt.Sprintf("%s%020d.crc", LogDir, version) }

// maxChecksum bounds what is read of a checksum file, bytes; some list all files.
const maxChecksum = 64 << 20

// Checksum is the content of a .crc file as far as it is checked. Optional parts are
// nil when absent.
type Checksum struct {
	TxnID             string             `json:"txnId,omitempty"`
	TableSizeBytes    *int64             `json:"tableSizeBytes"`
	NumFiles          *int64             `json:"numFiles"`
	NumDeletedRecords *int64             `json:"numDeletedRecordsOpt,omitempty"`
	NumVectors        *int64             `json:"numDeletionVectorsOpt,omitempty"`
	NumMetadata       int64              `json:"numMetadata"`
	NumProtocol       int64              `json:"numProtocol"`
	InCommitTimestamp *int64             `json:"inCommitTimestampOpt,omitempty"`
	Txns              *[]*Txn            `json:"setTransactions,omitempty"`
	Domains           *[]*DomainMetadata `json:"domainMetadata,omitempty"`
	Metadata          *Metadata          `json:"-"`
	Protocol          *Protocol          `json:"-"`
	DeletedCounts     *deletedCounts     `json:"deletedRecordCountsHistogramOpt,omitempty"`
}

// deletedCounts are numbers of files by how many of their rows are deleted.
type deletedCounts struct {
	Counts []int64 `json:"deletedRecordCounts"`
}

// deletedBin is the bin of a number of deleted rows (W-725).
func deletedBin(n int64) int {
	if n <= 0 {
		return 0
	}
	bin := 1
	for limit := int64(10); bin < 8 && n >= limit; limit *= 10 {
		bin++
	}
	if n >= 1<<31-1 {
		return 9
	}
	return bin
}

// ParseChecksum reads a .crc file; the error is [ErrCorrupt].
func ParseChecksum(name string, data []byte) (*Checksum, error) {
	fail := func(reason string, cause error) error {
		return &CorruptError{ErrorCode: "DELTA_CHECKSUM_MALFORMED", File: name, Reason: reason, Cause: cause}
	}
	var c Checksum
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fail("not a checksum", err)
	}
	var raw struct {
		Metadata json.RawMessage `json:"metadata"`
		Protocol *wireProtocol   `json:"protocol"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fail("not a checksum", err)
	}
	if c.TableSizeBytes == nil || c.NumFiles == nil || !isSet(raw.Metadata) || raw.Protocol == nil ||
		raw.Protocol.MinReaderVersion == nil || raw.Protocol.MinWriterVersion == nil {
		return nil, fail("tableSizeBytes, numFiles, metadata or protocol is missing", nil)
	}
	m, err := parseMetadata(raw.Metadata)
	if err != nil {
		return nil, fail(err.Error(), nil)
	}
	c.Metadata = m
	p := raw.Protocol
	c.Protocol = &Protocol{*p.MinReaderVersion, *p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures}
	return &c, nil
}

// MarshalJSON adds metadata and protocol.
func (c *Checksum) MarshalJSON() ([]byte, error) {
	type plain Checksum
	return marshal(struct {
		*plain
		Metadata *Metadata `json:"metadata"`
		Protocol *Protocol `json:"protocol"`
	}{(*plain)(c), c.Metadata, c.Protocol})
}

// Checksum reads the checksum of the snapshot's version, nil when there is none: it may
// be absent for any version.
func (s *Snapshot) Checksum(ctx context.Context) (*Checksum, error) {
	return s.log.readChecksum(ctx, s.Version)
}

func (l *Log) readChecksum(ctx context.Context, version int64) (*Checksum, error) {
	key := ChecksumKey(version)
	data, err := l.readText(ctx, key, maxChecksum)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return ParseChecksum(key, data)
}

// VerifyChecksum holds the checksum of the snapshot's version against the replay of
// the log; nil when they agree or there is no checksum. A difference is a
// *[CorruptError] with the code DELTA_CHECKSUM_MISMATCH that lists what differs: one of
// the two is wrong, and neither is to be trusted silently.
func (s *Snapshot) VerifyChecksum(ctx context.Context) error {
	c, err := s.Checksum(ctx)
	if err != nil || c == nil {
		return err
	}
	st, err := s.state(ctx)
	if err != nil {
		return err
	}
	return s.compareChecksum(c, st)
}

func (s *Snapshot) compareChecksum(c *Checksum, st *fileState) error {
	var diff []string
	number := func(what string, got, want int64) {
		if got != want {
			diff = append(diff, fmt.Sprintf("%s is %d in the checksum, %d in the log", what, got, want))
		}
	}
	sum := checksumOf(s.TableConfig, st)
	number("numFiles", *c.NumFiles, *sum.NumFiles)
	number("tableSizeBytes", *c.TableSizeBytes, *sum.TableSizeBytes)
	if c.NumVectors != nil && sum.NumVectors != nil {
		number("numDeletionVectorsOpt", *c.NumVectors, *sum.NumVectors)
	}
	if c.NumDeletedRecords != nil && sum.NumDeletedRecords != nil {
		number("numDeletedRecordsOpt", *c.NumDeletedRecords, *sum.NumDeletedRecords)
	}
	if c.Metadata.ID != s.Metadata.ID || c.Metadata.SchemaString != s.Metadata.SchemaString || !reflect.DeepEqual(c.Metadata.Configuration, s.Metadata.Configuration) {
		diff = append(diff, "the metadata differs")
	}
	if !reflect.DeepEqual(c.Protocol.Features(), s.Protocol.Features()) {
		diff = append(diff, "the protocol differs")
	}
	if c.Domains != nil {
		want := s.Domains()
		number("number of domains", int64(len(*c.Domains)), int64(len(want)))
	}
	if diff == nil {
		return nil
	}
	return &CorruptError{ErrorCode: "DELTA_CHECKSUM_MISMATCH", File: ChecksumKey(s.Version), Reason: fmt.Sprintf("the checksum and the log disagree: %s", strings.Join(diff, "; "))}
}

// checksumOf counts the live files of a replay.
func checksumOf(cfg *TableConfig, st *fileState) *Checksum {
	c := emptyChecksum(cfg)
	for _, a := range st.live {
		c.count(a.Size, a.DeletionVector, 1)
	}
	return c
}

func emptyChecksum(cfg *TableConfig) *Checksum {
	c := &Checksum{TableSizeBytes: new(int64), NumFiles: new(int64), NumMetadata: 1, NumProtocol: 1}
	if cfg.Supports(DeletionVectors) {
		c.NumDeletedRecords, c.NumVectors = new(int64), new(int64)
		c.DeletedCounts = &deletedCounts{make([]int64, 10)}
	}
	return c
}

// count adds (n = 1) or takes away (n = -1) one logical file.
func (c *Checksum) count(size int64, dv *DeletionVectorDescriptor, n int64) {
	*c.TableSizeBytes += n * size
	*c.NumFiles += n
	deleted := int64(0)
	if dv != nil {
		deleted = dv.Cardinality
		if c.NumVectors != nil && c.NumDeletedRecords != nil {
			*c.NumVectors += n
			*c.NumDeletedRecords += n * deleted
		}
	}
	if c.DeletedCounts != nil && len(c.DeletedCounts.Counts) == 10 {
		c.DeletedCounts.Counts[deletedBin(deleted)] += n
	}
}

// writeChecksum writes the .crc of the version just committed (W-725), if what it was
// before is known without a replay: the read snapshot has its files loaded, or the
// version before has a checksum. Every failure is ignored; so is a checksum that
// another writer's recovery put there first.
func (c *committer) writeChecksum(ctx context.Context) {
	sum, err := c.nextChecksum(ctx)
	if err == nil && sum != nil {
		var data []byte
		if data, err = marshal(sum); err == nil {
			err = c.log.store.Create(ctx, ChecksumKey(c.version), data)
		}
	}
	if err != nil && !errors.Is(err, storage.ErrExists) {
		c.log.opts.Logger.Debug("checksum was not written", "version", c.version, "error", err)
	}
}

// nextChecksum is the checksum after this commit, nil if it cannot be known cheaply.
func (c *committer) nextChecksum(ctx context.Context) (*Checksum, error) {
	// The written metadata, with the properties of its attempt.
	cfg := c.after
	if c.final.Metadata != nil && c.final.Metadata != c.t.actions.Metadata {
		now, err := NewTableConfig(cfg.Protocol, c.final.Metadata)
		if err != nil {
			return nil, err
		}
		cfg = now
	}
	var sum *Checksum
	var txns map[string]*Txn
	var domains map[string]*DomainMetadata
	live := func(fileKey) *Add { return nil }
	known := c.version == 0
	switch snap := c.t.snap; {
	case c.version == 0:
		sum, txns, domains = emptyChecksum(cfg), map[string]*Txn{}, map[string]*DomainMetadata{}
	case snap != nil && snap.Version == c.version-1 && snap.loaded() != nil:
		st := snap.loaded()
		sum = checksumOf(cfg, st)
		txns, domains = indexTxns(snap.Txns()), indexDomains(snap.Domains())
		live, known = func(k fileKey) *Add { return st.live[k] }, true
	default:
		before, err := c.log.readChecksum(ctx, c.version-1)
		if err != nil || before == nil {
			return nil, err
		}
		sum = before
		if before.Txns != nil {
			txns = indexTxns(*before.Txns)
		}
		if before.Domains != nil {
			domains = indexDomains(*before.Domains)
		}
		if fresh := emptyChecksum(cfg); fresh.NumVectors == nil || sum.NumVectors == nil || sum.NumDeletedRecords == nil {
			// No vectors, or a table that had none before the feature came: the counts
			// start only where every file is known.
			sum.NumVectors, sum.NumDeletedRecords, sum.DeletedCounts = nil, nil, nil
		}
	}
	for _, r := range c.final.Removes {
		if r.Size == nil {
			return nil, nil
		}
		sum.count(*r.Size, r.DeletionVector, -1)
	}
	for _, a := range c.final.Adds {
		k, err := keyOf(a.Path, a.DeletionVector)
		if err != nil {
			return nil, err
		}
		if !known && !a.DataChange && len(c.final.Removes) == 0 {
			// Maybe a file that is live already, with new metadata.
			return nil, nil
		}
		if old := live(k); old != nil {
			sum.count(old.Size, old.DeletionVector, -1)
		}
		sum.count(a.Size, a.DeletionVector, 1)
	}
	sum.TxnID, sum.Metadata, sum.Protocol = c.info.TxnID, cfg.Metadata, cfg.Protocol
	sum.InCommitTimestamp = c.info.InCommitTimestamp
	sum.Txns, sum.Domains = nil, nil
	if txns != nil {
		for _, t := range c.final.Txns {
			txns[t.AppID] = t
		}
		list := make([]*Txn, 0, len(txns))
		for _, k := range sortedKeys(txns) {
			list = append(list, txns[k])
		}
		sum.Txns = &list
	}
	if domains != nil {
		for _, d := range c.final.Domains {
			if domains[d.Domain] = d; d.Removed {
				delete(domains, d.Domain)
			}
		}
		list := make([]*DomainMetadata, 0, len(domains))
		for _, k := range sortedKeys(domains) {
			list = append(list, domains[k])
		}
		sum.Domains = &list
	}
	if *sum.NumFiles < 0 || *sum.TableSizeBytes < 0 {
		return nil, nil
	}
	return sum, nil
}

func indexTxns(list []*Txn) map[string]*Txn {
	out := make(map[string]*Txn, len(list))
	for _, t := range list {
		out[t.AppID] = t
	}
	return out
}

func indexDomains(list []*DomainMetadata) map[string]*DomainMetadata {
	out := make(map[string]*DomainMetadata, len(list))
	for _, d := range list {
		out[d.Domain] = d
	}
	return out
}
