package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-data/sluice/internal/rowio"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func newLogCommand(a *app) *cobra.Command {
	var limit int
	var version int64
	var actions bool
	c := &cobra.Command{
		Use:   "log TABLE",
		Short: "Print the history of a table, newest first",
		Example: `  sluice create people --schema "id BIGINT NOT NULL, name STRING"
  sluice log people
  sluice log people --limit 1 -o json
  sluice log people --version 0 --actions`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := cmd.Flags().Changed("version")
			switch {
			case actions && !chosen:
				return usage("MISSING_FLAG", "--actions needs --version")
			case chosen && version < 0:
				return usage("INVALID_FLAG", "--version %d: versions start at 0", version)
			case cmd.Flags().Changed("limit") && limit < 1:
				return usage("INVALID_FLAG", "--limit %d: expected at least 1; leave it out for all versions", limit)
			}
			store, err := a.open(args[0])
			if err != nil {
				return err
			}
			l := deltalog.Open(store, deltalog.Options{})
			if actions {
				return a.printActions(cmd, l, store, args[0], version)
			}
			var snap *deltalog.Snapshot
			if chosen {
				snap, err = l.At(cmd.Context(), version)
				limit = 1
			} else {
				snap, err = l.Latest(cmd.Context())
			}
			if err != nil {
				return fmt.Errorf("read history of %s: %w", args[0], err)
			}
			entries, err := snap.History(cmd.Context(), limit)
			if err != nil {
				return fmt.Errorf("read history of %s: %w", args[0], err)
			}
			return a.printHistory(entries)
		},
	}
	f := c.Flags()
	f.IntVar(&limit, "limit", 0, "print at most this many versions (default: all)")
	f.Int64Var(&version, "version", -1, "print only this version")
	f.BoolVar(&actions, "actions", false, "print the raw actions of the commit of --version")
	return c
}

func (a *app) printHistory(entries []deltalog.HistoryEntry) error {
	text := &schema.Map{Key: schema.String, Value: schema.String, ValueContainsNull: true}
	s := &schema.Struct{Fields: []schema.Field{
		{Name: "version", Type: schema.Long}, {Name: "timestamp", Type: schema.Timestamp},
		{Name: "operation", Type: schema.String, Nullable: true}, {Name: "parameters", Type: text, Nullable: true},
		{Name: "metrics", Type: text, Nullable: true}, {Name: "engine", Type: schema.String, Nullable: true}}}
	var rows [][]any
	for _, e := range entries {
		row := []any{e.Version, e.Time, nil, nil, nil, nil}
		if e.Info != nil {
			row[2], row[3], row[4], row[5] = orNull(e.Info.Operation), parameters(e.Info.OperationParameters), e.Info.OperationMetrics, orNull(e.Info.EngineInfo)
		}
		rows = append(rows, row)
	}
	return a.printValues(s, rows)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// parameters shows JSON strings as their text and other values as JSON.
func parameters(raw map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for k, v := range raw {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		out[k] = s
	}
	return out
}

// printActions prints the lines of one commit file as they are.
func (a *app) printActions(cmd *cobra.Command, l *deltalog.Log, store storage.Store, location string, version int64) error {
	array := false
	switch f := a.form(); f {
	case rowio.JSON:
		array = true
	case rowio.JSONL, rowio.Table:
	default:
		return usage("INVALID_FLAG", "--output %s: raw actions have no columns: use jsonl or json", f)
	}
	if _, err := l.ReadCommit(cmd.Context(), version); err != nil {
		return fmt.Errorf("read commit of %s: %w", location, err)
	}
	data, err := storage.ReadAll(cmd.Context(), store, fmt.Sprintf("_delta_log/%020d.json", version))
	if err != nil {
		return fmt.Errorf("read commit of %s: %w", location, err)
	}
	lines := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' || r == '\r' })
	text := strings.Join(lines, "\n") + "\n"
	if array {
		text = "[\n" + strings.Join(lines, ",\n") + "\n]\n"
	}
	_, err = fmt.Fprint(a.stdout, text)
	return err
}
