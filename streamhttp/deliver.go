package streamhttp

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file carries out what the router decides. The caller of its methods holds the
// session's lock, unless something else is said.

// maxInlineCalls is how many calls of a session may be open for an answer to be written by whoever brings
// it. When there are more, the next answer comes soon, and must not wait for that write.
const maxInlineCalls = 4

// StreamOf returns, for an observer, the name of the stream on which a message passes: a request of the client on that of its
// POST; what goes to the client (toClient) on the one that the router chooses for it now. "": there is none, as for a response
// or notification of the client, or a message that has to wait for a stream. It takes the lock.
func (s *session) StreamOf(m *jsonrpc.Message, toClient bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st *stream
	switch {
	case toClient:
		if st = s.targetStream(*m); st == nil {
			st = s.targetStream(s.restoreSpelling(*m))
		}
	case m.Kind() == jsonrpc.Request:
		if c := s.calls.byID[m.ID()]; c != nil {
			st = c.stream
		}
	}
	if st == nil {
		return ""
	}
	if st.observedName == "" {
		st.observedName = st.name() // each of the stream's messages asks for it
	}
	return st.observedName
}

// tryRoute routes one message of the server. If the stream that m belongs to is full and
// somebody reads it, nothing is done, and room is closed when there may be room. If rd is
// not nil, m is a response and may complete the reply that rd writes: the caller must call
// rd.answerAndWake. The error is errSessionEnded. tryRoute takes the lock.
func (s *session) tryRoute(m jsonrpc.Message) (rd *reader, room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, errSessionEnded
	}
	if s.handshake.ownInitializePending && m.ID() == ownInitializeID && m.Kind() == jsonrpc.Response {
		s.handleOwnInitializeAnswer(m)
		return nil, nil, nil
	}
	st := s.targetStream(m)
	if st == nil {
		m = s.restoreSpelling(m)
		st = s.targetStream(m)
	}
	read := st != nil && st.reader != nil
	switch {
	case read && st.pendingBytes >= highWater:
		if st.room == nil {
			st.room = make(chan struct{})
		}
		room = st.room
	case read && m.Kind() == jsonrpc.Response && len(s.calls.byID) <= maxInlineCalls:
		rd = st.reader
		rd.wakeHeld = true
		s.route(m, st)
		rd.wakeHeld = false
	default:
		s.route(m, st)
	}
	return rd, room, nil
}

// route puts m on st, its stream. If st is nil, m is deferred, or dropped if it is a response. If st is unresumable, a
// response or a notification is dropped.
func (s *session) route(m jsonrpc.Message, st *stream) {
	switch m.Kind() {
	case jsonrpc.Response:
		s.routeResponse(m, st)
	case jsonrpc.Request:
		if st == nil {
			s.deferRequest(m)
			return
		}
		s.sent.add(m.ID(), st)
		s.push(st, m)
	case jsonrpc.Notification:
		switch {
		case st == nil:
			s.deferNotification(m)
		case !st.unresumable:
			s.push(st, m)
		}
		if m.Method() == "notifications/cancelled" {
			delete(s.sent, m.CancelledID())
		}
	}
}

// routeResponse puts a response on st, the stream of its call, and ends the call. It drops a response that nobody waits
// for, or whose stream nobody can read any more.
func (s *session) routeResponse(m jsonrpc.Message, st *stream) {
	c := s.calls.byID[m.ID()]
	if c == nil {
		s.opts.Logger.Debug("response dropped: nothing waits for it", "session", s.logName())
		return
	}
	if st.unresumable {
		s.opts.Logger.Log(s.dropLogLevel(time.Now()), "response dropped: the client has gone and left no way to resume", "session", s.logName(), "method", c.method)
	} else {
		s.push(st, m)
	}
	if c.isInitialize() && !m.IsError() {
		s.handshake.noteAccepted(m)
	}
	s.endCall(c)
	if c.isInitialize() && s.handshake.accepted {
		s.routeAwaitingInitialized()
	}
}

// dropWarnInterval is how long a session does not warn again that it has dropped a response.
const dropWarnInterval = time.Minute

// dropLogLevel is the level at which a dropped response is logged: a client that resets its POSTs
// one after the other must not flood the log.
func (s *session) dropLogLevel(now time.Time) hclog.Level {
	if !s.lastDropWarning.IsZero() && now.Sub(s.lastDropWarning) < dropWarnInterval {
		return hclog.Debug
	}
	s.lastDropWarning = now
	return hclog.Warn
}

// endCall ends a call, after its response was pushed or without a response. If no other response is owed on its stream, the
// stream is complete.
func (s *session) endCall(c *call) {
	s.calls.remove(c)
	if c.stream.owedResponses--; c.stream.owedResponses == 0 {
		c.stream.finish()
	}
}

// fail ends a call: it is answered with an error of the bridge, with this message (text) and this raw JSON as data.
func (s *session) fail(c *call, text string, data []byte) {
	s.push(c.stream, jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, text, data))
	s.endCall(c)
}

// The data of the errors with which the bridge answers a call in the server's place.
var (
	sessionEndedData = []byte(`{"reason":"session_ended"}`) // error data: the session has ended before the answer
	cancelledData    = []byte(`{"reason":"cancelled"}`)     // error data: the client has cancelled the call
	undeliveredData  = []byte(`{"reason":"undelivered"}`)   // error data: the server has not got the request
)

// handleOwnInitializeAnswer takes the server's answer to the bridge's own initialize request of a
// stateless POST. After a result the client's messages are passed on; with an error its requests
// are answered.
func (s *session) handleOwnInitializeAnswer(m jsonrpc.Message) {
	s.handshake.ownInitializePending, s.handshake.ownInitializeRejected = m.IsError(), m.IsError()
	for _, c := range s.calls.byID {
		if m.IsError() {
			s.push(c.stream, m.WithID(c.id))
			s.endCall(c)
		} else if c.stream.reader != nil {
			c.stream.reader.wakeUnlessHeld()
		}
	}
}
