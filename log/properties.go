package deltalog

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Properties are the table properties that this version acts on, typed, defaults
// filled in (section 4 of the checklist).
type Properties struct {
	AppendOnly              bool
	CheckpointInterval      int64
	CheckpointPolicy        string
	CheckpointStatsAsJSON   bool
	CheckpointStatsAsStruct bool
	LogRetention            time.Duration
	DeletedFileRetention    time.Duration
	EnableExpiredLogCleanup bool
	SetTransactionRetention time.Duration // 0 is none
	SkippingNumIndexedCols  int           // -1 is all
	SkippingStatsColumns    [][]string    // logical paths; nil is not set
	SkippingStringPrefix    int
	IsolationLevel          IsolationLevel
	ColumnMappingMode       schema.Mode // as written; see TableConfig.Mode
	ColumnMappingMaxID      int32
	ChangeDataFeed          bool
	DeletionVectors         bool
	TypeWidening            bool // as written; see TableConfig.WidensTypes
	InCommitTimestamps      bool
	ICTEnablementVersion    *int64
	ICTEnablementTimestamp  *int64
	RowTracking             bool
	RowTrackingSuspended    bool
	RequireCheckpointBefore int64
	Compression             string // "" is the writer's default
	ParquetFormatVersion    string
	RandomizeFilePrefixes   bool
	RandomPrefixLength      int
	TargetFileSize          int64 // bytes; 0 is the writer's default
}

type badProperty struct {
	key, value string
	reason     string
	// reads: the property binds readers too.
	reads, readsCDF bool
}

// property finds "delta." + key ignoring case; the canonical spelling wins.
func (c *TableConfig) property(key string) (string, bool) {
	return lookupProperty(c.Metadata.Configuration, key)
}

func lookupProperty(conf map[string]string, key string) (string, bool) {
	if v, ok := conf["delta."+key]; ok {
		return v, true
	}
	var found []string
	for k := range conf {
		if strings.EqualFold(k, "delta."+key) {
			found = append(found, k)
		}
	}
	if found == nil {
		return "", false
	}
	sort.Strings(found)
	return conf[found[0]], true
}

