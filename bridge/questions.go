package bridge

import (
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxQuestions is how many open questions are remembered of one client.
const maxQuestions = 1000

// Questions are the requests to a client that it has not answered, as seen by
// a transport that has the client at the other end: they tell what its broken
// messages were to be. The zero Questions has none. It may be used by many
// goroutines.
type Questions struct {
	mu   sync.Mutex
	open map[jsonrpc.ID]struct{}
}

// Sent looks at a message on its way to the client, before the client can know
// of it. Only requests and cancellations cost anything.
func (q *Questions) Sent(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		q.sent(m)
	}
}

func (q *Questions) sent(m jsonrpc.Message) {
	switch {
	case m.Kind() == jsonrpc.Request:
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.open == nil {
			q.open = make(map[jsonrpc.ID]struct{})
		}
		if len(q.open) < maxQuestions {
			q.open[m.ID()] = struct{}{}
		}
	case m.Method() == say.Cancelled:
		q.take(m.RequestID())
	}
}

// Received looks at a message of the client. Only responses cost anything.
func (q *Questions) Received(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response {
		q.take(m.ID())
	}
}

// Answered reports whether what the client has sent as e can only have been its
// answer to a question: a response, or an object without a method that has the
// id of one. The client is not to be told with that id: the two sides count
// their requests apart, so it could have one of its own under it.
func (q *Questions) Answered(e *jsonrpc.Error) bool {
	if !e.Answers() {
		return false
	}
	asked := q.take(e.ID)
	return asked || e.Kind == jsonrpc.Response
}

// take forgets a question; false: there is none of this id.
func (q *Questions) take(id jsonrpc.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, _, ok := jsonrpc.Find(q.open, id)
	delete(q.open, key)
	return ok
}
