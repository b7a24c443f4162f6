package deltalog

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Metadata is the `metaData` action.
type Metadata struct {
	// ID is a UUID; another ID means another table to streams.
	ID          string `json:"id"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Format      Format `json:"format"`
	// SchemaString is the logical schema as JSON text.
	SchemaString string `json:"schemaString"`
	// PartitionColumns are logical names in order.
	PartitionColumns []string `json:"partitionColumns"`
	// CreatedTime is in ms since 1970; nil if absent.
	CreatedTime   *int64            `json:"createdTime,omitempty"`
	Configuration map[string]string `json:"configuration"`
	// Extra are fields that this version does not know, carried forward.
	Extra map[string]json.RawMessage `json:"-"`
}

// Format is the file format of a table; only parquet is supported.
type Format struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options"`
}

// Protocol is the `protocol` action. The lists are nil unless the versions call
// for them (reader 3, writer 7).
type Protocol struct {
	MinReaderVersion int
	MinWriterVersion int
	ReaderFeatures   []string
	WriterFeatures   []string
}

// Add is the `add` action: one logical file of the table.
type Add struct {
	// Path is the URI text of the log, byte for byte (W-203); see [Add.Decoded].
	Path string `json:"path"`
	// PartitionValues is keyed by physical names; nil values are null.
	PartitionValues map[string]*string `json:"partitionValues"`
	// Size is in bytes, ModificationTime in ms since 1970.
	Size             int64 `json:"size"`
	ModificationTime int64 `json:"modificationTime"`
	DataChange       bool  `json:"dataChange"`
	// Stats is JSON text, "" if absent.
	Stats                   string                    `json:"stats,omitempty"`
	Tags                    map[string]*string        `json:"tags,omitempty"`
	DeletionVector          *DeletionVectorDescriptor `json:"deletionVector,omitempty"`
	BaseRowID               *int64                    `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64                    `json:"defaultRowCommitVersion,omitempty"`
	ClusteringProvider      *string                   `json:"clusteringProvider,omitempty"`
}

// Remove is the `remove` action: a tombstone of one logical file.
type Remove struct {
	Path string `json:"path"`
	// DeletionTimestamp is in ms since 1970; 0 if absent (expired at once, R-226).
	DeletionTimestamp    int64 `json:"deletionTimestamp,omitempty"`
	DataChange           bool  `json:"dataChange"`
	ExtendedFileMetadata bool  `json:"extendedFileMetadata,omitempty"`
	// PartitionValues is nil when the writer left it out.
	PartitionValues map[string]*string `json:"partitionValues"`
	// Size is nil when the writer left it out.
	Size                    *int64                    `json:"size,omitempty"`
	Stats                   string                    `json:"stats,omitempty"`
	Tags                    map[string]*string        `json:"tags,omitempty"`
	DeletionVector          *DeletionVectorDescriptor `json:"deletionVector,omitempty"`
	BaseRowID               *int64                    `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64                    `json:"defaultRowCommitVersion,omitempty"`
}

// CDC is the `cdc` action: one file of change rows.
type CDC struct {
	Path            string             `json:"path"`
	PartitionValues map[string]*string `json:"partitionValues"`
	Size            int64              `json:"size"`
	// DataChange is always false.
	DataChange bool               `json:"dataChange"`
	Tags       map[string]*string `json:"tags,omitempty"`
}

// Txn is the `txn` action: an application's own progress mark.
type Txn struct {
	AppID   string `json:"appId"`
	Version int64  `json:"version"`
	// LastUpdated is in ms since 1970; nil if absent.
	LastUpdated *int64 `json:"lastUpdated,omitempty"`
}

// DomainMetadata is the `domainMetadata` action.
type DomainMetadata struct {
	Domain        string `json:"domain"`
	Configuration string `json:"configuration"`
	Removed       bool   `json:"removed"`
}

// DeletionVectorDescriptor names the deleted rows of a file.
type DeletionVectorDescriptor struct {
	// StorageType is "u" (relative, by UUID), "p" (absolute path) or "i" (inline).
	StorageType    string `json:"storageType"`
	PathOrInlineDv string `json:"pathOrInlineDv"`
	// Offset is the position in the file; nil for inline and where a writer left it out.
	Offset      *int32 `json:"offset,omitempty"`
	SizeInBytes int32  `json:"sizeInBytes"`
	Cardinality int64  `json:"cardinality"`
}

