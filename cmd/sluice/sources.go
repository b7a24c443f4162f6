package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/source/kafka"
	"github.com/sluice-data/sluice/apply/source/postgres"
	"github.com/sluice-data/sluice/apply/source/rows"
	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// input is an opened source with what the engine needs to know of it.
type input struct {
	*source.Opened
	bytes    int64 // of the files, 0 if unknown
	onPoison apply.OnPoison
}

// openInput opens --from.
func (a *app) openInput(ctx context.Context, f *applyFlags, columns *schema.Struct) (*input, error) {
	spec, err := a.sourceSpec(f, columns)
	if err != nil {
		return nil, err
	}
	opened, err := source.Open(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	f.withoutOperation(opened)
	if opened.Explain != "" {
		a.logger().Info("format detected", "format", string(opened.Format), "why", opened.Explain)
	}
	in := &input{Opened: opened, bytes: totalSize(f.from), onPoison: apply.PoisonQuarantine}
	if opened.OnPoisonFail {
		in.onPoison = apply.PoisonFail
	}
	return in, nil
}

// keepFormat lets the flow go on with the format that it keeps, where none is named.
func (f *applyFlags) keepFormat(ctx context.Context, spec apply.Spec, o apply.Options) {
	if f.format == "auto" || f.format == "" {
		f.known, f.knownNamed = apply.StoredFormat(ctx, spec, o)
	}
}

// formatOf is the format for the flow to keep: of records alone, since a Delta table and
// a server say themselves what they are.
func (f *applyFlags) formatOf(in *input) (format string, named bool) {
	switch in.Format {
	case source.Auto, source.DeltaFeed, source.Postgres:
		return "", false
	}
	return string(in.Format), f.knownNamed || f.format != "auto" && f.format != ""
}

// sourceSpec is what the flags say of the input.
func (a *app) sourceSpec(f *applyFlags, columns *schema.Struct) (source.Spec, error) {
	format, err := source.ParseFormat(f.format)
	if err != nil {
		return source.Spec{}, err
	}
	zone, err := a.flags.zone()
	if err != nil {
		return source.Spec{}, err
	}
	spec := source.Spec{Format: format, From: f.from, Keys: f.keys.values, KeysOf: f.own.keysOf(), Schema: columns, Options: f.option.values, Stdin: a.stdin, Now: a.clock, TimeZone: zone,
		NoOp: f.deletes != "" || f.truncates != "", Truncates: f.truncates != "", Types: f.types, OpenTable: a.sourceTable, OpenStore: a.open, Warn: a.warn, Getenv: os.Getenv, Once: f.once, Follow: f.follow, Evolves: f.evolution.value != ""}
	if f.known != "" {
		if spec.Known, err = source.ParseFormat(f.known); err != nil {
			return source.Spec{}, fmt.Errorf("format of the flow: %w", err)
		}
		spec.Named = f.knownNamed
	}
	if f.table != "" {
		spec.Tables = []string{f.table}
	}
	f.nameOperation(&spec)
	return spec, nil
}

// sourceTable opens a table as a source; nil if there is none at the path. Globs
// and files are none.
func (a *app) sourceTable(ctx context.Context, location string) (*deltalog.Snapshot, error) {
	if kafka.IsURL(location) || postgres.IsURL(location) || strings.Contains(location, "://") && strings.ContainsAny(location, "*?[") {
		return nil, nil
	}
	if local := strings.TrimPrefix(location, "file://"); !strings.Contains(local, "://") {
		if info, err := os.Stat(filepath.Join(local, "_delta_log")); err != nil || !info.IsDir() {
			return nil, nil
		}
	}
	t, err := a.openTable(ctx, location)
	if errors.Is(err, delta.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return t.Snapshot(ctx)
}

// nameOperation: the operation column of plain rows never lands in the table. A
// user who excludes it by name, as cdc-formats F16 does, thereby says which one it
// is; standard input has no sample to tell.
func (f *applyFlags) nameOperation(spec *source.Spec) {
	if spec.Format != source.Rows || spec.NoOp || spec.Options["op_column"] != "" {
		return
	}
	if i := slices.IndexFunc(f.exceptColumns.values, rows.IsOpName); i >= 0 {
		spec.Options = maps.Clone(spec.Options)
		if spec.Options == nil {
			spec.Options = map[string]string{}
		}
		spec.Options["op_column"] = f.exceptColumns.values[i]
	}
}

// withoutOperation takes columns that plain rows have and the engine never sees
// out of --except-columns.
func (f *applyFlags) withoutOperation(in *source.Opened) {
	if in.Format == source.Rows {
		f.exceptColumns.values = slices.DeleteFunc(slices.Clone(f.exceptColumns.values), func(name string) bool {
			return name == in.OpColumn || name == rows.RescuedName
		})
	}
}

// errPacked ends a walk: the size of a compressed file says nothing of its content.
var errPacked = errors.New("compressed")

// totalSize is how many bytes the files hold, for progress; 0 when that is not known.
func totalSize(paths []string) int64 {
	total := int64(0)
	for _, p := range paths {
		if p == "-" || strings.Contains(p, "://") && !strings.HasPrefix(p, "file://") {
			return 0
		}
		matches, err := filepath.Glob(strings.TrimPrefix(p, "file://"))
		if err != nil {
			return 0
		}
		for _, m := range matches {
			err := filepath.WalkDir(m, func(_ string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				switch filepath.Ext(d.Name()) {
				case ".gz", ".zst", ".bz2", ".snappy", ".parquet":
					return errPacked
				}
				info, err := d.Info()
				if err == nil {
					total += info.Size()
				}
				return err
			})
			if err != nil {
				return 0
			}
		}
	}
	return total
}

// formatNames lists the formats for help texts.
func formatNames() string {
	var out []string
	for _, f := range source.Formats() {
		out = append(out, string(f))
	}
	return strings.Join(out, ", ")
}
