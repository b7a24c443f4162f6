package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/apply"
	deltalog "github.com/sluice-data/sluice/log"
)

// tableReport is what `sluice inspect` tells.
type tableReport struct {
	Table       string            `json:"table"`
	Version     int64             `json:"version"`
	Timestamp   *time.Time        `json:"timestamp"`
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"`
	Description string            `json:"description,omitempty"`
	Protocol    protocolReport    `json:"protocol"`
	Schema      []columnReport    `json:"schema"`
	PartitionBy []string          `json:"partition_columns"`
	Properties  map[string]string `json:"properties"`
	Files       int64             `json:"files"`
	Bytes       int64             `json:"bytes"`
	// Rows is null when a file has no statistics.
	Rows            *int64           `json:"rows"`
	DeletionVectors dvReport         `json:"deletion_vectors"`
	Log             logReport        `json:"log"`
	ChangeFeed      feedReport       `json:"change_feed"`
	Apply           *applyReport     `json:"apply"`
	Transactions    map[string]int64 `json:"transactions"`
}

type protocolReport struct {
	Reader         int      `json:"min_reader_version"`
	Writer         int      `json:"min_writer_version"`
	ReaderFeatures []string `json:"reader_features"`
	WriterFeatures []string `json:"writer_features"`
}

type columnReport struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Nullable bool   `json:"nullable"`
}

type dvReport struct {
	Files int64 `json:"files"`
	Rows  int64 `json:"deleted_rows"`
}

type logReport struct {
	FirstVersion int64 `json:"first_version"`
	Checkpoint   int64 `json:"checkpoint_version"`
}

// feedReport: FromVersion and ToVersion are the range that `sluice changes` can
// read, null when the feed is off.
type feedReport struct {
	Enabled     bool   `json:"enabled"`
	FromVersion *int64 `json:"from_version"`
	ToVersion   *int64 `json:"to_version"`
}

type applyReport struct {
	StateVersion *int64            `json:"state_version"`
	Properties   map[string]string `json:"properties"`
	// State is what the state holds; null where Problem says why it cannot be read.
	State   *apply.StateReport `json:"state"`
	Problem string             `json:"problem,omitempty"`
}

func newInspectCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect TABLE",
		Short: "Print what a table is: protocol, schema, properties, files, log and change feed",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  sluice inspect people
  sluice inspect people -o json`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkResultForm(); err != nil {
				return err
			}
			store, err := a.open(args[0])
			if err != nil {
				return err
			}
			snap, err := deltalog.Open(store, deltalog.Options{}).Latest(cmd.Context())
			if err != nil {
				return fmt.Errorf("inspect %s: %w", args[0], err)
			}
			r, err := inspect(cmd.Context(), store.URL(), snap)
			if err != nil {
				return fmt.Errorf("inspect %s: %w", args[0], err)
			}
			if r.Apply != nil && r.Apply.StateVersion != nil {
				if err := a.inspectState(cmd.Context(), args[0], r.Apply); err != nil {
					return fmt.Errorf("inspect %s: %w", args[0], err)
				}
			}
			if a.wantsSummary() {
				_, err := fmt.Fprint(a.stdout, r.text())
				return err
			}
			return a.printResult(r, "")
		},
	}
}

func inspect(ctx context.Context, url string, snap *deltalog.Snapshot) (*tableReport, error) {
	m := snap.Metadata
	r := &tableReport{Table: url, Version: snap.Version, ID: m.ID, Name: m.Name, Description: m.Description,
		Protocol: protocolReport{Reader: snap.Protocol.MinReaderVersion, Writer: snap.Protocol.MinWriterVersion,
			ReaderFeatures: orEmpty(snap.Protocol.ReaderFeatures), WriterFeatures: orEmpty(snap.Protocol.WriterFeatures)},
		PartitionBy: orEmpty(m.PartitionColumns), Properties: m.Configuration, Transactions: map[string]int64{}}
	for _, f := range snap.Schema.Fields {
		r.Schema = append(r.Schema, columnReport{f.Name, f.Type.String(), f.Nullable})
	}
	rows, known := int64(0), true
	for add, err := range snap.Files(ctx) {
		if err != nil {
			return nil, err
		}
		r.Files++
		r.Bytes += add.Size
		var stats struct {
			NumRecords *int64 `json:"numRecords"`
		}
		if json.Unmarshal([]byte(add.Stats), &stats) != nil || stats.NumRecords == nil {
			known = false
		} else {
			rows += *stats.NumRecords
		}
		if dv := add.DeletionVector; dv != nil {
			r.DeletionVectors.Files++
			r.DeletionVectors.Rows += dv.Cardinality
			rows -= dv.Cardinality
		}
	}
	if known {
		r.Rows = &rows
	}
	for _, t := range snap.Txns() {
		r.Transactions[t.AppID] = t.Version
	}
	history, err := snap.History(ctx, 0)
	if err != nil {
		return nil, err
	}
	r.Log = logReport{FirstVersion: snap.Version, Checkpoint: snap.CheckpointVersion()}
	if len(history) > 0 {
		r.Timestamp = &history[0].Time
		r.Log.FirstVersion = history[len(history)-1].Version
	}
	r.ChangeFeed.Enabled = snap.WritesChangeFeed()
	if r.ChangeFeed.Enabled {
		from, err := feedStart(ctx, snap, r.Log.FirstVersion)
		if err != nil {
			return nil, err
		}
		r.ChangeFeed.FromVersion, r.ChangeFeed.ToVersion = &from, &snap.Version
	}
	r.Apply = inspectApply(snap)
	return r, nil
}

// feedStart is the first version from which the feed has been on without a gap.
func feedStart(ctx context.Context, snap *deltalog.Snapshot, first int64) (int64, error) {
	from := first
	for c, err := range snap.Log().Commits(ctx, first, snap.Version) {
		if err != nil {
			return 0, err
		}
		if c.Metadata == nil {
			continue
		}
		on := false
		for k, v := range c.Metadata.Configuration {
			if strings.EqualFold(k, "delta.enableChangeDataFeed") || strings.EqualFold(k, "delta.enableChangeDataCapture") {
				on = strings.EqualFold(v, "true")
			}
		}
		if !on {
			from = c.Version + 1
		}
	}
	return from, nil
}

func inspectApply(snap *deltalog.Snapshot) *applyReport {
	r := &applyReport{Properties: map[string]string{}}
	for k, v := range snap.Metadata.Configuration {
		if strings.HasPrefix(k, "sluice.apply.") {
			r.Properties[k] = v
		}
	}
	if v, ok := snap.TxnVersion("sluice-state"); ok {
		r.StateVersion = &v
	}
	if len(r.Properties) == 0 && r.StateVersion == nil {
		return nil
	}
	return r
}

// inspectState reads what the state holds, where it lies by itself or at the path
// that the table records. A damaged state is reported, not an error.
func (a *app) inspectState(ctx context.Context, location string, r *applyReport) error {
	m, o, err := a.operator(location, r.Properties["sluice.apply.state"])
	if err != nil {
		return err
	}
	r.State, err = apply.Inspect(ctx, m, o)
	var refused *apply.Error
	if errors.As(err, &refused) {
		r.Problem = oneLine(refused.Error())
		return nil
	}
	return err
}

func (r *tableReport) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-17s %s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	line("table", "%s", r.Table)
	when := "unknown time"
	if r.Timestamp != nil {
		when = r.Timestamp.Format(time.RFC3339Nano)
	}
	line("version", "%d (%s)", r.Version, when)
	line("id", "%s", r.ID)
	if r.Name != "" {
		line("name", "%s", r.Name)
	}
	if r.Description != "" {
		line("description", "%s", r.Description)
	}
	line("protocol", "reader %d, writer %d", r.Protocol.Reader, r.Protocol.Writer)
	if len(r.Protocol.WriterFeatures) > 0 {
		line("features", "%s", strings.Join(r.Protocol.WriterFeatures, ", "))
	}
	for i, c := range r.Schema {
		name, null := "columns", ""
		if i > 0 {
			name = ""
		}
		if !c.Nullable {
			null = " NOT NULL"
		}
		line(name, "%s %s%s", c.Name, c.Type, null)
	}
	if len(r.PartitionBy) > 0 {
		line("partitioned by", "%s", strings.Join(r.PartitionBy, ", "))
	}
	for i, k := range slices.Sorted(maps.Keys(r.Properties)) {
		name := "properties"
		if i > 0 {
			name = ""
		}
		line(name, "%s = %s", k, short(r.Properties[k]))
	}
	rows := "unknown rows"
	if r.Rows != nil {
		rows = fmt.Sprintf("%d rows", *r.Rows)
	}
	line("files", "%d, %s, %s", r.Files, humanSize(r.Bytes), rows)
	if r.DeletionVectors.Files > 0 {
		line("deletion vectors", "%d files, %d deleted rows", r.DeletionVectors.Files, r.DeletionVectors.Rows)
	}
	checkpoint := "no checkpoint"
	if r.Log.Checkpoint >= 0 {
		checkpoint = fmt.Sprintf("checkpoint at %d", r.Log.Checkpoint)
	}
	line("log", "versions %d to %d, %s", r.Log.FirstVersion, r.Version, checkpoint)
	if r.ChangeFeed.Enabled {
		line("change feed", "on, versions %d to %d", *r.ChangeFeed.FromVersion, *r.ChangeFeed.ToVersion)
	} else {
		line("change feed", "off")
	}
	if r.Apply != nil && r.Apply.StateVersion != nil {
		if r.Apply.State == nil {
			line("apply state", "version %d, %s", *r.Apply.StateVersion, r.Apply.Problem)
		} else {
			for i, text := range r.Apply.State.Text() {
				name := "apply state"
				if i > 0 {
					name = ""
				}
				line(name, "%s", text)
			}
		}
	}
	return b.String()
}

// orEmpty makes a nil list print as [].
func orEmpty(list []string) []string { return append([]string{}, list...) }

// short cuts a property value for the eye; -o json has it whole.
func short(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
}
