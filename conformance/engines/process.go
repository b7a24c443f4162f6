package engines

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/testenv"
)

//go:embed engine.py
var script []byte

// callTimeout bounds one call, the start of an engine included.
const callTimeout = 5 * time.Minute

// EngineError is what an engine said about a call that it could not do.
type EngineError struct {
	Engine    string `json:"-"`
	Op        string `json:"-"`
	Class     string `json:"class"`     // of the Python exception
	Condition string `json:"condition"` // Spark's error condition, if any
	Message   string `json:"message"`
}

func (e *EngineError) Error() string {
	return fmt.Sprintf("%s: %s: %s: %s", e.Engine, e.Op, e.Class, e.Message)
}

// process is one running engine.
type process struct {
	name string
	in   io.WriteCloser
	out  *bufio.Reader
	cmd  *exec.Cmd
	log  string // what it wrote on stderr

	mu sync.Mutex // one call at a time
}

// starter starts an engine once per test binary.
type starter struct {
	once sync.Once
	p    *process
	err  error
}

var deltaRS, spark starter

// dir is where the engines are set up: SLUICE_ENGINES, else build/engines.
func dir(tb testing.TB) string {
	if d := os.Getenv("SLUICE_ENGINES"); d != "" {
		return d
	}
	return filepath.Join(testenv.RepoRoot(tb), "build", "engines")
}

func (s *starter) get(tb testing.TB, name string, args func(dir string) []string, want map[string]string) *process {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("%s is not started under -short", name)
	}
	dir := dir(tb)
	have, err := os.ReadFile(filepath.Join(dir, "versions.stamp"))
	if errors.Is(err, os.ErrNotExist) {
		if os.Getenv("SLUICE_REQUIRE_ENGINES") == "1" {
			tb.Fatalf("%s is not set up: run `make setup-engines`", name)
		}
		tb.Skipf("%s is not set up: run `make setup-engines`", name)
	}
	pinned, perr := os.ReadFile(filepath.Join(testenv.RepoRoot(tb), "conformance", "versions.env"))
	if err := errors.Join(err, perr); err != nil {
		tb.Fatal(err)
	}
	if !bytes.Equal(have, pinned) {
		tb.Fatalf("%s is set up in other versions than conformance/versions.env: run `make setup-engines`", name)
	}
	s.once.Do(func() {
		s.p, s.err = start(name, filepath.Join(dir, "venv", "bin", "python"), args(dir))
		if s.err == nil {
			s.err = s.p.checkVersions(versions(pinned), want)
		}
	})
	if s.err != nil {
		tb.Fatalf("start %s: %v", name, s.err)
	}
	return s.p
}

// versions reads NAME=VALUE lines.
func versions(env []byte) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(string(env)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(k, "#") {
			out[k] = v
		}
	}
	return out
}

// start runs engine.py; its first answer is its versions, read by checkVersions.
func start(name, python string, args []string) (*process, error) {
	tmp, err := os.MkdirTemp("", "sluice-"+args[0]+"-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(tmp, "engine.py")
	if err := os.WriteFile(file, script, 0o666); err != nil {
		return nil, err
	}
	// A file, not this binary's stderr: `go test` waits until everything that
	// holds that one has ended.
	log, err := os.Create(filepath.Join(tmp, "stderr.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(python, append([]string{file}, args...)...)
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "PYTHONUTF8=1", "SLUICE_ENGINE_TMP="+tmp, "SPARK_LOCAL_IP=127.0.0.1")
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{name: name, in: in, out: bufio.NewReader(out), cmd: cmd, log: log.Name()}, nil
}

func (p *process) checkVersions(pinned, want map[string]string) error {
	raw, err := p.answer("start")
	if err != nil {
		return err
	}
	got := map[string]any{}
	if err := json.Unmarshal(raw, &got); err != nil {
		return err
	}
	for key, name := range want {
		if text := fmt.Sprint(got[key]); pinned[name] == "" || !strings.Contains(text, pinned[name]) {
			return fmt.Errorf("%s %s answers, pinned is %s", key, text, pinned[name])
		}
	}
	return nil
}

// call sends one request and waits for its answer. A call that takes too long
// ends the process: nothing after it could be trusted.
func (p *process) call(op string, args map[string]any) (json.RawMessage, error) {
	request := map[string]any{"op": op}
	for k, v := range args {
		request[k] = v
	}
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return nil, p.dead(op, err)
	}
	return p.answer(op)
}

func (p *process) answer(op string) (json.RawMessage, error) {
	timer := time.AfterFunc(callTimeout, func() { p.cmd.Process.Kill() })
	line, err := p.out.ReadBytes('\n')
	if !timer.Stop() {
		err = fmt.Errorf("no answer in %v", callTimeout)
	}
	if err != nil {
		return nil, p.dead(op, err)
	}
	var a struct {
		Result json.RawMessage `json:"result"`
		Error  *EngineError    `json:"error"`
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return nil, p.dead(op, fmt.Errorf("answer %.200q: %w", line, err))
	}
	if a.Error != nil {
		a.Error.Engine, a.Error.Op = p.name, op
		return nil, a.Error
	}
	return a.Result, nil
}

// dead explains a process that does not answer with the end of its log.
func (p *process) dead(op string, err error) error {
	tail, _ := os.ReadFile(p.log)
	if len(tail) > 4000 {
		tail = tail[len(tail)-4000:]
	}
	return fmt.Errorf("%s: %s: %w; it said last:\n%s", p.name, op, err, tail)
}
