package source_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/corpora"
	"github.com/sluice-data/sluice/log/schema"
)

// TestDecoder_Matrix runs the cells of the test matrix (cdc-formats 23), one file
// each. Commands read records from their input; lines "# name: value" before
// them set format, keys, schema, tables, file (the name of what follows) and option k=v.
//
//	decode  prints batches, poison, controls and warnings
//	fold    prints the rows after all events, by key and sequence; the same must
//	        come out of the events shuffled with a fifth of them doubled, unless
//	        "# order: stream" is given
func TestDecoder_Matrix(t *testing.T) {
	datadriven.Walk(t, "testdata/matrix", func(t *testing.T, path string) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				spec, stream := fixture(t, d.Input)
				var out strings.Builder
				switch d.Cmd {
				case "detect":
					o, err := source.Open(context.Background(), spec)
					if err != nil {
						return err.Error() + "\n"
					}
					return fmt.Sprintf("%s: %s\n", o.Format, o.Explain)
				case "decode":
					printDecoded(t, &out, spec)
				case "fold":
					printFold(t, &out, spec, stream)
				default:
					d.Fatalf(t, "unknown command %s", d.Cmd)
				}
				return out.String()
			})
		})
	})
}

// fixture writes the records of a command to a file and reads its settings.
func fixture(t *testing.T, input string) (spec source.Spec, stream bool) {
	t.Helper()
	spec = source.Spec{Options: map[string]string{}}
	name := "events.jsonl"
	var body []string
	dir := t.TempDir()
	write := func() {
		path := filepath.Join(dir, name)
		text := strings.Join(body, "")
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text = strings.NewReplacer(`<BOM>`, "\ufeff", `<FF>`, "\xff", `<CR>`, "\r", `<EMPTY>`, "").Replace(text)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		spec.From, body = append(spec.From, path), nil
	}
	for line := range strings.Lines(input) {
		k, v, ok := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
		v = strings.TrimSpace(v)
		if !ok || !strings.HasPrefix(line, "# ") {
			body = append(body, line)
			continue
		}
		switch k {
		case "format":
			spec.Format = source.Format(v)
		case "keys":
			spec.Keys = strings.Split(v, ",")
		case "tables":
			spec.Tables = strings.Split(v, ",")
		case "file":
			if len(body) > 0 {
				write()
			}
			name = v
		case "order":
			stream = v == "stream"
		case "no_op":
			spec.NoOp = v == "true"
		case "option":
			o, val, _ := strings.Cut(v, "=")
			spec.Options[o] = val
		case "schema":
			s, err := schema.ParseDDL(v)
			if err != nil {
				t.Fatal(err)
			}
			spec.Schema = s
		default:
			t.Fatalf("setting %q", k)
		}
	}
	write()
	spec.Host = "host"
	return spec, stream
}

func run(spec source.Spec) (*event.Decoded, error) {
	o, err := source.Open(context.Background(), spec)
	if err != nil {
		return nil, err
	}
	defer o.Source.Close()
	d := o.NewDecoder()
	for rec, err := range o.Source.Records(context.Background(), nil) {
		if err == nil {
			err = d.Add(context.Background(), rec)
		}
		if err != nil {
			return nil, err
		}
	}
	return d.Flush()
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	case corpora.Day:
		return fmt.Sprintf("day %d", v)
	case corpora.TS:
		return fmt.Sprintf("%dus UTC", v)
	case corpora.NTZ:
		return fmt.Sprintf("%dus", v)
	case corpora.Dec:
		return "dec " + string(v)
	case float32:
		return fmt.Sprintf("float %v", v)
	case float64:
		return fmt.Sprintf("double %v", v)
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, show(e))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case map[string]any:
		var out []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, k+": "+show(v[k]))
		}
		return "{" + strings.Join(out, ", ") + "}"
	}
	return fmt.Sprint(v)
}

var opNames = map[event.Op]string{event.Insert: "INSERT", event.Update: "UPDATE", event.Upsert: "UPSERT", event.Delete: "DELETE", event.Truncate: "TRUNCATE"}

