package mux

import (
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

const (
	// tripAfter is how many failures in a row make a server one that is not
	// waited for.
	tripAfter = 5

	// stableAfter is how long a server must have lived for its end to be no failure,
	// and how long failures are remembered that nobody has asked about since.
	stableAfter = time.Minute

	// maxWorkingFailures is how many failures in a row count for a server that has answered
	// calls between them: the pauses grow, but calls go on waiting for the next one.
	maxWorkingFailures = 2
)

// breaker says when a server that has failed may be tried again (ST9).
type breaker struct {
	minBackoff, maxBackoff time.Duration // between attempts
	failures               int           // in a row
	nextAttempt            time.Time     // of the next attempt
	briefRuns              int           // servers in a row that have done their work and soon ended
}

// recordFailure says that there was no server to be had, or that it has ended soon.
func (b *breaker) recordFailure(now time.Time) {
	if b.failures > 0 && now.Sub(b.nextAttempt) > stableAfter {
		b.failures = 0
	}
	b.failures++
	wait := b.minBackoff
	for i := 1; i < b.failures && wait < b.maxBackoff; i++ {
		wait *= 2
	}
	wait = min(wait, b.maxBackoff)
	b.nextAttempt = now.Add(wait - rand.N(wait/4+1)) // not all bridges at the same time
}

// recordEnd says that a server has ended after it lived for so long. One that has answered calls
// works, though something makes it crash: calls go on waiting for the next one, for some seconds.
func (b *breaker) recordEnd(now time.Time, lived time.Duration, answered bool) {
	if lived < stableAfter {
		if answered {
			b.failures = min(b.failures, maxWorkingFailures)
		}
		b.recordFailure(now)
		return
	}
	b.failures, b.briefRuns, b.nextAttempt = 0, 0, now
}

// recordFinishedWork says that a server has ended which had done its work: that is no failure,
// however short it was, and calls may start the next one at once. It returns how
// long those wait that have no work for it: else each server would be started
// because the last one has ended.
func (b *breaker) recordFinishedWork(now time.Time, lived time.Duration) (idle time.Duration) {
	b.failures, b.nextAttempt = 0, now
	if lived >= stableAfter {
		b.briefRuns = 0
		return 0
	}
	idle = min(b.minBackoff<<min(b.briefRuns, 16), b.maxBackoff)
	b.briefRuns++
	return idle
}

// IsOrderly reports whether the error of a server's Receive says that it has ended by
// its own choice: the end of its messages, of a process with exit status 0.
func IsOrderly(err error) bool {
	if exit, ok := errors.AsType[interface {
		error
		Success() bool
	}](err); ok {
		return exit.Success()
	}
	return err == nil || errors.Is(err, io.EOF)
}

// isOpen reports whether calls are to be refused at once.
func (b *breaker) isOpen(now time.Time) bool {
	return b.failures >= tripAfter && now.Before(b.nextAttempt)
}
