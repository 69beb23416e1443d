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
	// isolationTime is how long a principal has a process of its own after its calls have ended the shared one.
	isolationTime = time.Hour

	// recentCrash is how long ago the shared process may have ended before for the two ends to be compared.
	recentCrash = time.Minute
)

// A crashIsolation knows the principals that have a process of their own, for isolationTime, where others share
// one, because that has ended with calls of theirs in progress (noteCrash). Any number of goroutines may use it.
// In the zero value there are none.
type crashIsolation struct {
	until atomic.Pointer[map[string]time.Time] // by principal, until when it has a process of its own; the map is never changed, but replaced; nil: no principal has one

	mu          sync.Mutex // guards lastUsers and lastEndedAt, and is held by who replaces until
	lastUsers   []string   // the principals that had calls in progress when the shared process ended last
	lastEndedAt time.Time  // when the shared process ended last
}

// isIsolated reports whether a principal has a process of its own now.
func (a *crashIsolation) isIsolated(principal string) bool {
	until := a.until.Load()
	return until != nil && time.Now().Before((*until)[principal])
}

// noteCrash is called when the shared process has ended with calls of these principals (users) in progress.
// It returns those that are to share it no more: the only one, or else those that had calls in progress also
// at the end before, if that was recently. Clients that have not authenticated ("") cannot be told apart, and
// go on sharing it.
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

// onCrash returns the OnCrash of the Mux of the server with this key. Of users, the principals that had calls in progress
// when the server ended, that function returns those that now get a server of their own for isolationTime (noteCrash). nil: the
// server is not the one that all share (the zero Key), or Options.IsolateCrashes is false.
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
