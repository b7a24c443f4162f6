package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func commands() []*cobra.Command {
	root := newRoot(&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, clock: time.Now})
	var out []*cobra.Command
	for _, c := range root.Commands() {
		if !c.Hidden {
			out = append(out, c)
		}
	}
	return out
}

// TestHelp_ExamplesRun pastes the examples of every command into a shell in an
// empty folder.
func TestHelp_ExamplesRun(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("the examples are shell lines and there is no sh")
	}
	for _, c := range commands() {
		t.Run(c.Name(), func(t *testing.T) {
			if c.Example == "" {
				t.Fatal("no example")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			sh := exec.CommandContext(ctx, "sh", "-e", "-c", c.Example)
			var out bytes.Buffer
			sh.Dir, sh.Stdout, sh.Stderr = t.TempDir(), &out, &out
			sh.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
			if err := sh.Run(); err != nil {
				t.Errorf("%v\n%s\n%s", err, c.Example, out.String())
			}
		})
	}
}

func TestHelp_EveryCommand(t *testing.T) {
	for _, c := range commands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.Contains(c.Short, "\n") {
			t.Errorf("%s: the purpose is one line without a stop: %q", c.Name(), c.Short)
		}
		r := sluice(t, t.TempDir(), c.Name(), "--help")
		if r.code != exitOK || !strings.Contains(r.stdout, "Examples:") || !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%s --help: exit %d\n%s", c.Name(), r.code, r.stdout)
		}
	}
}