// parseProperties types the known properties. A malformed one keeps its default
// and is listed; the gate refuses the operations it binds.
func parseProperties(conf map[string]string) (Properties, []badProperty) {
	p := Properties{
		CheckpointInterval: 10, CheckpointPolicy: "classic", CheckpointStatsAsJSON: true,
		LogRetention: 30 * 24 * time.Hour, DeletedFileRetention: 7 * 24 * time.Hour, EnableExpiredLogCleanup: true,
		SkippingNumIndexedCols: 32, SkippingStringPrefix: 32, IsolationLevel: Serializable,
		ColumnMappingMode: schema.ModeNone, ParquetFormatVersion: "1.0.0", RandomPrefixLength: 2,
	}
	var bad []badProperty
	read := func(key string, parse func(string) error) *badProperty {
		v, ok := lookupProperty(conf, key)
		if !ok {
			return &badProperty{}
		}
		if err := parse(v); err != nil {
			bad = append(bad, badProperty{key: "delta." + key, value: v, reason: err.Error()})
			return &bad[len(bad)-1]
		}
		return &badProperty{}
	}
	boolean := func(into *bool) func(string) error {
		return func(v string) error {
			switch strings.ToLower(strings.TrimSpace(v)) {
			case "true":
				*into = true
			case "false":
				*into = false
			default:
				return fmt.Errorf("must be true or false")
			}
			return nil
		}
	}
	integer := func(into *int64, lo int64) func(string) error {
		return func(v string) error {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil || n < lo {
				return fmt.Errorf("must be an integer of at least %d", lo)
			}
			*into = n
			return nil
		}
	}
	small := func(into *int, lo int64) func(string) error {
		return func(v string) error {
			var n int64
			if err := integer(&n, lo)(v); err != nil || n > 1<<31-1 {
				return fmt.Errorf("must be an integer of at least %d", lo)
			}
			*into = int(n)
			return nil
		}
	}
	optional := func(into **int64) func(string) error {
		return func(v string) error {
			var n int64
			if err := integer(&n, 0)(v); err != nil {
				return err
			}
			*into = &n
			return nil
		}
	}
	duration := func(into *time.Duration) func(string) error {
		return func(v string) (err error) {
			*into, err = ParseInterval(v)
			return err
		}
	}
	oneOf := func(into *string, values ...string) func(string) error {
		return func(v string) error {
			for _, want := range values {
				if strings.EqualFold(v, want) {
					*into = want
					return nil
				}
			}
			return fmt.Errorf("must be one of %s", strings.Join(values, ", "))
		}
	}
	read("appendOnly", boolean(&p.AppendOnly))
	read("checkpointInterval", integer(&p.CheckpointInterval, 1))
	read("checkpointPolicy", oneOf(&p.CheckpointPolicy, "classic", "v2"))
	read("checkpoint.writeStatsAsJson", boolean(&p.CheckpointStatsAsJSON))
	read("checkpoint.writeStatsAsStruct", boolean(&p.CheckpointStatsAsStruct))
	read("logRetentionDuration", duration(&p.LogRetention))
	read("deletedFileRetentionDuration", duration(&p.DeletedFileRetention))
	read("enableExpiredLogCleanup", boolean(&p.EnableExpiredLogCleanup))
	read("setTransactionRetentionDuration", duration(&p.SetTransactionRetention))
	read("dataSkippingNumIndexedCols", small(&p.SkippingNumIndexedCols, -1))
	read("dataSkippingStatsColumns", func(v string) (err error) {
		p.SkippingStatsColumns, err = parseColumnList(v)
		return err
	})
	read("dataSkippingStringPrefixLength", small(&p.SkippingStringPrefix, 0))
	level := string(p.IsolationLevel)
	read("isolationLevel", oneOf(&level, string(Serializable), string(WriteSerializable), string(SnapshotIsolation)))
	p.IsolationLevel = IsolationLevel(level)
	mode := string(p.ColumnMappingMode)
	read("columnMapping.mode", oneOf(&mode, "none", "name", "id")).reads = true
	p.ColumnMappingMode = schema.Mode(mode)
	var maxID int64
	read("columnMapping.maxColumnId", integer(&maxID, 0))
	p.ColumnMappingMaxID = int32(min(maxID, 1<<31-1))
	read("enableChangeDataCapture", boolean(&p.ChangeDataFeed)).readsCDF = true
	read("enableChangeDataFeed", boolean(&p.ChangeDataFeed)).readsCDF = true
	read("enableDeletionVectors", boolean(&p.DeletionVectors))
	read("enableTypeWidening", boolean(&p.TypeWidening))
	read("enableInCommitTimestamps", boolean(&p.InCommitTimestamps))
	read("inCommitTimestampEnablementVersion", optional(&p.ICTEnablementVersion))
	read("inCommitTimestampEnablementTimestamp", optional(&p.ICTEnablementTimestamp))
	read("enableRowTracking", boolean(&p.RowTracking))
	read("rowTrackingSuspended", boolean(&p.RowTrackingSuspended))
	read("requireCheckpointProtectionBeforeVersion", integer(&p.RequireCheckpointBefore, 0))
	read("parquet.compression.codec", oneOf(&p.Compression, "uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"))
	read("parquet.format.version", func(v string) error {
		if v != "1.0.0" && !strings.HasPrefix(v, "2.") {
			return fmt.Errorf("must be 1.0.0 or 2.x.y")
		}
		p.ParquetFormatVersion = v
		return nil
	})
	read("randomizeFilePrefixes", boolean(&p.RandomizeFilePrefixes))
	read("randomPrefixLength", small(&p.RandomPrefixLength, 1))
	read("targetFileSize", func(v string) (err error) {
		p.TargetFileSize, err = ParseBytes(v)
		return err
	})
	return p, bad
}

