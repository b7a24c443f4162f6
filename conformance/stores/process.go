package stores

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/conformance/servers"
)

// dir is where the servers are set up; the test ends here if they are not.
func dir(tb testing.TB) string {
	tb.Helper()
	return servers.Dir(tb, "stores", "object stores")
}

// start runs a server until the test ends. command gets a free port; ready says
// whether it answers there. A port that somebody else took in between is tried
// again with another.
func start(tb testing.TB, name string, command func(port string) *exec.Cmd, ready func(addr string) error) string {
	tb.Helper()
	var last error
	for range 3 {
		port := fmt.Sprint(servers.FreePorts(tb, 1)[0])
		p, err := servers.Start(command(port), filepath.Join(tb.TempDir(), name+".log"))
		if err != nil {
			tb.Fatalf("start %s: %v", name, err)
		}
		addr := "127.0.0.1:" + port
		if last = p.Ready(2*time.Minute, func(context.Context) error { return ready(addr) }); last == nil {
			tb.Cleanup(p.Kill)
			return addr
		}
		p.Kill()
	}
	tb.Fatalf("start %s: %v", name, last)
	return ""
}

// environ is this process's environment without what would name a real cloud.
func environ(more ...string) []string {
	var out []string
	for _, kv := range os.Environ() {
		cloud := false
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST"} {
			cloud = cloud || strings.HasPrefix(kv, prefix)
		}
		if !cloud {
			out = append(out, kv)
		}
	}
	return append(out, more...)
}
