//go:build linux

package multiprocess

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

const (
	columns = "id BIGINT, process INT, n INT"
	// appenderEnv holds the arguments of an appender process.
	appenderEnv = "SLUICE_TEST_APPENDER"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(updaterEnv); args != "" {
		if err := updater(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if args := os.Getenv(appenderEnv); args != "" {
		if err := appender(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// appender makes its appends one after the other: "table acks process appends
// die", where die is the append that ends with SIGKILL between data file and log
// file, or -1.
func appender(args string) error {
	var table, acks string
	var process, appends, die int
	if _, err := fmt.Sscan(args, &table, &acks, &process, &appends, &die); err != nil {
		return fmt.Errorf("read %q: %w", args, err)
	}
	local, err := storage.NewLocal(table, storage.LocalOptions{})
	if err != nil {
		return err
	}
	store := &suicidal{Store: local}
	ctx := context.Background()
	tab, err := delta.Open(ctx, store, delta.Options{})
	if err != nil {
		return err
	}
	ack, err := os.OpenFile(acks, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for n := range appends {
		row := fmt.Sprintf(`{"id":%d,"process":%d,"n":%d}`, process*1000+n, process, n)
		rows, err := tableRows(row)
		if err != nil {
			return err
		}
		store.armed = n == die
		fmt.Println("begin", n) // the parent may kill from here on
		r, err := tab.Append(ctx, rows, delta.WriteOptions{})
		if err != nil {
			return fmt.Errorf("process %d, append %d: %w", process, n, err)
		}
		if _, err := fmt.Fprintf(ack, "%d %d\n", process*1000+n, r.Version); err != nil {
			return err
		}
		if err := ack.Sync(); err != nil {
			return err
		}
	}
	return ack.Close()
}

// suicidal kills its process when it is to write a log entry and is armed.
type suicidal struct {
	storage.Store
	armed bool
}

var logEntry = regexp.MustCompile(`^_delta_log/(\d{20})\.json$`)

func (s *suicidal) Create(ctx context.Context, key string, data []byte) error {
	if s.armed && logEntry.MatchString(key) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return err
		}
		select {} // the signal is on its way
	}
	return s.Store.Create(ctx, key, data)
}

// victim is how a process dies.
type victim struct {
	at       int           // in which append
	between  bool          // by its own hand, between data file and log file
	after    time.Duration // by its parent, so long after the append began
	died     bool
	lastSeen int // append that had begun last
}

func (v *victim) run(ctx context.Context, t *testing.T, table, acks string, process, appends int) error {
	die := -1
	if v != nil && v.between {
		die = v.at
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, exe, "-test.run=^$")
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d %d", appenderEnv, table, acks, process, appends, die), "GOMAXPROCS=2", "GOMEMLIMIT=200MiB")
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "begin "))
		if err != nil {
			continue
		}
		if v == nil {
			continue
		}
		v.lastSeen = n
		if !v.between && n == v.at {
			time.Sleep(v.after)
			if err := c.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
		}
	}
	err = c.Wait()
	var exit *exec.ExitError
	if v != nil && errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			v.died = true
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("process %d: %w: %s", process, err, stderr.String())
	}
	return nil
}

// Proof 6 of the main job: a crowd of processes appends to one table, many of
// them are killed inside a commit, and nothing that was acknowledged is lost,
// nothing is there twice, and the log has no gap.
func TestTable_ProcessesAppendAndDie(t *testing.T) {
	processes, appends, suicides, kills := 100, 20, 12, 18
	if testing.Short() {
		processes, appends, suicides, kills = 16, 5, 3, 3
	}
	table, acks := filepath.Join(t.TempDir(), "t"), t.TempDir()
	store, err := storage.NewLocal(table, storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testtable.New(t, testtable.Spec{DDL: columns, Store: store})

	random := rand.New(rand.NewPCG(1, 2))
	victims := map[int]*victim{}
	for i, p := range random.Perm(processes)[:suicides+kills] {
		victims[p] = &victim{at: random.IntN(appends), between: i < suicides, after: time.Duration(random.Int64N(int64(60 * time.Millisecond)))}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	for p := range processes {
		all.Go(func() {
			if err := victims[p].run(ctx, t, table, filepath.Join(acks, strconv.Itoa(p)), p, appends); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	died := 0
	for _, v := range victims {
		if v.died {
			died++
		}
	}
	t.Logf("%d processes, %d killed, %v", processes, died, time.Since(began).Round(time.Millisecond))
	o := readOutcome(t, table, store)
	o.check(t, acks, processes, appends, victims)
	if len(o.orphans) < suicides {
		t.Errorf("%d data files without a log entry, want at least %d: the kills between the two did not happen", len(o.orphans), suicides)
	}
	if len(o.orphans) > died {
		t.Errorf("%d data files without a log entry by %d killed processes", len(o.orphans), died)
	}
	if want := suicides + kills*2/3; died < want {
		t.Errorf("only %d processes were killed, want at least %d", died, want)
	}
}