func printDecoded(t *testing.T, out *strings.Builder, spec source.Spec) {
	t.Helper()
	all, err := run(spec)
	if err != nil {
		fmt.Fprintf(out, "error: %s\n", plain(spec, err))
		return
	}
	for _, b := range all.Batches {
		checkBatch(t, b)
		name := strings.Join(slices.DeleteFunc([]string{b.Table.Database, b.Table.Schema, b.Table.Name}, func(s string) bool { return s == "" }), ".")
		fmt.Fprintf(out, "batch %s keys=%v", name, b.Keys)
		if b.SeqType != nil {
			fmt.Fprintf(out, " seq=%v", b.SeqType.Names())
		}
		out.WriteString("\n")
		for _, f := range b.Columns.Fields {
			fmt.Fprintf(out, "  %s %s\n", schema.QuoteName(f.Name), f.Type)
		}
		for i, c := range corpora.Changes(b) {
			fmt.Fprintf(out, "%s", opNames[c.Op])
			if c.Seq != nil {
				var parts []string
				for _, s := range c.Seq {
					parts = append(parts, strings.TrimPrefix(show(s), "dec "))
				}
				fmt.Fprintf(out, " (%s)", strings.Join(parts, " "))
			}
			for k, f := range b.Columns.Fields {
				switch v, authored := c.Vals[f.Name]; {
				case c.Op == event.Truncate:
				case b.Unavailable[k].Get(i):
					fmt.Fprintf(out, " %s=UNAVAILABLE", f.Name)
				case !authored:
					fmt.Fprintf(out, " %s=ABSENT", f.Name)
				case c.Op == event.Delete && v == nil:
				default:
					fmt.Fprintf(out, " %s=%s", f.Name, show(v))
				}
			}
			if c.OldKey != "" {
				fmt.Fprintf(out, " oldkey=%s", c.OldKey)
			}
			if c.NewKey {
				fmt.Fprintf(out, " newkey=%s", corpora.KeyOf(b.Keys, b.NewKeys, i))
			}
			if b.Rescued != nil && b.Rescued[i] != "" {
				fmt.Fprintf(out, " rescued=%s", b.Rescued[i])
			}
			out.WriteString("\n")
		}
	}
	for _, p := range all.Poison {
		lost := ""
		if p.Delete {
			lost = " (a delete)"
		}
		fmt.Fprintf(out, "poison line %d: %s %s%s: %s\n", p.Record.Line, p.Class, p.Code, lost, p.Reason)
	}
	for _, k := range slices.Sorted(maps.Keys(all.Controls)) {
		fmt.Fprintf(out, "control %s %d\n", k, all.Controls[k])
	}
	for _, w := range all.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
}

// plain takes the temporary directory out of an error.
func plain(spec source.Spec, err error) string {
	text := err.Error()
	for _, path := range spec.From {
		text = strings.ReplaceAll(text, "file://host"+path, filepath.Base(path))
		text = strings.ReplaceAll(text, path, filepath.Base(path))
	}
	return text
}

func printFold(t *testing.T, out *strings.Builder, spec source.Spec, stream bool) {
	t.Helper()
	all, err := run(spec)
	if err != nil {
		fmt.Fprintf(out, "error: %s\n", plain(spec, err))
		return
	}
	var list []corpora.Change
	for _, b := range all.Batches {
		list = append(list, corpora.Changes(b)...)
	}
	want := foldText(list)
	out.WriteString(want)
	if stream {
		return
	}
	for seed := range 20 {
		rng := rand.New(rand.NewSource(int64(seed)))
		mixed := slices.Clone(list)
		for _, c := range list {
			if rng.Intn(5) == 0 {
				mixed = append(mixed, c)
			}
		}
		rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if got := foldText(mixed); got != want {
			t.Errorf("seed %d: shuffled events give\n%s", seed, got)
		}
	}
}

func foldText(list []corpora.Change) string {
	tables := corpora.Fold(list)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		for key, img := range tables[name].ByKey() {
			var parts []string
			for _, c := range slices.Sorted(maps.Keys(img)) {
				parts = append(parts, c+"="+show(img[c]))
			}
			lines = append(lines, fmt.Sprintf("%s[%s] %s", name, key, strings.Join(parts, " ")))
		}
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		return "no rows\n"
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestOpen_BadOptions(t *testing.T) {
	for _, o := range []map[string]string{
		{"epoch": "-1"}, {"epoch": "x"}, {"decimal": "no"}, {"nonsense": "1"}, {"tombstones": "delete", "sequence": "position"}, {"max_record_bytes": "0"},
	} {
		_, err := source.Open(context.Background(), source.Spec{Format: source.Debezium, From: []string{"x"}, Options: o})
		var e *source.Error
		if !errors.As(err, &e) || e.Code != "BAD_OPTION" {
			t.Errorf("options %v: %v", o, err)
		}
	}
}
