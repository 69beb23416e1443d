package mux

import (
	"sync"
	"time"
)

// soonest keeps a filter whose Due stays in the past from being called without end.
const soonest = time.Millisecond

// timers call a function when something is due. A time that is put off costs
// nothing: the timer goes off as it was set, and finds out.
type timers struct {
	running sync.WaitGroup
	timer   *time.Timer
	at      time.Time // when it goes off; zero: it has, or none was set
}

// set makes f be called at due or earlier, in a goroutine of its own; f must
// find out whether anything is due and call set again. A zero due is never.
func (s *timers) set(due time.Time, f func()) {
	if due.IsZero() || !due.Before(s.at) && time.Now().Before(s.at) {
		return
	}
	s.stop()
	wait := max(time.Until(due), soonest)
	s.at = time.Now().Add(wait)
	s.running.Add(1)
	s.timer = time.AfterFunc(wait, func() {
		defer s.running.Done()
		f()
	})
}

func (s *timers) stop() {
	if s.timer != nil && s.timer.Stop() {
		s.running.Done()
	}
	s.timer = nil
}

// wait returns when no f runs any more, after stop.
func (s *timers) wait() { s.running.Wait() }
