package streamhttp

import (
	"encoding/json"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file decides which stream a message of the server travels on
// (docs/rules.md, B.1 to B.4). All of it runs under the session's lock.

// target returns the stream that m belongs to, or nil when there is none now.
func (s *session) target(m jsonrpc.Message) *stream {
	switch m.Kind() {
	case jsonrpc.Response:
		if c := s.calls[m.ID()]; c != nil {
			return c.stream
		}
		return nil
	case jsonrpc.Request:
		if s.alone || s.tooEarly(m) {
			return nil
		}
		if !m.Related().IsZero() {
			return s.exact(m)
		}
		if c := s.about(m); c != nil {
			return c.stream
		}
		if c := s.likely(true, 0); c != nil {
			return c.stream
		}
		return s.standalone()
	}
	return s.targetNotification(m)
}

func (s *session) targetNotification(m jsonrpc.Message) *stream {
	switch m.Method() {
	case "notifications/progress":
		if c := s.tokens[m.ProgressToken()]; c != nil {
			return c.stream
		}
		if _, ok := s.tasks[m.ProgressToken()]; ok {
			return s.exact(m)
		}
		return nil
	case "notifications/cancelled":
		return s.carrier(m.RequestID())
	}
	if s.alone {
		return s.only()
	}
	if s.tooEarly(m) {
		return nil
	}
	if !m.Related().IsZero() {
		return s.exact(m)
	}
	if c := s.about(m); c != nil {
		return c.stream
	}
	st := s.standalone()
	switch m.Method() {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated", "notifications/tasks/status":
		return st
	}
	// A log line, or a notification that only the two ends know.
	if len(s.calls) == 1 || st == nil {
		if c := s.likely(false, 0); c != nil {
			return c.stream
		}
	}
	return st
}

// exact returns the stream for a message whose relation the server's transport
// tells (B.4): that of the call in whose course it came, a standalone one for
// what came in the course of none, or of one that is over.
func (s *session) exact(m jsonrpc.Message) *stream {
	if c := s.calls[m.Related()]; c != nil && c.carries() {
		return c.stream
	}
	return s.standalone()
}

// respell returns m with the id or token that ties it to a request spelled as
// in the request. A Pump does so too, but does not know the tokens of tasks.
func (s *session) respell(m jsonrpc.Message) jsonrpc.Message {
	switch {
	case m.Kind() == jsonrpc.Response:
		if id, _, ok := jsonrpc.Find(s.calls, m.ID()); ok && id != m.ID() {
			return m.WithID(id)
		}
	case m.Kind() == jsonrpc.Request:
	case m.Method() == "notifications/progress":
		token, _, ok := jsonrpc.Find(s.tokens, m.ProgressToken())
		if !ok {
			token, _, ok = jsonrpc.Find(s.tasks, m.ProgressToken())
		}
		if ok && token != m.ProgressToken() {
			return m.WithProgressToken(token)
		}
	case m.Method() == "notifications/cancelled":
		if id, _, ok := jsonrpc.Find(s.asks, m.RequestID()); ok && id != m.RequestID() {
			return m.WithRequestID(id)
		}
	}
	return m
}

// tooEarly reports whether m must wait until the client has said
// notifications/initialized (LI29), or until initialize was answered.
func (s *session) tooEarly(m jsonrpc.Message) bool {
	if s.ready {
		return false
	}
	if !s.answered {
		return true
	}
	return m.Method() != "ping" && m.Method() != "notifications/message"
}

// likely returns the call in flight that an unattributed message most likely
// belongs to: the only one, else the one forwarded last among those in whose
// course servers ask (B.1.8). A request needs a stream that somebody will read.
// Only calls made after since count.
func (s *session) likely(request bool, since uint64) *call {
	var best *call
	rank := func(c *call) int {
		r := 0
		if c.stream.reader != nil {
			r += 2
		}
		switch c.method {
		case "tools/call", "prompts/get", "resources/read", "tasks/result":
			r++
		}
		return r
	}
	for _, c := range s.calls {
		if !c.carries() || c.order <= since {
			continue
		}
		if best == nil || rank(c) > rank(best) || (rank(c) == rank(best) && c.order > best.order) {
			best = c
		}
	}
	if request && best != nil && best.stream.reader == nil && len(s.gets) > 0 {
		return nil // somebody listens elsewhere, nobody there
	}
	return best
}

// carries reports whether a message of the server may travel on c's stream.
func (c *call) carries() bool {
	st := c.stream
	return !c.opens() && !st.void && (st.reader != nil || st.committed)
}

// about returns the tasks/result in flight for the task that m is about (B.1.4).
func (s *session) about(m jsonrpc.Message) *call {
	var task []byte
	for _, c := range s.calls {
		if c.results == "" || !c.carries() {
			continue
		}
		if task == nil {
			if task = taskOf(m); task == nil {
				return nil
			}
		}
		if c.results == string(task) {
			return c
		}
	}
	return nil
}

// taskOf returns the id of the task that m is about, as raw JSON.
func taskOf(m jsonrpc.Message) []byte {
	if m.Method() == "notifications/tasks/status" {
		return m.Lookup("params", "taskId")
	}
	return m.Lookup("params", "_meta", "io.modelcontextprotocol/related-task", "taskId")
}

// carrier returns the stream for the cancellation of a request of the
// server's: that of the request, or if it has ended, a standalone one.
func (s *session) carrier(id jsonrpc.ID) *stream {
	st := s.asks[id]
	if st != nil && (st.closed || st.void || (st.get && st.reader == nil)) {
		return s.standalone()
	}
	return st
}

// standalone returns the newest standalone stream that somebody reads.
func (s *session) standalone() *stream {
	if len(s.gets) == 0 {
		return nil
	}
	return s.gets[len(s.gets)-1]
}

// route puts m on its stream, or where it waits for one.
func (s *session) route(m jsonrpc.Message, st *stream) {
	switch m.Kind() {
	case jsonrpc.Response:
		s.routeResponse(m, st)
	case jsonrpc.Request:
		if st == nil {
			s.hold(m)
			return
		}
		s.carry(m, st)
		s.push(st, m)
	case jsonrpc.Notification:
		if m.Method() == "notifications/cancelled" {
			delete(s.asks, m.RequestID())
		}
		switch {
		case st == nil:
			s.later(m)
		case !st.void:
			s.push(st, m)
		}
	}
}

// routeResponse closes the books on a call.
func (s *session) routeResponse(m jsonrpc.Message, st *stream) {
	c := s.calls[m.ID()]
	if c == nil {
		s.opts.Logger.Debug("response dropped: nothing waits for it", "session", s.tag())
		return
	}
	if st.void {
		s.opts.Logger.Warn("response dropped: the client has gone and left no way to resume", "session", s.tag(), "method", c.method)
	} else {
		s.push(st, m)
	}
	if c.opens() && !m.IsError() {
		s.answered = true
		var version string
		if json.Unmarshal(m.Lookup("result", "protocolVersion"), &version) == nil && version != "" {
			s.version = version
		}
	}
	s.settle(c)
	if c.opens() && s.answered {
		s.release()
	}
}

// release sends the notifications on their way that had come too early.
func (s *session) release() {
	early := s.early.list
	s.early = shelf{}
	for _, m := range early {
		s.route(m, s.target(m))
	}
}

// carry notes which stream a request of the server travels on, so that a
// cancellation follows it (B.1.3).
func (s *session) carry(m jsonrpc.Message, st *stream) {
	if s.asks == nil || len(s.asks) >= maxWaiting { // a client that answers nothing: forget
		s.asks = make(map[jsonrpc.ID]*stream)
	}
	s.asks[m.ID()] = st
}
