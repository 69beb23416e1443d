package mux

import (
	"maps"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
)

// This file finds out whose requests may have ended a server, and parts those from it
// who are to share it no longer (D.1).

// users returns the principals that have requests in progress at the server, without open
// subscriptions; if there are none, the one whose request was the last to be over. "" stands for
// all who have not authenticated. It is called with mu held.
func (s *server) users() []string {
	users := make(map[string]bool)
	for _, call := range s.mux.ledger.calls {
		if s.mayKnow(call) && call.listen == nil {
			users[call.conn.principal] = true
		}
	}
	if len(users) == 0 && s.hadRequests {
		users[s.lastUser] = true
	}
	return slices.Sorted(maps.Keys(users))
}

// noteLastUser is called when a call leaves the ledger: it notes the principal of a request that the server may know
// of. It is called with mu held.
func (s *server) noteLastUser(call *call) {
	if s.mayKnow(call) && call.listen == nil {
		s.hadRequests, s.lastUser = true, call.conn.principal
	}
}

// endConnsOf ends the Conns of these principals, because a server has ended for the reason
// err. It is called with mu held, when the calls that it owed are answered.
func (x *Mux) endConnsOf(principals []string, err error) {
	for c := range x.conns {
		if slices.Contains(principals, c.principal) {
			c.endWhenDelivered(&serverEndError{err})
			x.removeConn(c)
		}
	}
}

// serverEndError is the error with which endConnsOf ends a Conn, because the server has ended with err. Its text for
// clients is the one that any end of a server has (ownmsg.Ending).
type serverEndError struct {
	err error // how the server has ended
}

// Error returns the text that clients may see.
func (e *serverEndError) Error() string {
	text, _ := ownmsg.Ending(e.err)
	return text
}

// PublicError returns the text that clients may see; ownmsg.Unavailable asks for it.
func (e *serverEndError) PublicError() string { return e.Error() }

// Unwrap returns how the server has ended.
func (e *serverEndError) Unwrap() error { return e.err }
