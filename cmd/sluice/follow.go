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
)

// followFlags are the flags of an apply that does not end with its input.
type followFlags struct {
	follow   bool
	interval durationFlag
	listen   string
	retained func() int64 // WAL that a server keeps for us; nil for other sources
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
func (a *app) follow(ctx context.Context, f *applyFlags, round func(context.Context) (apply.Result, error)) error {
	m := newApplyMetrics(a.clock)
	if f.retained != nil {
		m.watchServer(f.retained)
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
	for {
		r, err := round(ctx)
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
			return a.finishApply(f, r, err)
		}
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
		t := time.NewTimer(time.Duration(f.interval))
		select {
		case <-ctx.Done():
			t.Stop()
			return a.stopped(f, batches, context.Cause(ctx))
		case <-t.C:
		}
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
