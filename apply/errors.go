package apply

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Phase is when a misuse is found (auto-cdc 1.6).
type Phase byte

// The phases: analysis (nothing was read or written), stored state check at
// start, while processing a batch (the batch is refused as a whole).
const (
	PhaseAnalysis Phase = 'A'
	PhaseState    Phase = 'S'
	PhaseRun      Phase = 'R'
)

// The codes that apply and its statements answer with: all of auto-cdc 1.6, which keep
// their names, and those of the engine. Package apply/sql finds those of statements.
const (
	CodeSyntax          = "PARSE_SYNTAX_ERROR"
	CodeDuplicateClause = "AUTOCDC_DUPLICATE_CLAUSE"
	CodeCreateOptions   = "AUTOCDC_CONFLICTING_CREATE_OPTIONS"
	CodeMultipart       = "AUTOCDC_MULTIPART_COLUMN_IDENTIFIER"
	CodeNotStreaming    = "AUTOCDC_SOURCE_NOT_STREAMING"
	CodeDeclaredSchema  = "AUTOCDC_DECLARED_SCHEMA_MISMATCH"
	CodeVersionFunction = "INVALID_USAGE_OF_SNAPSHOT_VERSION_FUNCTION"

	CodeEmptyKeys            = "AUTOCDC_EMPTY_KEYS"
	CodeColumnsNotFound      = "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA"
	CodeDuplicateColumn      = "AUTOCDC_DUPLICATE_COLUMN"
	CodeKeyNotSelected       = "AUTOCDC_KEY_NOT_IN_SELECTED_SCHEMA"
	CodeKeyType              = "AUTOCDC_KEY_TYPE_NOT_SUPPORTED"
	CodeMissingSequence      = "AUTOCDC_MISSING_SEQUENCE_BY"
	CodeSequenceNotOrderable = "AUTOCDC_SEQUENCING_COLUMN_NOT_ORDERABLE"
	CodeExpressionNotAllowed = "AUTOCDC_EXPRESSION_NOT_ALLOWED"
	CodeConditionNotBoolean  = "AUTOCDC_CONDITION_NOT_BOOLEAN"
	CodeCannotSetTogether    = "CANNOT_SET_TOGETHER"

	CodeConflictingIgnoreNull    = "AUTOCDC_CONFLICTING_IGNORE_NULL_UPDATES_OPTIONS"
	CodeIgnoreNullEmptyList      = "AUTOCDC_IGNORE_NULL_EMPTY_COLUMN_LIST"
	CodeInvalidColumnsToUpdate   = "AUTOCDC_INVALID_COLUMNS_TO_UPDATE"
	CodeUnknownColumnToUpdate    = "AUTOCDC_UNKNOWN_COLUMN_TO_UPDATE"
	CodeTruncateRequiresSCD1     = "AUTOCDC_TRUNCATE_REQUIRES_SCD1"
	CodeTrackHistoryRequiresSCD2 = "AUTOCDC_TRACK_HISTORY_REQUIRES_SCD2"
	CodeBitemporalSystemSequence = "AUTOCDC_BITEMPORAL_SYSTEM_SEQUENCE"
	CodeReservedColumn           = "AUTOCDC_RESERVED_COLUMN_NAME_CONFLICT"
	CodeTrackHistoryDrift        = "AUTOCDC_INVALID_STATE.TRACK_HISTORY_DRIFT"
	CodeExpectationInvalid       = "EXPECTATION_INVALID"
	CodeExpectationViolated      = "EXPECTATION_VIOLATED"

	CodeReservedPrefix      = "AUTOCDC_RESERVED_COLUMN_NAME_PREFIX_CONFLICT"
	CodeInvalidTarget       = "AUTOCDC_INVALID_TARGET"
	CodeInvalidLayout       = "AUTOCDC_INVALID_LAYOUT"
	CodeUnsupportedClause   = "UNSUPPORTED_CLAUSE"
	CodeKeySchemaDrift      = "AUTOCDC_INVALID_STATE.KEY_SCHEMA_DRIFT"
	CodeSequencingTypeDrift = "AUTOCDC_INVALID_STATE.SEQUENCING_TYPE_DRIFT"
	CodeSCDTypeDrift        = "AUTOCDC_INVALID_STATE.SCD_TYPE_DRIFT"
	CodeFlowConflict        = "AUTOCDC_FLOW_CONFLICT"
	CodeIncompatibleType    = "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE"
	CodeNullSequence        = "AUTOCDC_MICROBATCH_VALIDATION.NULL_SEQUENCE"
	CodeNaNSequence         = "AUTOCDC_MICROBATCH_VALIDATION.NAN_SEQUENCE"
	CodeNullKey             = "AUTOCDC_MICROBATCH_VALIDATION.NULL_KEY"
	CodePoison              = "POISON_RECORD"
	CodeStateMismatch       = "APPLY_STATE_MISMATCH"
	CodeFormatTooNew        = "APPLY_FORMAT_TOO_NEW"
	CodeTargetRewound       = "TARGET_REWOUND"
	// CodeNotAppendOnly is that of package deltafeed.
	CodeNotAppendOnly         = "AUTOCDC_SOURCE_NOT_APPEND_ONLY"
	CodeCommitVersionSequence = "AUTOCDC_CHANGELOG_REQUIRES_COMMIT_VERSION_SEQUENCING"
	CodeTargetMissing         = "TARGET_MISSING"
	// CodeFormatChanged: records of another format than the flow keeps.
	CodeFormatChanged        = "FORMAT_CHANGED"
	CodeTargetKeyNotUnique   = "TARGET_KEY_NOT_UNIQUE"
	CodeRowVersionsLost      = "ROW_VERSIONS_LOST"
	CodeTransactionRetention = "TRANSACTION_RETENTION_SET"
	CodeAmbiguousTable       = "AMBIGUOUS_TABLE"
	CodeTargetClash          = "TARGET_CLASH"
	CodeConflict             = "APPLY_CONFLICT"
	CodeReservedTargetColumn = "RESERVED_TARGET_COLUMN"
	CodeStatePathMismatch    = "APPLY_STATE_PATH_MISMATCH"
	CodeRefreshNotAllowed    = "REFRESH_NOT_ALLOWED"
	CodeUnknownFlow          = "UNKNOWN_FLOW"
	CodeRewindAcrossRefresh  = "REWIND_ACROSS_REFRESH"
	CodeRewindGone           = "REWIND_FILES_GONE"
	CodeTargetWentBack       = "TARGET_WENT_BACK"
	// CodeMemory: a batch that no number of lots makes fit.
	CodeMemory = "BATCH_EXCEEDS_MEMORY"

	CodeDuplicateSnapshotKey   = snapshotError + "DUPLICATE_KEY_VIOLATION"
	CodeOutOfOrderSnapshot     = snapshotError + "OUT_OF_ORDER_SNAPSHOT_VERSION"
	CodeNullSnapshotVersion    = snapshotError + "NULL_SNAPSHOT_VERSION"
	CodeSnapshotNotSortable    = snapshotError + "SNAPSHOT_VERSION_NOT_SORTABLE"
	CodeTwoSnapshots           = snapshotError + "MULTIPLE_QUERIES_FOR_TABLE"
	CodeInteropKeys            = snapshotError + "INTEROP_KEYS_MISMATCH"
	CodeInteropIgnoreNull      = snapshotError + "INTEROP_IGNORE_NULL_UPDATES"
	CodeInteropStorage         = snapshotError + "INTEROP_SCD_TYPE_NOT_SUPPORTED"
	CodeInteropSequence        = snapshotError + "INTEROP_SEQUENCE_TYPE_MISMATCH"
	CodeSnapshotVersionQuery   = "INVALID_AUTO_CDC_FROM_SNAPSHOT_VERSION_QUERY"
	CodeSnapshotVersionChanged = "AUTO_CDC_FROM_SNAPSHOT_VERSION_SCHEMA_CHANGED"
	CodeSnapshotWithoutVersion = "AUTO_CDC_FROM_SNAPSHOT_NON_EMPTY_TARGET_WITHOUT_VERSION"
	CodeSnapshotEmpty          = "SNAPSHOT_EMPTY"
	CodeSnapshotDeletes        = "SNAPSHOT_DELETES_TOO_MUCH"

	snapshotError = "APPLY_CHANGES_FROM_SNAPSHOT_ERROR."
)

// Error is a refusal with a stable code. Phase A refusals happened before
// anything was read; all of them leave the target as it was.
type Error struct {
	Code    string
	Phase   Phase
	Target  string // name of the target, if one is concerned
	Message string // what went wrong and where, and what to do, without the code
	Err     error  // cause, may be nil
}

func (e *Error) Error() string {
	s := e.Code + ": " + e.Message
	if e.Target != "" {
		s += ": " + e.Target
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// MarshalJSON writes code, target and message.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"code": e.Code, "target": e.Target, "message": e.Error()})
}

// also joins what ended a step with what tidying up after it said.
func also(err, tidy error) error {
	if tidy == nil {
		return err
	}
	return errors.Join(err, tidy)
}

func analysis(code, format string, args ...any) *Error {
	return &Error{Code: code, Phase: PhaseAnalysis, Message: fmt.Sprintf(format, args...)}
}

func stored(code, format string, args ...any) *Error {
	return &Error{Code: code, Phase: PhaseState, Message: fmt.Sprintf(format, args...)}
}

func running(code, format string, args ...any) *Error {
	return &Error{Code: code, Phase: PhaseRun, Message: fmt.Sprintf(format, args...)}
}
