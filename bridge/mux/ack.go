package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
)

// This file sees to it that nobody waits without a word for a subscription that
// the server does not acknowledge (MI21).

// ackTimeout is how long a server may take to acknowledge a subscription after it was sent. The server may have to be
// started or initialized for it, or be busy with something else.
const ackTimeout = time.Minute

// notAcknowledgedReason is the reason, as JSON, in the cancellation of a subscription that the server has not
// acknowledged within ackTimeout.
var notAcknowledgedReason = []byte(`"it was not acknowledged"`)

// startAckTimeout is called when a subscription is about to be sent: the server has ackTimeout to acknowledge it. It
// is called with mu held.
func (s *server) startAckTimeout(call *call) {
	call.listen.ackDeadline = time.Now().Add(ackTimeout)
	s.ackTimer.SetAtLatest(call.listen.ackDeadline)
}

// cancelOverdueListens cancels the subscriptions that the server has not acknowledged in time. A subscription that was
// acknowledged before is sent again later (ST9); any other is answered with an error. ackTimer calls it; the writer
// cannot, as it may be waiting for the server.
func (s *server) cancelOverdueListens() {
	x := s.mux
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.serverState.server != s {
		return
	}
	now := time.Now()
	var next time.Time
	var overdue []*call
	for _, call := range x.ledger.calls {
		switch {
		case call.listen == nil || !s.mayKnow(call) || call.listen.ackDeadline.IsZero():
		case !call.listen.ackDeadline.After(now):
			overdue = append(overdue, call)
		case next.IsZero() || call.listen.ackDeadline.Before(next):
			next = call.listen.ackDeadline
		}
	}
	for _, call := range overdue {
		s.queueCancellation(call.serverID, notAcknowledgedReason, nil, nil)
		if call.listen.acknowledged != nil {
			s.relistenLater(call)
		} else {
			x.finish(call, refusal(call, era.NotAcknowledged, ownmsg.TimedOutData))
		}
	}
	s.ackTimer.Set(next)
}
