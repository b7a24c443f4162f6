package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/internal/testenv"
)

func ints(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func TestMap_OrderAndBound(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "n")
		workers := rapid.IntRange(-1, 9).Draw(t, "workers")
		var running, peak atomic.Int64
		var got []int
		for r, err := range pipeline.Map(context.Background(), workers, ints(n), func(_ context.Context, i int) (int, error) {
			for now := running.Add(1); ; {
				p := peak.Load()
				if now <= p || peak.CompareAndSwap(p, now) {
					break
				}
			}
			runtime.Gosched()
			running.Add(-1)
			return i * i, nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if len(got) != n || !slices.IsSorted(got) {
			t.Fatalf("got %v for %d items", got, n)
		}
		if p := peak.Load(); p > int64(max(workers, 1)) {
			t.Fatalf("%d calls at once with %d workers", p, workers)
		}
	})
}

func TestMap_SlowConsumerBoundsWork(t *testing.T) {
	var started atomic.Int64
	taken := 0
	for range pipeline.Map(context.Background(), 3, ints(100), func(context.Context, int) (int, error) {
		started.Add(1)
		return 0, nil
	}) {
		taken++
		time.Sleep(time.Millisecond)
		if ahead := int(started.Load()) - taken; ahead > 4 {
			t.Fatalf("%d results wait for the consumer", ahead)
		}
	}
}

func TestMap_FirstErrorIsTheCause(t *testing.T) {
	boom := errors.New("boom")
	var got []int
	var last error
	for r, err := range pipeline.Map(context.Background(), 4, ints(1000), func(ctx context.Context, i int) (int, error) {
		switch i {
		case 3:
			return 0, boom
		case 1, 2: // bystanders that are cancelled before they end
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return i, nil
	}) {
		if err != nil {
			last = err
			continue
		}
		got = append(got, r)
	}
	if !errors.Is(last, boom) {
		t.Fatalf("error %v, want boom", last)
	}
	if !slices.Equal(got, []int{0}) {
		t.Fatalf("results %v before the error, want [0]", got)
	}
}

func TestMap_ConsumerLeaves(t *testing.T) {
	var running atomic.Int64
	for range pipeline.Map(context.Background(), 4, ints(1000), func(ctx context.Context, i int) (int, error) {
		running.Add(1)
		defer running.Add(-1)
		if i > 0 {
			<-ctx.Done()
		}
		return i, nil
	}) {
		break
	}
	if n := running.Load(); n != 0 {
		t.Fatalf("%d calls still run", n)
	}
}

func TestMap_ContextEnds(t *testing.T) {
	why := errors.New("user left")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var last error
	for i, err := range pipeline.Map(ctx, 2, ints(1000), func(_ context.Context, i int) (int, error) { return i, nil }) {
		if i == 5 {
			cancel(why)
		}
		last = err
	}
	if !errors.Is(last, why) {
		t.Fatalf("error %v, want the cause of the cancellation", last)
	}
}

func TestForEach_Error(t *testing.T) {
	err := pipeline.ForEach(context.Background(), 2, ints(10), func(_ context.Context, i int) error {
		if i == 7 {
			return fmt.Errorf("item %d", i)
		}
		return nil
	})
	if err == nil || err.Error() != "item 7" {
		t.Fatalf("got %v", err)
	}
	if err := pipeline.ForEach(context.Background(), 2, ints(10), func(context.Context, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
