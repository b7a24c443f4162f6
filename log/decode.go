package deltalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"
)

const codeCorrupt = "DELTA_LOG_FILE_MALFORMED"

// wireLine is one line of a commit: exactly one of the known keys, or none.
type wireLine struct {
	Add            *wireAdd        `json:"add"`
	Remove         *wireRemove     `json:"remove"`
	CDC            *wireCDC        `json:"cdc"`
	Metadata       json.RawMessage `json:"metaData"`
	Protocol       *wireProtocol   `json:"protocol"`
	Txn            *wireTxn        `json:"txn"`
	Domain         *wireDomain     `json:"domainMetadata"`
	CommitInfo     json.RawMessage `json:"commitInfo"`
	Sidecar        *sidecar        `json:"sidecar"`
	CheckpointMeta json.RawMessage `json:"checkpointMetadata"`
}

// The wire types find out whether required fields are there: a field of the outer
// struct hides the embedded one of that name.
type wireAdd struct {
	Add
	Path             *string `json:"path"`
	Size             *int64  `json:"size"`
	ModificationTime *int64  `json:"modificationTime"`
	DataChange       *bool   `json:"dataChange"`
}

type wireRemove struct {
	Remove
	Path       *string `json:"path"`
	DataChange *bool   `json:"dataChange"`
}

type wireCDC struct {
	CDC
	Path *string `json:"path"`
}

type wireTxn struct {
	AppID       *string `json:"appId"`
	Version     *int64  `json:"version"`
	LastUpdated *int64  `json:"lastUpdated"`
}

type wireDomain struct {
	Domain        *string `json:"domain"`
	Configuration string  `json:"configuration"`
	Removed       bool    `json:"removed"`
}

type wireProtocol struct {
	MinReaderVersion *int     `json:"minReaderVersion"`
	MinWriterVersion *int     `json:"minWriterVersion"`
	ReaderFeatures   []string `json:"readerFeatures"`
	WriterFeatures   []string `json:"writerFeatures"`
}

type wireMetadata struct {
	ID               *string            `json:"id"`
	Name             *string            `json:"name"`
	Description      *string            `json:"description"`
	Format           *Format            `json:"format"`
	SchemaString     *string            `json:"schemaString"`
	PartitionColumns []string           `json:"partitionColumns"`
	CreatedTime      *int64             `json:"createdTime"`
	Configuration    map[string]*string `json:"configuration"`
}

// sidecar names a file under _sidecars/ that holds file actions of a V2 checkpoint.
type sidecar struct {
	Path             string `json:"path"`
	SizeInBytes      int64  `json:"sizeInBytes"`
	ModificationTime int64  `json:"modificationTime"`
}

// ParseCommit reads the bytes of a commit file. name is used in
// errors, which are *[CorruptError] with the line.
func ParseCommit(version int64, name string, data []byte, fileTime time.Time) (*Commit, error) {
	c := &Commit{Version: version, FileTime: fileTime}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &CorruptError{ErrorCode: codeCorrupt, File: name, Reason: "the file is empty"}
	}
	err := eachLine(name, data, func(l *wireLine) error {
		if l.CommitInfo != nil && c.Info != nil {
			return fmt.Errorf("second commitInfo in one commit")
		}
		if l.CommitInfo != nil {
			c.Info = parseCommitInfo(l.CommitInfo)
		}
		return c.Actions.take(l)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// plainJSON is an error of JSON in words that name what stands in the file.
func plainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "a text"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		want = "a whole number"
	case reflect.Slice:
		want = "a list"
	}
	return fmt.Errorf("%s is a JSON %s where %s belongs", wrong.Field, wrong.Value, want)
}

// eachLine decodes each line of an action file and reports faults with the line.
func eachLine(name string, data []byte, visit func(*wireLine) error) error {
	n := 0
	for line := range splitLines(data) {
		if n++; len(line) == 0 {
			continue
		}
		fail := func(reason string, cause error) error {
			return &CorruptError{ErrorCode: codeCorrupt, File: name, Line: n, Reason: reason, Cause: cause}
		}
		if line[0] != '{' {
			return fail("not a JSON object", nil)
		}
		var l wireLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fail("unparseable action", plainJSON(err))
		}
		if err := visit(&l); err != nil {
			return fail(err.Error(), nil)
		}
	}
	return nil
}

// splitLines yields the lines of data without surrounding space, blank ones too.
func splitLines(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			line := data
			if i := bytes.IndexByte(data, '\n'); i >= 0 {
				line, data = data[:i], data[i+1:]
			} else {
				data = nil
			}
			if !yield(bytes.TrimSpace(line)) {
				return
			}
		}
	}
}

