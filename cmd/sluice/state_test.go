package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Rewind, refresh and reset through the command (E69).
func TestState_Operations(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "e.jsonl", `{"id":1,"name":"Ann","ts":1}`+"\n")
	apply := []string{"apply", "--into", "t", "--from", "e.jsonl", "--keys", "id", "--sequence-by", "ts", "--columns", "id,name"}
	must(t, dir, apply...)
	put(t, dir, "e.jsonl", `{"id":1,"name":"Ann","ts":1}`+"\n"+`{"id":1,"name":"Bob","ts":2}`+"\n")
	must(t, dir, apply...)
	rows := func(name, want string) {
		t.Helper()
		sameRows(t, name, must(t, dir, "cat", "t", "-o", "jsonl"), want)
	}
	rows("applied", `{"id":1,"name":"Bob"}`)
	must(t, dir, "rewind", "t", "--version", "1")
	rows("rewound", `{"id":1,"name":"Ann"}`)
	must(t, dir, apply...)
	rows("read on", `{"id":1,"name":"Bob"}`)
	must(t, dir, "refresh", "t", "--full")
	rows("refreshed", "")
	refused(t, sluice(t, dir, "rewind", "t", "--version", "1"), exitRefused, "REWIND_ACROSS_REFRESH")
	must(t, dir, apply...)
	must(t, dir, "reset", "t", "--into", "t")
	if out := must(t, dir, append(apply, "-o", "json")...); !strings.Contains(out, `"read":2`) && !strings.Contains(out, `"read": 2`) {
		t.Errorf("after reset: %s", out)
	}
	rows("at the end", `{"id":1,"name":"Bob"}`)
	for _, args := range [][]string{{"rewind", "t"}, {"refresh", "t"}, {"reset", "t"}, {"rewind", "t", "--version", "1", "--timestamp", "2024-01-01"}} {
		refused(t, sluice(t, dir, args...), exitUsage, "MISSING_FLAG")
	}
	refused(t, sluice(t, dir, "reset", "nobody", "--into", "t"), exitRefused, "UNKNOWN_FLOW")

	var r struct {
		Apply struct {
			State struct {
				Rows  int64
				Flows []struct {
					Flow      string
					Positions []struct{ Offset int64 }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(must(t, dir, "inspect", "t", "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	if s := r.Apply.State; s.Rows == 0 || len(s.Flows) != 1 || s.Flows[0].Flow != "t" || len(s.Flows[0].Positions) != 1 {
		t.Errorf("inspect: %+v", r)
	}
}
