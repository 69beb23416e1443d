package sharing

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file sees to it that a principal whose calls end a process that all share, again
// and again, does not keep the others from it (D.1). Only a process of its own tells
// whose calls those are, so it gets one; the pauses between its starts are its own then.

const (
	// isolationTime is how long a principal has a process of its own after that.
	isolationTime = time.Hour

	// recentCrash is how long ago the end before may be for the two to be compared.
	recentCrash = time.Minute
)

// crashIsolation knows the principals that have a process of their own where others share one.
// Any number of goroutines may use it. In the zero value there are none.
type crashIsolation struct {
	until atomic.Pointer[map[string]time.Time] // never changed, but replaced; nil: there are none

	mu          sync.Mutex // of who replaces it
	lastUsers   []string   // who had calls in progress when the process ended last
	lastEndedAt time.Time  // and when that was
}

// isIsolated reports whether a principal has a process of its own.
func (a *crashIsolation) isIsolated(principal string) bool {
	until := a.until.Load()
	return until != nil && time.Now().Before((*until)[principal])
}

// noteCrash is told who had calls in progress when the process that all share ended, and
// returns the principals that are to share it no more: the only one with calls in progress, else
// those that had some at the end before as well. Clients that have not authenticated cannot be
// told apart.
func (a *crashIsolation) noteCrash(users []string) (part []string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	again := now.Sub(a.lastEndedAt) < recentCrash
	for _, user := range users {
		if user != "" && (len(users) == 1 || again && slices.Contains(a.lastUsers, user)) {
			part = append(part, user)
		}
	}
	a.lastUsers, a.lastEndedAt = users, now
	if len(part) == 0 {
		return nil
	}
	next := make(map[string]time.Time)
	if until := a.until.Load(); until != nil {
		maps.Copy(next, *until)
		maps.DeleteFunc(next, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
	for _, user := range part {
		next[user] = now.Add(isolationTime)
	}
	a.until.Store(&next)
	return part
}

// onCrash returns what a server's Mux tells of crashes; nil: nobody needs to know, for
// only one principal uses the server, or all were asked to share it.
func (p *Pool) onCrash(key Key) func(users []string) (part []string) {
	if key != (Key{}) || !p.opts.IsolateCrashes {
		return nil
	}
	return func(users []string) []string {
		part := p.isolated.noteCrash(users)
		for _, user := range part {
			p.log.Warn("the shared server has ended with calls of this principal in progress: it gets a process of its own", "principal", user, "for", isolationTime)
		}
		return part
	}
}
