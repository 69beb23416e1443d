package watchdogwait

import (
	"maps"
	"strings"
	"testing"
)

func TestReadLines(t *testing.T) {
	env := strings.Repeat("x", 1<<20) // longer than a pipe or any buffer
	container := `{"Engine":"/x","Env":["` + env + `"]}`
	s := ReadLines(strings.NewReader("+10 a\n+11 b.c\n\n+12 \n-10\n-99\n+1 x\n+0 x\n+-5 x\nnoise\n" +
		"[1 " + container + "\n[2 {}\n]2\n]7\n?\n?aa.1\n?bb\n?cc\n!cc\n!dd\n+13 bb\n+14 cut o"))
	if want := map[int]string{11: "b.c", 12: "", 13: "bb", 14: "cut o"}; !maps.Equal(s.Groups, want) {
		t.Errorf("process groups %v, want %v", s.Groups, want)
	}
	if want := map[string]bool{"aa.1": true}; !maps.Equal(s.Starting, want) {
		t.Errorf("starts %v, want %v", s.Starting, want)
	}
	if len(s.Containers) != 1 || string(s.Containers[1]) != container {
		t.Errorf("%d containers, want the first", len(s.Containers))
	}
}
