package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
)

// memoryFlags say how much a command may hold, and where the rest goes.
type memoryFlags struct {
	memory   sizeFlag
	spillDir string
}

func (f *memoryFlags) register(p *pflag.FlagSet) {
	f.memory = 1 << 30
	p.Var(&f.memory, "memory", "memory that is used at most; what needs more goes through temporary files")
	p.StringVar(&f.spillDir, "spill-dir", "", "directory of temporary files (default the system's)")
}

// problems are those of the flags.
func (f *memoryFlags) problems() []string {
	var out []string
	if f.memory < apply.LeastMemory {
		out = append(out, "--memory must be at least "+formatSize(apply.LeastMemory))
	}
	if f.spillDir != "" {
		if st, err := os.Stat(f.spillDir); err != nil || !st.IsDir() {
			out = append(out, fmt.Sprintf("--spill-dir %s is not a directory", f.spillDir))
		}
	}
	return out
}

// runtimeShare of the memory is for what the collector does not count: the program
// itself and the kernel's tables for it.
const runtimeShare = 32 << 20

// bound keeps the collector to the figure: near it, it works more rather than let the
// heap grow. A smaller GOMEMLIMIT of the environment stands.
func (f *memoryFlags) bound() {
	if limit := int64(f.memory) - runtimeShare; limit < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}

// applyOptions are the engine's surroundings for a run with these flags.
func (a *app) applyOptions(f *memoryFlags, zone *time.Location) apply.Options {
	f.bound()
	return apply.Options{Clock: a.clock, Logger: a.logger(), TimeZone: zone, EngineInfo: "sluice " + version,
		Memory: int64(f.memory), SpillDir: f.spillDir}
}
