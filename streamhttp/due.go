package streamhttp

import "time"

// dueList are streams that become late, all after the same time: in order. The
// session's lock guards it. The zero value is empty.
type dueList struct{ first, last *stream }

func (l *dueList) add(st *stream) {
	if l.first == nil {
		l.first = st
	} else {
		l.last.nextDue = st
	}
	l.last = st
}

// look makes those late whose time has come, forgets those that need not any
// more, and returns the next time; zero: there is none.
func (l *dueList) look(now time.Time) (next time.Time) {
	for st := l.first; st != nil; st = l.first {
		awaited := !st.closed && !st.committed && st.reader != nil
		if awaited && st.due.After(now) {
			return st.due
		}
		if awaited {
			st.late = true
			st.reader.poke()
		}
		l.first, st.nextDue = st.nextDue, nil
	}
	l.last = nil
	return time.Time{}
}

// awaitCommit sets the time when st is late. One timer is for all of the session's
// streams, and is set anew when it has gone off: one for each would wake a thread
// for nearly each of them.
func (s *session) awaitCommit(st *stream, opens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	wait, list := s.opts.CommitAfter, &s.due.calls
	if opens || s.alone {
		wait, list = initializeCommit, &s.due.long
	}
	st.due = time.Now().Add(wait)
	list.add(st)
	if s.lookAt.IsZero() || st.due.Before(s.lookAt) {
		s.lookIn(st.due, wait)
	}
}

// lookIn has lookForLate called. The caller holds the lock.
func (s *session) lookIn(at time.Time, wait time.Duration) {
	s.lookAt = at
	if s.look == nil {
		s.look = time.AfterFunc(wait, s.lookForLate)
	} else {
		s.look.Reset(wait)
	}
}

// lookForLate has the replies become streams whose time has come.
func (s *session) lookForLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookAt = time.Time{}
	if s.ended {
		return
	}
	now := time.Now()
	next, other := s.due.calls.look(now), s.due.long.look(now)
	if next.IsZero() || !other.IsZero() && other.Before(next) {
		next = other
	}
	if !next.IsZero() {
		s.lookIn(next, next.Sub(now))
	}
}