// requireProperties refuses op when a property that binds it is malformed.
func (c *TableConfig) requireProperties(op Op) error {
	var bad []string
	for _, b := range c.bad {
		if op == OpWrite || b.reads || op == OpReadCDF && b.readsCDF {
			bad = append(bad, fmt.Sprintf("%s=%q %s", b.key, b.value, b.reason))
		}
	}
	if bad == nil {
		return nil
	}
	return &InvalidError{ErrorCode: "DELTA_INVALID_TABLE_PROPERTY", Reason: "table property: " + strings.Join(bad, "; ")}
}

// refusedProperties are the set properties that no version of ours writes under.
func (c *TableConfig) refusedProperties() []string {
	var out []string
	for _, key := range []string{
		"universalFormat.enabledFormats", "compatibility.symlinkFormatManifest.enabled",
		"coordinatedCommits.commitCoordinator-preview", "coordinatedCommits.commitCoordinatorConf-preview",
		"coordinatedCommits.tableConf-preview", "redirectReaderWriter-preview", "redirectWriterOnly-preview",
	} {
		v, ok := c.property(key)
		if ok && strings.TrimSpace(v) != "" && !strings.EqualFold(v, "false") {
			out = append(out, "delta."+key+"="+v)
		}
	}
	return out
}

var intervalUnits = map[string]time.Duration{
	"week": 7 * 24 * time.Hour, "day": 24 * time.Hour, "hour": time.Hour, "minute": time.Minute,
	"second": time.Second, "millisecond": time.Millisecond, "microsecond": time.Microsecond,
}

// ParseInterval reads "interval <n> weeks|days|hours|minutes|seconds", several
// parts allowed, the word interval optional; months and years are illegal.
func ParseInterval(text string) (time.Duration, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) > 0 && words[0] == "interval" {
		words = words[1:]
	}
	bad := fmt.Errorf(`must be "interval <n> weeks|days|hours|minutes|seconds"`)
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, bad
	}
	var total time.Duration
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit, ok := intervalUnits[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || !ok || n < 0 || n > int64(1<<62)/int64(unit) {
			return 0, bad
		}
		if total += time.Duration(n) * unit; total < 0 {
			return 0, bad
		}
	}
	return total, nil
}

// ParseBytes reads a byte count: 1048576, 512k, 128mb, 1g.
func ParseBytes(text string) (int64, error) {
	s := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text)), "b")
	shift := 0
	if s != "" {
		if i := strings.IndexByte("kmgt", s[len(s)-1]); i >= 0 {
			shift, s = 10*(i+1), s[:len(s)-1]
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n <= 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("must be a positive number of bytes (128mb)")
	}
	return n << shift, nil
}

// parseColumnList reads "a, `b,c`.d": logical column paths with backticks around
// parts that hold special characters.
func parseColumnList(text string) ([][]string, error) {
	out := [][]string{}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	var path []string
	var part strings.Builder
	quoted, wasQuoted := false, false
	endPart := func() error {
		p := part.String()
		if !wasQuoted {
			p = strings.TrimSpace(p)
		}
		if p == "" {
			return fmt.Errorf("must be a list of column names")
		}
		path = append(path, p)
		part.Reset()
		wasQuoted = false
		return nil
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '`' && quoted && i+1 < len(text) && text[i+1] == '`':
			part.WriteByte('`')
			i++
		case c == '`':
			if !quoted {
				part.Reset()
			}
			quoted, wasQuoted = !quoted, true
		case quoted:
			part.WriteByte(c)
		case c == '.' || c == ',':
			if err := endPart(); err != nil {
				return nil, err
			}
			if c == ',' {
				out, path = append(out, path), nil
			}
		case wasQuoted && c == ' ':
		default:
			part.WriteByte(c)
		}
	}
	if quoted {
		return nil, fmt.Errorf("has an open backtick")
	}
	if err := endPart(); err != nil {
		return nil, err
	}
	return append(out, path), nil
}
