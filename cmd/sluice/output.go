package main

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/term"

	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// printRows writes a stream of rows to standard output in the chosen form.
func (a *app) printRows(s *schema.Struct, rows iter.Seq2[arrow.RecordBatch, error]) (err error) {
	if f := a.form(); a.outTerminal && (f == rowio.Parquet || f == rowio.Arrow) {
		return usage("BINARY_TO_TERMINAL", "--output %s: the bytes are not for a terminal: send them to a file or a pipe", f)
	}
	w, err := rowio.NewWriter(a.stdout, a.form(), s, rowio.WriteOptions{Width: a.width()})
	if err != nil {
		return err
	}
	p := a.startProgress("reading", 0, false)
	n := int64(0)
	for b, err := range rows {
		if err == nil {
			err = w.Write(b)
		}
		if err != nil {
			p.Stop()
			w.Flush() // rows before the fault are whole
			return err
		}
		n += b.NumRows()
		p.done.Store(n)
	}
	p.Stop()
	return w.Close()
}

func (a *app) width() int {
	if f, ok := a.stdout.(interface{ Fd() uintptr }); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 0
}

// wantsSummary tells whether a result is told in words (a terminal, or -o table)
// instead of as one JSON object.
func (a *app) wantsSummary() bool { return a.form() == rowio.Table }

// checkResultForm refuses row forms for commands that answer one object; called
// before any work.
func (a *app) checkResultForm() error {
	switch f := a.form(); f {
	case rowio.CSV, rowio.Parquet, rowio.Arrow:
		return usage("INVALID_FLAG", "--output %s: this command answers one result, not rows: use json, jsonl or table", f)
	}
	return nil
}

// printResult writes one JSON object to standard output, or the summary to
// standard error.
func (a *app) printResult(result any, summary string) error {
	if a.wantsSummary() {
		_, err := fmt.Fprintln(a.stderr, summary)
		return err
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(result)
}

// warn tells the user something that is no failure.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintln(a.stderr, "sluice: warning: "+oneLine(fmt.Sprintf(format, args...)))
}
