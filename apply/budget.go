package apply

import (
	"sync/atomic"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/spill"
)

// LeastMemory is the smallest [Options.Memory].
const LeastMemory = 128 << 20

// What a run may hold (docs/rfcs/memory.md). Every consumer has a share that it never
// waits for: who needs more writes it to a temporary file.
const (
	defaultMemory = 1 << 30
	// lotShare of the memory is what the events of a lot and all that is made of them
	// may take; decodeShare the source bytes that a decoder holds before its rows are taken
	// over. A batch of the default size is not cut at the default memory.
	lotShare    = 4
	decodeShare = 4
	// An event costs perEvent bytes beside its values (key, sequence, register, place
	// of its row), and its values stand in valueCopies places: event, row before, row
	// after, and while they are joined or written.
	perEvent    = 900
	valueCopies = 6
	// perMatch is what is kept of a changed row until its file is written: its number.
	perMatch = 16
)

// budget is the memory of a run.
type budget struct {
	total   int64 // 0: unbounded
	spilled atomic.Int64
	dir     string
	lotOnly int64 // of tests: the size of lots; 0: by total
}

func newBudget(o Options) *budget {
	b := &budget{total: o.Memory, dir: o.SpillDir, lotOnly: o.lotBytes}
	switch {
	case b.total == 0:
		b.total = defaultMemory
	case b.total < 0:
		b.total = 0
	}
	return b
}

// lot is the estimated bytes that events may take while they are decided.
func (b *budget) lot() int64 {
	if b.lotOnly > 0 {
		return b.lotOnly
	}
	return b.total / lotShare
}

// decode is the source bytes and rows after which a decoder's rows are taken over.
func (b *budget) decode() (rows int, bytes int64) {
	if b.lotOnly > 0 {
		return 1, b.lotOnly
	}
	return int(b.total / 2048), b.total / decodeShare
}

// workers is how many files are rewritten at once; each holds a row group, whose size is
// not known to the budget. 0: the table's default, also without a budget (operations on
// the state have none).
func (b *budget) workers() int {
	if b == nil || b.total == 0 || b.total >= defaultMemory {
		return 0
	}
	return int(max(b.total/(defaultMemory/4), 1))
}

func (b *budget) spill() spill.Options {
	return spill.Options{Dir: b.dir, Count: func(n int64) { b.spilled.Add(n) }}
}

// lots is into how many lots an input is parted.
func (b *budget) lots(in *input) int64 {
	n := in.cost/max(b.lot(), 1) + 1
	if b.lotOnly > 0 {
		n = min(n, 7)
	}
	return n
}

// check refuses a batch that does not fit however it is parted: the numbers of the rows
// that it changes are kept until their files are written.
func (b *budget) check(in *input, lots int64) error {
	if least := int64(in.rows()) * perMatch; lots > maxLots || least > b.total/2 {
		return running(CodeMemory, "a batch of %d events, which take about %d MiB while they are decided, does not fit into %d MiB of memory even with temporary files; "+
			"make batches smaller (--batch-rows, --batch-bytes) or the memory larger (--memory)", in.rows(), in.cost>>20, b.total>>20)
	}
	return nil
}

// cost estimates what deciding an event batch takes.
func cost(b *event.Batch) int64 {
	return b.Rows.NumRows()*perEvent + valueCopies*datafile.MemoryOf(b.Rows)
}
