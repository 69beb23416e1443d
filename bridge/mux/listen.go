package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file keeps subscriptions open at a server that lives, but to which each
// has a connection of its own, as over HTTP: that may break alone (C.2).

// steadyListenTime is how long a subscription must have lasted, since it was acknowledged, for its loss to count as
// the first: then it is sent again after the shortest wait.
const steadyListenTime = 5 * time.Second

// saysServerLost reports whether an answer to a subscription is an error that says that it was lost on the way to the
// server, or that the server is out of reach. Our own clients, and other bridges, give such errors (C.7).
func saysServerLost(m jsonrpc.Message) bool {
	if !m.IsError() {
		return false
	}
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	switch reason {
	case "connection_lost", "unreachable", "timeout", "no_answer", "server_down", "server_ended", "server_unavailable", "shutting_down", "busy":
		return true
	case "http_status":
		status := m.Lookup("error", "data", "status")
		return len(status) == 3 && status[0] == '5'
	}
	return false
}

// relistenLater has the writer send a subscription again after a wait, which grows each time that the subscription has
// not lasted. It is called with mu held.
func (s *server) relistenLater(call *call) {
	x := s.mux
	l := call.listen
	if !l.ackedAt.IsZero() && time.Since(l.ackedAt) > steadyListenTime {
		l.tries = 0
	}
	l.ackedAt, l.ackDeadline = time.Time{}, time.Time{}
	wait := min(x.opts.Backoff<<min(l.tries, 16), x.opts.MaxBackoff)
	l.tries++
	x.ledger.assignServerID(call)
	l.reopening, call.written = true, false
	s.delayedListens = append(s.delayedListens, delayedListen{call, time.Now().Add(wait)})
	signal(s.delayedAdded)
}

// delayedListen is a subscription that was open before and is to be sent again later: to the server that has lost it
// (relistenLater), or to a new one (serverState.noListenDialBefore).
type delayedListen struct {
	call   *call     // the call of the subscription
	sendAt time.Time // when the subscription is to be sent
}

// nextListenDue returns when the first of delayedListens is to be sent; zero: there is none.
func (s *server) nextListenDue() time.Time {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	var first time.Time
	for _, l := range s.delayedListens {
		if first.IsZero() || l.sendAt.Before(first) {
			first = l.sendAt
		}
	}
	return first
}

// sendDueListens sends those of delayedListens whose time has come. The writer calls it.
func (s *server) sendDueListens() {
	s.mux.mu.Lock()
	now := time.Now()
	var due []*call
	rest := s.delayedListens[:0]
	for _, l := range s.delayedListens {
		switch {
		case l.call.removed || l.call.server != s:
		case l.sendAt.After(now):
			rest = append(rest, l)
		default:
			due = append(due, l.call)
		}
	}
	s.delayedListens = rest
	s.mux.mu.Unlock()
	for _, call := range due {
		s.send(outItem{call: call, m: call.listen.listenRequest})
	}
}
