package delta

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// ConvertOptions are settings of [Convert]; the zero value infers everything.
type ConvertOptions struct {
	// PartitionSchema gives the types of the columns in folder names, in their order.
	// Default: INT, BIGINT or DATE where every value is one, else STRING.
	PartitionSchema *schema.Struct
	// NoStats leaves out statistics: files are then never skipped by their values.
	NoStats bool
	// Properties of the new table, as in CreateOptions.
	Properties   map[string]string
	Workers      int
	UserMetadata string
}

// ConvertResult is what became of a Convert.
type ConvertResult struct {
	Result
	// Rows are those of all files.
	Rows int64
}

// ConvertError: the files of a folder do not make one table.
type ConvertError struct {
	ErrorCode string
	// File is the key of the file at fault, "" if none is.
	File   string
	Reason string
}

func (e *ConvertError) Error() string {
	if e.File == "" {
		return "convert: " + e.Reason
	}
	return "convert: file " + e.File + ": " + e.Reason
}

// Code is the stable error code.
func (e *ConvertError) Code() string { return e.ErrorCode }

// Is answers the class ErrInvalid.
func (e *ConvertError) Is(target error) bool { return target == ErrInvalid }

const (
	codeConvertMerge     = "DELTA_FAILED_TO_MERGE_FIELDS"
	codeConvertPartition = "DELTA_CONVERSION_PARTITION_MISMATCH"
	codeConvertFile      = "DELTA_CONVERSION_UNSUPPORTED_FILE"
	codeConvertEmpty     = "DELTA_CONVERSION_NO_FILES"
)

// Convert makes a table of the Parquet files at the root of store, in place: only the
// log is written. Folders "column=value" make partition columns. Hidden files and
// folders are left out. Files that do not fit together are a [*ConvertError] naming the
// file, and nothing is written.
func Convert(ctx context.Context, store storage.Store, c ConvertOptions, o Options) (*Table, ConvertResult, error) {
	v := &convert{t: newTable(store, o), o: c}
	if v.o.Workers <= 0 {
		v.o.Workers = 8
	}
	out, err := v.run(ctx)
	if err != nil {
		return nil, out, err
	}
	return v.t, out, nil
}

// convert is one run.
type convert struct {
	t         *Table
	o         ConvertOptions
	files     []parquetFile
	partition *schema.Struct // columns of folder names
	data      *schema.Struct // columns of files
}

// parquetFile is one file with the values of its folders.
type parquetFile struct {
	storage.Object
	names  []string // as the folders spell them
	values []*string
	rows   int64
	stats  string
}

func (v *convert) run(ctx context.Context) (ConvertResult, error) {
	var out ConvertResult
	exists, err := v.t.log.Exists(ctx)
	if err != nil {
		return out, err
	}
	if exists {
		return out, &ExistsError{v.t.store.URL()}
	}
	if err := v.list(ctx); err != nil {
		return out, err
	}
	if err := v.planPartition(); err != nil {
		return out, err
	}
	if err := v.mergeSchemas(ctx); err != nil {
		return out, err
	}
	s := &schema.Struct{Fields: slices.Concat(v.data.Fields, v.partition.Fields)}
	p, m, err := v.t.plan(CreateOptions{Schema: s, PartitionBy: v.partition.Names(), Properties: v.o.Properties})
	if err != nil {
		return out, err
	}
	cfg, err := deltalog.NewTableConfig(p, m)
	if err != nil {
		return out, err
	}
	if cfg.Mode() != schema.ModeNone {
		return out, &deltalog.InvalidError{ErrorCode: "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", Reason: "files that are there keep their column names: switch column mapping on afterwards"}
	}
	if err := v.readStats(ctx, cfg); err != nil {
		return out, err
	}
	return v.commit(ctx, p, m)
}

// list finds the files. Everything that is not hidden must be one.
func (v *convert) list(ctx context.Context) error {
	for o, err := range v.t.store.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list files: %w", err)
		}
		if i := strings.Index(o.Key, "/"+deltalog.LogDir); i > 0 {
			return &ConvertError{codeConvertFile, o.Key, "it belongs to a Delta table in a folder below"}
		}
		f := parquetFile{Object: o}
		if hiddenFile(o.Key) {
			continue
		}
		if ext := strings.ToLower(path.Ext(o.Key)); ext != ".parquet" && ext != ".parq" {
			return &ConvertError{codeConvertFile, o.Key, "it is no Parquet file by its name; move it away, or give it a name that begins with _"}
		}
		if o.Size == 0 {
			return &ConvertError{codeConvertFile, o.Key, "it is empty (0 bytes)"}
		}
		if dir := path.Dir(o.Key); dir != "." {
			for part := range strings.SplitSeq(dir, "/") {
				name, value, ok := strings.Cut(part, "=")
				if !ok {
					return &ConvertError{codeConvertPartition, o.Key, fmt.Sprintf("folder %q is not of the form column=value", part)}
				}
				text := unescapeHive(value)
				f.names = append(f.names, unescapeHive(name))
				if text == "__HIVE_DEFAULT_PARTITION__" || text == "" {
					f.values = append(f.values, nil)
				} else {
					f.values = append(f.values, &text)
				}
			}
		}
		v.files = append(v.files, f)
	}
	if len(v.files) == 0 {
		return &ConvertError{codeConvertEmpty, "", "there is no Parquet file in the folder"}
	}
	return nil
}

