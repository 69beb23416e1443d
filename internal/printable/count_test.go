package printable

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 calls", 1: "1 call", 2: "2 calls"} {
		if got := Count(n, "call", "calls"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
