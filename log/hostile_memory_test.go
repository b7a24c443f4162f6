package deltalog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// allocated is what f allocates, bytes.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileLog_Memory: small texts whose parts multiply end in an error, or are passed
// over, within memory that is in proportion to them.
func TestHostileLog_Memory(t *testing.T) {
	ctx := context.Background()
	const mib = 1 << 20
	long := strings.Repeat("k", mib)
	values := strings.TrimSuffix(strings.Repeat("1,", 100_000), ",")
	within := func(t *testing.T, most uint64, f func()) {
		t.Helper()
		if took := allocated(f); took > most {
			t.Errorf("%d MiB were allocated", took/mib)
		}
	}
	t.Run("R-709 a long key above many values of a hint", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 3)
		put(t, m, LogDir+hintName, `{"version":1,"size":1,"`+long+`":[`+values+`],"checksum":"x"}`)
		within(t, 200*mib, func() {
			if s := mustLatest(t, l); s.Version != 2 {
				t.Errorf("version %d", s.Version)
			}
		})
	})
	t.Run("R-708 a hint of many megabytes is not read", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 3)
		put(t, m, LogDir+hintName, `{"version":1,"size":1}`+strings.Repeat(" ", 17*mib))
		within(t, 8*mib, func() {
			if s := mustLatest(t, l); s.Version != 2 {
				t.Errorf("version %d", s.Version)
			}
		})
	})
	t.Run("R-401 a long name above many columns", func(t *testing.T) {
		l, m := testLog(t)
		fields := strings.TrimSuffix(strings.Repeat(`{"name":"a","type":"long"},`, 20_000), ",")
		text, err := marshal(`{"type":"struct","fields":[{"name":"` + long + `","type":{"type":"struct","fields":[` + fields + `]}}]}`)
		if err != nil {
			t.Fatal(err)
		}
		put(t, m, CommitKey(0), protocolLine+"\n"+fmt.Sprintf(`{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":%s,"partitionColumns":[],"configuration":{}}}`, text)+"\n")
		within(t, 200*mib, func() {
			_, err := l.Latest(ctx)
			if !errors.Is(err, ErrCorrupt) || len(err.Error()) > 4000 {
				t.Errorf("%.300v", err)
			}
		})
	})
	t.Run("R-722 a checksum with millions of histogram bins", func(t *testing.T) {
		l, m := testLog(t)
		rawTable(t, m, 2)
		bins := strings.TrimSuffix(strings.Repeat("0,", mib), ",")
		put(t, m, ChecksumKey(1), `{"tableSizeBytes":1,"numFiles":1,"numMetadata":1,"numProtocol":1,"fileSizeHistogram":{"sortedBinBoundaries":[`+bins+`],"fileCounts":[`+bins+`],"totalBytes":[`+bins+
			`]},"deletedRecordCountsHistogramOpt":{"deletedRecordCounts":[`+bins+`]}}`)
		s := mustLatest(t, l)
		within(t, 400*mib, func() {
			if err := s.VerifyChecksum(ctx); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%.300v", err)
			}
		})
	})
}
