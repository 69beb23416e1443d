//go:build !race

package stdio

import (
	"context"
	"testing"
)

// One allocation per message received, none per message sent. (The race
// detector adds its own.)
func TestAllocations(t *testing.T) {
	x, y := pipes(t, Options{}, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := benchMessage(1000)
	got := testing.AllocsPerRun(1000, func() {
		if err := x.Send(ctx, m); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Recv(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if got > 1 {
		t.Errorf("%v allocations per message, want 1", got)
	}
}
