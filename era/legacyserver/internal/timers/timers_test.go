package timers

import (
	"slices"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
)

// Timers fire in the order of their times, also those that others set, and not
// when they were stopped.
func TestTimers(t *testing.T) {
	var all Timers
	var fired []string
	start := time.Unix(1_800_000_000, 0)
	set := func(after time.Duration, name string, then func(now time.Time)) *Timer {
		return all.Set(start.Add(after), func(now time.Time, _ *era.Out) {
			fired = append(fired, name)
			if then != nil {
				then(now)
			}
		})
	}
	stopped := set(2*time.Second, "stopped", nil)
	set(3*time.Second, "last", nil)
	set(time.Second, "first", func(time.Time) { all.Stop(stopped) })
	set(2500*time.Millisecond, "sets another", func(time.Time) { set(0, "late", nil) })
	set(time.Minute, "not yet", nil)
	if got := all.Next(); !got.Equal(start.Add(time.Second)) {
		t.Errorf("the first is due at %v", got)
	}
	all.FireDue(start.Add(5*time.Second), &era.Out{})
	all.Stop(stopped) // again, and nil
	all.Stop(nil)
	if want := []string{"first", "sets another", "late", "last"}; !slices.Equal(fired, want) {
		t.Errorf("fired: %v, want %v", fired, want)
	}
	if got := all.Next(); !got.Equal(start.Add(time.Minute)) {
		t.Errorf("the next is due at %v", got)
	}
}
