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

// sealState gives a modern client who has authenticated requestState and ids of tasks under
// its own name only (A6): a server that principals share cannot tell who comes back
// with one. refuse is told why a request is refused. If it returns true, sealState answers
// the request; otherwise the request is passed on. Conns of other clients are returned as they are.
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

// binder binds requestState and ids of tasks to an authenticated client.
type binder struct {
	s            *Server
	principal    string
	taskRequests idSet // requests in progress whose results are about a task
}

// unbindMessage returns a client's message with the server's own requestState and ids
// of tasks, or why it is refused.
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
	errForeignState = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "Invalid or expired requestState"}
	errForeignTask  = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "Unknown task"}
)

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

// unbindTaskID returns the server's own id of a task, raw; false: it is not the client's.
func (b *binder) unbindTaskID(raw []byte) (own []byte, ok bool) {
	text, ok := jsonrpc.Text(raw)
	if !ok {
		return nil, false
	}
	id, ok := b.s.taskIDs.Unbind(b.principal, text)
	return jsonrpc.Quote(id), ok
}

// bindTaskID returns the id of a task as the client gets it, raw; what is no id
// stays.
func (b *binder) bindTaskID(raw []byte) ([]byte, bool) {
	id, ok := jsonrpc.Text(raw)
	if !ok {
		return raw, true
	}
	return jsonrpc.Quote(b.s.taskIDs.Bind(b.principal, id)), true
}

// mapElements returns an array with what change makes of its elements; false: raw is
// none, or change does not want one of them.
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

// singleValues returns the values of up to two keys of an object; nil: there is none. A
// key must not stand twice, nor in other letters: the server may take the one
// that was not looked at.
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

// bindMessage returns what the client gets of a message: requestState and ids of tasks
// under its name.
func (b *binder) bindMessage(m jsonrpc.Message) jsonrpc.Message {
	switch m.Kind() {
	case jsonrpc.Response:
		return b.bindResponse(m)
	case jsonrpc.Notification:
		return b.bindNotification(m)
	}
	return m
}

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

// idSet are ids of requests. The zero value is empty; any number of goroutines may
// use it. To ask an empty one costs next to nothing.
type idSet struct {
	count atomic.Int32
	mu    sync.Mutex
	ids   map[jsonrpc.ID]struct{}
}

func (s *idSet) add(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[jsonrpc.ID]struct{})
	}
	s.ids[id] = struct{}{}
	s.count.Store(int32(len(s.ids)))
}

// has reports whether an id is in.
func (s *idSet) has(id jsonrpc.ID) bool {
	if s.count.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, ok := jsonrpc.Find(s.ids, id)
	return ok
}

// remove takes an id out.
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
