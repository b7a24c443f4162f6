package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/source/avro"
	"github.com/sluice-data/sluice/apply/source/changes"
	"github.com/sluice-data/sluice/apply/source/deltafeed"
	"github.com/sluice-data/sluice/apply/source/files"
	"github.com/sluice-data/sluice/apply/source/kafka"
	"github.com/sluice-data/sluice/apply/source/postgres"
	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/rowio"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// Exit codes, a contract of the command line.
const (
	exitOK          = 0
	exitFailed      = 1 // I/O, internal
	exitUsage       = 2 // wrong usage, configuration or statement; nothing was read or written
	exitRefused     = 3 // unsupported feature, constraint, invalid data, unsafe request
	exitConflict    = 4 // retries could not solve it
	exitNotFound    = 5 // table, version, file
	exitCorrupt     = 6 // table or file
	exitInterrupted = 130
)

// cliError is an error of the command line itself.
type cliError struct {
	code    string
	exit    int
	message string
	hint    string // what to do
	err     error
}

func (e *cliError) Error() string { return e.message }
func (e *cliError) Unwrap() error { return e.err }

func usage(code, format string, args ...any) error {
	return &cliError{code: code, exit: exitUsage, message: fmt.Sprintf(format, args...)}
}

// notYet refuses what the contract of the command line names and this version
// cannot do.
func notYet(what string) error {
	return &cliError{code: "NOT_SUPPORTED_YET", exit: exitUsage, message: what + " is not built yet", hint: "CHANGELOG.md lists what this version does"}
}

// committedError says what stands although the command failed.
type committedError struct {
	text string
	err  error
}

func (e *committedError) Error() string { return errText(e.err) + " (" + e.text + ")" }
func (e *committedError) Unwrap() error { return e.err }

// errText is the message of err; a cancelled context needs no words.
func errText(err error) string {
	var c *committedError
	switch {
	case errors.As(err, &c) && errors.Is(c.err, context.Canceled):
		return c.text
	case err == context.Canceled:
		return "cancelled"
	}
	return err.Error()
}

// classes is the one table from error class to exit code, default code and
// advice; the first class that matches answers. Errors with a Code method keep
// their own code.
func classes() []class {
	return []class{
		{open.ErrLocation, exitUsage, "INVALID_LOCATION", ""},
		{open.ErrUnconditional, exitRefused, "UNSAFE_STORE", ""},
		{rowio.ErrInvalid, exitRefused, "INVALID_DATA", "correct the input; nothing of it was written"},
		{deltalog.ErrConflict, exitConflict, "CONFLICT", "run the command again"},
		{deltalog.ErrUnsupported, exitRefused, "UNSUPPORTED", ""},
		{deltalog.ErrCorrupt, exitCorrupt, "CORRUPT", ""},
		{deltalog.ErrInvalid, exitRefused, "INVALID", ""},
		{storage.ErrNoSpace, exitFailed, "NO_SPACE", "free some space and run the command again"},
		{storage.ErrPermission, exitFailed, "PERMISSION_DENIED", "check the rights of the folder"},
		{storage.ErrAmbiguous, exitFailed, "OUTCOME_UNKNOWN", "read the table before trying again: the write may have been applied"},
		{storage.ErrTransient, exitFailed, "STORE_UNAVAILABLE", "try again"},
		{storage.ErrInvalidKey, exitRefused, "INVALID_KEY", ""},
		{deltalog.ErrNotFound, exitNotFound, "NOT_FOUND", ""},
		{storage.ErrNotFound, exitNotFound, "NOT_FOUND", ""},
		{storage.ErrExists, exitRefused, "ALREADY_EXISTS", ""},
		{parquetio.ErrCorrupt, exitCorrupt, "CORRUPT_FILE", ""},
		{parquetio.ErrUnsupported, exitRefused, "UNSUPPORTED_FILE", ""},
		{dv.ErrCorrupt, exitCorrupt, "CORRUPT_DELETION_VECTOR", ""},
		{fs.ErrNotExist, exitNotFound, "FILE_NOT_FOUND", ""},
		{fs.ErrPermission, exitFailed, "PERMISSION_DENIED", "check the rights of the file"},
		{context.DeadlineExceeded, exitFailed, "TIMEOUT", ""},
	}
}

type class struct {
	sentinel error
	exit     int
	code     string
	hint     string
}

// failure is an error as the user meets it.
type failure struct {
	exit    int
	code    string
	message string
	hint    string
	details map[string]any
}

// describeError classifies err: by class, then by the types that carry their own
// code, the most telling last.
func describeError(err error) failure {
	f := failure{exit: exitFailed, code: "INTERNAL", message: errText(err), details: map[string]any{}}
	for _, c := range classes() {
		if errors.Is(err, c.sentinel) {
			f.exit, f.code, f.hint = c.exit, c.code, c.hint
			break
		}
	}
	var value *schema.PartitionValueError
	if f.code == "INTERNAL" && errors.As(err, &value) {
		f.exit, f.hint = exitRefused, "a folder cannot be named by it: correct the input, or partition by another column"
	}
	var coded interface{ Code() string }
	if errors.As(err, &coded) && coded.Code() != "" {
		f.code = coded.Code()
	}
	var constraint *datafile.ConstraintError
	var layout *datafile.LayoutError
	if errors.As(err, &constraint) || errors.As(err, &layout) {
		f.exit = exitRefused
	}
	var feed *cdf.Error
	if errors.As(err, &feed) && errors.Is(err, deltalog.ErrInvalid) {
		f.exit = exitUsage // a range that is none
	}
	var column *delta.ColumnError
	if errors.As(err, &column) {
		f.exit = exitUsage
	}
	var missing *cdf.MissingError
	if errors.As(err, &missing) {
		f.details["version"], f.details["path"] = missing.Version, missing.Path
		f.hint = "with --ignore-missing the changes whose files are gone are left out"
	}
	f.ofExpressions(err)
	f.ofSources(err)
	f.ofStreams(err)
	f.ofApply(err)
	var row *rowio.Error
	if errors.As(err, &row) {
		f.details["file"], f.details["column"] = row.File, row.Column
		if row.Line > 0 {
			f.details["line"] = row.Line
		}
		if row.Row > 0 {
			f.details["row"] = row.Row
		}
	}
	var stored *storage.Error
	if errors.As(err, &stored) {
		f.details["path"] = stored.Root + stored.Key
	}
	var own *cliError
	if errors.As(err, &own) {
		f.exit, f.code = own.exit, own.code
		if own.hint != "" {
			f.hint = own.hint
		}
	}
	f.message = strings.Replace(f.message, f.code+": ", "", 1)
	return f
}

