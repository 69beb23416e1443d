package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ownRequests are the requests that the filter itself sends to the server. It also makes the ids
// of all other requests to the server. An id is never used twice (J2). The zero value is ready.
type ownRequests struct {
	lastID   int64                       // the number in the id that nextID has returned last
	handlers map[jsonrpc.ID]responseFunc // take the responses that are awaited, by the id of the request
}

// responseFunc takes m, the server's response to a request of the filter itself.
type responseFunc func(now time.Time, m jsonrpc.Message, out *era.Out)

// ignoreResponse is the responseFunc of a request whose answer does not matter.
func ignoreResponse(time.Time, jsonrpc.Message, *era.Out) {}

// nextID returns a new id for a request to the server.
func (r *ownRequests) nextID() jsonrpc.ID {
	r.lastID++
	return jsonrpc.IntID(r.lastID)
}

// send sends a request; onResponse gets its response.
func (r *ownRequests) send(method string, params []byte, onResponse responseFunc, out *era.Out) {
	id := r.nextID()
	r.expect(id, onResponse)
	out.Server(jsonrpc.NewRequest(id, method, params))
}

// expect has onResponse get the response to a request that was sent.
func (r *ownRequests) expect(id jsonrpc.ID, onResponse responseFunc) {
	if r.handlers == nil {
		r.handlers = make(map[jsonrpc.ID]responseFunc)
	}
	r.handlers[id] = onResponse
}

// handleResponse takes a response of the server. False: the response is to no request of the
// filter itself.
func (r *ownRequests) handleResponse(now time.Time, m jsonrpc.Message, out *era.Out) bool {
	id, take, ok := jsonrpc.Find(r.handlers, m.ID())
	if ok {
		delete(r.handlers, id)
		take(now, m, out)
	}
	return ok
}

// cancelRequest cancels a request at the server; reason is raw JSON, nil for none.
func cancelRequest(id jsonrpc.ID, reason []byte, out *era.Out) {
	params := shape.AppendMember([]byte{'{'}, "requestId", []byte(id.String()))
	if reason != nil {
		params = shape.AppendMember(params, "reason", reason)
	}
	out.Server(jsonrpc.NewNotification("notifications/cancelled", append(params, '}')))
}

// refuse answers a client's request with an error.
func refuse(id jsonrpc.ID, code int, text string, data []byte, out *era.Out) {
	out.Client(jsonrpc.NewError(id, code, text, data).WithRelated(id))
}
