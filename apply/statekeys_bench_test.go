package apply

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/keycode"
)

// A batch of a thousand stale events on a state of two million tombstones, held whole
// and by keys: time, and the largest heap while it runs.
func BenchmarkRun_LargeState(b *testing.B) {
	const dead = 2_000_000
	for _, c := range []struct {
		name   string
		budget int64
	}{{"whole", 1 << 40}, {"by keys", 0}} {
		b.Run(c.name, func(b *testing.B) {
			x := newBench(b, "")
			x.opts.stateBudget = c.budget
			x.must(b, "U 1@5 (Ann, Rome)")
			tg := x.pinned(b)
			facts := make([]stateRow, dead)
			for i := range facts {
				key := array.NewInt64Builder(memory.DefaultAllocator)
				key.Append(int64(i) + 10)
				facts[i] = stateRow{Kind: kindTombstone, Key: keycode.AppendValue(nil, key.NewArray(), 0), At: x.opts.Clock().UnixMicro()}
				facts[i].Seq = facts[i].Key
			}
			p := &proposal{t: tg, began: x.opts.Clock(), facts: facts, operation: "AUTO CDC"}
			if done, err := p.commit(context.Background()); err != nil || !done {
				b.Fatal(done, err)
			}
			tg, p, facts = nil, nil, nil
			runtime.GC()
			var peak uint64
			for n := 0; b.Loop(); n++ {
				var lines []string
				for i := range 1000 {
					lines = append(lines, fmt.Sprintf("U %d@%d (Ann, Rome)", 10+i*2000, 5))
				}
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					var m runtime.MemStats
					for {
						select {
						case <-stop:
							return
						case <-time.After(2 * time.Millisecond):
							runtime.ReadMemStats(&m)
							peak = max(peak, m.HeapAlloc)
						}
					}
				}()
				res := x.must(b, lines...)
				close(stop)
				<-stopped
				if res.Events.Stale != 1000 {
					b.Fatalf("%+v", res.Events)
				}
			}
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
		})
	}
}
