package pipeline

import (
	"context"
	"iter"
	"sync"
)

// Streams runs one stream for every item, up to workers of them at a time (at least
// one), and yields their results stream after stream in the order of items. A stream
// whose turn has not come goes on until ahead of its results (at least one) wait. An
// error is yielded in its place, after all results before it, and ends everything.
//
// Results that were made but not taken, because of an error or because the consumer
// left, go to drop. A taken result belongs to the consumer.
func Streams[T, R any](ctx context.Context, workers, ahead int, items iter.Seq[T], fn func(context.Context, T) iter.Seq2[R, error], drop func(R)) iter.Seq2[R, error] {
	workers, ahead = max(workers, 1), max(ahead, 1)
	return func(yield func(R, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		// As in Map: order holds the streams under way but for the one that is read.
		order := make(chan chan result[R], workers-1)
		var wg sync.WaitGroup
		defer func() {
			cancel()
			for c := range order {
				discard(c, drop)
			}
			wg.Wait()
		}()
		wg.Go(func() {
			defer close(order)
			for item := range items {
				c := make(chan result[R], ahead)
				select {
				case order <- c:
				case <-ctx.Done():
					return
				}
				wg.Go(func() { feed(ctx, c, fn(ctx, item), drop) })
			}
		})
		for c := range order {
			for r := range c {
				if r.err != nil || !yield(r.value, nil) {
					cancel()
					discard(c, drop)
					if r.err != nil {
						yield(r.value, r.err)
					}
					return
				}
			}
			if ctx.Err() != nil {
				break // the stream may have ended for that
			}
		}
		if err := context.Cause(ctx); err != nil {
			var zero R
			yield(zero, err)
		}
	}
}

type result[R any] struct {
	value R
	err   error
}

// feed sends a stream's results, and closes c at its end.
func feed[R any](ctx context.Context, c chan<- result[R], stream iter.Seq2[R, error], drop func(R)) {
	defer close(c)
	for v, err := range stream {
		select {
		case c <- result[R]{v, err}:
			if err != nil {
				return
			}
		case <-ctx.Done():
			if err == nil {
				drop(v)
			}
			return
		}
	}
}

// discard drops what is left in c and what its stream still sends.
func discard[R any](c <-chan result[R], drop func(R)) {
	for r := range c {
		if r.err == nil {
			drop(r.value)
		}
	}
}
