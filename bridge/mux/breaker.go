package mux

import (
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

const (
	// tripAfter is from how many failures in a row on the breaker is open: calls are refused until the next attempt,
	// and do not wait for a server.
	tripAfter = 5

	// stableAfter is how long a server must have lived for its end to be no failure. A failure
	// that comes later than this after nextAttempt counts as the first.
	stableAfter = time.Minute

	// maxWorkingFailures: when a server ends soon that has answered calls, only so many of the failures before it
	// count. So there are never tripAfter of them, and calls go on waiting for the next server.
	maxWorkingFailures = 2
)

// breaker says when a server may be dialed again after others have failed or ended (ST9).
type breaker struct {
	// minBackoff is the wait for the next attempt after a first failure, maxBackoff the longest wait
	minBackoff, maxBackoff time.Duration
	failures               int       // how many failures in a row count: all of them, or fewer (maxWorkingFailures)
	nextAttempt            time.Time // no server is dialed before this time
	briefRuns              int       // how many servers have done their work and ended soon, since one has lived for stableAfter
}

// recordFailure records that a server could not be dialed, or has ended soon after its start: the next attempt comes
// later the more failures there were in a row.
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

// recordEnd records that a server has ended, lived after its start, which is a failure if that was soon. answered: it
// has answered a call. Such a server works, though something makes it crash: calls go on waiting for the next one
// (maxWorkingFailures).
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

// recordFinishedWork records that a server has ended, lived after its start, which had done its work. That is no
// failure, however soon it was: calls may start the next server at once. idle is for how long open subscriptions alone
// must not start it: they would start each server because the last one has ended.
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

// IsOrderly reports whether the error of a server's Receive says that the server has ended by
// its own choice: it is nil or io.EOF, or that of a process that has ended with status 0.
func IsOrderly(err error) bool {
	if exit, ok := errors.AsType[interface {
		error
		Success() bool
	}](err); ok {
		return exit.Success()
	}
	return err == nil || errors.Is(err, io.EOF)
}

// isOpen reports whether calls are to be refused at once, because servers have failed too often and the next attempt
// is not due.
func (b *breaker) isOpen(now time.Time) bool {
	return b.failures >= tripAfter && now.Before(b.nextAttempt)
}
