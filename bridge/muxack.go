package bridge

import (
	"time"
)

// This file gives up subscriptions that a server does not acknowledge: their
// clients would wait without a word (MI21).

// ackWait is how long a server may take to acknowledge a subscription.
const ackWait = 10 * time.Second

const notAcknowledged = "the server does not acknowledge subscriptions/listen"

var notAcknowledgedReason = []byte(`"it was not acknowledged"`)

// awaitAck says that a subscription is about to be sent. It is called with mu held.
func (s *muxServer) awaitAck(call *muxCall) {
	wait := ackWait
	if !s.heard.Load() {
		wait = max(wait, s.mux.opts.FirstWait)
	}
	due := time.Now().Add(wait)
	call.listen.due = due
	if s.ackDue.IsZero() || due.Before(s.ackDue) {
		s.ackDue = due
		signal(s.lost)
	}
}

// nextAck returns when the first acknowledgement is due that there may be none
// of; zero: none is.
func (s *muxServer) nextAck() time.Time {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	return s.ackDue
}

// giveUpListens answers the subscriptions whose acknowledgement is overdue, and
// cancels them at the server. The writer calls it.
func (s *muxServer) giveUpListens() {
	x := s.mux
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if s.ackDue.IsZero() || s.ackDue.After(now) {
		return
	}
	s.ackDue = time.Time{}
	for _, call := range x.calls {
		switch {
		case call.listen == nil || !s.has(call) || call.listen.due.IsZero():
		case !call.listen.due.After(now):
			s.cancel(call.number, notAcknowledgedReason, nil)
			x.finish(call, refusal(call, notAcknowledged, timeoutData))
		case s.ackDue.IsZero() || call.listen.due.Before(s.ackDue):
			s.ackDue = call.listen.due
		}
	}
}
