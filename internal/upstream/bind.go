package upstream

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// sealState binds the requestState and the ids of tasks that a modern client gets to its principal, if it has
// authenticated (A6): a server that principals share cannot tell who comes back with one. refuse is told why a request is
// refused: these are another principal's, or singleValues refuses a key. If it returns true, sealState answers the
// request; otherwise the request is passed on as it is. Conns of clients that have not authenticated are returned as
// they are.
func (s *Server) sealState(ctx context.Context, client bridge.Conn, refuse func(no *era.Refusal) (answer bool)) bridge.Conn {
	principal := identity.Principal(ctx)
	if principal == "" {
		return client
	}
	b := &binder{s: s, principal: principal}
	return bridge.Intercept(client, bridge.Hooks{
		Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
			own, no := b.unbindMessage(*m)
			if no != nil && refuse(no) {
				answer := no.Response(m.ID())
				own, reply = jsonrpc.Message{}, &answer
			}
			*m = own
			return reply
		},
		Send: func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
			return b.bindMessage(m), jsonrpc.Message{}, nil
		},
		Sent: func(m jsonrpc.Message) {
			if m.Kind() == jsonrpc.Response {
				b.taskRequests.remove(m.ID())
			}
		},
	})
}

// A binder binds requestState and ids of tasks to the principal of one client, and takes only those back.
type binder struct {
	s            *Server // has the secrets that bind
	principal    string  // the client's principal
	taskRequests idSet   // ids of the client's requests in progress whose results are about a task
}

// unbindMessage returns a client's message as the server gets it: with the server's own requestState and ids
// of tasks. A Refusal: they are not the client's, or singleValues refuses a key.
func (b *binder) unbindMessage(m jsonrpc.Message) (jsonrpc.Message, *era.Refusal) {
	switch method := m.Method(); {
	case m.Kind() != jsonrpc.Request:
		if method == "notifications/cancelled" {
			b.taskRequests.remove(m.CancelledID())
		}
		return m, nil
	case era.MayAskForInput(method):
		return b.unbindState(m)
	case strings.HasPrefix(method, "tasks/"):
		return b.unbindTask(m)
	case method == "subscriptions/listen":
		return b.unbindListen(m)
	}
	return m, nil
}

var (
	errForeignState = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "Invalid or expired requestState"} // errForeignState refuses a requestState that is not bound to the client's principal.
	errForeignTask  = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "Unknown task"}                    // errForeignTask refuses the id of a task that is not bound to the client's principal.
)

// unbindState returns a client's request, which may be a retry, with the server's own requestState. A
// Refusal: the requestState is not the client's, or singleValues refuses a key.
func (b *binder) unbindState(m jsonrpc.Message) (jsonrpc.Message, *era.Refusal) {
	values, no := singleValues(m.ParamsObject().Members(), "requestState", "inputResponses")
	if no != nil {
		return m, no
	}
	text, has := jsonrpc.Text(values[0])
	if !has {
		return m, nil
	}
	own, err := b.s.sealer.Unbind(b.principal, text)
	if err != nil {
		return m, errForeignState
	}
	return m.WithParams(jsonrpc.With(m.Params(), "requestState", jsonrpc.Quote(own))), nil
}

// unbindTask returns a client's request about a task, such as tasks/get, with the server's own id of the
// task. A Refusal: the task is not the client's, or singleValues refuses a key.
func (b *binder) unbindTask(m jsonrpc.Message) (jsonrpc.Message, *era.Refusal) {
	values, no := singleValues(m.ParamsObject().Members(), "taskId")
	switch {
	case no != nil:
		return m, no
	case values[0] == nil:
		return m, nil
	}
	own, ok := b.unbindTaskID(values[0])
	if !ok {
		return m, errForeignTask
	}
	b.taskRequests.add(m.ID())
	return m.WithParams(jsonrpc.With(m.Params(), "taskId", own)), nil
}

// unbindListen returns a client's subscriptions/listen in which each id of a task is replaced by the server's own
// id of that task. A Refusal: a task is not the client's, or singleValues refuses a key.
func (b *binder) unbindListen(m jsonrpc.Message) (jsonrpc.Message, *era.Refusal) {
	values, no := singleValues(m.ParamsObject().Members(), "notifications")
	if no != nil || values[0] == nil {
		return m, no
	}
	notifications := values[0]
	if values, no = singleValues(jsonrpc.Members(notifications), "taskIds"); no != nil || values[0] == nil {
		return m, no
	}
	ids, ok := mapElements(values[0], b.unbindTaskID)
	if !ok {
		return m, errForeignTask
	}
	return m.WithParams(jsonrpc.With(m.Params(), "notifications", jsonrpc.With(notifications, "taskIds", ids))), nil
}