// ID is the dvId of reconciliation; "" for nil.
func (d *DeletionVectorDescriptor) ID() string {
	if d == nil {
		return ""
	}
	id := d.StorageType + d.PathOrInlineDv
	if d.Offset != nil {
		id += "@" + strconv.FormatInt(int64(*d.Offset), 10)
	}
	return id
}

// CommitInfo is the `commitInfo` action, as far as this package uses it. Fields of
// an unexpected type read as absent; Raw is the whole object.
type CommitInfo struct {
	// Timestamp and InCommitTimestamp are ms since 1970, nil if absent.
	Timestamp         *int64
	InCommitTimestamp *int64
	Operation         string
	// OperationParameters are raw JSON values.
	OperationParameters map[string]json.RawMessage
	// OperationMetrics are texts; numbers and nested values are their JSON.
	OperationMetrics map[string]string
	ReadVersion      *int64
	IsolationLevel   string
	// IsBlindAppend is nil when absent, which counts as false (C-03).
	IsBlindAppend *bool
	UserMetadata  string
	UserName      string
	EngineInfo    string
	TxnID         string
	Tags          map[string]string
	Raw           json.RawMessage
}

// Actions are the actions of one commit, commitInfo apart.
type Actions struct {
	Protocol *Protocol
	Metadata *Metadata
	Txns     []*Txn
	Domains  []*DomainMetadata
	Removes  []*Remove
	Adds     []*Add
	CDC      []*CDC
}

// Empty is true when there is nothing but commitInfo to write.
func (a *Actions) Empty() bool {
	return a.Protocol == nil && a.Metadata == nil && len(a.Txns) == 0 && len(a.Domains) == 0 &&
		len(a.Removes) == 0 && len(a.Adds) == 0 && len(a.CDC) == 0
}

// Commit is one version as its file holds it.
type Commit struct {
	Version int64
	// FileTime is the modification time of the commit file.
	FileTime time.Time
	// Info is nil when the commit has no commitInfo.
	Info *CommitInfo
	Actions
}

// Decoded is the path as the store knows it: URI decoded once, relative to
// the table root unless [IsAbsolute].
func (a *Add) Decoded() (string, error) { return schema.DecodePath(a.Path) }

// Decoded is like [Add.Decoded].
func (r *Remove) Decoded() (string, error) { return schema.DecodePath(r.Path) }

// Decoded is like [Add.Decoded].
func (c *CDC) Decoded() (string, error) { return schema.DecodePath(c.Path) }

// Remove is the tombstone of a, with everything that readers of the change feed
// need (W-202).
func (a *Add) Remove(now time.Time, dataChange bool) *Remove {
	size := a.Size
	pv := a.PartitionValues
	if pv == nil {
		pv = map[string]*string{}
	}
	return &Remove{
		Path: a.Path, DeletionTimestamp: now.UnixMilli(), DataChange: dataChange, ExtendedFileMetadata: true,
		PartitionValues: pv, Size: &size, Stats: a.Stats, Tags: a.Tags, DeletionVector: a.DeletionVector,
		BaseRowID: a.BaseRowID, DefaultRowCommitVersion: a.DefaultRowCommitVersion,
	}
}

// IsAbsolute reports whether a decoded path leaves the table root: it has a scheme
// or a leading slash.
func IsAbsolute(path string) bool { return strings.HasPrefix(path, "/") || pathScheme(path) != "" }

// pathScheme is the URI scheme of a path ("s3a"), "" if it has none.
func pathScheme(path string) string {
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.'):
		case i > 1 && c == ':' && i+1 < len(path) && path[i+1] == '/':
			return path[:i]
		default:
			return ""
		}
	}
	return ""
}

// fileKey identifies a logical file.
type fileKey struct{ path, dv string }

// canonicalPath is the form of a log path that replay compares: decoded, /x for
// file:/x and file:///x.
func canonicalPath(uri string) (string, error) {
	p, err := schema.DecodePath(uri)
	if err != nil {
		return "", err
	}
	// The scheme is looked for in the encoded text, where a literal colon of a
	// relative name may stand only behind a slash.
	if rest, ok := strings.CutPrefix(p, "file:/"); ok {
		return "/" + strings.TrimLeft(rest, "/"), nil
	}
	return p, nil
}

func keyOf(uri string, dv *DeletionVectorDescriptor) (fileKey, error) {
	p, err := canonicalPath(uri)
	return fileKey{p, dv.ID()}, err
}
