package streamhttp

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// router decides which stream a message of the server travels on (docs/rules.md,
// B.1 to B.4). It has the tables that this depends on, and moves no message. The
// session's lock guards it.
type router struct {
	stateless  bool              // the session is one POST: no stream can be resumed, and the client cannot be asked
	handshake  handshake         // how far the opening of the session has come
	calls      callTable         // the client's requests in flight
	sent       sentRequests      // the server's requests that have gone to the client
	standalone standaloneStreams // the streams of GET requests
}

// targetStream returns the stream that m belongs to, or nil when there is none now.
func (r *router) targetStream(m jsonrpc.Message) *stream {
	switch m.Kind() {
	case jsonrpc.Response:
		if c := r.calls.byID[m.ID()]; c != nil {
			return c.stream
		}
		return nil
	case jsonrpc.Request:
		if r.stateless || r.handshake.isTooEarly(m) {
			return nil
		}
		if !m.Related().IsZero() {
			return r.relatedStream(m)
		}
		if c := r.calls.taskResultCall(m); c != nil {
			return c.stream
		}
		if c := r.likeliestReadCall(0); c != nil {
			return c.stream
		}
		return r.standalone.newest()
	}
	return r.notificationStream(m)
}

// notificationStream returns the stream that m, a notification, belongs to, or nil when there is none now.
func (r *router) notificationStream(m jsonrpc.Message) *stream {
	switch m.Method() {
	case "notifications/progress":
		if c := r.calls.byToken[m.ProgressToken()]; c != nil {
			return c.stream
		}
		if r.calls.isTaskToken(m.ProgressToken()) {
			return r.relatedStream(m)
		}
		return nil
	case "notifications/cancelled":
		return r.cancellationStream(m.CancelledID())
	}
	if r.stateless {
		if c := r.calls.anyCall(); c != nil {
			return c.stream
		}
		return nil
	}
	if r.handshake.isTooEarly(m) {
		return nil
	}
	if !m.Related().IsZero() {
		return r.relatedStream(m)
	}
	if c := r.calls.taskResultCall(m); c != nil {
		return c.stream
	}
	st := r.standalone.newest()
	switch m.Method() {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated", "notifications/tasks/status":
		return st
	}
	// A log line, or a notification that only the two ends know.
	if len(r.calls.byID) == 1 || st == nil {
		if c := r.calls.likeliestCall(0); c != nil {
			return c.stream
		}
	}
	return st
}

// relatedStream returns the stream for a message whose relation the server's transport tells (B.4):
// that of the call in whose course it came. For what came in the course of none, or of one that is
// over, it is a standalone one; nil: nobody reads one.
func (r *router) relatedStream(m jsonrpc.Message) *stream {
	if c := r.calls.byID[m.Related()]; c != nil && c.canCarryServerMessage() {
		return c.stream
	}
	return r.standalone.newest()
}

// likeliestReadCall returns the call that a request of the server without a relation most likely belongs to, among
// those with a seq above afterSeq (likeliestCall). A request needs a stream that somebody will read: nil means that
// there is no such call, or that a standalone stream is read and the call's is not.
func (r *router) likeliestReadCall(afterSeq uint64) *call {
	c := r.calls.likeliestCall(afterSeq)
	if c != nil && c.stream.reader == nil && r.standalone.newest() != nil {
		return nil // somebody listens elsewhere, nobody there
	}
	return c
}

// cancellationStream returns the stream for the cancellation of a request of the
// server: the stream that the request went on, or a standalone one if that stream brings
// nothing any more. nil: the request has not been sent, or nobody reads a standalone stream.
func (r *router) cancellationStream(id jsonrpc.ID) *stream {
	st := r.sent[id]
	if st != nil && (st.closed || st.unresumable || (st.isStandalone && st.reader == nil)) {
		return r.standalone.newest()
	}
	return st
}

// restoreSpelling returns m with the id or token that ties it to a request spelled as
// in the request. A Pump does so too, but does not know the tokens of tasks.
func (r *router) restoreSpelling(m jsonrpc.Message) jsonrpc.Message {
	switch {
	case m.Kind() == jsonrpc.Response:
		if id, _, ok := jsonrpc.Find(r.calls.byID, m.ID()); ok && id != m.ID() {
			return m.WithID(id)
		}
	case m.Kind() == jsonrpc.Request:
	case m.Method() == "notifications/progress":
		token, _, ok := jsonrpc.Find(r.calls.byToken, m.ProgressToken())
		if !ok {
			token, _, ok = jsonrpc.Find(r.calls.taskTokens, m.ProgressToken())
		}
		if ok && token != m.ProgressToken() {
			return m.WithProgressToken(token)
		}
	case m.Method() == "notifications/cancelled":
		if id, _, ok := jsonrpc.Find(r.sent, m.CancelledID()); ok && id != m.CancelledID() {
			return m.WithCancelledID(id)
		}
	}
	return m
}

const (
	// maxIdleStandalone is how many standalone streams without a connection a
	// session remembers, so that they can be resumed.
	maxIdleStandalone = 16

	// maxConnectedStandalone is how many standalone streams may be connected at once. Only
	// the newest is written to; the oldest one ends when there are more. A client
	// that keeps more of them, and reconnects each, makes them displace each
	// other in turn: that costs it its own requests, and nobody else anything.
	maxConnectedStandalone = 16
)

// standaloneStreams are those of GET requests, which belong to no call (LI19). The
// session's lock guards them; the zero value is empty.
type standaloneStreams struct {
	connected []*stream // streams with a reader, newest last
	idle      []*stream // streams without a reader, which can be resumed, oldest first
}

// newest returns the newest standalone stream that somebody reads; nil: there is none. The session's lock is held.
func (s *standaloneStreams) newest() *stream {
	if len(s.connected) == 0 {
		return nil
	}
	return s.connected[len(s.connected)-1]
}

// connect notes that st has a reader.
func (s *standaloneStreams) connect(st *stream) {
	s.remove(st)
	s.connected = append(s.connected, st)
}

// removeSurplus takes out the oldest connected stream, if there are too many, and returns it; nil: there are not.
func (s *standaloneStreams) removeSurplus() *stream {
	if len(s.connected) <= maxConnectedStandalone {
		return nil
	}
	oldest := s.connected[0]
	s.connected = slices.Delete(s.connected, 0, 1)
	return oldest
}

// disconnect notes that nobody reads st now, which can be resumed; the caller has taken it out (remove). It returns the
// stream that cannot be resumed any more because there are too many; nil: there is none.
func (s *standaloneStreams) disconnect(st *stream) (forgotten *stream) {
	s.idle = append(s.idle, st)
	if len(s.idle) > maxIdleStandalone {
		forgotten = s.idle[0]
		s.idle = slices.Delete(s.idle, 0, 1)
	}
	return forgotten
}

// remove takes st out, whether somebody reads it or not.
func (s *standaloneStreams) remove(st *stream) {
	same := func(o *stream) bool { return o == st }
	s.connected = slices.DeleteFunc(s.connected, same)
	s.idle = slices.DeleteFunc(s.idle, same)
}