// hiddenFile: a part of the key begins with _ or . and names no partition.
func hiddenFile(key string) bool {
	for part := range strings.SplitSeq(key, "/") {
		if part[0] == '.' || part[0] == '_' && !strings.Contains(part, "=") {
			return true
		}
	}
	return false
}

// unescapeHive undoes the %XX of folder names; what is no escape stays.
func unescapeHive(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var dateText = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// planPartition decides the partition columns: every file has the same, and every
// value is one of its column's type.
func (v *convert) planPartition() error {
	names := v.files[0].names
	for _, f := range v.files {
		if !slices.Equal(f.names, names) {
			return &ConvertError{codeConvertPartition, f.Key, fmt.Sprintf("its partition columns are [%s], those of %s are [%s]", strings.Join(f.names, ", "), v.files[0].Key, strings.Join(names, ", "))}
		}
	}
	v.partition = &schema.Struct{}
	if given := v.o.PartitionSchema; given != nil {
		same := len(given.Fields) == len(names)
		for i := range given.Fields {
			same = same && strings.EqualFold(given.Fields[i].Name, names[i])
		}
		if !same {
			return &ConvertError{codeConvertPartition, v.files[0].Key, fmt.Sprintf("its folders are of the columns [%s], the given schema has [%s]", strings.Join(names, ", "), strings.Join(given.Names(), ", "))}
		}
		v.partition = given
	}
	for i, name := range names {
		if v.o.PartitionSchema == nil {
			v.partition.Fields = append(v.partition.Fields, schema.Field{Name: name, Type: v.infer(i), Nullable: true})
		}
		f := v.partition.Fields[i]
		for _, file := range v.files {
			if file.values[i] == nil && !f.Nullable {
				return &ConvertError{codeConvertPartition, file.Key, "partition column " + f.Name + " is NOT NULL and has no value"}
			}
			if _, err := schema.ParsePartitionValue(f.Type, file.values[i], v.t.opts.TimeZone); err != nil {
				return &ConvertError{codeConvertPartition, file.Key, fmt.Sprintf("partition column %s: %v", f.Name, err)}
			}
		}
	}
	return nil
}

// infer is the narrowest type that holds every value of a partition column.
func (v *convert) infer(column int) schema.Type {
	ints, longs, dates, any := true, true, true, false
	for _, f := range v.files {
		if f.values[column] == nil {
			continue
		}
		any = true
		s := *f.values[column]
		n, err := strconv.ParseInt(s, 10, 64)
		whole := err == nil && s[0] != '+'
		ints = ints && whole && n == int64(int32(n))
		longs = longs && whole
		_, err = time.Parse("2006-01-02", s)
		dates = dates && err == nil && dateText.MatchString(s)
	}
	switch {
	case any && ints:
		return schema.Integer
	case any && longs:
		return schema.Long
	case any && dates:
		return schema.Date
	}
	return schema.String
}

// mergeSchemas reads every footer and joins their columns.
func (v *convert) mergeSchemas(ctx context.Context) error {
	first := map[string]string{} // which file brought a column
	v.data = &schema.Struct{}
	i := 0
	for f, err := range pipeline.Map(ctx, v.o.Workers, numbers(len(v.files)), func(ctx context.Context, i int) (*datafile.Footer, error) {
		return datafile.ReadFooter(ctx, v.t.store, v.files[i].Key)
	}) {
		if err != nil {
			return err
		}
		file := &v.files[i]
		i++
		file.rows = f.Rows
		s := &schema.Struct{}
		for _, c := range f.Schema.Fields {
			// What the folders say wins over a column of that name in the file.
			if !slices.ContainsFunc(v.partition.Fields, func(p schema.Field) bool { return strings.EqualFold(p.Name, c.Name) }) {
				s.Fields = append(s.Fields, c)
			}
		}
		clean, err := plainType(s)
		if err != nil {
			return &ConvertError{codeConvertFile, file.Key, err.Error()}
		}
		merged, err := joinTypes(v.data, clean, "", func(column string, fresh bool) string {
			if fresh {
				first[column] = file.Key
			}
			return first[column]
		})
		if err != nil {
			return &ConvertError{codeConvertMerge, file.Key, err.Error()}
		}
		st, ok := merged.(*schema.Struct)
		if !ok {
			return &ConvertError{codeConvertMerge, file.Key, "its columns are no struct"}
		}
		v.data = st
	}
	if len(v.data.Fields) == 0 {
		return &ConvertError{codeConvertEmpty, "", "the files have no column besides those of the folders"}
	}
	if err := errors.Join(schema.CheckNames(v.data, false)); err != nil {
		return invalidSchema(err)
	}
	return nil
}

// plainType is a type of a file as a new table has it: everything may be null, nothing
// has metadata.
func plainType(t schema.Type) (schema.Type, error) {
	switch t := t.(type) {
	case *schema.Struct:
		out := &schema.Struct{}
		for _, f := range t.Fields {
			ft, err := plainType(f.Type)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", f.Name, err)
			}
			out.Fields = append(out.Fields, schema.Field{Name: f.Name, Type: ft, Nullable: true})
		}
		return out, nil
	case *schema.Array:
		e, err := plainType(t.Elem)
		return &schema.Array{Elem: e, ContainsNull: true}, err
	case *schema.Map:
		k, err := plainType(t.Key)
		if err != nil {
			return nil, err
		}
		val, err := plainType(t.Value)
		return &schema.Map{Key: k, Value: val, ValueContainsNull: true}, err
	case schema.Unknown:
		return nil, fmt.Errorf("type %s has no Delta type", t)
	}
	return t, nil
}

