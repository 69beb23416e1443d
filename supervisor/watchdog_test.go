package supervisor

import (
	"maps"
	"strings"
	"testing"
)

func TestWatchdogFollows(t *testing.T) {
	g := guarded{}
	g.follow(strings.NewReader("+10 a\n+11 b.c\n\n+12 \n-10\n-99\n+1 x\n+0 x\n+-5 x\nnoise\n+13 cut o"))
	if want := (guarded{11: "b.c", 12: "", 13: "cut o"}); !maps.Equal(g, want) {
		t.Errorf("guards %v, want %v", g, want)
	}
}
