package storagetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-data/sluice/storage"
)

// racerEnv makes the test binary a racer: its value is the location to open.
const racerEnv = "SLUICE_STORAGETEST_RACER"

// Main must be called first in TestMain of a package that uses RaceProcesses,
// with a function that opens a store by a location. In a racer process it runs
// the race and ends the process; otherwise it returns.
func Main(open func(location string) (storage.Store, error)) {
	loc, is := os.LookupEnv(racerEnv)
	if !is {
		return
	}
	if err := racer(loc, open); err != nil {
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	os.Exit(0)
}

// racer says "ready", then for every key that comes on stdin tries to create it
// with its process id as content and says "won" or "lost".
func racer(location string, open func(string) (storage.Store, error)) error {
	s, err := open(location)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		err := s.Create(context.Background(), in.Text(), []byte(fmt.Sprint(os.Getpid())))
		switch {
		case err == nil:
			fmt.Println("won")
		case errors.Is(err, storage.ErrExists):
			fmt.Println("lost")
		default:
			return err
		}
	}
	return in.Err()
}

// RaceProcesses starts n processes that race, in each round, to create the same
// key in the store at location; the one that won must be the one whose bytes are
// there, all others must have been refused, and nothing else may be left over.
func RaceProcesses(t *testing.T, s storage.Store, location string, n, rounds int) {
	t.Helper()
	exe, err := os.Executable()
	ok(t, err)
	type proc struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
	}
	procs := make([]*proc, n)
	for i := range procs {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), racerEnv+"="+location, "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		ok(t, err)
		out, err := cmd.StdoutPipe()
		ok(t, err)
		ok(t, cmd.Start())
		procs[i] = &proc{cmd, in, bufio.NewScanner(out)}
	}
	say := func(p *proc) string {
		if p.out.Scan() {
			return p.out.Text()
		}
		return "silent"
	}
	for i, p := range procs {
		if got := say(p); got != "ready" {
			t.Fatalf("process %d: %s", i, got)
		}
	}
	var want []string
	for round := range rounds {
		key := fmt.Sprintf("_delta_log/%020d.json", round)
		want = append(want, key)
		answers := make([]string, n)
		var wg sync.WaitGroup
		for i, p := range procs {
			wg.Go(func() {
				if _, err := io.WriteString(p.in, key+"\n"); err != nil {
					answers[i] = err.Error()
					return
				}
				answers[i] = say(p)
			})
		}
		wg.Wait()
		winner := -1
		for i, a := range answers {
			switch {
			case a == "lost":
			case a == "won" && winner < 0:
				winner = i
			case a == "won":
				t.Fatalf("round %d: processes %d and %d both won", round, winner, i)
			default:
				t.Fatalf("round %d: process %d: %s", round, i, a)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		wantBytes(t, s, key, fmt.Sprint(procs[winner].cmd.Process.Pid))
	}
	for _, p := range procs {
		p.in.Close()
	}
	for i, p := range procs {
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	wantKeys(t, s, "", "", want...)
}