// joinTypes is the type that holds the values of both: structs get the fields of both,
// everything else must be equal. where names the file that a column came from.
func joinTypes(a, b schema.Type, at string, where func(column string, fresh bool) string) (schema.Type, error) {
	switch a := a.(type) {
	case *schema.Struct:
		b, ok := b.(*schema.Struct)
		if !ok {
			break
		}
		out := &schema.Struct{Fields: slices.Clone(a.Fields)}
		for _, f := range b.Fields {
			name := strings.TrimPrefix(at+"."+f.Name, ".")
			i := slices.IndexFunc(out.Fields, func(g schema.Field) bool { return strings.EqualFold(g.Name, f.Name) })
			if i < 0 {
				where(name, true)
				out.Fields = append(out.Fields, f)
				continue
			}
			if out.Fields[i].Name != f.Name {
				return nil, fmt.Errorf("column %s differs from %s only in case (%s has the other)", name, out.Fields[i].Name, where(strings.TrimPrefix(at+"."+out.Fields[i].Name, "."), false))
			}
			t, err := joinTypes(out.Fields[i].Type, f.Type, name, where)
			if err != nil {
				return nil, err
			}
			out.Fields[i].Type = t
		}
		return out, nil
	case *schema.Array:
		if b, ok := b.(*schema.Array); ok {
			e, err := joinTypes(a.Elem, b.Elem, at, where)
			return &schema.Array{Elem: e, ContainsNull: true}, err
		}
	case *schema.Map:
		if b, ok := b.(*schema.Map); ok {
			k, err := joinTypes(a.Key, b.Key, at, where)
			if err != nil {
				return nil, err
			}
			v, err := joinTypes(a.Value, b.Value, at, where)
			return &schema.Map{Key: k, Value: v, ValueContainsNull: true}, err
		}
	default:
		if schema.Equal(a, b) {
			return a, nil
		}
	}
	return nil, fmt.Errorf("column %s has type %s, in %s it has %s", at, b, where(at, false), a)
}

// readStats takes the statistics of every file from its footer.
func (v *convert) readStats(ctx context.Context, cfg *deltalog.TableConfig) error {
	if v.o.NoStats {
		return nil
	}
	l, err := datafile.LayoutOf(cfg, v.t.opts.TimeZone)
	if err != nil {
		return err
	}
	i := 0
	for text, err := range pipeline.Map(ctx, v.o.Workers, numbers(len(v.files)), func(ctx context.Context, i int) (string, error) {
		f, err := datafile.ReadFooter(ctx, v.t.store, v.files[i].Key)
		if err != nil {
			return "", err
		}
		return f.Stats(l), nil
	}) {
		if err != nil {
			return err
		}
		v.files[i].stats = text
		i++
	}
	return nil
}

func (v *convert) commit(ctx context.Context, p *deltalog.Protocol, m *deltalog.Metadata) (ConvertResult, error) {
	var out ConvertResult
	s := &Staged{store: v.t.store}
	names := v.partition.Names()
	for _, f := range v.files {
		if f.rows == 0 {
			continue
		}
		values := map[string]*string{}
		for i, n := range names {
			values[n] = f.values[i]
		}
		s.Adds = append(s.Adds, &deltalog.Add{Path: schema.EncodePath(f.Key), PartitionValues: values, Size: f.Size,
			ModificationTime: f.ModTime.UnixMilli(), DataChange: true, Stats: f.stats})
		s.Metrics.FilesAdded++
		s.Metrics.BytesAdded += f.Size
		out.Rows += f.rows
	}
	tx := v.t.log.Begin(nil)
	tx.SetProtocol(p)
	tx.SetMetadata(m)
	var err error
	out.Result, err = v.t.finish(ctx, tx, s, WriteOptions{UserMetadata: v.o.UserMetadata}, deltalog.CommitOptions{
		Operation: "CONVERT", NotBlind: true, NoRebase: true,
		Parameters: map[string]string{"numFiles": itoa(s.Metrics.FilesAdded), "partitionedBy": jsonText(names), "collectStats": fmt.Sprint(!v.o.NoStats), "sourceFormat": "parquet"},
		Metrics:    map[string]string{"numConvertedFiles": itoa(s.Metrics.FilesAdded)},
	})
	if errors.Is(err, ErrConflict) {
		err = errors.Join(&ExistsError{v.t.store.URL()}, err)
	}
	return out, err
}
