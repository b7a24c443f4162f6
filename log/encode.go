package deltalog

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MarshalJSON writes the lists only where the versions call for them, and then
// even when they are empty.
func (p *Protocol) MarshalJSON() ([]byte, error) {
	w := struct {
		MinReaderVersion int       `json:"minReaderVersion"`
		MinWriterVersion int       `json:"minWriterVersion"`
		ReaderFeatures   *[]string `json:"readerFeatures,omitempty"`
		WriterFeatures   *[]string `json:"writerFeatures,omitempty"`
	}{MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
	list := func(l []string) *[]string {
		if l == nil {
			l = []string{}
		}
		return &l
	}
	if p.MinReaderVersion >= 3 {
		w.ReaderFeatures = list(p.ReaderFeatures)
	}
	if p.MinWriterVersion >= 7 {
		w.WriterFeatures = list(p.WriterFeatures)
	}
	return marshal(w)
}

// MarshalJSON fills what must not be null and adds the unknown fields back.
func (m *Metadata) MarshalJSON() ([]byte, error) {
	type plain Metadata
	p := plain(*m)
	if p.Format.Options == nil {
		p.Format.Options = map[string]string{}
	}
	if p.PartitionColumns == nil {
		p.PartitionColumns = []string{}
	}
	if p.Configuration == nil {
		p.Configuration = map[string]string{}
	}
	out, err := marshal(p)
	if err != nil || len(m.Extra) == 0 {
		return out, err
	}
	extra, err := marshal(m.Extra)
	if err != nil {
		return nil, err
	}
	out = append(out[:len(out)-1], ',')
	return append(out, extra[1:]...), nil
}

// marshal is json.Marshal without HTML escaping and newline (W-103).
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// commitInfoWire is commitInfo as we write it (W-204).
type commitInfoWire struct {
	InCommitTimestamp   *int64            `json:"inCommitTimestamp,omitempty"`
	Timestamp           int64             `json:"timestamp"`
	Operation           string            `json:"operation"`
	OperationParameters map[string]string `json:"operationParameters"`
	ReadVersion         *int64            `json:"readVersion,omitempty"`
	IsolationLevel      string            `json:"isolationLevel"`
	IsBlindAppend       bool              `json:"isBlindAppend"`
	OperationMetrics    map[string]string `json:"operationMetrics,omitempty"`
	UserMetadata        string            `json:"userMetadata,omitempty"`
	Tags                map[string]string `json:"tags,omitempty"`
	EngineInfo          string            `json:"engineInfo"`
	TxnID               string            `json:"txnId"`
}

// encodeCommit is the commit file: commitInfo first (W-102), one action a line.
func encodeCommit(info *commitInfoWire, a *Actions) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]any{"commitInfo": info}); err != nil {
		return nil, fmt.Errorf("encode commitInfo: %w", err)
	}
	err := encodeActions(enc, a)
	return b.Bytes(), err
}

// encodeActions writes one action a line.
func encodeActions(enc *json.Encoder, a *Actions) error {
	enc.SetEscapeHTML(false)
	var err error
	put := func(key string, v any) {
		if err == nil {
			if e := enc.Encode(map[string]any{key: v}); e != nil {
				err = fmt.Errorf("encode %s: %w", key, e)
			}
		}
	}
	if a.Protocol != nil {
		put("protocol", a.Protocol)
	}
	if a.Metadata != nil {
		put("metaData", a.Metadata)
	}
	for _, t := range a.Txns {
		put("txn", t)
	}
	for _, d := range a.Domains {
		put("domainMetadata", d)
	}
	for _, r := range a.Removes {
		put("remove", (*removeWire)(r))
	}
	for _, f := range a.Adds {
		if f.PartitionValues == nil {
			g := *f
			g.PartitionValues = map[string]*string{}
			f = &g
		}
		put("add", f)
	}
	for _, c := range a.CDC {
		if c.PartitionValues == nil {
			g := *c
			g.PartitionValues = map[string]*string{}
			c = &g
		}
		put("cdc", c)
	}
	return err
}

// removeWire leaves partitionValues out when the removed file had none recorded:
// an empty map would claim that it has no partition columns.
type removeWire Remove

func (r *removeWire) MarshalJSON() ([]byte, error) {
	type plain Remove
	if r.PartitionValues != nil {
		return marshal((*plain)(r))
	}
	return marshal(struct {
		*plain
		PartitionValues *struct{} `json:"partitionValues,omitempty"`
	}{plain: (*plain)(r)})
}
