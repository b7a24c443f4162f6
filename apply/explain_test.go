package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func explained(t *testing.T, b *bench, key string) []string {
	t.Helper()
	x, err := Explain(context.Background(), b.operator(), map[string]string{"ID": key}, b.opts)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range x.Events {
		text := fmt.Sprintf("%s@%s %s", e.Kind, e.Sequence, e.Fate)
		if e.System != "" {
			text += " sys " + e.System
		}
		out = append(out, text)
	}
	return out
}

func TestExplain_Fates(t *testing.T) {
	for _, c := range []struct {
		name, config string
		batches      [][]string
		want         []string
	}{
		{"newest wins, older ones of the feed lost", "", [][]string{{"U 1@5 (Ann, Rome)"}, {"U 1@9 (Ann, Oslo)"}}, []string{"upsert@5 lost", "upsert@9 won"}},
		{"a delete cuts", "", [][]string{{"U 1@5 (Ann, Rome)"}, {"D 1@9"}}, []string{"upsert@5 cut", "delete@9 won"}},
		{"a truncate", "", [][]string{{"U 1@5 (Ann, Rome)"}, {"T@7"}, {"U 1@8 (Ann, Zug)"}}, []string{"upsert@5 cut", "truncate@7 kept", "upsert@8 won"}},
		{"a version entry", "", [][]string{{"U 1@5 (Ann, Rome)"}, {"U 1@9 (Ann, Rome)"}}, []string{"upsert@5 lost", "upsert@9 won"}},
		{"fields of several events", "ignore-null: *", [][]string{{"U 1@3 (Anna, null)"}, {"U 1@1 (Ann, Rome)"}}, []string{"upsert@1 kept", "upsert@3 won"}},
		{"history joins", "stored-as: 2", [][]string{{"U 1@5 (Ann, Rome)", "U 1@7 (Ann, Rome)", "U 1@9 (Bob, Rome)", "D 1@12"}},
			[]string{"upsert@5 won", "upsert@7 joined", "upsert@9 won", "delete@12 won"}},
		{"beliefs", "stored-as: bitemporal", [][]string{{"U 1@5 sys 1 (Ann, Rome)", "U 1@5 sys 3 (Ann, Oslo)", "D 1@9 sys 2", "D 1@8 sys 4"}},
			[]string{"upsert@5 lost sys 1", "upsert@5 won sys 3", "delete@8 won sys 4", "delete@9 won sys 2"}},
		{"a boundary waits", "stored-as: 2", [][]string{{"U 1@9 (Ann, Rome)", "D 1@5"}}, []string{"delete@5 kept", "upsert@9 won"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.config)
			for _, lines := range c.batches {
				b.must(t, lines...)
			}
			if other := "U 2@1 (other, key)"; strings.Contains(c.config, "bitemporal") {
				b.must(t, "U 2@1 sys 9 (other, key)")
			} else {
				b.must(t, other)
			}
			if got := explained(t, b, "1"); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		config string
		want   []string
	}{
		{"", []string{"upsert@5 lost", "upsert@9 hidden"}},
		{"stored-as: 2", []string{"upsert@5 won", "upsert@9 hidden", "upsert@12 won", "delete@15 won"}},
	} {
		b := newBench(t, c.config)
		b.flow.Expectations = []Expectation{{Name: "c", Expr: "city IS NOT NULL", OnViolation: dropRow}}
		b.must(t, "U 1@5 (Ann, Rome)")
		b.must(t, "U 1@9 (Ann, null)")
		if c.config != "" {
			b.must(t, "U 1@12 (Ann, Bonn)", "D 1@15")
		}
		if got := explained(t, b, "1"); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.config, got, c.want)
		}
	}
	b := newBench(t, "")
	b.must(t, "U 1@5 (Ann, Rome)")
	_, err := Explain(context.Background(), b.operator(), map[string]string{"name": "x"}, b.opts)
	wantCode(t, err, CodeColumnsNotFound)
	_, err = Explain(context.Background(), b.operator(), map[string]string{"id": "x"}, b.opts)
	wantCode(t, err, "INVALID_OPTION")
}
