// Package clientstate is what a transport has to know of the client at its other end: the
// requests that are open with the client, and the protocol version of the session.
package clientstate

import (
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxOpenIDs is how many open requests are remembered of one client.
const maxOpenIDs = 1000

// ServerRequests are the requests to a client that it has not answered, as seen by
// a transport that has the client at the other end: they tell what its broken
// messages were to be. The zero ServerRequests has none. It may be used by many
// goroutines.
type ServerRequests struct {
	mu      sync.Mutex
	openIDs map[jsonrpc.ID]struct{} // of the requests that the client has not answered
}

// NoteSent looks at a message on its way to the client, before the client can know
// of it. Only requests and cancellations cost anything.
func (q *ServerRequests) NoteSent(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		q.noteRequestOrCancel(m)
	}
}

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

// NoteReceived looks at a message of the client. Only responses cost anything.
func (q *ServerRequests) NoteReceived(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response {
		q.removeID(m.ID())
	}
}

// WasMeantAsResponse reports whether what the client has sent as e can only have been its
// answer to a request: a response, or an object without a method that has the
// id of one. The client is not to be told with that id: the two sides count
// their requests apart, so it could have one of its own under it.
func (q *ServerRequests) WasMeantAsResponse(e *jsonrpc.Error) bool {
	if !e.IsAnswer() {
		return false
	}
	asked := q.removeID(e.ID)
	return asked || e.Kind == jsonrpc.Response
}

// removeID forgets a request; false: there is none of this id.
func (q *ServerRequests) removeID(id jsonrpc.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, _, ok := jsonrpc.Find(q.openIDs, id)
	delete(q.openIDs, key)
	return ok
}
