package pipeline

import (
	"context"
	"iter"
	"sync"
)

// Map calls fn on every item, up to workers at a time (at least one), and yields
// the results in the order of items. After an error it yields that error and
// ends. items is drawn from one goroutine, never the consumer's.
//
// A result that was made but not taken, because of an error or because the
// consumer left, is dropped: fn's results must not need closing, or fn must
// watch its context.
func Map[T, R any](ctx context.Context, workers int, items iter.Seq[T], fn func(context.Context, T) (R, error)) iter.Seq2[R, error] {
	workers = max(workers, 1)
	return func(yield func(R, error) bool) {
		var zero R
		ctx, cancel := context.WithCancelCause(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel(nil)

		type slot struct {
			res R
			err error
		}
		// order holds, per started item, the place where its result will be.
		// Together with the one the consumer waits for, workers are under way.
		order := make(chan chan slot, workers-1)
		wg.Go(func() {
			defer close(order)
			for item := range items {
				c := make(chan slot, 1)
				select {
				case order <- c:
				case <-ctx.Done():
					return
				}
				if ctx.Err() != nil {
					c <- slot{err: context.Cause(ctx)}
					return
				}
				wg.Go(func() {
					r, err := fn(ctx, item)
					if err != nil {
						cancel(err) // keeps the first cause only
					}
					c <- slot{r, err}
				})
			}
		})
		for c := range order {
			s := <-c
			if s.err != nil {
				cancel(s.err)
				yield(zero, context.Cause(ctx))
				return
			}
			if !yield(s.res, nil) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(zero, err)
		}
	}
}

// ForEach calls fn on every item, up to workers at a time, and returns the first
// error, after all calls have ended.
func ForEach[T any](ctx context.Context, workers int, items iter.Seq[T], fn func(context.Context, T) error) error {
	for _, err := range Map(ctx, workers, items, func(ctx context.Context, t T) (struct{}, error) {
		return struct{}{}, fn(ctx, t)
	}) {
		if err != nil {
			return err
		}
	}
	return nil
}
