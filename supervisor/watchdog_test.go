package supervisor

import (
	"maps"
	"strings"
	"testing"
)

func TestWatchdogFollows(t *testing.T) {
	g := newGuardedSet()
	env := strings.Repeat("x", 1<<20) // longer than a pipe or any buffer
	g.readLines(strings.NewReader("+10 a\n+11 b.c\n\n+12 \n-10\n-99\n+1 x\n+0 x\n+-5 x\nnoise\n" +
		`[1 {"Engine":"/x","Env":["` + env + `"]}` + "\n[2 {}\n]2\n]7\n[3 {\n+13 cut o"))
	if want := map[int]string{11: "b.c", 12: "", 13: "cut o"}; !maps.Equal(g.groups, want) {
		t.Errorf("guards %v, want %v", g.groups, want)
	}
	if c := g.containers[1]; len(g.containers) != 1 || c.Engine != "/x" || c.Env[0] != env {
		t.Errorf("guards %d containers, want the first", len(g.containers))
	}
}