// unbindTaskID returns the server's own id of a task, for the id that the client has sent; both are raw JSON.
// false: it is not the client's.
func (b *binder) unbindTaskID(raw []byte) (own []byte, ok bool) {
	text, ok := jsonrpc.Text(raw)
	if !ok {
		return nil, false
	}
	id, ok := b.s.taskIDs.Unbind(b.principal, text)
	return jsonrpc.Quote(id), ok
}

// bindTaskID returns the id of a task as the client gets it, for the server's own; both are raw JSON. What is
// no string stays. The bool, which mapElements wants, is always true.
func (b *binder) bindTaskID(raw []byte) ([]byte, bool) {
	id, ok := jsonrpc.Text(raw)
	if !ok {
		return raw, true
	}
	return jsonrpc.Quote(b.s.taskIDs.Bind(b.principal, id)), true
}

// mapElements returns the JSON array raw with each element, raw too, replaced by what change returns for it. ok is false
// if raw is no array, or change has returned false for an element.
func mapElements(raw []byte, change func([]byte) ([]byte, bool)) (out []byte, ok bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	out = []byte{'['}
	for _, e := range jsonrpc.Elements(raw) {
		if e, ok = change(e); !ok {
			return nil, false
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']'), true
}

// singleValues returns the raw values of up to two keys of an object; nil: it has no such key. A Refusal: a
// key stands twice, or in other letters ("taskID"), since the server may take the one that was not looked at.
func singleValues(object iter.Seq[jsonrpc.Member], keys ...string) (values [2][]byte, no *era.Refusal) {
	for member := range object {
		for i, key := range keys {
			if !strings.EqualFold(member.Key, key) {
				continue
			}
			if values[i] != nil || member.Key != key {
				text := `"` + key + `" stands twice, or in other letters`
				return values, &era.Refusal{Code: jsonrpc.CodeInvalidRequest, Text: text}
			}
			values[i] = member.Value
		}
	}
	return values, nil
}

// bindMessage returns a server's message as the client gets it: with requestState and ids of tasks that are
// bound to its principal.
func (b *binder) bindMessage(m jsonrpc.Message) jsonrpc.Message {
	switch m.Kind() {
	case jsonrpc.Response:
		return b.bindResponse(m)
	case jsonrpc.Notification:
		return b.bindNotification(m)
	}
	return m
}

// bindResponse returns a server's response with requestState and the id of a task bound to the client's
// principal, if it has one of them.
func (b *binder) bindResponse(m jsonrpc.Message) jsonrpc.Message {
	about := b.taskRequests.has(m.ID())
	if m.IsError() {
		return m
	}
	kind, _ := jsonrpc.Text(m.Lookup("result", "resultType"))
	if about || kind == "task" {
		if raw := m.Lookup("result", "taskId"); raw != nil {
			id, _ := b.bindTaskID(raw)
			return m.WithResult(jsonrpc.With(m.Result(), "taskId", id))
		}
	}
	if state, ok := jsonrpc.Text(m.Lookup("result", "requestState")); ok && kind == "input_required" {
		text := jsonrpc.Quote(b.s.sealer.Bind(b.principal, state))
		return m.WithResult(jsonrpc.With(m.Result(), "requestState", text))
	}
	return m
}

// bindNotification returns a server's notification with the ids of tasks in it bound to the client's
// principal.
func (b *binder) bindNotification(m jsonrpc.Message) jsonrpc.Message {
	switch m.Method() {
	case "notifications/tasks":
		if raw := m.Lookup("params", "taskId"); raw != nil {
			id, _ := b.bindTaskID(raw)
			return m.WithParams(jsonrpc.With(m.Params(), "taskId", id))
		}
	case "notifications/subscriptions/acknowledged":
		notifications := m.Lookup("params", "notifications")
		if ids, ok := mapElements(m.Lookup("params", "notifications", "taskIds"), b.bindTaskID); ok {
			return m.WithParams(jsonrpc.With(m.Params(), "notifications", jsonrpc.With(notifications, "taskIds", ids)))
		}
	}
	return m
}

// An idSet is a set of ids of requests. The zero value is empty; any number of goroutines may use it. To ask
// an empty one costs next to nothing.
type idSet struct {
	count atomic.Int32            // how many ids there are, to be read without mu
	mu    sync.Mutex              // guards ids
	ids   map[jsonrpc.ID]struct{} // the ids in it
}

// add puts an id in.
func (s *idSet) add(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[jsonrpc.ID]struct{})
	}
	s.ids[id] = struct{}{}
	s.count.Store(int32(len(s.ids)))
}

// has reports whether an id, or one that is Equivalent to it, is in the set.
func (s *idSet) has(id jsonrpc.ID) bool {
	if s.count.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, ok := jsonrpc.Find(s.ids, id)
	return ok
}

// remove takes an id, or one that is Equivalent to it, out of the set.
func (s *idSet) remove(id jsonrpc.ID) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, _, _ := jsonrpc.Find(s.ids, id)
	delete(s.ids, key)
	s.count.Store(int32(len(s.ids)))
}
