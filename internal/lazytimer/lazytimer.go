// Package lazytimer has a timer that is cheap to set and to clear again, for each
// message for example.
package lazytimer

import (
	"sync"
	"time"
)

// minWait is the shortest time for which the runtime's timer is set. It keeps a Do that always sets a time in the past
// from being called without a pause.
const minWait = time.Millisecond

// A Timer calls Do when a time that was set has come. Setting a later time and clearing
// the time leave the runtime's timer as it is: that goes off as it was set first, finds
// out that nothing is due, and goes on waiting if there is something to wait for.
//
// Any number of goroutines may use a Timer. The zero Timer is ready once Do is set. It
// must not be copied.
type Timer struct {
	// Do is called when the time has come, in a goroutine of its own; calls do not
	// overlap. It may call all methods but Stop. It is set before the Timer is first
	// used.
	Do func()

	mu        sync.Mutex     // guards the fields below; not held while Do runs
	timer     *time.Timer    // the runtime's; nil: it was never needed
	firesAt   time.Time      // when timer will go off; zero: it is not running
	due       time.Time      // when Do is to be called; zero: never
	doRunning bool           // Do is being called
	stopped   bool           // Stop was called: Do is not called any more
	doCalls   sync.WaitGroup // what Stop waits for: the call of Do that goes on
}

// Set makes Do be called at due, once, and not at the time that was set before. A zero due only cancels that time. A due
// in the past means a moment from now. After Stop it does nothing.
func (t *Timer) Set(due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = due
	t.arm()
}

// SetAfter makes Do be called when d has passed, and not at the time that was set before.
func (t *Timer) SetAfter(d time.Duration) { t.Set(time.Now().Add(d)) }

// SetAtLatest makes Do be called at due, or at the time that is set already if that is earlier. It is for a Do that is to
// be called when the first of several things is due, and then sets the time for the next.
func (t *Timer) SetAtLatest(due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.due.IsZero() || due.Before(t.due) {
		t.due = due
		t.arm()
	}
}

// Clear cancels the time that was set: Do is not called until a time is set again. A call of Do
// that has begun goes on.
func (t *Timer) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = time.Time{}
}

// Stop makes Do not be called any more, whatever is set, and returns when no call of Do goes on. The caller
// holds no lock that Do takes.
func (t *Timer) Stop() {
	t.mu.Lock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.doCalls.Wait()
}

// arm makes the runtime's timer go off when Do is due, or before. The caller holds mu.
func (t *Timer) arm() {
	if t.due.IsZero() || t.doRunning || t.stopped || !t.firesAt.IsZero() && !t.due.Before(t.firesAt) {
		return
	}
	now := time.Now()
	wait := max(t.due.Sub(now), minWait)
	wakes := now.Add(wait)
	if !t.firesAt.IsZero() && !wakes.Before(t.firesAt) {
		return
	}
	t.firesAt = wakes
	if t.timer == nil {
		t.timer = time.AfterFunc(wait, t.fire)
	} else {
		t.timer.Reset(wait)
	}
}

// fire calls Do, if it is due, and arms the runtime's timer again.
func (t *Timer) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.firesAt = time.Time{}
	if !t.due.IsZero() && !t.doRunning && !t.stopped && !time.Now().Before(t.due) {
		t.due, t.doRunning = time.Time{}, true
		t.doCalls.Add(1)
		t.mu.Unlock()
		t.Do()
		t.doCalls.Done()
		t.mu.Lock()
		t.doRunning = false
	}
	t.arm()
}
