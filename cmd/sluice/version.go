package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build (-ldflags "-X main.version=..").
var version = "0.1.0-dev"

// buildInfo is what `sluice version` tells.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		dirty := false
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
		if dirty {
			b.Commit += "-modified"
		}
	}
	return b
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit and Go version",
		Example: "  sluice version\n  sluice version -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			b := readBuildInfo()
			if a.flags.output == "json" || a.flags.output == "jsonl" {
				return json.NewEncoder(a.stdout).Encode(b)
			}
			_, err := fmt.Fprintf(a.stdout, "sluice %s (commit %s, %s, %s)\n", b.Version, b.Commit, b.Go, b.Platform)
			return err
		},
	}
}
