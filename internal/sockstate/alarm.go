package sockstate

import (
	"sync"
	"time"
)

// Alarm calls a function when a time that was set has passed. To set it and to
// clear it for each message costs next to nothing: the timer goes off when it was
// first set for, and finds out. Any number of goroutines may use it.
type Alarm struct {
	do func()

	mu    sync.Mutex
	timer *time.Timer
	at    time.Time // when timer goes off; zero: it does not
	due   time.Time // when do is to be called; zero: never
	over  bool      // Stop was called
}

// NewAlarm returns an Alarm that calls do, in a goroutine of its own.
func NewAlarm(do func()) *Alarm {
	a := &Alarm{do: do}
	a.timer = time.AfterFunc(time.Hour, a.look)
	a.timer.Stop()
	return a
}

// Set makes the function be called after d, and not when it was to be before.
func (a *Alarm) Set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.due = time.Now().Add(d)
	if a.at.IsZero() || a.due.Before(a.at) {
		a.at = a.due
		a.timer.Reset(d)
	}
}

// Clear makes it not be called.
func (a *Alarm) Clear() {
	a.mu.Lock()
	a.due = time.Time{}
	a.mu.Unlock()
}

// Stop is Clear for good: it cannot be set any more.
func (a *Alarm) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due, a.at, a.over = time.Time{}, time.Time{}, true
	a.timer.Stop()
}

func (a *Alarm) look() {
	a.mu.Lock()
	a.at = time.Time{}
	left := time.Until(a.due)
	now := !a.due.IsZero() && left <= 0
	if !a.due.IsZero() && !now {
		a.at = a.due
		a.timer.Reset(left)
	}
	if now {
		a.due = time.Time{}
	}
	a.mu.Unlock()
	if now {
		a.do()
	}
}
