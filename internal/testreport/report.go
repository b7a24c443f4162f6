package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// result is what became of one test of one package.
type result struct {
	action string // "pass", "fail", "skip"; "" while it runs
	output []string
	parent bool // it has subtests
}

// pkg is one package under test.
type pkg struct {
	tests  map[string]*result
	output []string // what belongs to no test
	done   bool
}

// report is the state of a run.
type report struct {
	out     io.Writer
	pkgs    map[string]*pkg
	builds  map[string][]string // output of builds by import path
	skips   map[string][]string // reason -> tests
	passed  int
	failed  int
	skipped int
}

// run reads events until the end of in. Its error says that the run as a whole
// is not good.
func run(in io.Reader, out io.Writer) error {
	r := &report{out: out, pkgs: map[string]*pkg{}, builds: map[string][]string{}, skips: map[string][]string{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	return r.finish()
}

func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		fmt.Fprintf(r.out, "%s\n", bytes.TrimRight(line, "\n")) // something else speaks
		return
	}
	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
		return
	case "build-fail":
		return
	}
	p := r.pkgs[e.Package]
	if p == nil || p.done && e.Action == "start" { // one package, two passes
		p = &pkg{tests: map[string]*result{}}
		r.pkgs[e.Package] = p
	}
	if e.Test == "" {
		r.packageEvent(e, p)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &result{}
		p.tests[e.Test] = t
		if i := strings.LastIndexByte(e.Test, '/'); i >= 0 && p.tests[e.Test[:i]] != nil {
			p.tests[e.Test[:i]].parent = true
		}
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.action = e.Action
		if e.Action == "pass" {
			t.output = nil // a long run need not keep it
		}
	}
}

func (r *report) packageEvent(e event, p *pkg) {
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		p.done = true
		r.packageDone(e, p)
	}
}

// packageDone counts, and prints what failed while the rest still runs.
func (r *report) packageDone(e event, p *pkg) {
	pass, fail, skip := 0, 0, 0
	var failures []string
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[name]
		bad := t.action == "fail" || t.action == "" && e.Action == "fail"
		if bad {
			failures = append(failures, name)
		}
		if t.parent && !(bad && !r.childFailed(p, name)) {
			continue
		}
		switch {
		case bad:
			fail++
		case t.action == "skip":
			skip++
			reason := skipReason(t.output)
			r.skips[reason] = append(r.skips[reason], e.Package+" "+name)
		default:
			pass++
		}
	}
	if e.Action == "fail" && fail == 0 {
		fail = 1
	}
	r.passed, r.failed, r.skipped = r.passed+pass, r.failed+fail, r.skipped+skip
	if len(p.tests) == 0 && e.Action != "fail" {
		return // no test files: nothing to tell
	}
	word := "ok  "
	if e.Action == "fail" {
		word = "FAIL"
	}
	fmt.Fprintf(r.out, "%s %-55s %8.1fs  %d passed, %d failed, %d skipped\n", word, e.Package, e.Elapsed, pass, fail, skip)
	if e.Action != "fail" {
		return
	}
	for _, name := range failures {
		fmt.Fprintf(r.out, "---- %s %s\n%s", e.Package, name, strings.Join(p.tests[name].output, ""))
	}
	if rest := strings.Join(p.output, ""); rest != "" {
		fmt.Fprintf(r.out, "---- %s\n%s", e.Package, rest)
	}
	if e.FailedBuild != "" {
		fmt.Fprintf(r.out, "---- build of %s\n%s", e.FailedBuild, strings.Join(r.builds[e.FailedBuild], ""))
	}
}

// childFailed says whether a subtest explains the failure of a test.
func (r *report) childFailed(p *pkg, name string) bool {
	for n, t := range p.tests {
		if strings.HasPrefix(n, name+"/") && t.action != "pass" && t.action != "skip" {
			return true
		}
	}
	return false
}

// skipReason is what t.Skip said, without the file and line before it.
func skipReason(output []string) string {
	for _, o := range slices.Backward(output) {
		o = strings.TrimSpace(o)
		if o == "" || strings.HasPrefix(o, "---") || strings.HasPrefix(o, "===") {
			continue
		}
		if _, after, ok := strings.Cut(o, ".go:"); ok {
			if _, msg, ok := strings.Cut(after, ": "); ok {
				return msg
			}
		}
		return o
	}
	return "no reason given"
}

func (r *report) finish() error {
	for _, name := range slices.Sorted(maps.Keys(r.pkgs)) {
		if p := r.pkgs[name]; !p.done {
			r.packageDone(event{Package: name, Action: "fail"}, p)
		}
	}
	if len(r.skips) > 0 {
		fmt.Fprintln(r.out, "skipped:")
		for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
			tests := r.skips[reason]
			fmt.Fprintf(r.out, "  %4d  %s (%s)\n", len(tests), reason, tests[0])
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	switch {
	case r.failed > 0:
		return errors.New("tests failed")
	case r.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}
