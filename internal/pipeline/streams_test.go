package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/internal/testenv"
)

// counted is a stream source that knows how many results nobody took.
type counted struct {
	lengths []int
	fail    int // the stream that fails after its results; -1: none
	running atomic.Int64
	peak    atomic.Int64
	made    atomic.Int64
	dropped atomic.Int64
}

var errStream = errors.New("stream failed")

func (c *counted) stream(_ context.Context, i int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		now := c.running.Add(1)
		defer c.running.Add(-1)
		for p := c.peak.Load(); now > p && !c.peak.CompareAndSwap(p, now); p = c.peak.Load() {
		}
		for k := range c.lengths[i] {
			c.made.Add(1)
			if !yield(fmt.Sprintf("%d.%d", i, k), nil) {
				return
			}
		}
		if i == c.fail {
			yield("", errStream)
		}
	}
}

func (c *counted) drop(string) { c.dropped.Add(1) }

func TestStreams_OrderBoundsAndOwnership(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		c := &counted{lengths: rapid.SliceOfN(rapid.IntRange(0, 9), 0, 20).Draw(t, "lengths"), fail: -1}
		if len(c.lengths) > 0 && rapid.Bool().Draw(t, "fails") {
			c.fail = rapid.IntRange(0, len(c.lengths)-1).Draw(t, "fail")
		}
		workers, ahead := rapid.IntRange(-1, 5).Draw(t, "workers"), rapid.IntRange(-1, 4).Draw(t, "ahead")
		var want []string
		for i, n := range c.lengths {
			for k := range n {
				want = append(want, fmt.Sprintf("%d.%d", i, k))
			}
			if i == c.fail {
				break
			}
		}
		leave := rapid.IntRange(0, len(want)+1).Draw(t, "leave") // after so many results; more than there are: never
		var got []string
		var last error
		for s, err := range pipeline.Streams(context.Background(), workers, ahead, ints(len(c.lengths)), c.stream, c.drop) {
			if last = err; err != nil {
				break
			}
			got = append(got, s)
			if len(got) == leave {
				break
			}
		}
		if leave > 0 && leave < len(want) {
			want = want[:leave]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if stayed := leave == 0 || leave > len(want); stayed && c.fail >= 0 != errors.Is(last, errStream) {
			t.Fatalf("error %v, stream %d fails", last, c.fail)
		}
		if n := c.running.Load(); n != 0 {
			t.Fatalf("%d streams still run", n)
		}
		if p := c.peak.Load(); p > int64(max(workers, 1)) {
			t.Fatalf("%d streams ran at once, workers %d", p, workers)
		}
		if made := c.made.Load(); made != int64(len(got))+c.dropped.Load() {
			t.Fatalf("%d results made, %d taken, %d dropped", made, len(got), c.dropped.Load())
		}
	})
}

func TestStreams_SlowConsumerBoundsResults(t *testing.T) {
	c := &counted{lengths: slices.Repeat([]int{50}, 20), fail: -1}
	taken := int64(0)
	for _, err := range pipeline.Streams(context.Background(), 3, 2, ints(20), c.stream, c.drop) {
		if err != nil {
			t.Fatal(err)
		}
		taken++
		// Of each of three streams two wait and one is held by its goroutine.
		if n := c.made.Load() - taken; n > 9 {
			t.Fatalf("%d results wait", n)
		}
	}
}

func TestStreams_ContextEnds(t *testing.T) {
	why := errors.New("user left")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c := &counted{lengths: slices.Repeat([]int{3}, 1000), fail: -1}
	var got []string
	var last error
	for s, err := range pipeline.Streams(ctx, 3, 1, ints(1000), c.stream, c.drop) {
		if last = err; err != nil {
			break
		}
		if got = append(got, s); len(got) == 7 {
			cancel(why)
		}
	}
	if !errors.Is(last, why) {
		t.Fatalf("error %v, want the cause of the cancellation", last)
	}
	for i, s := range got { // no gap
		if want := fmt.Sprintf("%d.%d", i/3, i%3); s != want {
			t.Fatalf("result %d is %s, want %s", i, s, want)
		}
	}
}
