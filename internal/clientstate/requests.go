// Package clientstate is what a transport has to know of the client at its other end: the
// requests that are open with the client, and the protocol version of the session.
package clientstate

import (
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxOpenIDs is how many requests that a client has not answered are remembered; further ones are not.
const maxOpenIDs = 1000

// ServerRequests are the requests to a client that it has not answered, as seen by
// a transport that has the client at the other end: they tell what its broken
// messages were to be. The zero ServerRequests has none. It may be used by many
// goroutines.
type ServerRequests struct {
	mu      sync.Mutex              // guards openIDs
	openIDs map[jsonrpc.ID]struct{} // the ids of the requests that the client has not answered and that were not cancelled: maxOpenIDs at most, and not those that came when there were so many; nil: none yet
}

// NoteSent notes a request on its way to the client, or that one is cancelled. It is called with each
// message, before the client can know of it; the others cost nothing.
func (q *ServerRequests) NoteSent(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		q.noteRequestOrCancel(m)
	}
}

// noteRequestOrCancel does the work of NoteSent for a request or a notification.
func (q *ServerRequests) noteRequestOrCancel(m jsonrpc.Message) {
	switch {
	case m.Kind() == jsonrpc.Request:
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.openIDs == nil {
			q.openIDs = make(map[jsonrpc.ID]struct{})
		}
		if len(q.openIDs) < maxOpenIDs {
			q.openIDs[m.ID()] = struct{}{}
		}
	case m.Method() == "notifications/cancelled":
		q.removeID(m.CancelledID())
	}
}

// NoteReceived notes that a request is answered. It is called with each message of the client; those that
// are no responses cost nothing.
func (q *ServerRequests) NoteReceived(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response {
		q.removeID(m.ID())
	}
}

// WasMeantAsResponse reports whether e, the fault of a broken message of the client, is about one that can
// only have been its answer to a request: a response, or an object without a method that has the id of a
// request. It forgets the request. The client is not to be told of e with that id: the two sides count
// their requests apart, so the client could have a request of its own under it.
func (q *ServerRequests) WasMeantAsResponse(e *jsonrpc.Error) bool {
	if !e.IsAnswer() {
		return false
	}
	asked := q.removeID(e.ID)
	return asked || e.Kind == jsonrpc.Response
}

// removeID forgets the request with this id; false: there is none.
func (q *ServerRequests) removeID(id jsonrpc.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, _, ok := jsonrpc.Find(q.openIDs, id)
	delete(q.openIDs, key)
	return ok
}
