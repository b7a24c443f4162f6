package delta

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"
)

// PropertyError reports table properties that cannot be set; it lists all that are
// wrong in one call.
type PropertyError struct {
	ErrorCode string // of the first problem
	Problems  []string
	class     error
}

func (e *PropertyError) Error() string {
	return "table properties: " + strings.Join(e.Problems, "; ")
}

// Code is the stable error code.
func (e *PropertyError) Code() string { return e.ErrorCode }

// Is answers ErrInvalid for unknown and malformed properties, ErrUnsupported for
// known ones that sluice does not do.
func (e *PropertyError) Is(target error) bool { return target == e.class }

// propRule is one row of the property table (delta-protocol section 4): what
// values a user may set.
type propRule struct {
	check func(string) string // "" when the value is legal, else what it must be
	// refuse tells why a legal value is not honoured here; "" means it is.
	refuse func(string) string
	// canon is the text that is stored for a legal value; nil keeps it.
	canon func(string) string
}

func isBool(v string) string {
	if strings.EqualFold(v, "true") || strings.EqualFold(v, "false") {
		return ""
	}
	return "must be true or false"
}

func atLeast(n int64) func(string) string {
	return func(v string) string {
		if x, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err != nil || x < n {
			return fmt.Sprintf("must be a whole number of at least %d", n)
		}
		return ""
	}
}

func oneOf(values ...string) func(string) string {
	return func(v string) string {
		for _, x := range values {
			if strings.EqualFold(v, x) {
				return ""
			}
		}
		return "must be one of " + strings.Join(values, ", ")
	}
}

func anyText(string) string { return "" }

var durationText = regexp.MustCompile(`(?i)^(interval\s+)?\d+\s*(microsecond|millisecond|second|minute|hour|day|week)s?(\s+\d+\s*(microsecond|millisecond|second|minute|hour|day|week)s?)*$`)

func isDuration(v string) string {
	if durationText.MatchString(strings.TrimSpace(v)) {
		return ""
	}
	return `must be a duration such as "interval 7 days" (weeks, days, hours, minutes, seconds)`
}

// interval is the form that every engine reads: delta-rs needs the word.
func interval(v string) string {
	v = strings.ToLower(strings.TrimSpace(v))
	if strings.HasPrefix(v, "interval") {
		return v
	}
	return "interval " + v
}

var sizeText = regexp.MustCompile(`(?i)^[1-9]\d*\s*[kmg]?b?$`)

func isSize(v string) string {
	if sizeText.MatchString(strings.TrimSpace(v)) {
		return ""
	}
	return "must be a size such as 128mb"
}

// refuseTrue refuses a switch when it is turned on.
func refuseTrue(v string) string {
	if strings.EqualFold(v, "true") {
		return "is not supported for writing"
	}
	return ""
}

func refuseAny(v string) string {
	if v == "" {
		return ""
	}
	return "is not supported for writing"
}

func internal(string) string { return "is maintained by the table itself and cannot be set" }

// propRules holds every property a user may name, without the "delta." prefix, in
// canonical case.
var propRules = map[string]propRule{
	"appendOnly":                                         {check: isBool},
	"checkpointInterval":                                 {check: atLeast(1)},
	"checkpoint.writeStatsAsJson":                        {check: isBool},
	"checkpoint.writeStatsAsStruct":                      {check: isBool},
	"checkpointPolicy":                                   {check: oneOf("classic", "v2"), canon: strings.ToLower},
	"checkpointRetentionDuration":                        {check: isDuration, canon: interval},
	"sampleRetentionDuration":                            {check: isDuration, canon: interval},
	"logRetentionDuration":                               {check: isDuration, canon: interval},
	"enableExpiredLogCleanup":                            {check: isBool},
	"enableFullRetentionRollback":                        {check: isBool},
	"deletedFileRetentionDuration":                       {check: isDuration, canon: interval},
	"setTransactionRetentionDuration":                    {check: isDuration, canon: interval},
	"dataSkippingNumIndexedCols":                         {check: atLeast(-1)},
	"dataSkippingStatsColumns":                           {check: anyText},
	"dataSkippingStringPrefixLength":                     {check: atLeast(1)},
	"isolationLevel":                                     {check: oneOf("Serializable", "WriteSerializable", "SnapshotIsolation"), refuse: func(v string) string { return refuseIf(!strings.EqualFold(v, "Serializable")) }},
	"columnMapping.mode":                                 {check: oneOf("none", "name", "id")},
	"columnMapping.maxColumnId":                          {check: anyText, refuse: internal},
	"enableChangeDataFeed":                               {check: isBool},
	"enableDeletionVectors":                              {check: isBool},
	"enableInCommitTimestamps":                           {check: isBool},
	"enableRowTracking":                                  {check: isBool},
	"rowTrackingSuspended":                               {check: isBool, refuse: refuseTrue},
	"enableTypeWidening":                                 {check: isBool},
	"enableVariantShredding":                             {check: isBool, refuse: refuseTrue},
	"enableIcebergCompatV1":                              {check: isBool, refuse: refuseTrue},
	"enableIcebergCompatV2":                              {check: isBool, refuse: refuseTrue},
	"enableIcebergCompatV3":                              {check: isBool, refuse: refuseTrue},
	"universalFormat.enabledFormats":                     {check: anyText, refuse: refuseAny},
	"parquet.compression.codec":                          {check: oneOf("uncompressed", "none", "snappy", "gzip", "lz4_raw", "zstd")},
	"parquet.format.version":                             {check: oneOf("1.0.0")},
	"writePartitionColumnsToParquet":                     {check: isBool, refuse: refuseTrue},
	"randomizeFilePrefixes":                              {check: isBool},
	"randomPrefixLength":                                 {check: atLeast(1)},
	"autoOptimize":                                       {check: isBool},
	"autoOptimize.optimizeWrite":                         {check: isBool},
	"autoOptimize.autoCompact":                           {check: anyText},
	"targetFileSize":                                     {check: isSize},
	"tuneFileSizesForRewrites":                           {check: isBool},
	"inCommitTimestampEnablementVersion":                 {check: anyText, refuse: internal},
	"inCommitTimestampEnablementTimestamp":               {check: anyText, refuse: internal},
	"rowTracking.materializedRowIdColumnName":            {check: anyText, refuse: internal},
	"rowTracking.materializedRowCommitVersionColumnName": {check: anyText, refuse: internal},
	"enableMaterializePartitionColumnsFeature":           {check: isBool},
	"compatibility.symlinkFormatManifest.enabled":        {check: isBool, refuse: refuseTrue},
	"coordinatedCommits.commitCoordinator-preview":       {check: anyText, refuse: refuseAny},
	"coordinatedCommits.commitCoordinatorConf-preview":   {check: anyText, refuse: refuseAny},
	"coordinatedCommits.tableConf-preview":               {check: anyText, refuse: refuseAny},
	"redirectReaderWriter-preview":                       {check: anyText, refuse: refuseAny},
	"redirectWriterOnly-preview":                         {check: anyText, refuse: refuseAny},
	"requireCheckpointProtectionBeforeVersion":           {check: atLeast(0), refuse: internal},
	"dropFeatureTruncateHistory.retentionDuration":       {check: isDuration, canon: interval},
}