// ofExpressions: texts that the user wrote are usage, values they meet are data.
func (f *failure) ofExpressions(err error) {
	var ddl *schema.SyntaxError
	var syntax *expr.SyntaxError
	var bind *expr.BindError
	var eval *expr.EvalError
	var statement *merge.StatementError
	switch {
	case errors.As(err, &ddl):
		f.exit, f.code, f.hint = exitUsage, "INVALID_SCHEMA", `write columns as "id BIGINT NOT NULL, name STRING"`
	case errors.As(err, &syntax), errors.As(err, &bind), errors.As(err, &statement):
		f.exit = exitUsage
	case errors.As(err, &eval):
		f.exit = exitRefused
	case f.code == expr.CodeUnresolvedColumn, f.code == expr.CodeTypeMismatch:
		f.exit = exitUsage
	}
}

// ofSources: a source that cannot be opened is usage unless it is not there.
func (f *failure) ofSources(err error) {
	var opened *source.Error
	if errors.As(err, &opened) {
		f.exit, f.code = exitUsage, opened.Code
	}
	var file *files.Error
	if errors.As(err, &file) {
		f.exit, f.code = exitRefused, file.Code
		f.details["path"] = file.Path
		switch file.Code {
		case "NOT_FOUND", "INPUT_GONE":
			f.exit = exitNotFound
		case "FILE_UNREADABLE":
			f.exit = exitFailed
		}
	}
}

// ofStreams: what brokers, registries and tables that are sources say.
func (f *failure) ofStreams(err error) {
	var topic *kafka.Error
	var feed *deltafeed.Error
	var registry *avro.Error
	var setup *changes.ConfigError
	var server *postgres.Error
	switch {
	case errors.As(err, &server):
		f.code = server.Code
	case errors.As(err, &topic):
		f.code = topic.Code
	case errors.As(err, &feed):
		f.code = feed.Code
	case errors.As(err, &registry):
		f.code = registry.Code
	case errors.As(err, &setup):
		f.code = setup.Code
	default:
		return
	}
	switch f.code {
	case "BAD_OPTION", "SECRET_IN_URL", apply.CodeColumnsNotFound:
		f.exit = exitUsage
	case "INPUT_GONE", "TOPIC_NOT_FOUND", "NO_TABLES", "SLOT_LOST":
		f.exit = exitNotFound
	case "SERVER_UNREACHABLE", "LOGIN_FAILED", "KAFKA_STALLED", "KAFKA_UNREACHABLE", "SCHEMA_UNKNOWN", "REGISTRY_UNREACHABLE", "REGISTRY_REFUSED":
		f.exit = exitFailed
	default:
		f.exit = exitRefused
	}
}

// ofApply: refusals of the analysis are usage; those of state and data are refusals.
func (f *failure) ofApply(err error) {
	var refused *apply.Error
	if !errors.As(err, &refused) {
		return
	}
	f.code, f.exit = refused.Code, exitRefused
	if refused.Target != "" {
		f.details["target"] = refused.Target
	}
	switch {
	case refused.Phase == apply.PhaseAnalysis:
		f.exit = exitUsage
	case refused.Code == apply.CodeTargetMissing:
		f.exit = exitNotFound
	case refused.Code == apply.CodeConflict:
		f.exit = exitConflict
	}
}

// print writes the one line of a failure, or its JSON object.
func (f failure) print(w io.Writer, asJSON bool) {
	if asJSON {
		message := f.message
		if f.hint != "" {
			message += "; " + f.hint
		}
		line, err := json.Marshal(map[string]any{"error": map[string]any{"code": f.code, "message": message, "details": f.details}})
		if err == nil {
			fmt.Fprintf(w, "%s\n", line)
			return
		}
	}
	line := "sluice: " + f.code + ": " + oneLine(f.message)
	if f.hint != "" {
		line += "; " + f.hint
	}
	fmt.Fprintln(w, line)
}

// oneLine keeps a message on one line and free of what a terminal acts on.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < 0x20 || r == 0x7f:
			return '?'
		}
		return r
	}, s)
}

// wantsJSONErrors answers whether the user asked for json or jsonl; args serve
// when flags could not be parsed.
func wantsJSONErrors(output string, args []string) bool {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if v, ok := strings.CutPrefix(arg, "--output="); ok {
			output = v
		}
		if v, ok := strings.CutPrefix(arg, "-o"); ok && v != "" && !strings.HasPrefix(arg, "--") {
			output = strings.TrimPrefix(v, "=")
		}
		if (arg == "-o" || arg == "--output") && i+1 < len(args) {
			output = args[i+1]
		}
	}
	return output == "json" || output == "jsonl"
}
