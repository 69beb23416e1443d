package streamhttp

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxDeferred is how many messages each list of what a session keeps for a stream that nobody has opened may have
// (HandlerOptions.ReplayBytes bounds it in bytes). It also bounds the requests of the server, and the tokens of
// tasks, that a session remembers.
const maxDeferred = 1000

// deferredMessages keeps what the server has sent and no stream can carry now (docs/rules.md,
// B.3): requests for a while, notifications for as long as they are of use. The
// session's lock guards it.
type deferredMessages struct {
	requests            []*deferredRequest    // the server's requests that wait for a stream, oldest first
	expiryTimer         lazytimer.Timer       // calls session.expireDeferredRequests
	awaitingInitialized deferredNotifications // what must wait for the client's notifications/initialized
	awaitingStandalone  deferredNotifications // what waits for a standalone stream
	warnedDropped       bool                  // the log was told that notifications are dropped
}

// deferredRequest is a server request that waits for a stream to travel on.
type deferredRequest struct {
	m         jsonrpc.Message // the request
	afterSeq  uint64          // seq of the newest call when the request came: the stream of any newer call may carry it, too (routeDeferredRequests)
	expiresAt time.Time       // when the bridge answers the request in the client's place
}

// hasRequestRoom reports whether m, one more request, can be kept: there may be maxDeferred, with maxBytes bytes together.
func (d *deferredMessages) hasRequestRoom(m jsonrpc.Message, maxBytes int) bool {
	size := m.Size()
	for _, r := range d.requests {
		size += r.m.Size()
	}
	return len(d.requests) < maxDeferred && size <= maxBytes
}

// removeRequest forgets the request with this id, which the server has cancelled, if there is one.
func (d *deferredMessages) removeRequest(id jsonrpc.ID) {
	at := make(map[jsonrpc.ID]int, len(d.requests))
	for i, r := range d.requests {
		at[r.m.ID()] = i
	}
	if _, i, ok := jsonrpc.Find(at, id); ok {
		d.requests = slices.Delete(d.requests, i, i+1)
	}
}

// clear forgets everything.
func (d *deferredMessages) clear() {
	d.requests = nil
	d.awaitingInitialized.takeAll()
	d.awaitingStandalone.takeAll()
}

// deferredNotifications is a list of the server's notifications that wait for a stream, oldest first. It does not
// bound itself: whoever adds one asks fits before. The zero value is empty.
type deferredNotifications struct {
	list  []jsonrpc.Message // oldest first
	bytes int               // how many bytes the messages in list have
}

// fits reports whether m can be added: there may be maxDeferred, with maxBytes bytes together.
func (q *deferredNotifications) fits(m jsonrpc.Message, maxBytes int) bool {
	return len(q.list) < maxDeferred && q.bytes+m.Size() <= maxBytes
}

// add appends m, whether it fits or not.
func (q *deferredNotifications) add(m jsonrpc.Message) {
	q.list = append(q.list, m)
	q.bytes += m.Size()
}

// remove removes the notification at index i of list.
func (q *deferredNotifications) remove(i int) {
	q.bytes -= q.list[i].Size()
	q.list = slices.Delete(q.list, i, i+1)
}

// takeAll returns the whole list, and empties it.
func (q *deferredNotifications) takeAll() []jsonrpc.Message {
	all := q.list
	*q = deferredNotifications{}
	return all
}

// removeSuperseded removes the notification that m supersedes, if there is one.
func (q *deferredNotifications) removeSuperseded(m jsonrpc.Message) {
	for i, o := range q.list {
		if supersedes(o, m) {
			q.remove(i)
			return
		}
	}
}