func refuseIf(bad bool) string {
	if bad {
		return "is not supported"
	}
	return ""
}

// propAliases are old names of properties.
var propAliases = map[string]string{"enablechangedatacapture": "enableChangeDataFeed"}

// CheckProperties holds properties that a user wants to set to the list of known
// ones: it answers them in canonical form and the features that they ask for by name
// (delta.feature.*). Errors: [*PropertyError], deltalog.ErrInvalid.
func CheckProperties(props map[string]string) (map[string]string, []deltalog.Feature, error) {
	return checkProperties(props)
}

// checkProperties holds what a user wants to set to the property table: unknown
// delta.* keys are refused, keys take their canonical case. Requests to the protocol
// are split off (W-205). Keys of other names are kept as they are.
func checkProperties(in map[string]string) (map[string]string, []deltalog.Feature, error) {
	fail := &PropertyError{}
	bad := func(code string, class error, format string, args ...any) {
		if fail.class == nil {
			fail.class, fail.ErrorCode = class, code
		}
		fail.Problems = append(fail.Problems, fmt.Sprintf(format, args...))
	}
	rest, features, err := deltalog.TakeProtocolProperties(in)
	if err != nil {
		return nil, nil, err
	}
	out := make(map[string]string, len(rest))
	keys := make([]string, 0, len(rest))
	for k := range rest {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, key := range keys {
		value := rest[key]
		if len(key) < 6 || !strings.EqualFold(key[:6], "delta.") {
			out[key] = value
			continue
		}
		name := key[6:]
		if len(name) > 12 && strings.EqualFold(name[:12], "constraints.") {
			bad("DELTA_ADD_CONSTRAINTS", ErrInvalid, "%s: constraints are added and dropped by their own command, which checks the rows that are there", key)
			continue
		}
		canonical, rule, ok := lookupProperty(name)
		switch {
		case !ok:
			bad("DELTA_UNKNOWN_CONFIGURATION", ErrInvalid, "%s is not a known property", key)
			continue
		case rule.check(value) != "":
			bad("DELTA_INVALID_PROPERTY_VALUE", ErrInvalid, "delta.%s=%s: %s", canonical, value, rule.check(value))
			continue
		case rule.refuse != nil && rule.refuse(value) != "":
			bad("DELTA_UNSUPPORTED_PROPERTY", ErrUnsupported, "delta.%s=%s: %s", canonical, value, rule.refuse(value))
			continue
		}
		if rule.canon != nil {
			value = rule.canon(value)
		}
		out["delta."+canonical] = value
	}
	if len(fail.Problems) > 0 {
		return nil, nil, fail
	}
	return out, features, nil
}

func lookupProperty(name string) (string, propRule, bool) {
	if alias, ok := propAliases[strings.ToLower(name)]; ok {
		name = alias
	}
	for k, r := range propRules {
		if strings.EqualFold(k, name) {
			return k, r, true
		}
	}
	return "", propRule{}, false
}

// featuresOf lists the table features that settings of config switch on (W-304).
func featuresOf(config map[string]string) []deltalog.Feature {
	on := func(key string) bool { return strings.EqualFold(config["delta."+key], "true") }
	var out []deltalog.Feature
	if on("enableChangeDataFeed") {
		out = append(out, deltalog.ChangeDataFeed)
	}
	if on("enableMaterializePartitionColumnsFeature") {
		out = append(out, deltalog.MaterializePartitions)
	}
	if on("enableRowTracking") {
		out = append(out, deltalog.RowTracking)
	}
	if on("enableDeletionVectors") {
		out = append(out, deltalog.DeletionVectors)
	}
	if m := config["delta.columnMapping.mode"]; m != "" && !strings.EqualFold(m, "none") {
		out = append(out, deltalog.ColumnMapping)
	}
	if on("enableInCommitTimestamps") {
		out = append(out, deltalog.InCommitTimestamp)
	}
	if strings.EqualFold(config["delta.checkpointPolicy"], "v2") {
		out = append(out, deltalog.V2Checkpoint)
	}
	if on("enableTypeWidening") {
		out = append(out, deltalog.TypeWidening)
	}
	if on("appendOnly") {
		out = append(out, deltalog.AppendOnly)
	}
	return out
}
