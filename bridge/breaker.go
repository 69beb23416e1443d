package bridge

import (
	"math/rand/v2"
	"time"
)

const (
	// tripAfter is how many failures in a row make a server one that is not
	// waited for.
	tripAfter = 5

	// stable is how long a server must have lived for its end to be no failure,
	// and how long failures are remembered that nobody has asked about since.
	stable = time.Minute
)

// breaker says when a server that has failed may be tried again (ST9).
type breaker struct {
	first, most time.Duration // between attempts
	failures    int           // in a row
	due         time.Time     // of the next attempt
}

// failed says that there was no server to be had, or that it has ended soon.
func (b *breaker) failed(now time.Time) {
	if b.failures > 0 && now.Sub(b.due) > stable {
		b.failures = 0
	}
	b.failures++
	wait := b.first
	for i := 1; i < b.failures && wait < b.most; i++ {
		wait *= 2
	}
	wait = min(wait, b.most)
	b.due = now.Add(wait - rand.N(wait/4+1)) // not all bridges at the same time
}

// ended says that a server has ended after it lived for so long.
func (b *breaker) ended(now time.Time, lived time.Duration) {
	if lived < stable {
		b.failed(now)
		return
	}
	b.failures, b.due = 0, now
}

// open reports whether calls are to be refused at once.
func (b *breaker) open(now time.Time) bool {
	return b.failures >= tripAfter && now.Before(b.due)
}