// supersedes reports whether the newer notification says all that the older one says.
func supersedes(older, newer jsonrpc.Message) bool {
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

// The rest of this file is what the session does with its deferredMessages. The caller
// holds the session's lock, unless something else is said.

// deferNotification keeps a notification that has no stream now, if it is of use later (B.3).
func (s *session) deferNotification(m jsonrpc.Message) {
	switch m.Method() {
	case "notifications/progress":
		if !s.calls.isTaskToken(m.ProgressToken()) {
			s.opts.Logger.Debug("progress dropped: no call in flight has its token", "session", s.logName())
			return
		}
	case "notifications/cancelled":
		s.deferred.removeRequest(m.CancelledID())
		if s.sent[m.CancelledID()] == nil { // the client does not know of the request
			return
		}
	}
	if s.stateless {
		s.opts.Logger.Debug("notification dropped: the request that it could follow is answered", "method", m.Method())
		return
	}
	if s.handshake.isTooEarly(m) {
		if !s.deferred.awaitingInitialized.fits(m, s.opts.ReplayBytes) {
			s.warnDropped(m, "too many before the client is initialized")
			return
		}
		s.deferred.awaitingInitialized.add(m)
		return
	}
	backlog := &s.deferred.awaitingStandalone
	backlog.removeSuperseded(m)
	for len(backlog.list) > 0 && !backlog.fits(m, s.opts.ReplayBytes) {
		s.warnDropped(backlog.list[0], "nobody listens on a GET stream")
		backlog.remove(0)
	}
	if backlog.fits(m, s.opts.ReplayBytes) {
		backlog.add(m)
	}
}

// warnDropped says once in a session's life that a notification was dropped: a
// server that logs much to a client that does not listen would flood our log.
func (s *session) warnDropped(m jsonrpc.Message, why string) {
	if !s.deferred.warnedDropped {
		s.deferred.warnedDropped = true
		s.opts.Logger.Warn("notification dropped, and maybe more to come: "+why, "session", s.logName(), "method", m.Method())
	}
}

// deferRequest keeps a server request until a stream opens that can carry it, for
// HoldTimeout at most. The bridge itself answers a ping (B.1.7), and refuses a request at
// once if there is no room for it or the client could not answer (stateless).
//
// Such an answer waits in posts until the server takes it.
func (s *session) deferRequest(m jsonrpc.Message) {
	delete(s.sent, m.ID()) // if it has travelled before, that was in vain
	switch {
	case m.Method() == "ping":
		s.posts.add(jsonrpc.NewResult(m.ID(), []byte(`{}`)))
	case s.stateless, !s.deferred.hasRequestRoom(m, s.opts.ReplayBytes):
		s.posts.add(noStreamError(m))
	default:
		r := &deferredRequest{m: m, afterSeq: s.calls.lastSeq, expiresAt: time.Now().Add(s.opts.HoldTimeout)}
		s.deferred.requests = append(s.deferred.requests, r)
		if len(s.deferred.requests) == 1 {
			s.deferred.expiryTimer.Set(r.expiresAt)
		}
	}
}

// expireDeferredRequests answers the deferred requests that have waited for long enough. It takes
// the lock itself.
func (s *session) expireDeferredRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.deferred.requests) > 0 { // oldest first
		r := s.deferred.requests[0]
		if r.expiresAt.After(now) {
			s.deferred.expiryTimer.Set(r.expiresAt)
			return
		}
		s.posts.add(noStreamError(r.m))
		s.deferred.requests[0] = nil
		s.deferred.requests = s.deferred.requests[1:]
	}
}

// noStreamError is the answer to a server request that no stream could carry.
func noStreamError(m jsonrpc.Message) jsonrpc.Message {
	const text = "the client listens on no stream that could carry the request"
	if m.Method() == "roots/list" {
		return jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, text, nil)
	}
	return jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, nil)
}

// routeDeferredRequests sends the deferred requests on their way that have a stream now. A request
// that belongs to no call should travel on a standalone stream. Once the request has had to
// wait, the stream of a call that is newer than the request will do as well (B.3).
func (s *session) routeDeferredRequests() {
	waiting := s.deferred.requests
	s.deferred.requests = nil
	for _, r := range waiting {
		st := s.targetStream(r.m)
		if st == nil && !s.handshake.isTooEarly(r.m) {
			if c := s.likeliestReadCall(r.afterSeq); c != nil {
				st = c.stream
			}
		}
		if st == nil {
			s.deferred.requests = append(s.deferred.requests, r)
			continue
		}
		s.route(r.m, st)
	}
}

// routeAwaitingInitialized sends the notifications on their way that had come too early.
func (s *session) routeAwaitingInitialized() {
	for _, m := range s.deferred.awaitingInitialized.takeAll() {
		s.route(m, s.targetStream(m))
	}
}
