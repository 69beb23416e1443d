package observe

import (
	"sync"
	"testing"
)

// Each key has the value that was kept last, and keeps it whatever is kept under others.
func TestWatcherValues(t *testing.T) {
	var k watcherValues
	wants := func(key int, want any) {
		t.Helper()
		if got := k.Get(key); got != want {
			t.Errorf("%d has %v, want %v", key, got, want)
		}
	}
	wants(1, nil)
	for _, s := range []struct{ key, value int }{{1, 10}, {2, 20}, {3, 30}, {1, 11}, {2, 21}, {2, 22}} {
		k.Set(s.key, s.value)
	}
	wants(1, 11)
	wants(2, 22)
	wants(3, 30)
	n := 0
	for v := k.latest.Load(); v != nil; v = v.before {
		n++
	}
	if n != 3 {
		t.Errorf("%d values are kept under 3 keys", n)
	}
	if got := k.GetOrMake(3, func() any { t.Error("made a value that is there"); return 31 }); got != 30 {
		t.Errorf("got %v", got)
	}
}

// All who want a value at the same time get the same one.
func TestWatcherValueIsMadeOnce(t *testing.T) {
	var k watcherValues
	var all [16]any
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() {
			k.Set(i, i)
			all[i] = k.GetOrMake("shared", func() any { return new(int) })
		})
	}
	done.Wait()
	for i := range all {
		if all[i] != all[0] || k.Get(i) != i {
			t.Errorf("%d got another value, or lost its own: %v", i, k.Get(i))
		}
	}
}
