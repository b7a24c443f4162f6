package main

import (
	"strings"

	"github.com/sluice-data/sluice/delta"
)

// parseOrder reads "a, b DESC": names as in --columns, each with ASC or DESC.
func parseOrder(text string) ([]delta.Order, error) {
	var out []delta.Order
	for _, item := range splitOutsideBackticks(text) {
		o := delta.Order{}
		name := strings.TrimSpace(item)
		if i := strings.LastIndexAny(name, " \t`"); i >= 0 && name[i] != '`' {
			switch word := strings.ToUpper(name[i+1:]); word {
			case "ASC", "DESC":
				o.Desc = word == "DESC"
				name = strings.TrimSpace(name[:i])
			default:
				return nil, usage("INVALID_FLAG", "--order-by %q: expected ASC or DESC after the column, found %q", text, name[i+1:])
			}
		}
		names, err := splitNames(name)
		if err != nil {
			return nil, usage("INVALID_FLAG", "--order-by %q: %v", text, err)
		}
		if len(names) != 1 {
			return nil, usage("INVALID_FLAG", "--order-by %q: expected column names", text)
		}
		o.Column = names[0]
		out = append(out, o)
	}
	return out, nil
}

// splitOutsideBackticks cuts at commas that no backticks enclose.
func splitOutsideBackticks(text string) []string {
	var out []string
	start, quoted := 0, false
	for i := range len(text) {
		switch {
		case text[i] == '`':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			out = append(out, text[start:i])
			start = i + 1
		}
	}
	return append(out, text[start:])
}
