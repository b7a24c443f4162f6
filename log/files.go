package deltalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// LogDir is the prefix of all log files below a table root.
const LogDir = "_delta_log/"

const hintName = "_last_checkpoint"

// What is read of one text file of the log at most, bytes: more is an error, not memory.
const (
	maxTextFile = 1 << 30
	maxHint     = 16 << 20
)

type fileKind int

const (
	otherFile fileKind = iota
	commitFile
	classicCheckpoint
	multipartCheckpoint
	uuidCheckpoint
	compactedFile
	checksumFile
)

// logFile is one file of the log, by its name (1.1 of the checklist).
type logFile struct {
	kind    fileKind
	version int64
	// part and parts are set for multipart checkpoints, last for compacted files.
	part, parts int
	last        int64
	key         string
	size        int64
	modTime     int64 // ms since 1970
}

// Any digit count is accepted on read, as Spark does.
var (
	commitName     = regexp.MustCompile(`^(\d+)\.json$`)
	checkpointName = regexp.MustCompile(`^(\d+)\.checkpoint\.parquet$`)
	multipartName  = regexp.MustCompile(`^(\d+)\.checkpoint\.(\d+)\.(\d+)\.parquet$`)
	uuidName       = regexp.MustCompile(`^(\d+)\.checkpoint\.[0-9A-Za-z-]+\.(json|parquet)$`)
	compactedName  = regexp.MustCompile(`^(\d+)\.(\d+)\.compacted\.json$`)
	checksumName   = regexp.MustCompile(`^(\d+)\.crc$`)
)

// parseLogName classifies a name inside the log directory; everything that is not
// ours is otherFile.
func parseLogName(name string) logFile {
	if name == "" || name[0] < '0' || name[0] > '9' {
		return logFile{}
	}
	for _, p := range []struct {
		re   *regexp.Regexp
		kind fileKind
	}{
		{commitName, commitFile}, {checkpointName, classicCheckpoint}, {multipartName, multipartCheckpoint},
		{compactedName, compactedFile}, {checksumName, checksumFile}, {uuidName, uuidCheckpoint},
	} {
		m := p.re.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		f := logFile{kind: p.kind}
		var err error
		if f.version, err = strconv.ParseInt(m[1], 10, 64); err != nil {
			return logFile{}
		}
		switch p.kind {
		case multipartCheckpoint:
			part, err1 := strconv.ParseInt(m[2], 10, 32)
			parts, err2 := strconv.ParseInt(m[3], 10, 32)
			if err1 != nil || err2 != nil || part < 1 || part > parts {
				return logFile{}
			}
			f.part, f.parts = int(part), int(parts)
		case compactedFile:
			if f.last, err = strconv.ParseInt(m[2], 10, 64); err != nil || f.last <= f.version {
				return logFile{}
			}
		}
		return f
	}
	return logFile{}
}

// CommitKey is the key of the commit file of a version.
func CommitKey(version int64) string { return fmt.Sprintf("%s%020d.json", LogDir, version) }

// CheckpointKey is the key of the classic checkpoint of a version.
func CheckpointKey(version int64) string {
	return fmt.Sprintf("%s%020d.checkpoint.parquet", LogDir, version)
}

// versionPrefix sorts before every file of that version and after those of lower ones.
func versionPrefix(version int64) string { return fmt.Sprintf("%s%020d", LogDir, version) }

func logName(key string) string { return strings.TrimPrefix(key, LogDir) }

func timeOf(f logFile) time.Time { return time.UnixMilli(f.modTime).UTC() }

// readText reads a whole text file of the log. One larger than limit is corrupt.
func (l *Log) readText(ctx context.Context, key string, limit int64) (_ []byte, err error) {
	r, err := l.store.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if r.Size() > limit {
		return nil, &CorruptError{ErrorCode: codeCorrupt, File: key, Reason: fmt.Sprintf("%d bytes; at most %d are read", r.Size(), limit)}
	}
	b := make([]byte, r.Size())
	if n, err := r.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return nil, err
	}
	return b, nil
}