// take adds the action of a line to a.
func (a *Actions) take(l *wireLine) error {
	known := 0
	if l.Add != nil {
		known++
		add := &l.Add.Add
		if l.Add.Path == nil || *l.Add.Path == "" || l.Add.Size == nil || l.Add.DataChange == nil || l.Add.ModificationTime == nil {
			return fmt.Errorf("add without path, size, modificationTime or dataChange")
		}
		add.Path, add.Size, add.ModificationTime, add.DataChange = *l.Add.Path, *l.Add.Size, *l.Add.ModificationTime, *l.Add.DataChange
		a.Adds = append(a.Adds, add)
	}
	if l.Remove != nil {
		known++
		r := &l.Remove.Remove
		if l.Remove.Path == nil || *l.Remove.Path == "" || l.Remove.DataChange == nil {
			return fmt.Errorf("remove without path or dataChange")
		}
		r.Path, r.DataChange = *l.Remove.Path, *l.Remove.DataChange
		a.Removes = append(a.Removes, r)
	}
	if l.CDC != nil {
		known++
		c := &l.CDC.CDC
		if l.CDC.Path == nil || *l.CDC.Path == "" {
			return fmt.Errorf("cdc without path")
		}
		c.Path = *l.CDC.Path
		a.CDC = append(a.CDC, c)
	}
	if isSet(l.Metadata) {
		known++
		if a.Metadata != nil {
			return fmt.Errorf("second metaData in one commit")
		}
		m, err := parseMetadata(l.Metadata)
		if err != nil {
			return err
		}
		a.Metadata = m
	}
	if l.Protocol != nil {
		known++
		if a.Protocol != nil {
			return fmt.Errorf("second protocol in one commit")
		}
		p := l.Protocol
		if p.MinReaderVersion == nil || p.MinWriterVersion == nil {
			return fmt.Errorf("protocol without minReaderVersion or minWriterVersion")
		}
		a.Protocol = &Protocol{*p.MinReaderVersion, *p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures}
	}
	if l.Txn != nil {
		known++
		if l.Txn.AppID == nil || l.Txn.Version == nil {
			return fmt.Errorf("txn without appId or version")
		}
		a.Txns = append(a.Txns, &Txn{*l.Txn.AppID, *l.Txn.Version, l.Txn.LastUpdated})
	}
	if l.Domain != nil {
		known++
		if l.Domain.Domain == nil {
			return fmt.Errorf("domainMetadata without domain")
		}
		a.Domains = append(a.Domains, &DomainMetadata{*l.Domain.Domain, l.Domain.Configuration, l.Domain.Removed})
	}
	if known > 1 {
		return fmt.Errorf("more than one action in one object")
	}
	return nil
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

var metadataKeys = map[string]bool{
	"id": true, "name": true, "description": true, "format": true, "schemaString": true,
	"partitionColumns": true, "createdTime": true, "configuration": true,
}

func parseMetadata(raw []byte) (*Metadata, error) {
	var w wireMetadata
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf("metaData: %w", err)
	}
	if w.ID == nil || w.Format == nil {
		return nil, fmt.Errorf("metaData without id or format")
	}
	m := &Metadata{
		ID: *w.ID, Format: *w.Format, PartitionColumns: w.PartitionColumns,
		CreatedTime: w.CreatedTime, Configuration: make(map[string]string, len(w.Configuration)),
	}
	if w.SchemaString != nil {
		m.SchemaString = *w.SchemaString
	}
	if w.Name != nil {
		m.Name = *w.Name
	}
	if w.Description != nil {
		m.Description = *w.Description
	}
	for k, v := range w.Configuration {
		if v != nil {
			m.Configuration[k] = *v
		}
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("metaData: %w", err)
	}
	for k, v := range all {
		if !metadataKeys[k] {
			if m.Extra == nil {
				m.Extra = map[string]json.RawMessage{}
			}
			m.Extra[k] = v
		}
	}
	return m, nil
}

// parseCommitInfo reads what it can: the object is free-form, and a field of an
// unexpected type is treated as absent.
func parseCommitInfo(raw json.RawMessage) *CommitInfo {
	c := &CommitInfo{Raw: bytes.Clone(raw)}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return c
	}
	get := func(key string, into any) {
		if v, ok := m[key]; ok {
			// Ignored on purpose: see above.
			_ = json.Unmarshal(v, into)
		}
	}
	c.Timestamp, c.InCommitTimestamp = optional[int64](m, "timestamp"), optional[int64](m, "inCommitTimestamp")
	c.ReadVersion, c.IsBlindAppend = optional[int64](m, "readVersion"), optional[bool](m, "isBlindAppend")
	get("operation", &c.Operation)
	get("operationParameters", &c.OperationParameters)
	get("isolationLevel", &c.IsolationLevel)
	get("userMetadata", &c.UserMetadata)
	get("userName", &c.UserName)
	get("engineInfo", &c.EngineInfo)
	get("txnId", &c.TxnID)
	get("tags", &c.Tags)
	var metrics map[string]json.RawMessage
	get("operationMetrics", &metrics)
	for k, v := range metrics {
		if c.OperationMetrics == nil {
			c.OperationMetrics = make(map[string]string, len(metrics))
		}
		var text string
		if json.Unmarshal(v, &text) != nil {
			text = string(v)
		}
		c.OperationMetrics[k] = text
	}
	return c
}

// optional is nil when the key is absent or its value is of another type.
func optional[T any](m map[string]json.RawMessage, key string) *T {
	var v T
	raw, ok := m[key]
	if !ok || !isSet(raw) || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return &v
}
