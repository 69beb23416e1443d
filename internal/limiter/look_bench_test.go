package limiter

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// BenchmarkLook is one look for places to reclaim, with as many who wait as the
// queue for all processes has, and nothing that could be given up.
func BenchmarkLook(b *testing.B) {
	for _, parties := range []int{1, 1000} {
		b.Run(strconv.Itoa(parties), func(b *testing.B) {
			const many = 1000
			l := New(Options{Max: many, Queue: many})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			for i := range many {
				if _, err := l.Acquire(ctx, strconv.Itoa(i%parties), &tenant{}, time.Hour); err != nil {
					b.Fatal(err)
				}
			}
			for i := range many {
				go func() { _, _ = l.Acquire(ctx, strconv.Itoa(i%parties), nil, time.Hour) }()
			}
			for waiting := 0; waiting < many; {
				l.mu.Lock()
				waiting = l.waiting
				l.mu.Unlock()
			}
			b.ResetTimer()
			for range b.N {
				l.reclaim()
			}
		})
	}
}
