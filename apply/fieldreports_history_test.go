package apply

import (
	"slices"
	"testing"

	"github.com/sluice-data/sluice/internal/model"
)

// The reports of field-reports section 8: what users of other systems got wrong with
// histories, as a reader would try it.
func TestFieldReports_History(t *testing.T) {
	type step struct {
		events []string
		want   []string // table afterwards; nil: not looked at
		quiet  bool     // no change rows
	}
	both := []string{"U 1@100 (red, x)", "U 1@300 (blue, x)"}
	for _, c := range []struct {
		name, config string
		steps        []step
	}{
		{"B63 a late event inside a closed interval", "", []step{{both, nil, false}, {[]string{"U 1@200 (green, x)"},
			[]string{"1, blue, x, 300→∞", "1, green, x, 200→300", "1, red, x, 100→200"}, false}}},
		{"B63 a late event that changes nothing", "", []step{{both, nil, false}, {[]string{"U 1@200 (red, x)"}, []string{"1, blue, x, 300→∞", "1, red, x, 100→300"}, true}}},
		{"B63 a late delete", "", []step{{both, nil, false}, {[]string{"D 1@200"}, []string{"1, blue, x, 300→∞", "1, red, x, 100→200"}, false}}},
		{"B63 before the first", "", []step{{both, nil, false}, {[]string{"U 1@50 (green, x)"}, []string{"1, blue, x, 300→∞", "1, green, x, 50→100", "1, red, x, 100→300"}, false}}},
		{"B63 a newer equal one", "", []step{{both, nil, false}, {[]string{"U 1@400 (blue, x)"}, []string{"1, blue, x, 300→∞", "1, red, x, 100→300"}, true}}},
		{"B63 a delete, then an event before it", "", []step{{both, nil, false}, {[]string{"D 1@350"}, nil, false}, {[]string{"U 1@320 (blue, x)"},
			[]string{"1, blue, x, 300→350", "1, red, x, 100→300"}, true}}},
		{"B65 the same event twice", "", []step{{[]string{"U 1@10 (a, x)"}, nil, false}, {[]string{"U 1@10 (a, x)"}, []string{"1, a, x, 10→∞"}, true}}},
		{"B65 two contents", "", []step{{[]string{"U 1@10 (a, x)"}, nil, false}, {[]string{"U 1@10 (b, x)"}, []string{"1, b, x, 10→∞"}, false},
			{[]string{"U 1@10 (a, x)"}, []string{"1, b, x, 10→∞"}, true}}},
		{"B65 upsert and delete", "", []step{{[]string{"D 1@10"}, nil, true}, {[]string{"U 1@10 (a, x)"}, []string{"1, a, x, 10→∞"}, false}, {[]string{"D 1@10"}, []string{"1, a, x, 10→∞"}, true}}},
		{"B65 a replay of older ones", "", []step{{[]string{"U 1@3 (a, x)", "U 1@4 (b, x)", "D 1@5", "U 1@6 (c, x)", "U 1@10 (d, x)"}, nil, false},
			{[]string{"U 1@3 (a, x)", "U 1@4 (b, x)", "D 1@5", "U 1@6 (c, x)"}, []string{"1, a, x, 3→4", "1, b, x, 4→5", "1, c, x, 6→10", "1, d, x, 10→∞"}, true}}},
		{"B68 back-filling older years", "seq: STRING", []step{{[]string{"U 1@2024-03 (a, x)", "U 2@2024-01 (b, x)", "U 3@2024-02 (c, x)"}, nil, false},
			{[]string{"U 1@2019-01 (z, x)", "U 2@2020-01 (b, x)", "U 3@2023-01 (y, x)", "U 1@2022-01 (w, x)"},
				[]string{"1, a, x, 2024-03→∞", "1, w, x, 2022-01→2024-03", "1, z, x, 2019-01→2022-01", "2, b, x, 2020-01→∞", "3, c, x, 2024-02→∞", "3, y, x, 2023-01→2024-02"}, false}}},
		{"B70 nulls and empty text", "", []step{{[]string{"U 1@1 (x, null)", "U 1@2 (null, x)", "U 1@3 (null, null)"}, nil, false}, {[]string{"U 1@4 (null, null)"}, nil, true},
			{[]string{"U 1@5 (e, e)", "U 1@6 (x, null)"}, []string{"1, e, e, 5→6", "1, null, null, 3→5", "1, null, x, 2→3", "1, x, null, 1→2", "1, x, null, 6→∞"}, false}}},
		{"B70 NaN is equal to NaN", "data: n DOUBLE, m STRING", []step{{[]string{"U 1@1 (NaN, x)"}, nil, false}, {[]string{"U 1@2 (NaN, x)"}, []string{"1, NaN, x, 1→∞"}, true}}},
		{"B70 only an untracked column", "track: name", []step{{[]string{"U 1@1 (a, x)"}, nil, false}, {[]string{"U 1@2 (a, y)"}, []string{"1, a, y, 1→∞"}, false}}},
		{"B71 deletes repeated, a key comes back", "", []step{{[]string{"U 1@10 (a, x)", "D 1@20"}, nil, false}, {[]string{"D 1@30"}, nil, true}, {[]string{"U 1@40 (a, x)", "D 1@45"}, nil, false},
			{[]string{"D 9@1"}, []string{"1, a, x, 10→20", "1, a, x, 40→45"}, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := c.config + "\nstored-as: 2"
			script, err := model.NewScript(config)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, config)
			var all []string
			for i, s := range c.steps {
				b.must(t, s.events...)
				all = append(all, s.events...)
				if _, err := script.Batch(s.events); err != nil {
					t.Fatal(err)
				}
				if s.want != nil {
					b.wantTable(t, s.want...)
				}
				b.wantTable(t, script.Table()...)
				if feed := b.feed(t); s.quiet && len(feed) > 0 {
					t.Errorf("step %d shows %q", i, feed)
				}
			}
			slices.Reverse(all)
			again := newBench(t, config)
			again.flow.BatchRows = 1
			again.must(t, all...)
			again.wantTable(t, script.Table()...)
		})
	}
	t.Run("B66 null key, null and NaN sequence refuse the batch", func(t *testing.T) {
		b := newBench(t, "seq: DOUBLE\nstored-as: 2")
		b.must(t, "U 1@5 (a, x)")
		for code, line := range map[string]string{CodeNullKey: "U null@6 (b, x)", CodeNullSequence: "U 2@null (b, x)", CodeNaNSequence: "U 2@NaN (b, x)"} {
			_, err := b.run("U 3@6 (c, x)", line)
			wantCode(t, err, code)
			b.wantTable(t, "1, a, x, 5→∞")
		}
	})
}
