//go:build linux

package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// childEnv holds the arguments of a child: operation, location and folder of its sources,
// and the call of the store before which it takes itself the right to write.
const childEnv = "SLUICE_TEST_FAULTS"

func init() {
	args := os.Getenv(childEnv)
	if args == "" {
		return
	}
	if err := child(strings.Split(args, "|")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(args []string) error {
	s, err := open.Store(args[1], open.Options{})
	if err != nil {
		return err
	}
	if len(args) > 3 {
		var n int
		if _, err := fmt.Sscan(args[3], &n); err != nil {
			return err
		}
		s = forbids(s, args[1], n)
	}
	op := named(args[0])[0]
	fmt.Println("begin")
	return op.run(newBench(s, args[2]))
}

// doomed starts a child that does an operation.
func doomed(ctx context.Context, args ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, exe)
	c.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "|"))
	return c, nil
}

// killed does an operation in a process that is killed so long after it began; 0 lets it
// live. It answers how long the process worked and whether it was killed.
func killed(ctx context.Context, after time.Duration, args ...string) (worked time.Duration, died bool, err error) {
	c, err := doomed(ctx, args...)
	if err != nil {
		return 0, false, err
	}
	var said strings.Builder
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, false, err
	}
	if err := c.Start(); err != nil {
		return 0, false, err
	}
	_, readErr := bufio.NewReader(out).ReadString('\n')
	began := time.Now()
	if after > 0 && readErr == nil {
		time.Sleep(after)
		if err := c.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return 0, false, err
		}
	}
	err = c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return time.Since(began), true, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return time.Since(began), false, err
}

// TestOperations_KilledAtRandomTimes: a process that is killed in the middle of an
// operation leaves a table that invariant 2 holds for.
func TestOperations_KilledAtRandomTimes(t *testing.T) {
	killedOn(t, "local disk", "file://"+t.TempDir(), 3)
}

// killedOn kills each operation some times below a root, many times in a long run; the
// last table of each is read by others, too.
func killedOn(t *testing.T, where, root string, kills int, readers ...*engines.Engine) {
	if long() && kills > 1 {
		kills = 60
	}
	random := rand.New(rand.NewPCG(uint64(*seed), 11))
	for _, op := range named("apply, type 1", "apply, type 2", "merge", "optimize", "vacuum", "checkpoint") {
		t.Run("law 8 "+op.name, func(t *testing.T) {
			calm := newBench(storage.NewMemory("m"), t.TempDir())
			if err := op.prepare(calm); err != nil {
				t.Fatal(err)
			}
			want := refer(t, op, calm)
			took, deaths := time.Duration(0), 0
			for n := 0; deaths < kills; n++ {
				if n > 4*kills+10 {
					t.Fatalf("only %d of %d processes could be killed", deaths, n)
				}
				location := fmt.Sprintf("%s/%s-%d", root, strings.NewReplacer(" ", "-", ",", "").Replace(op.name), n)
				b := newBench(openStore(t, location, nil), t.TempDir())
				if err := op.prepare(b); err != nil {
					t.Fatalf("prepare: %v", err)
				}
				after := time.Duration(0)
				if n > 0 {
					after = 1 + time.Duration(random.Int64N(int64(took)))
				}
				worked, died, err := killed(t.Context(), after, op.name, location, b.files)
				if err != nil {
					t.Fatal(err)
				}
				if !died {
					took = worked
				} else {
					deaths++
				}
				if err := op.survived(b, want, nil, died); err != nil {
					t.Fatalf("killed after %v of %v: %v", after, took, err)
				}
				if deaths == kills {
					readBy(t, location+"/"+op.table(), len(want.last()), readers...)
				}
				if dir, ok := strings.CutPrefix(location, "file://"); ok {
					if left := temporary(t, dir); len(left) > 0 {
						t.Fatalf("killed after %v: a vacuum leaves %v", after, left)
					}
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			survived("process: killed on "+where, op.name, deaths)
		})
	}
}

// temporary are the files of writes that were not finished, in the table's own folder.
func temporary(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".") && strings.HasSuffix(d.Name(), ".tmp") {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
