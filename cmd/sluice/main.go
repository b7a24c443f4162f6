package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/sluice-data/sluice/storage/open"
)

// app is what a run of the command has from its surroundings.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	// terminals: whether standard output and error are shown to a human.
	outTerminal, errTerminal bool
	clock                    func() time.Time
	flags                    globalFlags
	clouds                   open.Clouds // connections to object stores
}

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, clock: time.Now,
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())), errTerminal: term.IsTerminal(int(os.Stderr.Fd()))}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		cancel(&interrupted{s})
		<-signals // the second one does not wait for a safe point
		os.Exit(exitInterrupted)
	}()
	os.Exit(a.run(ctx, os.Args[1:]))
}

// interrupted is the cause of a context that a signal cancelled.
type interrupted struct{ signal os.Signal }

// Is makes the cause as good as the error of the context itself.
func (e *interrupted) Is(target error) bool { return target == context.Canceled }

func (e *interrupted) Error() string { return "stopped by signal " + e.signal.String() }

// run executes one command line and answers its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.stdin = &interruptible{ctx: ctx, r: a.stdin}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var stopped *interrupted
	if errors.As(context.Cause(ctx), &stopped) && errors.Is(err, context.Canceled) {
		var c *committedError
		if !errors.As(err, &c) {
			err = &committedError{text: "nothing was committed", err: err}
		}
		err = &cliError{code: "INTERRUPTED", exit: exitInterrupted, message: stopped.Error() + ": " + errText(err)}
	}
	f := describeError(err)
	f.print(a.stderr, wantsJSONErrors(a.flags.output, args))
	return f.exit
}
