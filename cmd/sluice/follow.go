package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/kafka"
)

// followFlags are the flags of an apply that does not end with its input.
type followFlags struct {
	follow   bool
	interval durationFlag
	listen   string
	retained func() int64 // WAL that a server keeps for us; nil for other sources
	lagging  event.Lagging
	// reopen makes the source anew, so that it is read from where parked targets stopped.
	reopen func(context.Context) error
}

func (f *followFlags) register(p *pflag.FlagSet) {
	f.interval = durationFlag(10 * time.Second)
	p.BoolVar(&f.follow, "follow", false, "keep reading as the input grows, until stopped (default for postgres://, unless --once)")
	p.Var(&f.interval, "batch-interval", "with --follow: time between two looks at the input, each of which commits what it finds")
	p.StringVar(&f.listen, "listen", "", "with --follow: address for /ping, /ready and /metrics (Prometheus), for example :9090")
}

func (f *followFlags) problems(a *applyFlags) []string {
	var out []string
	if f.interval < durationFlag(10*time.Millisecond) || f.interval > durationFlag(24*time.Hour) {
		out = append(out, "--batch-interval must lie between 10ms and 24h")
	}
	if !f.follow {
		if f.listen != "" {
			out = append(out, "--listen needs --follow")
		}
		return out
	}
	if slices.Contains(a.from, "-") {
		out = append(out, "--follow: standard input is read until it ends anyway")
	}
	for name, set := range map[string]bool{"--dry-run": a.dryRun, "--once": a.once, "--snapshot": a.snapshot} {
		if set {
			out = append(out, "--follow and "+name+" exclude each other")
		}
	}
	slices.Sort(out)
	return out
}

// follow runs rounds until the context ends, which is how it is stopped. A round
// that finds nothing commits nothing. An error ends it: what was committed stands,
// and the next start goes on from there.
func (a *app) follow(ctx context.Context, f *applyFlags, round func(context.Context, *apply.Resume) (apply.Result, error)) error {
	m := newApplyMetrics(a.clock)
	if f.retained != nil {
		m.watchServer(f.retained)
	}
	if f.lagging != nil {
		m.watchLag(f.lagging)
	}
	if f.listen != "" {
		stop, err := m.serve(f.listen)
		if err != nil {
			return &cliError{code: "LISTEN_FAILED", exit: exitFailed, message: fmt.Sprintf("apply: --listen %s: %v", f.listen, err)}
		}
		defer stop()
	}
	warned := map[string]bool{}
	batches := int64(0)
	var resume *apply.Resume
	var retry, outage backoff
	retry.from, retry.to = 3*time.Duration(f.interval), time.Hour
	outage.from, outage.to = time.Second, time.Minute
	for {
		r, err := round(ctx, resume)
		if resume = r.Resume; resume != nil {
			err = nil // the parked targets are told below; the others went on
		}
		m.round(r, err)
		batches += r.Batches
		r.Warnings = slices.DeleteFunc(r.Warnings, func(w string) bool {
			was := warned[w]
			warned[w] = true
			return was
		})
		if err != nil {
			if stopped := context.Cause(ctx); stopped != nil && errors.Is(err, context.Canceled) {
				return a.stopped(f, batches, err)
			}
			if !kafka.Outage(err) {
				return a.finishApply(f, r, err)
			}
			d := outage.next()
			a.warn("%s; trying again in %s", oneLine(err.Error()), d)
			if err := sleep(ctx, d); err != nil {
				return a.stopped(f, batches, err)
			}
			continue
		}
		outage.reset()
		for _, target := range r.Targets {
			if target.Parked == nil {
				continue
			}
			if w := fmt.Sprintf("%s: stopped: %v", target.Target, target.Parked); !warned[w] {
				warned[w] = true
				a.warn("%s", w)
			}
		}
		if err := a.tellRound(f, r); err != nil {
			return err
		}
		switch {
		case resume == nil:
			retry.reset()
		case retry.due(a.now()):
			// Parked targets are tried again: the input is read from where they stopped.
			if err := f.reopen(ctx); err != nil {
				return a.finishApply(f, apply.Result{}, err)
			}
			resume = nil
		}
		if err := sleep(ctx, time.Duration(f.interval)); err != nil {
			return a.stopped(f, batches, err)
		}
	}
}

func (a *app) now() time.Time {
	if a.clock == nil {
		return time.Now()
	}
	return a.clock()
}

// backoff is a time that doubles from one try to the next.
type backoff struct {
	from, to, last time.Duration
	at             time.Time // of the next try
}

func (w *backoff) reset() { w.last, w.at = 0, time.Time{} }

func (w *backoff) next() time.Duration {
	w.last = min(max(2*w.last, w.from), w.to)
	return w.last
}

// due tells whether the time has passed, and sets the next one.
func (w *backoff) due(now time.Time) bool {
	if !w.at.IsZero() && now.Before(w.at) {
		return false
	}
	first := w.at.IsZero()
	w.at = now.Add(w.next())
	return !first
}

// sleep waits, or answers why the context ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// tellRound prints a round that committed something or has something to say.
func (a *app) tellRound(f *applyFlags, r apply.Result) error {
	for _, w := range r.Warnings {
		a.warn("%s", w)
	}
	if r.Events.Poison > 0 {
		a.warn("%d events could not be applied and lie in quarantine (%d of them would have deleted a row)", r.Events.Poison, r.Events.PoisonDeletes)
	}
	if r.Batches == 0 {
		return nil
	}
	return a.printResult(r, strings.TrimRight(applySummary(r, f.dryRun), "\n"))
}

// stopped says what stands when a signal ended the rounds.
func (a *app) stopped(f *applyFlags, batches int64, err error) error {
	return fmt.Errorf("apply into %s: %w", f.into, &committedError{text: "committed before that: " + plural(batches, "batch", "batches"), err: err})
}
