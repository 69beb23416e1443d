package streamhttp

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file decides which stream a message of the server travels on
// (docs/rules.md, B.1 to B.4). All of it runs under the session's lock.

// maxWaiting bounds what a session keeps for a stream that nobody has opened,
// in messages; HandlerOptions.ReplayBytes bounds it in bytes.
const maxWaiting = 1000

// held is a server request that waits for a stream to travel on (B.3).
type held struct {
	m     jsonrpc.Message
	since uint64 // the last call that was made before
	timer *time.Timer
}

// shelf keeps notifications for later.
type shelf struct {
	list  []jsonrpc.Message
	bytes int
}

// fits reports whether m can be put on the shelf too.
func (q *shelf) fits(m jsonrpc.Message, maxBytes int) bool {
	return len(q.list) < maxWaiting && q.bytes+len(m.Bytes()) <= maxBytes
}

func (q *shelf) add(m jsonrpc.Message) {
	q.list = append(q.list, m)
	q.bytes += len(m.Bytes())
}

func (q *shelf) remove(i int) {
	q.bytes -= len(q.list[i].Bytes())
	q.list = slices.Delete(q.list, i, i+1)
}

// target returns the stream that m belongs to, or nil when there is none now.
func (s *session) target(m jsonrpc.Message) *stream {
	switch m.Kind() {
	case jsonrpc.Response:
		if c := s.calls[m.ID()]; c != nil {
			return c.stream
		}
		return nil
	case jsonrpc.Request:
		if s.tooEarly(m) {
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

// later keeps a notification that has no stream now, if it is of use later (B.3).
func (s *session) later(m jsonrpc.Message) {
	switch m.Method() {
	case "notifications/progress":
		if _, task := s.tasks[m.ProgressToken()]; !task {
			s.opts.Logger.Debug("progress dropped: no call in flight has its token", "session", s.tag())
			return
		}
	case "notifications/cancelled":
		s.unhold(m.RequestID())
		return
	}
	if s.tooEarly(m) {
		if !s.early.fits(m, s.opts.ReplayBytes) {
			s.warnLost(m, "too many before the client is initialized")
			return
		}
		s.early.add(m)
		return
	}
	for i, o := range s.backlog.list {
		if coalesces(o, m) {
			s.backlog.remove(i)
			break
		}
	}
	for len(s.backlog.list) > 0 && !s.backlog.fits(m, s.opts.ReplayBytes) {
		s.warnLost(s.backlog.list[0], "nobody listens on a GET stream")
		s.backlog.remove(0)
	}
	if s.backlog.fits(m, s.opts.ReplayBytes) {
		s.backlog.add(m)
	}
}

// warnLost says once in a session's life that a notification was dropped: a
// server that logs much to a client that does not listen would flood ours.
func (s *session) warnLost(m jsonrpc.Message, why string) {
	if !s.lost {
		s.lost = true
		s.opts.Logger.Warn("notification dropped, and maybe more to come: "+why, "session", s.tag(), "method", m.Method())
	}
}

// coalesces reports whether the newer notification says all that the older one says.
func coalesces(older, newer jsonrpc.Message) bool {
	if older.Method() != newer.Method() {
		return false
	}
	switch newer.Method() {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return true
	case "notifications/resources/updated":
		return string(older.Lookup("params", "uri")) == string(newer.Lookup("params", "uri"))
	}
	return false
}

// hold keeps a server request until a stream opens that can carry it, for a
// bounded time. A ping needs no client: the bridge answers for it (B.1.7).
//
// The goroutine of the timer belongs to the session, whose end lets it go. It
// only hands one message to Recv, so nobody has to wait for it.
func (s *session) hold(m jsonrpc.Message) {
	delete(s.asks, m.ID()) // if it has travelled before, that was in vain
	wait, instead := s.opts.HoldTimeout, unreachable(m)
	size := len(m.Bytes())
	for _, h := range s.held {
		size += len(h.m.Bytes())
	}
	switch {
	case m.Method() == "ping":
		wait, instead = 0, jsonrpc.NewResult(m.ID(), []byte(`{}`))
	case len(s.held) >= maxWaiting, size > s.opts.ReplayBytes:
		wait = 0
	}
	h := &held{m: m, since: s.orders}
	h.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		ours := s.drop(h)
		s.mu.Unlock()
		if ours {
			_ = s.accept(context.Background(), instead) // the only error is that the session has ended
		}
	})
	s.held = append(s.held, h)
}

// unreachable is the answer to a server request that no stream could carry.
func unreachable(m jsonrpc.Message) jsonrpc.Message {
	const text = "the client listens on no stream that could carry the request"
	if m.Method() == "roots/list" {
		return jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, text, nil)
	}
	return jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, nil)
}

func (s *session) drop(h *held) bool {
	for i, o := range s.held {
		if o == h {
			s.held = append(s.held[:i:i], s.held[i+1:]...)
			return true
		}
	}
	return false
}

// unhold forgets a held request that the server has cancelled.
func (s *session) unhold(id jsonrpc.ID) {
	held := make(map[jsonrpc.ID]*held, len(s.held))
	for _, h := range s.held {
		held[h.m.ID()] = h
	}
	if _, h, ok := jsonrpc.Find(held, id); ok {
		h.timer.Stop()
		s.drop(h)
	}
}

// retry sends the held requests on their way that have a stream now. One that
// belongs to no call would have travelled on a standalone stream; once it has
// had to wait, that of a newer call will do as well (B.3).
func (s *session) retry() {
	waiting := s.held
	s.held = nil
	for _, h := range waiting {
		st := s.target(h.m)
		if st == nil && !s.tooEarly(h.m) {
			if c := s.likely(true, h.since); c != nil {
				st = c.stream
			}
		}
		if st == nil {
			s.held = append(s.held, h)
			continue
		}
		h.timer.Stop()
		s.route(h.m, st)
	}
}
